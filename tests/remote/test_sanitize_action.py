"""A memory check from a job to its end: real nvcc, and a compute-sanitizer that writes what the real one wrote on an H100."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from orbit_remote.child import child_main
from orbit_remote.child.spec import spec_sanitize
from orbit_remote.common import messages as c
from orbit_remote.common.requests import ContractStart, Driver, DriverStart, Job, KernelDefinition
from orbit_remote.process import program
from orbit_remote.sanitizer import sanitizer_tool
from orbit_remote.spec import launch_spec
from orbit_remote.worker import probe
from orbit_remote.worker.actions import builds, sanitize_action
from orbit_remote.worker.context import Shared, WorkerClient, WorkerContext
from tests.processes_check import is_alive
from tests.recordings import planted

pytestmark = [
    pytest.mark.skipif(
        sys.platform != "linux", reason="compute-sanitizer is a script here, as Linux starts them"
    ),
    pytest.mark.skipif(shutil.which("nvcc") is None, reason="no nvcc"),
]

REPLAY = planted.PROGRAMS.parent / "replay_sanitizer.py"
H100 = c.Device("NVIDIA H100 80GB HBM3", capability="9.0")


class Desk:
    """A worker's surroundings, with the GPU of another machine."""

    def __init__(self, folder: Path, cache: Path) -> None:
        self.folder = folder
        self.events: list[c.Event] = []
        shared = Shared(cache, spare_idle_s=0)
        self.context = WorkerContext(shared, WorkerClient(self.events.append, os.environ), builds.build_ahead)

    def job(self, name: str, text: str | None = None, **fields: object) -> Job:
        source = text or (planted.PROGRAMS / name).read_text()
        path = self.save(name, source)
        shutil.copy(planted.PROGRAMS / "inlined.cuh", self.folder)
        values = {
            "run": "r", "action": "sanitize", "language": "cuda", "path": str(path), "text": source,
            "directory": str(self.folder), "tools": planted.TOOLS,
        } | fields  # fmt: skip
        return Job(**values)  # pyright: ignore[reportArgumentType]

    def save(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.write_text(text)
        return path

    async def check(self, name: str, text: str | None = None, **fields: object) -> c.Finished:
        return await sanitize_action.check_memory(self.job(name, text, **fields), self.context)


@pytest.fixture
def desk(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, kept: Path, monkeypatch: pytest.MonkeyPatch
) -> Desk:
    """Its sources lie where those of the test before lay, so that what was built then need not be built again."""
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "compute-sanitizer").symlink_to(REPLAY)
    # not by the path, which belongs to what a build is known by
    monkeypatch.setattr(sanitizer_tool, "_candidates", lambda _compiler: iter([tools / "compute-sanitizer"]))
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(probe, "all_devices", lambda: (H100,))
    (tmp_path / "cache").mkdir()
    for name in ("builds", "cupti"):
        (tmp_path / "cache" / name).symlink_to(kept / name)
    folder = tmp_path_factory.getbasetemp() / "desk"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    return Desk(folder, tmp_path / "cache")


class Limit:
    """The limit of runs, which no clock but only a test reaches."""

    def __init__(self) -> None:
        self._runs: asyncio.Queue[asyncio.Timeout] = asyncio.Queue()

    def __call__(self, _seconds: float) -> asyncio.Timeout:
        timeout = asyncio.timeout(None)
        self._runs.put_nowait(timeout)
        return timeout

    async def reach(self) -> None:
        """In the first run under a tool. Before it the program has run as it is, with a limit of the worker's."""
        (await self._runs.get()).reschedule(asyncio.get_running_loop().time())


@pytest.fixture
def limit(monkeypatch: pytest.MonkeyPatch) -> Limit:
    limit = Limit()
    monkeypatch.setattr(program, "_limit", limit)
    return limit


