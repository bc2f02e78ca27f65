"""Programs of a project, built for real by make and CMake: what is run is of the saved text, or it is said why it is not."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from orbit_lsp.compilation.build_systems import registry
from orbit_lsp.drivers.finder import DriverFinder
from orbit_remote.common import messages as c
from orbit_remote.common import requests
from orbit_remote.common.requests import Driver, DriverStart, Job
from orbit_remote.toolchain import build
from orbit_remote.worker.actions import builds
from tests.driver_layouts import write, written
from tests.first_cases import first_of
from tests.remote.profiling import Bench

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the worker runs on Linux")
needs_cmake = pytest.mark.skipif(not shutil.which("cmake"), reason="needs CMake")

MAKEFILE = """
CXX = g++ -x c++
bench: main.o scale.o
	g++ -o bench main.o scale.o
main.o: main.cpp
	$(CXX) -c -o main.o main.cpp
scale.o: scale.cu
	$(CXX) -c -o scale.o scale.cu
"""
DIRECT = "bench: main.cpp scale.cu\n\tg++ -x c++ -o bench main.cpp scale.cu\n"
"""Without objects."""
SOURCES = {
    "scale.cuh": "constexpr int FACTOR = 2;\n",
    "scale.cu": '#include "scale.cuh"\nint launch_scale(int n) { return n * FACTOR; }\n// __global__ void scale_kernel\n',
    "main.cpp": '#include <cstdio>\nint launch_scale(int n);\nint main() { std::printf("%d\\n", launch_scale(21)); }\n',
}
"""Host code alone: g++ takes a tenth of nvcc's time."""
DRIVER = Driver("program", "main.cpp", "bench", tool="make", output="bench")


@pytest.fixture
async def bench(tmp_path: Path, kept: Path) -> AsyncIterator[Bench]:
    (tmp_path / "bench").mkdir()
    made = Bench(tmp_path / "bench", kept)
    yield made
    await made.context.close()
    await made.shared.close()


class Project:
    """A folder with a Makefile and its sources."""

    def __init__(self, folder: Path, bench: Bench, sources: tuple[str, ...] = ()) -> None:
        self.folder, self._bench, self._sources = folder, bench, sources
        self.texts: dict[str, str] = {}
        """What an editor shows."""

    async def build(
        self, driver: Driver = DRIVER, kernel: str = "scale.cu", **fields: object
    ) -> build.BuildResult | c.Finished:
        path = self.folder / kernel
        job = Job(
            "r1", "run", "cuda", str(path), path.read_text(), directory=str(self.folder),
            start=DriverStart(driver, self.texts, sources=self._sources), build_timeout_s=300.0, architecture="sm_90",
        )  # fmt: skip
        job = replace(job, **fields)
        return await builds.build_file(job, None, self._bench.context, self._bench.folder)

    async def says(self, driver: Driver = DRIVER, kernel: str = "scale.cu", **fields: object) -> str:
        """`ok`, or why nothing was run."""
        made = await self.build(driver, kernel, **fields)
        if isinstance(made, build.BuildResult):
            assert made.executable is not None
            return "ok"
        assert made.failure
        return f"{made.outcome}: {made.failure.message}".replace(str(self.folder), "FOLDER")

    def edit(self, name: str, before: str = "= 2", after: str = "= 3") -> None:
        path = self.folder / name
        path.write_text(path.read_text().replace(before, after))


def stopped_at(failed: build.BuildResult | c.Finished) -> tuple[str, str, int]:
    """How a build ended, and the file and line of its first problem."""
    assert isinstance(failed, c.Finished)
    place = failed.problems[0].place
    assert place
    return failed.outcome, Path(place.file).name, place.line


@pytest.fixture
def project(tmp_path: Path, bench: Bench) -> Project:
    folder = tmp_path / "work"
    write(folder, SOURCES | {"Makefile": MAKEFILE})
    return Project(folder, bench)


