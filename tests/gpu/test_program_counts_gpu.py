"""Programs whose launches CUPTI counts within them, on a real GPU: they end as they end alone, and their launches are counted"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from orbit_remote.counters import program_counts
from orbit_remote.counters.program_counts import ProgramCounts
from orbit_remote.recording import injection

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(shutil.which("nvidia-smi") is None, reason="no NVIDIA GPU on this machine"),
    pytest.mark.skipif(shutil.which("nvcc") is None, reason="no nvcc on this machine"),
]
SOURCE = Path(__file__).parent / "programs" / "ways_to_launch.cu"
KERNELS = ("_Z1kPjPfi", "_Z8togetherPjPfi", "_Z9clusteredPjPfi", "_Z7surfaceyPf")


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("programs") / "ways"
    subprocess.run(["nvcc", "-O2", "-arch=native", "-lineinfo", "-std=c++17", SOURCE, "-o", made], check=True)
    return made


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


def counted(program: Path, way: str, cache: Path, folder: Path) -> ProgramCounts:
    """Run it alone and then counted; asserts that both end and print the same."""
    variables = injection.environment(folder, cache=cache)
    variables |= program_counts.environment(folder, cache, injection.find(), KERNELS, "", 60)
    ends = [
        subprocess.run([program, way], env=os.environ | more, capture_output=True, text=True, check=False)
        for more in ({}, variables)
    ]
    alone, here = [(end.returncode, end.stdout, end.stderr) for end in ends]
    assert here == alone
    return program_counts.read(folder)


@pytest.mark.parametrize(
    ("way", "launches"),
    [
        ("alone", 1), ("managed", 1), ("pinned", 1), ("async", 1), ("stream", 1), ("threads", 3),
        ("cooperative", 1), ("cluster", 1), ("cluster of a launch", 1), ("surface", 1),
    ],
)  # fmt: skip
def test_what_is_counted_leaves_no_trace(
    way: str, launches: int, program: Path, cache: Path, tmp_path: Path
) -> None:
    counts = counted(program, way, cache, tmp_path)
    assert (len(counts.launches), counts.why) == (launches, "")
    for each in counts.launches:
        assert each.complete
        assert each.counted.values["smsp__inst_executed.sum"] > 0
        assert each.record.symbol in KERNELS
        assert each.code.cubin
    if way.startswith("cluster"):
        assert counts.launches[0].record.cluster == ((2, 1, 1) if way == "cluster" else (4, 1, 1))


@pytest.mark.parametrize("way", ["refused", "illegal address"])
def test_a_launch_that_fails_fails_as_it_does_alone(
    way: str, program: Path, cache: Path, tmp_path: Path
) -> None:
    counts = counted(program, way, cache, tmp_path)
    assert (counts.launches, counts.failed, counts.uncounted) == ((), True, "")


def test_a_program_that_ends_at_once(program: Path, cache: Path, tmp_path: Path) -> None:
    """CUPTI is still planning when it exits, and loads libraries for that."""
    for _ in range(5):
        assert counted(program, "nothing", cache, tmp_path).launches == ()


def test_a_kernel_of_a_graph_is_not_counted(program: Path, cache: Path, tmp_path: Path) -> None:
    assert counted(program, "graph", cache, tmp_path).uncounted == "it is launched by a CUDA graph"
