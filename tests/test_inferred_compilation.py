"""How a file of a project is compiled that has no compilation database: what build files and headers tell. Nothing is compiled here."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from orbit_lsp.compilation import compiler_messages, inference, installed, missing
from orbit_lsp.compilation.headers import Headers
from orbit_lsp.compilation.installed import InstalledHeaders
from orbit_lsp.state.compilation import Compilation
from orbit_remote.common.messages import Place, Problem
from tests.compilation_check import SETUP, check, database, entry, find, project
from tests.e2e.conftest import own_cache

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
    own_cache(monkeypatch, tmp_path)
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
    own_cache(monkeypatch, tmp_path)
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
    after = ("-Xcompiler", "-idirafter", "-Xcompiler", f"{tmp_path}/src/vendors")
    assert find(tmp_path, "src/k.cu").flags == after


def test_a_projects_header_of_a_toolkits_name_is_the_one_that_its_build_finds(tmp_path: Path) -> None:
    files = {
        "Makefile": "k.o: src/k.cu\n\tnvcc -Iinc -c $<\n",
        "src/k.cu": '#include "vector_functions.h"\n#include <math.h>\n',
        "src/m.cu": '#include "vector_functions.h"\n',
        "inc/vector_functions.h": "",
        "inc/math.h": "",
    }
    project(tmp_path, files)
    assert find(tmp_path, "src/k.cu").flags == (f"-I{tmp_path}/inc",)
    (tmp_path / "Makefile").unlink()
    assert find(tmp_path, "src/m.cu").flags == ()


def test_a_header_of_a_name_that_the_toolkit_no_longer_has(tmp_path: Path) -> None:
    project(
        tmp_path,
        {
            "k.cu": '#include "texture_fetch_functions.h"\n#include <common_types.h>\n',
            "inc/texture_fetch_functions.h": "",
            "other/common_types.h": "",
        },
    )
    made = find(tmp_path, "k.cu")
    assert (made.flags, [*made.missing]) == (
        ("-Xcompiler", "-iquote", "-Xcompiler", f"{tmp_path}/inc"),
        ["common_types.h"],
    )


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
    package = InstalledHeaders((f"{tmp_path}/{python}",)).package("torch/extension.h")
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
    package = InstalledHeaders((f"{tmp_path}/py",)).package(name)
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


def test_a_standard_of_host_code_is_not_nvccs(tmp_path: Path) -> None:
    project(tmp_path, {"Makefile": "CXXFLAGS = -std=c++23\n%.o: %.cu\n\tg++ $(CXXFLAGS) -c $<\n", "k.cu": ""})
    assert not [flag for flag in find(tmp_path, "k.cu").flags if "std" in flag]


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
    [((), "python3 -m venv .venv && .venv/bin/python"), (("ROOT/venv/bin/python",), "ROOT/venv/bin/python")],
)
def test_a_missing_package_is_of_the_projects_own_python_though_it_is_not_started(
    tmp_path: Path, not_started: tuple[str, ...], named: str
) -> None:
    project(
        tmp_path,
        {
            "k.cu": "#include <nanobind/nanobind.h>\n",
            "venv/bin/python": "",
            "venv/lib/python3.12/site-packages/pip/__init__.py": "",
        },
    )
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
    project(tmp_path, {name: "%.o: %.cu\n" if name == "Makefile" else "", "k.cu": ""})
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
        "version.h is not found: the project's build makes it from version.in: configure the project, "
        "`cmake -S . -B build -DCMAKE_EXPORT_COMPILE_COMMANDS=ON`"
    )


@pytest.mark.parametrize(
    ("include", "files", "message"),
    [
        ("<cutlass/cutlass.h>", {".gitmodules": '[submodule "cutlass"]\n\tpath = 3rdparty/cutlass\n\turl = https://github.com/NVIDIA/cutlass.git\n'}, "it is in the submodule 3rdparty/cutlass, which is not checked out: git submodule update --init 3rdparty/cutlass"),
        ('"version.h"', {"src/version.h.in": ""}, 'the project\'s build makes it from src/version.h.in: configure the project (cmake -B build), or name its folder: nvcc_flags = ["-I<folder>"]'),
        ("<thrust/async/copy.h>", {}, "CUDA 13 removed it: change the code, or name an older compiler with the setting `nvcc`"),
        ("<nvToolsExt.h>", {}, "CUDA 13 has no NVTX 2: include <nvtx3/nvToolsExt.h> instead"),
        ("<Eigen/Dense>", {}, "it comes with Eigen: apt install libeigen3-dev"),
        ('"ops/fast.h"', {"other/fast.h": "", "src/far/fast.h": ""}, 'nearest in the workspace: src/far/fast.h, other/fast.h: correct the path, or build the project once if its build copies headers, or name its folder: nvcc_flags = ["-I<folder>"]'),
        ('"nowhere.h"', {}, 'no file of this name is in the workspace, the CUDA toolkit or the packages of /py/bin/python: a library that is not installed has it, or the project\'s build makes it: install the library, or build the project once, or name its folder: nvcc_flags = ["-I<folder>"]'),
    ],
)  # fmt: skip
def test_what_provides_a_header_that_is_nowhere(
    tmp_path: Path, include: str, files: dict[str, str], message: str
) -> None:
    project(tmp_path, files | {"src/k.cu": f"#include {include}\n"})
    made = find(tmp_path, "src/k.cu", python="/py/bin/python")
    assert made.missing == {include[1:-1]: message}


@pytest.mark.parametrize(
    "name",
    ["cuda_utils.h", "device_helpers.h", "host_pool.h", "driver_table.h", "cublas_helper.h", "curand_states.h", "npp_util.h",
     "sm_90_tiles.hpp", "cuda/common.h", "nv/defs.h", "cudnn_wrapper.h", "nccl_utils.h", "helper_mine.h"],
)  # fmt: skip
def test_a_projects_own_header_may_be_called_as_if_it_were_the_toolkits(tmp_path: Path, name: str) -> None:
    files = {"lib/k.cu": f'#include "{name}"\n', f"inc/{name}": "", ".git/HEAD": ""}
    check(tmp_path, files, f"-Iinc\n{FOUND}\ninc: it has {name}, which lib/k.cu includes", "lib/k.cu")
    (tmp_path / "inc" / name).unlink()
    made = find(tmp_path, "lib/k.cu")
    assert made.missing[name].startswith("no file of this name is in the workspace")


def test_the_toolkits_own_headers_are_its(tmp_path: Path) -> None:
    """Also where the toolkit is installed without them: a workspace's copy is for another platform, or another release."""
    names = (
        "cublas_v2.h",
        "curand_kernel.h",
        "nppi_support_functions.h",
        "cuda_fp16.h",
        "cub/cub.cuh",
        "cuda/std/tuple",
    )
    files = {"k.cu": "".join(f"#include <{name}>\n" for name in names)} | {
        f"shim/{name}": "" for name in names
    }
    project(tmp_path, files)
    assert "shim" not in " ".join(find(tmp_path, "k.cu").flags)


