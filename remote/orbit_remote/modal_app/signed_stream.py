"""Pieces of a job's event stream, signed: whoever can write to the queue cannot speak for the container.

The author's side makes a secret for each job and sends it with the request. In the container only the process
that Modal started holds it: the worker and the author's program, which are other processes, never see it.
A piece is a stream's nonce (16 bytes), its number there from 0 (8 bytes), the HMAC-SHA256 of both and the
payload (32 bytes), and the payload.
"""

from __future__ import annotations

import hmac
import secrets

_NONCE, _NUMBER, _HEAD = 16, 24, 56


class Signer:
    """One stream. A job that starts again in another container has another one, by its own nonce."""

    def __init__(self, secret: str) -> None:
        self._secret = secret
        self._nonce = secrets.token_bytes(_NONCE)
        self._number = 0

    def sign(self, payload: bytes) -> bytes:
        head = self._nonce + self._number.to_bytes(_NUMBER - _NONCE, "big")
        self._number += 1
        return head + _signature(self._secret, head, payload) + payload


class Verifier:
    """All streams of a job."""

    def __init__(self, secret: str) -> None:
        self._secret = secret
        self._next: dict[bytes, int] = {}

    def open(self, piece: object) -> tuple[bytes, bytes]:
        """The nonce of its stream, and its payload. Raises ValueError where the container did not make it, or it is
        not the next one of its stream.
        """
        if not isinstance(piece, bytes) or len(piece) < _HEAD:
            raise ValueError("a piece is too short for a signature")
        head, payload = piece[:_NUMBER], piece[_HEAD:]
        if not hmac.compare_digest(piece[_NUMBER:_HEAD], _signature(self._secret, head, payload)):
            raise ValueError("a piece has a wrong signature")
        nonce, number = head[:_NONCE], int.from_bytes(head[_NONCE:], "big")
        if number != (due := self._next.get(nonce, 0)):
            raise ValueError(f"piece {number} came in the place of piece {due}")
        self._next[nonce] = number + 1
        return nonce, payload


def _signature(secret: str, head: bytes, payload: bytes) -> bytes:
    return hmac.digest(secret.encode(), head + payload, "sha256")
