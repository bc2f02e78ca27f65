"""Diagnostics of compilers and runs, at their places in the present text."""

from __future__ import annotations

from collections import defaultdict

from lsprotocol import types as lsp

from orbit_lsp.state import fitting
from orbit_lsp.state.documents import Document
from orbit_lsp.state.session import Session
from orbit_lsp.views import hints, positions
from orbit_lsp.views.compiler import cost_diagnostics, problem_view
from orbit_lsp.views.spec import spec_diagnostics
from orbit_remote.common import limits


def diagnostics(session: Session, uri: str) -> list[lsp.Diagnostic]:
    """Messages whose line has been edited since they were made are left out until the next compile."""
    file = session.files.get(uri)
    document = file.document if file else None
    found: list[lsp.Diagnostic] = []
    found += [
        problem_view.as_shown(session, document, line, problem)
        for problem, line in problem_view.present(session, uri)
    ]
    found += spec_diagnostics.diagnostics(session, uri)
    found += cost_diagnostics.diagnostics(session, uri)
    if file and (beyond := file.scan.left_out):
        text = f"Kernels from this one on are left out: {limits.KERNELS.most:,} are shown of a file."
        where = positions.whole_line(session, file.document, beyond.line)
        found.append(lsp.Diagnostic(where, text, severity=lsp.DiagnosticSeverity.Information, source="orbit"))
    if session.client.mirror_hints and document:
        found += _mirrored(session, uri, document)
    return found


def _mirrored(session: Session, uri: str, document: Document) -> list[lsp.Diagnostic]:
    """Hints as Hint diagnostics at the end of their lines: Helix asks for hints again only after an edit or a scroll,
    and at the end of a line it shows one diagnostic.
    """
    texts = defaultdict[int, list[str]](list)
    for hint in hints.hints(session, uri, 0, len(document.lines)):
        texts[hint.position.line].append(str(hint.label))
    names = {kernel.name_span.line: kernel.name_span for _, kernel, _ in session.kernels(uri)}
    return [
        lsp.Diagnostic(
            positions.of_span(session, document, names[line])
            if line in names
            else positions.whole_line(session, document, line),
            fitting.BETWEEN.join(said),
            severity=lsp.DiagnosticSeverity.Hint,
            source="orbit",
        )
        for line, said in texts.items()
    ]
