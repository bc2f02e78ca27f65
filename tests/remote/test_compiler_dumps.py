"""What the compiler made of a profiled kernel: code as the recorded reports have it, beside what Triton's own
disassembler says; no GPU needed.
"""

from __future__ import annotations

import base64
import json
import re
import subprocess
import zlib
from dataclasses import replace
from pathlib import Path

import ncu_report
import pytest
import triton

from orbit_remote.child import triton_instances
from orbit_remote.common import messages as c
from orbit_remote.common.measurements import Metric
from orbit_remote.ncu import compiler_dumps, report_reader
from orbit_remote.ncu.compiler_dumps import Collected
from orbit_remote.ncu.report_reader import ReportAnswer
from orbit_remote.toolchain import dumps, elf
from tests.first_cases import first_of

RECORDED = Path(__file__).parents[1] / "recordings" / "profiles"
NVDISASM = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "nvdisasm"


def report_of(name: str) -> Path:
    return RECORDED / f"{name}.ncu-rep"


def answer_of(name: str) -> ReportAnswer:
    return report_reader.read(
        ncu_report, report_reader.ReportRequest(str(report_of(name)), f"/src/{name}.py")
    )


def profile(registers: int | None = None, threads: int = 128, ns: float = 1.0) -> c.Profile:
    metrics = {"gpu__time_duration.sum": Metric("gpu__time_duration.sum", ns, "ns")}
    if registers is not None:
        metrics["launch__registers_per_thread"] = Metric("launch__registers_per_thread", registers)
    return c.Profile("softmax", "softmax", "counters", block=(threads, 1, 1), metrics=metrics)


def unpacked(dump: c.Dump) -> str:
    return zlib.decompress(base64.b64decode(dump.text)).decode()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "compiled"
    made.mkdir()
    return made


def compiled(folder: Path, number: int, code: bytes, **values: object) -> None:
    """An instance as a child leaves it."""
    known: dict[str, object] = {"symbol": "softmax", "name": "softmax", "architecture": "sm_90"}
    known |= {"threads": 128, "registers": None} | values
    (folder / f"{number}-softmax.json").write_text(json.dumps(known))
    (folder / f"{number}-softmax.cubin").write_bytes(code)
    (folder / f"{number}-softmax.ttir").write_text(f"// instance {number}")


def levels(collected: Collected) -> list[tuple[str, int]]:
    return [(dump.level, dump.instance) for dump in collected.dumps]


def the_only_cubin(name: str) -> bytes:
    (code,) = elf.images(report_of(name).read_bytes())
    return code


@pytest.mark.parametrize("name", first_of(["softmax", "matmul", "in_library", "memory_bound", "spilling"], 2))
def test_the_code_is_what_a_disassembler_says(name: str, tmp_path: Path) -> None:
    """Every instruction at its offset; NVIDIA's two tools write operands a little differently."""
    file = tmp_path / "code.cubin"
    file.write_bytes(the_only_cubin(name))
    message = subprocess.run([NVDISASM, "-c", file], capture_output=True, text=True, check=True).stdout
    instruction = re.compile(r"/\*([0-9a-f]{4,})\*/ +((?:@!?U?P\w+ +)?[\w.]+)")
    (sass,) = answer_of(name).sass
    assert [(at, " ".join(what.split())) for at, what in instruction.findall(sass)] == [
        (at, " ".join(what.split())) for at, what in instruction.findall(message)
    ]


def test_a_jump_goes_to_an_offset_in_the_kernel() -> None:
    (sass,) = answer_of("memory_bound").sass
    assert re.search(r"/\*(0\w{3})\*/  BRA 0x\1\n", sass)
    assert "0x7f" not in sass


def test_inlined_code_is_under_the_line_that_called_it() -> None:
    (sass,) = answer_of("in_library").sass
    assert "// /src/in_library.cu:12, in block_radix_sort.cuh:637, in block_radix_sort.cuh:441, in " in sass


def test_code_without_line_information() -> None:
    (sass,) = answer_of("without_lines").sass
    assert sass.startswith("// _Z5saxpyifPKfPf, as it ran\n        /*0000*/  LDC R1, c[0x0][0x28]\n")


