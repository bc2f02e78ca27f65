"""Files and small projects that were read wrongly once (projects/reported): what the command line says of each.

Each stands for its kind. An input goes in as it was reported, but for its comments.
"""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
from pathlib import Path

import pytest

from tests.cli_check import orbit
from tests.remote.nvcc_check import needs_nvcc

needs_triton = pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="no triton")
REPORTED = Path(__file__).parent / "projects" / "reported"


def brought(folder: Path, name: str) -> None:
    """The input `name`, alone in `folder`."""
    if (REPORTED / name).is_dir():
        shutil.copytree(REPORTED / name, folder, dirs_exist_ok=True)
    else:
        shutil.copy(REPORTED / name, folder)


def drawn(folder: Path, file: str, *options: str) -> str:
    """What an editor would draw: a line each of the first lens of a line, of its hints, and of its diagnostics."""
    _, out, _ = orbit(folder, "show", file, "--gpu", "H100", *options)
    lines: list[str] = []
    number, lens = "0", ""
    for line in out.splitlines():
        if numbered := re.match(r" *(\d+) (.*)", line):
            number = numbered[1]
            lines += [f"{number} {lens}"] if lens else []
            lens = ""
            hint = re.search(r"   ((?:\w+: )?(?:occ |⚠).*)$", numbered[2])
            lines += [f"{number} {each}" for each in hint[1].split("   ")] if hint else []
        elif message := re.match(r" +((?:error|warning|information|hint) .*)", line):
            lines.append(f"{number} {message[1]}")
        elif "▶" in line or "✎" in line:
            lens = "run" if "▶" in line else "draft"
    return "\n".join(lines)


