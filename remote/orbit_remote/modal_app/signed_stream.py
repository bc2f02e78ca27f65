"""Signs the pieces of a job's event stream, so that others who can write to the queue cannot speak for the container.

The author's side makes a secret for each job and sends it with the request. In the container only the process that
Modal started has it: the worker and the author's program, which are other processes, never see it. A piece is a
stream's nonce (16 bytes), its number there from 0 (8 bytes), the HMAC-SHA256 of both and the payload (32 bytes), and
the payload.
"""

from __future__ import annotations

import hmac
import secrets
import time

_NONCE, _NUMBER, _HEAD = 16, 24, 56

_AGAIN_S = 1.0
_ASIDE = (1 << 64) - 1
PIECE = 512 << 10
"""Bytes of one item of the queue; Modal takes up to 1 MiB."""


class Signer:
    """One stream. A job that starts again in another container has another stream, with its own nonce."""

    def __init__(self, secret: str) -> None:
        self._secret = secret
        self.nonce = secrets.token_bytes(_NONCE)
        self._number = 0

    def sign(self, payload: bytes, number: int | None = None) -> bytes:
        """Sign a payload. `number` replaces the stream's own number."""
        head = self.nonce + (self._number if number is None else number).to_bytes(_NUMBER - _NONCE, "big")
        self._number += number is None
        return head + _signature(self._secret, head, payload) + payload


class Verifier:
    """Verifies all streams of a job."""

    def __init__(self, secret: str) -> None:
        self._secret = secret
        self._next: dict[bytes, int] = {}

    def open(self, piece: object) -> tuple[bytes, bytes]:
        """Return the nonce of a piece's stream, and its payload. Raises ValueError if the container did not make it,
        or it is not the next piece of its stream.
        """
        nonce, number, payload = self.read(piece)
        if number != (due := self._next.get(nonce, 0)):
            raise ValueError(f"piece {number} came in the place of piece {due}")
        self._next[nonce] = number + 1
        return nonce, payload

    def read(self, piece: object) -> tuple[bytes, int, bytes]:
        """Return the nonce of a piece's stream, its number there, and its payload. Raises ValueError if it is not
        signed.
        """
        if not isinstance(piece, bytes) or len(piece) < _HEAD:
            raise ValueError("a piece is too short for a signature")
        head, payload = piece[:_NUMBER], piece[_HEAD:]
        if not hmac.compare_digest(piece[_NUMBER:_HEAD], _signature(self._secret, head, payload)):
            raise ValueError("a piece has a wrong signature")
        return head[:_NONCE], int.from_bytes(head[_NONCE:], "big"), payload


class SignedOutbox:
    """A stream whose pieces are kept until the other side has them, at most `most` bytes. A get whose connection is
    lost may have taken pieces that nobody saw.
    """

    def __init__(self, secret: str, most: int = 32 << 20) -> None:
        self._signer = Signer(secret)
        self._most = most
        self._kept: dict[int, bytes] = {}
        self.size = 0
        """Bytes that are kept."""
        self._seen = 0
        self.number = 0
        """Of the next piece."""

    @property
    def stream(self) -> bytes:
        return self._signer.nonce

    @property
    def unseen(self) -> int:
        """Return how many pieces the other side has not reported."""
        return len(self._kept)

    def pieces(self, name: bytes, data: bytes) -> list[bytes]:
        """Return the pieces for `data` of the inner stream `name`, which is one byte."""
        made: list[bytes] = []
        for at in range(0, len(data), PIECE):
            piece = self._signer.sign(name + data[at : at + PIECE])
            self._kept[self.number] = piece
            self.size += len(piece)
            self.number += 1
            made.append(piece)
        while self.size > self._most:
            self.size -= len(self._kept.pop(next(iter(self._kept))))
        return made

    def aside(self, data: bytes) -> bytes:
        """Return a piece that is accepted at once, whatever is missing before it, and may be lost."""
        return self._signer.sign(b"c" + data, _ASIDE)

    def seen(self, number: int) -> None:
        """Forget the pieces before `number`, because the other side has them."""
        self._seen = max(self._seen, number)
        for each in [each for each in self._kept if each < number]:
            self.size -= len(self._kept.pop(each))

    def again(self, number: int) -> list[bytes] | None:
        """Return all pieces from `number` on. Return None if they are not kept any more."""
        if number < self._seen or number >= self.number:  # asked for before they came after all
            return []
        if number not in self._kept:
            return None
        return [piece for each, piece in self._kept.items() if each >= number]


class SignedInbox:
    """Puts the pieces of one `SignedOutbox` in order."""

    def __init__(self, secret: str) -> None:
        self._verifier = Verifier(secret)
        self.stream = b""
        """The nonce of its stream; the first piece's where nobody sets it."""
        self.due = 0
        self.missing = False
        """The piece that is due has to be asked for again: another one came before it."""
        self._asked = (-1, 0.0)

    def take(self, piece: object) -> tuple[bytes, bytes] | None:
        """Return a piece's name and data; the name is `c` for a piece that was sent aside. Return None if it is not
        the next one. Raises ValueError if it is not signed, or of another stream.
        """
        nonce, number, payload = self._verifier.read(piece)
        self.stream = self.stream or nonce
        if nonce != self.stream:
            raise ValueError("a piece is of another stream")
        if number == _ASIDE:
            self.missing = False
            return payload[:1], payload[1:]
        now = time.monotonic()
        asked = self._asked[0] == self.due and now - self._asked[1] < _AGAIN_S
        self.missing = number > self.due and not asked
        if self.missing:
            self._asked = self.due, now
        if number != self.due:
            return None
        self.due += 1
        return payload[:1], payload[1:]


def _signature(secret: str, head: bytes, payload: bytes) -> bytes:
    return hmac.digest(secret.encode(), head + payload, "sha256")