async def test_a_fault_is_a_problem_on_the_authors_file(desk: Desk) -> None:
    finished = await desk.check("out_of_bounds_write.cu")
    (problem,) = finished.problems
    assert problem.place == c.Place(str(desk.folder / "out_of_bounds_write.cu"), 4)
    assert (problem.severity, problem.tool) == ("error", "memcheck")
    assert finished.outcome == "runtime error"
    assert finished.failure
    assert finished.failure.message == "1 fault was found (memcheck 1)"
    assert finished.toolchain["compute-sanitizer"] == "2025.3.1.0"
    stages = [event.why for event in desk.events if isinstance(event, c.Stage) and event.state == "running"]
    assert stages == [
        "as it is",
        "memcheck, 1 of 4",
        "racecheck, 2 of 4",
        "initcheck, 3 of 4",
        "synccheck, 4 of 4",
    ]


@pytest.mark.slow
async def test_how_each_tool_is_called(desk: Desk) -> None:
    await desk.check("race_right.cu")
    called = [line.split() for line in (desk.folder / "called").read_text().splitlines()]
    assert [line[line.index("--tool") + 1] for line in called] == list(planted.TOOLS)
    memcheck, racecheck, *_ = called
    # allocations lie side by side, and the first fault would end CUDA for the kernels after it
    assert "--padding 65536 --destroy-on-device-error kernel" in " ".join(memcheck)
    assert "--padding" not in racecheck


async def test_the_correct_twin_is_clean(desk: Desk) -> None:
    finished = await desk.check("race_right.cu")
    assert (finished.outcome, finished.problems, finished.failure) == ("ok", (), None)


async def test_an_edit_that_is_not_saved_is_what_is_checked(desk: Desk) -> None:
    job = desk.job("out_of_bounds_write.cu")
    desk.save(job.path, "something else")
    problems = (await sanitize_action.check_memory(job, desk.context)).problems
    wanted = planted.lines("out_of_bounds_write.cu", "memcheck")
    assert {problem.place.line for problem in problems if problem.place} == wanted


async def test_a_fault_in_a_header_of_the_authors_is_shown_there(desk: Desk) -> None:
    problems = (await desk.check("inlined.cu", tools=("memcheck",))).problems
    assert {Path(problem.place.file).name for problem in problems if problem.place} <= {
        "inlined.cuh",
        "inlined.cu",
    }
    assert {note.message for problem in problems for note in problem.notes} >= {"called from through_call"}


@pytest.mark.slow
async def test_a_program_without_cuda_has_nothing_to_check(desk: Desk) -> None:
    finished = await desk.check("no_kernel.cu")
    assert finished.outcome == "runtime error"
    assert [problem.message for problem in finished.problems] == [
        "main makes no call of CUDA, so there was nothing to check"
    ]


@pytest.mark.slow
async def test_a_program_that_fails_by_itself_is_not_called_clean(desk: Desk) -> None:
    text = (
        (planted.PROGRAMS / "race_right.cu")
        .read_text()
        .replace("cudaFree(out);", "cudaFree(out);\n  return 3;")
    )
    finished = await desk.check("race_right.cu", text)
    assert finished.failure
    assert finished.failure.message == "main ended with exit code 3; no memory fault was found until then"
    assert finished.exit_code == 3


async def test_a_file_that_does_not_compile_is_not_checked(desk: Desk) -> None:
    finished = await desk.check("bad.cu", "__global__ void k() { int x = ; }\nint main() {}\n")
    assert finished.outcome == "compile error"
    assert [event for event in desk.events if isinstance(event, c.Built)]


async def test_a_tool_that_hangs_is_ended_at_the_limit(desk: Desk, limit: Limit, tmp_path: Path) -> None:
    begun = hang(tmp_path)
    task = asyncio.ensure_future(desk.check("race_right.cu", tools=("memcheck",), run_timeout_s=7.0))
    await asyncio.to_thread(begun.read_text)
    await limit.reach()
    finished = await task
    assert finished.outcome == "timed out"
    assert finished.failure
    assert finished.failure.message == "memcheck was ended at the limit of 7 s"


