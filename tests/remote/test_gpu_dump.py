"""GPU core dumps of an H200 (driver 580.159.04, CUDA 13.0), read without cuda-gdb; the programs lie beside them.

`called` is the dump at which cuda-gdb of CUDA 13.0 ends itself: the warp that failed has left its SM.
"""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from textwrap import dedent

import pytest

from orbit_remote.common import limits
from orbit_remote.common import messages as c
from orbit_remote.toolchain import gpu_dump
from tests.recordings import crashed


def told(report: c.Finished) -> str:
    def at(place: c.Place | None) -> str:
        return f"{Path(place.file).name}:{place.line}" if place else "no place"

    lines: list[str] = [report.failure.message] if report.failure else []
    for problem in report.problems:
        lines.append(f"{at(problem.place)} {problem.severity}: {problem.message}")
        lines += [f"  {note.message}: {at(note.place)}" for note in problem.notes]
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (
            "scale",
            """
            CUDA_ERROR_INVALID_ADDRESS_SPACE: address of the wrong memory space in a load, in block (15,0,0), threads (160,0,0) to (191,0,0) of scale (crash.cu:10)
            crash.cu:10 error: CUDA_ERROR_INVALID_ADDRESS_SPACE: address of the wrong memory space in a load, in block (15,0,0), threads (160,0,0) to (191,0,0) of scale
            """,
        ),
        (
            "inlined",
            """
            CUDA_ERROR_ILLEGAL_ADDRESS: illegal address in a load, in block (0,0,0), threads (192,0,0) to (223,0,0) of inlined (helper.h:3)
            helper.h:3 error: CUDA_ERROR_ILLEGAL_ADDRESS: illegal address in a load, in block (0,0,0), threads (192,0,0) to (223,0,0) of inlined
              called from here: crash.cu:15
            """,
        ),
        (
            "called",
            """
            CUDA_ERROR_ILLEGAL_ADDRESS: illegal address in a store, in called (helper.h:7)
            helper.h:7 error: CUDA_ERROR_ILLEGAL_ADDRESS: illegal address in a store, in called
            """,
        ),
        (
            "asserted",
            """
            CUDA_ERROR_ASSERT: failed assertion, in 2 warps of asserted, the first in block (0,0,0), thread (1,0,0) (crash.cu:33)
            crash.cu:33 error: CUDA_ERROR_ASSERT: failed assertion, in 2 warps of asserted, the first in block (0,0,0), thread (1,0,0)
            """,
        ),
        (
            "halfcluster",
            """
            the run was ended at its limit of 2 s. 0 of 4 blocks of halfcluster had ended, 4 were running: 4 of 8 warps waited for their cluster at line 29, 4 of 8 warps stood at line 30
            hang.cu:29 warning: 4 of 8 warps waited here for their cluster, inside sm_90_rt.hpp:197; the first: block (0,0,0), thread (0,0,0)
            hang.cu:30 warning: 4 of 8 warps stood here; the first: block (1,0,0), thread (0,0,0)
            """,
        ),
    ],
)  # fmt: skip
def test_a_dump_names_lines(name: str, expected: str) -> None:
    assert told(crashed.report(name, "/w/k.cu")) == dedent(expected).strip()


def test_a_program_without_lines_says_which_flag_gives_them(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = crashed.unpacked

    def without_lines(name: str, folder: Path) -> Path:
        path = whole(name, folder)
        path.write_bytes(path.read_bytes().replace(b".debug_line", b".nothing___"))
        return path

    monkeypatch.setattr(crashed, "unpacked", without_lines)
    report = crashed.report("inlined", "/w/k.cu")
    assert report.problems[0].place is None
    assert report.problems[0].message.endswith(
        "of inlined, at byte 0xe0 of its code; the code was built without line information (-lineinfo), which would name the line"
    )


@pytest.mark.parametrize("name", ["inlined", "halfcluster"])
def test_a_damaged_dump_is_a_value_error(name: str, tmp_path: Path) -> None:
    whole = crashed.unpacked(name, tmp_path).read_bytes()
    path = tmp_path / "damaged"
    chance = random.Random(7)
    path.write_bytes(b"")
    with pytest.raises(ValueError, match="empty"):
        gpu_dump.read(path)
    for size in [1, 63, 64, 5000, len(whole) // 2, len(whole) - 1]:
        path.write_bytes(whole[:size])
        with pytest.raises(ValueError, match=r"GPU core dump|header"):
            gpu_dump.read(path)
    table = int.from_bytes(whole[40:48], "little")
    understood = 0
    for _ in range(60):
        content = bytearray(whole)
        for _ in range(8):
            at = chance.choice(
                [chance.randrange(len(whole)), chance.randrange(table, len(whole)), chance.randrange(64)]
            )
            content[at] = chance.randrange(256)
        path.write_bytes(content)
        try:
            gpu_dump.read(path)
            understood += 1
        except ValueError:
            pass
    assert 0 < understood < 60


def test_a_dump_that_is_no_file_is_an_os_error(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="folder"):
        gpu_dump.read(tmp_path)


def test_a_dump_that_is_larger_than_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = replace(limits.GPU_DUMP, most=100_000)
    monkeypatch.setattr(limits, "GPU_DUMP", small)
    with pytest.raises(ValueError, match=r"it is larger than 100,000 bytes, the limit for a GPU core dump"):
        gpu_dump.read(crashed.unpacked("inlined", tmp_path))
