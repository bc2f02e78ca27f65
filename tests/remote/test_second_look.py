"""A run that failed in a kernel is made once more, to find the line: with real processes.

Stand-in: the program writes a dump as the CUDA driver would, a recording of an H200, where the driver's variables ask for it.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from orbit_remote.common import messages as c
from orbit_remote.common.requests import Job
from orbit_remote.process import host_stack, program
from orbit_remote.sanitizer import sanitizer_tool
from orbit_remote.worker import own_files
from orbit_remote.worker.actions import python_action
from orbit_remote.worker.context import Shared, WorkerClient, WorkerContext
from orbit_remote.worker.faults import second_look
from tests.processes_check import is_alive
from tests.recordings.crashed import unpacked
from tests.remote.test_gpu_dump import told

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="a run is made again on Linux only")

PROGRAM = """#!{python}
import os, sys, time
path = os.environ.get("CUDA_COREDUMP_FILE", "").replace("%p", str(os.getpid()))
pipe = os.environ.get("CUDA_COREDUMP_PIPE", "").replace("%p", str(os.getpid()))
with open("runs", "a") as file:
    file.write(f"{{os.getpid()}} {{os.environ.get('CUDA_INJECTION64_PATH')}}\\n")
if os.environ.get("CUDA_ENABLE_USER_TRIGGERED_COREDUMP"):
    os.mkfifo(pipe)
    open(pipe, "rb").read(1)
if {wrote} and path:
    with open(path, "wb") as file:
        file.write(open("{dump}", "rb").read()[:{size}])
    os.abort()
{then}
"""


@pytest.fixture
async def context(tmp_path: Path) -> AsyncIterator[WorkerContext]:
    async def nothing(_job: Job, _context: WorkerContext) -> None: ...

    # its Python processes have no torch, and so begin in a moment
    (tmp_path / "torch.py").write_text("raise ImportError\n")
    own = {"CUDA_INJECTION64_PATH": "/the/author's/own.so", "PYTHONPATH": str(tmp_path)}
    environment = program.environment(os.environ) | own
    shared = Shared(tmp_path / "home")
    yield WorkerContext(shared, WorkerClient(lambda _: None, environment), nothing)
    await shared.close()


def own(file: str) -> str | None:
    return file if file.startswith("/src/") else None


class Bench:
    def __init__(self, context: WorkerContext, folder: Path) -> None:
        self.context, self.folder = context, folder

    async def look(
        self,
        dump: str,
        *,
        wrote: bool = True,
        size: int = 1 << 30,
        then: str = "sys.exit(1)",
        timed_out: bool = False,
        took_s: float = 0.2,
    ) -> c.Finished:
        """The report of a program that writes the dump, after it has been looked at again."""
        content = unpacked(dump, self.folder)
        text = PROGRAM.format(python=sys.executable, dump=content, wrote=wrote, size=size, then=then)
        path = self.folder / "program"
        path.write_text(text)
        path.chmod(0o755)
        job = Job("1", "run", "cuda", str(path), "", directory=str(self.folder), run_timeout_s=30.0)
        if timed_out:
            failed = c.failed("1", c.Failure("timed out", "the run was ended at its limit of 30 s"))
        else:
            code = "CUDA_ERROR_ILLEGAL_ADDRESS"
            problem = c.Problem("error", "a kernel failed", "cuda", code=code)
            failed = c.failed("1", c.Failure("runtime error", "a kernel failed"), problems=(problem,))
        assert second_look.wanted(job, failed)
        again = second_look.program_of(job, self.context, [str(path)], {})
        return await second_look.explained(
            job, self.context, failed, second_look.First(took_s, 0.0), again, own
        )

    def runs(self) -> list[list[str]]:
        """Return for each run its process id and the value of the recorder's variable."""
        file = self.folder / "runs"
        return [line.split() for line in file.read_text().splitlines()] if file.exists() else []


