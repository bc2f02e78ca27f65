"""An author's side without an editor: settings, session and runs as the server has them, and what was shown."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import sys
from collections.abc import Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import psutil
import pytest

from orbit_lsp.places.places import Places
from orbit_lsp.runners.modal.errors import ModalError
from orbit_lsp.runs import summary
from orbit_lsp.runs.scheduler import Run, Scheduler
from orbit_lsp.specs import job_builder
from orbit_lsp.state.placement import RunSetup
from orbit_lsp.state.session import Session, uri_of
from orbit_remote.common import messages as c
from tests.modal_loopback.loopback import LIMIT_S, Loopback

T = TypeVar("T")
SAXPY = """\
__global__ void saxpy(int n, float a, const float* x, float* y) { y[n] = a * x[n]; }
int main() { saxpy<<<1, 256>>>(0, 1, 0, 0); }
"""
TOLD_OF_A_GPU = Path(__file__).with_name("worker_told_of_a_gpu.py")
# what a container is made of, and this machine's own worker, which stays after it has compiled; everything else is
# somebody's work
_MACHINERY = (
    "orbit_remote/__main__.py",
    "zygote.py",
    "modal._container_entrypoint",
    "recorded_worker.py",
    "worker_told_of_a_gpu.py",
)


class Desk:
    """One editor window on `folder`. It is the `Watcher` of its runs: `shown` is what a user reads of them."""

    def __init__(
        self, modal: Loopback, folder: Path, patch: pytest.MonkeyPatch, cache: Path, **settings: Any
    ) -> None:
        """`cache` is where builds of the real worker are kept from test to test."""
        self.modal, self.folder, self.patch, self.cache = modal, folder, patch, cache
        folder.mkdir(exist_ok=True)
        disk = {"ORBIT_HOME": str(folder.parent / "disk-{container}")}
        modal.do(lambda world: world.container_env.update(disk))
        self.compiled = False  # everything has just been compiled here: a run goes straight to its GPU
        known = job_builder.is_compiled
        patch.setattr(job_builder, "is_compiled", lambda *asked: self.compiled or known(*asked))
        self.session = Session(setup=RunSetup(folders=[str(folder)]))
        self.places = Places(self.session, lambda text: None, lambda uris: None)
        self.places.settings.options = {"runner": "modal", "gpu": "H100", "trusted": True} | settings
        assert self.places.settings.configure(None) == ()
        self.runs = Scheduler(self.session, self.places.runner_of, self)
        self.shown: list[str] = []
        self.ends: list[tuple[str, c.Finished]] = []
        self._changed = asyncio.Event()
        self._version = 0

    # -- what is done -------------------------------------------------------------------------

    def click(self, text: str = SAXPY) -> Run:
        """Run the file with this text; returns at once."""
        self._version += 1
        path = self.folder / "saxpy.cu"
        path.write_text(text)
        uri = uri_of(str(path))
        self.session.open(uri, self._version, text)
        run = self.runs.start("run", uri)
        assert run is not None
        return run

    async def run(self, text: str = SAXPY) -> c.Finished:
        return await self.ended(self.click(text))

    async def ended(self, run: Run) -> c.Finished:
        await self.until(lambda: run.id in [known for known, _ in self.ends])
        assert run.finished is not None
        return run.finished

    async def sees(self, text: str) -> None:
        """Wait until the user has been shown this."""
        await self.until(lambda: text in "\n".join(self.shown))

    async def until(self, holds: Callable[[], Any]) -> None:
        try:
            async with asyncio.timeout(LIMIT_S):
                while not holds():
                    await self._changed.wait()
                    self._changed.clear()
        except TimeoutError:
            raise AssertionError(f"shown: {self.shown}; {await self.there(self.modal.state)}") from None

    async def there(self, what: Callable[..., T], *arguments: Any) -> T:
        """Do something to the control plane while this side goes on."""
        return await asyncio.to_thread(what, *arguments)

    def runs_programs(self) -> None:
        """Containers build and run programs for real from now on. A figure of a GPU they cannot give."""
        script = self.folder.parent / "python-without-gpu"
        script.write_text(
            f'#!/bin/sh\nexec "{sys.executable}" "{TOLD_OF_A_GPU}" "$1" "$2" "$3" --cache "{self.cache}"\n'
        )
        script.chmod(0o755)
        # one disk for all: the same paths in each container, as on Modal, by which a build is found again
        here = {"ORBIT_PYTHON": str(script), "ORBIT_HOME": str(self.folder.parent / "disk")}
        self.modal.do(lambda world: world.container_env.update(here))

    def spec(self, **fields: Any) -> None:
        """Another app, or other limits of it, than the settings can ask for."""
        plain = self.places.rental._spec
        self.patch.setattr(self.places.rental, "_spec", lambda: dataclasses.replace(plain(), **fields))

    async def close(self) -> None:
        await self.runs.close()
        await self.places.close()

    # -- what is there ------------------------------------------------------------------------

    def rented(self) -> int:
        """Containers with a GPU that live."""
        return sum(bool(container.function.gpu) for container in self.modal.world.alive())

    def gpus_begun(self) -> int:
        """Containers with a GPU that ever were."""
        return sum(bool(container.function.gpu) for container in self.modal.world.containers.values())

    def warm(self) -> int:
        """Those that the lens and `orbit.sessions` speak of."""
        return len(self.places.rental.sessions())

    def work(self) -> list[psutil.Process]:
        """What runs in containers and is not the machinery: compilers, programs."""
        return [
            process for process in self.processes() if not any(part in _line(process) for part in _MACHINERY)
        ]

    def processes(self) -> list[psutil.Process]:
        """All that were started with this test's folder in their environment, as what a container starts is."""
        mark, results = str(self.folder.parent).encode(), list[psutil.Process]()
        for process in psutil.process_iter():
            with suppress(OSError, psutil.Error):
                environment = Path(f"/proc/{process.pid}/environ").read_bytes()
                if mark in environment and process.pid != os.getpid():
                    results.append(process)
        return results

    async def until_gone(self, what: Callable[[], list[psutil.Process]]) -> None:
        left: list[psutil.Process] = []
        try:
            async with asyncio.timeout(LIMIT_S):
                while left := await asyncio.to_thread(what):
                    for process in left:
                        await _end(process)
        except TimeoutError:
            raise AssertionError(f"still there: {[_line(process) for process in left]}") from None

    async def until_reached(self) -> None:
        """Modal answers again: its client comes back by itself, in its own time."""
        async with asyncio.timeout(LIMIT_S):
            while True:
                with suppress(ModalError):
                    await self.places.rental.runner().pool.account.client()
                    return

    # -- the watcher --------------------------------------------------------------------------

    def begin(self, run: Run, cancel: Callable[[], object]) -> None:
        pass

    def stage(self, run: Run, state: c.State, why: str) -> None:
        self._show(f"{state}: {why}" if why else state)

    def output(self, run: Run, stream: str, text: str) -> None:
        self._show(text)

    def end(self, run: Run, finished: c.Finished) -> None:
        self.ends.append((run.id, finished))
        self._show("\n".join([summary.one_line(finished, compiled_only=False), *finished.remarks]))
        if (failure := finished.failure) and finished.outcome != "cancelled":  # as views of an editor do
            self._show(f"{failure.message}. {failure.remedy}" if failure.remedy else failure.message)

    def changed(self, uris: set[str]) -> None:
        pass

    def _show(self, text: str) -> None:
        self.shown.append(text)
        self._changed.set()


def _line(process: psutil.Process) -> str:
    with suppress(psutil.Error):
        return " ".join(process.cmdline())
    return ""


async def _end(process: psutil.Process) -> None:
    """Returns when it is over, or has begun another program: that may be machinery."""
    try:
        descriptor = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return
    ended, loop, before = asyncio.Event(), asyncio.get_running_loop(), _line(process)
    loop.add_reader(descriptor, ended.set)
    try:
        if process.is_running() and _line(process) == before:  # and not another one of that number
            await ended.wait()
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)


def program(body: str) -> str:
    """A CUDA program that launches nothing: `body` is its main. It has `exists` and `make` for files."""
    return f"""\
#include <stdio.h>
#include <unistd.h>
__global__ void saxpy(int n, float a, const float* x, float* y) {{ y[n] = a * x[n]; }}
static bool exists(const char* name) {{ return access(name, F_OK) == 0; }}
static void make(const char* name) {{ fclose(fopen(name, "w")); }}
int main() {{
  {body}
}}
"""


HANGS = program('puts("begun"); fflush(stdout); for (;;) pause();')

Act = Callable[[Desk], Coroutine[Any, Any, None]]
