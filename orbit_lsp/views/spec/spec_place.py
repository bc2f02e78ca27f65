"""Finds where in a launch spec a position of the editor lies: the kernel below, the statement, what stands before it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orbit_lsp.kernels import Kernel
from orbit_lsp.specs import spec_cache
from orbit_lsp.state.documents import from_client
from orbit_lsp.state.session import OpenFile, Session
from orbit_remote.common.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from orbit_remote.spec.comment_scanner import CommentPiece
    from orbit_remote.spec.syntax_tree import Language


@dataclass(frozen=True, slots=True)
class SpecPlace:
    """A column, in code points, of a line that begins with `orbit:`, behind the colon. `kernel` is None if the
    comment stands above no kernel. `pieces` are the lines of the spec from its top. If there is no kernel they are
    the comment's own.
    """

    file: OpenFile
    language: Language
    line: int
    column: int
    kernel: Kernel | None
    pieces: tuple[CommentPiece, ...]


def of(session: Session, uri: str, line: int, character: int) -> SpecPlace | None:
    """Return the place. Return None outside of launch specs, where other servers answer."""
    file = session.files.get(uri)
    text = file.document.line(line) if file else ""
    if file is None or "orbit:" not in text:
        return None
    from orbit_remote.spec import comment_scanner

    language = file.scan.language
    start = comment_scanner.begins(text, language)
    column = from_client(text, character, session.client.encoding)
    if start is None or column < start:
        return None
    kernel = spec_cache.kernel_at(session, uri, line)
    pieces = spec_cache.pieces_of(session, uri, kernel) if kernel else ()
    own = comment_scanner.CommentPiece(line, start, text.rstrip("\r\n")[start:])
    return SpecPlace(file, language, line, column, kernel, pieces or (own,))


def kernel_line(session: Session, uri: str, line: int) -> int:
    """Return the line of the kernel for a line of its launch spec. Any other line is returned unchanged."""
    kernel = spec_cache.kernel_at(session, uri, line)
    return kernel.whole.line if kernel else line
