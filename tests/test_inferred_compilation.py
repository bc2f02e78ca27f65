"""How a file of a project is compiled that has no compilation database: what build files and headers tell. Nothing is compiled here."""

from __future__ import annotations

import ast
import textwrap
from pathlib import Path

import pytest

from orbit_lsp.cli.machine import doctor
from orbit_lsp.compilation import cmake_files, compiler_messages, inference, installed, setup_files
from orbit_lsp.compilation.installed import Installed
from orbit_lsp.specs import job_builder
from orbit_lsp.state.compilation import Compilation, Reason
from orbit_lsp.state.config import Settings
from orbit_lsp.state.placement import Setup
from orbit_lsp.state.session import Session
from orbit_remote.common.messages import Place, Problem
from tests.compilation_check import check, database, entry, find, project

FOUND = "by what was found in ROOT, because there is no compile_commands.json"


def test_headers_are_found_by_the_suffix_that_the_include_names(tmp_path: Path) -> None:
    files = {
        "src/k.cu": '#include "beside.h"\n#include "mylib/ops.cuh"\n#include <vector>\n#include <cuda_runtime.h>\n',
        "src/beside.h": "", "include/mylib/ops.cuh": '#include "detail/x.h"\n', "include/mylib/detail/x.h": "",
    }  # fmt: skip
    check(
        tmp_path, files,
        f"""
        -Iinclude
        {FOUND}
        include: it has mylib/ops.cuh, which src/k.cu includes
        """,
    )  # fmt: skip


