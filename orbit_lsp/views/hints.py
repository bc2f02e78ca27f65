"""Inlay hints at the end of the kernel's line: the last measured time, then the compiler's figures."""

from __future__ import annotations

from lsprotocol import types as lsp

from orbit_lsp.state.session import Session
from orbit_lsp.views import harness_view, kernel_status, labels, positions
from orbit_lsp.views.profile import profile_lines


def hints(session: Session, uri: str, first: int, last: int) -> list[lsp.InlayHint]:
    """For kernels whose name stands on the lines `first` to `last`, both counted in."""
    file = session.files.get(uri)
    if file is None:
        return []
    found: list[lsp.InlayHint] = []
    for known in kernel_status.of(session, uri):
        line = known.kernel.name_span.line
        if not first <= line <= last:
            continue
        for label in labels.labels(session, uri, known):
            place = positions.line_end(session, file.document, line)
            found.append(lsp.InlayHint(place, label, padding_left=True))
    for line, label in profile_lines.labels(session, uri):
        if first <= line <= last:
            place = positions.line_end(session, file.document, line)
            found.append(lsp.InlayHint(place, label, padding_left=True))
    line, said = harness_view.labels(session, uri)
    if first <= line <= last:
        place = positions.line_end(session, file.document, line)
        found += [lsp.InlayHint(place, label, padding_left=True) for label in said]
    return found
