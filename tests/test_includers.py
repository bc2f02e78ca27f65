"""Through which source a CUDA file is compiled: by itself, or through one that includes it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from orbit_lsp.closure import includers
from orbit_lsp.places.places import Places
from orbit_lsp.state.session import Session, uri_of
from tests.compilation_check import database, entry, find, project

FRAGMENT = "__global__ void fill(byte_t* p) { *p = 1; }\n"
MAIN = 'typedef unsigned char byte_t;\n#include "kernels.cu"\nint main() {}\n'
CASES = {
    "a source that another one includes": ({"main.cu": MAIN}, "main.cu"),
    "as the Makefile's prerequisite": ({"main.cu": MAIN, "Makefile": "main: main.cu kernels.cu\n\tnvcc -o $@ $<\n"}, "main.cu"),
    "of the Makefile's own": ({"main.cu": MAIN, "Makefile": "kernels.o: kernels.cu\n\tnvcc -c $<\n"}, None),
    "all in one call": ({"main.cu": MAIN, "Makefile": "app: main.cu kernels.cu\n\tnvcc -o $@ $^\n"}, None),
    "of a target": ({"main.cu": MAIN, "CMakeLists.txt": "add_library(k kernels.cu)\n"}, None),
    "not of the target": ({"main.cu": MAIN, "CMakeLists.txt": "add_executable(app main.cu)\n"}, "main.cu"),
    "of the database": ({"main.cu": MAIN, "compile_commands.json": database(entry("ROOT/kernels.cu"), entry("ROOT/main.cu"))}, None),
    "not of the database": ({"main.cu": MAIN, "compile_commands.json": database(entry("ROOT/main.cu"))}, "main.cu"),
    "a part of a part": ({"main.cu": 'typedef unsigned char byte_t;\n#include "all.cu"\nint main() {}\n', "all.cu": '#include <cstdio>\n#include "kernels.cu"\nbyte_t all;\n'}, "main.cu"),
    "a part of what a test includes": ({"all.cu": '#include <cstdio>\n#include "kernels.cu"\n', "test.cu": '#include <gtest/gtest.h>\n#include "all.cu"\n'}, "all.cu"),
    "by a test and by a program": ({"test/main.cu": MAIN, "samples/program.cu": MAIN}, "program.cu"),
    "by a test, and through a header by a program": ({"test/main.cu": MAIN, "all.h": '#include "kernels.cu"\n', "program.cu": '#include "all.h"\n'}, "program.cu"),
    "a part of what includes parts alone": ({"all.cu": '#include "kernels.cu"\nbyte_t all;\n', "main.cu": '#include <cstdio>\n#include "all.cu"\n'}, "main.cu"),
    "by C++ that is compiled as CUDA": ({"main.cpp": MAIN, "Makefile": "main: main.cpp\n\tnvcc -x cu -DA $< -o $@\n"}, "main.cpp"),
    "by C++ that CMake calls CUDA": ({"main.cc": MAIN, "CMakeLists.txt": "set_source_files_properties(main.cc PROPERTIES LANGUAGE CUDA)\n"}, "main.cc"),
    "by C++": ({"main.cpp": MAIN, "Makefile": "main: main.cpp\n\tg++ $< -o $@\n"}, None),
    "in a circle": ({"a.cu": '#include "b.cu"\n#include "kernels.cu"\n', "b.cu": '#include "a.cu"\n'}, "b.cu"),
    "through a header": ({"main.cu": '#include "all.cuh"\n', "all.cuh": '#include "kernels.cu"\n'}, "main.cu"),
    "by another suffix": ({"main.cu.cc": MAIN}, "main.cu.cc"),
    "a unity build": ({"made/unity_0_cu.cu": '#include "../kernels.cu"\n'}, None),
    "another of that name": ({"b/kernels.cu": FRAGMENT, "b/main.cu": MAIN}, None),
    "by a path": ({"b/main.cu": '#include "../kernels.cu"\n'}, "main.cu"),
    "by a folder of the command": ({"b/main.cu": "#include <kernels.cu>\n"}, "main.cu"),
    "in code that is left out": ({"main.cu": '#if 0\n#include "kernels.cu"\n#endif\nint main() {}\n'}, None),
    "by nobody": ({"main.cu": "int main() {}\n"}, None),
}  # fmt: skip


def through(folder: Path, name: str) -> str | None:
    """The source that a file is compiled through, as an editor's server finds it."""
    session = Session()
    session.setup.folders = [str(folder)]
    path = folder / name
    uri = uri_of(str(path))
    session.open(uri, 0, path.read_text())
    file = session.files[uri]
    _ = file.scan
    asyncio.run(Places(session, print, lambda uris: None).compilations.find(uri))
    return Path(file.source[0]).name if file.source else None