CMAKE = """
project(waves VERSION 2.3.1 LANGUAGES CXX CUDA)
option(WAVES_FAST "Fast." ON)
option(WAVES_TRACE "Trace." OFF)
if(CUDAToolkit_VERSION VERSION_GREATER 9)
  set(HAVE_SYNC 1)
else()
  set(HAVE_SYNC 0)
endif()
if(WAVES_TRACE)
  set(HAVE_TRACE 1)
else()
  set(HAVE_TRACE 0)
endif()
set(BACKEND_CUDA "BACKEND_CUDA")
set(BACKEND ${BACKEND_CUDA} CACHE STRING "Of CUDA or of HIP.")
set(BACKEND_FOLDER ${BACKEND})
string(REGEX REPLACE "^BACKEND_" "" BACKEND_FOLDER ${BACKEND_FOLDER})
string(TOLOWER ${BACKEND_FOLDER} BACKEND_FOLDER)
set(ELSEWHERE ${NOBODY_SAYS}/x)
"""
TEMPLATES = {
    "an option that is on": ("#cmakedefine WAVES_FAST", "#define WAVES_FAST"),
    "one that is off": ("#cmakedefine WAVES_TRACE", "/* #undef WAVES_TRACE */"),
    "as a number": (
        "#cmakedefine01 WAVES_FAST\n#  cmakedefine01 WAVES_TRACE",
        "#define WAVES_FAST 1\n#  define WAVES_TRACE 0",
    ),
    "a version": ('#define V "@waves_VERSION@" @PROJECT_VERSION_MINOR@', '#define V "2.3.1" 3'),
    "a condition that is not known": ("#define S @HAVE_SYNC@", "#define S 1"),
    "a condition that is known": ("#define T ${HAVE_TRACE}", "#define T 0"),
    "of another variable": ("#define B @BACKEND@/@BACKEND_FOLDER@", "#define B BACKEND_CUDA/cuda"),
    "of one that is not known": ("#define E @ELSEWHERE@", "#define E 0"),
    "what is not known": ("#define M @HAVE_METIS@\n#cmakedefine HAVE_X", "#define M 0\n/* #undef HAVE_X */"),
}


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_header_that_cmake_would_make_is_made_from_its_template(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    template, expected = TEMPLATES[name]
    workspace = tmp_path / "ws"
    files = {
        "src/k.cu": "#include <waves/config.h>\n",
        "cmake/config.h.in": template,
        "CMakeLists.txt": CMAKE,
    }
    project(workspace, files)
    made = find(workspace, "src/k.cu")
    (reason,) = made.reasons
    assert reason.why == (
        "waves/config.h is made there from cmake/config.h.in, with what CMakeLists.txt sets by default"
    )
    assert made.flags == (f"-I{reason.what}",)
    assert Path(reason.what, "waves/config.h").read_text() == expected
    assert made.missing == {}


OWN = {
    "one/CMakeLists.txt": "configure_file(cmake/config.h.in ${CMAKE_BINARY_DIR}/config.h)\n",
    "one/cmake/config.h.in": "#define ONE\n",
    "one/src/k.cu": '#include "common.h"\n#include "config.h"\n',
    "common.h": "",
}
OTHERS = {
    "of another project": ({"two/config.h": ""}, "made"),
    "of a folder above": ({"config.h": ""}, "made"),
    "that another project makes": ({"two/config.h.in": "", "two/CMakeLists.txt": ""}, "made"),
    "of its own": ({"one/include/config.h": ""}, "ROOT/one/include"),
    "of its build outside": (
        {"out/config.h": "", "out/CMakeCache.txt": "CMAKE_HOME_DIRECTORY:INTERNAL=ROOT/one\n"},
        "ROOT/out",
    ),
    "of a folder that it names": (
        {"two/config.h": "", "one/src/CMakeLists.txt": "include_directories(../../two)\n"},
        "ROOT/two",
    ),
    "of a project around it": ({"CMakeLists.txt": "", "two/config.h": ""}, "ROOT/two"),
}


@pytest.mark.parametrize("name", OTHERS)
def test_a_projects_own_template_wins_over_a_header_of_that_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    workspace, (others, expected) = tmp_path / "ws", OTHERS[name]
    project(workspace, {**OWN, **others})
    made = find(workspace, "one/src/k.cu")
    folders = [flag.removeprefix("-I") for flag in made.flags]
    (used, *_) = [folder for folder in folders if Path(folder, "config.h").exists()]  # as nvcc searches
    assert ("made" if "cache" in used else used.replace(str(workspace), "ROOT")) == expected
    if expected == "made":
        assert Path(used, "config.h").read_text() == "#define ONE\n"


def test_a_header_of_a_configured_project_is_not_made(tmp_path: Path) -> None:
    files = {
        "src/k.cu": "#include <config.h>\n", "config.h.in": "", "CMakeLists.txt": "",
        "compile_commands.json": database(entry("ROOT/src/k.cu")),
    }  # fmt: skip
    project(tmp_path, files)
    assert set(find(tmp_path, "src/k.cu").missing) == {"config.h"}


DEFINED = {
    "what is on where CUDA is": ("if(USE_CUDA)\n  add_definitions(-DUSE_CUDA)\nendif()", "", "-DUSE_CUDA"),
    "with a value": ("function(f t)\ntarget_compile_definitions(${t} PRIVATE -DX_WITH_CUDA=1)\nendfunction()", "", "-DX_WITH_CUDA=1"),
    "another option": ("if(USE_NCCL)\n  add_definitions(-DUSE_NCCL -DNO_CUDA_HERE)\nendif()", "", ""),
    "what a file needs": ("if(H)\n  list(APPEND D -DHALF=1)\nelse()\n  list(APPEND D -DHALF=0)\nendif()", "#ifndef HALF\n#error HALF is not set\n#endif\n", "-DHALF=1"),
    "what no build file gives": ("", "#ifndef HALF\n# error HALF is not set\n#endif\n", ""),
}  # fmt: skip


@pytest.mark.parametrize("name", DEFINED)
def test_macros_that_a_build_defines_under_a_condition(tmp_path: Path, name: str) -> None:
    build, text, flag = DEFINED[name]
    project(tmp_path, {"src/k.cu": text, "CMakeLists.txt": build})
    assert " ".join(find(tmp_path, "src/k.cu").flags) == flag


def test_the_nearest_of_several_is_taken_and_the_others_are_named(tmp_path: Path) -> None:
    files = {
        "a/src/k.cu": '#include "util.h"\n',
        "a/common/util.h": "",
        "b/common/util.h": "",
        "c/util.h": "",
    }
    check(
        tmp_path, files,
        f"""
        -Ia/common
        {FOUND}
        a/common: it has util.h, which a/src/k.cu includes (the nearest; also c/util.h, b/common/util.h)
        """,
        "a/src/k.cu",
    )  # fmt: skip


def test_a_folder_that_would_hide_standard_headers_is_for_quoted_includes_only(tmp_path: Path) -> None:
    files = {"src/k.cu": '#include "own.h"\n', "lib/own.h": "", "lib/math.h": "", "lib/cuda_runtime.h": ""}
    project(tmp_path, files)
    assert find(tmp_path, "src/k.cu").flags == ("-Xcompiler", "-iquote", "-Xcompiler", f"{tmp_path}/lib")


def test_a_file_does_not_mean_itself_nor_a_folder_that_hides_the_toolkits_headers(tmp_path: Path) -> None:
    files = {
        "src/k.cu": '#include "vendors/hip.h"\n',
        "src/vendors/hip.h": "#include <hip.h>\n#include <other.h>\n",
        "src/vendors/cuda.h": "",
        "src/vendors/other.h": "",
    }
    project(tmp_path, files)
    assert find(tmp_path, "src/k.cu").flags == ()


@pytest.mark.skipif(
    not Path("/usr/local/cuda/include/cuda_runtime.h").exists(), reason="needs a CUDA toolkit"
)
def test_a_folder_of_the_workspace_may_be_called_as_one_of_the_toolkit(tmp_path: Path) -> None:
    files = {
        "src/ops/k.cu": '#include "cuda/helpers.h"\n#include <cuda/std/atomic>\n',
        "src/cuda/helpers.h": "",
    }
    project(tmp_path, files)
    assert find(tmp_path, "src/ops/k.cu").flags == (f"-I{tmp_path}/src",)


@pytest.mark.parametrize(
    ("file", "text", "name"),
    [
        ("setup.py", "CUDAExtension('fast.relu._C', ['csrc/k.cu'])", "_C"),  # the last part, as torch does it
        ("setup.py", "PKG = 'relu'\nCppExtension(name=f'{PKG}._cpu', sources=['csrc/k.cu'])", "_cpu"),
        ("setup.py", "CUDAExtension('a', ['csrc/a.cu'])\nCUDAExtension('b', ['csrc/k.cu'])", "b"),
        ("setup.py", "CUDAExtension('one', sources=glob('csrc/*.cu'))", "one"),
        ("setup.py", "CUDAExtension(name=chosen(), sources=['csrc/k.cu'])", "k"),  # the file's
        ("setup.py", "CUDAExtension('a', a)\nCUDAExtension('b', b)", "k"),
        ("setup.py", "CUDAExtension('no-name; rm', ['csrc/k.cu'])", "k"),
        ("ops/load.py", "load(name='ops', sources=['csrc/k.cu'])", "k"),  # not in a folder above it
        ("load.py", "load(name='ops', sources=['csrc/k.cu'])", "ops"),
        ("load.py", "code = open('csrc/k.cu').read()\nload_inline('inline_ops', '', code)", "inline_ops"),
        ("load.py", "weights = torch.load('w.pt')\nprint('csrc/k.cu')", "k"),
    ],
)
def test_the_name_of_torchs_extension(tmp_path: Path, file: str, text: str, name: str) -> None:
    site = ".venv/lib/python3.11/site-packages"
    torch = f"{site}/torch/include/torch/extension.h"
    project(tmp_path, {"csrc/k.cu": "#include <torch/extension.h>\n", torch: "", file: text})
    made = find(tmp_path, "csrc/k.cu", python=f"{tmp_path}/.venv/bin/python")
    assert [flag for flag in made.flags if "EXTENSION_NAME" in flag] == [f"-DTORCH_EXTENSION_NAME={name}"]
    (why,) = [reason.why for reason in made.reasons if "EXTENSION_NAME" in reason.what]
    assert (f"{file} names the extension" in why) == (name != "k")


def test_a_name_that_the_build_gives_torchs_extension_is_not_given_twice(tmp_path: Path) -> None:
    site = ".venv/lib/python3.11/site-packages"
    torch = f"{site}/torch/include/torch/extension.h"
    flags = ("-DTORCH_EXTENSION_NAME=mine",)
    project(tmp_path, {"k.cu": "#include <torch/extension.h>\n", torch: ""})
    made = find(tmp_path, "k.cu", python=f"{tmp_path}/.venv/bin/python", flags=flags)
    assert [flag for flag in made.flags if "EXTENSION_NAME" in flag] == [*flags]


def test_a_virtual_environments_torch(tmp_path: Path) -> None:
    site = ".venv/lib/python3.11/site-packages"
    files = {
        "csrc/k.cu": "#include <torch/extension.h>\n#include <ATen/cuda/CUDAContext.h>\n",
        f"{site}/torch/include/torch/extension.h": "", f"{site}/torch/include/ATen/cuda/CUDAContext.h": "",
        f"{site}/torch/utils/cpp_extension.py": "cuda_cflags = ['-std=c++20']\n",
        ".venv/include/python3.11/Python.h": "",
    }  # fmt: skip
    project(tmp_path, files)
    made = find(tmp_path, "csrc/k.cu", python=f"{tmp_path}/.venv/bin/python")
    flags = [flag.removeprefix(f"{tmp_path}/") for flag in made.flags]
    folders = flags[flags.index("-isystem") :]
    assert folders[:6] == [
        "-isystem", f"{site}/torch/include", "-isystem", f"{site}/torch/include/torch/csrc/api/include",
        "-isystem", ".venv/include/python3.11",
    ]  # fmt: skip
    assert {"--expt-relaxed-constexpr", "-std=c++20", "-DTORCH_EXTENSION_NAME=k"} <= set(flags)
    assert made.missing == {}


@pytest.mark.parametrize(
    ("files", "python", "torch"),
    [
        ({"env/lib/python3.11/site-packages/of.pth": "# a comment\nimport x\nROOT/apart\n"}, "env", "apart"),
        ({"env/pyvenv.cfg": "home = ROOT/usr/bin\ninclude-system-site-packages = true\n"}, "env", "usr/lib/python3/dist-packages"),
        ({}, "usr", "usr/local/lib/python3.12/dist-packages"),
        ({}, "usr", "home/.local/lib/python3.12/site-packages"),
        ({"env/pyvenv.cfg": "home = ROOT/usr/bin\n"}, "env", None),
    ],
    ids=["a .pth", "system packages", "Debian's", "the user's", "apart"],
)  # fmt: skip
def test_where_torch_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: dict[str, str], python: str, torch: str | None
) -> None:
    monkeypatch.setenv("HOME", f"{tmp_path}/home")
    header = f"{torch or 'usr/lib/python3/dist-packages'}/torch/include/torch/extension.h"
    project(tmp_path, {**files, header: "", "env/bin/python": "", "usr/bin/python3": ""})
    package = Installed((f"{tmp_path}/{python}",)).package("torch/extension.h")
    assert (package and package.folders[0]) == (torch and f"{tmp_path}/{torch}/torch/include")


