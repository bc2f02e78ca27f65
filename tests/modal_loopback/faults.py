"""What goes wrong because a test says so."""

from __future__ import annotations

import collections
from collections.abc import Callable
from dataclasses import dataclass

from grpclib import GRPCError, Status
from modal_proto import api_pb2 as pb


@dataclass
class Fault:
    status: Status
    message: str
    times: int | None  # None: for ever
    retry_after_s: float | None

    def error(self) -> GRPCError:
        # with an RPCRetryPolicy in its details the client takes RESOURCE_EXHAUSTED for throttling and waits
        wait = self.retry_after_s
        details = None if wait is None else [pb.RPCRetryPolicy(retry_after_secs=wait)]
        return GRPCError(self.status, self.message, details)


@dataclass
class BrokenBuild:
    """The next image whose recipe contains `marker` fails to build."""

    marker: str
    log: tuple[str, ...]
    message: str
    times: int


@dataclass
class Slow:
    """Requests for an RPC, but for the first `after`, are answered once `done()`."""

    done: Callable[[], object]
    after: int
    waiting: int = 0


class Faults:
    def __init__(self) -> None:
        self._by_rpc = collections.defaultdict[str, list[Fault]](list)
        self.deadly: dict[str, Callable[[], None]] = {}  # RPC -> how the server dies when it is asked for
        self.results: collections.deque[pb.GenericResult] = collections.deque()  # next inputs end so, unrun
        self.builds: list[BrokenBuild] = []
        self.slow: dict[str, Slow] = {}

    def add(self, rpc: str, fault: Fault) -> None:
        self._by_rpc[rpc].append(fault)

    def clear(self) -> None:
        self._by_rpc.clear()
        self.deadly.clear()
        self.results.clear()
        self.builds.clear()
        self.slow.clear()

    def strike(self, rpc: str) -> None:
        """Raise what a test wants this RPC to answer, if anything."""
        if die := self.deadly.pop(rpc, None):
            die()
        if not (waiting := self._by_rpc[rpc]):
            return
        fault = waiting[0]
        if fault.times is not None:
            fault.times -= 1
            if fault.times == 0:
                waiting.pop(0)
        raise fault.error()

    def slowed(self, rpc: str) -> Slow | None:
        """What this request for `rpc` has to wait for, if anything."""
        slow = self.slow.get(rpc)
        if slow and slow.after:
            slow.after -= 1
            return None
        return slow

    def broken_build(self, recipe: str) -> BrokenBuild | None:
        for build in self.builds:
            if build.marker in recipe and build.times:
                build.times -= 1
                return build
        return None
