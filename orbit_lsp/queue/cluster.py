"""GPUs of a Ray cluster as places of the pool.

For each GPU, Ray places an actor on a node with a free one. The actor has the engine of a click, with a worker of its
own, and ends with the process that asked for it.

Ray chooses nodes, waits for those that join, and starts an actor again elsewhere when its node leaves. The queue
keeps priorities, limits and records, and the rule that a job is measured at most once. Ray is an extra, imported only
for such a pool.
"""

from __future__ import annotations

import asyncio
import json
import os
import platform
import socket
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from dataclasses import asdict, replace
from importlib import import_module, metadata
from pathlib import Path
from typing import Any, Protocol

from orbit_lsp.queue.job_store import Result
from orbit_lsp.queue.pool import Slot
from orbit_lsp.queue.request import Request, RequestRefusedError
from orbit_lsp.queue.slot_engine import EngineOptions, SlotEngine, Stage
from orbit_lsp.state.user_folders import cache_folder
from orbit_remote.common import codec, limits, regular_files
from orbit_remote.common import messages as c
from orbit_remote.common.packages import installing
from orbit_remote.common.plain_text import visible

_CURRENT = "/tmp/ray/ray_current_cluster"  # noqa: S108 - Ray's own place; `_current` looks at whose it is
"""Where `ray start` notes the address of this machine's cluster."""
_CONNECT_S = 5.0
_AGAIN_S = 10.0
"""Seconds before a place replaces an actor that cannot work."""
_TRIES = 3
"""Attempts for a job whose actor ended before it began."""
_KEPT = ("report", "profile")
"""The fields of a result that name files, which lie on the node and are brought here."""
_UNBEGUN = c.Failure(
    "infrastructure",
    "its process in the cluster ended before the job began, three times",
    "submit it again; `ray status` shows the cluster's nodes",
    retryable=True,
)
Make = Callable[[Slot, EngineOptions], "NodeEngine"]


class NodeEngine(Protocol):
    async def machine(self) -> c.Machine | None: ...
    async def perform(self, job: str, request: Request, stage: Stage) -> Result: ...
    async def close(self) -> None: ...


def connect() -> None:
    """Join the cluster of the variable RAY_ADDRESS, or that of this machine. Raises RequestRefusedError."""
    try:
        ray: Any = import_module("ray")
    except ImportError:
        raise RequestRefusedError(
            f"a pool of a Ray cluster needs Ray: {installing.optional('cluster')}"
        ) from None
    if ray.is_initialized():
        return
    address = os.environ.get("RAY_ADDRESS") or _CURRENT
    why = _unreachable(address)
    if not why:
        try:
            # nothing of Ray's own words reaches the terminal
            ray.init(
                address=address if address != _CURRENT else "auto",
                namespace="orbit-lsp",
                log_to_driver=False,
                configure_logging=False,
            )
        except (OSError, RuntimeError, ValueError) as error:
            why = _first_line(error)
    if why:
        where = "on this machine" if address == _CURRENT else f"at {visible(address)}"
        raise RequestRefusedError(
            f"there is no Ray cluster {where} ({why}): start one with `ray start --head`, or name one in RAY_ADDRESS"
        ) from None


def _unreachable(address: str) -> str:
    """Return why nobody answers there, or "" if somebody does. Ray itself would ask for two minutes."""
    if address == _CURRENT:
        try:
            address = _current(Path(_CURRENT))
        except (OSError, ValueError) as error:
            return str(error) if isinstance(error, PermissionError) else "none was started"
    host, _, port = address.rpartition(":")
    if "://" in address or not port.isdecimal():
        return ""  # Ray's business
    try:
        socket.create_connection((host.strip("[]") or "127.0.0.1", int(port)), timeout=_CONNECT_S).close()
    except (OSError, OverflowError) as error:
        return f"{getattr(error, 'strerror', None) or error}"
    return ""


