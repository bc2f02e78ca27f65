"""Launches that CUPTI counted within a program, without a GPU: what is asked, and what the lines become that came back"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from orbit_lsp.profile import bottleneck
from orbit_remote.common.messages import Profile
from orbit_remote.counters import click_metrics, profiler, program_counts
from orbit_remote.counters.program_counts import ProgramCounts
from orbit_remote.counters.source_lines import Authorship
from orbit_remote.recording import injection
from orbit_remote.toolchain.elf import Cubin
from tests import recorded_profiles
from tests.remote.test_counters import counters_of, record_of, sampled
from tests.remote.test_injection import find_or_skip, needs_compiler

NAME = "memory_bound"
CHECKSUM = "1840306677"


@pytest.fixture
def report() -> Profile:
    return recorded_profiles.profile(NAME)


def line_of(report: Profile, **different: Any) -> dict[str, Any]:
    """What the profiler writes of a launch, with the values of a report of Nsight Compute."""
    record = record_of(report)
    samples, _ = sampled(NAME)
    places = [
        [place.function, place.offset, {f"smsp__pcsamp_warps_issue_stalled_{name}": n for name, n in place.stalls.items()}]
        for place in samples.places
    ]  # fmt: skip
    return {
        "symbol": record.symbol, "grid": record.grid, "block": record.block, "cluster": [0, 0, 0],
        "chip": [9, 0, 132], "seconds": 6e-05, "dynamic": 0, "registers": 10, "static": 0, "local": 0,
        "period": 4096, "samples": {"dropped": 0, "places": places}, "code": CHECKSUM,
        "passes": 17, "values": counters_of(report), "complete": True,
    } | different  # fmt: skip


def read(folder: Path, *lines: dict[str, Any] | str) -> ProgramCounts:
    text = "\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines)
    (folder / "7.counted").write_text(f"{text}\n")
    (folder / f"{CHECKSUM}.cubin").write_bytes(sampled(NAME)[1])
    return program_counts.read(folder)


def test_a_launch_is_what_nsight_compute_reports(tmp_path: Path, report: Profile) -> None:
    counts = read(tmp_path, line_of(report), {"launched": [report.symbol]})
    (made,) = program_counts.profiles_of(counts, Authorship("/src/memory_bound.cu"), "13.0", {})
    assert (made.symbol, made.grid, made.block) == (report.symbol, report.grid, report.block)
    assert [(line.line, line.samples) for line in made.lines if line.samples] == [
        (line.line, line.samples) for line in report.lines if line.samples
    ]
    assert bottleneck.verdict(made) == bottleneck.verdict(report)
    for name in ("launch__registers_per_thread", "launch__waves_per_multiprocessor", "dram__bytes_read.sum"):
        assert made.metrics[name].value == pytest.approx(report.metrics[name].value)


def test_the_code_is_found_by_its_kernel_where_no_sample_names_it(tmp_path: Path, report: Profile) -> None:
    counts = read(tmp_path, line_of(report, code=""))
    assert report.symbol in Cubin(counts.launches[0].code.cubin).functions()


def test_a_configuration_that_several_processes_launch_is_shown_once(tmp_path: Path, report: Profile) -> None:
    (tmp_path / "6.counted").write_text(json.dumps(line_of(report)))
    counts = read(tmp_path, line_of(report), line_of(report, grid=[1, 1, 1]))
    assert [each.record.grid for each in counts.launches] == [report.grid, (1, 1, 1)]


def test_torn_and_foreign_lines_are_left_out(tmp_path: Path, report: Profile) -> None:
    whole = json.dumps(line_of(report))
    counts = read(tmp_path, whole[:500], "[1]", "{}", whole, {"values": {}}, whole[:-9])
    assert len(counts.launches) == 1


@pytest.mark.parametrize(
    ("lines", "uncounted"),
    [
        ([{"why": "it is launched by a CUDA graph"}, {"launched": []}], "it is launched by a CUDA graph"),
        ([{"launched": ["_Z5otherPf"]}], ""),
        ([{"failed": True}, {"launched": ["_Z1kPf"]}], ""),
    ],
    ids=["refused", "another kernel", "a kernel that fails"],
)
def test_why_nothing_was_counted(lines: list[dict[str, Any]], uncounted: str, tmp_path: Path) -> None:
    assert read(tmp_path, *lines).uncounted == uncounted


def test_which_kernel_was_being_counted_when_the_program_was_ended(tmp_path: Path, report: Profile) -> None:
    begun = {"begun": "_Z1kPf", "code": CHECKSUM}
    assert read(tmp_path, begun).counting == "_Z1kPf"
    assert read(tmp_path, begun, line_of(report)).counting == ""


def test_a_program_that_never_came_to_cupti_has_to_be_counted_in_another_way(tmp_path: Path) -> None:
    assert program_counts.read(tmp_path).uncounted == "CUPTI could not come into any process of it"


@pytest.mark.parametrize(
    ("different", "more", "remark"),
    [
        ({"complete": False, "passes": 3, "seconds": 2.0}, {}, "a launch takes 2 s, so fewer counters were read, in 3 passes: a smaller launch has all of them"),
        ({"samples": {"dropped": 0, "places": []}}, {}, "CUPTI took no warp samples, so no line has a share"),
        ({}, {"symbol": "_Z6idlingv", "samples": {"dropped": 0, "places": []}}, "CUPTI took no warp samples of idling, so no line of it has a share"),
        ({}, {"more": True}, "only 1 launch was profiled: more have other configurations"),
        ({}, {"why": "it is launched by a CUDA graph"}, "a launch was not counted: it is launched by a CUDA graph"),
    ],
)  # fmt: skip
def test_what_is_said_of_what_was_counted(
    different: dict[str, Any], more: dict[str, Any], remark: str, tmp_path: Path, report: Profile
) -> None:
    further = line_of(report, **more) if "samples" in more else more
    counts = read(tmp_path, line_of(report, **different), *([further] if further else []))
    assert remark in counts.remarks


def test_an_order_names_the_kernels_and_the_counters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profiler, "library", lambda cache, _: cache / "profiler.so")
    cupti = injection.Cupti((), tmp_path, 130001, "CUpti_ActivityKernel10")
    for wanted, pattern, expected in (
        (("_Z1kPf", "_Z1kPi"), "k", ["symbol _Z1kPf", "symbol _Z1kPi"]),
        ((), "^k$", ["pattern ^k$"]),
        ((), "", []),
    ):
        variables = program_counts.environment(tmp_path / "launches", tmp_path, cupti, wanted, pattern, 60)
        order = Path(variables["ORBIT_PROFILE"]).read_text().splitlines()
        assert order[: len(expected)] == expected
        sets = [part.split() for part in "\n".join(order).replace("counter ", "").split("set next\n")[1:]]
        assert sets == list(map(list, click_metrics.SETS))
    assert variables["ORBIT_PROFILER"] == str(tmp_path / "profiler.so")


MAIN = """\
#include "kept_memory.h"
#include <fstream>
#include <iostream>
#include <iterator>
int main(int, char** words) {
  std::ifstream file(words[1], std::ios::binary);
  const std::string content{std::istreambuf_iterator<char>(file), {}};
  const orbit::CubinNames names(content.data(), content.size());
  for (const auto& name : names.functions) std::cout << "kernel " << name << "\\n";
  for (const auto& name : names.variables) std::cout << "variable " << name << "\\n";
}
"""
VARIABLES = """\
__device__ unsigned count;
static __device__ int own[3];
namespace { __device__ double hidden = 2.0; }
__constant__ float fixed[4];
__global__ void k(float* x) {
  __shared__ float shared[32];
  shared[threadIdx.x] = fixed[0];
  count++, own[1]++, hidden += 1;
  x[0] = shared[0] + count + own[1] + hidden;
}
"""


@pytest.mark.slow
@needs_compiler
def test_the_variables_that_a_kernel_can_change_are_known(tmp_path: Path) -> None:
    cupti = find_or_skip()
    if shutil.which("nvcc") is None:
        pytest.skip("needs nvcc")
    (tmp_path / "main.cpp").write_text(MAIN)
    (tmp_path / "k.cu").write_text(VARIABLES)
    include = [f"-I{folder}" for folder in (injection.PROFILER.parent, *cupti.includes)]
    library = f'-DORBIT_CUPTI_LIBRARY="{cupti.library}"'
    subprocess.run(
        ["g++", "-std=c++17", *include, library, "main.cpp", "-o", "main", "-ldl"], cwd=tmp_path, check=True
    )
    subprocess.run(["nvcc", "-arch=sm_90a", "-cubin", "-o", "k.cubin", "k.cu"], cwd=tmp_path, check=True)

    def told(name: str) -> list[str]:
        done = subprocess.run(
            [tmp_path / "main", tmp_path / name], capture_output=True, text=True, check=True
        )
        return done.stdout.splitlines()

    lines = told("k.cubin")
    assert "kernel _Z1kPf" in lines
    variables = [line.removeprefix("variable ") for line in lines if line.startswith("variable")]
    assert sorted(re.search(r"count|own|hidden", name)[0] for name in variables) == ["count", "hidden", "own"]
    for cut in (0, 40, 700):
        (tmp_path / "cut").write_bytes((tmp_path / "k.cubin").read_bytes()[:cut])
        assert told("cut") == []