@pytest.mark.parametrize(
    ("header", "folders"),
    [
        ("usr/eigen3/Eigen/Core", ["usr/eigen3"]),
        ("cutlass/tools/util/include/cutlass/util/print_error.hpp", ["cutlass/tools/util/include"]),
        ("py/lib/python3.11/site-packages/nvidia/mathdx/include/cufftdx.hpp", ["nvidia/mathdx/include", "nvidia/mathdx/external/cutlass/include"]),
    ],
)  # fmt: skip
def test_headers_that_a_remedy_has_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, header: str, folders: list[str]
) -> None:
    monkeypatch.setattr(installed, "_SYSTEM", (f"{tmp_path}/usr",))
    monkeypatch.setenv("CUTLASS_PATH", f"{tmp_path}/cutlass")
    site = "py/lib/python3.11/site-packages"
    project(tmp_path, {header: "", f"{site}/nvidia/mathdx/external/cutlass/include/cutlass/cutlass.h": ""})
    name = header.removeprefix(f"{site}/")
    name = (
        name.removeprefix("usr/eigen3/")
        .removeprefix("nvidia/mathdx/include/")
        .removeprefix("cutlass/tools/util/include/")
    )
    package = Installed((f"{tmp_path}/py",)).package(name)
    assert package
    assert [each.removeprefix(f"{tmp_path}/").removeprefix(f"{site}/") for each in package.folders] == folders


def test_an_extension_of_setuptools_names_folders_and_flags(tmp_path: Path) -> None:
    setup = """
        import os
        from setuptools import setup
        from torch.utils.cpp_extension import CUDAExtension
        this_dir = os.path.dirname(os.path.abspath(__file__))
        flags = ["-O3", "-DUSE_ROPE", "--use_fast_math"]
        if os.environ.get("FORCE"):
            flags.append("-DFORCED=$(touch pwned)")
        ext_modules = [
            CUDAExtension("ops._C", ["csrc/k.cu"], include_dirs=[os.path.join(this_dir, "csrc"), this_dir + "/third_party/cut/include"],
                extra_compile_args={"cxx": ["-DCXX"], "nvcc": flags + ["-std=c++17"]}, define_macros=[("WITH_CUDA", None), ("N", "4")]),
            CUDAExtension("ops._D", ["csrc/other.cu"], include_dirs=["other"]),
        ]
        setup(ext_modules=ext_modules)
    """
    files = {
        "setup.py": textwrap.dedent(setup), "csrc/deep/k.cu": '#include "top.h"\n#include <cut/x.h>\n', "csrc/top.h": "",
        "third_party/cut/include/cut/x.h": "", "elsewhere/top.h": "", "other/top.h": "",
    }  # fmt: skip
    check(
        tmp_path, files,
        f"""
        -DUSE_ROPE --use_fast_math -std c++17 -DWITH_CUDA -DN=4 --expt-relaxed-constexpr -Icsrc -Ithird_party/cut/include
        {FOUND}
        -DUSE_ROPE: setup.py names it
        --use_fast_math: setup.py names it
        -std=c++17: setup.py names it
        -DWITH_CUDA: setup.py names it
        -DN=4: setup.py names it
        --expt-relaxed-constexpr: setup.py names it
        csrc: setup.py:10 names it
        third_party/cut/include: setup.py:10 names it
        """,
        "csrc/deep/k.cu",
    )  # fmt: skip


def test_flags_that_a_setup_py_adds_to_those_of_nvcc(tmp_path: Path) -> None:
    setup = """
        from torch.utils.cpp_extension import CUDAExtension
        args = {"cxx": ["-DHOST"]}
        common = ["-DSTABLE"]
        args["nvcc"] = ["-DFIRST"]
        args["nvcc"].extend(with_threads(common + ["-DUSE_CUDA"]))
        CUDAExtension("k", ["k.cu"], extra_compile_args=args)
    """
    project(tmp_path, {"setup.py": textwrap.dedent(setup), "k.cu": ""})
    assert find(tmp_path, "k.cu").flags == ("-DFIRST", "-DSTABLE", "-DUSE_CUDA", "--expt-relaxed-constexpr")


def test_a_setup_that_builds_for_cuda_or_for_amd(tmp_path: Path) -> None:
    setup = """
        extension = CppExtension
        args = {"cxx": []}
        if torch.version.hip and os.getenv("CK", "1") == "1":
            args["nvcc"] = ["-DAMD"]
        elif torch.cuda.is_available() or os.getenv("FORCE_CUDA"):
            extension = CUDAExtension
            args["nvcc"] = ["-DFIRST"]
            args["nvcc"] += ["-DUSE_CUDA"]
        if not is_rocm:
            args["nvcc"].append("-DNOT_AMD")
        else:
            args["nvcc"].append("-DAMD_TOO")
        extension("k", sorted(sources), extra_compile_args=args)
    """
    project(tmp_path, {"setup.py": textwrap.dedent(setup), "k.cu": ""})
    assert find(tmp_path, "k.cu").flags == ("-DFIRST", "-DUSE_CUDA", "-DNOT_AMD", "--expt-relaxed-constexpr")


TORCH = {
    ".venv/lib/python3.11/site-packages/torch/include/torch/extension.h": "",
    ".venv/lib/python3.11/site-packages/torch/utils/cpp_extension.py": "cuda_cflags = ['-std=c++20']\n",
    ".venv/include/python3.11/Python.h": "", "k.cu": "#include <torch/extension.h>\n",
}  # fmt: skip
NO_OPERATORS = "-D__CUDA_NO_HALF_OPERATORS__"
SETUP = "from torch.utils.cpp_extension import CUDAExtension\nCUDAExtension('k', ['k.cu'], extra_compile_args={'nvcc': [%s]})\n"


def with_torch(folder: Path, name: str, text: str) -> list[str]:
    project(folder, {**TORCH, name: text})
    return (
        " ".join(find(folder, "k.cu", python=f"{folder}/.venv/bin/python").flags)
        .replace("-std ", "-std=")
        .split()
    )


def test_a_project_takes_back_what_torch_defines(tmp_path: Path) -> None:
    flags = with_torch(tmp_path, "setup.py", SETUP % "'-U__CUDA_NO_HALF_OPERATORS__'")
    assert flags.index(NO_OPERATORS) < flags.index("-U__CUDA_NO_HALF_OPERATORS__")


@pytest.mark.parametrize(("named", "used"), [("c++14", "c++20"), ("c++17", "c++20"), ("c++23", "c++23")])
def test_of_two_standards_the_newer(tmp_path: Path, named: str, used: str) -> None:
    flags = with_torch(tmp_path, "setup.py", SETUP % f"'-std={named}'")
    assert [flag for flag in flags if flag.startswith("-std")] == [f"-std={used}"]


def test_a_standard_older_than_the_compilers_own_is_not_asked_for(tmp_path: Path) -> None:
    project(tmp_path, {"Makefile": "FLAGS = -std=c++11 --extended-lambda\n", "k.cu": ""})
    assert find(tmp_path, "k.cu").flags == ("--extended-lambda",)


def test_cmake_decides_itself_about_the_operators_of_half(tmp_path: Path) -> None:
    assert NO_OPERATORS not in with_torch(tmp_path, "CMakeLists.txt", "find_package(Torch)\n")


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("/* #include <a.h> */\n#include <b.h>\n/* c\n#include <d.h>\n*/", ["b.h"]),
        ("// out/*.cuh or\n#include <a.h>\n// src/*.cu\n/* #include <b.h> */", ["a.h"]),
        ('auto all = "src/*.cu";\n#include <a.h>\n/* b */', ["a.h"]),
        ("int x; /* a // b */ /* c\n#include <a.h>\n*/\n#include <b.h>", ["b.h"]),
        ("// never closed /*\n#include <a.h>\n", ["a.h"]),
    ],
)  # fmt: skip
def test_includes_beside_comments(text: str, names: list[str]) -> None:
    assert [each.name for each in inference.wanted(text.encode())] == names


