"""What a kernel costs by its compiler's figures, as diagnostics on its name, each with a setting"""

from __future__ import annotations

from lsprotocol import types as lsp

from orbit_lsp.state.session import Session
from orbit_lsp.views import kernel_status, positions
from orbit_lsp.views.compiler.kernel_costs import Kind, costs

_SETTINGS: dict[Kind, str] = {
    "register-spills": "spills", "local-memory": "local_memory", "shared-memory": "shared_memory",
    "block-size": "block_size", "occupancy-step": "occupancy",
}  # fmt: skip
"""The diagnostic's code -> its setting in `orbit.costs`; what no launch can have is not a cost, and has none."""
_SEVERITY = {"hint": lsp.DiagnosticSeverity.Hint, "warning": lsp.DiagnosticSeverity.Warning}


def diagnostics(session: Session, uri: str) -> list[lsp.Diagnostic]:
    """Of the kernels whose figures are of their present text."""
    file = session.files.get(uri)
    if file is None:
        return []
    settings = session.setup.settings.costs
    reported: list[lsp.Diagnostic] = []
    for known in kernel_status.of(session, uri):
        if known.figures is None or known.figures_stale:
            continue
        by_kind: dict[Kind, list[str]] = {}
        several = len(known.figures.resources) > 1
        for resources in known.figures.resources:
            for kind, text in costs(session, uri, known, resources):
                instance = ", ".join(f"{name}={value}" for name, value in resources.constants.items())
                by_kind.setdefault(kind, []).append(
                    f"{instance or resources.name}: {text}" if several else text
                )
        where = positions.of_span(session, file.document, known.kernel.name_span)
        for kind, texts in by_kind.items():
            setting = "warning" if kind == "local-limit" else getattr(settings, _SETTINGS[kind])
            if severity := _SEVERITY.get(setting):
                text = "\n".join(dict.fromkeys(texts))
                reported.append(lsp.Diagnostic(where, text, severity=severity, code=kind, source="orbit"))
    return reported
