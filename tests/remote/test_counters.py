"""A click's counters by CUPTI, without a GPU: what each chip has, what is derived of a launch, and samples by line."""

from __future__ import annotations

import functools
import json
import re
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import ncu_report
import pytest

from orbit_lsp.profile import bottleneck, roofline
from orbit_lsp.views.profile import counter_rows, profile_hints
from orbit_remote.common import codec, regular_files
from orbit_remote.common import messages as c
from orbit_remote.common.launch_records import LaunchRecord
from orbit_remote.common.limits import REPORT
from orbit_remote.common.messages import Profile
from orbit_remote.counters import click_metrics, launch_facts, profiler, profiles
from orbit_remote.counters.profiler import Counted, LaunchProfiler, Sampled
from orbit_remote.counters.source_lines import Authorship
from orbit_remote.recording import injection
from orbit_remote.toolchain import elf
from tests import recorded_profiles
from tests.recordings.profiled import FOLDER, NAMES, source_of
from tests.remote.test_injection import find_or_skip

CHIPS = {"GA100": 12, "GA102": 14, "AD102": 14, "GH100": 17, "GB100": 15}
"""The passes of a click by chip, with CUPTI 13.0: sm_80, 86, 89, 90, 100."""
SHOWN = (
    *(name for _, name in (*counter_rows.SPEED, *counter_rows.MEMORY, *counter_rows.CLOCKS)),
    *(profile_hints.ACHIEVED, bottleneck.LATENCY, bottleneck.DRAM, roofline._CYCLES, roofline._SM_CYCLES),
    *(roofline._TRAFFIC, roofline._DRAM_PEAK, roofline._DRAM_CYCLES),
)
CLICKS = [name for name in NAMES if "full" not in name and "basic" not in name and "detailed" not in name]
CAPABILITY, MULTIPROCESSORS = "9.0", 132


@pytest.fixture(scope="module")
def host(kept: Path) -> LaunchProfiler:
    return LaunchProfiler(profiler.library(kept / "cupti", find_or_skip()))


@pytest.mark.parametrize("chip", CHIPS)
def test_a_chip_has_the_counters_that_are_shown_in_as_many_passes(chip, host):
    plan = host.plan(click_metrics.CLICK, chip)
    shown = {name for name in SHOWN if not name.startswith(("derived__", "launch__"))}
    assert shown <= set(plan.names)
    assert plan.passes <= CHIPS[chip]


def test_a_chip_that_lacks_a_counter_is_counted_without_it(host):
    plan = host.plan(("gpu__time_duration.sum", "smsp__no_such.sum", "dram__bytes.no_such"), "GH100")
    assert plan.names == ("gpu__time_duration.sum",)


@pytest.mark.parametrize("chip", CHIPS)
def test_a_long_launch_is_counted_in_fewer_passes(chip, host):
    assert host.plan(click_metrics.SHORT, chip).passes <= 5
    assert host.plan(click_metrics.ONE_PASS, chip).passes == 1


@pytest.mark.parametrize(
    ("seconds", "passes"), [(6e-5, 17), (1.1, 17), (1.3, 4), (4.9, 4), (10.0, 1), (100.0, 1)]
)
def test_so_many_passes_fit_a_launch_of_so_many_seconds(seconds, passes, host, monkeypatch):
    monkeypatch.setattr(host, "plan", functools.partial(LaunchProfiler.plan, host, chip="GH100"))
    plan, complete = host.plan_for(seconds)
    assert (plan.passes, complete) == (passes, passes == 17)
    assert {"gpu__time_duration.sum", profile_hints.ACHIEVED} <= set(plan.names)


FAKE_CUPTI = """\
#include <stdint.h>
#define F(name) int name(void) { return 0; }
%s
int cuptiGetVersion(uint32_t* version) { *version = 120000; return 0; }
"""


def test_a_cupti_that_is_not_of_its_headers_says_so(host, kept):
    """A toolkit was changed beneath the profiler: the structures of 12.4 and 13.0 differ."""
    del host  # the profiler that is compiled already
    functions = re.findall(r"X\((cupti\w+)\)", (injection.SOURCE.parent / "profiler_cupti.h").read_text())
    library = kept / "libcupti_of_another_version.so"
    source = FAKE_CUPTI % "\n".join(f"F({name})" for name in functions if name != "cuptiGetVersion")
    subprocess.run(
        ["gcc", "-shared", "-fPIC", "-x", "c", "-o", library, "-"], input=source, text=True, check=True
    )
    other = LaunchProfiler(profiler.library(kept / "cupti", replace(find_or_skip(), library=library)))
    with pytest.raises(profiler.UncountedError, match="CUPTI changed since the profiler was built"):
        other.plan(click_metrics.CLICK, "GH100")


@pytest.mark.parametrize("chip", ["", "XX1"])
def test_what_cannot_be_counted_says_why(chip, host):
    with pytest.raises(profiler.UncountedError, match=r"no CUDA context|CHIP"):
        host.plan(click_metrics.CLICK, chip)