def test_a_header_behind_a_byte_order_mark(tmp_path: Path) -> None:
    files = {"k.cu": '#include "lib/m.h"\n', "lib/m.h": "\ufeff#include <n.h>\n", "inc/n.h": ""}
    project(tmp_path, files)
    assert find(tmp_path, "k.cu").missing == {}
    assert f"-I{tmp_path}/inc" in find(tmp_path, "k.cu").flags


def test_a_package_that_cmake_looks_for(tmp_path: Path) -> None:
    files = {
        "CMakeLists.txt": "find_package(Acme_Solver REQUIRED)\n",
        "k.cu": "#include <acme_solver/solve.h>\n#include <acme/other.h>\n",
        ".gitmodules": "[submodule]\npath = ext/opts\nurl = https://example.org/opts\n",
    }
    project(tmp_path, files)
    missing = find(tmp_path, "k.cu").missing
    assert missing["acme_solver/solve.h"].startswith(
        "it comes with Acme_Solver, which CMakeLists.txt looks for: install it"
    )
    assert missing["acme/other.h"].startswith("no file of this name is in the workspace")


@pytest.mark.skipif(not installed.default_nvcc(), reason="needs a CUDA toolkit")
def test_a_header_of_another_cccl(tmp_path: Path) -> None:
    project(tmp_path, {"k.cu": "#include <cub/iterator/of_old.cuh>\n#include <code/{{ name }}.h>\n"})
    missing = find(tmp_path, "k.cu").missing
    assert missing["cub/iterator/of_old.cuh"].startswith("the CUDA toolkit's CCCL has no such header")
    assert missing["code/{{ name }}.h"].startswith("the file is a template")