@pytest.fixture
def bench(context: WorkerContext, tmp_path: Path) -> Bench:
    return Bench(context, tmp_path)


async def test_a_crash_names_its_line(bench: Bench) -> None:
    report = await bench.look("inlined")
    assert told(report).startswith("CUDA_ERROR_ILLEGAL_ADDRESS: illegal address in a load, in block (0,0,0)")
    assert report.problems[0].place == c.Place("/src/helper.h", 3)
    assert report.remarks == ("the line was found in a second run, which measured nothing",)
    assert [recorder for _, recorder in bench.runs()] == ["None"]
    assert not list(bench.folder.glob("core*"))


async def test_a_program_that_goes_on_after_its_child_failed_is_ended(bench: Bench) -> None:
    then = "\ntime.sleep(600)\n"
    text = "import os as _os\n" + then
    report = await bench.look("inlined", wrote=False, then=(
        "child = os.fork()\n"
        "if child == 0:\n"
        f"    open(os.environ['CUDA_COREDUMP_FILE'].replace('%p', str(os.getpid())), 'wb').write(open('{bench.folder}/inlined.core', 'rb').read())\n"
        "    os.abort()\n"
        "os.waitpid(child, 0)\n"
        f"{text}"
    ))  # fmt: skip
    assert report.problems[0].place == c.Place("/src/helper.h", 3)
    assert not any(is_alive(int(pid)) for pid, _ in bench.runs())


async def test_a_hang_says_where_its_warps_stand(bench: Bench) -> None:
    report = await bench.look("halfcluster", timed_out=True)
    assert "4 of 8 warps waited for their cluster at line 29" in told(report)
    assert [problem.place and problem.place.line for problem in report.problems] == [29, 30]


