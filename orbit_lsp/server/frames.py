"""The frame of a message (`Content-Length: 12`, an empty line, the body), read as leniently as it can be understood.

pygls 2.1.1 reads no header but its own spelling, and waits for ever where a client has another one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from io import BytesIO
from typing import BinaryIO

from orbit_remote.common.limits import MESSAGE

_HEADER_BYTES = 4096
_FURTHEST = 1 << 32
"""Bytes of an opened file that are passed over."""
_PIECE = 1 << 16
log = logging.getLogger("orbit.server")


class Frames(BytesIO):
    """What `LanguageServer.start_io` reads: each frame comes out in the spelling of the specification, and what is
    no frame ends the input, with one sentence to `complain`.
    """

    def __init__(self, stdin: BinaryIO, complain: Callable[[str], None]) -> None:
        super().__init__()
        self._stdin = stdin
        self._complain = complain
        self._header: list[bytes] = []

    def readline(self, size: int | None = -1, /) -> bytes:
        """A line of the next header; b"" at the end of the input."""
        del size
        if not self._header:
            try:
                length = self._length()
            except ValueError as error:
                self._complain(
                    f"{error}; orbit-lsp speaks the Language Server Protocol here: an editor starts it and speaks first"
                )
                return b""
            if not length:
                return b""
            self._header = [b"\r\n", b"Content-Length: %d\r\n" % length]
        return self._header.pop()

    def read(self, size: int | None = -1, /) -> bytes:
        """A body; b"" where the client left in the middle of it."""
        body = self._stdin.read(size or 0)
        return body if len(body) == size else b""

    def _length(self) -> int:
        """Of the next body that has one; 0 at the end of the input. Raises ValueError."""
        length: int | None = None
        started = False
        while line := self._stdin.readline(_HEADER_BYTES):
            if not line.strip():
                if length and length > MESSAGE.most:
                    self._pass_over(length)
                elif length:
                    return length
                if started and length is None:
                    raise ValueError("a message came without its Content-Length")
                length, started = None, False  # an empty body is no message
                continue
            name, colon, value = line.partition(b":")
            if not colon or not line.endswith(b"\n"):
                raise ValueError(f"{line[:60].strip().decode('utf-8', 'replace')!r} is not a message header")
            started = True
            if name.strip().lower() == b"content-length":
                length = _number(value.strip(), length)
        return 0

    def _pass_over(self, length: int) -> None:
        """A message that opens a file, whose later messages then mean nothing. Raises ValueError of any other."""
        why = f"a message of {length:,} bytes was not read: {MESSAGE.exceeded}"
        before = piece = ends = b""
        for at in range(0, length if length <= _FURTHEST else 0, _PIECE):
            before, piece = piece, self._stdin.read(min(_PIECE, length - at))
            ends = ends or piece  # where a client writes the method, first or last
        if b'"textDocument/didOpen"' not in ends + before + piece:
            raise ValueError(why)
        log.warning("%s; the file that it opens is left alone", why)


def _number(value: bytes, before: int | None) -> int:
    if not value.isdigit() or len(value) > 18:
        raise ValueError(
            f"Content-Length is {value[:40].decode('utf-8', 'replace')!r}, which is not a number of bytes"
        )
    if before not in (None, int(value)):
        raise ValueError("a message has two lengths")
    return int(value)