def back(path: Path) -> None:
    """Give a file a time from before the build."""
    then = time.time_ns() - 10**12
    os.utime(path, ns=(then, then))


async def test_it_is_built_and_then_nothing_is_left_to_build(project: Project) -> None:
    assert await project.says() == "ok"
    first = (project.folder / "bench").stat().st_mtime_ns
    assert await project.says() == "ok"
    assert (project.folder / "bench").stat().st_mtime_ns == first


STALE = "infrastructure: {} has changed and the build did not compile bench anew, so it was not run"


def header(project: Project) -> None:
    project.edit("scale.cuh")


def header_of_an_old_time(project: Project) -> None:
    project.edit("scale.cuh")
    back(project.folder / "scale.cuh")


def source_of_an_old_time(project: Project) -> None:
    project.edit("scale.cu", "n *", "n +")
    back(project.folder / "scale.cu")


def header_and_another_source(project: Project) -> None:
    """The program is linked anew, of an old object."""
    project.edit("scale.cuh")
    project.edit("main.cpp", "21", "22")


def header_copied_over(project: Project) -> None:
    other = project.folder.parent / "scale.cuh"
    other.write_text("constexpr int FACTOR = 4;\n")
    back(other)
    shutil.copy2(other, project.folder / "scale.cuh")


def header_moved_over(project: Project) -> None:
    other = project.folder.parent / "scale.cuh"
    other.write_text("constexpr int FACTOR = 5;\n")
    back(other)
    other.replace(project.folder / "scale.cuh")


def touched_program(project: Project) -> None:
    project.edit("scale.cuh")
    (project.folder / "bench").touch()


def touched_object_of_another(project: Project) -> None:
    project.edit("scale.cuh")
    (project.folder / "main.o").touch()


def silent_rule(project: Project) -> None:
    """A rule that make takes for done."""
    project.edit("scale.cu", "n *", "n +")
    (project.folder / "Makefile").write_text("bench:\n\tg++ -x c++ -o bench main.cpp scale.cu\n")


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (header, "scale.cuh"),
        (header_of_an_old_time, "scale.cuh"),
        (source_of_an_old_time, "scale.cu"),
        (header_and_another_source, "scale.cuh"),
        (header_copied_over, "scale.cuh"),
        (header_moved_over, "scale.cuh"),
        (touched_program, "scale.cuh"),
        (touched_object_of_another, "scale.cuh"),
        (silent_rule, "scale.cu"),
    ],
    ids=lambda value: value.__name__ if callable(value) else value,
)
async def test_what_the_build_did_not_compile_is_not_run(
    project: Project, change: Callable[[Project], None], named: str
) -> None:
    assert await project.says() == "ok"
    change(project)
    assert await project.says() == STALE.format(named)
    assert await project.says() == STALE.format(named)
    advised = ["make", "-B", "bench"]
    await asyncio.to_thread(subprocess.run, advised, cwd=project.folder, check=True, capture_output=True)
    for name in ("main.o", "scale.o") if change is silent_rule else ():  # which are of no use any more
        (project.folder / name).unlink()
    assert await project.says() == "ok"


async def test_a_link_that_leads_elsewhere_is_noticed(project: Project) -> None:
    """The file that it leads to is older than the program, and never was a part of it."""
    (project.folder / "scale.cuh").rename(project.folder / "two.cuh")
    (project.folder / "three.cuh").write_text("constexpr int FACTOR = 3;\n")
    (project.folder / "scale.cuh").symlink_to("two.cuh")
    assert await project.says() == "ok"
    (project.folder / "scale.cuh").unlink()
    (project.folder / "scale.cuh").symlink_to("three.cuh")
    assert await project.says() == STALE.format("scale.cuh")


async def test_a_program_of_an_author_that_is_older_than_the_text(project: Project) -> None:
    """Nothing has been noted of it yet."""
    (project.folder / "Makefile").write_text("bench:\n")
    (project.folder / "bench").write_text("#!/bin/sh\n")
    (project.folder / "bench").chmod(0o755)
    back(project.folder / "bench")
    assert (await project.says()).startswith("infrastructure: main.cpp, scale.cu, scale.cuh has changed")