@needs_nvcc
@pytest.mark.parametrize(
    ("file", "expected"),
    [
        (
            "x_macro.cu",
            """
5 draft
5 ew_add: occ 100% from 64 threads · 30 regs
5 ew_sub: occ 100% from 64 threads · 30 regs
5 ew_mul: occ 100% from 64 threads · 32 regs
6 draft
6 occ 100% · 8 regs · sm_90a
""",
        ),
        (
            "x_macro_semicolon.cu",
            """
4 draft
4 ew_add: occ 100% from 64 threads · 30 regs
4 ew_sub: occ 100% from 64 threads · 30 regs
4 ew_mul: occ 100% from 64 threads · 32 regs
5 draft
5 occ 100% · 8 regs · sm_90a
""",
        ),
        (
            "asm_lines.cu",
            """
7 draft
9 error ptxas: Not a name of any known instruction: 'bad1'
12 draft
16 error ptxas: Not a name of any known instruction: 'bad2'
21 draft
22 error ptxas: Not a name of any known instruction: 'bad3'
25 draft
30 error ptxas: Unknown modifier '.mma_asynk'
30 error ptxas: Not a name of any known instruction: 'wgmma'
43 draft
45 error ptxas: Not a name of any known instruction: 'bad5'
48 draft
51 error ptxas: Not a name of any known instruction: 'bad6'
""",
        ),
        (
            "asm_inlined.cu",
            """
8 error ptxas: Not a name of any known instruction: 'addd'
13 draft
""",
        ),
        (
            "wgmma_serialized.cu",
            """
5 information ptxas C7519: warpgroup.arrive is injected by compiler to allow use of registers in GMMA in function 'serial'
8 draft
8 occ 100% from 64 threads · 30 regs
8 information ptxas C7511: Potential Performance Loss: wgmma.mma_async instructions are serialized due to insufficient register resources for the wgmma pipeline in the function 'serial'
11 information ptxas C7517: warpgroup.wait is injected by compiler to allow use of registers defined by GMMA in function 'serial'
12 information ptxas C7519: warpgroup.arrive is injected by compiler to allow use of registers in GMMA in function 'serial'
""",
        ),
        (
            "default_template_value.cu",
            """
3 warning orbit launch-spec: 'y' is used nowhere.
3 warning orbit launch-spec: 'i' is used nowhere.
5 run
5 occ 50% (blocks) · 8 regs · sm_90a
6 draft
7 draft
8 draft
9 draft
10 draft
10 occ 100% from 64 threads · 8 regs
11 draft
11 occ 100% from 64 threads · 8 regs
12 draft
""",
        ),
        (
            "default_template_type.cu",
            """
3 draft
4 draft
5 warning orbit launch-spec: 'y' is used nowhere.
5 warning orbit launch-spec: 'i' is used nowhere.
7 run
7 occ 50% (blocks) · 8 regs · sm_90a
8 draft
9 draft
10 draft
10 occ 100% from 64 threads · 8 regs
11 draft
11 occ 100% from 64 threads · 8 regs
12 draft
""",
        ),
        (
            "parameter_pack.cu",
            """
3 draft
4 draft
5 draft
6 warning orbit launch-spec: 'y' is used nowhere.
8 run
8 occ 50% (blocks) · 4 regs · sm_90a
9 draft
10 draft
10 occ 100% from 64 threads · 8 regs
11 draft
11 occ 100% from 64 threads · 8 regs
12 draft
""",
        ),
        (
            "by_value.cu",
            """
3 run
3 occ 50% (blocks) · 8 regs · sm_90a
6 run
6 occ 50% (blocks) · 8 regs · sm_90a
8 error orbit launch-spec: 'x' is T, which takes a number, not a tensor (64,) of float32.
9 run
""",
        ),
        (
            "launch_attributes.cu",
            """
5 run
5 ⚠ cannot launch with 256 threads
5 warning orbit block-size: a launch with 256 threads a block would fail: 256 threads per block; the kernel's launch bound is 32
8 error orbit launch-spec: This block is 256 x 1 x 1; bs's __block_size__((64, 1, 1)) takes 64 x 1 x 1 only.
9 run
9 occ 100% · 8 regs · sm_90a
12 error orbit launch-spec: The grid is 3 in x, which clusters of 4 do not divide.
13 run
13 occ 100% · 8 regs · sm_90a
16 error orbit launch-spec: This cluster is 2 x 1 x 1; both's __cluster_dims__(4, 1, 1) has 4 x 1 x 1 always.
17 run
17 occ 100% · 8 regs · sm_90a
20 error orbit launch-spec: This cluster has 8 blocks; lb3's __launch_bounds__ allows at most 4.
21 run
21 occ 100% · 8 regs · sm_90a
""",
        ),
        (
            "stringized.cu",
            """
4 warning nvcc #177-D: variable "one" was declared but never referenced
13 draft
13 occ 100% from 64 threads · 8 regs
14 draft
14 occ 100% from 64 threads · 8 regs
""",
        ),
        (
            "kernels_by_macro.cu",
            """
4 draft
4 occ 100% · 10 regs · sm_90a
8 draft
8 occ 100% · 8 regs · sm_90a
11 draft
11 occ 100% from 64 threads · 8 regs
""",
        ),
        (
            "not_rdc.cu",
            """
4 draft
4 error ptxas: Unresolved extern function 'elsewhere(float)'; if another file defines it, add --flag=-rdc=true
""",
        ),
        (
            "local_memory.cu",
            """
2 draft
2 occ 100% from 64 threads · 28 regs
2 warning orbit local-limit: each thread needs 1.14 MiB of local memory, and CUDA gives one at most 512 KiB: each launch would fail
""",
        ),
        (
            "a b.cu",
            """
2 draft
2 occ 100% from 64 threads · 8 regs
""",
        ),
    ],
)
@pytest.mark.slow
def test_what_is_drawn_in_a_file(tmp_path: Path, file: str, expected: str) -> None:
    brought(tmp_path, file)
    assert drawn(tmp_path, file) == expected.strip()


@needs_nvcc
@pytest.mark.parametrize(
    "text",
    [
        "__global__ void refused(float* x) { __shared__ float s[60000]; s[threadIdx.x] = x[0]; __syncthreads(); x[1] = s[3]; }\n",
        "__constant__ float c[20000];\n__global__ void reads(float* x) { x[0] = c[threadIdx.x]; }\n",
        'template <int N> __global__ void refused(float* x) { asm("bad;"); }\ntemplate __global__ void refused<1>(float*);\n',
        "__device__ float elsewhere(float);\n__global__ void calls(float* x) { x[0] = elsewhere(x[1]); }\n",
        "__device__ float f(float* x) { return x[0] ** 2; }\n",
    ],
    ids=["shared memory", "constants", "an instruction", "a function", "no C++"],
)
@pytest.mark.slow
def test_what_does_not_compile_has_no_figures(tmp_path: Path, text: str) -> None:
    """The compiler goes on behind some errors, and reports registers of what it refuses to make."""
    (tmp_path / "k.cu").write_text("__global__ void fine(float* x) { x[0] = 1; }\n" + text)
    code, out, err = orbit(tmp_path, "compile", "k.cu", "--gpu", "H100", "--json")
    finished = json.loads(out)
    errors = [problem for problem in finished["problems"] if problem["severity"] == "error"]
    assert (code, finished["outcome"], len(errors), finished["resources"]) == (1, "compile error", 1, []), err


