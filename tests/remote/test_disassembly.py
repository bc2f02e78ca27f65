"""Compiled code as text without a GPU: what nvdisasm prints, control codes, a kernel's part of PTX; and the real tools."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from orbit_remote.common import messages as c
from orbit_remote.toolchain import disassembly, sass_listing
from tests.cli_check import orbit
from tests.remote.nvcc_check import needs_nvcc

needs_nvdisasm = pytest.mark.skipif(isinstance(disassembly.find(), c.Failure), reason="there is no nvdisasm")
PRINTED = """\
\t.section\t.text.k,"ax",@progbits
        .other          k,@"STO_CUDA_ENTRY STV_DEFAULT"
k:
.text.k:
        /*0000*/                   S2R R0, SR_TID.X ;
.L_x_1:
        /*0010*/              @!P0 BRA `(.L_x_1) ;
        /*0020*/                   BRA `(.L_x_2) ;
.L_x_2:
        /*0030*/                   CALL.REL.NOINC `($__internal_0) ;
        /*0040*/                   NOP;
.L_x_3:
.text.other:
        /*0000*/                   EXIT ;
"""


def test_what_nvdisasm_prints() -> None:
    assert disassembly.instructions(PRINTED) == {
        "k": ["S2R R0, SR_TID.X", "@!P0 BRA 0x0010", "BRA 0x0030", "CALL.REL.NOINC `($__internal_0)"],
        "other": ["EXIT"],
    }


@pytest.mark.parametrize(
    ("low", "high", "told"),
    [  # of cuobjdump -sass, sm_90
        (0x0000000402007981, 0x000EA2000C1E1900, "B------:R-:W2:-:S01"),  # LDG.E R0, desc[UR4][R2.64]
        (
            0x0000000405027825,
            0x001FCA00078E0002,
            "B0-----:R-:W-:Y:S05",
        ),  # IMAD.WIDE.U32, after S2R on scoreboard 0
    ],
)
def test_a_control_code(low: int, high: int, told: str) -> None:
    assert sass_listing.control_code((high << 64 | low).to_bytes(16, "little")) == told


PTX = """\
.version 9.0
.target sm_90

.visible .entry a(
\t.param .u64 a_param_0
)
{
\t.loc\t1 7 3
\tret;
}
.visible .entry ab() {
\tret;
}
\t.file\t1 "/src/k.cu"
\t.section\t.debug_line
"""


def test_a_kernels_own_part_of_the_ptx() -> None:
    assert disassembly.ptx_of(PTX, "a").split("\n")[-4:-1] == ["\t.loc\t1 7 3 // /src/k.cu:7", "\tret;", "}"]
    assert disassembly.ptx_of(PTX, "ab").endswith(".visible .entry ab() {\n\tret;\n}\n")
    assert ".debug_line" not in disassembly.ptx_of(PTX, "ab")
    assert disassembly.ptx_of(PTX, "b") == ""


def test_without_nvdisasm_the_remedy_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disassembly, "_candidates", lambda *_: iter([tmp_path / "nvdisasm"]))
    result = disassembly.find()
    assert isinstance(result, c.Failure)
    assert "nvidia-cuda-nvdisasm" in result.remedy


SAXPY = """\
__global__ void saxpy(int n, float a, const float* x, float* y) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = a * x[i] + y[i];
}
"""


@needs_nvcc
@needs_nvdisasm
def test_a_kernel_on_the_command_line(tmp_path: Path) -> None:
    """nvcc and nvdisasm themselves: SASS beside its lines, PTX, a diff with a git revision, and the same from the cubin."""
    (tmp_path / "k.cu").write_text(SAXPY.replace("a * x[i] + y[i]", "x[i]"))
    for words in (
        ["init", "-q"],
        ["add", "k.cu"],
        ["-c", "user.name=n", "-c", "user.email=e", "commit", "-qm", "m"],
    ):
        subprocess.run(["git", *words], cwd=tmp_path, check=True)
    (tmp_path / "k.cu").write_text(SAXPY)

    code, out, message = orbit(tmp_path, "disassemble", "k.cu", "--arch", "sm_90", "--explain")
    assert (code, out.split("\n")[0]) == (0, "// SASS of saxpy, sm_90"), message
    line = out.split("\n").index("// k.cu:3    if (i < n) y[i] = a * x[i] + y[i];")
    assert any("FFMA" in text for text in out.split("\n")[line:])
    assert "// FFMA        multiplies and adds fp32 in one rounding" in out

    code, out, _ = orbit(tmp_path, "disassemble", "k.cu", "--arch", "sm_90", "--json", "--against", "HEAD")
    answer = json.loads(out)
    (instance,) = answer["instances"]
    fma = next(item for item in instance["instructions"] if item["text"].startswith("FFMA"))
    assert (code, fma["line"], fma["file"], answer["architecture"]) == (0, 3, str(tmp_path / "k.cu"), "sm_90")
    marks = {(item["mark"], item["text"].split(" ")[0]) for item in instance["changes"]}
    assert ("+", "FFMA") in marks
    assert answer["against"].startswith("HEAD (")

    code, out, _ = orbit(tmp_path, "disassemble", "k.cu", "--arch", "sm_90", "--level", "ptx")
    assert (code, ".entry _Z5saxpyifPKfPf(" in out, f"// {tmp_path}/k.cu:3" in out) == (0, True, True)

    command = ["nvcc", "-cubin", "-arch=sm_90", "-o", "k.cubin", "k.cu"]
    subprocess.run(command, cwd=tmp_path, check=True)
    code, out, _ = orbit(tmp_path, "disassemble", "k.cubin", "--kernel", "saxpy")
    lines = out.split("\n")
    assert (code, lines[0]) == (0, "// SASS of saxpy(int, float, float const*, float*)")
    assert lines[1] == "// no source lines: it was compiled without line information"


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["no.cubin"], 64, "there is no file no.cubin"),
        (["junk.cubin"], 1, "junk.cubin holds no cubin that can be read"),
        (
            ["junk.cubin", "--level", "ptx"],
            64,
            "compiled code holds no ptx that can be read; use --level sass",
        ),
        (
            ["k.cu", "--level", "ttir"],
            64,
            "ttir exists only for Triton kernels; a CUDA kernel has ptx and sass",
        ),
        (["k.cu", "--arch", "sm_90!"], 64, "'sm_90!' is not an architecture, as in --arch sm_90"),
        (["k.py"], 64, "add is compiled only while its program runs: profile it, then open its SASS"),
        (["two.cu"], 64, "which kernel? Add --kernel; this file has: saxpy, saxpz"),
    ],
)
def test_what_cannot_be_disassembled(tmp_path: Path, words: list[str], code: int, message: str) -> None:
    (tmp_path / "k.cu").write_text(SAXPY)
    (tmp_path / "two.cu").write_text(SAXPY + SAXPY.replace("saxpy", "saxpz"))
    (tmp_path / "k.py").write_text("from numba import cuda\n@cuda.jit\ndef add(x): pass\n")
    (tmp_path / "junk.cubin").write_bytes(b"junk")
    result, _, errors = orbit(tmp_path, "disassemble", *words)
    assert (result, errors.split("\n")[0].removesuffix(" [compile error]")) == (
        code,
        f"orbit-lsp: error: {message}",
    )
