"""Notebook kernels on the server's machine, a process for each. Requests fetch and hand in their signed messages."""

from __future__ import annotations

import asyncio
import os
import re
import sys
import uuid
from typing import Annotated

from fastapi import FastAPI, Query
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request as HttpRequest

from orbit_lsp.queue.pool import Slot
from orbit_lsp.queue.request import RequestRefusedError
from orbit_lsp.runners.kernel_host import HostProcess
from orbit_remote.common import limits, requests

_MOST_WAIT_S = 60.0
_PLACE = re.compile(r"local:(\d+)(?:-(\d+))?")


class Opened(BaseModel):
    """What opens a session. `root` names the notebook's folder, so that a kernel that is started again finds what its
    cells wrote. `name` is the folder's last part. `secret` signs the messages.
    """

    model_config = ConfigDict(extra="forbid")

    root: str = Field(max_length=200)
    name: str = Field(max_length=255)
    secret: str = Field(min_length=32, max_length=200)
    contract: int


class Notebooks:
    """The notebook kernels. `python` runs the cells; "" for the one that is found. `slots` are the server's places."""

    def __init__(self, slots: list[Slot], python: str = "") -> None:
        self._python = python
        self._places = [slot for slot in slots if _PLACE.fullmatch(slot.name)]
        self._kept: dict[str, _Kept] = {}
        self._closing = False

    async def open(self, asked: Opened, client: str) -> str:
        """Open a session and return its id. Raises RequestRefusedError and OSError."""
        if os.name != "posix":
            raise RequestRefusedError("notebook kernels run on Linux and macOS; on Windows use WSL")
        if asked.contract != requests.VERSION:
            raise RequestRefusedError(
                f"it speaks version {requests.VERSION} of the contract, and you speak {asked.contract}; install the same orbit-lsp on both sides"
            )
        if self._closing:
            raise RequestRefusedError("it is ending")
        if not self._places:
            raise RequestRefusedError("it has no GPU of its own; for a rented one use --on modal:GPU")
        for name in [name for name, kept in self._kept.items() if kept.process.ended]:
            del self._kept[name]
        before = next(
            (name for name, kept in self._kept.items() if kept.root == asked.root and kept.process.waits),
            None,
        )
        kept = self._kept.pop(before) if before else await self._start(asked.root, client)
        session = uuid.uuid4().hex
        self._kept[session] = kept
        await kept.process.open({"root": asked.root, "name": asked.name, "secret": asked.secret})
        return session

    async def _start(self, root: str, client: str) -> _Kept:
        places = [each.place for each in self._kept.values()]
        slot = min(self._places, key=lambda slot: places.count(slot.name))
        command = [sys.executable, "-P", "-m", "orbit_lsp", "kernel", "host", "--name", client]
        command += ["--on", slot.name] + (["--python", self._python] if self._python else [])
        process = await HostProcess.start(command, os.environ | _visible(slot))
        return _Kept(root, slot.name, process)

    def full(self) -> bool:
        return sum(not kept.process.ended for kept in self._kept.values()) >= limits.NOTEBOOKS.most

    def process(self, session: str) -> HostProcess | None:
        kept = self._kept.get(session)
        return kept.process if kept else None

    async def close(self) -> None:
        """End them all, and start no more."""
        self._closing = True
        await asyncio.gather(*(kept.process.close() for kept in self._kept.values()))


class _Kept:
    def __init__(self, root: str, place: str, process: HostProcess) -> None:
        self.root, self.place, self.process = root, place, process


def _visible(slot: Slot) -> dict[str, str]:
    """Return the variables that let a process see only the place's GPUs."""
    match = _PLACE.fullmatch(slot.name)
    assert match
    numbers = range(int(match[1]), int(match[2] or match[1]) + 1)
    return {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": ",".join(map(str, numbers))}


def routes(made: FastAPI, notebooks: Notebooks) -> None:
    gone = "there is no such notebook kernel; the server was started again, or the kernel has ended"

    @made.post(
        "/v1/notebooks", summary="Start a notebook's kernel on this machine; used by `orbit-lsp kernel`"
    )
    async def opened(body: Opened, request: HttpRequest) -> JSONResponse:
        if notebooks.full():
            why = f"it keeps {limits.NOTEBOOKS.most} notebook kernels, the limit; end one of them first"
            return JSONResponse({"error": why}, 503)
        client = request.client.host if request.client else "a client"
        return JSONResponse({"id": await notebooks.open(body, client)})

    @made.post("/v1/notebooks/{session}", status_code=204, summary="Hand in signed pieces")
    async def put(session: str, request: HttpRequest) -> Response:
        if (process := notebooks.process(session)) is None:
            return JSONResponse({"error": gone}, 404)
        try:
            await process.put(await request.body())
        except ValueError as error:
            raise RequestRefusedError(str(error)) from None
        return Response(status_code=204)

    @made.get("/v1/notebooks/{session}", summary="Wait for signed pieces, and for the end")
    async def take(session: str, wait_s: Annotated[float, Query(ge=0, le=_MOST_WAIT_S)] = 0) -> Response:
        if (process := notebooks.process(session)) is None:
            return JSONResponse({"error": gone}, 404)
        return Response(await process.take(wait_s), media_type="application/octet-stream")
