"""Reads a report of Nsight Compute with NVIDIA's own `ncu_report`, as `Profile`s.

It runs in the process that has that module loaded (`report_process`). A number that is missing or not finite is left
out. The compiled code in every report says which instructions belong to which lines; reports of code without line
information have no lines.
"""

from __future__ import annotations

import contextlib
import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import field, replace
from pathlib import Path
from typing import Any

from orbit_remote.common import limits, regular_files
from orbit_remote.common.lazy_dataclass import dataclass
from orbit_remote.common.measurements import Advice, Line, Metric
from orbit_remote.common.messages import Profile, content_hash
from orbit_remote.counters.source_lines import Authorship, LineCounts
from orbit_remote.toolchain import dwarf_lines, elf, ptx_inlining, sass_listing
from orbit_remote.toolchain.dwarf_lines import Frame, FunctionLines
from orbit_remote.toolchain.ptx import with_letters

_STALLED = "smsp__pcsamp_warps_issue_stalled_"
_SAMPLES = "smsp__pcsamp_sample_count"
_FIRST_INSTRUCTION = "launch__function_pcs"
_DEVICE = "device__attribute_display_name"
_NOT_SHOWN = ("device__attribute_", "breakdown:", "group:", "numa__", "nvlink__", "c2clink__")
"""Names of what is no measurement of a launch: the device's description and lists of other names."""
_COUNTED = {
    "instructions": "inst_executed",
    "sectors": "memory_l2_theoretical_sectors_global",
    "ideal_sectors": "memory_l2_theoretical_sectors_global_ideal",
    "wavefronts": "memory_l1_wavefronts_shared",
    "ideal_wavefronts": "memory_l1_wavefronts_shared_ideal",
    "local_sectors": "memory_l2_theoretical_sectors_local",
}
"""Field of `Line` -> the metric of the section SourceCounters that has it by instruction."""
_TARGET = re.compile(r"(?:`\([^)]*\) *)?0x([0-9a-f]+)")
_LINK = re.compile(r"@(?:url|section|sass|source):((?:[^@]|@(?!\w+:))*?)@")
_MOST_SASS = 16 << 20
"""Characters from which on no more is read of further launches."""


@dataclass(frozen=True, slots=True)
class ReportRequest:
    """What to read. `path` is the author's file; `files` are further files of theirs that were compiled into it. Code
    of any other file is the library's. `users` says that files outside of Python's own folders are the author's too.
    `ptx` is a folder with Triton's PTX of the kernels that ran.

    A report without `path` is from another machine. Then every file outside of a toolkit's and a package's folders is
    the author's, and no machine code is read.
    """

    report: str
    path: str
    files: tuple[str, ...] = ()
    users: bool = False
    ptx: str = ""
    most: int = 16
    tool: str = ""


@dataclass(frozen=True, slots=True)
class ReportAnswer:
    """What was read. `left_out` counts launches in the report beyond the limit. `problem` says why there is nothing.
    `sass` has the machine code of each profile; "" if an earlier profile of its symbol has the same. `sources` are
    the author's files that the lines name, by the content hash of their text in the report; "" if it has none.
    `device` is the GPU's name.
    """

    profiles: tuple[Profile, ...] = ()
    left_out: int = 0
    problem: str = ""
    sass: tuple[str, ...] = ()
    sources: dict[str, str] = field(default_factory=dict[str, str])
    device: str = ""


def read(ncu_report: Any, request: ReportRequest) -> ReportAnswer:
    """Raises whatever the module raises for a report that it cannot read."""
    report = ncu_report.load_report(request.report)
    actions = [action for part in report for action in part]
    if not actions:
        return ReportAnswer(problem="the report is damaged or of a newer version: no launch is found in it")
    reader = _LaunchReader(
        ncu_report, request, _line_tables(request, {_symbol(action) for action in actions})
    )
    seen: dict[tuple[object, ...], int] = defaultdict(int)
    profiles: list[Profile] = []
    sass: list[str] = []
    for action in actions[: request.most]:
        profile = reader.profile(action)
        configuration = (profile.symbol, profile.grid, profile.block)
        if not profile.metrics:
            return ReportAnswer(problem="the report is damaged: it has a launch without a number")
        profiles.append(replace(profile, launch=seen[configuration]))
        seen[configuration] += 1
        text = reader.sass(action) if request.path and sum(map(len, sass)) < _MOST_SASS else ""
        sass.append("" if text in sass else text)
    named = {line.file for profile in profiles for line in profile.lines}
    return ReportAnswer(
        tuple(profiles), max(0, len(actions) - request.most), sass=tuple(sass), sources=_sources(actions, named),
        device=_device(actions[0]),
    )  # fmt: skip


