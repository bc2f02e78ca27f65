"""A report as a page: titles, facts, tables, plots and source text -> HTML. Everything in it is escaped."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from orbit_lsp.report.plot import Plot, svg
from orbit_lsp.state.units import percent


@dataclass(frozen=True, slots=True)
class Facts:
    """Names and values, one under the other."""

    title: str
    rows: Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Rows:
    """A table. Columns of mostly numbers, with or without a unit, stand to the right."""

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True, slots=True)
class Source:
    """Text as it stands in a file."""

    title: str
    text: str


@dataclass(frozen=True, slots=True)
class Picture:
    """A drawing of one of our own modules, as SVG; `said` stands under it."""

    title: str
    svg: str
    said: str = ""


@dataclass(frozen=True, slots=True)
class Weighed:
    """A line of a text: its number, its share of what was sampled (None: nothing was), what is to be said of it.

    None in place of a line is a gap.
    """

    number: int
    text: str
    share: float | None = None
    note: str = ""


@dataclass(frozen=True, slots=True)
class Annotated:
    """Text as it stands in a file, with a bar and a note beside the lines that matter."""

    title: str
    lines: Sequence[Weighed | None]
    said: str = ""


_NUMBER = re.compile(r"[≤±<+-]?\d[\d.,e+-]*%?(?: \S+)?")

Block = Facts | Rows | Source | Plot | Picture | Annotated


@dataclass(frozen=True, slots=True)
class Page:
    title: str
    lead: str
    blocks: Sequence[Block]


# colours of at least 4.5:1 for text and 3:1 for lines on their ground (WCAG 2.2, 1.4.3 and 1.4.11); the series
# differ in lightness and in their markers too, so that they are told apart without colour
_STYLE = """
:root { color-scheme: light dark; --ground: #ffffff; --text: #1b1f24; --quiet: #57606a; --line: #d0d7de; --soft: #f6f8fa;
  --s0: #0b5cad; --s1: #b45309; --s2: #0f766e; --s3: #a21caf; --s4: #b91c1c; --s5: #4d5c0a; --s6: #4338ca; --s7: #374151; }
@media (prefers-color-scheme: dark) {
  :root { --ground: #0d1117; --text: #e6edf3; --quiet: #9aa4af; --line: #30363d; --soft: #161b22;
    --s0: #6cb6ff; --s1: #f0a35e; --s2: #5eead4; --s3: #e5a3f5; --s4: #ff938a; --s5: #d3e06b; --s6: #b7b1ff; --s7: #cbd5e1; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 2rem 1.25rem 4rem; max-width: 66rem; background: var(--ground); color: var(--text);
  font: 16px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.6rem; line-height: 1.25; margin: 0; overflow-wrap: anywhere; }
h2 { font-size: 1.05rem; margin: 2.25rem 0 .5rem; }
.lead { color: var(--quiet); margin: .35rem 0 0; overflow-wrap: anywhere; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .3rem .9rem .3rem 0; text-align: left; border-bottom: 1px solid var(--line); vertical-align: top; }
thead th { color: var(--quiet); font-weight: 600; }
.number { text-align: right; white-space: nowrap; }
td.counter { color: var(--quiet); font-size: .8rem; overflow-wrap: anywhere; } td:first-child { min-width: 8rem; }
.facts th { color: var(--quiet); font-weight: 400; vertical-align: top; }
.facts th { white-space: nowrap; } .facts td { overflow-wrap: anywhere; }
pre { background: var(--soft); border: 1px solid var(--line); border-radius: 6px; padding: .8rem 1rem; overflow-x: auto;
  font: 14px/1.5 ui-monospace, monospace; margin: 0; }
figure { margin: 0; } figcaption { color: var(--quiet); margin-top: .5rem; }
table.lines td { min-width: 0; padding: .05rem .9rem .05rem 0; border-bottom: 0; white-space: nowrap; } .quiet, .gap td { color: var(--quiet); }
table.lines td.note { white-space: normal; min-width: 15rem; font-size: .9rem; } table.lines code { white-space: pre; font: 14px/1.5 ui-monospace, monospace; }
.share { min-width: 9rem; } .share span { font-size: .9rem; } .share .bar { display: inline-block; width: 5rem; height: .7rem; margin-right: .5rem; }
svg { width: 100%; height: auto; display: block; font: 13px system-ui, sans-serif; }
svg text { fill: var(--text); } svg .quiet { fill: var(--quiet); }
svg .grid { stroke: var(--line); } svg .axis { stroke: var(--quiet); }
svg .peak { stroke: var(--quiet); stroke-dasharray: 6 4; fill: none; }
svg .series { fill: none; stroke-width: 2; } svg .box { fill: var(--soft); stroke: var(--quiet); } svg .full { opacity: .28; }
svg .roof { fill: none; stroke: var(--text); stroke-width: 2; }
@media print { body { max-width: none; } }
""" + "".join(f"svg .c{n} {{ stroke: var(--s{n}); }} svg .f{n} {{ fill: var(--s{n}); stroke: none; }}\n" for n in range(8))  # fmt: skip


def html(page: Page) -> str:
    """The whole document. It loads nothing: its policy forbids what is not in it."""
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        """<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">""",
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{escape(page.title)}</title><style>{_STYLE}</style></head><body><main>",
        f'<h1>{escape(page.title)}</h1><p class="lead">{escape(page.lead)}</p>',
        *(f"<section><h2>{escape(block.title)}</h2>{_inner(block)}</section>" for block in page.blocks),
        "</main></body></html>",
    ]
    return "\n".join(parts) + "\n"


def _inner(block: Block) -> str:
    match block:
        case Facts():
            rows = "".join(
                f'<tr><th scope="row">{escape(name)}</th><td>{escape(value)}</td></tr>'
                for name, value in block.rows
            )
            return f'<div class="wide"><table class="facts"><tbody>{rows}</tbody></table></div>'
        case Rows():
            numeric = [_numeric([row[at] for row in block.rows]) for at in range(len(block.header))]
            classes = [_class(name, number) for name, number in zip(block.header, numeric, strict=True)]
            head = "".join(
                f'<th scope="col"{kind}>{escape(cell)}</th>'
                for cell, kind in zip(block.header, classes, strict=True)
            )
            body = "".join(
                "<tr>" + "".join(f"<td{kind}>{escape(cell)}</td>" for cell, kind in zip(row, classes, strict=True)) + "</tr>"
                for row in block.rows
            )  # fmt: skip
            return (
                f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'
            )
        case Source():
            return f'<pre tabindex="0"><code>{escape(block.text)}</code></pre>'
        case Plot():
            return f"<figure>{svg(block)}</figure>"
        case Picture():
            said = f"<figcaption>{escape(block.said)}</figcaption>" if block.said else ""
            return f"<figure>{block.svg}{said}</figure>"
        case Annotated():
            return _annotated(block)


def _annotated(block: Annotated) -> str:
    """The widest bar is the greatest share, so that small ones are told apart too."""
    most = max((line.share or 0 for line in block.lines if line), default=0)
    rows: list[str] = []
    for line in block.lines:
        if line is None:
            rows.append('<tr class="gap"><td colspan="4">⋯</td></tr>')
            continue
        share = "" if not line.share else percent(line.share)
        width = 100 * line.share / most if line.share and most else 0
        bar = (
            f'<svg class="bar" viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true">'
            f'<rect class="f1" x="0" y="0" width="{width:.1f}" height="10"/></svg>'
            if width >= 0.1
            else ""
        )
        rows.append(
            f'<tr><td class="number quiet">{line.number}</td><td class="share">{bar}<span>{escape(share)}</span></td>'
            f'<td class="note">{escape(line.note)}</td><td><code>{escape(line.text)}</code></td></tr>'
        )
    said = f'<p class="lead">{escape(block.said)}</p>' if block.said else ""
    head = '<th scope="col">line</th><th scope="col">samples</th><th scope="col">mainly</th><th scope="col">text</th>'
    return (
        f'{said}<div class="wide"><table class="lines"><thead><tr>{head}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )


def _numeric(cells: Sequence[str]) -> bool:
    said = [cell for cell in cells if cell not in ("", "-")]
    return bool(said) and sum(bool(_NUMBER.fullmatch(cell)) for cell in said) * 2 > len(said)


def _class(name: str, number: bool) -> str:
    """Names of counters are long and looked up, not read."""
    return ' class="number"' if number else ' class="counter"' if name == "counter" else ""
