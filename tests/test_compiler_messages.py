"""What compilers say, with what to do about it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from orbit_lsp.compilation import compiler_messages
from orbit_lsp.state.compilation import Compilation, Reason
from orbit_remote.common.messages import Note, Place, Problem
from tests.compilation_check import project
from tests.remote.nvcc_check import lines_of


@pytest.mark.parametrize(
    "message",
    [
        "Instruction 'cvt with .e2m1x2' not supported on .target 'sm_90a'",
        "Feature '.multicast::cluster' requires .target sm_90 or higher",
        "Instruction 'wgmma.fence' cannot be compiled for architecture 'sm_90'",
    ],
)
def test_an_instruction_of_another_gpu_says_how_that_gpu_is_named(message: str) -> None:
    problem = Problem("error", message, "ptxas", Place("/p/k.cu", 3, 1))
    (shown,) = compiler_messages.explained((problem,), "/p/k.cu", "", Compilation())
    assert shown.message.startswith(f"{message}; it is for another GPU than the file is compiled for: name")


def test_arithmetic_of_half_that_torch_forbids_says_which_flags_allow_it() -> None:
    problem = Problem("error", 'no suitable constructor exists to convert from "float" to "__half"', "nvcc")
    for flags, said in ((("-D__CUDA_NO_HALF_OPERATORS__",), True), ((), False)):
        (shown,) = compiler_messages.explained((problem,), "/p/k.cu", "", Compilation(flags=flags))
        assert ('nvcc_flags = ["-U__CUDA_NO_HALF_OPERATORS__"]' in shown.message) == said


@pytest.mark.parametrize(
    ("target", "why"),
    [
        ("compute_70", "CUDA 13 and newer have no code for it"),
        ("compute_130", "this compiler does not know it"),
    ],
)
def test_an_architecture_that_the_compiler_lacks_says_what_to_do(target: str, why: str) -> None:
    problem = Problem("error", f"Unsupported gpu architecture '{target}'", "nvcc")
    (said,) = compiler_messages.explained((problem,), "/p/k.cu", "", Compilation())
    assert said.message.startswith(
        f"{problem.message}; {why}: choose another GPU (setting `gpu`, option --gpu)"
    )


@pytest.mark.parametrize("named", [True, False])
def test_a_source_of_no_build_may_be_a_part_of_another_project(*, named: bool) -> None:
    problem = Problem("error", "utils.h: No such file or directory", "host compiler", Place("/p/k.cu", 1, 1))
    made = Compilation(
        missing={"utils.h": "no file of this name is in the workspace, the CUDA toolkit or …"}, named=named
    )
    (shown,) = compiler_messages.explained((problem,), "/p/k.cu", "", made)
    assert ("it may be a part of another project, or name its folder" in shown.message) != named


def explain(text: str, problems: list[Problem], missing: dict[str, str] | None = None) -> list[str]:
    made = Compilation(missing=missing or {}, root="/p", python="/py")
    return lines_of(compiler_messages.explained(tuple(problems), "/p/k.cu", text, made), "/p")


def test_a_missing_header_names_itself_and_its_remedy() -> None:
    here = Place("/p/k.cu", 1, 10, 20)
    gone = Problem("error", "a/gone.h: No such file or directory", "host compiler", here)
    deep = replace(gone, place=Place("/opt/lib/x.h", 7), notes=(Note("in file included from here", here),))
    edg = Problem("error", 'cannot open source file "Python.h"', "nvcc", here)
    assert explain("#include <a/gone.h>\n", [gone, deep, edg], {"a/gone.h": "do this"}) == [
        "k.cu:1:10-20 error host compiler a/gone.h is not found: do this",
        "k.cu:1:10-20 error host compiler a/gone.h is not found: do this",
        "  /opt/lib/x.h:7 a/gone.h is not found",
        "  k.cu:1:10-20 in file included from here",
        "k.cu:1:10-20 error nvcc Python.h is not found: it comes with Python's headers: apt install python3-dev",
    ]


@pytest.mark.parametrize(
    ("message", "end"),
    [
        ('identifier "__shfl_xor" is undefined', "; since CUDA 9 it is __shfl_xor_sync, whose first argument is the mask of lanes: 0xffffffff for all"),
        ('function "atomicAdd(double *, double)" has already been defined', "; CUDA has atomicAdd itself for this GPU: put the project's own in #if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 600"),
        ('identifier "FLT_MIN" is undefined', "; it comes with <cfloat>: include that"),
        ('identifier "UINT_MAX" is undefined', "; it comes with <climits>: include that"),
        ('identifier "uint32_t" is undefined', "; it comes with <cstdint>: include that"),
        ('no instance of overloaded function "atomicAdd" matches the argument list\nargument types are: (long long *, const long long)', "; CUDA has no such function of signed 64-bit integers: cast the pointer to unsigned long long*"),
        ('no suitable conversion function from "const at::DeprecatedTypeProperties" to "c10::ScalarType" exists', "; torch takes no .type() there any more: write .scalar_type()"),
        ("Unresolved extern function 'twice'", '; if another file defines it, set nvcc_flags = ["-rdc=true"]'),
        ("kernel launch from __device__ or __global__ functions requires separate compilation mode", '; set nvcc_flags = ["-rdc=true"]'),
        ("The experimental flag '--expt-relaxed-constexpr' can be used to allow this.", ' Set nvcc_flags = ["--expt-relaxed-constexpr"].'),
        ("__device__ annotation on lambda requires --extended-lambda nvcc flag", '; set nvcc_flags = ["--extended-lambda"]'),
        ('identifier "concept" is undefined', '; it is C++20: set nvcc_flags = ["-std=c++20"]'),
        ('"nvtx3::domain" is ambiguous', "; CUDA 13 has NVTX's C++ headers itself: remove the project's copy, or name an older compiler with the setting `nvcc`"),
        ("Call to '_optix_get_launch_index_x' requires call prototype", "; it is a device program of OptiX, which OptiX itself assembles when it loads it: the compiler has no figures"),
        ('class "cudaDeviceProp" has no member "computeMode"', "; CUDA 13 removed it: change the code, or name an older compiler with the setting `nvcc`"),
        ("#error The version of CUB in your include path is not compatible with this release of Thrust.", "; the project has an old CUB of its own: leave its folder out, as CUDA has CUB itself, or name an older compiler with the setting `nvcc`"),
        ('namespace "thrust" has no member "gather"', "; include <thrust/gather.h>, which other headers of CUDA 13 do no more"),
        ('namespace "thrust" has no member "min_element"', "; include <thrust/extrema.h>, which other headers of CUDA 13 do no more"),
        ('namespace "thrust" has no member "unary_function"', "; CUDA 13 removed it: change the code, or name an older compiler with the setting `nvcc`"),
        ('calling a __host__ function("cudaDeviceSynchronize") from a __global__ function("k") is not allowed', "; CUDA 12 and newer have none in device code: give what comes after it to a kernel that is launched into cudaStreamTailLaunch"),
        ('identifier "int_as_float" is undefined', "; CUDA 13 removed it: change the code, or name an older compiler with the setting `nvcc`"),
        ('identifier "nppiFilterGauss_8u_C1R" is undefined', "; CUDA 13 removed it: change the code, or name an older compiler with the setting `nvcc`"),
        ('identifier "cudnnGetConvolutionForwardAlgorithm" is undefined', "; cuDNN 9 has it no more: change the code, or install an older cuDNN"),
        ('argument of type "int" is incompatible with parameter of type "CUctxCreateParams *"', "; CUDA 13 changed it: cuCtxCreate takes a CUctxCreateParams* before the flags, which may be nullptr. Change the code, or name an older compiler with the setting `nvcc`"),
        ('identifier "cusparseScsrmv" is undefined', "; CUDA 13 removed it: change the code, or name an older compiler with the setting `nvcc`"),
        ('no suitable constructor exists to convert from "const int" to "cudaMemLocation"', "; CUDA 13 changed it: a device is now a cudaMemLocation, as in cudaMemLocation{cudaMemLocationTypeDevice, 0}. Change the code, or name an older compiler with the setting `nvcc`"),
        ("dynamic exception specifications are not permitted in this mode", "; C++17 has none, and CUDA 13's headers need C++17: write noexcept(false) or nothing, or name an older compiler with the setting `nvcc`"),
        ('invalid redeclaration of type name "int64_t" (declared at line 27 of /usr/include/stdint.h)', "; <cstdint> declares int64_t, and CUDA's own headers include it: NVRTC alone needs a declaration, in #ifdef __CUDACC_RTC__"),
        ("expected a ;", ""),
    ],
)  # fmt: skip
def test_errors_that_a_flag_or_another_release_answers(message: str, end: str) -> None:
    problem = Problem("error", message, "nvcc", Place("/p/k.cu", 1))
    first, line_end, rest = message.partition("\n")
    lines = f"k.cu:1 error nvcc {first}{end}{line_end}    {rest}".rstrip().split("\n")
    assert explain("", [problem]) == lines


def test_an_error_in_somebody_elses_header_stands_at_the_authors_line() -> None:
    text = "// #include <lib/x.h>\n#include <vector>\n#include <lib/x.h>\n"
    bad = Problem("error", "no operator matches", "nvcc", Place("/opt/lib/x.h", 7, 3))
    worse = Problem("error", "expected a ;", "nvcc", Place("/opt/lib/x.h", 9))
    deep = Problem(
        "error", "incomplete type", "nvcc", Place("/opt/lib/y.h", 1),
        notes=(Note("detected during z", Place("/opt/lib/x.h", 2)), Note("detected during f", Place("/p/own.cuh", 4))),
    )  # fmt: skip
    warning = Problem("warning", "unused", "nvcc", Place("/opt/lib/x.h", 7))
    assert explain(text, [bad, worse, deep, warning]) == [
        f"k.cu:3:10-19 error nvcc no operator matches{compiler_messages.NOT_YOURS}",
        "  /opt/lib/x.h:7:3 no operator matches",
        "  /opt/lib/x.h:9 expected a ;",
        "own.cuh:4 error nvcc incomplete type",
        "  /opt/lib/y.h:1 incomplete type",
        "  /opt/lib/x.h:2 detected during z",
        "  own.cuh:4 detected during f",
        "/opt/lib/x.h:7 warning nvcc unused",
    ]


@pytest.mark.parametrize(("name", "advised"), [("widht", False), ("TILE_WIDTH", True), ("threads", True)])
def test_a_slip_of_the_pen_is_no_fault_of_the_build(name: str, *, advised: bool) -> None:
    text = f"__global__ void k(float* x, int width) {{ x[{name}] = 1; }}"
    problem = Problem("error", f'identifier "{name}" is undefined', "nvcc", Place("/p/k.cu", 1, 1))
    compilation = Compilation(database_command="`bear -- make -B`")
    (shown,) = compiler_messages.explained((problem,), "/p/k.cu", text, compilation)
    assert ("bear -- make" in shown.message) == advised


@pytest.mark.parametrize(
    ("file", "name", "database", "advised"),
    [
        ("/p/own.h", "LUMA_R", "", True),
        ("/p/own.h", "LUMA_R", "/p/compile_commands.json", False),  # which has all macros
        ("/p/own.h", "widht", "", False),
        ("/p/k.cu", "LUMA_R", "", False),
    ],
)
def test_a_name_that_a_header_lacks_may_be_a_macro_of_the_build(
    file: str, name: str, database: str, *, advised: bool
) -> None:
    problem = Problem("error", f'identifier "{name}" is undefined', "nvcc", Place(file, 7, 3))
    compilation = Compilation(root="/p", database=database)
    (shown,) = compiler_messages.explained((problem,), "/p/k.cu", "int width;", compilation)
    remedy = (
        f'; if the project\'s build defines it as a macro, name it too: nvcc_flags = ["-D{name}=<value>"]'
    )
    assert shown.message == problem.message + remedy * advised


@pytest.mark.parametrize(
    ("text", "named", "advised"),
    [
        ("__global__ void k(real* x) {}", False, True),
        ("__global__ void k(real* x) {}", True, False),
        ("#include <cstdio>\n__global__ void k(real* x) {}", False, False),
        ("struct reel {};\n__global__ void k(real* x) {}", False, False),
    ],
)
def test_a_file_that_includes_nothing_and_that_no_build_names_may_be_a_part(
    text: str, *, named: bool, advised: bool
) -> None:
    problem = Problem("error", 'identifier "real" is undefined', "nvcc", Place("/p/k.cu", 1, 1))
    (shown,) = compiler_messages.explained((problem,), "/p/k.cu", text, Compilation(named=named))
    assert ("if it is a part of another one, compile that" in shown.message) == advised


@pytest.mark.parametrize(
    ("text", "message", "advised"),
    [
        ('\n#[version = "0.0.5"]\n@main = primfn() {}\n', "invalid preprocessing directive #[", "text of another language"),
        ("// x\n@main = primfn() {}\n", "unrecognized token", "text of another language"),
        ("@main\n__global__ void k() {}\n", "unrecognized token", ""),
        ("version https://git-lfs.github.com/spec/v1\nsize 12\n", 'identifier "version" is undefined', "git lfs pull"),
        ("<!DOCTYPE html>\n<html>\n", "expected a declaration", "HTML"),
        ("//\n.version 8.0\n.target sm_80\n", "expected a declaration", "call it .ptx"),
        ("<<<<<<< HEAD\n__global__ void k();\n=======\n", "expected a declaration", "choose one"),
        ("{% for n in sizes %}\n__global__ void k{{ n }}();\n", "expected a declaration", "template"),
        ("../other/k.cu", "expected a declaration", "core.symlinks"),
        ("from tvm import te\n", 'identifier "from" is undefined', "call it .py"),
        ("import std;\n", 'identifier "import" is undefined', ""),
        ("int x;\n", "expected a declaration", ""),
    ],
)  # fmt: skip
def test_a_file_that_is_no_cuda_says_what_it_is(text: str, message: str, advised: str) -> None:
    lines = [each.startswith("//") or not each for each in text.split("\n")]
    problem = Problem("error", message, "nvcc", Place("/p/k.cu", 1 + lines.index(False), 1))
    (shown,) = compiler_messages.explained((problem,), "/p/k.cu", text, Compilation())
    later = replace(problem, place=Place("/p/k.cu", 9, 1))
    assert advised in shown.message
    assert (shown != problem) == bool(advised)
    assert compiler_messages.explained((later,), "/p/k.cu", text, Compilation()) == (later,)


@pytest.mark.parametrize(
    ("message", "left_out", "advised"),
    [
        ("#error unsupported MODEL", ("-D<A or B>", "build.rs has it, and only the build knows its value"), '; build.rs has -D<A or B>, and only its run knows that: if this needs it, name it: nvcc_flags = ["-D<A or B>"]'),
        ("#error unsupported MODEL", ("what it gives nvcc for k.cu", "SConstruct has it, and only …"), '; SConstruct has what it gives nvcc for k.cu, and only its run knows that: if this needs it, name it: nvcc_flags = ["-D<name>=<value>"]'),
        ("#error unsupported MODEL", ("what `if(Debug)` sets of CUDA_NVCC_FLAGS", "CMakeLists.txt has it, and only …"), ""),
        ("expected a ;", ("-DN=$(N)", "Makefile has it, and only …"), ""),
    ],
)  # fmt: skip
def test_what_is_left_out_of_a_build_may_be_what_an_error_lacks(
    message: str, left_out: tuple[str, str], advised: str
) -> None:
    problem = Problem("error", message, "nvcc", Place("/p/k.cu", 1, 1))
    compilation = Compilation(left_out=(Reason(*left_out),))
    (shown,) = compiler_messages.explained((problem,), "/p/k.cu", "", compilation)
    assert shown.message == message + advised


@pytest.mark.parametrize(
    ("header", "required"),
    [
        ("#if !defined(N) || !defined (M_SIZE)\n#error N and M_SIZE are required\n#endif\n", ["N", "M_SIZE"]),
        ("#ifndef N\n\n#error no N\n#endif\n", ["N"]),
        ("#if defined(N)\n#error no N is meant\n#endif\n", []),
        ("#if N == 2\n#else\n#error another N\n#endif\n", []),
    ],
)
def test_an_error_of_macros_that_are_not_defined_names_them(
    tmp_path: Path, header: str, required: list[str]
) -> None:
    (tmp_path / "k.h").write_text(header)
    line = 1 + header[: header.index("#error")].count("\n")
    problem = Problem("error", "#error stop", "nvcc", Place(str(tmp_path / "k.h"), line, 1))
    (shown,) = compiler_messages.explained((problem,), "/p/k.cu", "", Compilation())
    values = ", ".join(f'"-D{name}=<value>"' for name in required)
    advised = f"; who compiles it defines {', '.join(required)}: name values: nvcc_flags = [{values}]"
    assert shown.message == "#error stop" + advised * bool(required)


def test_what_a_librarys_headers_make_of_a_missing_macro_is_one_note_of_it() -> None:
    macro = Problem("error", 'identifier "BLOCK" is undefined', "nvcc", Place("/p/k.cu", 3, 5))
    in_cub = Problem(
        "error",
        "no instance matches\nargument types are: (<error-type>, int)",
        "nvcc",
        Place("/opt/cub/x.h", 7),
    )
    deeper = Problem(
        "error", "incomplete type", "nvcc", Place("/opt/cub/y.h", 9),
        notes=(Note("detected during z<<error-constant>>", Place("/p/k.cu", 4)),),
    )  # fmt: skip
    other = Problem("error", "expected a ;", "nvcc", Place("/opt/cub/z.h", 9))
    text = "#include <cub/cub.cuh>\n"
    assert explain(text, [macro, in_cub, deeper]) == [
        'k.cu:3:5 error nvcc identifier "BLOCK" is undefined',
        "  /opt/cub/x.h:7 2 errors in libraries' headers only follow from it",
    ]
    assert explain(text, [macro, other])[1] == "k.cu:1:10-23 error nvcc expected a ;"  # one remedy only
    assert compiler_messages.NOT_YOURS in explain(text, [other, macro])[0]


def test_that_torch_is_built_without_cuda_goes_before_the_libraries_of_which_alone_nothing_comes() -> None:
    of_torch = Place("/v/torch/include/ATen/cuda/CUDAContextLight.h", 6)
    problem = Problem("error", "cusparse.h: No such file or directory", "host compiler", of_torch)
    without = Compilation(flags=("-isystem", "/v/torch/include"), python="/py")
    (shown,) = compiler_messages.explained(
        (problem,), "/p/k.cu", "#include <ATen/cuda/CUDAContext.h>\n", without
    )
    assert shown.message.startswith(
        "cusparse.h is not found: torch's headers include it, but the torch of /py is built without CUDA: install one"
    )
    own = replace(problem, place=Place("/p/k.cu", 1))
    (shown,) = compiler_messages.explained((own,), "/p/k.cu", "#include <cusparse.h>\n", without)
    assert shown.message.startswith(
        "cusparse.h is not found: the CUDA toolkit is installed without its libraries"
    )


MACROS = {
    "of the file": ("#define N 10\n#include <lib/size.h>\n", {}, "; N is a macro of k.cu:1 (#define N 10), and this header has something else of that name: rename the macro, or define it below this #include"),
    "of a header": ('#include "defs.h"\n#include <lib/size.h>\n', {"defs.h": "\n#define N 10\n"}, "; N is a macro of defs.h:2 (#define N 10), and"),
    "of a header in a folder": ("#include <defs.h>\n#include <lib/size.h>\n", {"inc/defs.h": "#define N 10\n"}, "; N is a macro of inc/defs.h:1 (#define N 10), and"),
    "of the header that includes the library": ('#include "defs.h"\n', {"defs.h": "#define N 10\n#include <lib/size.h>\n#define size 1\n"}, "; N is a macro of defs.h:1 (#define N 10), and"),
    "of a flag": ("#include <lib/size.h>\n", {}, "; N is a macro of the flag -DN=4, and this header has something else of that name: rename it"),
    "below it": ("#include <lib/size.h>\n#define N 10\n", {}, "; it is in a library's header"),
    "no longer": ("#define N 10\n#undef N\n#include <lib/size.h>\n", {}, "; it is in a library's header"),
    "another": ("#define M 10\n#include <lib/size.h>\n", {}, "; it is in a library's header"),
}  # fmt: skip


@pytest.mark.parametrize("name", MACROS)
def test_a_macro_of_the_projects_that_breaks_a_librarys_header(tmp_path: Path, name: str) -> None:
    text, files, advice = MACROS[name]
    project(tmp_path, {f"p/{file}": content for file, content in files.items()})
    project(tmp_path, {"opt/lib/size.h": "#pragma once\ntemplate <int N> struct size {};  // M\n"})
    top = tmp_path / "p"
    flags = (f"-I{top}/inc", *(("-DN=4",) if name == "of a flag" else ()))
    leads = (
        (Note("in file included from here", Place(f"{top}/defs.h", 2)),)
        if name.endswith("includes the library")
        else ()
    )
    problem = Problem(
        "error", "expected an identifier", "nvcc", Place(f"{tmp_path}/opt/lib/size.h", 2), notes=leads
    )
    made = Compilation(root=str(top), flags=flags)
    (shown,) = compiler_messages.explained((problem,), f"{top}/k.cu", text, made)
    assert shown.message.startswith(f"expected an identifier{advice}")


def test_a_macro_that_breaks_a_library_which_the_project_brings_along(tmp_path: Path) -> None:
    files = {
        "cutlass/size.h": "template <int N> struct size {};\n",
        "own/size.h": "template <int N> struct size {};\n",
    }
    project(tmp_path, files)
    text = "#define N 10\n#include <cutlass/size.h>\n#include <own/size.h>\n"
    for folder, blamed in (("cutlass", True), ("own", False)):
        problem = Problem("error", "expected an identifier", "nvcc", Place(f"{tmp_path}/{folder}/size.h", 1))
        (shown,) = compiler_messages.explained(
            (problem,), f"{tmp_path}/k.cu", text, Compilation(root=str(tmp_path))
        )
        assert ("; N is a macro of k.cu:1" in shown.message) == blamed
