"""Which counters differ between two profiles, to explain why a time changed."""

from __future__ import annotations

from collections.abc import Sequence

from orbit_lsp.profile.bottleneck import COMPUTE, DRAM, MEMORY, TIME, WAVE, value, warp_state
from orbit_lsp.state.results import Moved
from orbit_remote.common import measure
from orbit_remote.common.messages import Finished, Profile

_NAMES = {
    TIME: "time under ncu",
    COMPUTE: "compute throughput",
    MEMORY: "memory throughput",
    DRAM: "DRAM throughput",
    "dram__bytes_read.sum": "DRAM read",
    "dram__bytes_write.sum": "DRAM written",
    "l1tex__t_sector_hit_rate.pct": "L1 hit rate",
    "lts__t_sector_hit_rate.pct": "L2 hit rate",
    "sm__warps_active.avg.pct_of_peak_sustained_active": "achieved occupancy",
    "sm__maximum_warps_per_active_cycle_pct": "theoretical occupancy",
    "smsp__inst_executed.sum": "instructions",
    "launch__registers_per_thread": "registers per thread",
    "launch__shared_mem_per_block_static": "static shared memory",
    "launch__shared_mem_per_block_dynamic": "dynamic shared memory",
    WAVE: "waves per SM",
    "launch__grid_size": "blocks",
    "launch__block_size": "threads per block",
}
_POINTS = 2.0
"""A share in per cent counts from as many points on: replays of the same launch differ by one or so."""
_SHARE = 0.05
_WARPS = 0.2
"""A stall reason counts from as many warps per issued instruction on."""
_MOST_STALLS = 5
_RUNS = 3


def moved(before: Profile, after: Profile) -> tuple[Moved, ...]:
    """Return the counters that differ by more than two profiles of the same code do. They are in the order of a
    hover; stalls are ordered by size.
    """
    changes: list[Moved] = []
    for metric in (*_NAMES, *sorted(metric for metric in after.metrics if warp_state(metric))):
        old, new = before.metrics.get(metric), after.metrics.get(metric)
        if old is None or new is None or old.unit != new.unit:
            continue
        change = abs(new.value - old.value)
        share = new.unit == "%" or metric.endswith((".pct", "_pct"))
        least = _WARPS if warp_state(metric) else _POINTS if share else _SHARE * abs(old.value)
        if change > least:
            name = _NAMES.get(metric) or f"stall: {warp_state(metric)}"
            changes.append(Moved(name, metric, old.value, new.value, new.unit or ("%" if share else "")))
    first = [change for change in changes if not warp_state(change.metric)]
    stalls = sorted(
        (change for change in changes if warp_state(change.metric)),
        key=lambda change: -abs(change.after - change.before),
    )
    return (*first, *stalls[:_MOST_STALLS])


def energy(before: Sequence[Finished], after: Sequence[Finished]) -> tuple[Moved, ...]:
    """Return how the energy of a launch differs between the runs of two versions. NVML's counter must have measured
    it in three runs of each.
    """
    medians: list[float] = []
    for runs in (before, after):
        told = [
            run.telemetry.launch_energy_j[0]
            for run in runs
            if run.telemetry and run.telemetry.launch_energy_j
        ]
        if len(told) < _RUNS:
            return ()
        medians.append(1000 * measure.median(told))
    return (
        Moved(
            "energy of a launch, the whole GPU",
            "nvmlDeviceGetTotalEnergyConsumption",
            medians[0],
            medians[1],
            "mJ",
        ),
    )


def main(profiles: tuple[Profile, ...]) -> Profile | None:
    """Return the profile of the launch that took longest. Its counters are compared between two versions."""
    counted = [profile for profile in profiles if profile.tier == "counters"]
    return max(counted, key=lambda profile: value(profile, TIME) or 0.0, default=None)