@pytest.mark.parametrize(
    ("not_started", "named"),
    [((), "/usr/bin/python3"), (("ROOT/.venv/bin/python",), "ROOT/.venv/bin/python")],
)
def test_a_missing_package_is_of_the_projects_own_python_though_it_is_not_started(
    tmp_path: Path, not_started: tuple[str, ...], named: str
) -> None:
    project(tmp_path, {"k.cu": "#include <nanobind/nanobind.h>\n"})
    pythons = tuple(each.replace("ROOT", str(tmp_path)) for each in not_started)
    missing = find(tmp_path, "k.cu", python="/usr/bin/python3", not_started=pythons).missing
    (remedy,) = missing.values()
    assert remedy.replace(str(tmp_path), "ROOT").startswith(
        f"it comes with nanobind: {named} -m pip install nanobind"
    )


def test_the_only_extension_has_its_macros_though_its_sources_are_a_pattern(tmp_path: Path) -> None:
    setup = """
        import glob, os, torch
        from torch.utils.cpp_extension import CUDAExtension, CppExtension
        extension, macros = CppExtension, []
        sources = glob.glob("csrc/*.cpp")
        if torch.cuda.is_available():
            extension = CUDAExtension
            sources += glob.glob("csrc/*.cu")
            if not is_rocm_pytorch:
                macros += [("WITH_CUDA", None)]
            else:
                macros += [("WITH_HIP", None)]
            macros.append(("N", "4"))
            if os.getenv("WITH_METIS"):
                macros += [("WITH_METIS", None)]
        ext_modules = [extension("a._C", sources, define_macros=macros)]
    """
    project(tmp_path, {"setup.py": textwrap.dedent(setup), "csrc/k.cu": ""})
    flags = find(tmp_path, "csrc/k.cu").flags
    assert [flag for flag in flags if flag.startswith("-D")] == ["-DWITH_CUDA", "-DN=4"]


@pytest.mark.parametrize(
    ("name", "command"),
    [("CMakeLists.txt", "cmake -S . -B build -DCMAKE_EXPORT_COMPILE_COMMANDS=ON"), ("meson.build", "meson setup build"), ("Makefile", "bear -- make -B")],
)  # fmt: skip
def test_a_project_without_a_database_is_told_how_to_get_one(tmp_path: Path, name: str, command: str) -> None:
    project(tmp_path, {name: "", "k.cu": ""})
    made = find(tmp_path, "k.cu")
    assert made.source.endswith(f"because there is no compile_commands.json (`{command}` writes it)")
    missing_macro = Problem("error", 'identifier "TILE" is undefined', "nvcc", Place("/p/k.cu", 1, 1))
    syntax = Problem("error", 'expected a ";"', "nvcc", Place("/p/k.cu", 2, 1))
    first, second = compiler_messages.explained((syntax, missing_macro), "/p/k.cu", "", made)
    assert first.message == 'expected a ";"'
    assert second.message == (
        f'identifier "TILE" is undefined; `{command}` writes the build\'s flags for orbit-lsp, if it has some for this'
    )


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("CMakeLists.txt", "set(CMAKE_CUDA_STANDARD 20)\ntarget_include_directories(k PRIVATE ${CMAKE_CURRENT_SOURCE_DIR}/lib $<BUILD_INTERFACE:${UNKNOWN}/x>)\n"),
        ("Makefile", "NVCCFLAGS = -std=c++20 $(OPT)\nINC = -I$(TOP)/none -Ilib\n# -Iother\n"),
        ("meson.build", "project('p', 'cuda', default_options: ['cuda_std=c++20'])\n# -I\ninc = '-Ilib'\n"),
    ],
)  # fmt: skip
def test_other_build_files_are_read_as_text(tmp_path: Path, name: str, text: str) -> None:
    files = {name: text, "src/k.cu": '#include "x.h"\n', "lib/x.h": "", "src/nearer/x.h": ""}
    project(tmp_path, files)
    assert find(tmp_path, "src/k.cu").flags == ("-std", "c++20", f"-I{tmp_path}/lib")


@pytest.mark.parametrize(
    ("name", "text", "flags"),
    [
        ("CMakeLists.txt", 'set(CUDA_NVCC_FLAGS ${CUDA_NVCC_FLAGS} -DWRAPPED=amgx)\nadd_definitions(-DFAST "-DN=4")\n', ["-DFAST", "-DN=4", "-DWRAPPED=amgx"]),
        ("CMakeLists.txt", "if(WIN32)\n  add_definitions(-DNOMINMAX)\nendif()\nset(CXX_FLAGS -DHOST)\nadd_definitions(-DX=${X} -DY=$<CONFIG>)\n", []),
        ("../CMakeLists.txt", "add_definitions(-DABOVE)\n", []),
        ("Makefile", "NVCCFLAGS += -DTILE=16 -D WIDE \\\n  -DMORE\nCXXFLAGS = -DHOST\nifdef D\nNVCC_FLAGS += -DDEBUG\nendif\n", ["-DTILE=16", "-DWIDE", "-DMORE"]),
    ],
)  # fmt: skip
def test_definitions_that_hold_without_a_condition(
    tmp_path: Path, name: str, text: str, flags: list[str]
) -> None:
    project(tmp_path / "part", {name: text, "k.cu": "", **({} if name[0] != "." else {"setup.py": ""})})
    assert list(find(tmp_path, "part/k.cu").flags) == flags


@pytest.mark.parametrize(
    ("files", "flag"),
    [
        ({"kernels/gemm/Makefile": "include ../common.mk\n", "kernels/common.mk": "NVCCFLAGS = --expt-relaxed-constexpr\n"}, "--expt-relaxed-constexpr"),
        ({"CMakeLists.txt": "include(cmake/cuda.cmake)\n", "cmake/cuda.cmake": "set(CMAKE_CUDA_FLAGS --extended-lambda)\n"}, "--extended-lambda"),
        ({"CMakeLists.txt": "include(Cuda)\n", "cmake/modules/Cuda.cmake": "set(CMAKE_CUDA_FLAGS --extended-lambda)\n"}, "--extended-lambda"),
        ({"Makefile": "include ../../outside.mk\n", "../outside.mk": "NVCCFLAGS = --extended-lambda\n"}, ""),
    ],
)  # fmt: skip
def test_what_a_build_file_includes_is_read_too(tmp_path: Path, files: dict[str, str], flag: str) -> None:
    project(tmp_path / "p", {**files, "kernels/gemm/k.cu": ""})
    assert find(tmp_path / "p", "kernels/gemm/k.cu").flags == ((flag,) if flag else ())


def test_a_standard_that_does_not_exist_is_not_asked_for(tmp_path: Path) -> None:
    project(tmp_path, {"Makefile": "FLAGS = -std=c++1h --extended-lambda\n", "k.cu": ""})
    assert find(tmp_path, "k.cu").flags == ("--extended-lambda",)


@pytest.mark.parametrize(
    ("header", "flags"),
    [
        ("template <class T> concept Tile = true;\n", ("-std=c++20",)),
        ("template <class T>\nconcept Tile = requires { typename T::x; };\n", ("-std=c++20",)),
        ("#if __cplusplus >= 202002L\ntemplate <class T> concept Tile = true;\n#endif\n", ()),
        ("// a concept = an idea\nint concept_of = 1;\n", ()),
    ],
)
def test_a_header_with_concepts_is_of_c_plus_plus_20(
    tmp_path: Path, header: str, flags: tuple[str, ...]
) -> None:
    project(tmp_path, {"k.cu": '#include "tile.h"\n', "tile.h": header})
    assert find(tmp_path, "k.cu").flags == flags


