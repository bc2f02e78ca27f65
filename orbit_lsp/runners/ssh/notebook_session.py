"""Runs a notebook's kernels on a host that is reached by ssh, one after another."""

from __future__ import annotations

import asyncio
import os
import platform
from base64 import b64decode, b64encode
from pathlib import Path
from typing import Any

from orbit_lsp.runners.kernel_process import Lease
from orbit_lsp.runners.modal.far_session import FarSession
from orbit_lsp.runners.modal.spawned import SIGN_S
from orbit_lsp.runners.ssh.connection import SshConnection, SshPlace
from orbit_lsp.runners.ssh.trouble import AGAIN, SshError
from orbit_remote.common.messages import content_hash
from orbit_remote.process.records import Records, packed

_RUN = "notebook"


class SshSession(FarSession):
    def __init__(self, place: SshPlace, folder: str, limit: int, lease: Lease) -> None:
        """Make a session. `folder` is the notebook's, `limit` is the bytes of its files."""
        super().__init__(folder, limit, f"on {place.host}", lease)
        self._host = place.host
        self._folder = folder
        self._heard: asyncio.Queue[dict[str, Any] | SshError] = asyncio.Queue()
        hear = self._heard.put_nowait
        self._connection = SshConnection(place, hear, hear, self._notice, lambda: not self.living.done())
        self.living = asyncio.create_task(self._live())

    async def _work(self) -> str:
        """Start the session on the host and follow it to its end. Return why it ended. Raises ValueError. Nothing
        about the host is logged.
        """
        tasks: list[asyncio.Future[str]] = []
        try:
            await self._connection.ready()
            root = content_hash(os.fsencode(f"{platform.node()}:{self._folder}"))
            asked = {"root": root, "name": Path(self._folder).name or "work", "secret": self._secret}
            self._connection.send({"kind": "notebook", "run": _RUN} | asked)
            tasks = [asyncio.ensure_future(each) for each in (self._listen(), self._renewed())]
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            return next(task.result() for task in tasks if task.done())
        except SshError as error:
            return error.message if error.remedy == AGAIN else str(error)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self._connection.close()

    def _trouble(self, error: Exception) -> str:
        return f"{self._host} gave an answer that was not understood ({type(error).__name__})"

    def _greet(self, greeting: dict[str, Any]) -> None:
        del greeting

    async def tell(self, *, busy: bool) -> None:
        await self._say("busy", b"yes" if busy else b"no")

    def _notice(self, text: str) -> None:
        if self._kernel:
            self._kernel.notice(f"orbit: {text}")

    # -- the line -----------------------------------------------------------------------------

    async def _carry(self, piece: bytes) -> None:
        data = b64encode(packed("pieces", [piece])).decode()
        self._connection.send({"kind": "pieces", "run": _RUN, "data": data})
        await self._connection.sent()

    async def _put_piece(self, piece: bytes) -> None:
        await self._carry(piece)

    async def _listen(self) -> str:
        """Raises SshError, ValueError."""
        while True:
            record = await self._heard.get()
            if isinstance(record, SshError):
                raise record
            if failure := record.get("failure"):
                return f"{failure.get('message')!s:.400}"
            for name, parts in Records().feed(b64decode(str(record.get("data", "")))):
                if name == "over":
                    return parts[0].decode(errors="replace").replace("on the server", f"on {self._host}")
                for piece in parts:
                    if why := await self._take(piece):
                        return why

    async def _renewed(self) -> str:
        while True:
            await asyncio.sleep(SIGN_S)
            await self._seen()
            if why := self.unused():
                return why
