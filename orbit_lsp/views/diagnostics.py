"""Makes diagnostics of compilers and runs, at their places in the present text."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import chain

from lsprotocol import types as lsp

from orbit_lsp.kernels import Scan
from orbit_lsp.state import fitting
from orbit_lsp.state.documents import Document
from orbit_lsp.state.session import Session
from orbit_lsp.views import hints, positions
from orbit_lsp.views.compiler import cost_diagnostics, problem_view
from orbit_lsp.views.spec import spec_diagnostics
from orbit_remote.common import limits


def diagnostics(session: Session, uri: str) -> list[lsp.Diagnostic]:
    """Return the diagnostics. A message whose line has been edited since is left out until the next compile."""
    file = session.files.get(uri)
    document = file.document if file else None
    reported: list[lsp.Diagnostic] = []
    reported += [
        problem_view.as_shown(session, document, line, problem)
        for problem, line in chain(problem_view.present(session, uri), problem_view.of_headers(session, uri))
    ]
    reported += spec_diagnostics.diagnostics(session, uri)
    reported += cost_diagnostics.diagnostics(session, uri)
    if file:
        reported += [
            lsp.Diagnostic(
                positions.whole_line(session, file.document, line),
                text,
                severity=lsp.DiagnosticSeverity.Information,
                source="orbit",
            )
            for line, text in _left_out(file.scan)
        ]
    if session.client.mirror_hints and document:
        reported += _mirrored(session, uri, document)
    return reported


def _left_out(scan: Scan) -> Iterator[tuple[int, str]]:
    if scan.left_out:
        most = f"{limits.KERNELS.most:,}"
        yield scan.left_out.line, f"Kernels from this one on are left out: {most} are shown of a file."
    if scan.unread is not None:
        if scan.language == "cuda":
            why = f"{limits.DECLARATIONS.most:,} declarations stand above it"
        else:
            most = f"{limits.STATEMENTS.most:,} statements stand above it"
            why = f"it has more than {limits.STATEMENT.size}, or {most}"
        yield scan.unread, f"Kernels in the code that begins here are left out: {why}."


def _mirrored(session: Session, uri: str, document: Document) -> list[lsp.Diagnostic]:
    """Return hints as Hint diagnostics at the end of their lines, until the client asks for them. Helix and Emacs ask
    again only after an edit or a scroll. At the end of a line Helix shows only one diagnostic.
    """
    texts = defaultdict[int, list[str]](list)
    for line, text in hints.undrawn(session, uri):
        texts[line].append(text)
    names = {kernel.name_span.line: kernel.name_span for _, kernel, _ in session.kernels(uri)}
    return [
        lsp.Diagnostic(
            positions.of_span(session, document, names[line])
            if line in names
            else positions.whole_line(session, document, line),
            fitting.BETWEEN.join(text),
            severity=lsp.DiagnosticSeverity.Hint,
            source="orbit",
        )
        for line, text in texts.items()
    ]
