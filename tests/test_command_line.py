"""A command of a build -> the flags by which nvcc compiles the same file. CMake's are as CMake 3.25 wrote them."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from orbit_lsp.compilation import command_line
from orbit_lsp.compilation.database import Databases
from tests.remote.nvcc_check import needs_nvcc

CMAKE = "/usr/local/cuda/bin/nvcc -forward-unknown-to-host-compiler -DSCALE=3 -I/p/include -I/p/build/gen "
LINE = " -x cu -rdc=true -c /p/src/k.cu -o CMakeFiles/vec.dir/src/k.cu.o"


@pytest.mark.parametrize(
    ("command", "flags"),
    [
        # CMake: CMAKE_CUDA_ARCHITECTURES=90, 90-real, 90-virtual, "80;90", native, all-major, with make and with ninja
        (CMAKE + " --generate-code=arch=compute_90,code=[compute_90,sm_90]" + LINE, "-DSCALE=3 -I/p/include -I/p/build/gen -rdc=true -gencode arch=compute_90,code=sm_90"),
        ("nvcc --generate-code=arch=compute_90,code=[sm_90]" + LINE, "-rdc=true -gencode arch=compute_90,code=sm_90"),
        ("nvcc --generate-code=arch=compute_90,code=[compute_90]" + LINE, "-rdc=true -gencode arch=compute_90,code=sm_90"),
        ("nvcc --generate-code=arch=compute_80,code=[compute_80,sm_80] --generate-code=arch=compute_90a,code=[sm_90a] -c k.cu", "-gencode arch=compute_80,code=sm_80 -gencode arch=compute_90a,code=sm_90a"),
        ("nvcc -arch=native -c k.cu", ""),
        ("nvcc -arch=all-major -std=c++17 -c k.cu", "-std=c++17"),
        ("nvcc -O3 -DNDEBUG -std=c++17 -Xcompiler=-fPIC -Xcompiler -Wall,-mavx2 -c k.cu -MD -MT k.o -MF k.d", "-DNDEBUG -std=c++17 -Xcompiler=-mavx2"),
        ("nvcc -G -g -lineinfo --threads 4 -Xptxas -v --extended-lambda --expt-relaxed-constexpr k.cu", "--extended-lambda --expt-relaxed-constexpr"),
        # torch with ninja, Makefiles, Bazel, Meson
        ("ccache nvcc --generate-dependencies-with-compile --dependency-output k.o.d -Iinc -isystem sys -D__CUDA_NO_HALF_OPERATORS__ --compiler-options ''\"'\"'-fPIC'\"'\"'' -gencode=arch=compute_80,code=sm_80 -c -c /p/src/k.cu -o k.o", "-I/p/build/inc -isystem /p/build/sys -D__CUDA_NO_HALF_OPERATORS__ -Xcompiler='-fPIC' -gencode arch=compute_80,code=sm_80"),
        ("nvcc -arch sm_80 -I../include -use_fast_math -lineinfo -o k.o -c ../src/k.cu", "-I/p/include -use_fast_math -gencode arch=compute_80,code=sm_80"),
        ("external/local_cuda/cuda/bin/nvcc -x cu -iquote . -iquote bazel-out/bin -isystem external/cccl/include -ccbin=/usr/bin/gcc -U_FORTIFY_SOURCE -c src/k.cu", "-I/p/build -I/p/build/bazel-out/bin -isystem /p/build/external/cccl/include -ccbin=/usr/bin/gcc -U_FORTIFY_SOURCE"),
        ("nvcc -Ikernels.p -I. -I.. -Xcompiler=-pipe,-D_FILE_OFFSET_BITS=64 -O0 -g -std=c++17 -MD -MQ k.o -MF k.d -o k.o -c ../k.cu", "-I/p/build/kernels.p -I/p/build -I/p -Xcompiler=-D_FILE_OFFSET_BITS=64 -std=c++17"),
        ("nvcc -Werror all-warnings -cudart static -dc -include pre.h --default-stream per-thread k.cu", "-rdc=true -include pre.h --default-stream=per-thread"),
        # clang, and C++ compilers, whose commands are of a file beside a header
        ("clang++ -x cuda --cuda-gpu-arch=sm_80 --cuda-gpu-arch=sm_90a --cuda-path=/usr/local/cuda -Wall -fPIC -ffast-math -std=gnu++17 -resource-dir /x -Xclang -foo -DX -c k.cu", "-use_fast_math -std=c++17 -DX -gencode arch=compute_80,code=sm_80 -gencode arch=compute_90a,code=sm_90a"),
        ("/usr/bin/c++ -DA=1 -I/p/include -std=gnu++20 -fopenmp -march=native -O2 -o a.o -c a.cpp", "-DA=1 -I/p/include -std=c++20"),
        ("cmake -E env CCACHE_DIR=/x sccache nvcc -DX k.cu", "-DX"),
        ("/usr/bin/cmake -E env A=/x B=1 --unset=FOO --modify D=set:/y nvcc -DX k.cu", "-DX"),
        ("/usr/bin/env -u FOO -C /p PATH=/opt/bin:/usr/bin nice -n 10 ccache /opt/cuda/bin/nvcc -DX k.cu", "-DX"),
        ("time -o log -v nvcc -DX k.cu", "-DX"),
        ("nvcc -Xptxas -v,-O1 --ptxas-options=-dlcm=ca -Xptxas=-warn-spills -DX k.cu", "-Xptxas=-O1 -Xptxas=-dlcm=ca -DX"),
        ("", ""),
    ],
)  # fmt: skip
def test_the_flags_of_a_command(command: str, flags: str) -> None:
    expected = [word.replace("'", "") for word in flags.split()]
    results = command_line.parse(command, "/p/build", "/p/src/k.cu").flags
    assert [word.replace("'", "") for word in results] == expected


def test_option_files_are_read_where_the_build_runs(tmp_path: Path) -> None:
    (tmp_path / "CMakeFiles").mkdir()
    (tmp_path / "CMakeFiles" / "includes_CUDA.rsp").write_text('-I/p/include -I"/p/some dir" @more.rsp')
    (tmp_path / "more.rsp").write_text("-DDEEP=1 --options-file more.rsp")  # names itself
    (tmp_path / "pipe.rsp").mkdir()
    command = (
        "nvcc --options-file CMakeFiles/includes_CUDA.rsp -optf absent.rsp --options-file=pipe.rsp -c k.cu"
    )
    assert command_line.parse(command, str(tmp_path), "k.cu").flags == (
        "-I/p/include",
        "-I/p/some dir",
        "-DDEEP=1",
    )


@pytest.mark.slow
@needs_nvcc
@pytest.mark.skipif(not shutil.which("cmake"), reason="needs CMake")
@pytest.mark.parametrize(
    "generator", [["-G", "Unix Makefiles"], pytest.param(["-G", "Ninja"], marks=pytest.mark.slow)]
)
def test_what_cmake_itself_writes(tmp_path: Path, generator: list[str]) -> None:
    if "Ninja" in generator and not shutil.which("ninja"):
        pytest.skip("needs ninja")
    (tmp_path / "src").mkdir()
    (tmp_path / "include").mkdir()
    (tmp_path / "src" / "k.cu").write_text("__global__ void k() {}\n")
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.18)\nproject(demo LANGUAGES CXX CUDA)\n"
        "add_library(vec STATIC src/k.cu)\ntarget_include_directories(vec PUBLIC include)\n"
        "target_compile_definitions(vec PUBLIC SCALE=3)\nset_target_properties(vec PROPERTIES CUDA_STANDARD 17)\n"
    )
    command = [
        "cmake",
        "-S",
        ".",
        "-B",
        "out/release",
        "-DCMAKE_CUDA_ARCHITECTURES=90",
        "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON",
    ]
    subprocess.run([*command, *generator], cwd=tmp_path, check=True, capture_output=True, timeout=300)
    match = Databases().find(str(tmp_path / "src" / "k.cu"), str(tmp_path))
    assert match
    assert match.database == str(tmp_path / "out/release/compile_commands.json")
    assert match.command.flags == (
        "-DSCALE=3", f"-I{tmp_path}/include", "-std=c++17", "-gencode", "arch=compute_90,code=sm_90",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("content", "flags"),
    [
        (b'[{"file": "k.cu", "directory": "/p", "command": "nvcc -DA={1,{2}} k.cu"}]', ("-DA={1,{2}}",)),
        (b'\xef\xbb\xbf[\n {"x": {"y": {}}, "file": "/p/k.cu", "arguments": ["nvcc", "-DA=}", "k.cu"]} ]', ("-DA=}",)),
        (b'[{"file": "/p/a.cu"}, {"file": "/p/k.cu", "command": "nvcc -DA=\xff k.cu"}]', ("-DA=\ufffd",)),
        (b'[{"file": "/p/k.cu", "command": "nvcc -DA k.cu"}, 3, {"file": ', ("-DA",)),
        (b'[{"file": "/p/k.cu", "command": "nvcc -DA k.cu"}, {"file": "/p/k.cu", "command": "nvcc -DB k.cu"}]', ("-DA",)),
        (b'[3, null, "x", {"file": "/p/k.cu", "command": "nvcc -DA k.cu"}]', ("-DA",)),
        (b'[{"file": "/p/k.cu"}, {"file": "/p/k.cu", "command": "nvcc -DA k.cu"}]', ("-DA",)),
        (b'// by hand\n/* of two\nlines */ [ // first\n {"file": "/p/k.cu", // why\n "command": "nvcc -DA=\\"//x\\" k.cu",}, // last\n]', ("-DA=//x",)),
        (b'{"file": "/p/k.cu", "command": "nvcc -DA k.cu"}', None),
        (b'[{"file": "/p/k.cu", "command": "nvcc -DA k.cu", "x": "' + b"}" * 64 + b'"}]', None),
        (b'[{"file": "/p/k.cu", "command": "nvcc -DA k.cu", "x": "' + b"x" * (1 << 18) + b'"}]', None),
        (b"[" * 200_000, None),
        (b"", None),
    ],
)  # fmt: skip
def test_what_is_an_entry_of_a_database(
    tmp_path: Path, content: bytes, flags: tuple[str, ...] | None
) -> None:
    (tmp_path / "compile_commands.json").write_bytes(content)
    match = Databases().find("/p/k.cu", "/p", str(tmp_path))
    assert (match and match.command.flags) == flags


def test_option_files_may_be_listed(tmp_path: Path) -> None:
    (tmp_path / "a.rsp").write_text("-DA")
    (tmp_path / "b.rsp").write_text("-DB")
    flags = command_line.parse(
        "nvcc -optf a.rsp,b.rsp --options-file=b.rsp,absent -c k.cu", str(tmp_path), "k.cu"
    ).flags
    assert flags == ("-DA", "-DB")


def test_a_debug_build_is_not_measured_as_such() -> None:
    assert command_line.parse("nvcc -G -g -DX k.cu", "/p", "/p/k.cu").left_out == ("-G",)


FAULTS = {
    b"": "is empty",
    b'{"file": "/p/k.cu"}': "is not a list of commands",
    b'[\n{"file": "/p/a.cu", "command": "nvcc a.cu"},\n{"file": ': "is not read from line 3 on: its JSON breaks off there, or an entry is too large",
    b"[\n]": None,
}


@pytest.mark.parametrize("content", FAULTS, ids=str)
def test_what_is_wrong_with_a_database_is_said(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "compile_commands.json").write_bytes(content)
    faults = Databases().faults("/p/k.cu", "/p", str(tmp_path))
    assert [fault for _, fault in faults] == [fault for fault in [FAULTS[content]] if fault]
