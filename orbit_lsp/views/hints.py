"""Inlay hints: on a kernel's line the last measured time and the compiler's figures, on hot lines their stalls, and how many instructions lines became."""

from __future__ import annotations

from lsprotocol import types as lsp

from orbit_lsp.state.documents import Document
from orbit_lsp.state.session import Session
from orbit_lsp.views import harness_view, kernel_status, labels, positions
from orbit_lsp.views.answer import place
from orbit_lsp.views.explain import listing_hover
from orbit_lsp.views.profile import profile_lines


def hints(session: Session, uri: str, first: int, last: int) -> list[lsp.InlayHint]:
    """For kernels and lines of profiles on the lines `first` to `last`, both counted in."""
    file = session.files.get(uri)
    if file is None:
        return []
    inlay_hints: list[lsp.InlayHint] = []
    for known in kernel_status.of(session, uri):
        whole = known.kernel.whole
        if whole.line > last or first > whole.end_line:
            continue
        line = place.line(file.document, known.kernel, has_lens=session.client.draws_lenses)
        if first <= line <= last and (text := labels.hint(session, uri, known)):
            inlay_hints.append(_at(session, file.document, line, text))
    for line, label in (*profile_lines.labels(session, uri), *listing_hover.counts(session, uri)):
        if first <= line <= last:
            inlay_hints.append(_at(session, file.document, line, label))
    line, text = harness_view.label(session, uri)
    if text and first <= line <= last:
        inlay_hints.append(_at(session, file.document, line, text))
    return inlay_hints


def _at(session: Session, document: Document, line: int, text: str) -> lsp.InlayHint:
    return lsp.InlayHint(positions.line_end(session, document, line), text, padding_left=True)
