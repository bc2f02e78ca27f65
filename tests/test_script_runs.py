"""`orbit-lsp exec` of a script of the project: from then on the script is a driver of the kernels that it launched."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orbit_lsp.history import script_runs
from orbit_lsp.history.history_tracker import HistoryTracker
from orbit_lsp.runs import driver_search
from orbit_lsp.specs import driver_choice
from orbit_lsp.state.kernel_ids import KernelId
from orbit_lsp.state.results import Route, Routes
from orbit_lsp.state.session import Session, uri_of
from orbit_remote.common import messages as c
from orbit_remote.common import regular_files
from orbit_remote.common.measurements import Timing
from orbit_remote.common.requests import Driver, ExecStart, Job

KERNEL = "import triton\n\n@triton.jit\ndef {}(x):\n    pass\n"
BENCH = Driver("script", "bench/b.py")


def opened(folder: Path) -> tuple[Session, HistoryTracker]:
    session = Session()
    session.setup.folders = [str(folder)]
    session.setup.trusts = lambda folder: True
    history = HistoryTracker(session, lambda: folder / "history.sqlite", print, lambda uris: None)
    return session, history


def executed(folder: Path) -> tuple[Job, c.Finished]:
    """bench/b.py with a kernel of its own, which launched that and one of pkg/k.py."""
    texts = {"bench/b.py": KERNEL.format("own"), "pkg/k.py": KERNEL.format("k"), "pkg/other.py": ""}
    for name, text in texts.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    script = str(folder / "bench/b.py")
    start = ExecStart()
    job = Job("r1", "run", "triton", script, texts["bench/b.py"], directory=str(folder), start=start)
    timing = Timing(3, 1000.0, "in program, n=3")
    launches = tuple(
        c.Launches(name, name, (1, 1, 1), (1, 1, 1), timing, 3, place=c.Place(str(folder / file), 4))
        for name, file in (("own", "bench/b.py"), ("k", "pkg/k.py"))
    )
    module = str(folder / "pkg/k.py")
    files = {module: regular_files.file_hash(module) or ""}
    finished = c.Finished("r1", "ok", launches=launches, device=c.Device("H200", 0), files=files, run_s=0.5)
    return job, finished


async def learned(folder: Path) -> dict[str, list[Driver]]:
    """What another process knows afterwards, by kernel."""
    session, history = opened(folder)
    known: dict[str, list[Driver]] = {}
    for name, kernel in (("pkg/k.py", "k"), ("bench/b.py", "own")):
        target = KernelId(uri_of(str(folder / name)), kernel)
        session.open(target.uri, 1, (folder / name).read_text())
        await history.learn(target)
        known[kernel] = [
            driver for driver, of in session.results.learned.get(target, {}).items() if of.launches
        ]
    await history.close()
    return known


@pytest.mark.parametrize(
    ("changed", "kernels"),
    [
        ({}, "k own"),
        ({"arguments": ("--size", "4")}, ""),
        ({"path": "/elsewhere/b.py"}, ""),
        ({"text": "typed since"}, "k"),
        ({"device": None}, ""),
        ({"files": {}}, "own"),
    ],
    ids=["as it is", "arguments", "outside", "another text", "no GPU", "a module that changed"],
)
async def test_a_script_that_ran_is_a_driver(changed: dict[str, Any], kernels: str, tmp_path: Path) -> None:
    job, finished = executed(tmp_path)
    of_job = {name: value for name, value in changed.items() if name not in ("device", "files")}
    of_run = {name: value for name, value in changed.items() if name in ("device", "files")}
    session, history = opened(tmp_path)
    await script_runs.keep(session, history, replace(job, **of_job), replace(finished, **of_run))
    await history.close()
    expected = {name: [BENCH] for name in kernels.split()}
    assert {name: of for name, of in (await learned(tmp_path)).items() if of} == expected


async def test_a_click_takes_it_though_no_way_is_read(tmp_path: Path) -> None:
    job, finished = executed(tmp_path)
    session, history = opened(tmp_path)
    await script_runs.keep(session, history, job, finished)
    await history.close()
    target = KernelId(uri_of(str(tmp_path / "pkg/k.py")), "k")
    test = Driver("pytest", "tests/test_k.py", "test_k")
    session.routes[target] = Routes((Route(test, ("k",), 1.0),))
    assert driver_choice.chosen(session, target) == BENCH
    assert [route.driver for route in driver_choice.ranked(session, target)] == [BENCH, test]
    assert driver_choice.named(session, target, "bench/b.py") == BENCH
    (tmp_path / "bench/b.py").rename(tmp_path / "bench/renamed.py")
    assert driver_choice.chosen(session, target) == test
    assert [route.driver for route in driver_choice.ranked(session, target)] == [test]


async def test_the_command_line_takes_it_too(tmp_path: Path) -> None:
    job, finished = executed(tmp_path)
    session, history = opened(tmp_path)
    await script_runs.keep(session, history, job, finished)
    target = KernelId(uri_of(str(tmp_path / "pkg/k.py")), "k")
    cache = tmp_path / "drivers.sqlite"
    for wanted in ("auto", "bench/b.py"):
        asked = driver_search.asked_for(session, target, wanted, lambda: cache, history.learn)
        assert (await asked)[0] == BENCH
    (tmp_path / "bench/b.py").unlink()
    with pytest.raises(driver_search.UnknownDriverError, match=r"^nothing that runs k was found: "):
        await driver_search.asked_for(session, target, "auto", lambda: cache, history.learn)
    await history.close()
