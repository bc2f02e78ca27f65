"""Programs whose kernels wait for each other end as they do without us; all others are recorded serially."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from orbit_remote.recording import injection
from orbit_remote.recording.overhead import measure

pytestmark = pytest.mark.gpu

HERE = Path(__file__).parent / "programs"


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cupti")


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    path = tmp_path_factory.mktemp("overlap") / "overlap"
    subprocess.run(["nvcc", "-arch=sm_90", "-O2", str(HERE / "overlap.cu"), "-o", str(path)], check=True)
    return path


def recorded(program: Path, how: str, cache: Path, folder: Path) -> tuple[int, injection.RecordedRun]:
    env = os.environ | injection.environment(folder, cache=cache)
    done = subprocess.run([program, how], env=env, timeout=60, check=False)
    return done.returncode, injection.read(folder)


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ("two_streams", "it creates several streams"),
        ("priorities", "it creates several streams"),
        ("beside_the_default_stream", "it creates a stream that does not wait for the default stream"),
        ("graph", "it makes a CUDA graph"),
        ("per_thread", "it uses a default stream per thread"),
        ("early", "it launches a kernel before the one ahead of it has ended"),
    ],
)
def test_kernels_that_overlap_without_us_overlap_with_us(how, why, program, cache, tmp_path):
    status, launches = recorded(program, how, cache, tmp_path)
    assert (status, launches.overlap) == (0, why)
    assert sum(series.count for series in launches.series) == 2
    assert launches.unfinished == {}


@pytest.mark.parametrize(("how", "count"), [("default_stream", 10), ("one_stream", 10), ("host", 1)])
def test_kernels_that_cannot_overlap_are_recorded_serially(how, count, program, cache, tmp_path):
    status, launches = recorded(program, how, cache, tmp_path)
    assert (status, launches.overlap, launches.remarks) == (0, "", ())
    assert [(series.serial, series.count) for series in launches.series] == [(True, count)]


def test_what_recording_adds_is_measured(cache, tmp_path):
    overhead = measure(cache, tmp_path, 0)
    print(overhead)
    assert overhead.serial is not None
    assert overhead.concurrent is not None
    assert 200 < overhead.concurrent.ns < overhead.serial.ns < 5000
    assert 64 <= overhead.serial.least_ns < 1000
    assert 64 <= overhead.concurrent.least_ns < 1000
