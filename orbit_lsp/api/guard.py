"""Checks of every request before it is read: host name, origin, token, rate, and the size and pace of its body."""

from __future__ import annotations

import asyncio
import hmac
import json
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import field

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from orbit_lsp.api import page
from orbit_remote.common import codec
from orbit_remote.common.lazy_dataclass import dataclass
from orbit_remote.common.limits import BODIES, BODY, VALUES

_BODY_S = 60.0
"""How long a body may take to arrive."""
_MOST_CLIENTS = 10_000
_GUESSES = 10.0
"""So many wrong tokens of one address are answered at once, and one a second after that."""


@dataclass(frozen=True, slots=True)
class RequestLimits:
    """Limits of requests. `rate` is requests per second of one token, or of one address without a token; `burst` is
    how many at once. `body` is bytes of one request, `bodies` of all that are under way; `body_s` is in seconds.
    """

    token: str = ""
    body: int = BODY.most
    bodies: int = BODIES.most
    body_s: float = _BODY_S
    rate: float = 100.0
    burst: float = 200.0
    clock: Callable[[], float] = field(default=time.monotonic)


COOKIE = "orbit_page"
SIGN_IN = "/page/sign-in"


def cookie_of(token: str) -> str:
    """Return what a browser keeps after it has shown the token. It gives the same access here, and does not reveal
    the token.
    """
    return hmac.new(token.encode(), b"the pages of this server", "sha256").hexdigest()


class _RefusedError(Exception):
    pass