def test_a_header_that_cmake_makes_has_one_remedy(tmp_path: Path) -> None:
    files = {"k.cu": '#include "version.h"\n', "version.in": "", "CMakeLists.txt": ""}
    project(tmp_path, files)
    problem = Problem(
        "error", "version.h: No such file or directory", "host compiler", Place(f"{tmp_path}/k.cu", 1, 10)
    )
    (shown,) = compiler_messages.explained((problem,), f"{tmp_path}/k.cu", "", find(tmp_path, "k.cu"))
    assert shown.message == (
        "version.h is not found: the project's build makes it from a template: configure the project, "
        "`cmake -S . -B build -DCMAKE_EXPORT_COMPILE_COMMANDS=ON`"
    )


@pytest.mark.parametrize(
    ("include", "files", "message"),
    [
        ("<cutlass/cutlass.h>", {".gitmodules": '[submodule "cutlass"]\n\tpath = 3rdparty/cutlass\n\turl = https://github.com/NVIDIA/cutlass.git\n'}, "it is in the submodule 3rdparty/cutlass, which is not checked out: git submodule update --init 3rdparty/cutlass"),
        ('"version.h"', {"src/version.h.in": ""}, 'the project\'s build makes it from src/version.h.in: configure the project (cmake -B build), or name its folder: nvcc_flags = ["-I<folder>"]'),
        ("<nvToolsExt.h>", {}, "CUDA 13 has no NVTX 2: include <nvtx3/nvToolsExt.h> instead"),
        ("<Eigen/Dense>", {}, "it comes with Eigen: apt install libeigen3-dev"),
        ('"ops/fast.h"', {"other/fast.h": "", "src/far/fast.h": ""}, 'nearest in the workspace: src/far/fast.h, other/fast.h: correct the path, or build the project once if its build copies headers, or name its folder: nvcc_flags = ["-I<folder>"]'),
        ('"nowhere.h"', {}, 'no file of this name is in the workspace, the CUDA toolkit or the packages of /py/bin/python: the project\'s build may make it: build the project once, or name its folder: nvcc_flags = ["-I<folder>"]'),
    ],
)  # fmt: skip
def test_what_provides_a_header_that_is_nowhere(
    tmp_path: Path, include: str, files: dict[str, str], message: str
) -> None:
    project(tmp_path, files | {"src/k.cu": f"#include {include}\n"})
    made = find(tmp_path, "src/k.cu", python="/py/bin/python")
    assert made.missing == {include[1:-1]: message}


MAKEFILE = """
NVCC ?= nvcc
ARCH ?= sm_86
TILE := 32
DEFS := -DTILE_DIM=$(TILE)
DEFS += -DFAST
INCLUDES = -I${LIB}/inc
LIB = third_party
NVCCFLAGS = -O3 -std=c++20 -arch=$(ARCH) --use_fast_math $(INCLUDES) $(DEFS) $(EXTRA)
build/%.o: src/%.cu | build
\t@mkdir -p build && $(NVCC) $(NVCCFLAGS) --ftz=true -Xcompiler -fPIC -c -o $@ $<
"""


def test_a_makefiles_variables_are_followed_to_its_recipe(tmp_path: Path) -> None:
    files = {
        "Makefile": MAKEFILE,
        "src/k.cu": '#include "vec.h"\n',
        "third_party/inc/vec.h": "",
        "nearer/vec.h": "",
    }
    check(
        tmp_path,
        files,
        """
        -std c++20 --use_fast_math -DTILE_DIM=32 -DFAST -ftz true -Ithird_party/inc
        by what was found in ROOT, because there is no compile_commands.json (`bear -- make -B` writes it)
        -std=c++20: Makefile names it
        --use_fast_math: Makefile names it
        -DTILE_DIM=32: Makefile names it
        -DFAST: Makefile names it
        --ftz=true: Makefile names it
        sm_86: Makefile names it
        third_party/inc: Makefile:1 names it
        """,
    )
    made = find(tmp_path, "src/k.cu")
    assert (made.architectures, made.left_out) == (("86",), ())


RECIPES = {
    "its own rule, not another's": ("k.o: k.cu\n\tnvcc -DK -c k.cu\n", "-DK"),
    "the pattern of its folder": ("%.o: tests/%.cu\n\tnvcc -DTEST -c $<\n%.o: %.cu\n\tnvcc -DK -c $<\n", "-DK"),
    "a static pattern": ("OBJS = k.o\n$(OBJS): %.o: %.cu\n\t$(NVCC) -DK -c $< -o $@\n", "-DK"),
    "a suffix rule": (".cu.o:\n\t$(CUDA_HOME)/bin/nvcc -DK -c $<\n", "-DK"),
    "all in one call": ("app: k.cu main.cu; nvcc -DK $^ -o $@\n", "-DK"),
    "without a rule of nvcc": ("CUFLAGS = -DK\nCXXFLAGS = -DHOST\nk.o: k.cu\n\t$(call compile,$<)\n", "-DK"),
    "what is set first counts": ("D ?= -DK\nD ?= -DOTHER\nk.o: k.cu\n\tnvcc $D $(D) $<\n", "-DK"),
    "set at once, or when it is used": ("N = 1\nA := -DA=$(N)\nB = -DB=$(N)\nN = 2\nk.o: k.cu\n\tnvcc $(A) $(B) $<\n", "-DA=1 -DB=2"),
    "a condition that holds": ("ifeq ($(DEBUG),1)\nD = -DSLOW\nelse ifndef DEBUG\nD = -DK\nendif\nk.o: k.cu\n\tnvcc $(D) $<\n", "-DK"),
    "of another target": ("F = -DK\ndebug: F += -DDEBUG\nk.o: k.cu\n\tnvcc $(F) $<\n", "-DK"),
    "a prefix": ("M = A B=2\nk.o: k.cu\n\tnvcc $(addprefix -D,$(M)) $<\n", "-DA -DB=2"),
    "included": ("include common.mk\nk.o: k.cu\n\tnvcc $(FROM_COMMON) $<\n", "-DK"),
    "a comment": ("F = -DK # -DOLD\nk.o: k.cu\n\tnvcc $(F) $<\n", "-DK"),
    "assigned behind a tab": ("\tF = -DA\nifdef X\n\tF = -DX\nendif\nk.o: k.cu\n\tnvcc $(F) $<\n\tF = -DRECIPE\nG = 1\n\tF += -DK\n", "-DA -DK"),
    "assigned behind a tab and a definition": ("o.o: o.cu\ndefine x\n\tnvcc -DX\nendef\n\tF = -DK\nk.o: k.cu\n\tnvcc $(F) $<\n", "-DK"),
    "of its target": ("F = -DA\nk.o: private F += -DK\no.o: F += -DO\nk.o: k.cu\n\tnvcc $(F) $<\n", "-DA -DK"),
    "of its pattern": ("D = build\n$(D)/%.o: F = -DK\n%.o: F = -DA\nother/%.o: F = -DO\n$(D)/%.o: %.cu\n\tnvcc $(F) $<\n", "-DK"),
    "of what a static pattern makes": ("F = -DA\nout/k.o: F += -DK\nk.o: F += -DO\nout/k.o out/o.o: out/%.o: %.cu\n\tnvcc $(F) $<\n", "-DA -DK"),
    "of its target, without a rule of nvcc": ("CUFLAGS = -DA\nk.o: CUFLAGS += -DK\n", "-DA -DK"),
    "of a target that a plain make does not make": ("F = -DK\nall: k.o\ndebug: all\ndebug: F += -DDEBUG\nk.o: k.cu\n\tnvcc $(F) $<\n", "-DK"),
    "itself": ("F = $(F) $(G)\nG = $(F)\nk.o: k.cu\n\tnvcc $(F) -DK $<\n", "-DK"),
}  # fmt: skip


