"""Requests to an evaluation server (`orbit-lsp api`), with only the standard library."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import re
import socket
import urllib.parse
from contextlib import suppress
from typing import Any, cast

from orbit_remote.common import codec

TOKEN = "ORBIT_API_TOKEN"  # noqa: S105 - the variable's name
_CONNECT_S = 10.0
_ANSWER_S = 30.0
"""How much longer than asked for an answer may take."""
_MOST = 64 << 20
"""Bytes of an answer."""


class ServerError(Exception):
    """A server refused or failed. The text is what a user reads."""


class UnreachableError(ServerError):
    """The server cannot be reached. It may answer later."""


class EvaluationServer:
    """One server. A connection carries one request at a time, so a caller that waits for long opens its own."""

    def __init__(self, url: str) -> None:
        """Raises ValueError for what is no address of a server."""
        parts = urllib.parse.urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.username:
            raise ValueError(f"{url!r:.80} is no address of a server; write it as in http://gpu7:8421")
        self.port = parts.port  # ValueError where it is no number
        self.secure = parts.scheme == "https"
        self.host = parts.hostname
        self.folder = parts.path.rstrip("/")
        self.url = url.rstrip("/")
        self.token = os.environ.get(TOKEN, "").strip()

    def connect(self) -> ServerConnection:
        return ServerConnection(self)

    def refusal(self, status: int, body: bytes) -> str:
        """Return what a user reads if an answer is no success."""
        if status == 401:
            return (
                f"the server {self.url} refuses the token in {TOKEN}"
                if self.token
                else f"the server {self.url} needs its token: set {TOKEN} where Jupyter is started"
            )
        with suppress(ValueError, RecursionError):
            value: Any = codec.read_json(body)
            if isinstance(value, dict) and (reason := cast("dict[str, Any]", value).get("error")):
                return f"the server {self.url}: {reason!s:.500}"
        return f"the server {self.url} answered {status}"


class ServerConnection:
    """A connection. Its first request opens it, and opens it again if it was closed."""

    def __init__(self, server: EvaluationServer) -> None:
        self._server = server
        self._http: http.client.HTTPConnection | None = None
        self._busy = asyncio.Lock()

    async def request(
        self,
        method: str,
        path: str,
        body: bytes = b"",
        *,
        kind: str = "application/json",
        wait_s: float = 0.0,
    ) -> tuple[int, bytes]:
        """Return the status and the body of the answer, which may come `wait_s` later than usual. The request may be
        made twice.

        Raises UnreachableError. A cancellation closes the connection.
        """
        async with self._busy:
            asking = asyncio.ensure_future(asyncio.to_thread(self._ask, method, path, body, kind, wait_s))
            try:
                return await asyncio.shield(asking)
            except asyncio.CancelledError:
                self.close()
                asking.add_done_callback(lambda task: task.cancelled() or task.exception())
                raise

    async def json(self, method: str, path: str, value: Any = None, *, wait_s: float = 0.0) -> dict[str, Any]:
        """Raises ServerError."""
        body = b"" if value is None else json.dumps(value).encode()
        status, answer = await self.request(method, path, body, wait_s=wait_s)
        if status >= 400:
            raise ServerError(self._server.refusal(status, answer))
        with suppress(ValueError, RecursionError):
            if isinstance(read := codec.read_json(answer), dict):
                return cast("dict[str, Any]", read)
        raise ServerError(f"{self._server.url} is no server of orbit-lsp: its answer was not understood")

    def close(self) -> None:
        """A request that waits ends."""
        if self._http and self._http.sock:
            with suppress(OSError):
                self._http.sock.shutdown(socket.SHUT_RDWR)

    def _ask(self, method: str, path: str, body: bytes, kind: str, wait_s: float) -> tuple[int, bytes]:
        """Raises UnreachableError."""
        for again in (self._http is not None, False):  # a server closes a connection that has been idle
            try:
                return self._asked(method, path, body, kind, wait_s)
            except (OSError, http.client.HTTPException, ValueError) as error:
                if self._http:
                    self._http.close()
                self._http = None
                if not again:
                    why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
                    raise UnreachableError(
                        f"{self._server.url} cannot be reached: {why or type(error).__name__}"
                    ) from None
        raise AssertionError

    def _asked(self, method: str, path: str, body: bytes, kind: str, wait_s: float) -> tuple[int, bytes]:
        server = self._server
        if self._http is None:
            made = http.client.HTTPSConnection if server.secure else http.client.HTTPConnection
            self._http = made(server.host, server.port, timeout=_CONNECT_S)
            self._http.connect()
        self._http.sock.settimeout(wait_s + _ANSWER_S)
        headers = {"Content-Type": kind} | (
            {"Authorization": f"Bearer {server.token}"} if server.token else {}
        )
        self._http.request(method, server.folder + path, body or None, headers)
        response = self._http.getresponse()
        content = response.read(_MOST)
        if not response.isclosed():
            raise ValueError("its answer is too long")
        return response.status, content


def label(url: str) -> str:
    """Return a server's name among kernels: `gpu7:8421`."""
    return re.sub(r"^https?://", "", url).rstrip("/")