# -- projects ----------------------------------------------------------------------------------------


@needs_nvcc
@pytest.mark.parametrize(
    ("project", "file", "says"),
    [
        ("cu_fragment", "kernels.cu", "compiled through main.cu, which includes it"),
        (
            "torch_load_flags",
            "add.cu",
            "-U__CUDA_NO_HALF_OPERATORS__: add.py names it",
        ),  # torch's headers take 20 s
        ("automake_maxrreg", "k.cu", "registers per thread    32 … --maxrregcount=32: Makefile.am names it"),
        ("cu_cc", "scale.cu.cc", "scale, compiled for sm_90a"),
        ("a b.cu", "a b.cu", "k, compiled for sm_90a"),
        ("bazel_rdc", "caller.cu", "-rdc=true: BUILD.bazel names it"),
        ("cmake_release_fast_math", "k.cu", "-use_fast_math: CMakeLists.txt names it"),
        ("unpacked_zip", "kernels/one/k.cu", "-IROOT/include"),
        ("cuda_named_header", "lib/k.cu", "it has cuda_utils.h"),
        ("cuda_named_header", "lib/k2.cu", "it has cublas_helper.h"),
    ],
)
@pytest.mark.slow
def test_a_project_compiles(tmp_path: Path, project: str, file: str, says: str) -> None:
    brought(tmp_path, project)
    code, out, err = orbit(tmp_path, "compile", file, "--gpu", "H100")
    assert (code, err.startswith(f"Compile {Path(file).name}: ")) == (0, True), out + err
    how = orbit(tmp_path, "doctor", file)[1]
    said = (out + err + how).replace(str(tmp_path), "ROOT")
    assert [part for part in says.split(" … ") if part not in said] == [], said


@needs_nvcc
@pytest.mark.parametrize(
    ("project", "file"), [("plain.cu", "plain.cu"), ("unpacked_zip", "kernels/one/k.cu")]
)
@pytest.mark.slow
def test_a_project_compiles_from_the_root_of_the_disk(tmp_path: Path, project: str, file: str) -> None:
    """As in a container, whose current folder is often /."""
    brought(tmp_path, project)
    environment = {"XDG_CACHE_HOME": str(tmp_path / ".cache")}
    code, out, err = orbit(
        Path("/"), "compile", str(tmp_path / file), "--gpu", "H100", environment=environment
    )
    assert (code, err.splitlines()[-1]) == (0, "ok: 1 kernel compiled for sm_90a"), out + err


DATABASES = [
    ("a link to the folder", '[{"directory": "LINK/build", "file": "LINK/src/k.cu", "command": "nvcc -DVAL=1 -ILINK/inc -c LINK/src/k.cu"}]'),
    ("a file that includes it", '[{"directory": "ROOT/build", "file": "ROOT/build/Unity/unity_0_cu.cu", "command": "nvcc -DVAL=1 -IROOT/inc -c ROOT/build/Unity/unity_0_cu.cu"}]'),
    ("an entry that is null", "[null, {ENTRY}]"),
    ("a comment", "// by hand\n[{ENTRY}]"),
    ("an entry without a command", '[{"file": "ROOT/src/k.cu"}, {ENTRY}]'),
    ("a list of option files", '[{"directory": "ROOT/build", "file": "ROOT/src/k.cu", "command": "nvcc -optf a.rsp,b.rsp -c ROOT/src/k.cu"}]'),
    ("variables before the compiler", '[{"directory": "ROOT/build", "file": "ROOT/src/k.cu", "command": "cmake -E env A=/x --unset=FOO nvcc -DVAL=1 -IROOT/inc -c ROOT/src/k.cu"}]'),
    ("an architecture that nvcc no longer has", '[{"directory": "ROOT/build", "file": "ROOT/src/k.cu", "command": "nvcc --generate-code=arch=compute_70,code=[compute_70,sm_70] --generate-code=arch=compute_90,code=[sm_90] -DVAL=1 -IROOT/inc -c ROOT/src/k.cu"}]'),
    ("a header by option", '[{"directory": "ROOT/build", "file": "ROOT/src/k.cu", "command": "nvcc -include ROOT/src/pre.h -IROOT/inc -c ROOT/src/k.cu"}]'),
]  # fmt: skip
ENTRY = '"directory": "ROOT/build", "file": "ROOT/src/k.cu", "command": "nvcc -DVAL=1 -IROOT/inc -c ROOT/src/k.cu"'
TRUSTED = ("a list of option files", "variables before the compiler")
"""What is read in a trusted project only: other files' options, and a program before the compiler."""