@pytest.mark.parametrize("name", CASES)
def test_a_source(tmp_path: Path, name: str) -> None:
    files, source = CASES[name]
    project(tmp_path, {"kernels.cu": FRAGMENT, **files})
    assert through(tmp_path, "kernels.cu") == source


def test_a_source_whose_headers_need_what_stands_before_it(tmp_path: Path) -> None:
    files = {
        "all.cu": '#include "forces.h"\n#include "euler.cu"\n',
        "forces.h": "template <int flags> using viscous = int;\n",
        "euler.cu": '#include <cstdio>\n#include "euler.h"\n__global__ void euler() {}\n',
        "euler.h": "using repacked = viscous<2>;\n",
    }
    project(tmp_path, files)
    assert through(tmp_path, "euler.cu") == "all.cu"
    (tmp_path / "euler.h").write_text('#include "forces.h"\nusing repacked = viscous<2>;\n')
    assert through(tmp_path, "euler.cu") is None


def test_a_source_that_calls_a_device_function_of_one_before_it(tmp_path: Path) -> None:
    rope = "__device__ __forceinline__ void rope(float* x, int n) { *x = n; }\n__device__ __align__(16) float4 cells[2];\n"
    files = {
        "all.cu": '#include "model.cu"\n#include "step.cu"\n',
        "model.cu": f"#include <cstdio>\n{rope}",
        "step.cu": "#include <cstdio>\n__global__ void step(float* x) { rope(x, 1); }\n",
    }
    project(tmp_path, files)
    assert through(tmp_path, "step.cu") == "all.cu"
    assert through(tmp_path, "model.cu") is None
    (tmp_path / "step.cu").write_text(
        "#include <cstdio>\nstruct __align__(8) S {};\n__global__ void step() {}\n"
    )
    assert through(tmp_path, "step.cu") is None
    (tmp_path / "rope.h").write_text("__device__ void rope(float*, int);\n")
    (tmp_path / "step.cu").write_text('#include "rope.h"\n__global__ void step(float* x) { rope(x, 1); }\n')
    assert through(tmp_path, "step.cu") is None


@pytest.mark.parametrize(
    ("makefile", "source"),
    [
        ("K = ../../src/kernels\nk.o:\n\t$(NVCC) -x cu -DA -c ${K}/run.cpp\n", "run.cpp"),
        (
            "run.o:\n\tnvcc -x cu -c ../../src/kernels/run.cpp\nk.o: ../../src/kernels/k.cu\n\tnvcc -c $<\n",
            None,
        ),
        ("run.o:\n\tg++ -c ../../src/kernels/run.cpp\n", None),
    ],
)
def test_a_part_of_c_plus_plus_that_a_makefile_elsewhere_compiles_as_cuda(
    tmp_path: Path, makefile: str, source: str | None
) -> None:
    files = {
        "src/kernels/run.cpp": '#include <vector>\n#include "k.cu"\n',
        "src/kernels/k.cu": "#include <cstdio>\n__global__ void k() {}\n",
        "make/gpu/Makefile": makefile,
        ".git/HEAD": "",
    }
    project(tmp_path, files)
    assert through(tmp_path, "src/kernels/k.cu") == source
    if source:
        assert find(tmp_path, f"src/kernels/{source}").flags == ("-DA",)