MADE = {
    "by a script of Python": ("tools/gen.py", "with open(OUT / 'params.h', 'w') as f:\n    f.write('#define N 4')\n", "tools/gen.py writes it: run that, "),
    "by a shell": ("gen.sh", "./gen > include/params.h\n", "gen.sh writes it: run that, "),
    "by make": ("Makefile", "k.o: k.cu params.h\n\tnvcc -c $<\nparams.h: gen\n\t./gen > $@\n", "make writes it, as Makefile says: build the project once, "),
    "by CMake": ("cmake/gen.cmake", "add_custom_command(OUTPUT params.h COMMAND gen)\n", "the project's build makes it, as cmake/gen.cmake says: build the project once, "),
    "with what is downloaded": ("CMakeLists.txt", "FetchContent_Declare(params GIT_REPOSITORY x)\n", "the project's build downloads params, as CMakeLists.txt says: configure the project (cmake -B build), "),
    "with something that is downloaded": ("CMakeLists.txt", "CPMAddPackage(\n  NAME other\n)\n", "it may come with what the project's build downloads, as CMakeLists.txt says (other): configure the project (cmake -B build), "),
    "by nobody": ("tools/read.py", "names = ['params.h']\n", "no file of this name is in the workspace"),
    "another one": ("gen.sh", "./gen > my_params.h\n", "no file of this name is in the workspace"),
}  # fmt: skip


@pytest.mark.parametrize("name", MADE)
def test_what_of_the_project_makes_a_header(tmp_path: Path, name: str) -> None:
    file, text, remedy = MADE[name]
    project(tmp_path, {file: text, "k.cu": '#include "params.h"\n'})
    assert find(tmp_path, "k.cu").missing["params.h"].startswith(remedy)


FILLED = {
    "a template": ("run.py", "RawKernel(open('k.cu').read().replace('_N_', str(n)))\n", '; run.py puts it in before it has the file compiled: name a value to compile it here: nvcc_flags = ["-D_N_=<value>"]'),
    "a macro": ("sub/build.py", "run(['nvcc', f'-D_N_={n}', '../k.cu'])\n", '; sub/build.py puts it in before it has the file compiled: name a value to compile it here: nvcc_flags = ["-D_N_=<value>"]'),
    "of another file": ("run.py", "RawKernel(open('other.cu').read().replace('_N_', str(n)))\n", '; no build file or script of the project names this file: if it is a part of another one, compile that; for a value, nvcc_flags = ["-D_N_=<value>"]'),
    "a Makefile for others": ("Makefile", "o.o: o.cu\n\tnvcc -c $<\n", '; no build file or script of the project names this file: if it is a part of another one, compile that; for a value, nvcc_flags = ["-D_N_=<value>"]'),
    "a Makefile for all": ("Makefile", "%.o: %.cu\n\tnvcc -c $<\n", "; `bear -- make -B` writes the build's flags for orbit-lsp, if it has some for this"),
    "a Makefile that calls others": ("Makefile", "all:\n\t$(MAKE) -C sub\n", "; `bear -- make -B` writes the build's flags for orbit-lsp, if it has some for this"),
}  # fmt: skip


@pytest.mark.parametrize("name", FILLED)
def test_who_gives_a_name_that_a_source_lacks(tmp_path: Path, name: str) -> None:
    file, text, remedy = FILLED[name]
    project(tmp_path, {file: text, "k.cu": "__global__ void k(int* x) { *x = _N_; }\n"})
    path = f"{tmp_path}/k.cu"
    lacks = Problem("error", 'identifier "_N_" is undefined', "nvcc", Place(path, 1, 1))
    (shown,) = compiler_messages.explained((lacks,), path, "", find(tmp_path, "k.cu"))
    assert shown.message == lacks.message + remedy


def test_a_name_in_small_letters_is_no_value_of_a_build(tmp_path: Path) -> None:
    project(tmp_path, {"k.cu": ""})
    lacks = Problem("error", 'identifier "rows" is undefined', "nvcc", Place(f"{tmp_path}/k.cu", 1, 1))
    (shown,) = compiler_messages.explained((lacks,), f"{tmp_path}/k.cu", "", find(tmp_path, "k.cu"))
    assert shown.message == lacks.message


