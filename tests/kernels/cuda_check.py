"""Scans as text, so that a test is a source and what should be seen in it."""

from __future__ import annotations

from textwrap import dedent

from orbit_lsp.kernels.cuda.cuda_kernels import scan
from orbit_lsp.kernels.model import Scan, Span


def text_at(source: str, span: Span) -> str:
    lines = source.split("\n")
    if span.line == span.end_line:
        return lines[span.line][span.column : span.end_column]
    middle = lines[span.line + 1 : span.end_line]
    return "\n".join([lines[span.line][span.column :], *middle, lines[span.end_line][: span.end_column]])


def described(source: str, scanned: Scan) -> list[str]:
    """One line a kernel: its line, qualified name, whether it is a template, its launch bounds."""
    assert len(scanned.digests) == len(scanned.kernels)
    lines: list[str] = []
    for kernel in scanned.kernels:
        named = text_at(source, kernel.name_span)
        whole = text_at(source, kernel.whole)
        assert kernel.name_span.line < len(source.split("\n"))
        assert named in whole
        assert kernel.qualified.split("::")[-1] == kernel.name or "(" in kernel.name
        shown = f"{kernel.line} {kernel.qualified}"
        if named != kernel.name:
            shown += f" at {named}"
        if kernel.template:
            shown += " template"
        if kernel.bounds:
            shown += f" bounds({', '.join(kernel.bounds)})"
        lines.append(shown)
    return lines


def check(source: str, expected: str, **options: object) -> Scan:
    """Lines count from 0; the first line of an indented source is empty and not counted."""
    source = dedent(source.removeprefix("\n"))
    result = scan(source, **options)  # pyright: ignore[reportArgumentType]
    assert described(source, result) == dedent(expected).strip().splitlines()
    return result