@needs_nvcc
@pytest.mark.parametrize(
    ("what", "database"), [pytest.param(*each, id=each[0].replace(" ", "-")) for each in DATABASES]
)
@pytest.mark.slow
def test_a_database(tmp_path: Path, what: str, database: str) -> None:
    root, link = tmp_path / "real", tmp_path / "link"
    files = {
        "inc/inner.h": "#define NEEDED VAL\n",
        "src/k.cu": "#include <inner.h>\n__global__ void k(float* x) { x[0] = NEEDED; }\n",
        "src/pre.h": "#define VAL 1\n",
        "build/a.rsp": "-IROOT/inc\n",
        "build/b.rsp": "-DVAL=1\n",
        "build/Unity/unity_0_cu.cu": '#include "ROOT/src/k.cu"\n',
        "build/compile_commands.json": database,
    }
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.replace("ENTRY", ENTRY).replace("ROOT", str(root)).replace("LINK", str(link)))
    link.symlink_to(root)
    trust = ["--trust"] if what in TRUSTED else []
    for folder in (root, link) if "link" in what else (root,):
        code, out, err = orbit(folder, "compile", *trust, "src/k.cu")
        assert (code, err.strip().splitlines()[-1].startswith("ok: 1 kernel")) == (0, True), out + err


@needs_nvcc
def test_a_cpp_source_that_the_build_gives_nvcc(tmp_path: Path) -> None:
    (tmp_path / "main.cc").write_text(
        "__global__ void k(float* x) { x[threadIdx.x] = VAL; }\nint main() { k<<<1, 32>>>(0); }\n"
    )
    entry = {
        "directory": str(tmp_path),
        "file": "main.cc",
        "command": "nvcc -x cu -DVAL=1 -dc main.cc -o main.o",
    }
    (tmp_path / "compile_commands.json").write_text(json.dumps([entry]))
    code, out, err = orbit(tmp_path, "compile", "main.cc", "--gpu", "H100")
    assert (code, err.splitlines()[-1]) == (0, "ok: 1 kernel compiled for sm_90a"), out + err
    (tmp_path / "main.cc").write_text("int main() {}\n")
    assert "main.cc is a C++ file without a kernel" in orbit(tmp_path, "compile", "main.cc")[2]


@needs_nvcc
def test_a_header_that_needs_what_its_includer_defines(tmp_path: Path) -> None:
    (tmp_path / "kern.cuh").write_text("#pragma once\n__global__ void hk(SCALAR* x) { x[0] = VAL; }\n")
    (tmp_path / "k.cu").write_text('#define SCALAR double\n#include "kern.cuh"\n')
    entry = {"directory": str(tmp_path), "file": "k.cu", "command": "nvcc -DVAL=1 -c k.cu"}
    (tmp_path / "compile_commands.json").write_text(json.dumps([entry]))
    code, out, err = orbit(tmp_path, "compile", "kern.cuh")
    assert (code, "compiled through k.cu, which includes it" in err) == (0, True), out + err