def test_an_include_of_a_path_of_another_machine() -> None:
    for path, remedy in (
        ("/opt/cuda-9/include/cuda_runtime.h", "include <cuda_runtime.h>, which every nvcc finds"),
        ("/home/me/x.h", "include the file by its name, or name"),
        (r"C:\CUDA\v7.5\include\cuda.h", "include <cuda.h>, which every nvcc finds"),
    ):
        gone = Problem("error", f"{path}: No such file or directory", "host compiler", Place("/p/k.cu", 1, 1))
        (shown,) = compiler_messages.explained(
            (gone,), "/p/k.cu", "", Compilation(database_command="`bear -- make -B`")
        )
        assert shown.message.startswith(f"{path} is not found: the path is of another machine: {remedy}")
        assert "bear" not in shown.message


@pytest.mark.parametrize(
    ("files", "step"),
    [
        (("configure", "other/CMakeLists.txt"), "./configure"),
        (("sub/configure",), "cd sub && ./configure"),
        (("autogen.sh", "configure.ac"), "./autogen.sh && ./configure"),
        (("configure.ac", "Makefile.am"), "autoreconf -i && ./configure"),
        (("sub/CMakeLists.txt",), "cmake -B build"),
        (("CMakeLists.txt", "other/Makefile.am"), "cmake -B build"),
    ],
)
def test_how_a_project_is_configured_that_makes_a_header_from_a_template(
    tmp_path: Path, files: tuple[str, ...], step: str
) -> None:
    project(
        tmp_path,
        {
            **dict.fromkeys(files, "configure_file(conf/own.h.in own.h)\n"),
            "sub/x/Makefile": "",
            "sub/conf/own.h.in": "",
            "sub/x/k.cu": "#include <own.h>\n",
        },
    )
    why = find(tmp_path, "sub/x/k.cu").missing["own.h"]
    assert why.startswith(
        f"the project's build makes it from sub/conf/own.h.in: configure the project ({step}), or"
    )


def test_a_copy_for_another_system_is_not_meant(tmp_path: Path) -> None:
    project(tmp_path, {"k.cu": "#include <curl/curl.h>\n", "compat/curl-for-windows/include/curl/curl.h": ""})
    made = find(tmp_path, "k.cu")
    assert made.flags == ()
    assert made.missing["curl/curl.h"].startswith("it comes with libcurl: apt install libcurl4-openssl-dev")


def test_a_submodule_is_known_by_the_words_of_a_headers_name(tmp_path: Path) -> None:
    modules = '[submodule "SlabAlloc"]\n\tpath = SlabAlloc\n\turl = https://example.org/SlabAlloc\n'
    project(tmp_path, {".gitmodules": modules, "k.cu": '#include "slab_alloc.cuh"\n'})
    assert (
        find(tmp_path, "k.cu")
        .missing["slab_alloc.cuh"]
        .startswith("it is in the submodule SlabAlloc, which is not")
    )


@pytest.mark.parametrize(
    ("definitions", "flags"),
    [
        ("target_compile_definitions(lib PUBLIC REAL=${REAL})\n", ("-DREAL=64",)),
        (
            "target_compile_definitions(lib PUBLIC REAL=64)\ntarget_compile_definitions(app PUBLIC REAL=32)\n",
            (),
        ),
        ("target_compile_definitions(lib PUBLIC OTHER=64)\n", ()),
    ],
)
def test_a_value_without_which_a_header_is_an_error_is_that_of_the_targets(
    tmp_path: Path, definitions: str, flags: tuple[str, ...]
) -> None:
    files = {
        "CMakeLists.txt": 'set(REAL "64" CACHE STRING "Size.")\nadd_library(lib a.cu)\nadd_executable(app b.cu)\n'
        + definitions,
        "k.cuh": "#if REAL == 32\n#elif REAL == 64\n#else\n#error REAL\n#endif\n",
    }
    project(tmp_path, files)
    assert find(tmp_path, "k.cuh").flags == flags


