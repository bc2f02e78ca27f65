"""Lines that survive a lost link: each is numbered, and kept until the other side says that it has it.

12 {"kind": …}      message 12 of this side
=11                 the other side's messages up to 11 have come
.                   a sign of life, which is answered by another
"""

from __future__ import annotations

from collections import deque

SIGN = b".\n"


class LineOutbox:
    """What one side has sent and may have to send again."""

    def __init__(self) -> None:
        self._kept: deque[tuple[int, bytes]] = deque()
        self._last = 0
        self.size = 0
        """Bytes that are kept."""

    def add(self, message: bytes) -> bytes:
        """Return the line of a message, which has no line end in it."""
        self._last += 1
        line = b"%d %s\n" % (self._last, message)
        self._kept.append((self._last, line))
        self.size += len(line)
        return line

    def has_come(self, number: int) -> None:
        """Forget the lines that have reached the other side."""
        while self._kept and self._kept[0][0] <= number:
            self.size -= len(self._kept.popleft()[1])

    def waiting(self) -> list[bytes]:
        """Return the lines that the other side may not have, in their order."""
        return [line for _, line in self._kept]


class LineInbox:
    """What has come from the other side."""

    def __init__(self) -> None:
        self.last = 0

    def take(self, line: bytes) -> bytes | None:
        """Return the message of a numbered line. Return None for one that has come before. Raises ValueError for a
        line of another form, and for one that comes too early: then something is lost for good.
        """
        head, _, message = line.partition(b" ")
        if not head.isdigit() or len(head) > 15:
            raise ValueError(f"{line[:60]!r} is no numbered line")
        number = int(head)
        if number <= self.last:
            return None
        if number != self.last + 1:
            raise ValueError(f"line {number} came after line {self.last}")
        self.last = number
        return message.rstrip(b"\n")


def acknowledgement(inbox: LineInbox) -> bytes:
    """Return the line that acknowledges what has come."""
    return b"=%d\n" % inbox.last


def acknowledged(line: bytes) -> int:
    """Return the number in such a line. Raises ValueError."""
    number = line[1:].strip()
    if not line.startswith(b"=") or not number.isdigit() or len(number) > 15:
        raise ValueError(f"{line[:60]!r} says of no line that it has come")
    return int(number)