async def test_a_hang_of_the_host_is_looked_at_twice(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel may begin later in the second run; with none there, nothing is said of kernels."""
    monkeypatch.setattr(second_look, "_MARGIN_S", (0.2, 1.0))
    report = await bench.look("called", timed_out=True)  # a dump without a grid
    assert report.remarks == ("no kernel was running 1 s into a second run: look at host code",)
    assert len(bench.runs()) == 2


@pytest.mark.parametrize(
    ("how", "remark"),
    [
        ({"size": 9000}, "left no usable GPU core dump: the GPU core dump is cut"),
        ({"size": 0}, "left no usable GPU core dump"),
        ({"wrote": False}, "did not fail; compute-sanitizer, which is not here, may find it"),
    ],
    ids=["cut", "empty", "none"],
)
async def test_without_a_dump_the_report_stays(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, how: dict[str, int], remark: str
) -> None:
    missing = c.Failure("infrastructure", "compute-sanitizer is not installed")
    monkeypatch.setattr(sanitizer_tool, "find", lambda _: missing)
    report = await bench.look("inlined", **how)
    assert told(report) == "a kernel failed\nno place error: a kernel failed"
    assert len(report.remarks) == 1
    assert remark in report.remarks[0]


async def test_a_run_of_minutes_is_not_made_again(bench: Bench) -> None:
    report = await bench.look("inlined", took_s=60.0)
    assert bench.runs() == []
    assert report.remarks == (
        "it was not run again to find the line, because that takes 60 s; `orbit-lsp check` finds the line of a memory fault",
    )


async def test_somebody_can_ask_where_it_is_before_the_limit(bench: Bench) -> None:
    job = Job("1", "run", "cuda", "/k.cu", "", run_timeout_s=600.0)
    begun = asyncio.Event()
    running = asyncio.ensure_future(
        program.run(
            [sys.executable, "-c", "import time; print('here', flush=True); time.sleep(600)"],
            cwd=str(bench.folder), env=os.environ, stdin="", timeout_s=600.0,
            started=lambda _pgid, _alive: None, output=lambda _stream, _text: begun.set(), limit=bench.context.limit(job, 600.0),
        )
    )  # fmt: skip
    bench.context.end_early("another run")
    await begun.wait()
    bench.context.end_early("1")
    assert (await running).status is None
    assert [bench.context.ended_early(job), bench.context.ended_early(job)] == [True, False]


async def test_a_python_program_at_its_limit_says_where_it_was(bench: Bench) -> None:
    text = "import time\n\ndef wait():\n    time.sleep(600)\n\ndef main():\n    wait()\n"
    path = bench.folder / "kernels.py"
    path.write_text(text)
    job = Job("1", "run", "triton", str(path), text, run_timeout_s=1.0)
    finished = await python_action.follow(job, bench.context, None)
    assert finished.failure
    assert finished.failure.message.endswith("its limit of 1 s; Python was at kernels.py:4, in wait")
    assert finished.failure.place == c.Place(str(path), 4)


def test_whose_files_they_are(tmp_path: Path) -> None:
    (tmp_path / "k.cu").touch()
    job = Job("1", "run", "cuda", str(tmp_path / "prog"), "", directory=str(tmp_path))
    mine = own_files.of_program(job)
    shown = [mine(name) for name in ("k.cu", "gone.cu", "/usr/include/stdio.h", pytest.__file__)]
    assert shown == [str(tmp_path / "k.cu"), None, None, None]


HOST = """#include <unistd.h>
volatile int n = 1;
void spin() {
  while (n) {}
}
void sleep_on() {
  pause();
}
int main() { BODY(); }
"""


@pytest.mark.parametrize(("body", "does", "line"), [("spin", "computed", 4), ("sleep_on", "waited", 7)])
async def test_host_code_that_hangs_says_what_it_does(
    bench: Bench, body: str, does: str, line: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(second_look, "_MARGIN_S", (0.2, 1.0))
    source, path = bench.folder / "host.cpp", bench.folder / "host"
    source.write_text(HOST.replace("BODY", body))
    await asyncio.to_thread(subprocess.run, ["g++", "-g", "-o", path, source], check=True)
    job = Job("1", "run", "cuda", str(source), "", directory=str(bench.folder), run_timeout_s=30.0)
    failed = c.failed("1", c.Failure("timed out", "the run was ended at its limit of 30 s"))
    again = second_look.program_of(job, bench.context, [str(path)], {})
    first = second_look.First(0.2, 0.0)
    report = await second_look.explained(job, bench.context, failed, first, again, own_files.of_program(job))
    assert report.failure
    message, _, where = report.failure.message.partition(f"No kernel was running: host code {does}")
    assert message == "the run was ended at its limit of 30 s. "
    # a debugger may be absent, or may not look into other processes
    assert (where, report.failure.place) in (
        ("", None),
        (f", in {body} (host.cpp:{line})", c.Place(str(source), line)),
    )
    assert report.remarks == ("no kernel was running some seconds into a second run: look at host code",)


GDB = """[Thread debugging using libthread_db enabled]
0x00007f33a12eca90 in pause () from /lib/x86_64-linux-gnu/libc.so.6
#0  0x00007f33a12eca90 in pause () from /lib/x86_64-linux-gnu/libc.so.6
#1  0x000055d2b8f0f15a in wait_for<float> (n=1, name=0x0 "a (b)") at /usr/include/c++/12/wait.h:3
FRAME
#3  0x000055d2b8f0f18b in main ()
[Inferior 1 (process 41) detached]
"""


@pytest.mark.parametrize(
    ("frame", "shown"),
    [
        ("#2  load (path=...) at /src/load.cpp:12", ("load", c.Place("/src/load.cpp", 12))),
        ("#2  0x000055d2b8f0f17c in Loader::load(int) ()", ("Loader::load", None)),
        ("#2  0x000055d2b8f0f17c in ?? ()", ("main", None)),
    ],
    ids=["line", "function", "stripped"],
)
def test_a_debuggers_frames(frame: str, shown: tuple[str, c.Place | None]) -> None:
    assert host_stack.innermost(GDB.replace("FRAME", frame), own) == shown
