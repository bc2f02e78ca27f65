"""Reads the frame of a message (`Content-Length: 12`, an empty line, the body), as leniently as possible.

pygls 2.1.1 reads only its own spelling of the header, and waits for ever if a client writes another.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Executor
from typing import BinaryIO

from orbit_remote.common.limits import MESSAGE

_HEADER_BYTES = 4096
_FURTHEST = 1 << 32
"""Bytes of an opened file that are passed over."""
_PIECE = 1 << 16
log = logging.getLogger("orbit.server")


class Frames:
    """The messages of a client. Anything that is no frame ends the input, with one sentence to `complain`."""

    def __init__(self, stdin: BinaryIO, complain: Callable[[str], None]) -> None:
        self._stdin = stdin
        self._complain = complain

    def body(self) -> bytes:
        """Return the body of the next message. Return b"" at the end of the input, or if the client left in the
        middle of it.
        """
        try:
            length = self._length()
        except ValueError as error:
            self._complain(
                f"{error}; orbit-lsp speaks the Language Server Protocol here: an editor starts it and speaks first"
            )
            return b""
        body = self._stdin.read(length)
        return body if len(body) == length else b""

    def _length(self) -> int:
        """Return the length of the next body. Return 0 at the end of the input. Raises ValueError."""
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
        """Pass over a message that opens a file; later messages about that file then mean nothing. Raises ValueError
        for any other message.
        """
        why = f"a message of {length:,} bytes was not read: {MESSAGE.exceeded}"
        before = piece = ends = b""
        for at in range(0, length if length <= _FURTHEST else 0, _PIECE):
            before, piece = piece, self._stdin.read(min(_PIECE, length - at))
            ends = ends or piece  # the first or the last piece has the method
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


class FrameReader:
    """Reads for pygls' `run_async`, a message at a time. pygls' own reader has a thread read each line. A message
    then waits for three turns of the event loop, however long those are.
    """

    def __init__(self, frames: Frames, threads: Executor | None) -> None:
        self._frames = frames
        self._threads = threads
        self._rest: list[bytes] = []

    async def readline(self) -> bytes:
        if not self._rest:
            loop = asyncio.get_running_loop()
            body = await loop.run_in_executor(self._threads, self._frames.body)
            if not body:
                return b""
            self._rest = [body, b"\r\n", b"Content-Length: %d\r\n" % len(body)]
        return self._rest.pop()

    async def readexactly(self, n: int) -> bytes:
        """Return the body. `n` is the length that `readline` has named."""
        del n
        return self._rest.pop()