def test_a_cupti_without_a_range_profiler_says_which_is_the_first(tmp_path):
    old = injection.Cupti((tmp_path,), tmp_path / "libcupti.so", 22, "CUpti_ActivityKernel9")
    with pytest.raises(profiler.UncountedError, match=r"API version 22.*CUDA 12\.6"):
        profiler.library(tmp_path, old)


@pytest.mark.parametrize(("seconds", "exponent"), [(2e-6, 12), (0.02, 12), (0.03, 13), (1.0, 18), (1e9, 31)])
def test_a_long_launch_is_sampled_less_often(seconds, exponent):
    assert profiler.period_exponent(seconds) == exponent


# -- passes ------------------------------------------------------------------------------------------


class Library:
    """The compiled profiler, which asks for so many passes and counts so many kernels in each; `calls` are what it was told."""

    def __init__(self, passes: int = 2, kernels: int = 1, refused: str = "") -> None:
        self.calls: list[str] = []
        self._passes, self._kernels, self._refused = passes, kernels, refused

    def __getattr__(self, name: str) -> Callable[..., bytes | None]:
        return lambda *_: self._answer(name.removeprefix("orbit_"))

    def _answer(self, name: str) -> bytes | None:
        if name == "why":
            return b"the driver keeps the GPU's counters for administrators"
        self.calls.append(name)
        if name == self._refused:
            return None
        done = self.calls.count("pass_begin") >= self._passes
        values = json.dumps([[at, None] for at in range(self._kernels)])
        answers = {"pass_end": "true" if done else "false", "counted": values}
        samples = '{"dropped": 0, "places": [["k", 16, {"smsp__pcsamp_warps_issue_stalled_wait": 2}]]}'
        return (answers | {"samples": samples}).get(name, "").encode()


def profiler_of(library: Library) -> LaunchProfiler:
    made = LaunchProfiler.__new__(LaunchProfiler)
    made._library, made._exponent = library, 12
    return made


PLAN = profiler.PassPlan("GH100", 2, ("a", "b"))


def counted(library: Library, launches: int = 1) -> list[dict[str, float]]:
    def work(what: str) -> Callable[[], None]:
        return lambda: library.calls.append(what)

    each = [work("launch")] * launches
    return profiler_of(library).counted(PLAN, each, work("restore"), work("flush"))


def test_a_pass_restores_memory_and_flushes_before_each_launch():
    library = Library(passes=1, kernels=2)
    counted(library, 2)
    assert " ".join(library.calls) == "count restore pass_begin flush launch flush launch pass_end counted"


@pytest.mark.parametrize(
    ("kernels", "launches", "values"),
    [(1, 1, [0]), (2, 1, [1]), (4, 2, [1, 3]), (6, 2, [2, 5])],
    ids=["a launch", "after its flush", "two", "a flush of two kernels"],
)
def test_the_last_kernel_of_each_launch_is_the_launch(kernels, launches, values):
    assert counted(Library(kernels=kernels), launches) == [{"a": value} for value in values]


@pytest.mark.parametrize(
    ("library", "launches", "why"),
    [
        (Library(kernels=3), 2, "3 kernels in 2 launches"),
        (Library(kernels=0), 1, "0 kernels in 1 launch"),
        (Library(passes=10**6), 1, "more passes than the 2"),
        (Library(refused="pass_begin"), 1, "for administrators"),
        (Library(refused="pass_end"), 1, "for administrators"),
        (Library(refused="counted"), 1, "for administrators"),
    ],
    ids=["another kernel", "no kernel", "no end", "refused", "refused in the middle", "refused at the end"],
)
def test_counters_that_cannot_be_read_say_why(library, launches, why):
    with pytest.raises(profiler.UncountedError, match=why):
        counted(library, launches)


def test_samples_are_of_the_launch_alone():
    library = Library()
    launches, nothing = [lambda: library.calls.append("launch")], lambda: None
    (result,) = profiler_of(library).sampled(launches, nothing, lambda: library.calls.append("flush"), 1e-4)
    assert library.calls == ["flush", "samples", "launch", "samples"]
    assert (result.samples, result.places[0].stalls) == (2, {"wait": 2})


def test_the_period_is_changed_for_a_long_launch():
    library = Library()
    profiler_of(library).sampled([lambda: None], lambda: None, lambda: None, 1.0)
    assert library.calls[:2] == ["sampled", "sample"]


# -- against the reports of Nsight Compute -----------------------------------------------------------


def record_of(report: Profile) -> LaunchRecord:
    value = {
        name: int(metric.value) for name, metric in report.metrics.items() if name.startswith("launch__")
    }
    assert report.grid
    assert report.block
    return LaunchRecord(
        report.symbol, 1, 2, report.grid, report.block,
        registers=value["launch__registers_per_thread"],
        static_shared=value["launch__shared_mem_per_block_static"],
        dynamic_shared=value["launch__shared_mem_per_block_dynamic"],
    )  # fmt: skip


