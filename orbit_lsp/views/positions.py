"""Converts spans in code points into ranges in the client's units."""

from __future__ import annotations

from lsprotocol import types as lsp

from orbit_lsp.kernels import Span
from orbit_lsp.state.documents import Document, to_client
from orbit_lsp.state.session import Session
from orbit_remote.common import limits


def position(session: Session, document: Document, line: int, column: int) -> lsp.Position:
    """Return a position in the client's encoding. `line` and `column` count from 0, the column in code points."""
    return lsp.Position(line, to_client(document.line(line), column, session.client.encoding))


def of_span(session: Session, document: Document, span: Span) -> lsp.Range:
    return lsp.Range(
        position(session, document, span.line, span.column),
        position(session, document, span.end_line, span.end_column),
    )


def line_end(session: Session, document: Document, line: int) -> lsp.Position:
    """Return the place behind the last character that is not white space. `line` counts from 0. In a line that is
    longer than `limits.KERNEL_LINE` it is the place at that limit.
    """
    return position(session, document, line, len(shown(document, line).rstrip()))


def whole_line(session: Session, document: Document, line: int) -> lsp.Range:
    """Return the range from the first character that is not white space to the last."""
    text = shown(document, line).rstrip()
    start = len(text) - len(text.lstrip())
    return lsp.Range(position(session, document, line, start), position(session, document, line, len(text)))


def shown(document: Document, line: int) -> str:
    """Return the part of a line that views look at. Of an endless line that is its beginning."""
    return document.line(line)[: limits.KERNEL_LINE.most]


def edit_of(document: Document, edits: list[lsp.TextEdit], *, versioned: bool) -> lsp.WorkspaceEdit:
    """Return edits of a file as a workspace edit. `versioned`: the client accepts `documentChanges`, and refuses
    those of an older text.
    """
    if not versioned:
        return lsp.WorkspaceEdit(changes={document.uri: edits})
    of = lsp.OptionalVersionedTextDocumentIdentifier(document.uri, version=document.version)
    return lsp.WorkspaceEdit(document_changes=[lsp.TextDocumentEdit(of, [*edits])])