async def test_a_header_that_the_makefile_names_is_compiled(project: Project) -> None:
    (project.folder / "Makefile").write_text(
        MAKEFILE.replace("scale.o: scale.cu", "scale.o: scale.cu scale.cuh")
    )
    assert await project.says() == "ok"
    project.edit("scale.cuh")
    assert await project.says() == "ok"


async def test_a_program_without_objects(project: Project) -> None:
    (project.folder / "Makefile").write_text(DIRECT)
    assert await project.says() == "ok"
    project.edit("scale.cuh")
    assert await project.says() == STALE.format("scale.cuh")
    project.edit("scale.cu", "n *", "n +")
    assert await project.says() == "ok"


async def test_a_header_outside_of_the_project(project: Project) -> None:
    """An include folder leads there."""
    outside = project.folder.parent / "common"
    outside.mkdir()
    (project.folder / "scale.cuh").rename(outside / "scale.cuh")
    (project.folder / "Makefile").write_text(DIRECT.replace("-o bench", f"-I {outside} -o bench"))
    flags = ("-I", str(outside))
    assert await project.says(flags=flags) == "ok"
    (outside / "scale.cuh").write_text("constexpr int FACTOR = 8;\n")
    assert (await project.says(flags=flags)).startswith("infrastructure: ")


async def test_a_file_that_changes_while_it_is_built(project: Project) -> None:
    (project.folder / "Makefile").write_text(DIRECT + "\techo '// more' >> scale.cuh\n")
    assert (
        await project.says() == "infrastructure: scale.cuh changed while bench was built, so it was not run"
    )


async def test_a_file_of_a_clock_that_is_ahead(project: Project) -> None:
    then = time.time_ns() + 3600 * 10**9
    os.utime(project.folder / "scale.cu", ns=(then, then))
    assert (
        await project.says()
        == "infrastructure: scale.cu was saved by a clock that is ahead of this one, so it was not run"
    )


@pytest.mark.parametrize(
    ("makefile", "says"),
    [
        ("all:\n\ttrue\n", "infrastructure: bench was not built: No rule to make target 'bench'.  Stop."),
        ("bench:\n\ttrue\n", "infrastructure: the build ended well and left no program FOLDER/bench"),
        (
            "bench:\n\tread answer && echo $$answer\n",
            "infrastructure: bench was not built: [Makefile:2: bench] Error 1",
        ),
        (
            "bench:\n\techo no licence >&2 && exit 3\n",
            "infrastructure: bench was not built: [Makefile:2: bench] Error 3: no licence",
        ),
        (
            "NVCC = /usr/local/cuda-8.0/bin/nvcc\nbench: scale.cu\n\t$(NVCC) -o $@ $<\n",
            "infrastructure: bench was not built: there is no /usr/local/cuda-8.0/bin/nvcc, which it starts",
        ),
        (
            "bench: scale.cu\n\t@nvcc-8.0 -o $@ $< && echo built\n",
            "infrastructure: bench was not built: there is no nvcc-8.0, which it starts",
        ),
        (
            "bench:\n\techo \"nvcc fatal   : Unsupported gpu architecture 'sm_30'\" >&2 && exit 1\n",
            "infrastructure: bench was not built: nvcc has no code for sm_30",
        ),
    ],
)
async def test_a_build_that_makes_no_program(project: Project, makefile: str, says: str) -> None:
    (project.folder / "Makefile").write_text(makefile)
    assert await project.says() == says


async def test_a_build_that_does_not_end_is_ended(project: Project) -> None:
    (project.folder / "Makefile").write_text("bench:\n\tsleep 1000\n")
    assert (await project.says(build_timeout_s=0.5)).endswith(
        "make bench took longer than the limit of 0.5 s"
    )


