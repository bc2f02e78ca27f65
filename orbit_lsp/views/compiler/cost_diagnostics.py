"""Shows the costs of a kernel, by its compiler's figures, as diagnostics on its name. Each has a setting."""

from __future__ import annotations

from lsprotocol import types as lsp

from orbit_lsp.state.session import Session
from orbit_lsp.views import positions
from orbit_lsp.views.compiler import kernel_costs

_SEVERITY = {"hint": lsp.DiagnosticSeverity.Hint, "warning": lsp.DiagnosticSeverity.Warning}


def diagnostics(session: Session, uri: str) -> list[lsp.Diagnostic]:
    """Return the diagnostics of kernels whose figures are of their present text."""
    file = session.files.get(uri)
    if file is None:
        return []
    return [
        lsp.Diagnostic(
            positions.of_span(session, file.document, kernel.name_span), text,
            severity=_SEVERITY[severity], code=kind, source="orbit",
        )
        for kernel, kind, severity, text in kernel_costs.of(session, uri)
        if severity in _SEVERITY
    ]  # fmt: skip
