"""Makes inlay hints: on a kernel's line its last time and the compiler's figures, on hot lines their stalls, and how
many instructions lines were compiled to.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from lsprotocol import types as lsp

from orbit_lsp.state.documents import Document
from orbit_lsp.state.session import Session
from orbit_lsp.views import harness_view, kernel_status, labels, positions
from orbit_lsp.views.answer import place
from orbit_lsp.views.explain import listing_hover
from orbit_lsp.views.profile import profile_lines


def hints(session: Session, uri: str, first: int, last: int) -> list[lsp.InlayHint]:
    """Return the hints of kernels and of profiled lines on the lines `first` to `last`, inclusive."""
    file = session.files.get(uri)
    if file is None:
        return []
    return [_at(session, file.document, line, text) for _, line, text in _texts(session, uri, first, last)]


def answer(session: Session, uri: str, first: int, last: int) -> list[lsp.InlayHint]:
    """Return the same for a client that asked: it draws these until it asks again."""
    file = session.files.get(uri)
    if file is None:
        return []
    kept = {what: drawn for what, drawn in file.drawn.items() if not first <= drawn[0] <= last}
    texts = [*_texts(session, uri, first, last)]
    file.drawn = kept | {what: (line, text) for what, line, text in texts}
    return [_at(session, file.document, line, text) for _, line, text in texts]


def undrawn(session: Session, uri: str) -> Iterator[tuple[int, str]]:
    """Yield line and text of the hints that the client does not draw yet."""
    file = session.files[uri]
    for what, line, text in _texts(session, uri, 0, len(file.document.lines)):
        if file.drawn.get(what, (0, ""))[1] != text:
            yield line, text


def are_news(session: Session, uri: str) -> bool:
    """Return whether the client draws other hints of an open file, or none. After this call the client counts as
    having asked for them.
    """
    file = session.files[uri]
    texts = [*_texts(session, uri, 0, len(file.document.lines))]
    news = {what: text for what, _, text in texts} != {what: text for what, (_, text) in file.drawn.items()}
    file.drawn = {what: (line, text) for what, line, text in texts}
    return news


def _texts(session: Session, uri: str, first: int, last: int) -> Iterator[tuple[str, int, str]]:
    """Yield what each hint is about, its line and its text."""
    document = session.files[uri].document
    every, client = kernel_status.of(session, uri), session.client
    on_line = Counter(known.kernel.line for known in every)
    for known in every:
        whole = known.kernel.whole
        if whole.line > last or first > whole.end_line:
            continue
        line, name = place.line(
            document, known.kernel, has_room=client.draws_lenses or not client.notes_behind_lines
        )
        if first <= line <= last and (text := labels.hint(session, uri, known)):
            if on_line[known.kernel.line] > 1:  # a macro may make them all
                name = f"{known.kernel.name}: "
            yield known.target.key, line, name + text
    for line, label in (*profile_lines.labels(session, uri), *listing_hover.counts(session, uri)):
        if first <= line <= last:
            yield f"line {line}: {label}", line, label
    line, text = harness_view.label(session, uri)
    if text and first <= line <= last:
        yield "harness", line, text


def _at(session: Session, document: Document, line: int, text: str) -> lsp.InlayHint:
    return lsp.InlayHint(positions.line_end(session, document, line), text, padding_left=True)
