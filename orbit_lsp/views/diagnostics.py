"""Diagnostics of compilers and runs, at their places in the present text."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from lsprotocol import types as lsp

from orbit_lsp.kernels import Span
from orbit_lsp.state.documents import Document
from orbit_lsp.state.session import Session
from orbit_lsp.views import harness_view, kernel_status, labels, positions
from orbit_lsp.views.compiler import cost_diagnostics, problem_view
from orbit_lsp.views.profile import profile_lines
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
    """A kernel's hints as one Hint diagnostic on its name: Helix asks for hints again only after an edit
    or a scroll, and at the end of a line it shows one diagnostic.
    """
    return [
        lsp.Diagnostic(
            positions.of_span(session, document, span),
            "   ".join(texts),
            severity=lsp.DiagnosticSeverity.Hint,
            source="orbit",
        )
        for span, texts in _labelled(session, uri)
    ]


def _labelled(session: Session, uri: str) -> Iterator[tuple[Span, list[str]]]:
    for known in kernel_status.of(session, uri):
        if texts := labels.labels(session, uri, known):
            yield known.kernel.name_span, texts
    lines = defaultdict[int, list[str]](list)
    for line, label in profile_lines.labels(session, uri):
        lines[line].append(label)
    document = session.files[uri].document
    for line, said in lines.items():
        text = document.line(line).rstrip()
        yield Span(line, len(text) - len(text.lstrip()), line, len(text)), said
    checked = kernel_status.harness_status(session, uri)
    if checked and (said := harness_view.labels(session, uri)[1]):
        yield checked.entry.span, said
