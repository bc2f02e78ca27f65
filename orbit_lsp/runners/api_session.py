"""A notebook's kernels on the machine of an evaluation server, one after another."""

from __future__ import annotations

import asyncio
import os
import platform
import time
from pathlib import Path
from typing import Any

from orbit_lsp.runners.api_client import EvaluationServer, ServerError, UnreachableError
from orbit_lsp.runners.kernel_process import Lease
from orbit_lsp.runners.modal.far_session import FarSession
from orbit_lsp.runners.modal.spawned import SIGN_S
from orbit_remote.common import requests
from orbit_remote.common.messages import content_hash
from orbit_remote.modal_app.notebook_host import GONE_S
from orbit_remote.process.records import Records, packed

_POLL_S = 25.0
_BUSY = (429, 502, 503, 504)
"""Answers that become others by themselves."""
_AGAIN_S = 1.0
_SIGN_S = min(SIGN_S, GONE_S / 4)
_BATCH = 4 << 20
"""Bytes of one request."""
_WAITING = 64
"""Pieces that wait for a request."""


class ApiSession(FarSession):
    lost = "the process that kept its kernel on the server was replaced"

    def __init__(self, server: EvaluationServer, folder: str, limit: int, lease: Lease) -> None:
        """Make a session. `folder` is the notebook's, `limit` is the bytes of its files."""
        super().__init__(folder, limit, "on the server", lease)
        self._server = server
        self._folder = folder
        self._asking, self._hearing = server.connect(), server.connect()
        self._waiting: asyncio.Queue[bytes] = asyncio.Queue(_WAITING)
        self._path = ""
        self._closed = False
        self._through = time.monotonic()
        """When the server last answered."""
        self.gpu = ""
        self.living = asyncio.create_task(self._live())

    async def _work(self) -> str:
        """Raises ServerError."""
        root = content_hash(os.fsencode(f"{platform.node()}:{self._folder}"))
        name = Path(self._folder).name or "work"
        asked = {"root": root, "name": name, "secret": self._secret, "contract": requests.VERSION}
        answer = await self._asking.json("POST", "/v1/notebooks", asked)
        self._path = f"/v1/notebooks/{answer.get('id', '')}"
        tasks = [asyncio.ensure_future(each) for each in (self._listen(), self._send(), self._renewed())]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            return next(task.result() for task in tasks if task.done())
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _trouble(self, error: Exception) -> str:
        if isinstance(error, UnreachableError):
            return f"the server {error}; see whether `orbit-lsp api` runs there"
        return str(error) if isinstance(error, ServerError) else f"{type(error).__name__}: {error}"

    def _settle(self, *, keep: bool) -> None:
        del keep
        self._asking.close()
        self._hearing.close()
        self._closed = True
        while not self._waiting.empty():  # who waits to put a piece goes on
            self._waiting.get_nowait()

    def _greet(self, greeting: dict[str, Any]) -> None:
        self.gpu = str(greeting.get("gpu", ""))

    async def tell(self, *, busy: bool) -> None:
        await self._say("busy", b"yes" if busy else b"no")

    # -- the line -----------------------------------------------------------------------------

    async def _carry(self, piece: bytes) -> None:
        if not self._waiting.full():
            self._waiting.put_nowait(piece)

    async def _put_piece(self, piece: bytes) -> None:
        if not self._closed:
            await self._waiting.put(piece)

    async def _send(self) -> str:
        while True:
            pieces = [await self._waiting.get()]
            while not self._waiting.empty() and sum(map(len, pieces)) < _BATCH:
                pieces.append(self._waiting.get_nowait())
            body = packed("pieces", pieces)
            if why := await self._sent(body):
                return why

    async def _sent(self, body: bytes) -> str:
        """Hand in a piece. Return why the session is over, or "" if the piece was handed in."""
        while True:
            try:
                status, answer = await self._asking.request(
                    "POST", self._path, body, kind="application/octet-stream"
                )
            except UnreachableError:
                status, answer = 503, b""
            else:
                self._through = time.monotonic()
            if status < 300:
                return ""
            if status not in _BUSY:
                return self._server.refusal(status, answer)
            await asyncio.sleep(_AGAIN_S)

    async def _listen(self) -> str:
        while True:
            try:
                status, body = await self._hearing.request(
                    "GET", f"{self._path}?wait_s={_POLL_S:g}", wait_s=_POLL_S
                )
            except UnreachableError:
                await asyncio.sleep(_AGAIN_S)
                continue
            self._through = time.monotonic()
            if status in _BUSY:
                await asyncio.sleep(_AGAIN_S)
                continue
            if status != 200:
                return self._server.refusal(status, body)
            for name, parts in Records().feed(body):
                if name == "over":
                    return parts[0].decode()
                for piece in parts:
                    if why := await self._take(piece):
                        return why

    async def _renewed(self) -> str:
        """Give signs of life until the session has to end, and return why it has to."""
        while True:
            await asyncio.sleep(_SIGN_S)
            await self._seen()
            if time.monotonic() - self._through >= GONE_S:
                return f"the server {self._server.url} has not answered for {GONE_S:g} s, and the kernel ends there by itself"
            if why := self.unused():
                return why
