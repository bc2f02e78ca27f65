"""Extensions of candidates built before their turn, by torch's own `load_inline` and a real g++."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from orbit_lsp.runners import extension_builds
from orbit_remote.common import harness_files
from orbit_remote.common import messages as c
from orbit_remote.judge import locks
from tests.processes_check import ended, is_alive

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="the judge's locks are Linux's"),
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="no torch here"),
]
EXTENSION = '''\
from torch.utils.cpp_extension import load_inline

SOURCE = """
#include <Python.h>
static PyObject* twice(PyObject*, PyObject* x) { return PyNumber_Add(x, x); }
static PyMethodDef methods[] = {{"twice", twice, METH_O, nullptr}, {}};
static PyModuleDef definition = {PyModuleDef_HEAD_INIT, "twice_ext", nullptr, -1, methods};
PyMODINIT_FUNC PyInit_twice_ext() { return PyModule_Create(&definition); }
"""
twice = load_inline("twice_ext", SOURCE, no_implicit_headers=True).twice
'''
GPU = c.Device("NVIDIA H100 80GB HBM3", capability="9.0")


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    tmp_path.chmod(0o755)  # the other user's way to its folder
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(extension_builds, "_ROOTS", tmp_path / "roots")
    return tmp_path


def place_of(text: str) -> Path:
    return extension_builds.folder(text, sys.executable)


async def build(folder: Path, text: str) -> c.Finished | None:
    (folder / "k.py").write_text(text)
    return await extension_builds.build(text, str(folder / "k.py"), sys.executable, (GPU,))


def built(folder: Path, text: str) -> tuple[c.Finished | None, Path]:
    """What `build` reports of a text, and where it built."""
    return asyncio.run(build(folder, text)), place_of(text)


def test_a_run_takes_what_was_built(cache: Path) -> None:
    finished, place = built(cache, EXTENSION)
    assert finished is None
    (library,) = place.rglob("twice_ext.so")
    before = library.stat().st_mtime_ns
    program = EXTENSION + "print(twice(21))"
    environment = os.environ | {harness_files.EXTENSIONS: str(place)}
    command = [sys.executable, "-c", program]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert (ended.stdout, library.stat().st_mtime_ns) == ("42\n", before)
    assert built(cache, EXTENSION) == (None, place)


def test_a_candidate_that_does_not_compile_is_told_without_a_gpu(cache: Path) -> None:
    finished, place = built(cache, EXTENSION.replace("PyNumber_Add(x, x)", "PyNumber_Add(x, wrong)"))
    assert finished
    assert finished.failure
    assert finished.outcome == "compile error"
    assert re.search(r"main\.cpp:\d+:\d+: error: .wrong. was not declared", finished.failure.message)
    assert not extension_builds.is_built(place)


def test_its_process_is_locked_and_believed_in_nothing_else(cache: Path) -> None:
    forged = c.encode(c.ok("ahead"))
    text = f"""\
# load_inline
import os, socket
for name, act in (
    ("a file elsewhere", lambda: open({str(cache / "elsewhere")!r}, "w")),
    ("a socket", socket.socket),
    ("a GPU", lambda: open("/dev/nvidiactl")),
):
    try:
        act()
    except OSError:
        continue
    open(os.path.join(os.environ["HOME"], name), "w")
for descriptor in range(1, 20):
    try:
        os.write(descriptor, {forged.encode()!r})
    except OSError:
        pass
"""
    finished, place = built(cache, text)
    assert finished is None
    done = sorted(path.name for path in place.iterdir() if " " in path.name)
    probe = locks.Locks()
    pid = os.fork()
    if pid == 0:  # what this kernel has
        locks.confine(probe, [], [])
        os._exit(locks.FILES in probe.held)
    confined = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 1
    assert done == ([] if confined or os.getuid() == 0 else ["a file elsewhere"])


DAEMON = """\
# load_inline
import os, subprocess
daemon = subprocess.Popen(["sleep", "600"], start_new_session=True)
open(os.environ["HOME"] + "/begun", "w").write(str(daemon.pid))
"""


def test_a_process_that_it_leaves_behind_is_ended(cache: Path) -> None:
    finished, place = built(cache, DAEMON)
    assert finished is None
    assert not is_alive(int((place / "begun").read_text()))


async def test_nothing_is_left_of_a_build_that_is_cancelled(cache: Path) -> None:
    text = f"{DAEMON}daemon.wait()\n"
    task = asyncio.create_task(build(cache, text))
    place = place_of(text)
    async with asyncio.timeout(120):
        while not (place / "begun").exists() or not (place / "begun").read_text():
            assert not task.done(), task.result()
            await asyncio.sleep(0.02)
    pid = int((place / "begun").read_text())
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not place.exists()
    await ended(pid)
