"""Shows counters as rows: what a number is, its value in the report's own unit, and NVIDIA's name for it."""

from __future__ import annotations

import re
from collections.abc import Iterable

from orbit_lsp.profile import bottleneck
from orbit_lsp.state import units
from orbit_lsp.views.explain.explanations import COUNTERS
from orbit_lsp.views.profile import profile_hints
from orbit_lsp.views.tables import CodeCell
from orbit_remote.common.measurements import Metric
from orbit_remote.common.messages import Profile

Row = tuple[str, str, str]


def _titled(*names: str) -> tuple[tuple[str, str], ...]:
    return tuple((COUNTERS[name][0], name) for name in names)


SPEED = _titled(
    bottleneck.TIME,
    bottleneck.COMPUTE,
    bottleneck.MEMORY,
    bottleneck.DRAM,
    "lts__throughput.avg.pct_of_peak_sustained_elapsed",
    "l1tex__throughput.avg.pct_of_peak_sustained_active",
    bottleneck.TENSOR,
)
LAUNCH = _titled(
    profile_hints.ACHIEVED,
    profile_hints.THEORETICAL,
    profile_hints.REGISTERS,
    bottleneck.WAVE,
    "launch__shared_mem_per_block_static",
    "launch__shared_mem_per_block_dynamic",
)
MEMORY = _titled(
    "l1tex__t_sector_hit_rate.pct",
    "lts__t_sector_hit_rate.pct",
    "lts__t_sectors_srcunit_tex_op_read.sum",
    "lts__t_sectors_srcunit_tex_op_write.sum",
    "dram__bytes_read.sum",
    "dram__bytes_write.sum",
    "dram__bytes.sum.per_second",
    "smsp__sass_average_data_bytes_per_sector_mem_global_op_ld.ratio",
    "smsp__sass_average_data_bytes_per_sector_mem_global_op_st.ratio",
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum",
    "derived__local_spilling_requests",
)
CLOCKS = _titled("gpc__cycles_elapsed.avg.per_second", "dram__cycles_elapsed.avg.per_second")
LIMITS = {
    title.removeprefix("occupancy limit: "): name
    for title, name in _titled(
        "launch__occupancy_limit_registers",
        "launch__occupancy_limit_shared_mem",
        "launch__occupancy_limit_warps",
        "launch__occupancy_limit_blocks",
        "launch__occupancy_limit_barriers",
    )
}
_OFF_WITHOUT_USE = frozenset(
    (
        bottleneck.TENSOR,
        "launch__shared_mem_per_block_static",
        "launch__shared_mem_per_block_dynamic",
        "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum",
        "derived__local_spilling_requests",
    )
)
"""Shown only if it is not 0, as for most kernels it is."""


def rows(profile: Profile, wanted: Iterable[tuple[str, str]]) -> list[Row]:
    """Return rows for those of the counters that the report has."""
    listed: list[Row] = []
    for title, name in wanted:
        metric = profile.metrics.get(name)
        if metric and (metric.value or name not in _OFF_WITHOUT_USE):
            listed.append((title, text(metric), CodeCell(name)))
    return listed


def text(metric: Metric) -> str:
    """Write a counter: `70.3 µs`, `78.7%`, `2.64 TB/s`, `1980 MHz`, `6,291,456 sectors`."""
    value, unit = metric.value, metric.unit.replace("second", "s")
    match unit:
        case "ns":
            return units.time(value)
        case "%":
            return units.percent(value / 100)
        case "hz":
            return units.clock(value / 1e6)
        case "byte/s":
            return units.bandwidth(value)
        case "byte":
            return units.bytes_moved(value)
        case "byte/block":
            return units.size(value)
        case "register/thread":
            return f"{value:.0f}"
        case _:
            number = f"{value:,.0f}" if value == round(value) else f"{value:,.4g}"
            return f"{number} {_plural(unit, value)}".strip()


def _plural(unit: str, value: float) -> str:
    """Return the plural of a unit: `sectors`, `bytes per sector`. NVIDIA's units are singular."""
    amount, _, of = unit.partition("/")
    if not re.fullmatch(r"[a-z]+", amount):
        return unit
    amount += "" if value == 1 or amount.endswith("s") else "s"
    return f"{amount} per {of}" if of else amount


def limiters(profile: Profile) -> Row | None:
    """Return what limits the theoretical occupancy. Return None if the report has no limits, or none limits it."""
    known = {
        name: percent
        for name, counter in LIMITS.items()
        if (percent := bottleneck.value(profile, counter)) is not None
    }
    most = bottleneck.value(profile, profile_hints.THEORETICAL)
    if not known or most is None:
        return None
    least = min(known.values())
    names = [name for name, value in known.items() if value == least]
    value = f"{', '.join(names)}: {least:.0f} block{'' if least == 1 else 's'} per SM"
    return ("occupancy is limited by", value, CodeCell(LIMITS[names[0]]))
