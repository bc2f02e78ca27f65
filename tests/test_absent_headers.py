"""Headers that a project without a compilation database lacks: who makes or provides them, and what is said of it. Nothing is compiled here."""

from __future__ import annotations

from pathlib import Path

import pytest

from orbit_lsp.compilation import compiler_messages, installed, missing
from orbit_lsp.compilation.headers import Headers
from orbit_lsp.state.compilation import Compilation
from orbit_remote.common.messages import Place, Problem
from tests.compilation_check import check, find, project
from tests.test_inferred_compilation import FOUND


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
