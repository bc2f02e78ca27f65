"""Warm processes for Python jobs: one is ready, with torch, triton and a CUDA context of its own; for batches, three.
Once a driver has run, one without a context is ready for the next. Once a judge has timed its candidate, the next judge
is ready with the contexts of its sides, until a job of another kind begins.

If a process cannot be forked and handed descriptors (no Linux), each job gets a fresh one.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import sys
import tempfile
from asyncio.subprocess import Process
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from orbit_remote import MAIN
from orbit_remote.child import child_main
from orbit_remote.common import codec, handshake
from orbit_remote.common.requests import Job
from orbit_remote.process import process_groups
from orbit_remote.recording.injection import UNKNOWN, Overhead
from orbit_remote.toolchain.spec_instances import Image
from orbit_remote.worker.children import Child, Forked, Fresh

FORKS = sys.platform == "linux"
_LEAVE_S = 20.0
"""How long a template may take to kill its groups and what had left them, which nobody else would find."""
_FOR_A_BATCH = 3
"""Spares where job follows job: opening a context takes longer than a short job (docs/dev/worker.md)."""


class Zygote:
    """The worker's end of a template process."""

    def __init__(
        self, process: Process, control: socket.socket, env: Mapping[str, str], scratches: Path | None
    ) -> None:
        self.env = dict(env)
        self._scratches = scratches
        self._loaded = handshake.loaded(env)
        self.alive = True
        self._imported = False
        self._process = process
        self._control = control
        self._children: dict[int, Forked] = {}
        self._count = 0
        self._continued = process_groups.Continued(process.pid, lambda: self.alive and bool(self._children))
        control.setblocking(False)
        asyncio.get_running_loop().add_reader(control, self._hear)

    @classmethod
    async def start(cls, cache: Path, env: Mapping[str, str], scratches: Path | None) -> Zygote:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            command = [sys.executable, "-P", MAIN, "template", "--cache", cache]
            process = await process_groups.start(
                command, env=env, stdin=theirs.fileno(), stdout=None, stderr=None
            )
        return cls(process, ours, env, scratches)

    def serves(self, env: Mapping[str, str]) -> bool:
        """Say whether a job with this environment can have one of its children. Everything else is given to a job
        when it begins.
        """
        return handshake.loaded(env) == self._loaded

    async def fork(
        self,
        ended: Callable[[Forked], None],
        *,
        role: child_main.Role = "spare",
        batch: bool = False,
        temporary: str | None = None,
        waits_on: tuple[str, int] | None = None,
    ) -> Forked:
        """Fork a child. `batch`: many jobs follow, so the template imports more for them. A judge has a folder in
        `temporary`, or else among the system's temporary files. One that `waits_on` a device (`cuda`, and the GPU's
        number) has its sides before its job. Raises OSError if the template has died; the next one may live.
        """
        self._count += 1
        self._continued.watch()
        launches = tempfile.mkdtemp(prefix=f"{os.getpid()}-launches-", dir=self._scratches)
        folder = judges_folder(temporary) if role == "judge" else None
        child = Forked(self._count, Path(launches), role, folder)
        waits = waits_on and {"folder": str(folder), "device": waits_on[0], "index": waits_on[1]}
        order = json.dumps(
            {
                "fork": child.number,
                "launches": str(child.launches),
                "role": role,
                "batch": batch,
                "waits": waits,
            }
        ).encode()
        try:
            self._children[child.number] = child
            await child.open(lambda descriptors: socket.send_fds(self._control, [order], descriptors))
        except OSError:
            self._lost()
            child.forget()
            raise
        child.when_ended(ended)
        child.template = self
        return child

    def _hear(self) -> None:
        try:
            message = self._control.recv(1 << 16)
        except BlockingIOError:
            return
        except OSError:
            message = b""
        if not message:
            self._lost()
            return
        self._imported = True
        answer: dict[str, Any] = codec.read_json(message)
        if "forked" in answer:
            self._children[answer["forked"]].forked(answer["pid"])
        elif (child := self._children.pop(answer["ended"], None)) is not None:
            child.ended(answer["status"])

    def _lost(self) -> None:
        """Take note that the template has died. The kernel has killed its children."""
        if self.alive:
            self.alive = False
            asyncio.get_running_loop().remove_reader(self._control)
        for child in self._children.values():
            child.kill()
            child.ended(-9)
        self._children.clear()

    async def close(self) -> None:
        """End it, and everything forked from it."""
        if self.alive:
            self.alive = False
            asyncio.get_running_loop().remove_reader(self._control)
        self._control.close()  # it kills its groups and leaves
        if not self._imported:  # it imports torch, which takes seconds, and has no groups
            process_groups.kill_group(self._process.pid)
        try:
            async with asyncio.timeout(_LEAVE_S):
                await process_groups.exit_status(self._process)
        except TimeoutError:
            pass
        await process_groups.finish(self._process)
        self._lost()


