"""What compute-sanitizer wrote on an H100, as problems on the author's lines."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orbit_remote.common.messages import Problem
from orbit_remote.common.requests import Job
from orbit_remote.recording import run_outcome
from orbit_remote.sanitizer import sanitizer_findings, sanitizer_records
from orbit_remote.sanitizer.sanitizer_records import Record
from tests.random_cases import ENCODABLE
from tests.recordings import planted

FOLDER = "/src/sanitizer/"


def own(file: str) -> str | None:
    return file if file.startswith(FOLDER) and "/." not in file else None


def recorded(program: str, tool: str) -> tuple[str, str]:
    """(its XML, its log)."""
    log = planted.RECORDED / f"{program}.{tool}.txt"
    xml = log.with_suffix(".xml")
    return xml.read_text() if xml.exists() else "", log.read_text()


def found(program: str, tool: str) -> tuple[Problem, ...]:
    return sanitizer_findings.problems(tool, sanitizer_records.read(*recorded(program, tool)), own)


def shown(problems: tuple[Problem, ...]) -> str:
    """As an editor shows them: line, severity, message; what is related below."""
    lines: list[str] = []
    for problem in problems:
        where = (
            f"{problem.place.file.removeprefix(FOLDER)}:{problem.place.line}"
            if problem.place
            else problem.symbol
        )
        lines.append(f"{where} {problem.severity}: {problem.message}")
        lines += [
            f"    {note.place.file.removeprefix(FOLDER)}:{note.place.line} {note.message}"
            for note in problem.notes
            if note.place
        ]
    return "\n".join(lines)


@pytest.mark.parametrize("program", planted.PLANTED)
def test_what_was_planted_is_named_at_its_line(program: str) -> None:
    answer = {
        tool: {problem.place.line for problem in found(program, tool) if problem.place}
        for tool in planted.TOOLS
    }
    wanted = {tool: planted.lines(f"{program}.cu", tool) for tool in planted.TOOLS}
    assert any(wanted.values())
    for tool, lines in wanted.items():
        assert lines <= answer[tool]
    assert set().union(*answer.values()) == set().union(*wanted.values())


TWINS = sorted(log.stem.partition(".") for log in planted.RECORDED.glob("*_right.*.txt"))


@pytest.mark.parametrize(("program", "tool"), [(program, tool) for program, _, tool in TWINS])
def test_of_a_correct_twin_nothing_is_said(program: str, tool: str) -> None:
    xml, log = recorded(program, tool)
    assert "SUMMARY" in log
    assert sanitizer_records.read(xml, log) == ()


CASES = {
    ("out_of_bounds_write", "memcheck"): """
        out_of_bounds_write.cu:4 error: Invalid __global__ write of size 4 bytes is out of bounds: 1 byte after the nearest allocation, of 4,000 bytes; first by thread (232,0,0) in block (3,0,0); 24 such findings
    """,
    ("shared_and_local", "memcheck"): """
        shared_and_local.cu:5 error: Invalid __shared__ write of size 4 bytes is out of bounds; first by thread (255,0,0) in block (0,0,0)
    """,
    # a header of the author's, inlined and called, and a template of the same file
    ("inlined", "memcheck"): """
        inlined.cu:6 error: Invalid __global__ read of size 4 bytes is out of bounds: 1 byte after the nearest allocation, of 1,024 bytes; first by thread (255,0,0) in block (0,0,0)
            inlined.cu:22 called from through_template
        inlined.cuh:5 error: Invalid __global__ read of size 4 bytes is out of bounds: 1 byte after the nearest allocation, of 1,024 bytes; first by thread (255,0,0) in block (0,0,0)
            inlined.cu:11 called from through_header
        inlined.cuh:10 error: Invalid __global__ write of size 4 bytes is out of bounds: 1 byte after the nearest allocation, of 1,024 bytes; first by thread (255,0,0) in block (0,0,0)
            inlined.cu:16 called from through_call
    """,
    ("race", "racecheck"): """
        race.cu:5 error: race: this write is not ordered against the read in line 6 (1,024 hazards)
            race.cu:6 the read, 1,024 hazards
        race.cu:6 error: race: this read is not ordered against the write in line 5 (1,024 hazards)
            race.cu:5 the write
    """,
    ("races", "racecheck"): """
        races.cu:7 error: race: this read is not ordered against the write in line 8 (512 hazards)
            races.cu:8 the write, 512 hazards
        races.cu:8 error: race: this write is not ordered against the read in line 7 (512 hazards)
            races.cu:7 the read
        races.cu:15 error: race: this write is not ordered against itself by other threads (127 hazards)
    """,
    # code of NVIDIA's headers is charged to the line that calls it
    ("cooperative", "memcheck"): """
        cooperative.cu:18 error: Invalid __global__ read of size 4 bytes is out of bounds: 1 byte after the nearest allocation, of 1,024 bytes; inside coalesced_reduce (coalesced_reduce.h:66); first by thread (124,0,0) in block (0,0,0); 4 such findings
    """,
    ("warp_mask", "synccheck"): """
        warp_mask.cu:8 error: Barrier error: invalid arguments; inside __syncwarp (sm_30_intrinsics.hpp:110); first by thread (0,0,0) in block (0,0,0); 17 such findings
    """,
    ("freed", "memcheck"): """
        freed.cu:2 error: Invalid __global__ write of size 4 bytes is out of bounds: 66,048 bytes before the nearest allocation, of 4,096 bytes; first by thread (0,0,0) in block (0,0,0); 4 such findings
        freed.cu:11 warning: cudaFree answered cudaErrorInvalidValue: invalid argument
    """,
    ("leak", "memcheck"): """
        leak.cu:6 information: 1,024 bytes allocated here are never freed
    """,
    ("api_error", "memcheck"): """
        api_error.cu:7 error: cudaLaunchKernel answered cudaErrorInvalidValue: invalid argument; the kernel did not run, so nothing in it was checked
        api_error.cu:9 warning: cudaMemcpy answered cudaErrorInvalidValue: invalid argument
    """,
    # the line of the assertion is in the program's output alone: this one is the launch
    ("asserts", "memcheck"): """
        asserts.cu:8 error: Warp assert; first by thread (4,0,0) in block (0,0,0); 4 such findings
    """,
    # built without -lineinfo: the kernel is named
    ("no_lineinfo", "memcheck"): """
        fill error: Invalid __global__ write of size 4 bytes is out of bounds: 1 byte after the nearest allocation, of 4,000 bytes; the code has no line information (-lineinfo); first by thread (232,0,0) in block (3,0,0); 24 such findings
    """,
    ("triton_bounds", "memcheck"): """
        triton_bounds.py:11 error: Invalid __global__ read of size 8 bytes is out of bounds: 1 byte after the nearest allocation, of 4,000 bytes; first by thread (116,0,0) in block (3,0,0); 12 such findings
    """,
    # Triton's code says only the innermost line: that of the helper which the kernel calls
    ("triton_peak", "memcheck"): """
        triton_bounds.py:17 error: Invalid __global__ read of size 16 bytes is out of bounds: 1 byte after the nearest allocation, of 4,000 bytes; first by thread (122,0,0) in block (0,0,0); 6 such findings
    """,
}  # fmt: skip


@pytest.mark.parametrize(("program", "tool"), CASES)
def test_how_it_is_said(program: str, tool: str) -> None:
    wanted = [line[8:] for line in CASES[program, tool].strip("\n").splitlines()]
    assert shown(found(program, tool)).splitlines() == [line for line in wanted if line.strip()]


def every() -> list[tuple[str, str]]:
    logs = sorted(planted.RECORDED.glob("*.txt"))
    both = [log.stem.partition(".") for log in logs if log.with_suffix(".xml").exists()]
    return [(program, tool) for program, _, tool in both]


@pytest.mark.parametrize(("program", "tool"), every())
def test_the_log_alone_says_the_same(program: str, tool: str) -> None:
    """What a run that was ended leaves behind."""
    xml, log = recorded(program, tool)
    assert [plain(record) for record in sanitizer_records.read("", log)] == [
        plain(record) for record in sanitizer_records.read(xml, log)
    ]


def plain(record: Record) -> Record:
    """The XML has frames of host code that the log leaves out as its own."""
    return replace(record, host=())


@pytest.mark.parametrize("cut", [0.2, 0.5, 0.9])
def test_a_log_that_breaks_off_still_names_the_line(cut: float) -> None:
    xml, log = recorded("out_of_bounds_write", "memcheck")
    records = sanitizer_records.read(xml[: int(len(xml) * cut)], log[: int(len(log) * cut)])
    problems = sanitizer_findings.problems("memcheck", records, own)
    assert {problem.place.line for problem in problems if problem.place} == {4}


LINES = [
    line
    for log in sorted(planted.RECORDED.glob("*.memcheck.txt"))[:12]
    for line in log.read_text().splitlines()
]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.one_of(st.sampled_from(LINES), st.text(ENCODABLE, max_size=40).map("========= {}".format)),
        max_size=30,
    )
)
def test_no_log_makes_the_reader_fail(lines: list[str]) -> None:
    records = sanitizer_records.read("", "\n".join(lines))
    sanitizer_findings.problems("memcheck", records, own)


@pytest.mark.parametrize(
    "xml",
    [
        "<a>",
        "<ComputeSanitizerOutput><record/></ComputeSanitizerOutput>",
        "<x><record><kind>Analysis</kind><what><source/><destination><count>many</count></destination></what></record></x>",
        "<x><record><where><line>99999999999999</line><path>/src/sanitizer/a</path></where></record></x>",
        '<!DOCTYPE x [<!ENTITY a "b">]><x><record><kind>&a;</kind></record></x>',
    ],
)
def test_no_xml_makes_the_reader_fail(xml: str) -> None:
    sanitizer_findings.problems("memcheck", sanitizer_records.read(xml, ""), own)


def test_an_assertion_stands_where_the_cuda_runtime_says() -> None:
    printed = (planted.RECORDED / "asserts.memcheck.out").read_text()
    job = Job("r", "sanitize", "cuda", f"{FOLDER}asserts.cu", "", directory=FOLDER)
    assertion = run_outcome.assertion(job, printed)
    records = sanitizer_records.read(*recorded("asserts", "memcheck"))
    (problem,) = sanitizer_findings.problems("memcheck", records, own, assertion)
    assert problem.place
    assert problem.place.line == 5
    assert problem.message.startswith(
        "device assertion `threadIdx.x < n` failed, first in block (0,0,0), thread ("
    )


def test_library_code_is_charged_to_the_line_that_calls_it() -> None:
    frames = (
        sanitizer_records.SanitizerFrame("sync_threads", "/usr/local/cuda/include/cooperative_groups.h", 123),
        sanitizer_records.SanitizerFrame("helper", f"{FOLDER}a.cuh", 7),
        sanitizer_records.SanitizerFrame("kernel", f"{FOLDER}a.cu", 40),
    )
    record = Record(
        "Synccheck", "Error", "Divergent thread(s) in block", frames, thread="0,0,0", block="1,0,0"
    )
    assert shown(sanitizer_findings.problems("synccheck", [record] * 3, own)) == (
        "a.cuh:7 error: Divergent thread(s) in block; inside sync_threads (cooperative_groups.h:123); "
        "first by thread (0,0,0) in block (1,0,0); 3 such findings\n"
        "    a.cu:40 called from kernel"
    )


def test_code_of_a_library_that_nobody_called_is_charged_to_the_kernel() -> None:
    record = Record(
        "Precise",
        "Error",
        "Invalid",
        (sanitizer_records.SanitizerFrame("peak", "/lib/triton/standard.py", 170),),
    )
    assert shown(sanitizer_findings.problems("memcheck", [record], own)) == (
        "peak error: Invalid; inside peak (standard.py:170)"
    )


def test_what_only_follows_from_a_fault_is_left_out() -> None:
    fault = Record(
        "Precise", "Error", "Invalid", (sanitizer_records.SanitizerFrame("k", f"{FOLDER}a.cu", 1),)
    )
    sticky = Record(
        "Api", "Error",
        'Program hit cudaErrorLaunchFailure (error 719) due to "unspecified launch failure" on CUDA API call to cudaFree.',
        error="cudaErrorLaunchFailure",
    )  # fmt: skip
    leak = Record("Leak", "Error", "Leaked 4000 bytes")
    assert len(sanitizer_findings.problems("memcheck", [fault, sticky, leak], own)) == 1
    assert len(sanitizer_findings.problems("memcheck", [sticky, leak], own)) == 2
