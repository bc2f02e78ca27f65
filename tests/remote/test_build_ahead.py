"""Extensions of candidates built before their turn, by torch's own `load_inline` and a real g++."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from orbit_lsp.runners import extension_builds
from orbit_remote.common import messages as c
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
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(extension_builds, "_ROOTS", tmp_path / "roots")
    return tmp_path


def place_of(text: str) -> Path:
    return extension_builds.folder(text, {}, sys.executable, (GPU,))


def built(text: str) -> list[str]:
    """The libraries that are there after a build."""
    asyncio.run(extension_builds.build(text, {}, sys.executable, (GPU,), ()))
    return [path.name for path in place_of(text).rglob("*.so")]


def run(text: str, folder: Path, **variables: str) -> str:
    """What a text prints in a process that may load from `folder`."""
    lead = "from orbit_remote.child.harness import built_extensions\nbuilt_extensions.load_from_named()\n"
    environment = os.environ | {"ORBIT_EXTENSIONS": str(folder), "PYTHONPATH": "remote"} | variables
    command = [sys.executable, "-c", lead + text]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout


@pytest.mark.slow
def test_a_run_loads_what_was_built(cache: Path) -> None:
    assert built(EXTENSION) == ["twice_ext.so"]
    before = [(path, path.stat().st_mtime_ns) for path in place_of(EXTENSION).rglob("*.so")]
    tools = {"PATH": "/nowhere"}  # nothing is compiled
    show = "import sys\nprint(twice(21), sys.modules['twice_ext'].__file__)\n"
    said = run(EXTENSION + show, place_of(EXTENSION), TORCH_EXTENSIONS_DIR=str(cache / "own"), **tools)
    assert said == f"42 {before[0][0]}\n"
    assert built(EXTENSION) == ["twice_ext.so"]
    assert [(path, path.stat().st_mtime_ns) for path in place_of(EXTENSION).rglob("*.so")] == before


@pytest.mark.slow
def test_other_flags_and_a_second_extension_of_one_name_are_built_anew(cache: Path) -> None:
    assert built(EXTENSION) == ["twice_ext.so"]
    other = EXTENSION.replace("no_implicit_headers=True", "no_implicit_headers=True, extra_cflags=['-O1']")
    again = (
        EXTENSION + EXTENSION.replace("PyNumber_Add(x, x)", "PyNumber_Multiply(x, x)") + "print(twice(21))\n"
    )
    for text, said in ((other + "print(twice(21))\n", "42\n"), (again, "441\n")):
        assert run(text, place_of(EXTENSION), TORCH_EXTENSIONS_DIR=str(cache / said.strip())) == said


def test_what_does_not_compile_is_left_to_its_run(cache: Path) -> None:
    text = EXTENSION.replace("PyNumber_Add(x, x)", "PyNumber_Add(x, wrong)")
    assert built(text) == []
    assert place_of(text).is_dir()  # it is not tried again


@pytest.mark.slow
def test_what_comes_after_a_build_may_fail(cache: Path) -> None:
    assert built(f"{EXTENSION}raise RuntimeError('no GPU')") == ["twice_ext.so"]


def test_its_process_is_locked_and_only_libraries_are_taken_from_it(cache: Path) -> None:
    text = f"""\
# load_inline
import os, socket
place = os.path.join(os.environ["HOME"], "built", "k")
os.makedirs(place)
for name, act in (
    ("file", lambda: open({str(cache / "elsewhere")!r}, "w")),
    ("socket", socket.socket),
    ("gpu", lambda: open("/dev/nvidiactl")),
    ("device", lambda: os.mknod(place + "/null.so", 0o020666, os.makedev(1, 3))),
):
    try:
        act()
    except OSError:
        continue
    open(f"{{place}}/{{name}}.so", "w")
open(place + "/plain.so", "w")
os.symlink("/etc/passwd", place + "/link.so")
os.mkfifo(place + "/fifo.so")
open(place + "/text.txt", "w")
"""
    assert built(text) == ["plain.so"]
    assert not (cache / "elsewhere").exists()


DAEMON = """\
# load_inline
import os, subprocess
os.mkdir(os.environ["HOME"] + "/built/k")
daemon = subprocess.Popen(["sleep", "600"], env={}, start_new_session=True)
open(os.environ["HOME"] + "/built/k/pid.so", "w").write(str(daemon.pid))
"""


@pytest.mark.slow
def test_a_process_that_it_leaves_behind_is_ended(cache: Path) -> None:
    assert built(DAEMON) == ["pid.so"]
    (kept,) = place_of(DAEMON).rglob("pid.so")
    assert not is_alive(int(kept.read_text()))


@pytest.fixture
def scratch() -> Iterator[Path]:
    """A folder for temporary files that another user may enter, as a locked process is one where root's Python can be."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o711)
        yield Path(name)


def _names(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


def _pid_in(folder: Path) -> int:
    """The process that the build has written down, 0 before."""
    texts = (path.read_text() for path in folder.rglob("pid.so"))
    return next((int(text) for text in texts if text), 0)


async def test_nothing_is_left_of_a_build_that_is_cancelled(
    cache: Path, scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    text = f"{DAEMON}daemon.wait()\n"
    task = asyncio.create_task(extension_builds.build(text, {}, sys.executable, (GPU,), ()))
    async with asyncio.timeout(120):
        while not (pid := _pid_in(scratch)):
            assert not task.done(), task.result()
            await asyncio.sleep(0.02)  # a locked process can tell only by a file in its folder
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await ended(pid)
    assert not place_of(text).exists()
    assert _names(scratch) == []


KEPT = """
import os, sys
from orbit_remote.child.harness import built_extensions
path, modules = sys.path[:], set(sys.modules)
built_extensions.keep_setuptools()
new = set(sys.modules) - modules
print(*sorted(name for name in new if name.partition(".")[0] not in sys.stdlib_module_names), sys.path == path)
os.environ["ORBIT_EXTENSIONS"] = "/nowhere"
built_extensions.install = lambda folder, store: None
built_extensions.load_from_named()
print("setuptools" in sys.modules, sys.path[:len(path)] == path)
import torch.utils.cpp_extension
"""


def test_setuptools_is_imported_ahead_and_seen_by_jobs_with_extensions_alone() -> None:
    ran = subprocess.run(
        [sys.executable, "-P", "-c", KEPT],
        env=os.environ | {"PYTHONPATH": "remote"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stdout.splitlines() == ["True", "True True"]