@pytest.mark.parametrize(
    "says",
    [
        "install(FILES ${CMAKE_SOURCE_DIR}/../src/a.cu DESTINATION x)\n",
        "if(WIN32)\nadd_library(W ../src/a.cu)\nendif()\n",
        "add_custom_command(OUTPUT a.ptx COMMAND nvcc -ptx ${CMAKE_SOURCE_DIR}/../src/a.cu)\n",
    ],
)
def test_a_cmake_file_beside_the_source_that_has_it_in_no_target(tmp_path: Path, says: str) -> None:
    project(tmp_path, {"src/a.cu": "", "cmake/CMakeLists.txt": f"project(P LANGUAGES CXX CUDA)\n{says}"})
    assert find(tmp_path, "src/a.cu").flags == ()


@pytest.mark.parametrize(
    ("files", "header", "says"),
    [
        (
            {"configure.ac": "AC_CONFIG_HEADERS([config.h])\n", "autogen.sh": "", "tools/Makefile.am": "own.h: $(top_builddir)/config.h\n\tsed p <$< >$@\n"},
            "config.h",
            "configure writes it, as configure.ac says: ./autogen.sh && ./configure there",
        ),
        ({"Makefile": "k.o: k.cu gone.h\n\tnvcc -c $<\n"}, "gone.h", "no file of this name is in the workspace"),
        ({"meson.build": "project('p', meson_version : '>=0.56')\ncc.has_header('gone.h')\n"}, "gone.h", "no file of this name"),
        ({"meson.build": "configure_file(output : 'made.h', configuration : c)\nx = '>'\n"}, "made.h", "Meson writes it, as meson.build says: meson setup build"),
        (
            {"CMakeLists.txt": "find_package(CUDA 8.0)\nfind_package(cuda-api-wrappers 0.3)\nadd_executable(k k.cu)\n"},
            "cuda/api_wrappers.hpp",
            "it comes with cuda-api-wrappers, which CMakeLists.txt looks for",
        ),
        ({"Makefile": "all:\n\tnvcc -I${DEDISP_DIR}/include m.cu\n"}, "dedisp.h", "it comes with dedisp (-I${DEDISP_DIR}), as Makefile says: install that"),
        ({"Makefile": "all:\n\tnvcc m.cu -lcfitsio\n"}, "cfitsio/fits.h", "it comes with cfitsio (-lcfitsio), as Makefile says"),
        ({"CMakeLists.txt": "pkg_check_modules(WIDE wide)\n"}, "wide/x.h", "it comes with wide (pkg_check_modules(WIDE)), as CMakeLists.txt says"),
        ({"CMakeLists.txt": "project(p)\n", "other/context.hxx": ""}, "mgpu/context.hxx", "nearest in the workspace: other/context.hxx"),
        ({"Makefile": "all:\n\tnvcc m.cu -lm -lhelp\n"}, "helper.h", "no file of this name"),
        (
            {"CMakeLists.txt": "option(P_WITH_WALB x OFF)\nFetchContent_Declare(walb GIT)\nFetchContent_Declare(b GIT)\nadd_library(k k.cu)\n"},
            "core/x.h",
            "it may come with what the project's build downloads, as CMakeLists.txt says (walb with -DP_WITH_WALB=ON, b): configure",
        ),
    ],
    ids=["autotools", "asked for by make", "asked for by meson", "made by meson", "CUDA's folder", "a folder", "a library", "a package", "another of that name", "another library", "an option"],
)  # fmt: skip
def test_who_makes_a_header_and_who_only_asks_for_it(
    tmp_path: Path, files: dict[str, str], header: str, says: str
) -> None:
    project(tmp_path, files | {"k.cu": f"#include <{header}>\n"})
    assert find(tmp_path, "k.cu").missing[header].startswith(says)


@pytest.mark.parametrize(
    ("name", "own"),
    [
        ("third_party/gpus/cuda/include/cuda_runtime.h", "cuda_runtime.h"),
        ("cuda/include/cuda_fp16.h", "cuda_fp16.h"),
        ("third_party/gpus/cuda/include/cub/cub.cuh", "cub/cub.cuh"),
        ("third_party/gpus/cuda/include/ours.h", ""),
        ("barracuda/include/cuda_fp16.h", ""),
        ("lib/cuda_fp16.h", ""),
    ],
)
def test_a_name_that_leads_into_the_toolkit_by_a_link_of_the_build(
    tmp_path: Path, name: str, own: str
) -> None:
    project(tmp_path, {"k.cu": f'#include "{name}"\n'})
    made = find(tmp_path, "k.cu")
    assert list(made.missing) == ([] if own else [name])
    if own:
        (folder,) = [flag[2:] for flag in made.flags if flag.startswith("-I")]
        assert Path(folder, name).read_text() == f"#include <{own}>\n"


