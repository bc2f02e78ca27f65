"""Reports that Nsight Compute recorded on an H100, as we tell them and as NVIDIA's own reader does.

Nothing expected is typed in but what a reader of the programs knows: which line does the work. Values come from
`ncu_report` in the test, lines from nvdisasm.
"""

from __future__ import annotations

import contextlib
import functools
import linecache
import math
import re
import subprocess
import sys
import types
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ncu_report
import pytest
import pytest_asyncio
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from orbit_remote.common import messages as c
from orbit_remote.common.measurements import Line
from orbit_remote.ncu import report_reader
from orbit_remote.ncu.report_process import ReportReader
from orbit_remote.ncu.report_reader import ReportAnswer, ReportRequest
from orbit_remote.toolchain import dwarf_lines, ptx_inlining
from tests.remote.nvcc_check import needs_nvcc

RECORDED = Path(__file__).parent.parent / "recordings" / "profiles"
NVDISASM = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "nvdisasm"
REPORTS = sorted(path.name.removesuffix(".ncu-rep") for path in RECORDED.glob("*.ncu-rep"))


in_one_loop = pytest.mark.asyncio(loop_scope="module")


def request(name: str, **fields: Any) -> ReportRequest:
    stem = "memory_bound" if name == "without_lines" else name.partition(".")[0]
    suffix = next(path.suffix for path in RECORDED.glob(f"{stem}.*") if path.suffix in (".cu", ".py"))
    report = str(RECORDED / f"{name}.ncu-rep")
    return ReportRequest(report, f"/src/{stem}{suffix}", users=suffix == ".py", tool="2025.3.1.0", **fields)


@functools.cache
def profile(name: str, **fields: Any) -> c.Profile:
    (result,) = report_reader.read(ncu_report, request(name, **fields)).profiles
    return result


def action(name: str) -> Any:
    return ncu_report.load_report(str(RECORDED / f"{name}.ncu-rep"))[0][0]


def by_instruction(metric: Any) -> Iterator[tuple[int, int]]:
    for at in range(metric.num_instances()):
        yield metric.correlation_ids().as_uint64(at), metric.as_uint64(at)


def source_line(profiled: c.Profile, line: Line) -> str:
    return (RECORDED / Path(line.file).name).read_text().splitlines()[line.line - 1].strip()


@pytest.mark.parametrize("name", REPORTS)
def test_values_are_the_reports_own(name: str) -> None:
    theirs = action(name)
    # what has no value of its own, only a series of samples over time, answers 0
    answer = {
        metric_name: theirs[metric_name].value()
        for metric_name in theirs.metric_names()
        if theirs[metric_name].has_value()
    }
    wanted = {
        item: (float(value), theirs[item].unit())
        for item, value in answer.items()
        if isinstance(value, int | float)
        and math.isfinite(value)
        and not item.startswith(("device__", "numa__", "nvlink__", "c2clink__"))
    }
    result = profile(name)
    assert {name: (metric.value, metric.unit) for name, metric in result.metrics.items()} == wanted
    assert wanted["gpu__time_duration.sum"][1] == "ns"
    assert result.symbol == theirs.name(theirs.NameBase_MANGLED)
    assert result.block
    assert math.prod(result.block) == answer["launch__block_size"]
    assert result.grid
    assert math.prod(result.grid) == answer["launch__grid_size"]


@pytest.mark.parametrize(
    "name", [name for name in REPORTS if name not in ("memory_bound.basic", "without_lines")]
)
def test_every_sample_is_charged_to_a_line_of_the_author(name: str) -> None:
    theirs = action(name)
    result = profile(name)
    total = theirs["smsp__pcsamp_sample_count"].value()
    # Triton's own cubins do not say where library code was called from; that is another test's subject
    elsewhere = 0 if not name.startswith("softmax") else _samples_in(theirs, "standard.py")
    assert sum(line.samples for line in result.lines) + elsewhere == result.samples == total
    assert {line.file for line in result.lines} == {request(name).path}


def _samples_in(theirs: Any, file: str) -> int:
    text = 0
    for name in theirs.metric_names():
        if name.startswith("smsp__pcsamp_warps_issue_stalled_") and not name.endswith("_not_issued"):
            for at, count in by_instruction(theirs[name]):
                info = theirs.source_info(at)
                text += count if info and info.file_name().endswith(file) else 0
    return text


