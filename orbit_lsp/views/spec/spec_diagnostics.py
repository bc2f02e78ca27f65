"""Diagnostics of the launch specs of a file, at their columns in the present text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lsprotocol import types as lsp

from orbit_lsp.kernels import Span
from orbit_lsp.specs import spec_cache
from orbit_lsp.state.session import Session
from orbit_lsp.views import positions

if TYPE_CHECKING:
    from orbit_remote.spec.syntax_tree import Span as SpecSpan

_SEVERITY = {"error": lsp.DiagnosticSeverity.Error, "warning": lsp.DiagnosticSeverity.Warning}


def diagnostics(session: Session, uri: str) -> list[lsp.Diagnostic]:
    file = session.files.get(uri)
    if file is None:
        return []
    return [
        lsp.Diagnostic(
            positions.of_span(session, file.document, _visible(fault.span)),
            fault.message,
            severity=_SEVERITY[fault.severity],
            code="launch-spec",
            source="orbit",
        )
        for fault in spec_cache.faults(session, uri)
    ]


def _visible(span: SpecSpan) -> Span:
    """What has no width, as the end of a statement, is drawn one column wide to its left."""
    column = span.column
    if (span.line, span.column) == (span.end_line, span.end_column):
        column = max(0, column - 1)
    return Span(span.line, column, span.end_line, span.end_column)