def judges_folder(temporary: str | None) -> Path:
    """Make a folder for a judge in `temporary`, or among the system's temporary files if that cannot be written to."""
    try:
        folder = tempfile.mkdtemp(prefix="orbit-judge-", dir=temporary)
    except OSError:
        if temporary is None:
            raise
        return judges_folder(None)
    os.chmod(folder, 0o711)  # noqa: S103, PTH101 - a side may be another user
    return Path(folder)


class PreforkPool:
    """The warm processes. They are used on one event loop; `take` may be called while other jobs run."""

    def __init__(
        self, *, cache: Path, scratches: Path | None = None, idle_s: float = 300.0, device: str = "cuda"
    ) -> None:
        """Make a pool. Each child has a folder in `scratches`, or in the system's temporary folder; its name begins
        with our process id. Judges wait on `device`: `cpu` is for tests.
        """
        self._cache = cache
        self._device = device
        self._scratches = scratches
        self.idle_s = idle_s
        self._template: Zygote | None = None
        self._former: list[Zygote] = []
        self._changing = asyncio.Lock()
        self._spares: list[Forked] = []
        self._driver: Forked | None = None
        self._judge: tuple[Forked, int] | None = None  # that waits, and its GPU
        self._wanted = 1
        self._running = 0
        self._measuring: set[Child] = set()
        self._idle: asyncio.TimerHandle | None = None
        self._renewing: set[asyncio.Task[None]] = set()
        self._closing: set[asyncio.Task[None]] = set()
        self._closed = False

    @property
    def waiting(self) -> int | None:
        """Return the process id of the spare that gets the next job."""
        return next((spare.pid for spare in self._spares if spare.alive), None)

    @property
    def waiting_judge(self) -> int | None:
        """Return the process id of the judge that waits."""
        return self._judge[0].pid if self._judge and self._judge[0].alive else None

    async def prepare(self, env: Mapping[str, str]) -> None:
        """Prepare a spare for jobs with this environment, and return when it is ready."""
        if not FORKS:
            return
        self._used()
        async with self._changing:
            spare = await self._filled(env)
        await spare.ready()

    async def take(
        self,
        job: Job,
        env: Mapping[str, str],
        image: Image | None = None,
        overhead: Overhead = UNKNOWN,
        *,
        ahead: bool = False,
        role: child_main.Role = "spare",
        own: Mapping[str, str] | None = None,
    ) -> Child:
        """Return a child that carries out `job`, which it has been given. Close it when it is done. `ahead`: the next
        spares may open their contexts meanwhile, as another job is likely to follow. `own` is the environment that the
        job sees in place of `env`. `role` and `own` are only possible if processes can be forked (`FORKS`).

        Raises OSError if no process can be started.
        """
        if job.is_refereed:
            role = "judge"
        if not FORKS:
            return await Fresh.start(job, self._cache, env, image, overhead, self._scratches)
        self._used()
        async with self._changing:
            self._wanted = _FOR_A_BATCH if ahead else 1
            await self._end_surplus()
            child = await self._waiting_judge(job, env, role) or await self._filled(env, role)
            self._is_no_spare(child)
            child.taken = True
            self._running += 1
            self._measuring.add(child)
        try:
            await child.ready()
            seen = env if own is None else own
            order = child_main.order(job, image, overhead=overhead, environment=seen, folder=child.folder)
            await child.begin(order)
        except BaseException:
            self.let_go(child)
            raise
        if ahead:
            self._renew_soon(child)
        return child

    def measured(self, child: Child) -> None:
        """Take note that a child measures nothing more, and ends: it is time for a new spare."""
        if child not in self._measuring:
            return
        self._measuring.discard(child)
        if not self._measuring:
            self._renew_soon(child)

    def give_back(self, child: Child) -> bool:
        """Keep a child that stays as a spare again. Return False if it is not wanted, and has to be closed."""
        if not isinstance(child, Forked) or self._closed or child.template is not self._template:
            return False
        if len(self._spares) >= self._wanted or not child.alive:
            return False
        child.taken = False
        child.served += 1
        self._running -= 1
        self._measuring.discard(child)
        self._spares.append(child)
        self._used()
        return True

    def let_go(self, child: Child) -> None:
        """End and close a child. Nobody waits for it."""
        task = asyncio.get_running_loop().create_task(child.close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def free(self) -> None:
        """End the spares that wait, whose contexts keep a GPU in exclusive mode from every other process."""
        async with self._changing:
            self._forget()
            await asyncio.gather(*self._closing)

    async def close(self) -> None:
        """End the spares, the templates and the jobs that run."""
        self._closed = True
        if self._idle is not None:
            self._idle.cancel()
        for task in self._renewing:
            task.cancel()
        await asyncio.gather(*self._renewing, return_exceptions=True)
        async with self._changing:
            await self._leave_template()
            for template in self._former:
                await template.close()
        await asyncio.gather(*self._closing, return_exceptions=True)

    async def _filled(self, env: Mapping[str, str], role: child_main.Role = "spare") -> Forked:
        """Return the spare of a template with this environment. It is forked now if none was prepared; a child of
        another role is always forked now. The caller holds `_changing`.
        """
        for last in (False, True):
            if self._closed:
                raise OSError("the worker is ending")
            if self._template is None or not self._template.alive or not self._template.serves(env):
                await self._leave_template()
                self._template = await Zygote.start(self._cache, env, self._scratches)
            try:
                if role == "driver" and self._driver:
                    return self._driver
                if role != "spare":
                    return await self._template.fork(
                        self._child_ended, role=role, temporary=env.get("TMPDIR")
                    )
                if not self._spares:
                    self._spares.append(await self._fork_spare(self._template))
            except OSError:  # it died in this moment: once more with a new one
                if last:
                    raise
            else:
                return self._spares[0]
        raise AssertionError

    async def _waiting_judge(self, job: Job, env: Mapping[str, str], role: child_main.Role) -> Forked | None:
        """Return the judge that waits, if it can have the job. Else end it before anything of the job begins: no code that
        is not locked ever runs beside it, and it holds no memory that such a job measures. The caller holds `_changing`.
        """
        if self._judge is None:
            return None
        child, device = self._judge
        if role == "judge" and device == job.device and self._template and _fits(self._template, env):
            await child.ready()
            if child.prepared and child.alive and child.template is self._template:
                return child
        await self._end_judge()
        return None

    async def end_judge(self) -> None:
        """End the judge that waits, if one does. Return when it has ended."""
        if self._judge:
            async with self._changing:
                await self._end_judge()

    async def _end_judge(self) -> None:
        if self._judge:
            child, self._judge = self._judge[0], None
            await child.close()

    async def _end_surplus(self) -> None:
        """End the spares of a batch that is over. The next job measures the GPU's memory, and they occupy some of it."""
        surplus, self._spares = self._spares[self._wanted :], self._spares[: self._wanted]
        for spare in surplus:
            self.let_go(spare)
        if surplus:
            await asyncio.gather(*self._closing)

    async def _leave_template(self) -> None:
        template, self._template = self._template, None
        self._forget()
        if template is not None and self._running and not self._closed:
            self._former.append(template)  # its jobs go on
        elif template is not None:
            await template.close()

    def _child_ended(self, child: Forked) -> None:
        if not child.taken:
            self._is_no_spare(child)
            child.forget()
            return
        self._running -= 1
        self.measured(child)

    def _is_no_spare(self, child: Child) -> None:
        if child in self._spares:
            self._spares.remove(child)
        if child is self._driver:
            self._driver = None
        if self._judge and child is self._judge[0]:
            self._judge = None

    def _renew_soon(self, after: Child) -> None:
        """Prepare what a next job of the same kind takes."""
        if self._closed:
            return
        self._used()
        role = after.role if isinstance(after, Forked) else "spare"
        task = asyncio.get_running_loop().create_task(self._renew(role))
        self._renewing.add(task)
        task.add_done_callback(self._renewing.discard)

    async def _renew(self, role: child_main.Role) -> None:
        with contextlib.suppress(OSError):  # the next job says what is wrong
            async with self._changing:
                template = self._template
                if template is None or not template.alive:
                    return
                if role == "driver" and not self._driver:
                    self._driver = await template.fork(self._child_ended, role="driver")
                while role not in ("driver", "judge") and len(self._spares) < self._wanted:
                    self._spares.append(await self._fork_spare(template))

    def judge_follows(self, child: Child, device: int, may: Callable[[], bool]) -> None:
        """Prepare the next judge for this GPU, because this one has timed its candidate. If another job runs, or if it `may`
        not wait, do nothing: code that is not locked runs.
        """
        if isinstance(child, Forked) and child.role == "judge" and not self._closed:
            self._used()
            task = asyncio.get_running_loop().create_task(self._prepare_judge(child, device, may))
            self._renewing.add(task)
            task.add_done_callback(self._renewing.discard)

    async def _prepare_judge(self, before: Forked, device: int, may: Callable[[], bool]) -> None:
        with contextlib.suppress(OSError):  # the next job says what is wrong
            async with self._changing:
                template = self._template
                if self._judge or self._running > 1 or not may():
                    return
                if template is None or template is not before.template:
                    return
                if template.alive:
                    temporary = template.env.get("TMPDIR")
                    forked = await template.fork(
                        self._child_ended, role="judge", temporary=temporary, waits_on=(self._device, device)
                    )
                    self._judge = forked, device

    async def _fork_spare(self, template: Zygote) -> Forked:
        return await template.fork(self._child_ended, batch=self._wanted > 1)

    def _used(self) -> None:
        if self._idle is not None:
            self._idle.cancel()
        self._idle = asyncio.get_running_loop().call_later(self.idle_s, self._end_idle)

    def _end_idle(self) -> None:
        """Free the GPU memory of unused contexts. The template, which has none, stays."""
        if self._running:
            self._used()
            return
        self._forget()

    def _forget(self) -> None:
        spares, self._spares = self._spares, []
        if self._driver:
            spares.append(self._driver)
            self._driver = None
        if self._judge:
            spares.append(self._judge[0])
            self._judge = None
        for spare in spares:
            self.let_go(spare)


_AT_THE_START: Final = ("PATH", "TMPDIR")
"""Variables that a judge's sides need before they are locked, beside those that every process of a template has from it."""


def _fits(template: Zygote, env: Mapping[str, str]) -> bool:
    return all(template.env.get(name) == env.get(name) for name in _AT_THE_START)
