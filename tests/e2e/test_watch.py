"""The drop folder. The GPU side is recorded (recorded_worker.py): these machines have none."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from orbit_lsp.agents import drop_request
from orbit_lsp.agents.drop_folder import TAKEN, DropFolder
from orbit_lsp.profile import bottleneck
from orbit_lsp.queue import pool
from orbit_lsp.queue.job_queue import JobQueue, engines
from orbit_lsp.queue.job_store import JobStore, Result
from orbit_lsp.queue.request import RequestRefusedError
from orbit_lsp.queue.slot_engine import EngineOptions
from orbit_remote.common import messages as c
from orbit_remote.common.measurements import Metric, Telemetry
from tests.e2e.forks import LIMIT_S
from tests.e2e.test_history import SAXPY
from tests.e2e.test_spec_runs import orbit

HEAD = (
    "// {title} REQUEST\n// Hardware: NVIDIA {gpu}\n// Backend: CUDA\n// Timestamp: 17\n// Type: {type}\n\n"
)
EXECUTE = HEAD.format(title="EXECUTION", gpu="H100", type="execute")
COMPILE = HEAD.format(title="COMPILATION", gpu="T4", type="compile_only")


@asynccontextmanager
async def watcher(
    folder: Path, python: str, clock: Callable[[], float] = time.monotonic
) -> AsyncGenerator[DropFolder]:
    options = EngineOptions({"python": python})
    queue = JobQueue(JobStore(folder / "jobs.sqlite"), pool.parse("local:0"), engines(options), "watch")
    await queue.start()
    watched = DropFolder(queue, folder / "in", folder / "out", lambda _: None, clock)
    try:
        async with asyncio.timeout(LIMIT_S):
            yield watched
    finally:
        await watched.close()
        await queue.close()


def results(folder: Path) -> dict[str, dict[str, Any]]:
    return {path.name: json.loads(path.read_text()) for path in sorted((folder / "out").iterdir())}


def test_the_command_once(tmp_path: Path, recorded_python: str) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "kernel_17.cu").write_text(EXECUTE + SAXPY)
    (tmp_path / "in" / "kernel_18.cu").write_text(
        EXECUTE.replace("H100", "T4") + "__global__ void k() { BUG; }\n"
    )
    (tmp_path / "in" / "kernel_19.cu").write_text("// EXECUTION REQUEST\n// Type: dance\n")
    (tmp_path / "in" / ".hidden.cu").write_text(SAXPY)
    (tmp_path / "in" / "notes.txt").write_text("no kernel")
    code, _, message = orbit(
        tmp_path, recorded_python, "watch", "in", "--results", "out", "--once", "--pool", "local:0"
    )
    assert code in (1, 64), message  # of the first that ended badly
    assert sorted(path.name for path in (tmp_path / "in").iterdir()) == [".hidden.cu", TAKEN, "notes.txt"]
    result = results(tmp_path)
    assert list(result) == ["kernel_17_result.json", "kernel_18_result.json", "kernel_19_result.json"]
    ran, failed, refused = result.values()
    n = 1 << 26
    assert {name: ran[name] for name in ("success", "error", "warnings", "hardware", "timestamp", "total_flops")} == {
        "success": True, "error": None, "warnings": [], "hardware": "NVIDIA H100 80GB HBM3", "timestamp": "17",
        "total_flops": 2.0 * n,
    }  # fmt: skip
    assert ran["execution_time"] == pytest.approx(0.288032)
    assert ran["throughput"] == pytest.approx(12 * n / 288_032)
    assert (ran["gpu_utilization"], ran["bound_type"], ran["optimizations"]) == (None, None, None)
    assert ran["orbit"]["outcome"] == "ok"
    assert (failed["success"], failed["execution_time"]) == (False, None)
    assert failed["error"] == "does not compile: 1 error"
    assert failed["warnings"][0].startswith('kernel_18.cu:7:23: error: identifier "BUG" is undefined')
    assert refused["error"] == "Type is 'dance'; use one of execute, compile_only, profile"


async def test_two_watchers_and_a_writer_that_is_slow(tmp_path: Path, recorded_python: str) -> None:
    (tmp_path / "in").mkdir()
    for number in range(6):
        (tmp_path / "in" / f"kernel_{number}.cu").write_text(SAXPY)
    async with watcher(tmp_path, recorded_python) as drop_folder, watcher(tmp_path, recorded_python) as two:
        slow = tmp_path / "in" / "slow.cu"
        slow.write_text(SAXPY[:40])
        assert await drop_folder.look()
        slow.write_text(SAXPY)  # written between two looks
        await asyncio.gather(drop_folder.look(), two.look())
        await asyncio.gather(drop_folder.look(), two.look())
        await asyncio.gather(drop_folder.once(0), two.once(0))
        assert len(drop_folder.outcomes) + len(two.outcomes) == 7
        assert {*drop_folder.outcomes, *two.outcomes} == {"ok"}
    assert [result["orbit"]["outcome"] for result in results(tmp_path).values()] == ["ok"] * 7


async def test_a_file_that_grows_in_a_busy_folder_is_taken_once(tmp_path: Path, recorded_python: str) -> None:
    """A change of any file is a reason to look, so two looks may be no moment apart."""
    (tmp_path / "in").mkdir()
    now = [0.0]
    slow = tmp_path / "in" / "slow.cu"

    async def changes() -> AsyncGenerator[None]:
        for number in range(0, len(SAXPY), 20):
            slow.write_text(SAXPY[: number + 20])
            for _ in range(3):
                now[0] += 0.3
                yield
                assert slow.exists(), "it was taken before it was whole"
        for _ in range(2):
            now[0] += 1
            yield

    async with watcher(tmp_path, recorded_python, clock=lambda: now[0]) as drop_folder:
        await drop_folder.follow(changes(), 3600)
        await drop_folder.once(0)
        assert drop_folder.outcomes == ["ok"]
    assert not slow.exists()


async def test_a_mistake_of_the_client_and_a_folder_where_a_result_goes(
    tmp_path: Path, recorded_python: str
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "out" / "k_result.json").mkdir(parents=True)
    (tmp_path / "in" / "k.cu").write_text(EXECUTE.replace("execute", "dance") + SAXPY)
    async with watcher(tmp_path, recorded_python) as drop_folder:
        await drop_folder.once(0)
        assert drop_folder.outcomes == ["usage"]
    (tmp_path / "out" / "k_result.json").rmdir()
    ((name, result),) = results(tmp_path).items()
    assert (name, result["error"]) == (
        "k.cu_result.json",
        "Type is 'dance'; use one of execute, compile_only, profile",
    )


async def test_two_commands_with_relative_folders_that_start_together(
    tmp_path: Path, recorded_python: str
) -> None:
    (tmp_path / "in").mkdir()
    for number in range(6):
        (tmp_path / "in" / f"kernel_{number}.cu").write_text(SAXPY)
    words = ("watch", "in", "--results", "out", "--once", "--pool", "local:0")
    ended = await asyncio.gather(
        *(asyncio.to_thread(orbit, tmp_path, recorded_python, *words) for _ in range(2))
    )
    assert [code for code, *_ in ended] == [0, 0], ended
    assert [result["orbit"]["outcome"] for result in results(tmp_path).values()] == ["ok"] * 6


def whose(folder: Path) -> dict[str, str]:
    return {name.removesuffix("_result.json"): result["file"] for name, result in results(folder).items()}


async def test_files_whose_names_differ_in_the_suffix_alone_have_a_result_each(
    tmp_path: Path, recorded_python: str
) -> None:
    (tmp_path / "in").mkdir()
    every = {"a": "a.cu", "a.cuh": "a.cuh", "a.py": "a.py"}
    for name in every.values():
        (tmp_path / "in" / name).write_text("// Type: dance\n# Type: dance\n")
    async with watcher(tmp_path, recorded_python) as folder, watcher(tmp_path, recorded_python) as two:
        await asyncio.gather(folder.once(0), two.once(0))
        assert whose(tmp_path) == every
        (tmp_path / "in" / "a.cu").write_text(EXECUTE + SAXPY)  # its own result is replaced
        await folder.once(0)
        assert whose(tmp_path) == every
        assert results(tmp_path)["a_result.json"]["success"]


@pytest.mark.parametrize(
    ("before", "name", "expected"),
    [
        ({}, "a.py", "a"),
        ({"a": '{"file": "a.cu", "x": 1}'}, "a.cu", "a"),
        ({"a": '{"file": "a.py"}'}, "a.cu", "a.cu"),
        ({"a": '{"success": true}'}, "a.cu", "a"),  # nothing says whose it is
        ({"a": '{"file": "a.py"}', "a.cu": '{"file": "a.cu.cu"}'}, "a.cu", "a.cu-2"),
        ({"k" * 240: json.dumps({"file": "k" * 251 + ".py"})}, "k" * 252 + ".cu", "k" * 238 + "-2"),
    ],
)
async def test_no_result_replaces_that_of_another_file(
    tmp_path: Path, recorded_python: str, before: dict[str, str], name: str, expected: str
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "out").mkdir()
    for stem, text in before.items():
        (tmp_path / "out" / f"{stem}_result.json").write_text(text)
    (tmp_path / "in" / name).write_text("// Type: dance\n# Type: dance\n")
    async with watcher(tmp_path, recorded_python) as folder:
        await folder.once(0)
    known = results(tmp_path)
    assert known[f"{expected}_result.json"]["message"].startswith(("Type is 'dance'", f"{name!r:.60}"))
    for stem, text in before.items():
        assert stem == expected or known[f"{stem}_result.json"] == json.loads(text)


async def test_a_file_that_is_there_too_and_has_the_short_name_before_gets_it(
    tmp_path: Path, recorded_python: str
) -> None:
    taken = tmp_path / "in" / TAKEN / "1-0123456789ab"
    taken.mkdir(parents=True)
    for name in ("b.py", "b.cuh", "c.py"):
        (taken / name).write_text("x")
    (tmp_path / "in" / "c.cu").write_text("// Type: dance\n")
    async with watcher(tmp_path, recorded_python) as folder:
        folder.clean(keep_s=3600)
        await folder.once(0)
    assert whose(tmp_path) == {"b": "b.cuh", "b.py": "b.py", "c": "c.cu", "c.py": "c.py"}


UNCHECKED = """
__global__ void half(float* y, const float* x, int n) {
  y[blockIdx.x * blockDim.x + threadIdx.x] = x[0] * 0.3 + 1;
}
int main() { half<<<(n + 255) / 256, 256>>>(y, x, n); }
"""


def test_a_hundred_static_checks_are_enough() -> None:
    text = "".join(f"__global__ void k{at}(float* x) {{ x[0] = x[1] * 0.3; }}\n" for at in range(103))
    shown = drop_request.static_checks("k.cu", text)
    assert (len(shown), shown[-1]) == (101, "3 more static checks warn")
    assert drop_request.static_checks("k.py", text) == []


async def test_static_checks_are_among_the_warnings(tmp_path: Path, recorded_python: str) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "compile_half.cu").write_text(COMPILE + UNCHECKED)
    async with watcher(tmp_path, recorded_python) as watched:
        await watched.once()
    [result] = results(tmp_path).values()
    bounds, types, launch = result["warnings"][1:]  # the first is about the hardware
    assert bounds.startswith(
        "compile_half.cu:9: warning: half writes y[…] at an index that it compares with nothing"
    )
    assert types.startswith(
        "compile_half.cu:9: warning: 0.3 is a double, so half computes with x[…] in double"
    )
    assert launch.startswith(
        "compile_half.cu:11: warning: nothing behind the launch of half in main looks at"
    )
    assert launch.endswith(" [static check]")


async def test_what_a_killed_watcher_had_taken_is_answered(tmp_path: Path, recorded_python: str) -> None:
    taken = tmp_path / "in" / TAKEN / "1-0123456789ab"  # nobody holds the lock of this owner
    taken.mkdir(parents=True)
    (taken / "kernel_3.cu").write_text(SAXPY)
    async with watcher(tmp_path, recorded_python) as folder:
        old = tmp_path / "out" / "old_result.json"
        old.write_text("{}")
        folder.clean(keep_s=3600)
        assert results(tmp_path)["kernel_3_result.json"]["error"].startswith(
            "orbit-lsp was killed or crashed while this job ran"
        )
        assert not taken.exists()
        folder.clean(keep_s=-1)
        assert results(tmp_path) == {}


async def test_the_real_command_until_ctrl_c(tmp_path: Path, recorded_python: str) -> None:
    (tmp_path / "in").mkdir()
    words = ["watch", "in", "--results", "out", "--pool", "local:0", "--python", recorded_python]
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-P",
        "-m",
        "orbit_lsp",
        *words,
        cwd=tmp_path,
        stderr=asyncio.subprocess.PIPE,
        # a shell's background job ignores Ctrl-C, and so would what it starts
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert process.stderr
    async with asyncio.timeout(LIMIT_S):
        assert (await process.stderr.readline()).startswith(b"watching in; results go to out")
        (tmp_path / "in" / "kernel_1.cu").write_text(SAXPY)
        assert (await process.stderr.readline()).startswith(b"kernel_1.cu: job ")
        assert b"288 " in await process.stderr.readline()
        process.send_signal(signal.SIGINT)
        assert await process.wait() == 130
    assert results(tmp_path)["kernel_1_result.json"]["success"]


@pytest.mark.parametrize(
    ("name", "text", "action", "hardware"),
    [
        ("k.cu", EXECUTE + "x", "run", "NVIDIA H100"),
        ("k.cu", COMPILE + "x", "compile", "NVIDIA T4"),
        ("compile_1.cu", "x", "compile", ""),
        ("k.cu", "x", "run", ""),
        ("compile_1.cu", "// Type: profile\nx", "profile", ""),
        ("k.cu", "// COMPILATION REQUEST\nx", "compile", ""),
        ("k.cu", "// Type: a comment of mine, far below\n".rjust(20) + EXECUTE + "x", "run", "NVIDIA H100"),
    ],
)
def test_headers(name: str, text: str, action: str, hardware: str) -> None:
    made, header = drop_request.request(name, text)
    assert (made.action, header.hardware) == (action, hardware)


@pytest.mark.parametrize(
    ("text", "grade"),
    [("x", "author"), ("// Grade: Referee\nx", "referee"), (EXECUTE + "x\n// Grade: x", "author"), ("// Grade:\nx", "author")],
)  # fmt: skip
def test_the_grade_that_a_header_asks_for(text: str, grade: str) -> None:
    made, _ = drop_request.request("k.cu", text)
    assert (made.grade, made.action) == (grade, "run")


def test_the_limit_of_the_command_is_that_of_each_run() -> None:
    made, _ = drop_request.request("k.cu", "x", 90.0)
    assert made.timeout_s == 90


@pytest.mark.parametrize("use", [(1.0, 87.0, 99.0), None])
def test_use_and_bound_are_what_was_measured(use: tuple[float, float, float] | None) -> None:
    metrics = {
        bottleneck.COMPUTE: Metric(bottleneck.COMPUTE, 20.0, "%"),
        bottleneck.MEMORY: Metric(bottleneck.MEMORY, 91.0, "%"),
    }
    profile = c.Profile("k", "k", "counters", metrics=metrics) if use else None
    finished = c.Finished(
        "r", "ok", telemetry=Telemetry(3, utilization=use), profiles=(profile,) if profile else ()
    )
    fields = vars(drop_request)["_fields"](True, "", Result(finished), drop_request.Header({}))
    assert (fields["gpu_utilization"], fields["bound_type"]) == ((87.0, "memory") if use else (None, None))


def test_a_grade_that_there_is_not() -> None:
    with pytest.raises(RequestRefusedError, match="Grade is 'judge'; use one of author, referee"):
        drop_request.request("k.cu", "// Grade: judge\n")


def test_the_indent_of_kraits_own_template_is_no_part_of_the_code() -> None:
    """As its service wrote files: the header and the first line of the code are indented."""
    text = "# COMPILATION REQUEST\n    # Hardware: NVIDIA T4\n    # Type: compile_only\n\n    import torch\nfrom torch import nn\n"
    made, _ = drop_request.request("compile_1.py", text)
    compile(made.text, "compile_1.py", "exec")