@pytest.mark.parametrize(
    ("name", "work", "stall"),
    [
        ("memory_bound", "y[i] = a * x[i] + y[i];", "long_scoreboard"),
        ("bank_conflicts", "sum += tile[threadIdx.x][(threadIdx.y + k) & 31];", "mio_throttle"),
        ("latency_bound", "at = next[at];", "long_scoreboard"),
        ("tensor_core", "mma_sync", None),
        ("in_library", "Sort", None),
    ],
)
def test_the_hot_line_is_the_one_that_does_the_work(name: str, work: str, stall: str | None) -> None:
    result = profile(name)
    hot = max(result.lines, key=lambda line: line.samples)
    text = source_line(result, hot)
    assert work in text or stall is not None, text
    assert stall in (None, next(iter(hot.stalls)))
    assert hot.samples > 0.5 * (result.samples or 0)


def test_library_code_is_charged_to_the_line_that_calls_it() -> None:
    result = profile("in_library")
    hot = max(result.lines, key=lambda line: line.samples)
    assert "Sort" in source_line(result, hot)
    assert sum(hot.inside.values()) == hot.samples
    assert {name.partition(":")[0] for name in hot.inside} > {"block_radix_rank.cuh", "block_exchange.cuh"}


def test_library_code_of_triton_is_charged_to_the_line_that_calls_it() -> None:
    result = profile("softmax", ptx=str(RECORDED))
    hot = max(result.lines, key=lambda line: line.samples)
    assert "tl.max" in source_line(result, hot)
    assert {name.partition(":")[0] for name in hot.inside} == {"standard.py"}
    assert sum(hot.inside.values()) > 0.9 * hot.samples


def test_counters_of_a_line_are_the_sums_of_its_instructions() -> None:
    theirs = action("uncoalesced")
    wanted: Counter[int] = Counter()
    for at, count in by_instruction(theirs["memory_l2_theoretical_sectors_global"]):
        wanted[theirs.source_info(at).line()] += count
    result = {line.line: line.sectors for line in profile("uncoalesced").lines if line.sectors is not None}
    assert result == wanted


def test_what_each_program_was_written_to_show() -> None:
    def worst(name: str, much: str, ideal: str) -> float:
        lines = [line for line in profile(name).lines if getattr(line, ideal)]
        return max(getattr(line, much) / getattr(line, ideal) for line in lines)

    assert worst("bank_conflicts", "wavefronts", "ideal_wavefronts") == pytest.approx(32)
    assert worst("uncoalesced", "sectors", "ideal_sectors") > 4
    assert worst("memory_bound", "sectors", "ideal_sectors") == 1
    assert any(line.local_sectors for line in profile("spilling").lines)
    assert not any(line.local_sectors for line in profile("memory_bound").lines)


def test_a_basic_report_has_no_lines_and_no_samples() -> None:
    result = profile("memory_bound.basic")
    assert (result.lines, result.samples) == ((), None)
    assert "dram__bytes.sum.per_second" not in result.metrics


def test_code_without_line_information_has_no_lines() -> None:
    result = profile("without_lines")
    assert result.lines == ()
    assert result.samples


@pytest.mark.parametrize("name", REPORTS)
def test_advice_is_that_of_nvidias_rules_without_their_links(name: str) -> None:
    theirs = {
        (rule["rule_identifier"], rule.get("speedup_estimation", {}).get("speedup"))
        for rule in action(name).rule_results_as_dicts()
        if rule["rule_message"]["type"] in (ncu_report.MsgType_OPTIMIZATION, ncu_report.MsgType_WARNING)
    }
    advices = profile(name).advice
    assert {(advice.rule, advice.speedup) for advice in advices} == theirs
    assert not [advice.message for advice in advices if re.search(r"@\w+:", advice.message)]
    assert {advice.scope for advice in advices if advice.speedup is not None} <= {"local", "global"}
    assert {advice.scope for advice in advices if advice.speedup is None} <= {""}


def test_a_link_leaves_its_words() -> None:
    text = "See @url:the guide:https://docs.nvidia.com/x/index.html#a@ and @section:LaunchStats:Launch Statistics@."
    assert report_reader._plain(text) == "See the guide and Launch Statistics."


def test_numbers_that_are_none_are_absent() -> None:
    """An acted module: the H100 gave no NaN."""
    values = {"nan": math.nan, "inf": math.inf, "zero": 0.0, "one": 1.0}

    class Metric:
        def __init__(self, name: str) -> None:
            self.name = name

        def __getattr__(self, what: str) -> Any:
            answers = {
                "kind": 3,
                "has_value": self.name != "none",
                "as_double": values.get(self.name),
                "unit": "%",
            }
            return lambda *_: answers.get(what, 0)

    module = types.SimpleNamespace(
        IMetric=types.SimpleNamespace(
            ValueKind_FLOAT=2, ValueKind_DOUBLE=3, ValueKind_UINT32=4, ValueKind_UINT64=5
        )
    )
    acted = types.SimpleNamespace(metric_names=lambda: [*values, "none"], metric_by_name=Metric)
    reader = report_reader._LaunchReader(module, ReportRequest("", ""), {})
    assert {name: metric.value for name, metric in reader._metrics(acted)} == {"zero": 0.0, "one": 1.0}


