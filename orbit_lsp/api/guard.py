"""What every request passes before it is read: token, size, rate."""

from __future__ import annotations

import hmac
import json
import time
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

from starlette.types import ASGIApp, Message, Receive, Scope, Send

MOST_BODY = 64 << 20
"""Bytes of a request's body."""
_MOST_CLIENTS = 10_000


@dataclass(frozen=True, slots=True)
class Limits:
    """`rate` is requests per second of one token, or of one address where there is none; `burst` how many at once."""

    token: str = ""
    body: int = MOST_BODY
    rate: float = 100.0
    burst: float = 200.0
    clock: Callable[[], float] = field(default=time.monotonic)


class _TooLarge(Exception):  # noqa: N818 - answered where it is raised
    pass


class Guard:
    """ASGI middleware."""

    def __init__(self, app: ASGIApp, limits: Limits) -> None:
        self._app, self._limits = app, limits
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()
        """Client -> requests that it has left, and when that was so."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = {
            name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]
        }
        if refusal := self._refusal(scope, headers):
            await _answer(send, *refusal)
            return
        taken, started = 0, False

        async def bounded() -> Message:
            nonlocal taken
            message = await receive()
            taken += len(message.get("body", b""))
            if taken > self._limits.body:
                raise _TooLarge
            return message

        async def passed(message: Message) -> None:
            nonlocal started
            if (
                taken <= self._limits.body or started
            ):  # else a framework's own words about what it could not read
                started = True
                await send(message)

        with suppress(_TooLarge):
            await self._app(scope, bounded, passed)
        if not started:
            await _answer(send, 413, self._too_large())

    def _refusal(self, scope: Scope, headers: dict[str, str]) -> tuple[int, str] | None:
        query = scope.get("query_string", b"").lower()
        if b"token=" in query or b"api_key=" in query:
            return 400, "a token belongs into the header `Authorization: Bearer TOKEN`: logs keep addresses"
        given = headers.get("authorization", "").removeprefix("Bearer ")
        open_to_all = scope["path"] == "/health"
        if (
            self._limits.token
            and not open_to_all
            and not hmac.compare_digest(given.encode(), self._limits.token.encode())
        ):
            return 401, "this server needs its token in the header `Authorization: Bearer TOKEN`"
        client = scope.get("client") or ("", 0)
        if not self._allowed(given if self._limits.token else str(client[0])):
            return 429, "too many requests; wait a second, or submit many jobs with one POST /v1/jobs/batch"
        length = headers.get("content-length", "0")
        if not length.isdecimal():
            return 400, f"Content-Length is {length!r:.40}, not a number of bytes"
        return (413, self._too_large()) if int(length) > self._limits.body else None

    def _allowed(self, client: str) -> bool:
        now = self._limits.clock()
        left, then = self._left.pop(client, (self._limits.burst, now))
        left = min(self._limits.burst, left + max(0.0, now - then) * self._limits.rate)
        self._left[client] = (max(0.0, left - 1), now)
        while len(self._left) > _MOST_CLIENTS:
            self._left.popitem(last=False)
        return left >= 1

    def _too_large(self) -> str:
        return f"the request's body is larger than {self._limits.body:,} bytes, the limit"


async def _answer(send: Send, status: int, error: str) -> None:
    body = json.dumps({"error": error}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    if status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    if status == 429:
        headers.append((b"retry-after", b"1"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
