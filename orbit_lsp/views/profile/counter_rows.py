"""Counters as rows: what a number is, how it reads in the report's own unit, and NVIDIA's name of it."""

from __future__ import annotations

import re
from collections.abc import Iterable

from orbit_lsp.profile import bottleneck
from orbit_lsp.state import units
from orbit_lsp.views.profile import profile_hints
from orbit_lsp.views.tables import Code
from orbit_remote.common.messages import Metric, Profile

Row = tuple[str, str, str]

SPEED = (
    ("time of this launch", bottleneck.TIME),
    ("compute throughput", bottleneck.COMPUTE),
    ("memory throughput", bottleneck.MEMORY),
    ("DRAM throughput", bottleneck.DRAM),
    ("L2 throughput", "lts__throughput.avg.pct_of_peak_sustained_elapsed"),
    ("L1 throughput", "l1tex__throughput.avg.pct_of_peak_sustained_active"),
    ("tensor cores", bottleneck.TENSOR),
)
LAUNCH = (
    ("occupancy, achieved", profile_hints.ACHIEVED),
    ("occupancy, theoretical", profile_hints.THEORETICAL),
    ("registers per thread", profile_hints.REGISTERS),
    ("waves per SM", bottleneck.WAVE),
    ("static shared memory", "launch__shared_mem_per_block_static"),
    ("dynamic shared memory", "launch__shared_mem_per_block_dynamic"),
)
MEMORY = (
    ("L1 hit rate", "l1tex__t_sector_hit_rate.pct"),
    ("L2 hit rate", "lts__t_sector_hit_rate.pct"),
    ("read from L2 by L1", "lts__t_sectors_srcunit_tex_op_read.sum"),
    ("written to L2 by L1", "lts__t_sectors_srcunit_tex_op_write.sum"),
    ("read from DRAM", "dram__bytes_read.sum"),
    ("written to DRAM", "dram__bytes_write.sum"),
    ("DRAM bandwidth", "dram__bytes.sum.per_second"),
    ("bytes used of a sector, loads", "smsp__sass_average_data_bytes_per_sector_mem_global_op_ld.ratio"),
    ("bytes used of a sector, stores", "smsp__sass_average_data_bytes_per_sector_mem_global_op_st.ratio"),
    ("shared memory bank conflicts", "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum"),
    ("local memory, spilling requests", "derived__local_spilling_requests"),
)
CLOCKS = (
    ("SM clock of this launch", "gpc__cycles_elapsed.avg.per_second"),
    ("memory clock of this launch", "dram__cycles_elapsed.avg.per_second"),
)
LIMITS = {
    "registers": "launch__occupancy_limit_registers",
    "shared memory": "launch__occupancy_limit_shared_mem",
    "warps": "launch__occupancy_limit_warps",
    "blocks": "launch__occupancy_limit_blocks",
    "barriers": "launch__occupancy_limit_barriers",
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
"""Shown only where it is not 0: most kernels have none of it."""


def rows(profile: Profile, wanted: Iterable[tuple[str, str]]) -> list[Row]:
    """Those of the counters that the report has."""
    found: list[Row] = []
    for title, name in wanted:
        metric = profile.metrics.get(name)
        if metric and (metric.value or name not in _OFF_WITHOUT_USE):
            found.append((title, text(metric), Code(name)))
    return found


def text(metric: Metric) -> str:
    """`70.3 µs`, `78.7%`, `2.64 TB/s`, `1980 MHz`, `6,291,456 sectors`."""
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
    """`sectors`, `bytes per sector`; NVIDIA's units are singular."""
    amount, _, of = unit.partition("/")
    if not re.fullmatch(r"[a-z]+", amount):
        return unit
    amount += "" if value == 1 or amount.endswith("s") else "s"
    return f"{amount} per {of}" if of else amount


def limiters(profile: Profile) -> Row | None:
    """What holds the theoretical occupancy down; None where the report has no limits, or there is no limit."""
    known = {
        name: found for name, one in LIMITS.items() if (found := bottleneck.value(profile, one)) is not None
    }
    most = bottleneck.value(profile, profile_hints.THEORETICAL)
    if not known or most is None:
        return None
    least = min(known.values())
    names = [name for name, value in known.items() if value == least]
    value = f"{', '.join(names)}: {least:.0f} block{'' if least == 1 else 's'} per SM"
    return ("occupancy is limited by", value, Code(LIMITS[names[0]]))