def test_of_several_instances_with_one_name_each_has_its_own_lines() -> None:
    """As Triton's have that differ in their constants; the other's table here is that of another kernel."""
    theirs = action("softmax")
    (right,) = report_reader._line_tables(request("softmax"), {"softmax"})["softmax"]
    (other,) = report_reader._line_tables(request("matmul"), {"matmul"})["matmul"]
    wanted = profile("softmax").lines
    for tables in ([right, other], [other, right], [right, right]):
        reader = report_reader._LaunchReader(ncu_report, request("softmax"), {"softmax": tables})
        assert reader.profile(theirs).lines == wanted


# -- lines of code ----------------------------------------------------------------------------------


def disassembled(cubin: Path) -> dict[str, dict[int, tuple[tuple[str, int], ...]]]:
    """Function -> address -> frames, innermost first, as nvdisasm prints them."""
    out = subprocess.run(
        [NVDISASM, "-gi", "-c", "-hex", cubin], capture_output=True, text=True, check=False
    ).stdout
    result: dict[str, dict[int, tuple[tuple[str, int], ...]]] = {}
    frames: list[tuple[str, int]] = []
    function, fresh = "", True
    for line in out.splitlines():
        if named := re.match(r"\s*\.section\s+\.text\.([^,\s]+)", line):
            function, frames = named[1], []
        elif match := re.match(r'\s*//## File "(.*?)", line (\d+)', line):
            frames = [] if fresh else frames
            fresh = False
            frames.append((match[1], int(match[2])))
        elif code := re.match(r"\s+/\*([0-9a-f]{4,})\*/\s+\S", line):
            result.setdefault(function, {})[int(code[1], 16)] = tuple(frames)
            fresh = True
    return result


def embedded(name: str, folder: Path) -> Path:
    content = (RECORDED / f"{name}.ncu-rep").read_bytes()
    file = folder / "code.cubin"
    file.write_bytes(content[content.index(b"\x7fELF") :])
    return file


@pytest.mark.parametrize(
    "name", ["memory_bound", "spilling", "tensor_core", "divergent", "matmul", "softmax"]
)
def test_lines_are_those_of_nvdisasm(name: str, tmp_path: Path) -> None:
    cubin = embedded(name, tmp_path)
    by_symbol = dwarf_lines.read(cubin.read_bytes())
    for function, wanted in disassembled(cubin).items():
        assert {at: by_symbol[function].at(at) for at in wanted} == wanted
        assert len(wanted) > 20


def test_lines_of_calls_within_calls(tmp_path: Path) -> None:
    """Of cub's recursive templates nvdisasm 12.8 leaves out repeated frames between; the ends are the same."""
    cubin = embedded("in_library", tmp_path)
    by_symbol = dwarf_lines.read(cubin.read_bytes())
    depth = 0
    for function, wanted in disassembled(cubin).items():
        for at, frames in wanted.items():
            got = by_symbol[function].at(at)
            assert (got[0], got[-1]) == (frames[0], frames[-1])
            assert list(dict.fromkeys(got)) == list(dict.fromkeys(frames)) or len(got) > len(frames)
            depth = max(depth, len(got))
    assert depth > 8


INLINED = """\
#include <cuda_fp16.h>
__device__ __forceinline__ float doubled(const float* x, int i) {
  return x[i] *
         2.0f;
}
__device__ __noinline__ float apart(float v) { return v * 3.0f; }
__global__ void k(const float* x, float* y, __half* h) {
  y[0] = doubled(x, 1) + apart(x[2]);
  h[0] = __hadd(h[1], h[2]);
}
__global__ void other(float* y) { y[0] = 1.0f; }
"""


@needs_nvcc
def test_lines_of_a_file_with_several_functions(tmp_path: Path) -> None:
    source, cubin = tmp_path / "k.cu", tmp_path / "k.cubin"
    source.write_text(INLINED)
    subprocess.run(["nvcc", "-O3", "-lineinfo", "-arch=sm_90a", "-cubin", "-o", cubin, source], check=True)
    by_symbol = dwarf_lines.read(cubin.read_bytes())
    wanted = disassembled(cubin)
    assert {name: {at: by_symbol[name].at(at) for at in each} for name, each in wanted.items()} == wanted
    assert dwarf_lines.read(cubin.read_bytes(), {"_Z5otherPf"}) == {"_Z5otherPf": by_symbol["_Z5otherPf"]}
    assert dwarf_lines.read(cubin.read_bytes(), {"absent"}) == {}
    k = by_symbol["_Z1kPKfPfP6__half"]
    chains = {tuple(line for _, line in frames) for _, frames in k.frames}
    assert {(3, 8), (8,), (9,), (6,)} <= chains
    assert any("cuda_fp16" in frames[0][0] and frames[-1] == (str(source), 9) for _, frames in k.frames)


