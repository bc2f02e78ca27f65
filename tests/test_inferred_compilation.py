"""How a file of a project is compiled that has no compilation database: what build files and headers tell. Nothing is compiled here."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from orbit_lsp.compilation import compiler_messages, inference, installed
from orbit_lsp.compilation.installed import InstalledHeaders
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
