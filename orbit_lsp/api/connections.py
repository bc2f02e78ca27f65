"""HTTP connections with limits on their number and time. A connection that sends no request is closed, at once if
another needs its place.
"""

from __future__ import annotations

import asyncio
import socket
import sys
from typing import Any
from weakref import WeakKeyDictionary

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from orbit_lsp.api.notebook_routes import Notebooks

HEAD_S = 30.0
"""How long a connection may be open without a whole head of a request: at first, and after each answer."""
MOST = 4_000
AT_ONCE = 64
"""Connections that are accepted before those that are there are looked at again. asyncio would accept as many as may wait, 2,048, and
run out of file descriptors before it has closed one.
"""
_WAITING = 2_048
"""Connections that the system holds until they are accepted."""
_FILES_OF_JOBS = 256 + 4 * AT_ONCE
"""File descriptors that connections leave to the server's own work, and to connections that are accepted and not counted yet."""


class _Idle:
    """Connections for which the server waits, the longest wait first. `silent` have not sent a whole head of a
    request, `served` have sent none since their last answer.
    """

    def __init__(self) -> None:
        self.silent: dict[BoundedConnection, None] = {}
        self.served: dict[BoundedConnection, None] = {}

    def leave(self, connection: BoundedConnection) -> None:
        self.silent.pop(connection, None)
        self.served.pop(connection, None)

    def longest(self, newest: BoundedConnection) -> BoundedConnection:
        """Return the connection that gives its place to the newest one. It is the newest itself if the server waits
        for no other.
        """
        for waiting in (self.silent, self.served):
            if (longest := next(iter(waiting), newest)) is not newest:
                return longest
        return newest


_IDLE: WeakKeyDictionary[ServerState, _Idle] = WeakKeyDictionary()


class BoundedConnection(H11Protocol):
    head_s = HEAD_S
    most = MOST

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self._late: asyncio.TimerHandle | None = None
        self._idle = _IDLE.setdefault(self.server_state, _Idle())

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        # asyncio does it only where the listening socket names its protocol; an answer is written in two parts, and the
        # second would wait 40 ms for the client's acknowledgement of the first
        if own := transport.get_extra_info("socket"):
            own.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._idle.silent[self] = None
        self._wait_for_a_head()
        if len(self.connections) > self.most:
            # without an answer, which would cost what there is too little of
            self._idle.longest(self).give_way()

    def give_way(self) -> None:
        self._idle.leave(self)
        self.transport.abort()

    def _should_upgrade(self) -> bool:
        """Refuse to upgrade. A client that asks for a WebSocket is answered over HTTP. Otherwise uvicorn would log
        which package to install for one.
        """
        return False

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._late and self.cycle and not self.cycle.response_complete:
            self._idle.leave(self)
            self._late.cancel()
            self._late = None

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.cycle.response_complete and not self.transport.is_closing():
            self._idle.served[self] = None
        self._wait_for_a_head()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._idle.leave(self)
        if self._late:
            self._late.cancel()

    def _wait_for_a_head(self) -> None:
        if self._late:
            self._late.cancel()
        self._late = self.loop.call_later(self.head_s, self._close)

    def _close(self) -> None:
        """Close the connection, unless a pipelined request is being served on it."""
        if not self.cycle or self.cycle.response_complete:
            self.transport.close()


class NotebookEndingServer(uvicorn.Server):
    """A server that ends its notebook kernels first. A client that waits for one is told so, which ends its
    connection.
    """

    def __init__(self, config: uvicorn.Config, notebooks: Notebooks) -> None:
        super().__init__(config)
        self._notebooks = notebooks

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for listening in sockets or ():
            listening.listen(_WAITING)  # beyond the few that asyncio accepts at once

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await self._notebooks.close()
        await super().shutdown(sockets)


def most_connections() -> int:
    """Return the most connections that the limit of open files allows. That limit is raised as far as the system
    permits.
    """
    if sys.platform == "win32":
        return MOST
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST + _FILES_OF_JOBS
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return MOST if soft == resource.RLIM_INFINITY else max(1, min(MOST, soft - _FILES_OF_JOBS))
