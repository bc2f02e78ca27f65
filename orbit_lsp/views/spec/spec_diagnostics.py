"""Makes diagnostics of a file's launch specs, at their columns in the present text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lsprotocol import types as lsp

from orbit_lsp.kernels import Span
from orbit_lsp.specs import spec_cache
from orbit_lsp.state import modal_gpus
from orbit_lsp.state.session import Session
from orbit_lsp.views import positions
from orbit_remote.common import architectures

if TYPE_CHECKING:
    from orbit_remote.spec.syntax_tree import Fault, SpecSpan

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
        for fault in (*spec_cache.faults(session, uri), *_not_rented(session, uri))
    ]


def _not_rented(session: Session, uri: str) -> list[Fault]:
    """Return a warning at each GPU for which a run would be refused, if runs go to Modal: it is a known GPU, but not
    one of Modal's.
    """
    if session.setup.place() != "modal" or not session.setup.modal_account:
        return []
    from orbit_remote.spec.syntax_tree import Fault

    faults: dict[Fault, None] = {}
    for _, kernel, _ in session.kernels(uri):
        checked = spec_cache.spec_of(session, uri, kernel, placed=False)
        named = checked.spec.words["gpu"].values if checked and "gpu" in checked.spec.words else ()
        wrong = [gpu for gpu in named if not modal_gpus.rented(gpu) and architectures.architecture_for(gpu)]
        placed = spec_cache.spec_of(session, uri, kernel) if wrong else None
        if placed:
            why = f"A run is refused: {modal_gpus.refusal(wrong[0])}."
            faults[Fault(placed.spec.words["gpu"].span, why, "warning")] = None
    return list(faults)


def _visible(span: SpecSpan) -> Span:
    """Return a span with a width. A place without one, such as the end of a statement, is drawn one column wide to
    its left.
    """
    column = span.column
    if (span.line, span.column) == (span.end_line, span.end_column):
        column = max(0, column - 1)
    return Span(span.line, column, span.end_line, span.end_column)