def counters_of(report: Profile) -> dict[str, float]:
    return {name: metric.value for name, metric in report.metrics.items() if name in click_metrics.UNITS}


@pytest.mark.parametrize("name", CLICKS)
def test_what_is_derived_of_a_launch_is_what_nsight_compute_derives(name):
    report = recorded_profiles.profile(name)
    barriers = int(report.metrics["launch__barrier_count"].value)
    derived = launch_facts.metrics(
        record_of(report), CAPABILITY, MULTIPROCESSORS, barriers, counters_of(report)
    )
    for metric in derived:
        expected = report.metrics[metric.name]
        assert (metric.name, metric.value, metric.unit) == (
            metric.name, pytest.approx(expected.value), expected.unit,
        )  # fmt: skip


@pytest.mark.parametrize("name", CLICKS)
def test_units_are_those_of_nsight_compute(name):
    report = recorded_profiles.profile(name)
    units = {name: metric.unit for name, metric in report.metrics.items() if name in click_metrics.UNITS}
    assert units == {name: click_metrics.UNITS[name] for name in units}


@functools.cache
def sampled(name: str) -> tuple[Sampled, bytes]:
    """The warp samples of a report's first launch as CUPTI would give them, and its cubin."""
    action = ncu_report.load_report(str(FOLDER / f"{name}.ncu-rep"))[0][0]
    symbol = action.name(action.NameBase_MANGLED)
    begin = action.metric_by_name("launch__function_pcs").as_uint64(0)
    places: dict[int, dict[str, int]] = {}
    for metric_name in action.metric_names():
        metric = action.metric_by_name(metric_name)
        if metric_name.startswith(profiler._STALLED) and metric.has_correlation_ids():
            for at in range(metric.num_instances()):
                if count := metric.as_uint64(at):
                    offset = metric.correlation_ids().as_uint64(at) - begin
                    places.setdefault(offset, {})[metric_name] = count
    made = {"places": [[symbol, at, stalls] for at, stalls in places.items()], "dropped": 0}
    images = elf.images(regular_files.read(FOLDER / f"{name}.ncu-rep", REPORT))
    code = next(image for image in images if symbol in elf.Cubin(image).functions())
    return profiler.sampled(made, 2048), code


@pytest.mark.parametrize("name", [name for name in CLICKS if source_of(name).suffix == ".cu"])
def test_lines_and_verdict_are_those_of_nsight_computes_report(name):
    report = recorded_profiles.profile(name)
    samples, code = sampled(name)
    result = profiles.profile(
        record_of(report),
        Counted(counters_of(report), samples),
        profiles.LaunchedCode(code),
        profiles.Chip(CAPABILITY, MULTIPROCESSORS),
        Authorship(f"/src/{source_of(name).name}"),
        "13.0",
    )
    assert result.samples == report.samples
    assert [(line.line, line.stalls, line.inside) for line in result.lines if line.samples] == [
        (line.line, line.stalls, line.inside) for line in report.lines if line.samples
    ]
    assert bottleneck.verdict(result) == bottleneck.verdict(report)
    assert roofline.of(result) == roofline.of(report)
    assert result.source == "CUPTI 13.0"


# -- a real answer -----------------------------------------------------------------------------------

RECORDED = json.loads((FOLDER.parent / "counters" / "saxpy.json").read_text(encoding="utf-8"))
CLICK = codec.build(c.Finished, RECORDED["finished"]).profiles[0]


RANGES: dict[str, list[float]] = RECORDED["nsight"]
"""The least and the greatest of five profiles by Nsight Compute, of what it counts too."""


def test_counts_are_those_of_nsight_compute_to_the_last_digit():
    kinds = ("inst_executed.sum", "op_branch.sum", "per_sector_mem_global_op_ld.ratio")
    counts = [name for name in RANGES if name.endswith(kinds) or name.startswith("launch__")]
    assert len(counts) > 20
    assert {name: [CLICK.metrics[name].value] * 2 for name in counts} == {
        name: RANGES[name] for name in counts
    }


@pytest.mark.parametrize("name", [name for name in SHOWN if name in RANGES])
def test_a_shown_counter_is_within_the_range_of_nsight_computes(name):
    least, greatest = RANGES[name]
    assert least - 0.02 * abs(least) <= CLICK.metrics[name].value <= greatest + 0.02 * abs(greatest)


def test_the_hot_line_and_the_verdict_of_a_click():
    assert max(CLICK.lines, key=lambda line: line.samples).line == RECORDED["nsight_hot_line"]
    verdict = bottleneck.verdict(CLICK)
    assert (CLICK.source, verdict and verdict.text) == ("CUPTI 13.0", "memory 75% of peak")
    assert roofline.of(CLICK)