async def test_a_compilers_error_stands_at_its_line(project: Project) -> None:
    project.edit("scale.cu", "FACTOR", "FACTORS")
    made = await project.build()
    assert isinstance(made, c.Finished)
    assert made.outcome == "compile error"
    place = made.problems[0].place
    assert place
    assert (place.file, place.line) == (str(project.folder / "scale.cu"), 2)


async def test_unsaved_text_is_to_be_saved_first(project: Project) -> None:
    text = (project.folder / "scale.cuh").read_text()
    project.texts = {"scale.cuh": text.replace("2", "7"), "notes.h": "of no program"}
    assert await project.says() == "infrastructure: save scale.cuh first: bench is built from the saved files"
    assert not (project.folder / "bench").exists()
    project.texts = {"scale.cuh": text, "notes.h": "of no program"}
    assert await project.says() == "ok"


@pytest.mark.skipif(not shutil.which("nvcc"), reason="needs nvcc")
async def test_an_editor_without_nvcc_on_its_path(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    nvcc = str(shutil.which("nvcc"))
    tools = project.folder.parent / "tools"
    tools.mkdir()
    for name in ("make", "sh", "chmod", "g++", "gcc"):
        (tools / name).symlink_to(str(shutil.which(name)))
    monkeypatch.setenv("PATH", str(tools))
    (project.folder / "Makefile").write_text("bench:\n\tnvcc --version > bench && chmod +x bench\n")
    assert await project.says(nvcc=nvcc) == "ok"


# -- the same by CMake, in the author's own folder ---------------------------------------------------

CMAKE_LISTS = """
cmake_minimum_required(VERSION 3.20)
project(scaling LANGUAGES CXX)
set_source_files_properties(scale.cu PROPERTIES LANGUAGE CXX COMPILE_OPTIONS "-x;c++")
add_library(scaling STATIC scale.cu)
add_executable(bench main.cpp)
target_link_libraries(bench scaling)
"""
BY_CMAKE = Driver("program", "main.cpp", "bench", tool="cmake")


@pytest.fixture
def configured(project: Project) -> Project:
    (project.folder / "CMakeLists.txt").write_text(CMAKE_LISTS)
    subprocess.run(["cmake", "-S", ".", "-B", "build"], cwd=project.folder, check=True, capture_output=True)
    return project


@needs_cmake
@pytest.mark.parametrize(
    ("change", "named"),
    [
        (header, ""),
        (header_of_an_old_time, "scale.cuh"),
        pytest.param(source_of_an_old_time, "scale.cu", marks=pytest.mark.slow),
        pytest.param(header_and_another_source, "", marks=pytest.mark.slow),
        pytest.param(header_copied_over, "scale.cuh", marks=pytest.mark.slow),
        pytest.param(header_moved_over, "scale.cuh", marks=pytest.mark.slow),
    ],
    ids=lambda value: value.__name__ if callable(value) else value,
)
async def test_what_cmake_does_not_compile_is_not_run(
    configured: Project, change: Callable[[Project], None], named: str
) -> None:
    """It knows headers; times that are old mislead it as they mislead make."""
    made = await configured.build(BY_CMAKE)
    assert isinstance(made, build.BuildResult), made.failure
    assert made.executable == configured.folder / "build" / "bench"
    change(configured)
    assert await configured.says(BY_CMAKE) == (STALE.format(named) if named else "ok")
    advised = ["cmake", "--build", "build", "--target", "bench", "--clean-first"]
    await asyncio.to_thread(subprocess.run, advised, cwd=configured.folder, check=True, capture_output=True)
    assert await configured.says(BY_CMAKE) == "ok"


@needs_cmake
async def test_a_target_that_an_option_turns_off(configured: Project) -> None:
    lists = (
        CMAKE_LISTS.replace("add_executable", "option(BENCH off)\nif(BENCH)\nadd_executable", 1) + "endif()\n"
    )
    (configured.folder / "CMakeLists.txt").write_text(lists)
    assert (
        await configured.says(BY_CMAKE)
        == "infrastructure: CMake's project in FOLDER makes no program bench, as it is configured"
    )


TESTED = """
enable_testing()
add_test(NAME small COMMAND bench 7 WORKING_DIRECTORY ${CMAKE_SOURCE_DIR}/data)
add_test(NAME large COMMAND bench 4096 --fast)
set_tests_properties(large PROPERTIES ENVIRONMENT "SEED=7;LOG=off")
add_test(NAME of_another COMMAND ${CMAKE_COMMAND} -E echo 1)
"""
"""What follows in a CMakeLists.txt."""


def said_of_test(made: build.BuildResult | c.Finished, project: Project) -> str:
    """How the program will run, as the build says it."""
    assert isinstance(made, build.BuildResult), made.failure
    if made.job is None:
        return "as the job says"
    job = made.job
    text = f"{' '.join(job.variables)} bench {' '.join(job.arguments)} in {job.working_folder}"
    assert any(remark.startswith("run as the project's test ") for remark in made.remarks)
    return text.strip().replace(str(project.folder), "FOLDER")


@needs_cmake
async def test_a_program_runs_as_the_projects_own_test_runs_it(configured: Project) -> None:
    assert said_of_test(await configured.build(BY_CMAKE), configured) == "as the job says"
    (configured.folder / "data").mkdir()
    with (configured.folder / "CMakeLists.txt").open("a") as lists:
        lists.write(TESTED)
    for arguments, runs in {
        (): "bench 7 in FOLDER/data",
        ("4096",): "SEED=7 LOG=off bench 4096 in FOLDER/build",
        ("--verbose",): "bench --verbose in FOLDER/data",
    }.items():
        assert said_of_test(await configured.build(BY_CMAKE, arguments=arguments), configured) == runs


# -- the same by Meson ------------------------------------------------------------------------------

MESON_BUILD = "project('scaling', 'cpp')\nexecutable('bench', 'main.cpp')\n"
WITH_MESON = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
BY_MESON = requests.Driver("program", "main.cpp", "bench", tool="meson")


@pytest.mark.slow
async def test_a_program_of_meson(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a folder of ours; then in the author's, which is preferred. The kernel stands in a header, since Meson gives `.cu` to nvcc."""
    monkeypatch.setenv("PATH", WITH_MESON)
    (project.folder / "meson.build").write_text(MESON_BUILD)
    (project.folder / "main.cpp").write_text('#include "scale.cuh"\nint main() { return FACTOR - 2; }\n')
    made = await project.build(BY_MESON, "scale.cuh")
    assert isinstance(made, build.BuildResult), made.failure
    assert made.executable is not None
    assert not made.executable.is_relative_to(project.folder)
    assert "the project has no build folder" in made.remarks[0]
    setup = ["meson", "setup", "out"]
    await asyncio.to_thread(subprocess.run, setup, cwd=project.folder, check=True, capture_output=True)
    made = await project.build(BY_MESON, "scale.cuh")
    assert isinstance(made, build.BuildResult), made.failure
    assert made.executable == project.folder / "out" / "bench"
    lists = MESON_BUILD.replace("exec", "bench = exec") + "test('x', bench, args: ['7'], env: ['SEED=7'])\n"
    (project.folder / "meson.build").write_text(lists)
    tested = await project.build(BY_MESON, "scale.cuh")
    assert said_of_test(tested, project) == "SEED=7 bench 7 in FOLDER/out"
    header_of_an_old_time(project)
    assert await project.says(BY_MESON, "scale.cuh") == STALE.format("scale.cuh")
    project.edit("scale.cuh", "FACTOR", "FACTORS")
    assert "bench was not built (1 error): main.cpp:2: " in await project.says(BY_MESON, "scale.cuh")
    (project.folder / "meson.build").write_text(MESON_BUILD.replace("executable", "executables"))
    assert "meson.build" in str((await project.build(BY_MESON, "scale.cuh")).failure)


# -- CUDA, by CMake, make and nvcc ------------------------------------------------------------------


def cuda(name: str, folder: Path, bench: Bench) -> tuple[Project, Driver, str]:
    """A project of tests/projects, the driver that is found for its first kernel, and that kernel's file."""
    expected = written(name, folder)
    kernel = next(line for line in expected.splitlines() if line.endswith(": scale_kernel")).partition(":")[0]
    finder = DriverFinder(str(folder), build_files=registry.build_files())
    finder.refresh()
    (route, *_) = finder.routes(str(folder / kernel), "scale_kernel").routes
    return Project(folder, bench, route.sources), route.driver, kernel


@pytest.mark.parametrize("name", first_of(["program_include", "program_make", "program_meson"]))
async def test_a_project_of_cuda(
    name: str, tmp_path: Path, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    project, driver, kernel = cuda(name, tmp_path / "work", bench)
    if name == "program_meson":
        monkeypatch.setenv("PATH", WITH_MESON)
    assert await project.says(driver, kernel) == "ok"
    if name == "program_include":  # nothing is left in the author's folder
        assert not [
            path
            for path in project.folder.rglob("*")
            if path.is_file() and path.suffix not in ("", ".cu", ".cuh", ".h")
        ]


@pytest.mark.skipif(not shutil.which("nvcc"), reason="needs nvcc")
async def test_sources_without_a_build_file(tmp_path: Path, bench: Bench) -> None:
    project, driver, kernel = cuda("program_sources", tmp_path / "work", bench)
    made = await project.build(driver, kernel)
    assert isinstance(made, build.BuildResult), made.failure
    assert {"main.cpp", "check.cc", "scale.cu", "shift.cu", "scale.h"} <= {
        Path(path).name for path in made.built.files
    }
    project.edit(kernel, "x, n", "x, m")
    failed = await project.build(driver, kernel)
    assert stopped_at(failed) == ("compile error", "scale.cu", 3)


@needs_cmake
@pytest.mark.slow
async def test_a_project_of_cmake(tmp_path: Path, bench: Bench) -> None:
    """Once in a folder of ours; then in the author's, which is preferred; a copied one is not taken."""
    project, driver, kernel = cuda("program_cmake", tmp_path / "work", bench)
    made = await project.build(driver, kernel)
    assert isinstance(made, build.BuildResult), made.failure
    assert made.executable is not None
    assert made.executable.is_relative_to(bench.context.home / "projects")
    assert "the project has no build folder" in made.remarks[0]
    assert {Path(path).name for path in made.built.files} == {"scale.cu", "shift.cu", "bench.cu", "scale.cuh"}
    shutil.copytree(made.executable.parent, project.folder / "build")
    again = await project.build(driver, kernel)
    assert isinstance(again, build.BuildResult), again.failure
    assert again.executable == made.executable
    assert "was configured in another place" in again.remarks[0]
    project.edit("include/scale.cuh")
    assert await project.says(driver, kernel) == "ok"
    project.edit("src/scale.cu", "FACTOR", "FACTORS")
    failed = await project.build(driver, kernel)
    assert stopped_at(failed) == ("compile error", "scale.cu", 5)
    project.edit("src/scale.cu", "FACTORS", "FACTOR")
    project.edit("CMakeLists.txt", "add_executable(bench app", "add_executable(faster app")
    said = await project.says(driver, kernel)
    assert said.startswith("infrastructure: ")
    assert "CMake Error" not in said
    project.edit("CMakeLists.txt", "(bench PRIVATE", "(faster PRIVATE")
    assert await project.says(driver, kernel) == "ok"  # by its source
    project.edit(
        "CMakeLists.txt", "add_subdirectory(src)", "add_subdirectory(src)\nfind_package(Absent REQUIRED)"
    )
    failed = await project.build(driver, kernel)
    assert stopped_at(failed) == ("infrastructure", "CMakeLists.txt", 4)
