"""Runs a notebook's kernels on an evaluation server's machine: one kernel process after another, and their jobs."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import Any

from orbit_lsp.queue.request import Action, RequestRefusedError
from orbit_lsp.runners.api_client import EvaluationServer, ServerError
from orbit_lsp.runners.api_session import ApiSession
from orbit_lsp.runners.kernel_process import Lease
from orbit_lsp.runners.modal.far_session import FarKernel
from orbit_lsp.state import config

_WAIT_S = 25.0


class Served:
    """Kernels on a server. It asks `server` for nothing before `start`."""

    def __init__(self, server: EvaluationServer, folder: Path, lease: Lease) -> None:
        self._server = server
        self._folder = str(folder)
        self._lease: Lease = lease
        self._session: ApiSession | None = None

    async def start(self, key: str, scheme: str, *, locate: bool = False) -> FarKernel:
        """Return a kernel. Cells wait until it has started."""
        if self._session is None or not self._session.usable:
            limit = config.Settings().modal.files_mib << 20
            self._session = ApiSession(self._server, self._folder, limit, self._lease)
        return self._session.start_kernel(key, scheme, locate=locate)

    async def cost(self) -> str:
        return f"cells run on {self._server.url}, and cost nothing here"

    async def bring(self, pattern: str) -> str:
        return await self._session.bring(pattern) if self._session and self._session.usable else ""

    async def places(self) -> list[str]:
        """Return the server's GPUs, a line each. Raises RequestRefusedError."""
        health = await self._asked("GET", "/health")
        return [f"{each['name']}  {each.get('absent') or each['gpu'] or 'GPU'}" for each in health["places"]]

    async def job(self, action: Action, name: str, kernel: str | None, text: str) -> dict[str, Any]:
        """Run a job in the server's queue. Return its record, with its result as `text`. Raises RequestRefusedError.
        If this call is cancelled, so is the job.
        """
        asked = {"action": action, "name": name, "text": text, "kernel": kernel, "priority": "high"}
        job = await self._asked("POST", "/v1/jobs", asked)
        path = f"/v1/jobs/{job['id']}"
        try:
            while not job["outcome"]:
                job = await self._asked("GET", f"{path}?wait_s={_WAIT_S:g}", wait_s=_WAIT_S)
        except asyncio.CancelledError:
            with suppress(RequestRefusedError):
                await self._asked("DELETE", path)
            raise
        connection = self._server.connect()
        status, shown = await connection.request("GET", f"{path}/text")
        connection.close()
        return job | {"text": shown.decode(errors="replace") if status == 200 else ""}

    async def _asked(self, method: str, path: str, value: Any = None, wait_s: float = 0.0) -> dict[str, Any]:
        """Raises RequestRefusedError."""
        connection = self._server.connect()
        try:
            return await connection.json(method, path, value, wait_s=wait_s)
        except ServerError as error:
            raise RequestRefusedError(str(error)) from None
        finally:
            connection.close()

    async def close(self, *, keep: bool) -> None:
        """End the session. `keep`: another process restarts the kernel, and wants its files."""
        if self._session:
            await self._session.finish("", keep=keep)
