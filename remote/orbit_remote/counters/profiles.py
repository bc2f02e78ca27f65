"""Makes a `Profile` from a launch that CUPTI counted, in the form in which Nsight Compute's report would be read."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import field

from orbit_remote.common import symbols
from orbit_remote.common.launch_records import LaunchRecord
from orbit_remote.common.lazy_dataclass import dataclass
from orbit_remote.common.measurements import Line, Metric
from orbit_remote.common.messages import Profile
from orbit_remote.common.requests import Level
from orbit_remote.counters import click_metrics, launch_facts
from orbit_remote.counters.profiler import Counted, Sampled
from orbit_remote.counters.source_lines import Authorship, LineCounts
from orbit_remote.toolchain import dwarf_lines, ptx_inlining

_SAMPLES = "smsp__pcsamp_sample_count"


@dataclass(frozen=True, slots=True)
class LaunchedCode:
    """What a launch runs: its cubin, and for Triton the texts from which it was made, by level."""

    cubin: bytes
    texts: Mapping[Level, bytes] = field(default_factory=dict["Level", bytes])


@dataclass(frozen=True, slots=True)
class Chip:
    """A chip. `capability` is as in `9.0`."""

    capability: str
    multiprocessors: int


def profile(
    record: LaunchRecord,
    counted: Counted,
    code: LaunchedCode,
    chip: Chip,
    authorship: Authorship,
    tool: str,
    barriers: int = 0,
) -> Profile:
    """Return what was counted for one launch, which the recorder has seen as `record`. `tool` is CUPTI's version."""
    metrics = {name: Metric(name, value, click_metrics.UNITS[name]) for name, value in counted.values.items()}
    derived = launch_facts.metrics(record, chip.capability, chip.multiprocessors, barriers, counted.values)
    metrics |= {metric.name: metric for metric in (*derived, *_of_samples(counted.sampled))}
    return Profile(
        symbol=record.symbol,
        name=symbols.short_name(record.symbol),
        tier="counters",
        grid=record.grid,
        block=record.block,
        metrics=metrics,
        lines=lines(counted.sampled, code, authorship),
        samples=counted.sampled.samples or None,
        tool=tool,
        counted_by="CUPTI",
    )


def lines(sampled: Sampled, code: LaunchedCode, authorship: Authorship) -> tuple[Line, ...]:
    """Return the warp samples by the author's lines. Return nothing if the code has no line information."""
    functions = {place.function for place in sampled.places}
    tables: dict[str, dwarf_lines.FunctionLines] = {}
    with contextlib.suppress(ValueError):  # of another kind than is read
        tables = dwarf_lines.read(code.cubin, functions)
    texts = [code.texts["ptx"].decode("utf-8", "replace")] if "ptx" in code.texts else []
    tables = {name: ptx_inlining.add(table, name, code.cubin, texts) for name, table in tables.items()}
    counts = LineCounts(authorship)
    for place in sampled.places:
        table = tables.get(place.function)
        frames = () if table is None else tuple(authorship.origin(*frame) for frame in table.at(place.offset))
        for reason, samples in place.stalls.items():
            counts.stalled(frames, reason, samples)
    return counts.lines()


def _of_samples(sampled: Sampled) -> list[Metric]:
    if not sampled.samples:
        return []
    return [
        Metric(_SAMPLES, sampled.samples),
        Metric("smsp__pcsamp_interval_cycles", sampled.period, "cycle"),
        *(Metric(name, count, "warp") for name, count in sampled.totals.items()),
    ]
