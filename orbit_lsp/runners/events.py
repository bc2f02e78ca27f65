"""Event lines from a stream that arrives in pieces."""

from __future__ import annotations


class Lines:
    """Event lines from a stream that arrives in pieces."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, piece: bytes) -> list[bytes]:
        *lines, self._rest = (self._rest + piece).split(b"\n")
        return [line for line in lines if line]
