"""What every test has: a state folder of its own, the cache of the run, and a reason where it is skipped or left out."""

from __future__ import annotations

import asyncio
import gc
import itertools
import os
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import hypothesis
import pytest

from orbit_remote.worker import lease
from tests import processes_check, quick_starts, random_cases, recorder_builds

_numbers = itertools.count()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--slow",
        action="store_true",
        help="also run the tests marked slow, and random tests with all their inputs",
    )


def pytest_configure(config: pytest.Config) -> None:
    # workers over pipes, which end with their test; what is about shared ones asks for `shared_workers`
    os.environ["ORBIT_SHARED_WORKER"] = "no"
    beside = Path(sys.executable).parent
    if (beside / "orbit-lsp").exists():  # as it is for most: messages name the command without its path
        os.environ["PATH"] = f"{os.environ.get('PATH', os.defpath)}{os.pathsep}{beside}"
    random_cases.in_full = config.getoption("--slow")
    hypothesis.settings.register_profile("orbit", deadline=None)  # a busy machine takes longer
    hypothesis.settings.load_profile("orbit")


@pytest.fixture(scope="session")
def of_the_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that all processes of this test run share, and no other run."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "of-the-run"
    folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture(scope="session")
def shared_cache(of_the_run: Path) -> Path:
    return of_the_run / "cache"


@pytest.fixture(scope="session", autouse=True)
def compiled_once(of_the_run: Path) -> Iterator[None]:
    """The product's own libraries are, and not again for each test with a cache of its own."""
    with pytest.MonkeyPatch.context() as patch:
        if folder := recorder_builds.installed(of_the_run):
            patch.setenv("PATH", f"{folder}{os.pathsep}{os.environ.get('PATH', os.defpath)}")
        yield


@pytest.fixture(autouse=True)
def folders_of_its_own(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    shared_cache: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No test reads the history or the builds of whoever runs it, or adds to them, or waits for a GPU that a test beside it plays. It may
    find the builds of another test, unless it has a cache of its own.
    """
    folder = (
        tmp_path_factory.getbasetemp() / f"state-{next(_numbers)}"
    )  # `mktemp` looks through all that are there
    folder.mkdir()
    monkeypatch.setenv("XDG_STATE_HOME", str(folder))
    monkeypatch.setenv("XDG_CACHE_HOME", str(shared_cache))
    if not request.node.get_closest_marker("gpu"):
        monkeypatch.setattr(lease, "EVERYBODYS", folder / "gpu")


@pytest.fixture
def real_starts() -> None:
    """For tests of how processes are started: as the product does it."""


@pytest.fixture(autouse=True)
def quickly_started(
    request: pytest.FixtureRequest, of_the_run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if sys.platform == "linux" and "real_starts" not in request.fixturenames:
        quick = quick_starts.Starts(quick_starts.built(of_the_run))
        monkeypatch.setattr(asyncio, "create_subprocess_exec", quick)


@pytest.fixture
def shared_workers(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Path]:
    """A runtime folder of this test, in which workers are shared as users share them; they are ended with the test."""
    monkeypatch.delenv("ORBIT_SHARED_WORKER")
    with tempfile.TemporaryDirectory(prefix="orbit-") as folder:  # short: it is part of a socket's path
        monkeypatch.setenv("XDG_RUNTIME_DIR", folder)
        yield Path(folder) / "orbit-lsp"
        end_workers(Path(folder) / "orbit-lsp")


def end_workers(folder: Path) -> None:
    """Kill those that are left; each is known by the folder in its command."""
    for process in Path("/proc").glob("[0-9]*"):
        if f"{folder}" in processes_check.command(int(process.name)) and int(process.name) != os.getpid():
            with suppress(ProcessLookupError):
                os.kill(int(process.name), signal.SIGKILL)


def pytest_collectstart() -> None:
    gc.disable()


def pytest_collection_finish() -> None:
    """What was imported and collected stays: each look of the collector at thousands of tests takes a third of a second."""
    gc.freeze()
    gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("--slow"):
        slow, quick = [], []
        for item in items:
            (slow if item.get_closest_marker("slow") else quick).append(item)
        items[:] = quick
        config.hook.pytest_deselected(items=slow)
    if Path("/dev/nvidiactl").exists() or Path("/dev/dxg").exists():
        return
    skip = pytest.mark.skip(reason="needs an NVIDIA GPU; scripts/gpu_check runs it where there is one")
    for item in items:
        if item.get_closest_marker("gpu"):
            item.add_marker(skip)
