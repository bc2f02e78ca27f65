"""Check memory on a real GPU: what was planted is named at its line, the correct twins are clean, failures are sentences."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import aclosing
from pathlib import Path

import pytest

from orbit_remote.common import messages as c
from tests.gpu.clicks import Bench
from tests.recordings import planted

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        shutil.which("compute-sanitizer") is None, reason="no compute-sanitizer on this machine"
    ),
]


class Checks(Bench):
    """Its click is *Check memory*."""

    def check(self, name: str, source: str, **fields: object) -> c.Finished:
        return self.run(source, name, **CHECK | fields)

    def of(self, program: str, **fields: object) -> c.Finished:
        return self.check(program, (planted.PROGRAMS / program).read_text(), **fields)


CHECK = {"action": "sanitize", "tools": planted.TOOLS, "run_timeout_s": 60.0}


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Checks]:
    made = Checks(tmp_path_factory.mktemp("check"))
    for header in planted.PROGRAMS.glob("*.cuh"):
        shutil.copy(header, made.folder)
    yield made
    made.close()


def told(finished: c.Finished, severity: str = "error") -> set[tuple[str, int]]:
    """(tool, line) of what was said."""
    return {
        (problem.tool, problem.place.line if problem.place else 0)
        for problem in finished.problems
        if problem.severity == severity
    }


@pytest.mark.parametrize("program", planted.PLANTED)
def test_what_was_planted_is_named_at_its_line(bench: Checks, program: str) -> None:
    finished = bench.of(f"{program}.cu")
    wanted = {(tool, line) for tool in planted.TOOLS for line in planted.lines(f"{program}.cu", tool)}
    results = told(finished)
    assert wanted, program
    assert wanted <= results
    # another tool may see the same fault, at the same line: what lies past the end is unwritten too
    assert {line for _, line in results} == {line for _, line in wanted}
    assert finished.outcome == "runtime error"


@pytest.mark.parametrize("program", planted.PLANTED)
def test_of_its_correct_twin_nothing_is_said(bench: Checks, program: str) -> None:
    finished = bench.of(f"{program}_right.cu")
    assert (finished.outcome, finished.problems) == ("ok", ())


def test_a_race_relates_its_two_lines(bench: Checks) -> None:
    write, read = bench.of("race.cu", tools=("racecheck",)).problems
    assert [note.place and note.place.line for note in write.notes] == [read.place and read.place.line]
    assert [note.place and note.place.line for note in read.notes] == [write.place and write.place.line]


def test_inlined_and_called_code_is_followed_to_its_callers(bench: Checks) -> None:
    finished = bench.of("inlined.cu", tools=("memcheck",))
    lines = (planted.PROGRAMS / "inlined.cu").read_text().splitlines()
    callers = {note.place.line for problem in finished.problems for note in problem.notes if note.place}
    assert {"read_at", "write_at"} <= {
        name for line in callers for name in ("read_at", "write_at") if name in lines[line - 1]
    }


def test_the_library_is_passed_over(bench: Checks) -> None:
    finished = bench.of("cooperative.cu", tools=("synccheck", "racecheck"))
    files = {Path(problem.place.file).name for problem in finished.problems if problem.place}
    assert files <= {"cooperative.cu"}


SPEC = """
    // orbit: n = 1000; x = randn(n); y = empty(n)
    // orbit: launch scale<<<(n + 255) / 256, 256>>>(x, y, n)
    __global__ void scale(const float* x, float* y, int n) {
      int i = blockIdx.x * blockDim.x + threadIdx.x;
      GUARDy[i] = 2 * x[i];
    }
    """


def test_a_launch_spec_is_checked_on_memory_of_its_exact_size(bench: Checks) -> None:
    faulty = bench.check("scale.cu", SPEC.replace("GUARD", ""), tools=("memcheck",))
    assert told(faulty) == {("memcheck", 5)}
    clean = bench.check("scale.cu", SPEC.replace("GUARD", "if (i < n) "))
    assert (clean.outcome, clean.problems) == ("ok", ())


def test_a_launch_spec_that_reads_what_nobody_wrote(bench: Checks) -> None:
    finished = bench.check(
        "adds.cu",
        """
        // orbit: n = 256; x = randn(n); y = empty(n)
        // orbit: launch adds<<<1, 256>>>(x, y)
        __global__ void adds(const float* x, float* y) {
          y[threadIdx.x] += x[threadIdx.x];
        }
        """,
        tools=("initcheck",),
    )
    assert told(finished) == {("initcheck", 4)}


TRITON = """
    import torch, triton
    import triton.language as tl

    # orbit: n = 1000; x = randn(n); y = empty(n)
    # orbit: launch double[(triton.cdiv(n, 256),)](x, y, n, BLOCK=256)
    @triton.jit
    def double(x, y, n, BLOCK: tl.constexpr):
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        value = tl.load(x + atMASK)
        tl.store(y + at, value * 2, mask=at < n)
    """


def test_triton_by_its_launch_spec(bench: Checks) -> None:
    faulty = bench.check("double.py", TRITON.replace("MASK", ""), tools=("memcheck",))
    assert told(faulty) == {("memcheck", 9)}
    clean = bench.check("double.py", TRITON.replace("MASK", ", mask=at < n"), tools=("memcheck", "racecheck"))
    assert (clean.outcome, clean.problems) == ("ok", ())


def test_triton_by_its_program(bench: Checks) -> None:
    faulty = bench.of("triton_bounds.py", tools=("memcheck",))
    assert told(faulty) <= {("memcheck", line) for line in planted.lines("triton_bounds.py", "memcheck")}
    assert told(faulty)
    clean = bench.of("triton_bounds_right.py", tools=("memcheck", "initcheck"))
    assert (clean.outcome, clean.problems) == ("ok", ())


def test_a_leak_and_a_refused_launch_stand_at_their_lines_of_host_code(bench: Checks) -> None:
    leak = bench.of("leak.cu", tools=("memcheck",))
    assert (leak.outcome, told(leak, "information")) == ("ok", {("memcheck", 6)})
    refused = bench.of("api_error.cu", tools=("memcheck",))
    assert ("memcheck", 7) in told(refused)
    assert ("memcheck", 9) in told(refused, "warning")


def test_a_kernel_that_is_never_launched_is_not_called_clean(bench: Checks) -> None:
    finished = bench.of("never_launched.cu", tools=("memcheck",))
    assert finished.outcome == "ok"
    assert [(problem.code, problem.message) for problem in finished.problems] == [
        (c.NOT_LAUNCHED, "main did not launch k, so nothing in it was checked")
    ]
    assert "no call of CUDA" in str(bench.of("no_kernel.cu", tools=("memcheck",)).failure)


def test_a_program_that_never_ends_is_ended_at_the_limit(bench: Checks) -> None:
    finished = bench.of("hangs.cu", tools=("memcheck",), run_timeout_s=4.0)
    assert finished.outcome == "timed out"


def test_a_check_is_cancelled_where_it_runs(bench: Checks) -> None:
    async def cancelled() -> None:
        job = bench.job((planted.PROGRAMS / "hangs.cu").read_text(), "hangs.cu", **CHECK)
        async with aclosing(bench.runner.run(job)) as events:
            async for event in events:
                if isinstance(event, c.Stage) and event.state == "running":
                    break

    bench.loop.run(cancelled())
    assert bench.of("race_right.cu", tools=("memcheck",)).outcome == "ok"  # the GPU is free again
