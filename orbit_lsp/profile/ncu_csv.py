"""Reads CSV pages of Nsight Compute as `Profile`s: `--page raw` has a row for each launch and a row of units above,
`--page details` a row for each metric.

ncu chooses a unit for each page, and writes thousands separators in some locales, so values are converted to the
units of `ncu_report`. A value that is no number, or has a unit that does not fit its metric, is left out. Pure.
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field

from orbit_lsp.profile import bottleneck
from orbit_remote.common import limits, symbols
from orbit_remote.common.lazy_dataclass import dataclass
from orbit_remote.common.measurements import Advice, Metric
from orbit_remote.common.messages import Profile

_ID, _NAME, _METRIC, _UNIT, _VALUE = "ID", "Kernel Name", "Metric Name", "Metric Unit", "Metric Value"
_ABOUT = frozenset(
    (
        _ID, "Process ID", "Process Name", "Host Name", _NAME, "Kernel Time", "Context", "Stream", "Block Size",
        "Grid Size", "Device", "CC", "Section Name",
    )
)  # fmt: skip
"""Columns of the page raw that are no metrics."""
_NOT_SHOWN = ("device__attribute_", "breakdown:", "group:", "numa__", "nvlink__", "c2clink__")
"""As in `report_reader`: what is no measurement of a launch."""
DEVICE = "device__attribute_display_name"

_PLAIN = re.compile(r"[+-]?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?")
_GROUPED = re.compile(r"[+-]?\d{1,3}(?:,\d{3})+(?:\.\d+)?")
_DECIMAL_COMMA = re.compile(r"[+-]?\d[\d.\u00a0\u202f ']*,\d+")
_OF_INSTANCES = re.compile(r"(\S+) \(.*\)", re.DOTALL)
"""`12 (3; 4; 5)`, as `--print-metric-instances values` has it."""
_BOTH_NAMES = re.compile(r".* \(([a-z]\w*__[\w.:]+)\)")
_OWN_NAME = re.compile(r"[a-z]\w*__[\w.:]+")
_EXTENTS = re.compile(r"\(\s*(\d+),\s*(\d+),\s*(\d+)\)")

_LIGHT, _MEMORY, _LAUNCH = "GPU Speed Of Light Throughput", "Memory Workload Analysis", "Launch Statistics"
_LABELS = {
    (_LIGHT, "Duration"): bottleneck.TIME,
    (_LIGHT, "Compute (SM) Throughput"): bottleneck.COMPUTE,
    (_LIGHT, "Memory Throughput"): bottleneck.MEMORY,
    (_LIGHT, "DRAM Throughput"): bottleneck.DRAM,
    (_LIGHT, "L2 Cache Throughput"): "lts__throughput.avg.pct_of_peak_sustained_elapsed",
    (_LIGHT, "L1/TEX Cache Throughput"): "l1tex__throughput.avg.pct_of_peak_sustained_active",
    (_LIGHT, "SM Frequency"): "gpc__cycles_elapsed.avg.per_second",
    (_LIGHT, "DRAM Frequency"): "dram__cycles_elapsed.avg.per_second",
    (_MEMORY, "Memory Throughput"): "dram__bytes.sum.per_second",
    (_MEMORY, "L1/TEX Hit Rate"): "l1tex__t_sector_hit_rate.pct",
    (_MEMORY, "L2 Hit Rate"): "lts__t_sector_hit_rate.pct",
    (_MEMORY, "Local Memory Spilling Requests"): "derived__local_spilling_requests",
    ("Warp State Statistics", "Warp Cycles Per Issued Instruction"): bottleneck.LATENCY,
    (_LAUNCH, "Registers Per Thread"): "launch__registers_per_thread",
    (_LAUNCH, "Waves Per SM"): bottleneck.WAVE,
    (_LAUNCH, "Static Shared Memory Per Block"): "launch__shared_mem_per_block_static",
    (_LAUNCH, "Dynamic Shared Memory Per Block"): "launch__shared_mem_per_block_dynamic",
    ("Occupancy", "Achieved Occupancy"): "sm__warps_active.avg.pct_of_peak_sustained_active",
    ("Occupancy", "Theoretical Occupancy"): "sm__maximum_warps_per_active_cycle_pct",
    ("Occupancy", "Block Limit SM"): "launch__occupancy_limit_blocks",
    ("Occupancy", "Block Limit Registers"): "launch__occupancy_limit_registers",
    ("Occupancy", "Block Limit Shared Mem"): "launch__occupancy_limit_shared_mem",
    ("Occupancy", "Block Limit Warps"): "launch__occupancy_limit_warps",
    ("Occupancy", "Block Limit Barriers"): "launch__occupancy_limit_barriers",
}
"""Section and label of the page details -> the metric, as `--print-metric-name label-name` says it of these labels."""

_PREFIXES = {"n": 1e-9, "u": 1e-6, "m": 1e-3, "": 1.0, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
_SECONDS = re.compile(r"([num]?)(?:second|s)")
_SCALED = re.compile(r"([KMGTP]?)(byte|hz)", re.IGNORECASE)


class UnreadableError(Exception):
    """Nothing can be read. The text is a clause about the file: `it holds …`."""


@dataclass(frozen=True, slots=True)
class CsvPage:
    """A page that was read. `left_out` counts launches beyond the limit. `device` is the GPU's name, "" if the page
    has none. `is_cut` says that the page ends within a row; that row is not used.
    """

    profiles: tuple[Profile, ...]
    left_out: int = 0
    device: str = ""
    is_cut: bool = False


@dataclass(slots=True)
class _CsvLaunch:
    name: str
    about: Mapping[str, str]
    metrics: dict[str, Metric] = field(default_factory=dict[str, Metric])
    advice: list[Advice] = field(default_factory=list[Advice])


def read(text: str, most: int) -> CsvPage:
    """Raises UnreadableError."""
    csv.field_size_limit(limits.NCU_CSV.most)
    lines = text.splitlines(keepends=True)
    is_cut = bool(lines) and not lines[-1].endswith(("\n", '"', ","))
    if is_cut:
        lines.pop()
    header, rows = _table(lines)
    launches: dict[tuple[str, str], _CsvLaunch] = {}
    device = ""
    try:
        if _METRIC in header:
            _long(rows, launches)
        else:
            device = _wide(header, rows, launches)
    except csv.Error as error:
        raise UnreadableError(f"it is no CSV that can be read: {error}") from None
    measured = [launch for launch in launches.values() if launch.metrics]
    if not measured:
        raise UnreadableError("it holds no number of a launch")
    seen: dict[tuple[object, ...], int] = {}
    profiles: list[Profile] = []
    for launch in measured[:most]:
        grid, block = (_extents(launch, what) for what in ("Grid Size", "Block Size"))
        configuration = (launch.name, grid, block)
        number = seen[configuration] = seen.get(configuration, -1) + 1
        profiles.append(
            Profile(
                launch.name, symbols.short_name(launch.name), "counters", launch=number, grid=grid, block=block,
                metrics=launch.metrics, advice=tuple(launch.advice),
            )
        )  # fmt: skip
    return CsvPage(tuple(profiles), max(0, len(measured) - most), device, is_cut)


def _table(lines: Sequence[str]) -> tuple[list[str], Iterator[dict[str, str]]]:
    """Return the header and rows of the table, which follows what ncu (`==PROF== …`) and the program printed. A row
    that is too short keeps the columns that it has.
    """
    for number, line in enumerate(lines):
        if _NAME not in line:
            continue
        header = next(csv.reader([line]))
        if "Invocations" in header:
            raise UnreadableError(
                "it is a summary over several launches; export it again without `--print-summary`"
            )
        if _ID in header and _NAME in header:
            return header, _rows(header, lines[number + 1 :])
    raise UnreadableError(
        "it has no table of Nsight Compute: `ncu --import X.ncu-rep --page raw --csv` writes one that can be read"
    )


def _rows(header: Sequence[str], lines: Sequence[str]) -> Iterator[dict[str, str]]:
    for row in csv.reader(lines):
        yield dict(zip(header, row, strict=False))


def _launch(row: Mapping[str, str], launches: dict[tuple[str, str], _CsvLaunch]) -> _CsvLaunch | None:
    """Return the launch of a row. Return None if the row is a line of something else."""
    number, name = row.get(_ID, ""), row.get(_NAME, "")
    if not number.isdecimal() or not name:
        return None
    about = {column: row.get(column, "") for column in ("Grid Size", "Block Size")}
    return launches.setdefault((row.get("Process ID", ""), number), _CsvLaunch(name, about))


def _long(rows: Iterable[Mapping[str, str]], launches: dict[tuple[str, str], _CsvLaunch]) -> None:
    for row in rows:
        if (launch := _launch(row, launches)) is None:
            continue
        if label := row.get(_METRIC, ""):
            name = _metric_name(row.get("Section Name", ""), label)
            if name and (metric := _metric(name, row.get(_UNIT, ""), row.get(_VALUE, ""))):
                launch.metrics.setdefault(name, metric)
        elif row.get("Rule Type") in ("OPT", "WRN"):
            scope, gain = row.get("Estimated Speedup Type", ""), _number(row.get("Estimated Speedup", ""))
            launch.advice.append(
                Advice(
                    row.get("Rule Name", ""), row.get("Section Name", ""), "", row.get("Rule Description", ""),
                    gain, "" if gain is None else "global" if scope == "global" else "local",
                )
            )  # fmt: skip


def _wide(
    header: Sequence[str], rows: Iterable[Mapping[str, str]], launches: dict[tuple[str, str], _CsvLaunch]
) -> str:
    """Read the rows of a page that has a column for each metric. Return the name of the GPU."""
    names = [name for name in header if name not in _ABOUT and not name.startswith(_NOT_SHOWN)]
    units: Mapping[str, str] = {}
    device = ""
    for row in rows:
        if not launches and not row.get(_ID, "-"):
            units = row
            continue
        if len(row) < len(header) or (launch := _launch(row, launches)) is None:
            continue
        device = device or row.get(DEVICE, "")
        for name in names:
            if metric := _metric(name, units.get(name, ""), row[name]):
                launch.metrics.setdefault(name, metric)
    return device


def _metric_name(section: str, label: str) -> str:
    """Return NVIDIA's name for a label, or "" if we do not show it."""
    if _OWN_NAME.fullmatch(label):
        return label
    if match := _BOTH_NAMES.fullmatch(label):
        return match[1]
    return _LABELS.get((section, label), "")