@pytest.mark.parametrize("name", RECIPES)
def test_the_rule_that_compiles_a_file(tmp_path: Path, name: str) -> None:
    text, flags = RECIPES[name]
    other = "other.o: other.cu\n\tnvcc -DOTHERS -c $<\n"
    project(tmp_path, {"Makefile": other * ("own rule" in name) + text, "common.mk": "FROM_COMMON = -DK\n", "k.cu": ""})  # fmt: skip
    made = find(tmp_path, "k.cu")
    assert " ".join(made.flags) == flags
    assert made.left_out == ()


LEFT_OUT = {
    "of a shell": ("V := $(shell git describe)\nF = -DV=$(V) -DK", "-DV=$(shell git describe)"),
    "of a function": ("F = -DK $(foreach m,A B,-D$(m))", "$(foreach m,A B,-D$(m))"),
    "of a variable that nothing sets": ("F = -DK -DN=$(N)", "-DN=$(N)"),
    "an architecture": ("F = -DK -gencode arch=compute_$(SM),code=sm_$(SM)", "-gencode arch=compute_$(SM),code=sm_$(SM)"),
    "under a condition": ("ifeq ($(shell nproc),4)\nF += -DFOUR\nendif\nF += -DK", "what `ifeq ($(shell nproc),4)` adds to F"),
    "of a target that needs the file's": ("all: app\napp: F += -DAPP\napp: k.o\nF = -DK", "what `app: F += -DAPP` adds to F"),
    "of a target that may need the file's": ("app: F += -DAPP\napp: $(SOURCES:.cu=.o)\nF = -DK", "what `app: F += -DAPP` adds to F"),
    "of its target under a condition": ("ifeq ($(shell nproc),4)\nk.o: F += -DFOUR\nendif\nF += -DK", "what `ifeq ($(shell nproc),4)` adds to F"),
    "a recipe under a condition": ("k.o: k.cu\nifeq ($(shell nproc),4)\n\t@echo four\n\tnvcc -DFOUR $<\nendif\nF += -DK", "what `ifeq ($(shell nproc),4)` adds to the recipe of k.o"),
    "a rule under a condition": ("ifeq ($(shell nproc),4)\nk.o: k.cu\n\tnvcc -DFOUR $<\nendif\nF += -DK", "what `ifeq ($(shell nproc),4)` adds to the recipe of k.o"),
    "a file of options": ("F = -DK @options", "@options"),
    "another file of options": ("F = -optf /etc/options -DK", "-optf /etc/options"),
    "a file of options by its long name": ("F = --options-file=options -DK", "--options-file=options"),
    "by eval": ("$(foreach s,1,$(eval F += -D$(s)))\nF += -DK", "what `$(eval …)` adds to F"),
    "what a shell would execute": ("F = -DK '-DV=$$(touch x)'", "-DV=$$(touch x)"),
    "what CUDA 13 lacks": ("F = -DK -arch=sm_35", "sm_35"),
}  # fmt: skip


@pytest.mark.parametrize("name", LEFT_OUT)
def test_what_a_makefile_says_only_when_it_is_run_is_left_out_and_said(tmp_path: Path, name: str) -> None:
    text, left_out = LEFT_OUT[name]
    project(tmp_path, {"Makefile": f"{text}\nk.o: k.cu\n\tnvcc $(F) $<\n", "options": "-DOPTION", "k.cu": ""})
    made = find(tmp_path, "k.cu")
    lacks = "names it, and CUDA 13 and newer have no code for it"
    why = lacks if left_out == "sm_35" else "has it, and only the build knows its value"
    assert (made.flags, made.left_out) == (("-DK",), (Reason(left_out, f"Makefile {why}"),))
    assert f"  {left_out}: Makefile {why}" in doctor.compilation_lines("k.cu", made, ())


@pytest.mark.parametrize(
    ("named", "own", "gpu", "figures"),
    [
        (("86",), "9.0", "H100", "sm_86"),
        (("80", "90"), "9.0", "H100", "sm_90"),  # that of the GPU at hand
        (("75", "80"), "9.0", "H100", "sm_80"),
        (("86",), "9.0", "A100", ""),  # which the author named
        ((), "9.0", "H100", ""),
    ],
)
def test_the_architecture_of_figures(named: tuple[str, ...], own: str, gpu: str, figures: str) -> None:
    session = Session(setup=Setup(settings=Settings(gpu=gpu)))
    session.open("file:///p/k.cu", 1, "__global__ void k() {}")
    session.files["file:///p/k.cu"].compilation = Compilation(architectures=named)
    frozen = session.freeze("file:///p/k.cu")
    assert frozen
    compiled, run = (job_builder.make(session, frozen, action, "") for action in ("compile", "run"))
    named_by_author = "sm_80" if gpu == "A100" else "sm_90a"
    assert (compiled.architecture, run.architecture) == (figures or named_by_author, named_by_author)


BAZEL = {
    "WORKSPACE": "",
    "kernels/gray.cu": '#include "lib/math/pixel.h"\n#include <far.h>\n',
    "lib/math/pixel.h": "",
    "lib/far/inc/far.h": "",
    "lib/far/BUILD": "cc_library(name = 'far', defines = ['FAR'], local_defines = ['NOT_PASSED_ON'], includes = ['inc'])\n",
    "lib/math/BUILD.bazel": "D = ['PIXEL=4']\ncc_library(name = 'math', defines = D, copts = ['-DALONE'], deps = ['//lib/far'])\n",
}
LIBRARY = (
    "cuda_library(name = 'gray', srcs = ['gray.cu'], deps = ['//lib/math', ':gone', '@nowhere//:x'], %s)\n"
)
LIBRARIES = {
    "its own and those passed on": (LIBRARY % "copts = ['--use_fast_math'], defines = ['R=0.299f'], local_defines = ['L']", "--use_fast_math -DL -DR=0.299f -DPIXEL=4 -DFAR", ()),
    "of two": ("cc_library(name = 'a', srcs = ['other.cc'], defines = ['OTHER'])\n" + LIBRARY % "", "-DPIXEL=4 -DFAR", ()),
    "a pattern": ("cuda_library(name = 'a', srcs = glob(['*.cu']), defines = ['A'] + ['B'])\n", "-DA -DB", ()),
    "not one whose pattern excludes it": ("cuda_library(name = 'o', srcs = glob(['*.cu'], exclude = ['gray.*']), copts = ['-DO'])\ncuda_library(name = 'p', srcs = glob(include = ['**'], exclude = ['*.h'] + ['**/gray.cu']), copts = ['-DP'])\ncuda_library(name = 'a', srcs = ['gray.cu'], copts = ['-DA'])\n", "-DA", ()),
    "one whose pattern excludes others": ("cuda_library(name = 'a', srcs = glob(['**/*.cu'], exclude = ['*/*.cu', 'gray_*.cu']), copts = ['-DA'])\n", "-DA", ()),
    "a name that is too long": ("cuda_library(name = 'a', srcs = ['gray.cu'], copts = ['-DA'], deps = ['//%s:x'])\n" % ("a" * 300), "-DA", ()),
    "a number that is too long": ("cuda_library(name = 'a', srcs = ['gray.cu'], copts = ['-DA'] + 0x%s)\n" % ("f" * 5_000), "-DA", ("copts = …",)),
    "files of options": (LIBRARY % "copts = ['-DA', '@WORKSPACE', '--options-file', '/etc/passwd', '-optf=x']", "-DA -DPIXEL=4 -DFAR", ("@WORKSPACE", "--options-file /etc/passwd", "-optf=x")),
    "a choice of Bazel's": (LIBRARY % "copts = ['-DA'] + select({'//:x': ['-DX']})", "-DA -DPIXEL=4 -DFAR", ("copts = select({'//:x': ['-DX']})",)),
    "a variable of Bazel's": (LIBRARY % "copts = ['-DDIR=$(BINDIR)']", "-DPIXEL=4 -DFAR", ("-DDIR=$(BINDIR)",)),
    "an architecture": (LIBRARY % "copts = ['-gencode', 'arch=compute_86,code=sm_86', '-Ilib']", "-DPIXEL=4 -DFAR", ()),
    "no Python": ("cuda_library(name = = 'a', srcs = ['gray.cu'])\n", "", ()),
}  # fmt: skip