def _current(note: Path) -> str:
    """Return the address in Ray's note. Raises OSError. Whoever writes this file could run code here, because Ray
    sends pickles.
    """
    for path in (note.parent, note):
        if path.lstat().st_uid not in (0, os.getuid()):
            raise PermissionError(f"{path} belongs to another user")
    return regular_files.text(note, limits.STATE).strip()


def gpus() -> int:
    """Return how many GPUs the cluster has now."""
    return int(import_module("ray").cluster_resources().get("GPU", 0))


class Node:
    """The actor on a node, with one GPU."""

    def __init__(self, options: EngineOptions, make: Make) -> None:
        self._options, self._make = options, make
        self._engine: NodeEngine | None = None
        self._tasks: dict[str, asyncio.Task[Result]] = {}

    async def about(self) -> dict[str, str]:
        """Return the node's GPU and versions. The first call starts its worker."""
        if self._engine is None:
            self._engine = self._make(_own_place(), self._options)
        machine = await self._engine.machine()
        number = _own_place().options[-1][1]
        devices = {device.index: device.name for device in (machine.devices if machine else ())}
        return {
            **_versions(),
            "gpu": devices.get(number, ""),
            "node": platform.node(),
            "process": str(os.getpid()),
        }

    async def perform(self, job: str, request: str, text: str) -> AsyncGenerator[tuple[str, Any]]:
        """Yield `begun`, then each `stage`, then `result`: its JSON, and the files that it names. `text` is the
        author's text of the file at the request's path; "" for a request without a path.
        """
        yield "begun", platform.node()
        wanted = codec.build(Request, codec.read_json(request), lenient=True)
        if wanted.path and (missing := _differs(wanted.path, text)):
            yield "result", (_json(Result(c.failed(job, missing))), {})
            return
        stages = asyncio.Queue[tuple[str, Any]]()
        assert self._engine
        task = asyncio.ensure_future(
            self._engine.perform(job, wanted, lambda state, why: stages.put_nowait(("stage", (state, why))))
        )
        task.add_done_callback(lambda _: stages.put_nowait(("over", None)))
        self._tasks[job] = task
        try:
            while (stage := await stages.get())[0] != "over":
                yield stage
            if task.cancelled():
                yield "result", (_json(Result(c.failed(job, c.Failure("cancelled", "cancelled")))), {})
                return
            yield "stage", ("finishing", "")
            result = task.result()
            files = {name: await asyncio.to_thread(_brought, getattr(result, name)) for name in _KEPT}
            yield "result", (_json(result), files)
        finally:
            del self._tasks[job]

    async def cancel(self, job: str) -> None:
        """End a job, and wait for the end of its work."""
        if task := self._tasks.get(job):
            task.cancel()
            await asyncio.wait([task])