def test_a_header_of_a_template_is_that_of_a_build_with_cuda(tmp_path: Path) -> None:
    build = "set(P_OFF_CUDA OFF)\nconfigure_file(c.h.in c.h)\nadd_library(k k.cu)\n"
    template = "#cmakedefine P_TARGET_CUDA\n#cmakedefine P_OFF_CUDA\n#cmakedefine P_HIP\n"
    project(tmp_path, {"CMakeLists.txt": build, "c.h.in": template, "k.cu": '#include "c.h"\n'})
    (folder,) = [flag[2:] for flag in find(tmp_path, "k.cu").flags if flag.startswith("-I")]
    made = Path(folder, "c.h").read_text()
    assert made == "#define P_TARGET_CUDA\n/* #undef P_OFF_CUDA */\n/* #undef P_HIP */\n"


@pytest.mark.parametrize(
    ("template", "made"),
    [
        ("#if @ON@\n#endif\n", True),
        ("#if @NOBODY@\n#endif\n", False),
        ("#  elif @DOUBT@ // x\n", False),
        ("#define N @NOBODY@\n", True),
        ("  @NOBODY@\n", False),
        ("@ON@\n", True),
        ("/* by @NOBODY@ */\n", True),
    ],
)
def test_a_template_whose_code_nothing_decides_is_not_made(
    tmp_path: Path, template: str, *, made: bool
) -> None:
    build = "set(ON 1)\nif(X)\nset(DOUBT 1)\nendif()\nconfigure_file(c.h.in c.h)\nadd_library(k k.cu)\n"
    project(tmp_path, {"CMakeLists.txt": build, "c.h.in": template, "k.cu": '#include "c.h"\n'})
    found = find(tmp_path, "k.cu")
    assert (list(found.missing), list(found.made)) == (([], ["c.h"]) if made else (["c.h"], []))


def test_flags_of_messages_are_not_listed_as_left_out(tmp_path: Path) -> None:
    flags = "--diag_suppress=177 --Werror=all-warnings -pg -DA --dopt=on"
    project(tmp_path, {"Makefile": f"k.o: k.cu\n\tnvcc {flags} -c $<\n", "k.cu": ""})
    made = find(tmp_path, "k.cu")
    assert (made.flags, [each.what for each in made.left_out]) == (("-DA",), ["--dopt=on"])


@pytest.mark.parametrize(
    ("header", "remedy"),
    [
        ("CL/cl.h", "it comes with OpenCL's headers"),
        ("CL/sycl.hpp", "it belongs to OpenCL or SYCL"),
        ("arrayobject.h", "it comes with NumPy"),
        ("CLI/CLI.hpp", "it comes with CLI11"),
        ("custatevec.h", "it comes with cuQuantum"),
        ("fst/types.h", "it comes with OpenFst"),
        ("mex.h", "it comes with MATLAB"),
        ("fitsio.h", "it comes with CFITSIO: apt install libcfitsio-dev"),
        ("tclap/CmdLine.h", "it comes with TCLAP"),
        ("third_party/gpus/cudnn/cudnn.h", "it comes with cuDNN"),
        ("shrUtils.h", "this CUDA release has removed it"),
        ("Rcpp.h", "it comes with Rcpp: apt install r-cran-rcpp"),
        ("RcppArmadillo.h", "it comes with RcppArmadillo: apt"),
        ("ffnvcodec/dynlink_loader.h", "it comes with nv-codec-headers"),
    ],
)
def test_packages_of_host_code(header: str, remedy: str) -> None:
    assert missing.provider(header, "/py").startswith(remedy)


@pytest.mark.parametrize(("header", "there"), [("cub/cub.cuh", True), ("thrust/of_old.h", False)])
def test_a_submodule_of_cub_has_no_header_of_thrust(tmp_path: Path, header: str, *, there: bool) -> None:
    project(tmp_path, {".gitmodules": '[submodule "cub"]\n\tpath = cub\n\turl = https://example.org/cub\n'})
    why = missing.explain(header, "", Headers(str(tmp_path)), missing.submodules(str(tmp_path)), "/py")
    assert why.startswith("it is in the submodule cub") == there