def _metric(name: str, unit: str, value: str) -> Metric | None:
    number = _number(value)
    if number is None:
        return None
    factor, own = _unit(unit)
    if name == bottleneck.TIME and own != "ns":
        return None  # without a unit nobody knows which time it is
    return Metric(name, number * factor, own)


def _number(text: str) -> float | None:
    """Return a number, or None if the text is no finite number. Raises UnreadableError for numbers with a decimal
    comma.
    """
    text = text.strip()
    if match := _OF_INSTANCES.fullmatch(text):
        text = match[1]
    if _GROUPED.fullmatch(text):
        text = text.replace(",", "")
    elif _DECIMAL_COMMA.fullmatch(text):
        raise UnreadableError(
            f"it writes numbers with a decimal comma ({text:.20}); export it again with the variable LC_ALL=C"
        )
    if not _PLAIN.fullmatch(text):
        return None
    number = float(text)
    return number if math.isfinite(number) else None


def _unit(text: str) -> tuple[float, str]:
    """Return the factor for a value, and the unit that it has then: `Tbyte/second` -> 1e12 and `byte/s`."""
    amount, _, of = text.strip().partition("/")
    factor, own = _part(amount)
    if not of:
        return (factor * 1e9, "ns") if own == "s" else (factor, own)
    scale, own_of = _part(of)
    if own_of == "byte":  # ncu writes 2614 %/byte as 2.614 %/Kbyte
        return factor * scale, f"{own}/byte"
    return factor / scale, "hz" if (own, own_of) == ("cycle", "s") else f"{own}/{own_of}"


def _part(text: str) -> tuple[float, str]:
    if match := _SECONDS.fullmatch(text):
        return _PREFIXES[match[1]], "s"
    if match := _SCALED.fullmatch(text):
        return _PREFIXES[match[1].upper()], match[2].lower()
    return 1.0, text


def _extents(launch: _CsvLaunch, what: str) -> tuple[int, int, int] | None:
    if match := _EXTENTS.fullmatch(launch.about[what].strip()):
        return int(match[1]), int(match[2]), int(match[3])
    axes = [launch.metrics.get(f"launch__{what.partition(' ')[0].lower()}_dim_{axis}") for axis in "xyz"]
    x, y, z = (int(axis.value) if axis else 0 for axis in axes)
    return (x, y, z) if x and y and z else None
