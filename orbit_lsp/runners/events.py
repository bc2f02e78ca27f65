"""Splits a stream that arrives in pieces into event lines."""

from __future__ import annotations

from orbit_remote.common import limits


class EventLines:
    """Splits a stream that arrives in pieces into event lines."""

    def __init__(self) -> None:
        self._rest: list[bytes] = []
        """Pieces of a line that has not ended: they are joined once."""
        self._size = 0

    def feed(self, piece: bytes) -> list[bytes]:
        """Take bytes. Raises ValueError if a line is longer than any event may be."""
        first, *more = piece.split(b"\n")
        self._rest.append(first)
        self._size += len(first)
        if self._size > limits.EVENTS.most:
            raise ValueError(limits.EVENTS.exceeded)
        if not more:
            return []
        lines = [b"".join(self._rest), *more]
        self._rest, self._size = [lines[-1]], len(lines[-1])
        return [line for line in lines[:-1] if line]