class Guard:
    """ASGI middleware. `hosts` are the names under which the server may be addressed."""

    def __init__(self, app: ASGIApp, limits: RequestLimits, hosts: Sequence[str]) -> None:
        self._app, self._limits = app, limits
        self._hosts = frozenset(host.strip("[]").lower() for host in hosts)
        self._requests = _Allowance(limits.rate, limits.burst, limits.clock)
        self._guesses = _Allowance(1.0, _GUESSES, limits.clock)
        self._friends: OrderedDict[str, None] = OrderedDict()
        """Addresses that have shown the token: no guesses of others who share one lock its user out."""
        self._held = 0
        """Bytes of the bodies of requests that are under way."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = {
            name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]
        }
        if refusal := self._refusal(scope, headers):
            await _answer(send, *refusal, browser="text/html" in headers.get("accept", ""))
            return
        body = _Body(receive, self._limits)
        is_json = "json" in headers.get("content-type", "")
        started = False

        async def bounded() -> Message:
            pieces: list[bytes] = []
            while True:
                message = await body.next(self._held)
                self._held += len(message.get("body", b""))
                if not is_json or message["type"] != "http.request":
                    return message
                pieces.append(message.get("body", b""))
                if not message.get("more_body", False):
                    return {**message, "body": body.counted(b"".join(pieces))}

        async def passed(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start" and message["status"] == 401:  # of the sign-in
                self._guesses.take(_address(scope))
            if body.refusal is None or started:  # else a framework's own words about what it could not read
                started = True
                await send(message)

        try:
            with suppress(_RefusedError):
                await self._app(scope, bounded, passed)
        finally:
            self._held -= body.taken
        if body.refusal and not started:
            await _answer(send, *body.refusal)

    def _refusal(self, scope: Scope, headers: dict[str, str]) -> tuple[int, str] | None:
        host, origin = headers.get("host", ""), headers.get("origin")
        if not self._is_ours(host):
            return (
                400,
                f"this server is not called {host!r:.60}; --name adds a name under which it may be addressed",
            )
        if origin is not None and origin.rpartition("//")[2] != host:
            return 403, f"requests from web pages are refused; this one is from {origin!r:.60}"
        query = scope.get("query_string", b"").lower()
        if b"token=" in query or b"api_key=" in query:
            return (
                400,
                "send the token in the header `Authorization: Bearer TOKEN`, because logs keep addresses",
            )
        address, known = _address(scope), False
        if self._limits.token:
            given = _given(headers)
            signs_in = scope["path"] == SIGN_IN
            if (given or signs_in) and address not in self._friends and not self._guesses.left(address):
                return 429, "too many wrong tokens came from your address; wait some seconds"
            known = self._knows(given)
            if known:
                self._friends[address] = None
                while len(self._friends) > _MOST_CLIENTS:
                    self._friends.popitem(last=False)
            elif not signs_in and scope["path"] != "/health":
                if given and not self._guesses.take(address):
                    return 429, "too many wrong tokens came from your address; wait some seconds"
                return 401, "this server needs its token in the header `Authorization: Bearer TOKEN`"
        if not self._requests.take(self._limits.token if known else address):
            return 429, "too many requests; wait a second, or submit many jobs with one POST /v1/jobs/batch"
        length = headers.get("content-length", "0")
        if not length.isdecimal():
            return 400, f"Content-Length is {length!r:.40}, not a number of bytes"
        return _too_large(self._limits) if int(length[:20]) > self._limits.body else None

    def _knows(self, given: Sequence[str]) -> bool:
        """Return whether one of these texts is the token, or the cookie that a browser got in exchange for it."""
        token = self._limits.token
        return any(
            hmac.compare_digest(each.encode(), right.encode())
            for each in given
            for right in (token, cookie_of(token))
        )

    def _is_ours(self, host: str) -> bool:
        name = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
        return name.lower() in self._hosts


class _Allowance:
    """A limit on clients: `burst` requests at once, then `rate` a second."""

    def __init__(self, rate: float, burst: float, clock: Callable[[], float]) -> None:
        self._rate, self._burst, self._clock = rate, burst, clock
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()
        """Client -> what it has left, and when that was so."""

    def left(self, client: str) -> bool:
        """Return whether the client may do it once more."""
        return self._now(client) >= 1

    def take(self, client: str) -> bool:
        """Say whether a client may make a request, and count it."""
        left = self._now(client)
        self._left.pop(client, None)
        self._left[client] = (max(0.0, left - 1), self._clock())
        while len(self._left) > _MOST_CLIENTS:
            self._left.popitem(last=False)
        return left >= 1

    def _now(self, client: str) -> float:
        now = self._clock()
        left, then = self._left.get(client, (self._burst, now))
        return min(self._burst, left + max(0.0, now - then) * self._rate)


def _address(scope: Scope) -> str:
    return str((scope.get("client") or ("", 0))[0])


def _given(headers: Mapping[str, str]) -> list[str]:
    """Return the tokens and cookies of a request. popcorn-cli has one header of its own."""
    pairs = (each.strip().partition("=") for each in headers.get("cookie", "").split(";"))
    given = [headers.get("authorization", "").removeprefix("Bearer "), headers.get("x-popcorn-cli-id", "")]
    return [each for each in (*given, *(value for name, _, value in pairs if name == COOKIE)) if each]


class _Body:
    """A request's body while it arrives. `taken` are its bytes so far. `refusal` is the answer if it is refused."""

    def __init__(self, receive: Receive, limits: RequestLimits) -> None:
        self._receive, self._limits = receive, limits
        self._until = asyncio.get_running_loop().time() + limits.body_s
        self._whole = False
        self.taken = 0
        self.refusal: tuple[int, str] | None = None

    async def next(self, held: int) -> Message:
        """Return the next message. `held` counts the bytes of all bodies. Raises _RefusedError."""
        if self._whole:
            return await self._receive()  # the end of the connection
        try:
            async with asyncio.timeout_at(self._until):
                message = await self._receive()
        except TimeoutError:
            self.refusal = (
                408,
                f"the request's body did not arrive within {self._limits.body_s:g} s, the limit",
            )
            raise _RefusedError from None
        self._whole = not message.get("more_body", False)
        size = len(message.get("body", b""))
        if self.taken + size > self._limits.body:
            self.refusal = _too_large(self._limits)
        elif held + size > self._limits.bodies:
            self.refusal = (503, "too many request bodies are arriving at the moment; try again in a second")
        if self.refusal:
            raise _RefusedError
        self.taken += size
        return message

    def counted(self, content: bytes) -> bytes:
        """Return the body, which is JSON, unless it has too many values. Raises _RefusedError."""
        if codec.is_crowded(content):
            self.refusal = (
                400,
                f"the request's body has more than {VALUES.size}, the limit for {VALUES.what}",
            )
            raise _RefusedError
        return content


def _too_large(limits: RequestLimits) -> tuple[int, str]:
    return 413, f"the request's body is larger than {limits.body:,} bytes, the limit"


async def _answer(send: Send, status: int, error: str, *, browser: bool = False) -> None:
    body = json.dumps({"error": error}).encode()
    headers = [(b"content-type", b"application/json")]
    if browser and status == 401:
        body = page.sign_in().encode()
        headers = [(name.lower().encode(), value.encode()) for name, value in page.HEADERS.items()]
        headers.append((b"content-type", b"text/html; charset=utf-8"))
    headers.append((b"content-length", str(len(body)).encode()))
    if status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    if status in (429, 503):
        headers.append((b"retry-after", b"1"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