class ClusterEngine:
    """One place of the pool. Its actor is made when it is first needed."""

    def __init__(self, slot: Slot, options: EngineOptions, make: Make = SlotEngine) -> None:
        self._slot, self._options, self._make = slot, options, make
        self._ray: Any = import_module("ray")
        self._errors: Any = import_module("ray.exceptions")
        self._actor: Any = None

    async def ready(self) -> str:
        """Return the GPU's name, as soon as the cluster has a GPU for this place."""
        last = ""
        while True:
            try:
                if self._actor is None:
                    self._actor = self._begun()
                about: dict[str, str] = await self._actor.about.remote()
                problem = _mismatch(about)
            except self._errors.RayError as error:
                about, problem = {}, _first_line(error)
            if not problem:
                return about["gpu"]
            self._leave()
            if problem != last:
                self._options.complain(f"{self._slot.name}: {problem}")
            last = problem
            await asyncio.sleep(_AGAIN_S)

    def _begun(self) -> Any:
        kind = self._slot.gpu
        chosen: dict[str, Any] = {"accelerator_type": kind} if kind else {}
        node = self._ray.remote(max_restarts=-1, max_task_retries=0, max_concurrency=8)(Node)
        # these fields cannot leave this process
        options = replace(self._options, complain=_silent, folders=())
        return node.options(num_gpus=1, num_cpus=0, **chosen).remote(options, self._make)

    async def prepare(self, job: str, request: Request) -> None:
        """Do nothing: a build has to lie on the node that runs it."""

    async def perform(self, job: str, request: Request, stage: Stage) -> Result:
        text = json.dumps(asdict(request))
        for _ in range(_TRIES):
            stage("starting", "a GPU of the cluster")
            await self.ready()
            stage("syncing", "")
            node = ""
            try:
                stream = self._actor.perform.remote(job, text, request.text if request.path else "")
                async for reference in stream:
                    kind, known = await asyncio.shield(_value(reference))
                    if kind == "begun":
                        node = known
                    elif kind == "stage":
                        stage(*known)
                    else:
                        return await asyncio.to_thread(_kept, job, *known)
            except asyncio.CancelledError:
                await asyncio.shield(self._cancelled(job))
                raise
            except self._errors.RayError as error:
                if node:
                    return Result(c.failed(job, _lost(node, _first_line(error))))
        return Result(c.failed(job, _UNBEGUN))

    async def _cancelled(self, job: str) -> None:
        """Wait until the work has ended on the node."""
        with suppress(self._errors.RayError):  # it has ended with its node
            await self._actor.cancel.remote(job)

    async def close(self) -> None:
        self._leave()

    def _leave(self) -> None:
        """End the actor's process, and with it its worker."""
        actor, self._actor = self._actor, None
        if actor is not None and self._ray.is_initialized():
            self._ray.kill(actor)


async def _value(reference: Any) -> tuple[str, Any]:
    return await reference


def _own_place() -> Slot:
    """Return the GPU that Ray gave to this process, as a place of this node: Ray's number is NVML's. Ray also hides
    the other GPUs by a variable. It is removed here; the worker hides them for each job.
    """
    number = int(import_module("ray").get_gpu_ids()[0])
    os.environ.pop("CUDA_VISIBLE_DEVICES", None)
    return Slot(f"local:{number}", (("runner", "local"), ("shared_worker", False), ("device", number)))


def _differs(path: str, text: str) -> c.Failure | None:
    try:
        if regular_files.text(path, limits.SOURCE) == text:
            return None
        why = "has another text there"
    except (OSError, ValueError):
        why = "is not there"
    return c.Failure(
        "infrastructure",
        f"{path} {why}, on the node {platform.node()} of the cluster",
        "save it in a folder that all nodes share, or hand in its text",
    )


def _brought(path: str) -> tuple[str, bytes] | None:
    if not path:
        return None
    try:
        return os.path.basename(path), regular_files.read(path, limits.BROUGHT)  # noqa: PTH119 - a node's path
    except OSError:
        return None


def _kept(job: str, answer: str, files: dict[str, tuple[str, bytes] | None]) -> Result:
    """Return the result with its files on this machine."""
    result: Result = codec.build(Result, codec.read_json(answer), lenient=True)
    places = {"report": "", "profile": ""}
    for field, file in files.items():
        if file:
            path = cache_folder() / f"{field}s" / f"{job}-{file[0]}"
            regular_files.replace(path, file[1])
            places[field] = str(path)
    return replace(result, **places)


def _json(result: Result) -> str:
    return json.dumps(asdict(result))


def _lost(node: str, why: str) -> c.Failure:
    return c.Failure(
        "infrastructure",
        f"its process on the node {node} of the cluster ended while it ran: {why}",
        "submit it again: a job is measured at most once",
        retryable=True,
    )


def _versions() -> dict[str, str]:
    return {
        "orbit-lsp": metadata.version("orbit-lsp"),
        "python": platform.python_version().rpartition(".")[0],
    }


def _mismatch(about: dict[str, str]) -> str:
    for name, mine in _versions().items():
        if about[name] != mine:
            return f"the node {about['node']} has {name} {about[name]}, and this machine {mine}: install the same"
    return ""


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:300]


def _silent(_: str) -> None: ...
