"""Errors at a keystroke: of files alone of which the front end has said what nvcc did."""

from __future__ import annotations

import asyncio
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from orbit_lsp.features.keystrokes import Keystrokes
from orbit_lsp.places.places import Places
from orbit_lsp.runners.local import LocalRunner
from orbit_lsp.state.documents import TextChange
from orbit_lsp.state.placement import RunSetup
from orbit_lsp.state.results import Problems
from orbit_lsp.state.session import Session
from orbit_remote.common import messages as c
from orbit_remote.common.requests import Job

URI = "file:///k.cu"
KERNEL = "__global__ void k(float* x) {}\n"
HERE = c.Machine("p", 1, "python", "3.11", nvcc="/opt/cuda/bin/nvcc")
OLD = c.Problem("error", "old", "nvcc", c.Place("/k.cu", 1, 5))
NEW = c.Problem("error", "new", "nvcc", c.Place("/k.cu", 1, 7))
SPILL = c.Problem("warning", "spills", "ptxas", c.Place("/k.cu", 1))


class Runner:
    """A worker whose front end says what it is told to, and nothing while `answers` is empty."""

    def __init__(self, *answers: tuple[c.Problem, ...] | None) -> None:
        self.answers = list(answers)

    async def typed(self, job: Job, *, start: bool) -> c.Built | None:
        if not self.answers:
            await asyncio.Event().wait()
        problems = self.answers.pop(0)
        return None if problems is None else c.Built(job.run, problems)


async def settle() -> None:
    """Until all that is ready has been done, the pause after an edit included."""
    for _ in range(3):
        await asyncio.sleep(0.005)


@pytest.mark.parametrize(
    ("answers", "settings", "shown"),
    [
        (((OLD,), (NEW,)), {}, ["new", "spills"]),
        (((OLD,), ()), {}, ["spills"]),
        (((OLD,), None), {}, ["old", "spills"]),
        (((), (NEW,)), {}, ["old", "spills"]),
        ((None, (NEW,)), {}, ["old", "spills"]),
        (((OLD,),), {}, ["old", "spills"]),
        (((OLD,), (NEW,)), {"compile_on_idle": False}, ["old", "spills"]),
    ],
    ids=[
        "another error", "no error", "headers have changed", "nvcc said something else", "a file that is left to nvcc",
        "no answer yet", "turned off",
    ],
)  # fmt: skip
async def test_what_is_shown_at_a_keystroke(answers: Any, settings: Any, shown: Any) -> None:
    from tests.settings_check import settings_of_values

    session = Session(setup=RunSetup(settings=settings_of_values(settings), machine=HERE))
    session.open(URI, 1, KERNEL)
    runner: Any = Runner(*answers)
    keystrokes = Keystrokes(session, lambda: runner, lambda _: None)
    frozen = session.freeze(URI)
    assert frozen
    session.results.problems[f"build {URI}", URI] = Problems(1, (OLD, SPILL))
    job = Job("r1", "compile", "cuda", "/k.cu", KERNEL)
    ended: Any = SimpleNamespace(frozen=frozen, job=job, action="compile", built=c.Built("r1", (OLD, SPILL)))
    keystrokes.run_ended(ended)
    await settle()
    session.change(URI, 2, [TextChange((0, 27), (0, 27), " ")])
    keystrokes.edited(URI)
    await settle()
    problems = [each.message for kept in session.results.problems.values() for each in kept.items]
    assert sorted(problems) == shown
    keystrokes.shutdown()


def test_a_headers_error_that_two_builds_report_is_shown_once() -> None:
    from orbit_lsp.views import diagnostics

    session = Session()
    session.open(URI, 1, KERNEL)
    for built in ("a", "b"):
        session.results.problems[f"build {built}", URI] = Problems(1, (OLD, SPILL))
    assert [each.message for each in diagnostics.diagnostics(session, URI)] == [OLD.message, SPILL.message]


async def test_the_python_is_looked_for_before_a_job_and_kept_between(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("CONDA_PREFIX", "VIRTUAL_ENV", "UV_PROJECT_ENVIRONMENT"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "other").mkdir()
    session = Session(setup=RunSetup(folders=[str(tmp_path)]))
    places = Places(session, print, lambda _: None)
    job = Job("r1", "compile", "cuda", str(tmp_path / "k.cu"), KERNEL)

    async def of_a_job() -> str:
        runner = await places.runner_of(job)
        assert isinstance(runner, LocalRunner)
        return runner.options.python

    def of_a_keystroke() -> str:
        return places.runner().options.python

    def configure(**settings: object) -> None:
        places.settings.options = settings
        assert places.settings.configure(None) == ()

    configure(trusted=True)
    assert (await of_a_job(), of_a_keystroke()) == (sys.executable, sys.executable)
    made = _make_python(tmp_path / ".venv")
    assert of_a_keystroke() == sys.executable
    assert (await of_a_job(), of_a_keystroke()) == (made, made)
    configure(trusted=False)
    assert of_a_keystroke() == sys.executable
    configure(trusted=True)
    assert of_a_keystroke() == made
    configure(trusted=True, python="/opt/python")
    assert of_a_keystroke() == "/opt/python"
    configure(trusted=True)
    session.setup.folders[:] = [str(tmp_path / "other")]
    configure(trusted=True)
    other = _make_python(tmp_path / "other" / ".venv")
    assert (await of_a_job(), of_a_keystroke()) == (other, other)
    shutil.rmtree(tmp_path / "other" / ".venv")
    assert of_a_keystroke() == other
    assert await of_a_job() != other
    await places.close()


def _make_python(folder: Path) -> str:
    python = folder / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.touch()
    return str(python)