def test_a_table_that_is_damaged(tmp_path: Path) -> None:
    content = bytearray(embedded("memory_bound", tmp_path).read_bytes())
    at = content.index(dwarf_lines.Cubin(bytes(content)).section(".debug_line"))
    for step in range(0, 200, 7):
        broken = bytes(content[: at + step]) + b"\xff" * 16 + bytes(content[at + step + 16 :])
        with contextlib.suppress(ValueError):
            dwarf_lines.read(broken)


LOOP = """\
import triton
import triton.language as tl


@triton.jit
def softmax(x, y, columns, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    values = tl.load(x + at, mask=at < columns, other=0.0)
    for _ in range(40):
        values = values - tl.max(values, axis=0) * 0.01
    tl.store(y + at, values / tl.sum(values, axis=0), mask=at < columns)
"""


@pytest.mark.parametrize("text", [(RECORDED / "softmax.py").read_text(), LOOP], ids=["recorded", "loop"])
def test_library_code_of_triton_is_charged_through_its_ptx(tmp_path: Path, text: str) -> None:
    """Real Triton compiles it, for the architecture of the recordings."""
    source = tmp_path / "softmax.py"
    source.write_text(text)
    module = types.ModuleType("softmax")
    module.__file__ = str(source)
    sys.modules["softmax"] = module
    linecache.checkcache(str(source))
    exec(compile(text, str(source), "exec"), module.__dict__)
    signature = {"x": "*fp32", "y": "*fp32", "columns": "i32", "BLOCK": "constexpr"}
    made = triton.compile(
        ASTSource(module.softmax, signature, {(3,): 2048}), target=GPUTarget("cuda", 90, 32)
    )
    code, ptx = made.asm["cubin"], made.asm["ptx"]
    plain = dwarf_lines.read(code)["softmax"]
    lines = ptx_inlining.add(plain, "softmax", code, ["another PTX", ptx])
    chains = {tuple((Path(file).name, line) for file, line in frames) for _, frames in lines.frames}
    calls = dict(enumerate(text.splitlines(), 1))
    for chain in chains:
        assert chain[-1][0] == "softmax.py", chain
        if len(chain) > 1:
            assert re.search(r"tl\.(max|sum)", calls[chain[-1][1]])
    assert {len(chain) for chain in chains} == {1, 2, 3}
    # another kernel's PTX tells nothing
    changed = ptx.replace("ld.param", "ld.other", 1)
    assert ptx_inlining.add(plain, "softmax", code, ["another PTX", changed]) == plain


# -- the process ------------------------------------------------------------------------------------


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def reader() -> Any:
    result = ReportReader()
    yield result
    await result.close()


@in_one_loop
async def test_the_process_answers_what_reading_here_does(reader: ReportReader) -> None:
    for name in ("memory_bound", "softmax"):
        assert await reader.read((), request(name)) == report_reader.read(ncu_report, request(name))


@in_one_loop
@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "no launch is found in it"),
        (b"hello", "no launch is found in it"),
        (90_000, "the report is damaged"),
        (400, ""),
    ],
)
async def test_damaged_reports(reader: ReportReader, tmp_path: Path, content: bytes | int, says: str) -> None:
    whole = (RECORDED / "memory_bound.ncu-rep").read_bytes()
    file = tmp_path / "damaged.ncu-rep"
    file.write_bytes(whole[:content] if isinstance(content, int) else content)
    answer = await reader.read((), ReportRequest(str(file), "/src/memory_bound.cu"))
    assert answer.profiles == ()
    assert answer.problem
    assert says in answer.problem
    assert (await reader.read((), request("memory_bound"))).profiles


@in_one_loop
async def test_a_report_that_is_not_there(reader: ReportReader) -> None:
    assert await reader.read((), ReportRequest("/none.ncu-rep", "/k.cu")) == ReportAnswer(
        problem="there is no report"
    )


@in_one_loop
async def test_only_as_many_launches_as_asked_for(reader: ReportReader) -> None:
    answer = await reader.read((), request("memory_bound", most=0))
    assert (answer.profiles, answer.left_out) == ((), 1)


@in_one_loop
async def test_a_reader_that_does_not_load(reader: ReportReader, tmp_path: Path) -> None:
    (tmp_path / "ncu_report.py").write_text("raise ImportError('undefined symbol')\n")
    answer = await reader.read((str(tmp_path),), request("memory_bound"))
    assert len(answer.profiles) == 1  # the installed one stands in
