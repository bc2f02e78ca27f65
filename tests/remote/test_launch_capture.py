"""The recorder takes a launch out of a program: the C++ as it is built for the recorder, with a driver whose GPU is the host's memory"""

from __future__ import annotations

import os
import struct
import subprocess
from pathlib import Path

import pytest

from orbit_remote.common.requests import Capture
from orbit_remote.recording import injection, taken_launch
from orbit_remote.recording.taken_launch import NotTakenError, TakenLaunch

SOURCES = Path(__file__).parent / "launch_capture"
FLAGS = ["-std=c++17", "-O1", "-Wall", "-Wextra", "-Werror"]
ONE_BLOCK = Capture(None, (1, 1, 1), {}, (128, 1, 1), "_Z5saxpyifPKfPf")


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> str:
    try:
        cupti = injection.find()
    except injection.RecorderUnavailableError as why:
        pytest.skip(str(why))
    folder = tmp_path_factory.mktemp("built")
    headers = [f"-I{each}" for each in (*cupti.includes, injection.SOURCE.parent, SOURCES)]
    driver = [
        "-shared",
        "-fPIC",
        "-Wl,-soname,libcuda.so.1",
        "-o",
        str(folder / "libcuda.so.1"),
        str(SOURCES / "fake_driver.cpp"),
    ]
    program = [
        "-o",
        str(folder / "program"),
        str(SOURCES / "program.cpp"),
        str(folder / "libcuda.so.1"),
        f"-Wl,-rpath,{folder}",
        "-ldl",
        "-lpthread",
    ]
    for words in (driver, program):
        subprocess.run(["g++", *FLAGS, *headers, *words], check=True, timeout=300)
    return str(folder / "program")


def ran(program: str, folder: Path, case: str, wanted: Capture) -> subprocess.CompletedProcess[str]:
    taken_launch.ask(folder, "saxpy", "static __constant__ float coef[2];\n", wanted)
    place = {**os.environ, taken_launch.VARIABLE: str(folder)}
    return subprocess.run([program, case], env=place, capture_output=True, text=True, check=True, timeout=100)


def taken(program: str, folder: Path, case: str, wanted: Capture) -> TakenLaunch:
    done = ran(program, folder, case, wanted)
    assert done.stderr == "0 copies, stream 0x51\n"  # the launch's own
    launch = taken_launch.read(folder)
    assert launch
    return launch


def floats(data: bytes) -> list[float]:
    return sorted(set(struct.unpack(f"<{len(data) // 4}f", data)))


@pytest.mark.parametrize("case", ["parameters", "extra", "kernel", "unready"])
def test_the_wanted_launch_is_taken_with_its_memory_before_and_after(
    program: str, tmp_path: Path, case: str
) -> None:
    launch = taken(program, tmp_path, case, ONE_BLOCK)
    assert (launch.symbol, launch.number, launch.grid, launch.block) == (
        "_Z5saxpyifPKfPf",
        2,
        (1, 1, 1),
        (128, 1, 1),
    )
    assert (launch.argument(0), launch.argument(1)) == (struct.pack("<i", 100), struct.pack("<f", 2.0))
    of_x, of_y = launch.pointers[0][2], launch.pointers[1][2]
    assert [(launch.ranges[at].size, launch.ranges[at].changed) for at in (of_x, of_y)] == [
        (400, False),
        (400, True),
    ]
    assert launch.ranges[of_x].begin - launch.ranges[of_x].base == 4096 - 400
    # of the two launches before, each has added 2
    assert (
        floats(launch.memory(of_x)),
        floats(launch.memory(of_y)),
        floats(launch.memory(of_y, after=True)),
    ) == ([1], [4], [6])


def test_a_launch_is_counted_among_those_of_its_kernel(program: str, tmp_path: Path) -> None:
    launch = taken(program, tmp_path, "parameters", Capture(1))
    assert (launch.number, launch.grid) == (1, (2, 1, 1))


def test_the_variables_of_the_file_are_taken_too(program: str, tmp_path: Path) -> None:
    launch = taken(program, tmp_path, "parameters", ONE_BLOCK)
    assert launch.variables.keys() == {"_ZL4coef"}
    assert floats(launch.memory(launch.variables["_ZL4coef"])) == [0.5, 3.0]


@pytest.mark.parametrize(
    ("case", "why"),
    [
        ("graph", "inside a CUDA graph"), ("failed", "the driver rejected this launch"), ("peer", "memory of another GPU"),
        ("fault", "the program failed on the GPU"),
    ],
)  # fmt: skip
def test_what_cannot_be_taken_is_refused(program: str, tmp_path: Path, case: str, why: str) -> None:
    ran(program, tmp_path, case, ONE_BLOCK)
    with pytest.raises(NotTakenError, match=why):
        taken_launch.read(tmp_path)


def test_a_launch_that_is_not_made_is_not_taken(program: str, tmp_path: Path) -> None:
    ran(program, tmp_path, "parameters", Capture(9))
    assert taken_launch.read(tmp_path) is None


def test_the_first_process_that_makes_the_launch_has_it(program: str, tmp_path: Path) -> None:
    taken(program, tmp_path, "parameters", Capture(1))
    ran(program, tmp_path, "parameters", Capture(2))
    launch = taken_launch.read(tmp_path)
    assert launch
    assert launch.number == 1


def test_of_a_million_launches_that_are_not_wanted_the_driver_is_asked_nothing(
    program: str, tmp_path: Path
) -> None:
    assert ran(program, tmp_path, "often", Capture(2_000_000)).stdout == "0\n"