@pytest.mark.parametrize("name", LIBRARIES)
def test_the_library_of_bazel_that_has_a_file(tmp_path: Path, name: str) -> None:
    build, flags, left_out = LIBRARIES[name]
    project(tmp_path, {**BAZEL, "kernels/BUILD": build})
    made = find(tmp_path, "kernels/gray.cu")
    assert " ".join(flag for flag in made.flags if not flag.startswith("-I")) == flags
    assert tuple(reason.what for reason in made.left_out) == left_out
    assert f"-I{tmp_path}/lib/far/inc" in made.flags
    assert made.missing == {}
    assert made.architectures == (("86",) if name == "an architecture" else ())


TARGETS = {
    "its own target's": ("add_library(k src/k.cu)\nadd_library(o src/o.cu)\ntarget_compile_definitions(k PRIVATE A B=2)\ntarget_compile_definitions(o PRIVATE O)\n", "-DA -DB=2"),
    "of all": ("add_compile_definitions(A -DB=2)\nadd_compile_options(--use_fast_math -Wall)\n", "-DA -DB=2 --use_fast_math"),
    "of CUDA": ("add_library(k src/k.cu)\ntarget_compile_options(k PUBLIC $<$<COMPILE_LANGUAGE:CUDA>:-DA --use_fast_math> $<$<COMPILE_LANGUAGE:CXX>:-DHOST> $<$<AND:$<COMPILE_LANGUAGE:CUDA>,$<NOT:$<CONFIG:Debug>>>:-DB=256>)\n", "-DA --use_fast_math -DB=256"),
    "a macro of CUDA": ("add_library(k src/k.cu)\ntarget_compile_definitions(k PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:A> $<$<COMPILE_LANGUAGE:CXX>:HOST>)\n", "-DA"),
    "what a library passes on": ("add_library(k src/k.cu)\nadd_library(base INTERFACE)\ntarget_compile_definitions(base INTERFACE A PRIVATE OWN)\ntarget_link_libraries(k PRIVATE base)\ntarget_compile_definitions(k INTERFACE OTHERS)\n", "-DA"),
    "the only target's": ("file(GLOB_RECURSE S CONFIGURE_DEPENDS src/*.cu)\nadd_executable(k ${S})\ntarget_compile_definitions(k PRIVATE A)\n", "-DA"),
    "a pattern of one of two": ("file(GLOB S src/*.cu)\nadd_executable(k ${S})\nadd_executable(o o.cu)\ntarget_compile_definitions(k PRIVATE A)\ntarget_compile_definitions(o PRIVATE O)\n", "-DA"),
    "of variables": ("project(p)\nset(N 4)\nset(D A N=${N})\nlist(APPEND D B)\nadd_library(${PROJECT_NAME} src/k.cu)\ntarget_compile_definitions(p PRIVATE ${D})\n", "-DA -DN=4 -DB"),
    "nvcc's flags": ('set(CMAKE_CUDA_FLAGS "${CMAKE_CUDA_FLAGS} --use_fast_math")\nstring(APPEND CMAKE_CUDA_FLAGS " -DA -Xcompiler -Wall")\n', "--use_fast_math -DA"),
    "options as they are by default": ("option(FAST x ON)\noption(SLOW x OFF)\nif(FAST)\nadd_compile_definitions(A)\nelseif(SLOW)\nadd_compile_definitions(S)\nendif()\nif(NOT SLOW)\nadd_compile_definitions(B)\nendif()\nif(WIN32)\nadd_compile_definitions(W)\nendif()\n", "-DA -DB"),
    "of the source": ('set_source_files_properties(src/k.cu PROPERTIES COMPILE_DEFINITIONS "A;B" COMPILE_FLAGS "--use_fast_math")\nset_source_files_properties(src/o.cu PROPERTIES COMPILE_DEFINITIONS O)\n', "--use_fast_math -DA -DB"),
    "of a folder above": ("add_subdirectory(src)\nadd_compile_definitions(A)\nset(B 2)\n", "-DA -DB=2"),
    "an option with CUDA in its name": ("option(MY_CUDA_FAST_MATH x OFF)\nif(MY_CUDA_FAST_MATH)\nadd_compile_definitions(FAST)\nendif()\noption(WITH_CUDA x OFF)\nif(WITH_CUDA)\nadd_compile_definitions(A)\nendif()\n", "-DA"),
    "comments": ('add_library(k src/k.cu) # the (only one\ntarget_compile_definitions(k PRIVATE A # USE_SLOW was removed\n)\n#[[ add_compile_definitions(OLD)\nadd_compile_definitions(OLD2) ]]\n#[=[ x ]] add_compile_definitions(OLD3)\n]=]\nadd_compile_definitions("URL=a#b")\n', "-DURL=a#b -DA"),
    "brackets in quotes": ('message("smile :(")\nadd_compile_definitions(A)\n', "-DA"),
    "quotes in quotes": ('add_library(k src/k.cu)\ntarget_compile_definitions(k PRIVATE "NAME=\\"x y\\"" A)\n', '-DNAME="x y" -DA'),
    "not, many times": ("if(" + "NOT " * 2_000 + "CMAKE_CUDA_COMPILER)\nadd_compile_definitions(A)\nendif()\n", "-DA"),
    "a file of options": ("add_compile_options(@/etc/hostname --options-file=/etc/hostname -DA)\n", "-DA"),
    "a bracket of a condition": ("if((A AND B) OR C)\nadd_compile_definitions(X)\nendif()\nadd_compile_definitions(A)\n", "-DA"),
}  # fmt: skip


@pytest.mark.parametrize("name", TARGETS)
def test_the_macros_and_options_that_cmake_gives_a_file(tmp_path: Path, name: str) -> None:
    text, flags = TARGETS[name]
    project(tmp_path, {"CMakeLists.txt": text, "src/k.cu": ""})
    if "folder" in name:
        project(tmp_path, {"src/CMakeLists.txt": "add_compile_definitions(B=${B})\n"})
    made = find(tmp_path, "src/k.cu")
    assert " ".join(made.flags) == flags
    assert [each.what for each in made.left_out] == ["what `if((A AND B) OR C)` adds by add_compile_definitions"] * ("bracket of" in name)  # fmt: skip


