"""Code actions for comments that were meant as launch specs and are not read. They correct the beginning."""

from __future__ import annotations

from lsprotocol import types as lsp

from orbit_lsp.kernels import Span
from orbit_lsp.specs import spec_cache
from orbit_lsp.state.session import Session
from orbit_lsp.views import positions
from orbit_lsp.views.spec import spec_diagnostics


def actions(session: Session, uri: str, first: int, last: int, *, versioned: bool) -> list[lsp.CodeAction]:
    """Return the actions for the lines `first` to `last`, with the lines beside them that need the same, because a
    spec is only valid as a whole.
    """
    file = session.files.get(uri)
    if file is None or not spec_cache.text_lines(session, uri).says:
        return []
    from orbit_remote.spec.comment_scanner import beginning, near_misses

    document, language = file.document, file.scan.language
    misses = near_misses(spec_cache.lines_of(session, uri), language)
    lines = {line for line in misses if first <= line <= last}
    if not lines:
        return []
    for step in (-1, 1):
        for line in tuple(lines):
            beside = line + step
            while beside in misses and beside not in lines:
                lines.add(beside)
                beside += step
    written = beginning(language)
    edits: list[lsp.TextEdit] = []
    for line in sorted(lines):
        at = misses[line]
        rest = document.line(line)[at.end_column : at.end_column + 1]
        space = "" if rest.isspace() else " "
        span = Span(at.line, at.column, at.end_line, at.end_column)
        edits.append(lsp.TextEdit(positions.of_span(session, document, span), written + space))
    shown = [
        diagnostic
        for diagnostic in spec_diagnostics.diagnostics(session, uri)
        if first <= diagnostic.range.start.line <= last and diagnostic.range.start.line in lines
    ]
    title = f"Write '{written}'"
    edit = positions.edit_of(document, edits, versioned=versioned)
    return [lsp.CodeAction(title, kind=lsp.CodeActionKind.QuickFix, diagnostics=shown, edit=edit)]
