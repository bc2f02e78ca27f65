"""Modal without Modal: the real client and the real container entrypoint around our control plane."""

from __future__ import annotations

import asyncio
import stat
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from orbit_lsp.runners.modal.pool import AuthorKnowledge, ModalOptions
from orbit_lsp.runners.modal.runner import ModalRunner
from orbit_remote.common import messages as c
from orbit_remote.common.requests import Job
from orbit_remote.modal_app.image_spec import ImageSpec
from tests.e2e.conftest import Editor, display, start
from tests.modal_loopback.containers import Container
from tests.modal_loopback.fixture import started
from tests.modal_loopback.loopback import LIMIT_S, Loopback

TOLD = Path(__file__).with_name("worker_told_of_a_gpu.py")
RECORDED = Path(__file__).parents[1] / "e2e" / "recorded_worker.py"
SPEC = ImageSpec("0.1.0")

SAXPY = """\
#include "scale.cuh"
__global__ void saxpy(int n, float a, const float* x, float* y) { y[n] = SCALE * a * x[n]; }
int main() { saxpy<<<1, 256>>>(0, 1, 0, 0); }
"""


def container(tmp_path: Path, *, recorded: bool) -> dict[str, str]:
    """Variables of a container whose worker is the real one, or answers as one did on an H100.

    On Modal a container has its own file system, and the same paths in it as any other, by which builds are
    found again. Here it is one or the other: with recorded answers each has a home of its own, so that two
    never write the same tree; with real builds they share one, and tests use them in turn.
    """
    if not recorded:
        return {"ORBIT_HOME": str(tmp_path / "orbit")}
    python = script(tmp_path / "recorded-python", f'exec "{sys.executable}" "{RECORDED}"')
    return {"ORBIT_HOME": str(tmp_path / "orbit-{container}"), "ORBIT_PYTHON": str(python)}


def told_of_a_gpu(folder: Path, python: str = sys.executable, told: Path = TOLD) -> Path:
    """A Python for the worker in a container without a GPU: it builds and runs programs for real."""
    return script(folder / "told-python", f'exec "{python}" "{told}" "$@"')


def script(path: Path, line: str) -> Path:
    path.write_text(f"#!/bin/sh\n{line}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
    return path


@pytest.fixture
def modal(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Loopback]:
    """Containers that compile for real; there is no GPU in them."""
    with started(monkeypatch, tmp_path, container(tmp_path, recorded=False), kept=True) as loopback:
        yield loopback


@pytest.fixture
def h100s(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Loopback]:
    """Containers that answer what the worker answered on an H100 (tests/e2e/recorded_worker.py)."""
    with started(monkeypatch, tmp_path, container(tmp_path, recorded=True), kept=True) as loopback:
        yield loopback


class Author:
    """A folder with a kernel and a header, and the runner that its jobs go to."""

    def __init__(self, folder: Path, runner: ModalRunner) -> None:
        self.folder, self.runner = folder, runner
        folder.mkdir(exist_ok=True)
        (folder / "scale.cuh").write_text("#define SCALE 2.0f\n")

    def job(self, action: Any = "run", text: str = SAXPY, **fields: Any) -> Job:
        made = {"architecture": "sm_90a", "directory": str(self.folder), "gpu": "H100", "run": "r1"}
        made |= {"language": "cuda", "path": "saxpy.cu"} | fields
        return Job(action=action, text=text, **made | {"path": str(self.folder / made["path"])})

    async def events(self, job: Job) -> list[c.Event]:
        async with asyncio.timeout(LIMIT_S), aclosing(self.runner.run(job)) as events:
            return [event async for event in events]

    async def finished(self, job: Job) -> c.Finished:
        last = (await self.events(job))[-1]
        assert isinstance(last, c.Finished)
        return last

    def until(self, job: Job, state: str) -> Run:
        return Run(self.runner, job, state)


class Run:
    """A run on Modal. `async with` waits until the run is in the state; leaving it cancels the run."""

    def __init__(self, runner: ModalRunner, job: Job, state: str) -> None:
        self._events = runner.run(job)
        self._state = state

    async def __aenter__(self) -> Any:
        async with asyncio.timeout(LIMIT_S):
            async for event in self._events:
                assert not isinstance(event, c.Finished), event
                if isinstance(event, c.Stage) and self._state in f"{event.state}: {event.why}":
                    break
        return self._events

    async def __aexit__(self, *_: object) -> None:
        async with asyncio.timeout(LIMIT_S):
            await self._events.aclose()


def working(loopback: Loopback) -> list[Container]:
    """The containers that live, but for one that says that the image starts, and ends."""
    return loopback.do(lambda world: [each for each in world.but_for("hello") if not each.gone])


def gpus(loopback: Loopback) -> list[str]:
    """The GPUs of the containers that live; those that only compile have none."""
    return [item.function.gpu for item in loopback.containers() if item.function.gpu]


async def click_run(editor: Editor) -> None:
    """On the first lens that runs a kernel; another one says which GPU it is rented on."""
    command = next(lens.command for lens in await editor.lenses() if lens.command.command == "orbit.run")
    await editor.command(command.command, *command.arguments)


def states(events: list[c.Event]) -> list[str]:
    """The states a run went through, each once."""
    return list(dict.fromkeys(event.state for event in events if isinstance(event, c.Stage)))


def whys(events: list[c.Event]) -> str:
    return "\n".join(event.why for event in events if isinstance(event, c.Stage))


@pytest.fixture
async def author(tmp_path: Path) -> AsyncIterator[Callable[..., Author]]:
    """author(**options) -> Author, whose machine has compiled everything, so that a run goes straight to
    its GPU unless `compiled=False`; what it rents is released at the end.
    """
    made: list[Author] = []

    def make(
        spec: ImageSpec = SPEC, *, compiled: bool = True, read: Sequence[str] = (), python_path: Sequence[str] = (),
        **options: Any,
    ) -> Author:  # fmt: skip
        folder = tmp_path / "kernels"
        author = AuthorKnowledge(lambda _: compiled, lambda _: read, lambda: python_path)
        runner = ModalRunner(ModalOptions(spec, (str(folder),), **options), author=author)
        made.append(Author(folder, runner))
        return made[-1]

    yield make
    for item in made:
        await item.runner.close()


__all__ = ["display", "start"]
