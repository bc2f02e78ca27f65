"""A report as a page: titles, facts, tables, plots and source text -> HTML. Everything in it is escaped."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from orbit_lsp.report.plot import Plot, svg


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


_NUMBER = re.compile(r"[≤±<-]?\d[\d.,e+-]*%?(?: \S+)?")

Block = Facts | Rows | Source | Plot


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
.facts th { color: var(--quiet); font-weight: 400; vertical-align: top; }
.facts th { white-space: nowrap; } .facts td { overflow-wrap: anywhere; }
pre { background: var(--soft); border: 1px solid var(--line); border-radius: 6px; padding: .8rem 1rem; overflow-x: auto;
  font: 14px/1.5 ui-monospace, monospace; margin: 0; }
figure { margin: 0; }
svg { width: 100%; height: auto; display: block; font: 13px system-ui, sans-serif; }
svg text { fill: var(--text); } svg .quiet { fill: var(--quiet); }
svg .grid { stroke: var(--line); } svg .axis { stroke: var(--quiet); }
svg .peak { stroke: var(--quiet); stroke-dasharray: 6 4; fill: none; }
svg .series { fill: none; stroke-width: 2; }
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
            head = "".join(
                f'<th scope="col"{_class(number)}>{escape(cell)}</th>'
                for cell, number in zip(block.header, numeric, strict=True)
            )
            body = "".join(
                "<tr>" + "".join(f"<td{_class(n)}>{escape(cell)}</td>" for cell, n in zip(row, numeric, strict=True)) + "</tr>"
                for row in block.rows
            )  # fmt: skip
            return (
                f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'
            )
        case Source():
            return f'<pre tabindex="0"><code>{escape(block.text)}</code></pre>'
        case Plot():
            return f"<figure>{svg(block)}</figure>"


def _numeric(cells: Sequence[str]) -> bool:
    said = [cell for cell in cells if cell not in ("", "-")]
    return bool(said) and sum(bool(_NUMBER.fullmatch(cell)) for cell in said) * 2 > len(said)


def _class(number: bool) -> str:
    return ' class="number"' if number else ""
