"""The control plane on a thread of its own, and what a test may do to it."""

from __future__ import annotations

import asyncio
import shutil
import socket
import tempfile
import threading
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from grpclib import Status
from modal_proto import api_pb2 as pb

from tests.modal_loopback import kept_apps
from tests.modal_loopback.blobs import Blobs
from tests.modal_loopback.calls import Calls
from tests.modal_loopback.containers import Container
from tests.modal_loopback.control import Control
from tests.modal_loopback.faults import BrokenBuild, Fault, Slow
from tests.modal_loopback.fleet import Fleet
from tests.modal_loopback.images import Images
from tests.modal_loopback.queues import Queues
from tests.modal_loopback.service import Listener, Service
from tests.modal_loopback.world import FINAL, TOKEN, World, nothing_before

Result = TypeVar("Result")
HOST = "127.0.0.1"
LIMIT_S = 300  # of what takes seconds: whoever trips over it hangs


class Loopback:
    """Start it as a context manager; at its end no process of a container is left.

    `container_env` are variables that every container gets besides Modal's own; `{container}` in one is the
    container's id, for what containers of Modal's do not share. With `kept` it has the apps that others have kept.
    """

    def __init__(self, *, container_env: Mapping[str, str] | None = None, kept: bool = False) -> None:
        # short, because the path of a Unix socket has 107 bytes at most
        self.folder = Path(tempfile.mkdtemp(prefix="modal-"))
        self.folder.chmod(0o755)  # a container may run work under another user
        self.world = World(self.folder, container_env or {})
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="modal-loopback", daemon=True)
        self._blobs = Blobs(self.world)
        self._fleet = Fleet(self.world)
        self._listener: Listener | None = None
        self._fleet_task: asyncio.Task[None] | None = None
        self._port = 0
        parts = (Control(self.world), Images(self.world), Calls(self.world), Queues(self.world), self._blobs)
        self.world.parts = parts
        if kept:
            self.world.before = kept_apps.bring

    def __enter__(self) -> Self:
        self._thread.start()
        self._run(self._start())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self._run(self._stop())
            kept_apps.keep(self.world)
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(LIMIT_S)
            self._loop.close()
            shutil.rmtree(self.folder, ignore_errors=True)

    async def _start(self) -> None:
        await self._blobs.start()
        await self._listen()
        self._fleet_task = asyncio.create_task(self._fleet.run())

    async def _listen(self) -> None:
        self._listener = Listener(Service(self.world, self.world.parts, tokens=True))
        # the protocol is named, or asyncio leaves Nagle's algorithm on (40 ms an answer)
        opened = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        opened.bind((HOST, self._port))  # 0 the first time: any that is free
        self._port = opened.getsockname()[1]
        await self._listener.start(sock=opened)

    def _drop(self) -> None:
        if self._listener:
            self._listener.drop()
            self._listener = None

    async def _stop(self) -> None:
        if self._fleet_task:
            self._fleet_task.cancel()
            await asyncio.wait([self._fleet_task])
        await self._fleet.stop()
        self._drop()
        await self._blobs.stop()
        rest = asyncio.all_tasks() - {asyncio.current_task()}
        for task in rest:
            task.cancel()
        await asyncio.gather(*rest, return_exceptions=True)

    def _run(self, work: Coroutine[Any, Any, Result]) -> Result:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def do(self, action: Callable[[World], Result]) -> Result:
        """Call `action` with the world on the loop's thread, where alone it may be changed."""

        async def act() -> Result:
            result = action(self.world)
            self.world.ring()
            return result

        return self._run(act())

    # what a client needs, what a test asks

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self._port}"

    def env(self) -> dict[str, str]:
        """The variables that send an unmodified client here, with a token and without the user's own
        configuration."""
        return {
            "MODAL_SERVER_URL": self.url,
            "MODAL_TOKEN_ID": TOKEN[0],
            "MODAL_TOKEN_SECRET": TOKEN[1],
            "MODAL_CONFIG_PATH": str(self.folder / "modal.toml"),
            "MODAL_DISABLE_API_PROXY": "1",
        }

    def until(self, holds: Callable[[World], object], limit_s: float = LIMIT_S) -> None:
        """Wait until `holds(world)`; TimeoutError where it does not within `limit_s`."""
        world = self.world
        if not self._run(world.until(lambda: holds(world), limit_s)):
            raise TimeoutError(f"not so within {limit_s} s; {self.state()}")

    def state(self) -> str:
        """Containers, waiting inputs and the last of the logs, for the message of a failed test."""
        containers = [
            f"{container.id} of {container.function.metadata.function_name} gpu={container.function.gpu or 'none'} "
            f"{'gone' if container.gone else 'alive'} exit={container.exit_code} inputs={list(container.inputs)}"
            for container in self.world.containers.values()
        ]
        waiting = sum(len(function.pending) for function in self.world.functions.values())
        logs = "".join(line.text for line in self.world.logs[-40:])
        errors = "".join(self.world.errors)
        return f"{waiting} inputs wait; containers: {containers}; errors: {errors}; logs:\n{logs}"

    def containers(self) -> list[Container]:
        """Those that live."""
        return self.do(lambda world: world.alive())

    # what a test does to it

    def forget_kept(self) -> None:
        """No app is there but those of this test: the next run is a first one."""
        self.do(lambda world: setattr(world, "before", nothing_before))

    def fail(
        self,
        rpc: str,
        status: Status,
        message: str = "",
        *,
        times: int | None = 1,
        retry_after_s: float | None = None,
    ) -> None:
        """The next `times` requests for this RPC (None: all) end with this gRPC status. With `retry_after_s`
        the client is told to come back after that long, as when Modal throttles."""
        known = {method.name for method in pb.DESCRIPTOR.services_by_name["ModalClient"].methods}
        if rpc not in known:
            raise ValueError(f"Modal's protocol has no RPC {rpc}")
        self.do(lambda world: world.faults.add(rpc, Fault(status, message, times, retry_after_s)))

    def heal(self) -> None:
        """Drop every fault that is still to come."""
        self.do(lambda world: world.faults.clear())

    def slow(self, rpc: str, done: Callable[[World], object], *, after: int = 0) -> None:
        """Requests for this RPC, but for the first `after`, are answered once `done(world)`; returns at once."""
        self.do(lambda world: world.faults.slow.update({rpc: Slow(lambda: done(world), after)}))

    def until_slow(self, rpc: str) -> None:
        """Wait until such a request waits."""
        self.until(lambda world: world.faults.slow[rpc].waiting)

    def fail_build(self, marker: str, log: str, message: str = "", *, times: int = 1) -> None:
        """The next image whose recipe contains `marker` fails after this log."""
        lines = tuple(log.splitlines(keepends=True))
        broken = BrokenBuild(
            marker, lines, message or "Image build terminated due to external shut-down", times
        )
        self.do(lambda world: world.faults.builds.append(broken))

    def fail_input(self, status: pb.GenericResult.GenericStatus.ValueType, message: str = "") -> None:
        """The next input ends so, without having run (`GENERIC_STATUS_INTERNAL_FAILURE`, for one)."""
        self.do(lambda world: world.faults.results.append(FINAL(status=status, exception=message)))

    def refuse_connections(self) -> None:
        """The port is closed and every connection to it cut; containers go on, as they do at Modal."""
        self.do(lambda world: self._drop())

    def accept_connections(self) -> None:
        """The same port is open again."""
        self._run(self._listen())

    def silence_connections(self) -> None:
        """Nothing comes through on the connections that are open, and nobody says so; new ones work. So it is for a laptop
        that slept for longer than its router remembers."""
        self.do(lambda world: self._listener.silence() if self._listener else None)

    def expire_queues(self, *, named: bool = False) -> None:
        """Queues without a name are gone, as those are of whom Modal has heard nothing for long; `named`: all are."""
        queues = next(part for part in self.world.parts if isinstance(part, Queues))
        self.do(lambda world: queues.expire(named=named))

    def die_during(self, rpc: str) -> None:
        """As `refuse_connections`, when a client next asks for this RPC."""
        self.do(lambda world: world.faults.deadly.update({rpc: self._drop}))

    def set_rates(self, rates: Mapping[str, str]) -> None:
        """Resource -> dollars in decimal, as `Workspace.billing.rates()` shall give them."""
        self.do(lambda world: setattr(world, "rates", dict(rates)))

    def silence_queues(self, silent: bool = True) -> None:
        """Puts are accepted, gets give nothing."""
        self.do(lambda world: setattr(world, "silent_queues", silent))

    def tamper(self, change: Callable[[bytes, list[bytes]], list[bytes]]) -> None:
        """What is put into a partition of a queue is what `change(partition, items)` makes of it."""
        self.do(lambda world: setattr(world, "tamper", change))

    def skew_clock(self, seconds: float) -> None:
        """The server's clock is ahead of this machine's by so much."""
        self.do(lambda world: setattr(world, "clock_skew_s", seconds))

    def limit_blobs(self, limit: int) -> None:
        """No input or output of more bytes than this is taken, where it needs a blob."""
        self.do(lambda world: setattr(world, "blob_limit", limit))

    def limit_capacity(self, containers: int) -> None:
        """No more containers than this; inputs beyond wait."""
        self.do(lambda world: setattr(world, "capacity", containers))

    def grant_capacity(self, containers: int | None = None) -> None:
        """So many containers more (None: no bound any longer)."""

        def grant(world: World) -> None:
            world.capacity = None if containers is None else (world.capacity or 0) + containers

        self.do(grant)

    def idle_out(self) -> None:
        """Every idle container ends, as if its scaledown window had passed; returns when they have."""
        idle = self.do(lambda world: self._fleet.idle_out())
        self.until(lambda world: all(container.gone for container in idle))

    def kill_containers(self) -> None:
        """SIGKILL to every container, as the kernel does for want of memory; returns when they are gone."""
        self._end(lambda container: container.kill())

    def preempt_containers(self) -> None:
        """Every container is asked to go (SIGINT); returns when they are gone."""
        self._end(lambda container: container.preempt())

    def _end(self, how: Callable[[Container], None]) -> None:
        def end(world: World) -> list[Container]:
            ended = world.alive()
            for container in ended:
                how(container)
            return ended

        ended = self.do(end)
        self.until(lambda world: all(container.gone for container in ended))
