"""Turns the counters of a profile into the groups and names of kernel_eval_server's device metrics.

The names on the left are that server's (its DEVICE_METRICS_GUIDE.md), and end in their units: percent, gigabytes
(10^9 bytes) per second. Those on the right are NVIDIA's. Each of them exists on sm_80, sm_90 and sm_100 (ncu 2025.3.1
lists them for GA100, GH100 and GB100), or another option does. The first option whose counters were all collected
counts. A value that was not collected is null. So is a share of nothing, as sectors per request of a kernel that
loads nothing. Two values differ from that server's:

- `compute_throughput_pct` is of the SMs. That server also gives `gpu__compute_memory_throughput`, which is of memory,
  under this name.
- `tensor_pipe_utilization_pct` is of the busiest part of the tensor pipe. That server gives HMMA's alone, which is 0
  for WGMMA (sm_90) and tcgen05 (sm_100).

`dram_avg_bandwidth_gb_s` is of one memory channel, `dram_total_bandwidth_gb_s` of all. The shares of stalls are
NVIDIA's `smsp__warp_issue_stalled_*_per_warp_active`; sections only have the two numbers that it is made of.
Operations are counted as in `profile/roofline.py`; without the sections for FP16 and for tensor cores their total is
not known. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from orbit_lsp.profile import bottleneck, roofline
from orbit_lsp.profile.bottleneck import value
from orbit_remote.common.messages import Profile

SECTIONS = (
    "SpeedOfLight", "SpeedOfLight_RooflineChart", "SpeedOfLight_HierarchicalHalfRooflineChart",
    "SpeedOfLight_HierarchicalTensorRooflineChart", "Occupancy", "LaunchStats", "WarpStateStats", "SchedulerStats",
    "ComputeWorkloadAnalysis", "MemoryWorkloadAnalysis", "MemoryWorkloadAnalysis_Tables", "SourceCounters",
)  # fmt: skip
"""What the table needs."""

Formula = Callable[[Sequence[float]], "float | None"]
Option = tuple[tuple[str, ...], Formula]
"""Counters, and what is made of their values."""

_ELAPSED = ".avg.pct_of_peak_sustained_elapsed"
_ACTIVE = ".avg.pct_of_peak_sustained_active"
_L1 = "l1tex__t_{}_pipe_lsu_mem_global_op_{}.sum"
_L2 = "memory_l2_theoretical_sectors_global"
_CONFLICTS = "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_{}.sum"
_PIPE = "sm__inst_executed_pipe_{}" + _ACTIVE
_CYCLES_OF_PIPE = "sm__pipe_{}_cycles_active" + _ELAPSED
_STALL = "smsp__warp_issue_stalled_{}_per_warp_active.pct"
_WARPS = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"
_CYCLES = "gpc__cycles_elapsed.max"
_PACKED_FROM = 10
"""The compute capability from which an instruction may compute two FP32 numbers."""
_SECONDS = {
    unit: factor
    for units, factor in ((("ns", "nsecond"), 1e-9), (("us", "usecond"), 1e-6), (("ms", "msecond"), 1e-3), (("s", "second"), 1.0))
    for unit in units
}  # fmt: skip
"""Units of time as versions of Nsight Compute spell them."""


def _first(*names: str) -> tuple[Option, ...]:
    """Return the first counter that is known, unchanged."""
    return tuple(((name,), lambda known: known[0]) for name in names)


def _ratio(above: str, below: str, factor: float = 1.0) -> Option:
    return (above, below), lambda known: factor * known[0] / known[1] if known[1] else None


def _active(known: Sequence[float]) -> float | None:
    """Return the active cycles of one pass as a share of the elapsed cycles. Those are computed from the time of the
    launch, which another pass measured.
    """
    cycles, hertz, nanoseconds = known
    elapsed = hertz * nanoseconds * 1e-9
    return min(100.0, 100.0 * cycles / elapsed) if elapsed else None


def _excessive(known: Sequence[float]) -> float:
    every, ideal = known
    return max(0.0, every - ideal)


def _excess_share(known: Sequence[float]) -> float | None:
    return _excessive(known) / known[0] if known[0] else None


def _stall(state: str) -> tuple[Option, ...]:
    return (*_first(_STALL.format(state)), _ratio(_WARPS.format(state), bottleneck.LATENCY, 100.0))


def _pipes(*parts: str) -> Option:
    return tuple(_PIPE.format(part) for part in parts), max


def _gigabytes(name: str) -> tuple[Option, ...]:
    return (((name,), lambda known: known[0] / 1e9),)


_LIMITS: dict[str, tuple[Option, ...]] = {
    f"occupancy_limit_{what}": _first(f"launch__occupancy_limit_{what}")
    for what in ("registers", "shared_mem", "warps", "blocks")
}
_WAVES = _first(bottleneck.WAVE)
_IPC = _first("sm__inst_executed.avg.per_cycle_active")
TABLE: dict[str, dict[str, tuple[Option, ...]]] = {
    "speed_of_light": {
        "compute_throughput_pct": _first(bottleneck.COMPUTE),
        "memory_throughput_pct": _first(bottleneck.DRAM),
        "compute_memory_throughput_pct": _first(bottleneck.MEMORY),
        "sm_throughput_pct": _first(bottleneck.COMPUTE),
        "dram_throughput_pct": _first("dram__throughput" + _ELAPSED, bottleneck.DRAM),
        "gpu_dram_throughput_pct": _first(bottleneck.DRAM),
    },
    "detailed_metrics": {
        "l1_hit_rate_pct": _first("l1tex__t_sector_hit_rate.pct"),
        "l2_hit_rate_pct": _first("lts__t_sector_hit_rate.pct"),
        "warp_occupancy_pct": _first("sm__warps_active" + _ACTIVE),
        "sm_active_cycles_pct": (
            *_first("sm__cycles_active" + _ELAPSED),
            (("sm__cycles_active.avg", "sm__cycles_elapsed.avg.per_second", bottleneck.TIME), _active),
        ),
        "instructions_per_cycle": _IPC,
        "waves_per_sm": _WAVES,
    },
    "memory_metrics": {
        "dram_avg_bandwidth_gb_s": _gigabytes("dram__bytes.avg.per_second"),
        "dram_total_bandwidth_gb_s": _gigabytes("dram__bytes.sum.per_second"),
        "dram_active_cycles_pct": _first("dram__cycles_active" + _ELAPSED),
        "l1_writeback_active_pct": _first("l1tex__lsu_writeback_active" + _ELAPSED),
        "l1_read_sectors_pct": _first("l1tex__m_xbar2l1tex_read_sectors" + _ELAPSED),
        "l2_throughput_pct": _first("lts__throughput" + _ELAPSED),
    },
    "compute_metrics": {
        **{f"{pipe}_pipe_utilization_pct": _first(_PIPE.format(pipe)) for pipe in ("fma", "fp64", "alu", "xu")},
        "tensor_pipe_utilization_pct": (
            _pipes("tensor_op_hmma", "tensor_op_gmma", "tensor_op_imma", "tensor_op_dmma"),  # sm_90
            _pipes("tensor_op_hmma", "tensor_op_imma", "tensor_op_dmma"),  # sm_80
            _pipes("tc", "tensor_subpipe_hmma", "tensor_subpipe_imma", "tensor_subpipe_dmma"),  # sm_100
        ),
        "instructions_per_cycle": _IPC,
        **_LIMITS,
        "registers_per_thread": _first("launch__registers_per_thread"),
    },
    "pipeline_metrics": {
        **{f"{pipe}_pipe_active_pct": _first(_CYCLES_OF_PIPE.format(pipe)) for pipe in ("fma", "alu", "tensor", "shared", "fp64")},
        "sm_issue_active_pct": _first("sm__issue_active" + _ELAPSED),
    },
    "occupancy_metrics": {
        **_LIMITS,
        "waves_per_sm": _WAVES,
        **{name: _first(f"launch__{name}") for name in ("block_size", "grid_size", "shared_mem_per_block")},
    },
    "stall_metrics": {
        f"stall_{state}_pct": _stall(state)
        for state in ("long_scoreboard", "short_scoreboard", "barrier", "not_selected")
    },
    "scheduler_metrics": {
        "warps_eligible_per_cycle": _first("smsp__warps_eligible.avg.per_cycle_active"),
        # a cycle that issues issues one instruction
        "inst_issued_per_cycle": _first(
            "smsp__inst_issued.avg.per_cycle_active", "smsp__issue_active.avg.per_cycle_active"
        ),
        "issue_active_pct": _first("smsp__issue_active" + _ACTIVE),
    },
    "access_pattern_metrics": {
        "l1_load_sectors_per_req": (_ratio(_L1.format("sectors", "ld"), _L1.format("requests", "ld")),),
        "l1_store_sectors_per_req": (_ratio(_L1.format("sectors", "st"), _L1.format("requests", "st")),),
        "l2_theoretical_sectors_global": _first(_L2),
        "l2_theoretical_sectors_global_ideal": _first(f"{_L2}_ideal"),
        "l2_theoretical_sectors_global_excessive": (((_L2, f"{_L2}_ideal"), _excessive),),
        "l2_excess_frac": (((_L2, f"{_L2}_ideal"), _excess_share),),
        "shared_bank_conflicts_load_sum": _first(_CONFLICTS.format("ld")),
        "shared_bank_conflicts_store_sum": _first(_CONFLICTS.format("st")),
    },
}  # fmt: skip
_TRAFFIC = "dram__bytes.sum.per_second"
DERIVED: dict[str, dict[str, tuple[str, ...]]] = {
    "roofline_metrics": {
        "flop_count_total": (*roofline.COUNTED, bottleneck.TIME),
        "dram_bytes_sum": (_TRAFFIC, bottleneck.TIME),
        "arithmetic_intensity": (*roofline.COUNTED, _TRAFFIC),
        "gflops": roofline.COUNTED,
    },
    "timing_metrics": {
        "gpu_time_duration_sum": (bottleneck.TIME,),
        "gpu_time_duration_unit": (bottleneck.TIME,),
        "gpu_time_duration_seconds": (bottleneck.TIME,),
        "gpc_cycles_elapsed_max": (_CYCLES,),
    },
}
"""The fields that `of` makes by itself, and the counters that it takes; tensor cores' operations are found by the form of their names."""


