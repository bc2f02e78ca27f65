"""Kernels of libraries, timed through programs of their projects that CMake and make build for real"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from orbit_remote.common import messages as c
from orbit_remote.common import symbols
from tests.driver_layouts import written
from tests.e2e.forks import Ended, command

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(shutil.which("nvcc") is None, reason="no nvcc on this machine"),
    pytest.mark.skipif(shutil.which("nvidia-smi") is None, reason="no NVIDIA GPU on this machine"),
]
TOOLS = {"program_cmake": "cmake", "program_make": "make", "program_include": "nvcc"}
KERNELS = {
    "program_cmake": ("src/scale.cu", {"scale_kernel", "shift_kernel"}),
    "program_make": ("src/scale.cu", {"scale_kernel"}),
    "program_include": ("histogram/kernel.cuh", {"scale_kernel"}),
}


def clicked(folder: Path, action: str, file: str, *words: str) -> Ended:
    place = {"XDG_CACHE_HOME": str(folder.parent / "cache"), "XDG_STATE_HOME": str(folder.parent / "state")}
    line = [
        action,
        file,
        "--kernel",
        "scale_kernel",
        "--runner",
        "local",
        "--through",
        "auto",
        "--trust",
        *words,
    ]
    return command(folder, *line, environment=place)


@pytest.fixture(params=TOOLS)
def project(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, str, set[str]]:
    if not shutil.which(TOOLS[request.param]):
        pytest.skip(f"needs {TOOLS[request.param]}")
    written(request.param, tmp_path / "work")
    return (tmp_path / "work", *KERNELS[request.param])


def test_every_kernel_that_the_program_launches_has_its_time(project: tuple[Path, str, set[str]]) -> None:
    folder, file, kernels = project
    done = clicked(folder, "run", file, "--json")
    report = json.loads(done.stdout)
    assert report["outcome"] == "ok", done.stdout + done.stderr
    times = {symbols.base_name(each["symbol"]): each["timing"]["median"] for each in report["launches"]}
    assert times.keys() == kernels
    assert all(0 < time < 1e8 for time in times.values())
    again = clicked(folder, "run", file)
    assert again.returncode == c.EXIT_CODES["ok"], again.stderr
    assert "via " in again.stderr
    print(again.stderr)


def test_a_stale_header_is_not_measured(tmp_path: Path) -> None:
    if not shutil.which("make"):
        pytest.skip("needs make")
    folder = tmp_path / "work"
    written("program_make", folder)
    assert clicked(folder, "run", "src/scale.cu").returncode == 0
    header = folder / "src" / "scale.cuh"
    header.write_text(header.read_text().replace("= 2", "= 3"))
    done = clicked(folder, "run", "src/scale.cu")
    assert done.returncode == c.EXIT_CODES["infrastructure"], done.stderr
    assert "scale.cuh has changed and the build did not compile bench anew" in done.stderr


def test_a_profile(project: tuple[Path, str, set[str]]) -> None:
    """Counters where they are permitted, else times; lines where the build had -lineinfo."""
    folder, file, _ = project
    done = clicked(folder, "profile", file, "--json")
    report = json.loads(done.stdout)
    assert report["outcome"] == "ok", done.stdout + done.stderr
    assert [
        each["name"].partition("(")[0].rpartition(" ")[2].partition("<")[0] for each in report["profiles"]
    ]
    print(
        done.stderr,
        [each["tier"] for each in report["profiles"]],
        [len(each["lines"]) for each in report["profiles"]],
    )


def test_a_memory_check(project: tuple[Path, str, set[str]]) -> None:
    if shutil.which("compute-sanitizer") is None:
        pytest.skip("needs compute-sanitizer")
    folder, file, _ = project
    done = clicked(folder, "check", file, "--json")
    report = json.loads(done.stdout)
    # the programs do not free their memory, and read what nobody wrote
    assert report["outcome"] in ("ok", "runtime error"), done.stdout + done.stderr
    print(report["failure"])
