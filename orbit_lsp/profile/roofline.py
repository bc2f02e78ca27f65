"""Where a kernel stands under its GPU's roofs: operations per second over operations per byte of DRAM.

It uses the counters and formulas of ncu's section SpeedOfLight_RooflineChart. An add or a multiply counts one, a
fused multiply-add two. The roofs are the peaks at the clocks of the launch. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from orbit_lsp.profile.bottleneck import TENSOR, value
from orbit_remote.common.lazy_dataclass import dataclass
from orbit_remote.common.messages import Profile

_PER_CYCLE = "smsp__sass_thread_inst_executed_op_{}_pred_on.sum.per_cycle_elapsed"
_TIMES = "derived__smsp__sass_thread_inst_executed_op_{}_pred_on_x{}"
_PEAK = "derived__sm__sass_thread_inst_executed_op_{}_pred_on_x{}"
_CYCLES = "smsp__cycles_elapsed.avg.per_second"
_SM_CYCLES = "sm__cycles_elapsed.avg.per_second"
_TRAFFIC = "dram__bytes.sum.per_second"
_DRAM_PEAK = "dram__bytes.sum.peak_sustained"
_DRAM_CYCLES = "dram__cycles_elapsed.avg.per_second"
_TYPES = {
    "FP32": (
        _PER_CYCLE.format("fadd"),
        _PER_CYCLE.format("fmul"),
        _TIMES.format("ffma", 2),
        _PEAK.format("ffma", 2),
    ),
    "FP64": (
        _PER_CYCLE.format("dadd"),
        _PER_CYCLE.format("dmul"),
        _TIMES.format("dfma", 2),
        _PEAK.format("dfma", 2),
    ),
    "FP16": (
        _TIMES.format("hadd", 2),
        _TIMES.format("hmul", 2),
        _TIMES.format("hfma", 4),
        _PEAK.format("hfma", 4),
    ),
}
"""Operations per cycle of adds, multiplies and fused ones, already multiplied; and the most there can be."""
_PACKED = ((_PER_CYCLE.format("fadd2"), 2), (_PER_CYCLE.format("fmul2"), 2), (_PER_CYCLE.format("ffma2"), 4))
"""Instructions of sm_100 and newer that each compute two FP32 numbers a thread, and their operations."""
COUNTED = (
    *(_PER_CYCLE.format(kind + operation) for kind in "fdh" for operation in ("add", "mul", "fma")),
    _CYCLES,
    _SM_CYCLES,
)
"""What the operations of `operations` are made of, but for those of tensor cores."""
_TENSOR = re.compile(r"sm__ops_path_tensor_(?P<path>\w+)\.sum\.per_cycle_elapsed")


@dataclass(frozen=True, slots=True)
class RooflinePoint:
    """What a kernel did with one data type: `rate` is in operations per second, `intensity` in operations per byte of
    DRAM.

    `peak` is the highest possible rate of that type. `metrics` name the counters behind the rate.
    """

    name: str
    rate: float
    intensity: float
    peak: float | None
    metrics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Roofline:
    """A kernel under its roofs. `traffic` is the DRAM bytes per second that were moved, `bandwidth` the most that is
    possible.
    """

    traffic: float
    bandwidth: float | None
    points: tuple[RooflinePoint, ...]

    def roof(self, point: RooflinePoint) -> tuple[str, float] | None:
        """Return (the name of the roof above a point, its height there). The roof is the sloped one of memory, or the
        flat one.
        """
        memory = self.bandwidth * point.intensity if self.bandwidth else None
        known = [(name, height) for name, height in (("DRAM", memory), (point.name, point.peak)) if height]
        return min(known, key=lambda pair: pair[1], default=None)

    @property
    def main(self) -> RooflinePoint:
        """Return the type that is nearest to its own peak, else the one with most operations."""
        return max(
            self.points, key=lambda point: (point.rate / point.peak if point.peak else 0.0, point.rate)
        )


def operations(profile: Profile, *, packed: bool = False) -> float | None:
    """Return the floating-point operations per second of all types together, including the tensor cores. Return None
    if one of them was not counted. `packed`: the GPU has instructions that each compute two FP32 numbers.
    """
    cycles = value(profile, _CYCLES)
    if cycles is None:
        return None
    rates = [_rate(profile, names, cycles) for *names, _ in _TYPES.values()]
    rates.append(_tensor_operations(profile))
    if packed:
        each = [(value(profile, name), factor) for name, factor in _PACKED]
        rates += [None if count is None else count * factor * cycles for count, factor in each]
    known = [rate for rate in rates if rate is not None]
    return sum(known) if len(known) == len(rates) else None


def _tensor_operations(profile: Profile) -> float | None:
    """Return the tensor cores' operations per second. NVIDIA counts the same operations several times: by the
    instruction (`op_hmma_…`), by the types alone (`src_…`), and by sparsity.
    """
    clock = value(profile, _SM_CYCLES)
    by_types = {
        match["path"]: metric.value
        for name, metric in profile.metrics.items()
        if (match := _TENSOR.fullmatch(name)) and match["path"].startswith("src_")
    }
    if clock is None or not by_types:
        return 0.0 if value(profile, TENSOR) == 0 else None  # an idle pipe has executed nothing
    return clock * sum(by_types[path] for path in floating_point_paths(by_types))


def floating_point_paths(paths: Iterable[str]) -> list[str]:
    """Return the paths through the tensor cores (`src_fp16_dst_fp32`) that together count each floating-point
    operation once.
    """
    every = set(paths)
    return sorted(
        path
        for path in every
        if not path.startswith("src_int")
        and not path.endswith("_realtime")
        and (path.partition("_sparsity_")[0] == path or path.partition("_sparsity_")[0] not in every)
    )


def of(profile: Profile) -> Roofline | None:
    """Return the roofline of a profile, or None if the counters are missing or all zero."""
    traffic, cycles = value(profile, _TRAFFIC), value(profile, _CYCLES)
    if not traffic or not cycles:
        return None
    width, clock = value(profile, _DRAM_PEAK), value(profile, _DRAM_CYCLES)
    points = [point for name in _TYPES if (point := _of_type(profile, name, cycles, traffic))]
    points += _of_tensors(profile, traffic)
    return Roofline(traffic, width * clock if width and clock else None, tuple(points)) if points else None


def _of_type(profile: Profile, name: str, cycles: float, traffic: float) -> RooflinePoint | None:
    *names, peak_name = _TYPES[name]
    rate = _rate(profile, names, cycles)
    if rate is None:
        return None
    most, clock = value(profile, peak_name), value(profile, _SM_CYCLES) or cycles
    peak = most * clock if most else None
    return RooflinePoint(name, rate, rate / traffic, peak, (*names, _CYCLES)) if rate > 0 else None


def _rate(profile: Profile, names: Sequence[str], cycles: float) -> float | None:
    """Return the operations per second, or None if a part was not counted."""
    each = [count for name in names if (count := value(profile, name)) is not None]
    return sum(each) * cycles if len(each) == len(names) else None


def _of_tensors(profile: Profile, traffic: float) -> list[RooflinePoint]:
    """Return the points of the tensor cores by the types of their operands. Only the full set of counters has them."""
    clock = value(profile, _SM_CYCLES)
    points: list[RooflinePoint] = []
    for name, metric in profile.metrics.items():
        if clock and metric.value > 0 and (kind := _TENSOR.fullmatch(name)):
            each = value(profile, name.replace(".per_cycle_elapsed", ".peak_sustained"))
            rate = metric.value * clock
            text = f"tensor {kind['path'].replace('_', ' ')}"
            points.append(
                RooflinePoint(text, rate, rate / traffic, each * clock if each else None, (name, _SM_CYCLES))
            )
    return points