# -- drafts ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        (
            "drafts.cu",
            """
// orbit: launch ln<float><<<(rows * cols + 127) / 128, 128>>>(x, y, eps, rows, cols)
// orbit: launch attn<float, causal><<<(n + 255) / 256, 256>>>(q, rest)
// orbit: launch nothing<<<(n + 255) / 256, 256>>>()
// orbit: launch =
// orbit: launch name$dollar<<<(n + 255) / 256, 256>>>(x, launch, n, expect, gpu,
// orbit: launch shadow<<<(n + 255) / 256, 256>>>(randn, sum, sizeof_, n, zeros)
// orbit: launch onlyt<float><<<(n + 255) / 256, 256>>>(t, p)
note: no launch spec can be drafted for h: 'f' points to pointers, which launch specs cannot make; a program can launch it: give the file a main, or run it through a test or script that does
note: no launch spec can be drafted for vols: 'n' is a reference; a kernel takes pointers and values; a program can launch it: give the file a main, or run it through a test or script that does
note: no launch spec can be drafted for cplx: 'k' is a float4 by value; launch specs pass numbers and pointers; a program can launch it: give the file a main, or run it through a test or script that does
note: no launch spec can be drafted for st: 'p' is a Params by value; launch specs pass numbers and pointers; a program can launch it: give the file a main, or run it through a test or script that does
note: no launch spec can be drafted for cudatypes: 'tex' is a cudaTextureObject_t by value; launch specs pass numbers and pointers; a program can launch it: give the file a main, or run it through a test or script that does
note: no launch spec can be drafted for two: 'float (*m)[16]' is a pointer to arrays, which launch specs cannot pass; a program can launch it: give the file a main, or run it through a test or script that does""",
        ),
        (
            "draft_concepts.cu",
            """
// orbit: launch c1<float><<<(n + 255) / 256, 256>>>(x)
// orbit: launch c2<float><<<(n + 255) / 256, 256>>>(x)
// orbit: launch c3<float><<<(n + 255) / 256, 256>>>(x)
// orbit: launch c4<float><<<(n + 255) / 256, 256>>>(x)
// orbit: launch c5<<<(n + 255) / 256, 256>>>(x)
// orbit: launch c6<N><<<(n + 255) / 256, 256>>>(x)
// orbit: launch c7<<<(n + 255) / 256, 256>>>(x)
note: no launch spec can be drafted for c8: what its template parameters stand for cannot be guessed; one begins with `// orbit: launch c8<<<grid, block>>>(…)` above it""",
        ),
        (
            "heuristics.py",
            """
# orbit: launch with_tl[lambda META: (triton.cdiv(n, META['B']),)](x, n)
# orbit: launch no_heur[lambda META: (triton.cdiv(n, META['B']),)](x, n)
# orbit: launch with_T[(triton.cdiv(n, B),)](x, n, B=B)
# orbit: launch same_tl[(triton.cdiv(n, B),)](x, n, B=B)
# orbit: launch wrapped[(triton.cdiv(n, B),)](x, n, B=B)""",
        ),
    ],
)
def test_drafts(tmp_path: Path, file: str, expected: str) -> None:
    """The launches of the drafts, and what is said of kernels without one; each draft is read where it is written."""
    brought(tmp_path, file)
    code, out, err = orbit(tmp_path, "draft", file, "--json")
    drafted = json.loads(out)
    written = "".join(each["text"] for each in drafted)
    launches = [line.partition("  ")[0] for line in written.splitlines() if "orbit: launch " in line]
    assert (code, "\n".join([*launches, *err.splitlines()])) == (0, expected.strip())
    lines = (tmp_path / file).read_text().splitlines(keepends=True)
    for each in reversed(drafted):
        lines.insert(each["line"] - 1, each["text"])
    (tmp_path / file).write_text("".join(lines))
    listed = orbit(tmp_path, "draft", file)
    assert "No CUDA or Triton kernel" not in orbit(tmp_path, "show", file)[1]
    assert not listed[1], listed  # each kernel that a draft was written for has a launch spec


# -- Triton ------------------------------------------------------------------------------------------


@pytest.mark.slow
@needs_triton
@pytest.mark.parametrize(
    ("file", "expected"),
    [
        (
            "heuristics.py",
            """
note: with_tl: constants of autotune's configurations; EVEN by heuristics for sizes of 1048576; argument types assumed
note: no_heur: constants of autotune's configurations; argument types assumed
note: with_T: B = 64 and argument types assumed; write them in a launch spec above it (`orbit-lsp draft` writes one)
note: same_tl: B = 64 and argument types assumed; write them in a launch spec above it (`orbit-lsp draft` writes one)
note: wrapped: B = 64 and argument types assumed; write them in a launch spec above it (`orbit-lsp draft` writes one)
ok: 7 kernels compiled for sm_90a""",
        ),
        (
            "jit_call.py",
            """
note: wrapped: types and constants of its launch spec
note: heur: no constants to assume; B by heuristics; argument types assumed
note: heur2: types and constants of its launch spec
ok: 3 kernels compiled for sm_90a""",
        ),
    ],
)
def test_what_a_triton_kernel_is_compiled_with(tmp_path: Path, file: str, expected: str) -> None:
    brought(tmp_path, file)
    code, out, err = orbit(tmp_path, "compile", file, "--gpu", "H100")
    notes = [line for line in err.splitlines() if line.startswith(("note: ", "ok: "))]
    assert (code, "\n".join(notes)) == (0, expected.strip()), out + err


@pytest.mark.slow
@needs_triton
@pytest.mark.skipif(importlib.util.find_spec("cuda") is not None, reason="a part of cuda-python is installed")
def test_a_package_that_shares_its_name_with_another(tmp_path: Path) -> None:
    brought(tmp_path, "cutile_import")
    code, _, err = orbit(tmp_path, "compile", "k.py", "--gpu", "H100")
    assert (code, "pip install 'cuda-tile[tileiras]'" in err, "cuda-python" in err) == (2, True, False), err
