"""A report as a page: turns titles, facts, tables, plots and source text into HTML. Everything in it is escaped."""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape

from orbit_lsp.report.plot import Plot, svg
from orbit_lsp.state.units import percent
from orbit_remote.common.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class FactList:
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
class SourceText:
    """Text as it stands in a file."""

    title: str
    text: str


@dataclass(frozen=True, slots=True)
class Picture:
    """A drawing of one of our own modules, as SVG; `caption` stands under it."""

    title: str
    svg: str
    caption: str = ""


@dataclass(frozen=True, slots=True)
class Weighed:
    """A line of a text: its number, its share of the samples (None if there are none), and a note.

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
    caption: str = ""


@dataclass(frozen=True, slots=True)
class PageAnswer:
    """What a page says first: a verdict with its reason, and what to try."""

    verdict: str
    why: str
    steps: Sequence[str] = ()


_SHORT = 24
"""Characters of a cell that is not wrapped."""
_NUMBER = re.compile(r"[≤±<+-]?\d[\d.,e+-]*%?(?: \S+)?")

Block = FactList | Rows | SourceText | Plot | Picture | Annotated


@dataclass(frozen=True, slots=True)
class Page:
    """`blocks` are open, two of them side by side where the page is wide; the `folded` ones open at a click."""

    title: str
    lead: str
    blocks: Sequence[Block]
    folded: Sequence[Block] = ()
    answer: PageAnswer | None = None


# colours of at least 4.5:1 for text and 3:1 for lines on their ground (WCAG 2.2, 1.4.3 and 1.4.11); the series
# differ in lightness and in their markers too, so that they are told apart without colour
STYLE = """
:root { color-scheme: light dark; --ground: #ffffff; --text: #1b1f24; --quiet: #57606a; --line: #d0d7de; --soft: #f6f8fa;
  --s0: #0b5cad; --s1: #b45309; --s2: #0f766e; --s3: #a21caf; --s4: #b91c1c; --s5: #4d5c0a; --s6: #4338ca; --s7: #374151; }
@media (prefers-color-scheme: dark) {
  :root { --ground: #0d1117; --text: #e6edf3; --quiet: #9aa4af; --line: #30363d; --soft: #161b22;
    --s0: #6cb6ff; --s1: #f0a35e; --s2: #5eead4; --s3: #e5a3f5; --s4: #ff938a; --s5: #d3e06b; --s6: #b7b1ff; --s7: #cbd5e1; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1rem 1.25rem 2rem; max-width: 80rem; background: var(--ground); color: var(--text);
  font: 14px/1.45 system-ui, sans-serif; }
h1 { font-size: 1.35rem; line-height: 1.25; margin: 0; overflow-wrap: anywhere; }
h2 { font-size: 1rem; margin: 1.1rem 0 .4rem; }
.lead { color: var(--quiet); margin: .25rem 0 0; overflow-wrap: anywhere; }
.answer { border-left: 3px solid var(--s0); padding-left: .8rem; margin-top: .8rem; }
.answer p, .answer ul { margin: .15rem 0; } .answer ul { padding-left: 1.1rem; } .answer li { overflow-wrap: anywhere; }
.blocks { display: grid; grid-template-columns: minmax(0, 1fr); column-gap: 2rem; }
@media (min-width: 70rem) { .blocks.paired { grid-template-columns: minmax(0, 11fr) minmax(0, 9fr); } }
.paired section:has(table:not(.lines)) { grid-column: 1 / -1; }
details { border-top: 1px solid var(--line); } details:last-of-type { border-bottom: 1px solid var(--line); }
.folded { margin-top: 1.1rem; } summary { cursor: pointer; padding: .4rem 0; font-weight: 600; }
details[open] { padding-bottom: 1rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .3rem .9rem .3rem 0; text-align: left; border-bottom: 1px solid var(--line); vertical-align: top; }
thead th { color: var(--quiet); font-weight: 600; }
.number { text-align: right; white-space: nowrap; } .short { white-space: nowrap; } td.long { min-width: 12rem; }
td.counter { color: var(--quiet); font-size: .8rem; overflow-wrap: anywhere; } td:first-child:not(.number) { min-width: 8rem; }
.facts th { color: var(--quiet); font-weight: 400; vertical-align: top; }
.facts th { white-space: nowrap; } .facts td { overflow-wrap: anywhere; }
pre { background: var(--soft); border: 1px solid var(--line); border-radius: 6px; padding: .8rem 1rem; overflow-x: auto;
  font: 14px/1.5 ui-monospace, monospace; margin: 0; }
figure { margin: 0; max-width: 48rem; } figcaption { color: var(--quiet); margin-top: .5rem; }
table.lines { width: 100%; } table.lines th, table.lines td { min-width: 0; padding: .05rem .7rem .05rem 0; border-bottom: 0; white-space: nowrap; }
.quiet, .gap td { color: var(--quiet); } table.lines td.text { width: 100%; white-space: normal; }
.beside { display: flex; flex-wrap: wrap; justify-content: space-between; column-gap: 1rem; }
.beside code { white-space: pre-wrap; overflow-wrap: anywhere; font: 12.5px/1.45 ui-monospace, monospace; }
.beside .note { color: var(--quiet); font-size: .85rem; }
.share .bar { display: inline-block; width: 2.4rem; height: .65rem; margin-right: .4rem; }
svg { width: 100%; height: auto; display: block; font: 13px system-ui, sans-serif; }
svg text { fill: var(--text); } svg .quiet { fill: var(--quiet); }
svg .grid { stroke: var(--line); } svg .axis { stroke: var(--quiet); }
svg .peak { stroke: var(--quiet); stroke-dasharray: 6 4; fill: none; }
svg .series { fill: none; stroke-width: 2; } svg .box { fill: var(--soft); stroke: var(--quiet); } svg .full { opacity: .28; }
thead.unseen { position: absolute; clip-path: inset(50%); } svg .roof { fill: none; stroke: var(--text); stroke-width: 2; }
@media print { body { max-width: none; } }
""" + "".join(f"svg .c{n} {{ stroke: var(--s{n}); }} svg .f{n} {{ fill: var(--s{n}); stroke: none; }}\n" for n in range(8))  # fmt: skip


def html(page: Page) -> str:
    """Return the whole document. It loads nothing: its policy forbids everything that is not in it."""
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        """<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">""",
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{escape(page.title)}</title><style>{STYLE}</style></head><body><main>",
        f'<h1>{escape(page.title)}</h1><p class="lead">{escape(page.lead)}</p>',
        *([_answer(page.answer)] if page.answer else []),
        f'<div class="blocks{" paired" if page.folded and len(page.blocks) > 1 else ""}">',
        *(f"<section><h2>{escape(block.title)}</h2>{_inner(block)}</section>" for block in page.blocks),
        "</div>",
        *(['<div class="folded">'] if page.folded else []),
        *(
            f"<details><summary>{escape(block.title)}</summary>{_inner(block)}</details>"
            for block in page.folded
        ),
        *(["</div>"] if page.folded else []),
        "</main></body></html>",
    ]
    return "\n".join(parts) + "\n"


def _answer(answer: PageAnswer) -> str:
    why = f": {escape(answer.why)}" if answer.why else ""
    steps = "".join(f"<li>{escape(step)}</li>" for step in answer.steps)
    tried = f"<p>What to try:</p><ul>{steps}</ul>" if steps else ""
    return f'<section class="answer"><p><strong>{escape(answer.verdict)}</strong>{why}</p>{tried}</section>'


def _inner(block: Block) -> str:
    match block:
        case FactList():
            rows = "".join(
                f'<tr><th scope="row">{escape(name)}</th><td>{escape(value)}</td></tr>'
                for name, value in block.rows
            )
            return f'<div class="wide"><table class="facts"><tbody>{rows}</tbody></table></div>'
        case Rows():
            numeric = [_numeric([row[at] for row in block.rows]) for at in range(len(block.header))]
            longest = [
                max((len(row[at]) for row in block.rows), default=0) for at in range(len(block.header))
            ]
            classes = [
                _class(name, number, length)
                for name, number, length in zip(block.header, numeric, longest, strict=True)
            ]
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
        case SourceText():
            return f'<pre tabindex="0"><code>{escape(block.text)}</code></pre>'
        case Plot():
            return f"<figure>{svg(block)}</figure>"
        case Picture():
            caption = f"<figcaption>{escape(block.caption)}</figcaption>" if block.caption else ""
            return f"<figure>{block.svg}{caption}</figure>"
        case Annotated():
            return _annotated(block)


def _annotated(block: Annotated) -> str:
    """Draw a text with bars. The widest bar is the greatest share, so that small shares remain distinguishable."""
    most = max((line.share or 0 for line in block.lines if line), default=0)
    rows: list[str] = []
    for line in block.lines:
        if line is None:
            rows.append('<tr class="gap"><td colspan="3">⋯</td></tr>')
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
            f'<td class="text"><div class="beside"><code>{escape(line.text)}</code>'
            f'<span class="note">{escape(line.note)}</span></div></td></tr>'
        )
    caption = f'<p class="lead">{escape(block.caption)}</p>' if block.caption else ""
    head = '<th scope="col">line</th><th scope="col">samples</th><th scope="col">text, and what was counted there</th>'
    return (
        f'{caption}<div class="wide"><table class="lines"><thead class="unseen"><tr>{head}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )


def _numeric(cells: Sequence[str]) -> bool:
    filled = [cell for cell in cells if cell not in ("", "-")]
    return bool(filled) and sum(bool(_NUMBER.fullmatch(cell)) for cell in filled) * 2 > len(filled)


def _class(name: str, number: bool, length: int) -> str:
    """Return the class of a column. `length` is that of its longest cell. Names of counters are long and rarely read,
    so a narrow window gives its width to the short columns first.
    """
    if number or name == "counter":
        return ' class="number"' if number else ' class="counter"'
    return ' class="short"' if length <= _SHORT else ' class="long"'