def test_the_flags_of_c_plus_plus_that_is_compiled_as_cuda(tmp_path: Path) -> None:
    makefile = "%.o: %.cpp\n\t$(NVCC) -x cu --use_fast_math -DBYTE=1 -c $<\n%.o: %.cu\n\tnvcc -DOTHER -c $<\n"
    project(tmp_path, {"Makefile": makefile, "main.cpp": MAIN})
    made = find(tmp_path, "main.cpp")
    assert (made.flags, made.left_out) == (("--use_fast_math", "-DBYTE=1"), ())


def test_a_source_with_headers_of_its_own_is_no_part_of_a_test(tmp_path: Path) -> None:
    files = {
        "icp.cu": '#include "icp.h"\n__global__ void k() {}\n',
        "icp.h": "",
        "test/pch.cu": '#include <gtest/gtest.h>\n#include "../icp.cu"\n',
    }
    project(tmp_path, files)
    assert through(tmp_path, "icp.cu") is None


def test_a_source_that_runs_by_itself_is_no_part_of_another(tmp_path: Path) -> None:
    project(tmp_path, {"kernels.cu": FRAGMENT + "int main() {}\n", "main.cu": MAIN})
    assert through(tmp_path, "kernels.cu") is None


HEADERS = {
    "what is defined before it": ("__global__ void k(SCALAR* x) {}\n", '#define SCALAR double\n#include "k.cuh"\n', True),
    "a value that may be": ("#ifndef TILE\n#define TILE 16\n#endif\n__global__ void k() {}\n", '#define TILE 32\n#include "k.cuh"\n', True),
    "a type": ("__global__ void k(vec* x) {}\n", 'struct vec { float x; };\n#include "k.cuh"\n', True),
    "a header that it leaves to others": ("__global__ void k(__half* x) {}\n", '#include <cuda_fp16.h>\n#include "k.cuh"\n', True),
    "nothing": ("#include <cuda_fp16.h>\n__global__ void k(__half* x) {}\n", '#include <gtest/gtest.h>\n#define OTHER 1\n#include "k.cuh"\n', False),
    "a macro of another header": ("#include <cstdint>\n__global__ void k(int* x) { *x = shuffle(1); }\n", '#include "all.h"\n#include "k.cuh"\n', True),
    "a macro that it includes itself": ('#include "all.h"\n__global__ void k(int* x) { *x = shuffle(1); }\n', '#include "all.h"\n#include "k.cuh"\n', False),
    "a type of another header": ("#include <cstdint>\n__global__ void k(cell_t* x) {}\n", '#include "all.h"\n#include "k.cuh"\n', True),
    "a type that it includes itself": ('#include "all.h"\n__global__ void k(cell_t* x) {}\n', '#include "all.h"\n#include "k.cuh"\n', False),
    "a namespace, through a header": ("namespace p { using tag = tags::k; }\n", '#include "parts.cuh"\n', True),
    "nothing, through a header": ("__global__ void fill(int* x) { *x = 1; }\n", '#include "parts.cuh"\n', False),
    "what comes behind it": ("__global__ void k(float* x) {}\n", '#include "k.cuh"\nstruct x { float k; };\n', False),
}  # fmt: skip


@pytest.mark.parametrize("name", HEADERS)
def test_a_header_that_needs_who_includes_it(tmp_path: Path, name: str) -> None:
    """Any other is compiled by itself: who includes it may need what is not installed."""
    text, including, needs = HEADERS[name]
    files = {
        "all.h": "#pragma once\ntypedef int cell_t;\n#ifdef NEW\n#define shuffle(x) new_shuffle(x)\n#endif\n",
        "tags.h": "namespace tags { struct k {}; }\n",
        "parts.cuh": '#include "tags.h"\n#include "k.cuh"\n',
    }
    project(tmp_path, {"k.cuh": text, "main.cu": including, **files})
    found = includers.read(str(tmp_path / "k.cuh"), text, (str(tmp_path),))
    assert bool(found) == needs