def _sources(actions: list[Any], named: set[str]) -> dict[str, str]:
    """Return the content hash of each file's text in the report. It is "" if the report has no text."""
    texts: dict[str, str] = {}
    for action in actions:
        texts |= {
            str(file): str(text) for file, text in action.source_files().items() if file in named and text
        }
    return {
        file: content_hash(texts[file].encode("utf-8", "surrogateescape")) if file in texts else ""
        for file in sorted(named)
    }


def _device(action: Any) -> str:
    metric = action.metric_by_name(_DEVICE)
    return str(metric.as_string() or "") if metric is not None else ""


Tables = dict[str, list[FunctionLines]]
"""By mangled name; several where a JIT gave instances of a kernel one name."""


def _line_tables(request: ReportRequest, symbols: set[str]) -> Tables:
    """Return the line tables of these functions. The report has the ELF files of their code, as they were loaded."""
    texts = (
        [regular_files.text(path, limits.PTX) for path in Path(request.ptx).glob("*.ptx")]
        if request.ptx
        else []
    )
    tables: Tables = {}
    for code in elf.images(regular_files.read(request.report, limits.REPORT)):
        with contextlib.suppress(ValueError):  # bytes that look like the beginning of one
            for name, lines in dwarf_lines.read(code, symbols).items():
                tables.setdefault(name, []).append(ptx_inlining.add(lines, name, code, texts))
    return tables


class _LaunchReader:
    def __init__(self, module: Any, request: ReportRequest, lines: Tables) -> None:
        self._module = module
        self._request = request
        self._lines = lines
        self._authorship = Authorship(request.path, request.files, users=request.users)
        self._reported: set[str] = set()

    def profile(self, action: Any) -> Profile:
        metrics = dict(self._metrics(action))
        symbol = _symbol(action)
        samples = metrics.get(_SAMPLES)
        return Profile(
            symbol=symbol,
            name=str(action.name(action.NameBase_DEMANGLED) or symbol),
            tier="counters",
            grid=_extents(metrics, "grid"),
            block=_extents(metrics, "block"),
            metrics=metrics,
            lines=self._of_lines(action, symbol),
            samples=int(samples.value) if samples else None,
            advice=tuple(self._advice(action)),
            tool=self._request.tool,
        )

    def sass(self, action: Any) -> str:
        """Return a launch's machine code. Return "" if its symbol has only one code, and that has been returned
        before.
        """
        symbol = _symbol(action)
        if symbol in self._reported and len(self._lines.get(symbol, [])) < 2:
            return ""
        self._reported.add(symbol)
        first = _first_instruction(action)
        if first is None:
            return ""
        frames = self._frames(action, symbol)
        return sass_listing.text(
            f"{symbol}, as it ran", _instructions(action, first), lambda offset: frames(first + offset)
        )

    def _metrics(self, action: Any) -> Iterator[tuple[str, Metric]]:
        """Yield the numbers of the launch as a whole."""
        kind: Any = self._module.IMetric
        numbers = {kind.ValueKind_FLOAT, kind.ValueKind_DOUBLE, kind.ValueKind_UINT32, kind.ValueKind_UINT64}
        for name in action.metric_names():
            if name.startswith(_NOT_SHOWN):
                continue
            metric = action.metric_by_name(name)
            if metric is None or metric.kind() not in numbers or not metric.has_value():
                continue
            value = float(metric.as_double())
            if math.isfinite(value):
                yield name, Metric(name, value, str(metric.unit() or ""))

    def _advice(self, action: Any) -> Iterator[Advice]:
        kinds = {self._module.MsgType_OPTIMIZATION, self._module.MsgType_WARNING}
        for rule in action.rule_results_as_dicts():
            message: dict[str, Any] = rule.get("rule_message") or {}
            if message.get("type") not in kinds:
                continue
            estimate = rule.get("speedup_estimation")
            of_all = estimate is not None and estimate["type"] == self._module.SpeedupType_GLOBAL
            yield Advice(
                rule=str(rule["rule_identifier"]),
                section=str(rule.get("section_identifier", "")),
                title=_plain(str(message.get("title", ""))),
                message=_plain(str(message.get("message", ""))),
                speedup=float(estimate["speedup"]) if estimate else None,
                scope="" if estimate is None else "global" if of_all else "local",
            )

    # -- lines --------------------------------------------------------------------------------------

    def _of_lines(self, action: Any, symbol: str) -> tuple[Line, ...]:
        frames = self._frames(action, symbol)
        counts = LineCounts(self._authorship)
        for name in action.metric_names():
            if name.startswith(_STALLED) and not name.endswith("_not_issued"):
                reason = name.removeprefix(_STALLED)
                for at, count in _by_instruction(action.metric_by_name(name)):
                    if count:
                        counts.stalled(frames(at), reason, count)
        for name, metric_name in _COUNTED.items():
            metric = action.metric_by_name(metric_name)
            for at, count in _by_instruction(metric) if metric is not None else ():
                counts.counted(frames(at), name, count)
        return counts.lines()

    def _frames(self, action: Any, symbol: str) -> Callable[[int], tuple[Frame, ...]]:
        """Return a function from an instruction's address to its lines, innermost first."""
        begin = _first_instruction(action)
        table = self._table(action, symbol, begin) if begin is not None else None
        known: dict[int, tuple[Frame, ...]] = {}

        def frames(address: int) -> tuple[Frame, ...]:
            if address not in known:
                if table is not None and begin is not None:
                    places = table.at(address - begin)
                else:
                    info = action.source_info(address)
                    places = ((with_letters(str(info.file_name())), int(info.line())),) if info else ()
                known[address] = tuple(self._authorship.origin(*place) for place in places)
            return known[address]

        return frames

    def _table(self, action: Any, symbol: str, begin: int) -> FunctionLines | None:
        """Return, among several tables, the one that agrees with NVIDIA's reader about the instructions."""
        tables = self._lines.get(symbol, [])
        if len(tables) < 2:
            return next(iter(tables), None)
        counted = action.metric_by_name(_COUNTED["instructions"])
        addresses = [at for at, _ in _by_instruction(counted)] if counted is not None else []
        sources = [(at - begin, action.source_info(at)) for at in addresses]

        def agreeing(table: FunctionLines) -> int:
            return sum(
                table.at(at)[:1] == ((with_letters(str(info.file_name())), int(info.line())),)
                for at, info in sources
                if info
            )

        return max(tables, key=agreeing)


