"""`orbit-lsp gate` for kernels of a program that CMake or make builds: both sides are built for real (building_worker.py)."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.driver_layouts import write
from tests.e2e.test_ab_compare import git
from tests.e2e.test_gate import gate, verdicts
from tests.e2e.test_history_cli import Author

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the worker runs on Linux")
HERE = Path(__file__).parent
TIME = "constexpr int TIME_NS = 200000;"
"""What stands in for a kernel: the program prints its time."""
SOURCES = {
    "src/scale.cuh": f"#pragma once\n{TIME}\nint scaled();\n",
    "src/scale.cu": """\
#include "scale.cuh"
__global__ void scale_kernel(float *x, int n) {}
int scaled() {
#ifdef __CUDACC__
  scale_kernel<<<1, 1>>>(nullptr, 0);
#endif
#ifdef TUNED
  return TIME_NS / 2;
#endif
  return TIME_NS;
}
""",
    "src/bench.cpp": """\
#include "scale.cuh"
#include <cstdio>
int main() { std::printf("scale_kernel %d\\n", scaled()); }
""",
}
CMAKE = """\
cmake_minimum_required(VERSION 3.20)
project(scaling LANGUAGES CXX)
option(TUNED "Half the time" OFF)
set_source_files_properties(src/scale.cu PROPERTIES LANGUAGE CXX COMPILE_OPTIONS "-xc++;-D__global__=")
add_executable(bench src/bench.cpp src/scale.cu)
if(TUNED)
  target_compile_definitions(bench PRIVATE TUNED)
endif()
"""
MAKE = """\
bench: bench.o scale.o
	$(CXX) -o $@ $^
bench.o: src/bench.cpp src/scale.cuh
	$(CXX) -c -o $@ $<
scale.o: src/scale.cu src/scale.cuh
	$(CXX) -x c++ -D__global__= -c -o $@ $<
"""
FILES = {"cmake": {"CMakeLists.txt": CMAKE}, "make": {"Makefile": MAKE, ".gitignore": "*.o\nbench\n"}}


@pytest.fixture
def author(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Author:
    script = tmp_path / "python"
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{HERE / "building_worker.py"}" "$@"\n')
    script.chmod(0o755)
    monkeypatch.setenv("CXX", "g++ -O0")
    monkeypatch.setenv("CMAKE_GENERATOR", "Ninja" if shutil.which("ninja") else "Unix Makefiles")
    (tmp_path / "work").mkdir()
    return Author(tmp_path / "work", str(script))


def project(author: Author, tool: str, files: dict[str, str] | None = None) -> None:
    """A repository with its first commit; a project of other `files` is not built."""
    if files is None and not shutil.which(tool):
        pytest.skip(f"needs {tool}")
    write(author.folder, SOURCES | (files or FILES[tool]))
    git(author.folder, "init", "-q", "-b", "main")
    git(author.folder, "add", "-A")
    git(author.folder, "commit", "-q", "-m", "x")


def edit(author: Author, name: str, before: str, after: str) -> None:
    path = author.folder / name
    assert before in path.read_text()
    path.write_text(path.read_text().replace(before, after))


def times(result: dict) -> tuple[str, float, float]:
    (kernel,) = result["kernels"]
    assert kernel["then_ns"], kernel
    return kernel["verdict"], kernel["then_ns"], kernel["now_ns"]


@pytest.mark.parametrize("tool", ["cmake", "make"])
def test_a_header_that_makes_a_program_slower(author: Author, tool: str) -> None:
    project(author, tool)
    edit(author, "src/scale.cuh", "200000", "210000")
    result, message = gate(author, "--trust", code=6)
    assert times(result) == ("slower", 200_000, 210_000), message
    assert result["kernels"][0]["through"] == "src/bench.cpp (bench)"


def test_the_base_is_configured_as_the_build_folder_is(author: Author) -> None:
    project(author, "cmake")
    subprocess.run(
        ["cmake", "-S", ".", "-B", "build", "-DTUNED=ON"], cwd=author.folder, check=True, capture_output=True
    )
    (author.folder / ".gitignore").write_text("build/\n")
    edit(author, "src/scale.cu", "TIME_NS / 2", "TIME_NS / 2 + 5000")
    edit(author, "src/scale.cu", "{}", "{ int now; }")
    result, message = gate(author, "--trust", code=6)
    assert times(result) == ("slower", 100_000, 105_000), message


def test_a_base_without_the_program_is_said(author: Author) -> None:
    project(author, "make")
    git(author.folder, "mv", "src/bench.cpp", "src/run.cpp")
    edit(author, "Makefile", "src/bench.cpp", "src/run.cpp")
    edit(author, "src/scale.cuh", "200000", "210000")
    result, _ = gate(author, "--trust", code=0)
    assert verdicts(result) == {"scale_kernel": "not compared"}
    assert result["kernels"][0]["reason"].startswith("src/run.cpp, which launches scale_kernel, is not in ")


def test_a_base_that_does_not_build_is_said(author: Author) -> None:
    project(author, "make")
    edit(author, "src/scale.cu", "int scaled() {", "int scaled() { return BUG;")
    git(author.folder, "commit", "-qam", "a mistake")
    edit(author, "src/scale.cu", "return BUG;", "int a;")
    edit(author, "src/scale.cu", "{}", "{ int now; }")
    result, _ = gate(author, "--trust", code=0)
    (kernel,) = result["kernels"]
    assert kernel["verdict"] == "not compared"
    assert kernel["reason"].startswith("it cannot be compared, because the base: "), kernel
    assert "BUG" in kernel["reason"]


def test_the_base_of_a_meson_project_is_refused(tmp_path: Path, recorded_python: str) -> None:
    """Nothing is built."""
    author = Author(tmp_path / "meson", recorded_python)
    build = "project('scaling', 'cuda')\nexecutable('bench', 'src/bench.cpp', 'src/scale.cu')\n"
    project(author, "meson", {"meson.build": build})
    edit(author, "src/scale.cuh", "200000", "210000")
    result, _ = gate(author, "--trust", code=0)
    (kernel,) = result["kernels"]
    assert kernel["verdict"] == "not compared"
    assert (
        "cannot be built, because Meson builds it: write a launch spec above scale_kernel" in kernel["reason"]
    )


def test_without_trust_nothing_of_the_project_is_built(author: Author) -> None:
    project(author, "make")
    edit(author, "src/scale.cu", "{}", "{ int now; }")
    result, message = gate(author, code=0)
    (kernel,) = result["kernels"]
    assert kernel["verdict"] == "not compared", message
    assert kernel["reason"].endswith(f"are not run, because {author.folder} is not trusted")
    assert not (author.folder / "bench").exists()
