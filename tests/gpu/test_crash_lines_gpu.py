"""A kernel that fails names its line, one that hangs names where its warps stand; planted ones of every kind."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from orbit_remote.common import messages as c
from orbit_remote.common.requests import ProgramStart
from tests.gpu import planted_crashes as planted
from tests.gpu.clicks import Bench

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    bench = Bench(tmp_path_factory.mktemp("crashes"))
    yield bench
    bench.close()


def told(finished: c.Finished) -> str:
    """All that the report says, for a test that fails, and for whoever reads the words."""
    lines = [f"{finished.outcome}: {finished.failure.message if finished.failure else ''}"]
    for problem in finished.problems:
        at = f"{Path(problem.place.file).name}:{problem.place.line}" if problem.place else "no place"
        lines.append(f"  {at}: {problem.message}")
        lines += [f"    {note.message} {note.place and note.place.line}" for note in problem.notes]
    lines += [f"  - {remark}" for remark in finished.remarks]
    text = "\n".join(lines)
    print(text, file=sys.stderr)
    return text


def run(bench: Bench, files: dict[str, str], **fields: object) -> c.Finished:
    folder = bench.folder / f"case-{bench.count}"
    planted.written(files, folder)
    name, text = next(iter(files.items()))
    finished = bench.run(
        text, name, path=str(folder / name), directory=str(folder), start=ProgramStart(), **fields
    )
    since = next((stage.at for stage in bench.stages if "find the line" in stage.why), None)
    if since:
        print(f"[{time.time() - since:.2f} s from the failure to the answer]", file=sys.stderr)
    return finished


def places(finished: c.Finished) -> set[tuple[str, int]]:
    return {
        (Path(problem.place.file).name, problem.place.line)
        for problem in finished.problems
        if problem.place and problem.severity == "error"
    }


@pytest.mark.parametrize("name", planted.CUDA)
def test_a_cuda_kernel_that_fails_names_its_line(bench: Bench, name: str) -> None:
    files = planted.cuda(*planted.CUDA[name])
    finished = run(bench, files)
    assert finished.outcome == "runtime error"
    found = places(finished)
    assert found, told(finished)
    assert found <= planted.lines(files, "!!"), told(finished)
    told(finished)


@pytest.mark.parametrize("name", planted.TRITON)
def test_a_triton_kernel_that_fails_names_its_line(bench: Bench, name: str) -> None:
    files = planted.triton(*planted.TRITON[name])
    finished = run(bench, files, variables=("TRITON_DEBUG=1",) if "assert" in name else ())
    assert finished.outcome == "runtime error"
    found = places(finished)
    assert found, told(finished)
    assert found <= planted.lines(files, "!!"), told(finished)
    told(finished)


@pytest.mark.parametrize("name", planted.HANGS)
def test_a_hang_says_where_the_warps_stand(bench: Bench, name: str) -> None:
    files = planted.cuda(*planted.HANGS[name])
    finished = run(bench, files, run_timeout_s=2.0, flags=("-std=c++17",))
    assert finished.outcome == "timed out"
    stand = {problem.place.line: problem.message for problem in finished.problems if problem.place}
    expected = planted.counts(files)
    assert stand, told(finished)
    assert stand.keys() <= expected.keys(), told(finished)
    told(finished)


@pytest.mark.skipif(not hasattr(signal, "SIGQUIT"), reason="a terminal of Unix sends it")
def test_ctrl_backslash_asks_where_it_is(tmp_path: Path) -> None:
    files = planted.cuda(*planted.HANGS["a barrier in a branch"])
    planted.written(files, tmp_path)
    command = [sys.executable, "-P", "-m", "orbit_lsp", "run", str(tmp_path / "k.cu"), "--timeout", "60"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stderr
    said = ""
    while "running" not in said:
        said += process.stderr.read(1)
    time.sleep(3)  # the kernel says nothing: no event tells that it hangs
    process.send_signal(signal.SIGQUIT)
    out, err = process.communicate(timeout=120)
    print(out, err, file=sys.stderr)
    assert process.returncode == c.EXIT_CODES["timed out"]
    assert "12 of 16 warps waited here for their block" in out + err


SLOW = "__global__ void k(float* x, long n) {\n  float v = x[threadIdx.x];\n  for (long i = 0; i < n; ++i) v = v * 1.0001f + 0.5f;\n  x[threadIdx.x] = v;\n}\n"


def test_a_slow_kernel_says_how_far_it_had_come(bench: Bench) -> None:
    finished = run(bench, planted.cuda(SLOW, "k<<<200000, 256>>>(x, 3000000);"), run_timeout_s=2.0)
    assert finished.outcome == "timed out"
    assert finished.failure
    assert "of 200000 blocks of k had ended" in finished.failure.message, told(finished)
    told(finished)


def test_a_program_without_lines_says_which_flag_gives_them(bench: Bench, tmp_path: Path) -> None:
    files = planted.cuda(*planted.CUDA["a store"])
    finished = run(bench, files, flags=())
    told(finished)
    assert finished.failure


SPEC = """
__global__ void k(float* x, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  x[i + (i > 100 ? 1L << 40 : 0)] = 1.f;
}
"""


def test_a_launch_spec_names_its_line(bench: Bench) -> None:
    head = "// orbit: n = 1024\n// orbit: x = empty(n)\n// orbit: launch k<<<4, 256>>>(x, n)\n"
    finished = bench.run(head + SPEC.lstrip(), "spec.cu")
    told(finished)
    assert finished.outcome == "runtime error"
    assert places(finished) == {("spec.cu", 6)}


def test_the_next_run_is_not_disturbed(bench: Bench) -> None:
    head = "// orbit: n = 1024\n// orbit: x = empty(n)\n// orbit: launch k<<<4, 256>>>(x, n)\n"
    finished = bench.run(head + SPEC.lstrip().replace("i > 100", "i < 0"), "spec.cu")
    assert (finished.outcome, len(finished.launches)) == ("ok", 1), told(finished)