@pytest.mark.parametrize(
    ("text", "left_out"),
    [
        ("target_compile_definitions(k PRIVATE A N=${N})", "-DN=${N}"),
        ("target_compile_options(k PRIVATE -DA $<$<CONFIG:Release>:-DR> $<$<CONFIG:Release>:-O3> ${WARNINGS})", "$<$<CONFIG:Release>:-DR>"),
        ("add_compile_definitions(A)\nif(CMAKE_BUILD_TYPE STREQUAL Debug)\ntarget_compile_definitions(k PRIVATE D)\nendif()", "what `if(CMAKE_BUILD_TYPE STREQUAL Debug)` adds by target_compile_definitions(k)"),
        ("add_compile_definitions(A)\nfunction(f t)\ntarget_compile_definitions(${t} PRIVATE D)\nendfunction()", ""),
        ("add_compile_definitions(A)\nset(CMAKE_CUDA_COMPILER /opt/cuda-12.8/bin/nvcc)", "set(CMAKE_CUDA_COMPILER /opt/cuda-12.8/bin/nvcc)"),
        ("add_compile_definitions(A)\nadd_library(o2 ${ALL})\ntarget_compile_definitions(o2 PRIVATE O)", ""),
    ],
)  # fmt: skip
def test_what_only_cmake_knows_is_left_out_and_said(tmp_path: Path, text: str, left_out: str) -> None:
    project(tmp_path, {"CMakeLists.txt": f"add_library(k k.cu)\n{text}\n", "k.cu": ""})
    made = find(tmp_path, "k.cu")
    assert made.flags == ("-DA",)
    assert [each.what for each in made.left_out] == ([left_out] if left_out else [])


def test_a_command_that_is_too_long_is_said(tmp_path: Path) -> None:
    text = f"set(S {'a.cc ' * 8_000})\nadd_compile_definitions(A)\n"
    project(tmp_path, {"CMakeLists.txt": text, "k.cu": ""})
    made = find(tmp_path, "k.cu")
    assert made.flags == ("-DA",)
    assert [each.what for each in made.left_out] == ["what set has after its first 20,000 characters"]


def test_a_variable_that_is_used_for_ever_ends(tmp_path: Path) -> None:
    text = f"set(X {'a' * 19_000})\n" + "add_definitions(${X})\n" * 2_000
    read = cmake_files.read([(str(tmp_path / "CMakeLists.txt"), text)], str(tmp_path / "k.cu"))
    assert sum(len(word) for word, _ in read.words) < 1 << 21


DEEP = {
    "a sum in a condition": "if " + "+".join(["a"] * 600) + ":\n    pass\n",
    "negations": "if " + "not " * 600 + "a:\n    pass\n",
    "a number": "if 0x" + "f" * 5_000 + ":\n    pass\n",
    "a macro's number": "CUDAExtension(name='k', sources=['k.cu'], define_macros=[('N', 0x"
    + "f" * 5_000
    + ")])\n",
    "an architecture": "CUDAExtension(name='k', sources=['k.cu'], extra_compile_args=['-arch=sm_"
    + "9" * 5_000
    + "'])\n",
}


@pytest.mark.parametrize("name", DEEP)
def test_a_setup_py_that_no_project_has(tmp_path: Path, name: str) -> None:
    project(tmp_path, {"setup.py": DEEP[name], "include/x.h": "", "k.cu": "#include <x.h>\n"})
    made = find(tmp_path, "k.cu")
    assert made.architectures == ()
    assert made.missing == {}
    too_deep = name == "a macro's number"
    assert [each.what.partition(":")[0] for each in made.left_out] == ["what it says"] * too_deep


def test_branches_within_branches_are_looked_at_once() -> None:
    text = (
        "x = 0\n"
        + "".join(f"{' ' * at}if a:\n" for at in range(90))
        + " " * 90
        + "y = ["
        + "1, " * 2_000
        + "]\n"
    )
    tree = ast.parse(text)
    assert len(setup_files._doubtful(tree)) > 2_000


def test_macros_of_targets_that_may_not_have_the_file_are_said(tmp_path: Path) -> None:
    build = "add_library(a ${S})\nadd_library(b ${S})\ntarget_compile_definitions(a PRIVATE A)\n"
    project(tmp_path, {"CMakeLists.txt": build, "k.cu": ""})
    made = find(tmp_path, "k.cu")
    assert made.flags == ()
    assert [each.what for each in made.left_out] == ["macros of a, if the file is one of its sources"]


PRESET = '{"configurePresets": [{"name": "base", "hidden": true, "cacheVariables": {"CMAKE_CUDA_ARCHITECTURES": {"value": "86"}}}, {"name": "a", "inherits": "base"}, {"name": "b", "cacheVariables": {"CMAKE_CUDA_ARCHITECTURES": "75"}}]}'
NAMED = {
    "for all": ({"CMakeLists.txt": "set(CMAKE_CUDA_ARCHITECTURES 80-real 86)\n"}, ("80", "86")),
    "as a default": ({"CMakeLists.txt": 'if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)\n  set(CMAKE_CUDA_ARCHITECTURES "75;90a")\nendif()\n'}, ("75", "90a")),
    "by a preset": ({"CMakeLists.txt": "if(NOT CMAKE_CUDA_ARCHITECTURES)\nset(CMAKE_CUDA_ARCHITECTURES 75)\nendif()\n", "CMakePresets.json": PRESET}, ("86",)),
    "for its target": ({"CMakeLists.txt": "set(CMAKE_CUDA_ARCHITECTURES 80)\nadd_library(k k.cu)\nset_target_properties(k PROPERTIES CUDA_SEPARABLE_COMPILATION OFF CUDA_ARCHITECTURES 86 FOLDER x)\n"}, ("86",)),
    "for its target by property": ({"CMakeLists.txt": "add_library(k k.cu)\nset_property(TARGET k PROPERTY CUDA_ARCHITECTURES 86 89)\n"}, ("86", "89")),
    "for another target": ({"CMakeLists.txt": "add_library(k k.cu)\nadd_library(o o.cu)\nset_target_properties(o PROPERTIES CUDA_ARCHITECTURES 86)\n"}, ()),
    "that of the machine": ({"CMakeLists.txt": "set(CMAKE_CUDA_ARCHITECTURES native)\n"}, ()),
    "by nvcc's flags": ({"CMakeLists.txt": 'set(CMAKE_CUDA_FLAGS "-gencode arch=compute_86,code=sm_86")\n'}, ("86",)),
    "by a setup.py": ({"setup.py": SETUP % "'-O3', '-gencode=arch=compute_80,code=sm_80', '-gencode', 'arch=compute_86,code=sm_86'"}, ("80", "86")),
    "by a setup.py, in short": ({"setup.py": SETUP % "'-arch=sm_86'"}, ("86",)),
}  # fmt: skip


@pytest.mark.parametrize("name", NAMED)
def test_architectures_that_a_build_file_names(tmp_path: Path, name: str) -> None:
    files, architectures = NAMED[name]
    project(tmp_path, {**files, "k.cu": ""})
    assert find(tmp_path, "k.cu").architectures == architectures


@pytest.mark.parametrize(
    ("files", "standing", "command"),
    [
        (("CMakeLists.txt", "src/CMakeLists.txt"), ".", "cmake -S . -B build"),
        (("CMakeLists.txt", "src/CMakeLists.txt"), "src", "cmake -S .. -B ../build"),
        (("src/CMakeLists.txt",), ".", "cmake -S src -B src/build"),
        (("src/CMakeLists.txt",), "src", "cmake -S . -B build"),
        (("Makefile",), "src", "cd .. && bear -- make -B"),
        (("src/Makefile", "Makefile"), ".", "cd src && bear -- make -B"),
        (("src/meson.build", "meson.build"), "src", "cd .. && meson setup build"),
    ],
)
def test_the_command_that_writes_a_database_is_for_the_folder_in_which_the_author_stands(
    tmp_path: Path, files: tuple[str, ...], standing: str, command: str
) -> None:
    project(tmp_path, {**dict.fromkeys(files, ""), "src/k.cu": ""})
    made = find(tmp_path, "src/k.cu", standing=str(tmp_path / standing))
    assert made.database_command.strip("`").removesuffix(" -DCMAKE_EXPORT_COMPILE_COMMANDS=ON") == command
