"""Awkward CUDA programs, plain and under the launch recorder: the same end, and every launch written down."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from orbit_remote.recording import injection

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(shutil.which("nvidia-smi") is None, reason="no NVIDIA GPU on this machine"),
    pytest.mark.skipif(shutil.which("nvcc") is None, reason="no nvcc on this machine"),
]

PROGRAMS = Path(__file__).with_name("programs")


@dataclass(frozen=True)
class Ended:
    status: int
    stdout: str
    stderr: str
    seconds: float


@pytest.fixture(scope="session")
def built(tmp_path_factory):
    folder = tmp_path_factory.mktemp("programs")
    done: dict[str, Path] = {}

    def build(name: str, *flags: str) -> Path:
        if name not in done:
            source, target = PROGRAMS / f"{name}.cu", folder / name
            subprocess.run(
                ["nvcc", "-O2", "-arch=native", "-std=c++17", *flags, source, "-o", target], check=True
            )
            done[name] = target
        return done[name]

    return build


@pytest.fixture(scope="session")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


def run(program: Path, *arguments: str, env: dict[str, str] | None = None) -> Ended:
    began = time.perf_counter()
    done = subprocess.run(
        [program, *arguments],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
        env=os.environ | (env or {}),
    )
    return Ended(done.returncode, done.stdout, done.stderr, time.perf_counter() - began)


def run_both(
    program: Path, cache: Path, tmp_path: Path, *arguments: str
) -> tuple[Ended, injection.RecordedRun]:
    """Plain, then recorded; asserts that the program behaves the same."""
    plain = run(program, *arguments)
    recorded = run(program, *arguments, env=injection.environment(tmp_path / "launches", cache=cache))
    assert (recorded.status, recorded.stdout) == (plain.status, plain.stdout)
    if "assert" not in program.name:  # the driver prints assertion messages in any order
        assert recorded.stderr == plain.stderr
    print(f"{program.name}: {plain.seconds:.3f} s plain, {recorded.seconds:.3f} s recorded")
    return recorded, injection.read(tmp_path / "launches")


CASES = {
    "plain": (0, {"work": 3}),
    "exit3": (3, {"work": 3}),
    "no_synchronise": (0, {"work": 3}),
    "known_length": (0, {"slow": 3}),
    "device_reset": (0, {"work": 5}),
    "fork_before": (0, {"work": 5}),
    "fork_after": (0, {"work": 3}),
    "abort_after": (-signal.SIGABRT, {"work": 3}),
    "abort_late": (-signal.SIGABRT, {"work": 100}),
    "exit_now": (4, {"work": 3}),
    "segfault": (-signal.SIGSEGV, {"work": 3}),
    "streams_graph": (0, {"work": 10}),
    "many": (0, {"work": 20_000}),
    "threads": (0, {"work": 200}),
}


def counts(records) -> dict[str, int]:
    names = {"_Z4workPfi": "work", "_Z4slowx": "slow"}
    result: dict[str, int] = {}
    for record in records:
        name = names.get(record.symbol, record.symbol)
        result[name] = result.get(name, 0) + 1
    return result


@pytest.mark.parametrize("name", CASES)
def test_every_launch_is_recorded_and_the_program_ends_as_it_would(name, built, cache, tmp_path):
    status, launches = CASES[name]
    ended, recorded = run_both(built(name), cache, tmp_path)
    assert ended.status == status
    assert counts(recorded.records) == launches
    assert recorded.errors == ()


def test_a_record_holds_the_launch_as_the_program_made_it(built, cache, tmp_path):
    _, recorded = run_both(built("plain"), cache, tmp_path)
    first = recorded.records[0]
    assert first.symbol == "_Z4workPfi"
    assert (first.grid, first.block, first.cluster) == ((256, 1, 1), (256, 1, 1), None)
    assert (first.static_shared, first.dynamic_shared, first.local_per_thread) == (0, 0, 0)
    assert first.registers is not None
    assert 0 < first.registers <= 32
    assert 500 < first.end_ns - first.start_ns < 1_000_000
    assert recorded.remarks == ()


CONTEXT = """
#include <cstdio>
int main() {
  getchar();
  cudaFree(0);
  puts("opened");
  fflush(stdout);
  getchar();
}
"""


def test_when_a_program_has_opened_cuda_is_seen(cache, tmp_path):
    (tmp_path / "waits.cu").write_text(CONTEXT)
    subprocess.run(["nvcc", "waits.cu", "-o", "waits"], cwd=tmp_path, check=True)
    launches = tmp_path / "launches"
    assert not injection.has_context(launches)
    environment = os.environ | injection.environment(launches, cache=cache)
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [tmp_path / "waits"], stdin=pipe, stdout=pipe, text=True, env=environment
    ) as program:
        assert program.stdin
        assert program.stdout
        seen = [injection.has_context(launches)]
        program.stdin.write("\n")
        program.stdin.flush()
        assert program.stdout.readline() == "opened\n"
        seen.append(injection.has_context(launches))
        program.communicate("\n", timeout=60)
    assert [*seen, injection.has_context(launches)] == [False, True, False]


def test_time_of_a_kernel_of_known_length(built, cache, tmp_path):
    _, recorded = run_both(built("known_length"), cache, tmp_path)
    for record in recorded.records:
        assert 4_990_000 <= record.duration_ns < 5_100_000


def test_a_launch_that_is_not_waited_for_has_its_whole_time_or_none(built, cache, tmp_path):
    _, recorded = run_both(built("known_length"), cache, tmp_path, "leave")
    print(f"{len(recorded.records)} recorded, {sum(recorded.unfinished.values())} unfinished")
    assert len(recorded.records) + sum(recorded.unfinished.values()) == 3
    for record in recorded.records:
        assert record.duration_ns >= 4_990_000


def test_graph_launches_are_recorded_kernel_by_kernel_on_their_streams(built, cache, tmp_path):
    _, recorded = run_both(built("streams_graph"), cache, tmp_path)
    assert len({record.stream for record in recorded.records}) >= 2


@pytest.mark.parametrize(
    ("name", "status", "error", "last"),
    [
        ("device_assert", 5, "CUDA_ERROR_ASSERT", "_Z7assertsPf"),
        ("illegal_address", 0, "CUDA_ERROR_ILLEGAL_ADDRESS", "_Z6straysPi"),
    ],
)
def test_an_error_that_the_program_ignores_is_named(name, status, error, last, built, cache, tmp_path):
    ended, recorded = run_both(built(name), cache, tmp_path)
    assert ended.status == status
    # a failed assertion takes the end times of what ran since the last synchronisation with it
    assert counts(recorded.records).get("work", 0) + recorded.unfinished.get("_Z4workPfi", 0) == 3
    assert (recorded.errors[0].name, recorded.errors[0].last_kernel) == (error, last)


def test_a_launch_that_the_runtime_refuses_is_named(built, cache, tmp_path):
    _, recorded = run_both(built("bad_launch"), cache, tmp_path)
    assert counts(recorded.records) == {"work": 3}
    assert recorded.errors[-1].name in {"cudaErrorInvalidConfiguration", "CUDA_ERROR_INVALID_VALUE"}


def test_programs_started_by_the_program_are_recorded_too(built, cache, tmp_path):
    ended, recorded = run_both(built("exec_other"), cache, tmp_path, str(built("plain")))
    assert ended.status == 0
    assert counts(recorded.records) == {"work": 2 + 3 + 3}
    assert len({record.process for record in recorded.records}) == 2


def test_a_program_that_uses_cupti_has_it_to_itself(built, cache, tmp_path):
    cupti = injection.find()
    flags = [
        *(f"-I{i}" for i in cupti.includes),
        f"-Xlinker={cupti.library}",
        f"-Xlinker=-rpath={cupti.library.parent}",
    ]
    ended, recorded = run_both(built("own_cupti", *flags), cache, tmp_path)
    assert ended.stdout == "subscribe: 0\n"
    assert recorded.records == ()
    assert recorded.remarks == ("the program uses CUPTI itself; launches were not recorded",)


def test_a_folder_that_cannot_be_written_changes_nothing(built, cache, tmp_path):
    env = injection.environment(tmp_path / "launches", cache=cache)
    gone = run(built("plain"), env=env | {"ORBIT_LAUNCHES": str(tmp_path / "no" / "such" / "folder")})
    assert (gone.status, gone.stdout, gone.stderr) == (0, "done\n", "")
