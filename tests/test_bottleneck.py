"""The bottleneck of a kernel, and its roofline: by NVIDIA's own answers in the recordings, and at the thresholds."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any

import ncu_report
import pytest

from orbit_lsp.profile import bottleneck, roofline
from orbit_remote.common import messages as c
from orbit_remote.common.measurements import Line, Metric
from tests.recorded_profiles import FOLDER, NAMES, profile

KINDS = {
    "Small Grid": "small grid",
    "Latency Issue": "latency",
    "High Compute Throughput": "compute",
    "High Memory Throughput": "memory",
    "Balanced Throughput": "balanced",
}
LEVELS = {"memory": "DRAM", "L2": "L2", "L1/shared": "L1"}


@functools.cache
def nvidias(name: str) -> dict[str, Any]:
    """What NVIDIA's rule SOLBottleneck said when the report was made."""
    action = ncu_report.load_report(str(FOLDER / f"{name}.ncu-rep")).range_by_idx(0).action_by_idx(0)
    rules = {rule["rule_identifier"]: rule["rule_message"] for rule in action.rule_results_as_dicts()}
    return rules["SOLBottleneck"]


@pytest.mark.parametrize("name", NAMES)
def test_the_verdict_is_the_one_of_nvidias_rule(name: str) -> None:
    verdict = bottleneck.verdict(profile(name))
    assert verdict
    answer = nvidias(name)
    if answer["title"] == "High Throughput":
        assert verdict.kind in ("compute", "memory")
        assert (
            max(profile(name).metrics[metric].value for metric in verdict.metrics[:2]) >= bottleneck.SATURATED
        )
    else:
        assert verdict.kind == KINDS[answer["title"]]
    if verdict.kind == "memory":
        assert LEVELS[verdict.text.partition(" ")[0]] in answer["message"]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("memory_bound", "memory 79% of peak"),
        ("uncoalesced", "memory 82% of peak"),
        ("bank_conflicts", "L1/shared 93% of peak"),
        ("compute_bound", "compute 99% of peak"),
        ("tensor_core", "tensor cores 64% of peak"),
        ("matmul", "compute 64%, memory 69% of peak"),
        ("in_library", "latency: short scoreboard 27%"),
        ("latency_bound", "small grid: <0.1 waves"),
    ],
)
def test_programs_of_different_character(name: str, text: str) -> None:
    verdict = bottleneck.verdict(profile(name))
    assert verdict
    assert verdict.text == text


def made(
    compute: float | None, memory: float | None, waves: float | None = 4.0, **stalls: float
) -> c.Profile:
    """A profile of these counters alone; stalls in cycles, of a warp that issues every ten."""
    answer = {
        bottleneck.COMPUTE: compute,
        bottleneck.MEMORY: memory,
        bottleneck.WAVE: waves,
        bottleneck.LATENCY: 10.0 if stalls else None,
    } | {
        f"smsp__average_warps_issue_stalled_{name}_per_issue_active.ratio": value
        for name, value in stalls.items()
    }
    metrics = {name: Metric(name, value) for name, value in answer.items() if value is not None}
    return c.Profile("k", "k", "counters", metrics=metrics)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (made(59.9, 59.9, long_scoreboard=6.1, wait=1), "latency: long scoreboard 61%"),
        (made(60.0, 49.0, long_scoreboard=6.1), "compute 60% of peak"),
        (made(60.0, 50.1), "compute 60%, memory 50% of peak"),
        (made(60.0, 70.0), "memory 70% of peak"),
        (made(79.9, 79.0), "compute 80%, memory 79% of peak"),
        (made(80.0, 79.0), "compute 80% of peak"),
        (made(79.0, 80.0), "memory 80% of peak"),
        (made(20.0, 30.0, 0.99, long_scoreboard=9), "small grid: 1.0 waves"),
        (made(20.0, 30.0, 1.0, not_selected=8, wait=1), "latency: wait 10%"),
        (made(20.0, 30.0, None, barrier=3), "latency: barrier 30%"),
        (made(20.0, 30.0), "latency: compute at 20%, memory at 30% of their peaks"),
        (made(None, 92.0), None),
        (made(92.0, None), None),
    ],
)
def test_the_thresholds(given: c.Profile, text: str | None) -> None:
    verdict = bottleneck.verdict(given)
    assert (verdict.text if verdict else None) == text


def test_without_ratios_the_states_are_those_of_the_samples() -> None:
    """The detailed set samples warps and has no ratios; without the report's own sums the lines are what is left."""
    (first, *_) = bottleneck.states(profile("memory_bound.detailed"))
    assert (first.name, round(first.share, 2)) == ("long scoreboard", 0.89)
    assert first.metric == "smsp__pcsamp_warps_issue_stalled_long_scoreboard"
    lines = (Line("k.cu", 1, 30, {"wait": 10, "barrier": 20}), Line("k.cu", 2, 10, {"wait": 10}))
    of_lines = bottleneck.states(replace(made(1, 1), lines=lines))
    assert [(of_line.name, of_line.share) for of_line in of_lines] == [("wait", 0.5), ("barrier", 0.5)]
    assert bottleneck.states(made(1, 1)) == []


@pytest.mark.parametrize("name", NAMES)
def test_the_warp_states_are_the_whole_time(name: str) -> None:
    states = bottleneck.states(profile(name))
    if not name.endswith("basic"):  # which has none
        assert sum(state.share for state in states) == pytest.approx(1, abs=0.02)


def test_saxpys_point_has_its_operations_and_its_bytes() -> None:
    """Two operations an element, and the bytes that the other counters say."""
    item = profile("memory_bound")
    result = roofline.of(item)
    assert result
    seconds = item.metrics[bottleneck.TIME].value * 1e-9
    assert result.main.rate * seconds == pytest.approx(2 * (1 << 24), rel=0.005)
    moved = item.metrics["dram__bytes_read.sum"].value + item.metrics["dram__bytes_write.sum"].value
    assert result.traffic * seconds == pytest.approx(moved, rel=0.001)
    assert result.main.intensity == pytest.approx(result.main.rate / result.traffic)
    roof = result.roof(result.main)
    assert roof
    assert roof[0] == "DRAM"
    assert result.main.rate / roof[1] == pytest.approx(item.metrics[bottleneck.DRAM].value / 100, rel=0.002)


def test_a_kernel_of_multiply_adds_stands_under_the_flat_roof() -> None:
    result = roofline.of(profile("compute_bound"))
    assert result
    roof = result.roof(result.main)
    assert roof
    assert roof[0] == "FP32"
    assert 0.95 < result.main.rate / roof[1] <= 1


@pytest.mark.parametrize("name", ["memory_bound.basic", "divergent"])
def test_without_counters_or_without_operations_there_is_no_point(name: str) -> None:
    assert roofline.of(profile(name)) is None
