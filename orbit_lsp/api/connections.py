"""HTTP connections that are bounded in number and in time: one that sends no request is closed."""

from __future__ import annotations

import asyncio
import socket
import sys
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from orbit_lsp.api.notebook_routes import Notebooks

HEAD_S = 30.0
"""How long a connection may be open without a whole head of a request: at first, and after each answer."""
MOST = 4_000
_FILES_OF_JOBS = 256
"""File descriptors that connections leave to the server's own work."""


class Connection(H11Protocol):
    head_s = HEAD_S
    most = MOST

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self._late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        # asyncio does it only where the listening socket names its protocol; an answer is written in two parts, and the
        # second would wait 40 ms for the client's acknowledgement of the first
        if own := transport.get_extra_info("socket"):
            own.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if len(self.connections) > self.most:
            transport.abort()  # to answer would cost what there is too little of
            return
        self._wait_for_a_head()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._late and self.cycle and not self.cycle.response_complete:
            self._late.cancel()
            self._late = None

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._wait_for_a_head()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self._late:
            self._late.cancel()

    def _wait_for_a_head(self) -> None:
        if self._late:
            self._late.cancel()
        self._late = self.loop.call_later(self.head_s, self._close)

    def _close(self) -> None:
        """The pipelined request of a client that is served again by now keeps its connection."""
        if not self.cycle or self.cycle.response_complete:
            self.transport.close()


class Server(uvicorn.Server):
    """Ends its notebook kernels first: who waits for one is told so, and the connection with it is over."""

    def __init__(self, config: uvicorn.Config, notebooks: Notebooks) -> None:
        super().__init__(config)
        self._notebooks = notebooks

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await self._notebooks.close()
        await super().shutdown(sockets)


def most_connections() -> int:
    """As many as the files that this process may open allow; that limit is raised to what the system permits."""
    if sys.platform == "win32":
        return MOST
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST + _FILES_OF_JOBS
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return MOST if soft == resource.RLIM_INFINITY else max(1, min(MOST, soft - _FILES_OF_JOBS))