def of(profile: Profile, capability: str) -> dict[str, Any]:
    """Return the groups of a profiled launch, with its kernel's name. `capability` is the GPU's, as in `9.0`; "" if
    it is not known.
    """
    groups: dict[str, dict[str, Any]] = {
        group: {name: _value(profile, options) for name, options in fields.items()}
        for group, fields in TABLE.items()
    }
    time = profile.metrics.get(bottleneck.TIME)
    seconds = time.value * _SECONDS[time.unit] if time and time.unit in _SECONDS else None
    groups["roofline_metrics"] = _roofline(profile, seconds, capability)
    groups["timing_metrics"] = {
        "gpu_time_duration_sum": time.value if time else None,
        "gpu_time_duration_unit": time.unit if time else None,
        "gpu_time_duration_seconds": seconds,
        "gpc_cycles_elapsed_max": value(profile, _CYCLES),
    }
    return {"kernel": profile.name, **groups}


def _value(profile: Profile, options: Sequence[Option]) -> float | None:
    for names, formula in options:
        known = [each for name in names if (each := value(profile, name)) is not None]
        if len(known) == len(names):
            return formula(known)
    return None


def _roofline(profile: Profile, seconds: float | None, capability: str) -> dict[str, float | None]:
    """Return the counts of the roofline: each is a rate times the time of the launch in which the rate was measured."""
    major = int(capability.partition(".")[0] or 0)
    rate = roofline.operations(profile, packed=major >= _PACKED_FROM)
    traffic = value(profile, _TRAFFIC)
    return {
        "flop_count_total": round(rate * seconds) if rate is not None and seconds is not None else None,
        "dram_bytes_sum": round(traffic * seconds) if traffic is not None and seconds is not None else None,
        "arithmetic_intensity": rate / traffic if rate is not None and traffic else None,
        "gflops": rate / 1e9 if rate is not None else None,
    }
