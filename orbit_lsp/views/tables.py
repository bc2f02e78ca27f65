"""Tables that read well as markdown and as plain text. The hover, the command line and reports show the same ones."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence
from typing import Self

from orbit_remote.common.lazy_dataclass import dataclass


class CodeCell(str):
    """A cell that is shown as code. Everything else is text, and is escaped."""

    __slots__ = ()


class Link(str):
    """A cell that links to a file, for readers that draw links. `address` is the file's quoted URI."""

    __slots__ = ("address",)

    def __new__(cls, text: str, address: str) -> Self:
        cell = super().__new__(cls, text)
        cell.address = address
        return cell


@dataclass(frozen=True, slots=True)
class Table:
    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class Drawing:
    """Lines of characters that stand under each other."""

    title: str
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TitledLines:
    """Sentences under a title."""

    title: str
    lines: tuple[str, ...]


Row = tuple[str, str, str]
"""What, its value, and where the value comes from."""
Section = tuple[str, list[Row]] | Table | Drawing | TitledLines
_SOURCE = 26
"""Columns of a source in a markdown table: a longer one would make the column of values narrow."""
_MOST = 3
"""Rows of a sentence in plain text."""
_COUNTER = 40
"""Columns of a counter's name there, which no editor wraps: the report has the whole of a longer one."""


def render(sections: Sequence[Section], *, markdown: bool, columns: int | None = None) -> str:
    """Write sections as text. With `columns`, a row of plain text that is longer is wrapped, and goes on below its value.
    A floating window of an editor would wrap it anywhere.
    """
    parts: list[str] = []
    for section in sections:
        if isinstance(section, Table):
            parts.append(_table(section, markdown=markdown))
            continue
        if isinstance(section, Drawing):
            parts.append(_drawing(section, markdown=markdown))
            continue
        if isinstance(section, TitledLines):
            parts.append(_sentences(section, columns, markdown=markdown))
            continue
        title, rows = section
        if markdown:
            lines = [f"**{escape(title)}**", "", "| what | value | from |", "|---|---|---|"]
            lines += ["| " + " | ".join(map(_cell, _short(row))) + " |" for row in rows]
        else:
            # a kernel's own name is longer than what is said of it
            width = max((len(name) for name, _, _ in rows if not isinstance(name, CodeCell)), default=0)
            lines = [title, *(line for row in rows for line in _wrapped(row, width, columns))]
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


def _short(row: Row) -> Row:
    """Return a row without the details of a long source: a report has them."""
    what, value, source = row
    if isinstance(source, CodeCell):
        return row if len(source) <= _COUNTER else (what, value, CodeCell(f"{source[: _COUNTER - 1]}…"))
    if len(source) <= _SOURCE:
        return row
    return what, value, re.split(r"[;:,]", source)[0]


def _wrapped(row: Row, width: int, columns: int | None) -> list[str]:
    """Return a row of plain text. What is too long goes on under its value."""
    what, value, source = row
    text = f"{value}  [{source}]" if source else value
    head = f"  {what:<{width}}  "
    if columns is None or len(head) + len(text) <= columns:
        return [head + text]
    left = min(len(head), columns // 2)  # a kernel's own name may fill the line
    pieces = textwrap.wrap(text, columns - left, break_long_words=False)
    if len(head) > left:
        return [head.rstrip(), *(" " * left + piece for piece in pieces)]
    return [head + pieces[0], *(" " * left + piece for piece in pieces[1:])]


def _sentences(section: TitledLines, columns: int | None, *, markdown: bool) -> str:
    if markdown:
        return "\n".join(
            [f"**{escape(section.title)}**", "", *(f"- {escape(line)}" for line in section.lines)]
        )
    lines = [
        piece
        for line in section.lines
        for piece in (
            textwrap.wrap(line, columns - 2, max_lines=_MOST, placeholder=" …") if columns else [line]
        )
    ]
    return "\n".join([section.title, *(f"  {line}" for line in lines)])


def _drawing(drawing: Drawing, *, markdown: bool) -> str:
    if markdown:
        return "\n".join([f"**{escape(drawing.title)}**", "", "```text", *drawing.lines, "```"])
    return "\n".join([drawing.title, *(f"  {line}" for line in drawing.lines)])


def _table(table: Table, *, markdown: bool) -> str:
    if markdown:
        ruler = "|---" * len(table.header) + "|"
        lines = [f"**{escape(table.title)}**", "", "| " + " | ".join(map(escape, table.header)) + " |", ruler]
        return "\n".join([*lines, *("| " + " | ".join(map(escape, row)) + " |" for row in table.rows)])
    widths = [max(map(len, column)) for column in zip(table.header, *table.rows, strict=True)]
    rows = (table.header, *table.rows)
    lines = [
        "  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows
    ]
    return "\n".join([table.title, *(line.rstrip() for line in lines)])


def _cell(cell: str) -> str:
    if isinstance(cell, Link):
        return f"[{escape(cell)}]({cell.address})"
    return _code(cell) if isinstance(cell, CodeCell) else escape(cell)


def _code(text: str) -> str:
    """Return a code span. A name that could end the span or the table's cell becomes escaped text instead."""
    return escape(text) if re.search(r"[`|\n]", text) else f"`{text}`"


def escape(text: str) -> str:
    """Escape the text of a program or compiler, so that it does not become markup or break the table."""
    for character in "\\`*_[]<>|#~":
        text = text.replace(character, "\\" + character)
    return text.replace("\r", " ").replace("\n", " ")
