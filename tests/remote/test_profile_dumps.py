"""What the compiler made of a profiled kernel: real Triton, real nvdisasm, the recorded cubins; no GPU needed."""

from __future__ import annotations

import base64
import json
import zlib
from pathlib import Path

import pytest

from orbit_remote import contracts as c
from orbit_remote import cubin, profile_dumps, triton_kernels
from orbit_remote.profile_dumps import Collected

RECORDED = Path(__file__).parents[1] / "recordings" / "profiles"
TRITONS = profile_dumps.disassembler(None, triton=True)


def profile(symbol: str, registers: int | None = None, threads: int = 128, ns: float = 1.0) -> c.Profile:
    metrics = {"gpu__time_duration.sum": c.Metric("gpu__time_duration.sum", ns, "ns")}
    if registers is not None:
        metrics["launch__registers_per_thread"] = c.Metric("launch__registers_per_thread", registers)
    return c.Profile(symbol, symbol, "counters", block=(threads, 1, 1), metrics=metrics)


def unpacked(dump: c.Dump) -> str:
    return zlib.decompress(base64.b64decode(dump.text)).decode()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "compiled"
    made.mkdir()
    return made


def compiled(folder: Path, number: int, code: bytes, **said: object) -> None:
    """An instance as a child leaves it."""
    known: dict[str, object] = {
        "symbol": "softmax",
        "function": "softmax",
        "constants": [],
        "threads": 128,
        "registers": None,
    } | said
    (folder / f"{number}-softmax.json").write_text(json.dumps(known))
    (folder / f"{number}-softmax.cubin").write_bytes(code)
    (folder / f"{number}-softmax.ttir").write_text(f"// instance {number}")


def levels(found: Collected) -> list[tuple[str, int]]:
    return [(one.level, one.instance) for one in found.dumps]


def the_only_cubin(name: str) -> bytes:
    (code,) = cubin.images((RECORDED / f"{name}.ncu-rep").read_bytes())
    return code


async def test_of_several_instances_the_one_whose_code_is_in_the_report(folder: Path) -> None:
    compiled(folder, 0, b"tried while autotuning")
    compiled(folder, 1, the_only_cubin("softmax"), constants=[["BLOCK", "2048"]])
    compiled(folder, 2, the_only_cubin("matmul"))
    found = await profile_dumps.collect(
        [profile("softmax")], RECORDED / "softmax.ncu-rep", folder, disassembler=TRITONS
    )
    assert levels(found) == [("ttir", 0), ("sass", 0)]
    ttir, sass = found.dumps
    assert unpacked(ttir) == "// instance 1"
    assert ttir.constants == {"BLOCK": "2048"}
    assert "softmax:" in unpacked(sass)
    assert 'line 13 inlined at "/src/softmax.py"' in unpacked(sass) or 'softmax.py", line 13' in unpacked(
        sass
    )
    assert found.remarks == ()


async def test_the_instance_of_the_longest_launch_comes_first(folder: Path, tmp_path: Path) -> None:
    report = tmp_path / "report"
    report.write_bytes(b"NVR")
    for number, threads in enumerate((64, 128, 256)):
        compiled(folder, number, bytes([number]), threads=threads, registers=30)
    launches = [profile("softmax", 32, 256, ns=5.0), profile("softmax", 32, 128, ns=9.0)]
    found = await profile_dumps.collect(launches, report, folder)
    assert [unpacked(one) for one in found.dumps] == [f"// instance {number}" for number in (1, 0, 2)]
    assert [one.instance for one in found.dumps] == [0, 1, 2]
    assert found.remarks == (
        "there is no SASS of what ran: nvdisasm, a part of the CUDA toolkit, is not installed where the kernel runs",
    )


async def test_of_a_cuda_file_its_ptx_and_the_kernels_own_code(folder: Path) -> None:
    symbol = "_Z11sort_blocksILi8EEvPKjPj"
    found = await profile_dumps.collect(
        [profile(symbol)], RECORDED / "in_library.ncu-rep", folder, ptx=".entry a", disassembler=TRITONS
    )
    assert levels(found) == [("ptx", 0), ("sass", 0)]
    assert unpacked(found.dumps[0]) == ".entry a"
    assert 'in_library.cu", line 12' in unpacked(found.dumps[1])


async def test_what_is_too_large_is_left_out_and_said(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled(folder, 0, the_only_cubin("softmax"))
    monkeypatch.setattr(profile_dumps, "_MOST_TEXT", 1000)
    found = await profile_dumps.collect(
        [profile("softmax")], RECORDED / "softmax.ncu-rep", folder, disassembler=TRITONS
    )
    assert levels(found) == [("ttir", 0)]
    assert found.remarks == ("too large to be kept: sass of softmax (1 MiB)",)
    monkeypatch.setattr(profile_dumps, "_MOST_TEXT", 1 << 20)
    monkeypatch.setattr(profile_dumps, "_MOST_PACKED", 100)
    found = await profile_dumps.collect(
        [profile("softmax")], RECORDED / "softmax.ncu-rep", folder, disassembler=TRITONS
    )
    assert levels(found) == [("ttir", 0)]


async def test_so_many_instances_and_no_more(folder: Path, tmp_path: Path) -> None:
    report = tmp_path / "report"
    report.write_bytes(b"NVR")
    for number in range(10):
        compiled(folder, number, bytes([number]))
    found = await profile_dumps.collect([profile("softmax")], report, folder)
    assert levels(found) == [("ttir", number) for number in range(8)]
    assert found.remarks[0] == "what the compiler made is kept of 8 of 10 instances"


@pytest.mark.parametrize(
    ("script", "says"),
    [
        ("#!/bin/sh\necho 'nvdisasm fatal: Unsupported architecture' >&2\nexit 1\n", "nvdisasm: nvdisasm fatal: Unsupported architecture"),
        ("#!/nowhere/sh\n", "cannot be started: No such file or directory"),
    ],
)  # fmt: skip
async def test_a_disassembler_that_fails(folder: Path, tmp_path: Path, script: str, says: str) -> None:
    compiled(folder, 0, the_only_cubin("softmax"))
    tool = tmp_path / "nvdisasm"
    tool.write_text(script)
    tool.chmod(0o755)
    found = await profile_dumps.collect(
        [profile("softmax")], RECORDED / "softmax.ncu-rep", folder, disassembler=tool
    )
    assert levels(found) == [("ttir", 0)]
    (remark,) = found.remarks
    assert says in remark


async def test_without_a_report_there_is_nothing(folder: Path) -> None:
    compiled(folder, 0, b"code")
    assert await profile_dumps.collect([profile("softmax")], None, folder) == Collected()


def test_the_one_that_comes_with_triton_for_tritons_code(tmp_path: Path) -> None:
    for name in ("nvcc", "nvdisasm"):
        (tmp_path / name).write_text("")
    nvcc = str(tmp_path / "nvcc")
    assert profile_dumps.disassembler(nvcc, triton=False) == tmp_path / "nvdisasm"
    assert profile_dumps.disassembler(nvcc, triton=True) == TRITONS
    assert TRITONS


def test_nothing_is_kept_of_a_process_that_compiled_nothing(folder: Path) -> None:
    triton_kernels.keep_compiled(folder)
    assert list(folder.iterdir()) == []