async def test_what_a_tool_found_before_its_limit_is_told(desk: Desk, limit: Limit, tmp_path: Path) -> None:
    log = (planted.RECORDED / "out_of_bounds_write.memcheck.txt").read_text()
    part = tmp_path / "part.txt"
    part.write_text(log[: len(log) // 3].replace("/src/sanitizer/", f"{desk.folder}/"))
    begun = hang(tmp_path, f'cp {part} "${{10}}"; ')
    task = asyncio.ensure_future(desk.check("out_of_bounds_write.cu", tools=("memcheck",), run_timeout_s=7.0))
    await asyncio.to_thread(begun.read_text)
    await limit.reach()
    finished = await task
    assert {problem.place.line for problem in finished.problems if problem.place} == {4}
    assert finished.outcome == "runtime error"
    assert "memcheck was ended at its limit of 7 s: it may have found more" in finished.remarks


async def test_a_fault_in_a_library_is_a_remark(desk: Desk, tmp_path: Path) -> None:
    """The words are compute-sanitizer's; the kernel's name is changed to one that the file has not."""
    log = (planted.RECORDED / "no_lineinfo.memcheck.txt").read_text()
    (tmp_path / "part.txt").write_text(log.replace("fill(float *, int, float)", "gemm(float *)"))
    tool = tmp_path / "tools" / "compute-sanitizer"
    tool.unlink()
    tool.write_text(
        f'#!/bin/sh\n[ $1 = --version ] && echo Version 1.2 && exit\ncp {tmp_path / "part.txt"} "${{10}}"\n'
    )
    tool.chmod(0o755)
    finished = await desk.check("race_right.cu", tools=("memcheck",))
    assert (finished.outcome, finished.problems) == ("ok", ())
    assert finished.remarks[0].startswith("memcheck, in gemm, which is not yours: Invalid __global__ write")


async def test_a_check_that_is_cancelled_leaves_nothing(desk: Desk, tmp_path: Path) -> None:
    begun = hang(tmp_path)
    task = asyncio.ensure_future(desk.check("race_right.cu"))
    pid = int(await asyncio.to_thread(begun.read_text))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not is_alive(pid)
    assert not list((tmp_path / "cache" / "scratch").glob("*"))


def hang(folder: Path, before: str = "") -> Path:
    """A tool that never ends. Reading the pipe waits until it has begun, and done what comes `before`, and names its
    process.
    """
    begun, tool = folder / "begun", folder / "tools" / "compute-sanitizer"
    os.mkfifo(begun)
    tool.unlink()
    tool.write_text(
        f"#!/bin/sh\n[ $1 = --version ] && echo Version 1.2 && exit\n{before}echo $$ > {begun}\nexec sleep 600\n"
    )
    tool.chmod(0o755)
    return begun


REFUSALS = {
    "Error: No attachable process found. compute-sanitizer timed-out.": "compute-sanitizer could not attach to the program",
    "Device not supported. Please refer to the manual": "compute-sanitizer does not support this GPU here",
    "Unable to find injection library libsanitizer-collection.so": "its injection library is missing",
    "Error: Failed to wait for target": "ended before its memcheck had checked anything: Failed to wait for target",
}


@pytest.mark.parametrize("message", REFUSALS)
async def test_a_refusal_is_a_sentence(desk: Desk, tmp_path: Path, message: str) -> None:
    """The words of compute-sanitizer itself; what it takes to have it say them cannot be had here."""
    tool = tmp_path / "tools" / "compute-sanitizer"
    tool.unlink()
    tool.write_text(
        f'#!/bin/sh\n"exec" "{sys.executable}" "$0" "$@"\nimport sys\nif \'--version\' in sys.argv: raise SystemExit(print(\'Version 2025.3.1.0\'))\n'
        f"log = sys.argv[sys.argv.index('--log-file') + 1]\n"
        f"open(log, 'w').write('========= COMPUTE-SANITIZER\\n========= {message}\\n')\nraise SystemExit(1)\n"
    )
    tool.chmod(0o755)
    finished = await desk.check("race_right.cu")
    assert finished.outcome == "infrastructure"
    assert finished.failure
    assert REFUSALS[message] in finished.failure.message


async def test_without_the_tool_the_author_is_told_how_to_get_it(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sanitizer_tool, "_candidates", lambda _compiler: iter(()))
    finished = await desk.check("race_right.cu")
    assert finished.failure
    assert (finished.outcome, finished.failure.message) == (
        "infrastructure",
        "compute-sanitizer was not found",
    )


def test_the_tool_of_the_path_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "compute-sanitizer").symlink_to(REPLAY)
    folders = str(tmp_path), str(Path(sys.executable).parent), os.environ["PATH"]
    monkeypatch.setenv("PATH", os.pathsep.join(folders))
    assert sanitizer_tool.find() == sanitizer_tool.Sanitizer(
        str(tmp_path / "compute-sanitizer"), "2025.3.1.0"
    )


async def test_without_a_gpu_nothing_is_built(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "all_devices", tuple)
    finished = await desk.check("race.cu")
    assert finished.failure
    assert finished.failure.message == "there is no NVIDIA GPU in this machine to run it on"
    assert not desk.events


async def test_a_contract_is_not_checked_by_itself(desk: Desk) -> None:
    finished = await desk.check("k.py", "class ModelNew: ...", language="triton", start=ContractStart())
    assert finished.failure
    assert "check their kernels" in finished.failure.message


def test_of_a_sweep_the_least_and_every_case_are_checked() -> None:
    text = (
        "// orbit: n = sweep(1 << 20, 1 << 10, 1 << 24); x = zeros(n)\n"
        "// orbit: case tail: n = 1003\n"
        "// orbit: launch k<<<1, 32>>>(x, n)\n"
        "__global__ void k(float* x, int n) {}\n"
    )
    where = KernelDefinition("k", "k", 3, 3, 3, 17)
    checked = launch_spec.check(text, launch_spec.target_of(where, "cuda"))
    every, _ = launch_spec.points(checked.spec)
    chosen = spec_sanitize.choose(checked, every)
    values = [
        launch_spec.compute(checked.spec, checked.signature, point, launch_spec.World("cuda"))[0]["n"]
        for point in chosen
    ]
    assert [getattr(value, "value", None) for value in values] == [1 << 10, 1003]


async def test_the_job_of_a_child_asks_for_no_recorder(
    desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The child's own job, as it is handed over under the tool; it needs no torch, which takes seconds to import."""
    (tmp_path / "torch.py").write_text("raise ImportError\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    job = desk.job("k.py", "def main():\n    print('ran')\n", language="triton", tools=("memcheck",))
    target = sanitize_action._child(job, desk.context, tmp_path)
    process = await asyncio.create_subprocess_exec(*target.command, stdout=asyncio.subprocess.PIPE)
    out, _ = await process.communicate()
    assert out.decode().strip() == "ran"
    assert target.events
    finished = child_main.outcome(target.events.parent)
    assert finished
    assert replace(finished, toolchain={}, run_s=None, files={}, remarks=()) == c.Finished(
        "r", "ok", exit_code=0
    )


@pytest.mark.parametrize(
    ("launched", "missing"), [({"_Z5scalePf"}, False), ({"_Z5shiftPf"}, True), (set(), True)]
)
def test_a_program_of_the_project_that_does_not_launch_the_kernel(launched: set[str], missing: bool) -> None:
    driver = Driver("program", "bench.cu", "bench", tool="make", output="bin/bench")
    start = DriverStart(driver)
    job = Job("r", "sanitize", "cuda", "/w/scale.cu", "", kernel="scale", start=start)
    problem = sanitize_action._missing(job, frozenset(launched), ())
    assert (problem and problem.message) == (
        "bench did not launch scale, so nothing in it was checked" if missing else None
    )