def test_of_several_instances_the_one_whose_code_is_in_the_report(folder: Path) -> None:
    compiled(folder, 0, b"tried while autotuning")
    compiled(folder, 1, the_only_cubin("softmax"), constants={"BLOCK": "2048"})
    compiled(folder, 2, the_only_cubin("matmul"))
    collected = compiler_dumps.collect(answer_of("softmax"), report_of("softmax"), folder)
    assert levels(collected) == [("ttir", 0), ("sass", 0)]
    ttir, sass = collected.dumps
    assert unpacked(ttir) == "// instance 1"
    assert ttir.constants == {"BLOCK": "2048"}
    assert unpacked(sass) == answer_of("softmax").sass[0]
    assert collected.remarks == ()


def test_the_instance_of_the_longest_launch_comes_first(folder: Path, tmp_path: Path) -> None:
    report = tmp_path / "report"
    report.write_bytes(b"NVR")
    for number, threads in enumerate((64, 128, 256)):
        compiled(folder, number, b"", threads=threads, registers=30)
    launches = (profile(32, 256, ns=5.0), profile(32, 128, ns=9.0))
    collected = compiler_dumps.collect(ReportAnswer(launches, sass=("of 256", "of 128")), report, folder)
    assert [unpacked(dump) for dump in collected.dumps] == [
        "// instance 1", "of 128", "// instance 2", "of 256", "// instance 0",
    ]  # fmt: skip
    assert [dump.instance for dump in collected.dumps] == [0, 0, 1, 1, 2]


def test_code_of_another_size_is_of_another_instance(folder: Path, tmp_path: Path) -> None:
    report = tmp_path / "report"
    report.write_bytes(b"NVR")
    compiled(folder, 0, the_only_cubin("matmul"), symbol="matmul")
    compiled(folder, 1, the_only_cubin("softmax"))
    compiled(folder, 2, the_only_cubin("softmax"))
    collected = compiler_dumps.collect(
        replace(answer_of("softmax"), sass=("\n        /*0000*/  EXIT\n",)), report, folder
    )
    assert levels(collected) == [("sass", 0), ("ttir", 1), ("ttir", 2)]


def test_of_a_cuda_file_its_ptx_and_the_kernels_own_code(folder: Path) -> None:
    collected = compiler_dumps.collect(answer_of("in_library"), report_of("in_library"), folder, ".entry a")
    assert levels(collected) == [("ptx", 0), ("sass", 0)]
    assert unpacked(collected.dumps[0]) == ".entry a"
    assert "/src/in_library.cu:12" in unpacked(collected.dumps[1])


def test_what_is_too_large_is_left_out_and_said(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled(folder, 0, the_only_cubin("softmax"))
    monkeypatch.setattr(dumps, "_MOST_TEXT", 1000)
    collected = compiler_dumps.collect(answer_of("softmax"), report_of("softmax"), folder)
    assert levels(collected) == [("ttir", 0)]
    assert collected.remarks == ("too large to be kept: sass of softmax (1 MiB)",)
    monkeypatch.setattr(dumps, "_MOST_TEXT", 1 << 20)
    monkeypatch.setattr(dumps, "_MOST_PACKED", 100)
    assert levels(compiler_dumps.collect(answer_of("softmax"), report_of("softmax"), folder)) == [("ttir", 0)]


def test_so_many_instances_and_no_more(folder: Path, tmp_path: Path) -> None:
    report = tmp_path / "report"
    report.write_bytes(b"NVR")
    for number in range(10):
        compiled(folder, number, bytes([number]))
    collected = compiler_dumps.collect(ReportAnswer((profile(),)), report, folder)
    assert levels(collected) == [("ttir", number) for number in range(8)]
    assert collected.remarks == ("what the compiler made is kept of 8 of 10 instances",)


def test_without_a_report_there_is_nothing(folder: Path) -> None:
    compiled(folder, 0, b"code")
    assert compiler_dumps.collect(ReportAnswer((profile(),)), None, folder) == Collected()


def test_nothing_is_kept_of_a_process_that_compiled_nothing(folder: Path) -> None:
    triton_instances.keep_compiled(folder)
    assert list(folder.iterdir()) == []


def test_launches_of_the_same_code_have_it_once() -> None:
    """A recorded launch stands for two, of one kernel with one code."""

    class Twice:
        def __getattr__(self, name: str) -> object:
            return getattr(ncu_report, name)

        def load_report(self, path: str) -> list[list[object]]:
            return [[ncu_report.load_report(path)[0][0]] * 2]

    answer = report_reader.read(
        Twice(), report_reader.ReportRequest(str(report_of("softmax")), "/src/softmax.py")
    )
    assert len(answer.profiles) == 2
    assert answer.sass == (answer_of("softmax").sass[0], "")