def _symbol(action: Any) -> str:
    return str(action.name(action.NameBase_MANGLED) or action.name())


def _by_instruction(metric: Any) -> Iterator[tuple[int, int]]:
    """Yield (address, count) for every instruction for which the metric has a value."""
    count = metric.num_instances()
    if not count or not metric.has_correlation_ids():
        return
    addresses = metric.correlation_ids()
    for at in range(count):
        yield addresses.as_uint64(at), metric.as_uint64(at)


def _first_instruction(action: Any) -> int | None:
    name = action.metric_by_name(_FIRST_INSTRUCTION)
    if name is not None and name.num_instances():
        return int(name.as_uint64(0))
    executed = action.metric_by_name(_COUNTED["instructions"])
    return min((at for at, _ in _by_instruction(executed)), default=None) if executed is not None else None


def _instructions(action: Any, first: int) -> list[str]:
    """Return the text of the instructions. Jumps within the kernel go to an offset in it. NVIDIA's reader takes about
    50 us for each.
    """
    texts: list[str] = []
    while len(texts) < sass_listing.MOST and (
        text := str(action.sass_by_pc(first + len(texts) * sass_listing.INSTRUCTION) or "")
    ):
        texts.append(text)
    end = first + len(texts) * sass_listing.INSTRUCTION

    def within(match: re.Match[str]) -> str:
        at = int(match[1], 16)
        return f"0x{at - first:04x}" if first <= at < end else match[0]

    return [_TARGET.sub(within, text.strip()) for text in texts]


def _extents(metrics: dict[str, Metric], what: str) -> tuple[int, int, int] | None:
    extents = [metrics.get(f"launch__{what}_dim_{axis}") for axis in "xyz"]
    if any(metric is None for metric in extents):
        return None
    x, y, z = (int(metric.value) for metric in extents if metric)
    return x, y, z


def _plain(text: str) -> str:
    """Remove the links of Nsight Compute's own pages: `@section:Id:words@`, `@url:words:https://…@`."""

    def words(match: re.Match[str]) -> str:
        kind = match[0][1:4]
        before, _, after = match[1].partition(":")
        return before if kind == "url" else after.rpartition(":")[2] or before

    return _LINK.sub(words, text).strip()
