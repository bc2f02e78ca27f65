"""Launches of an unchanged program that CUPTI counts within its process (cupti/program_profile.h): the request, and
the results.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from orbit_remote.common import codec, limits, regular_files, symbols
from orbit_remote.common.launch_records import LaunchRecord
from orbit_remote.common.lazy_dataclass import dataclass
from orbit_remote.common.messages import Dump, Profile, Resources
from orbit_remote.common.requests import Level
from orbit_remote.counters import click_metrics, profiler, profiles
from orbit_remote.counters.profiler import Counted
from orbit_remote.counters.profiles import Chip, LaunchedCode
from orbit_remote.counters.source_lines import Authorship
from orbit_remote.recording.injection import Cupti
from orbit_remote.toolchain import dumps
from orbit_remote.toolchain.elf import Cubin

_ORDER = "profile.order"
_MOST = 16
"""Configurations that are counted, as many as with Nsight Compute."""


@dataclass(frozen=True, slots=True)
class CountedLaunch:
    """The first launch of a configuration. `complete`: all counters of a click were read. `seconds` is how long it
    took.
    """

    record: LaunchRecord
    counted: Counted
    code: LaunchedCode
    chip: Chip
    passes: int
    complete: bool
    seconds: float


@dataclass(frozen=True, slots=True)
class ProgramCounts:
    """The results. `why` is a clause that says why a launch was not counted. `launched` are mangled names. `began`: a
    process reached the profiler.
    """

    launches: tuple[CountedLaunch, ...] = ()
    why: str = ""
    launched: tuple[str, ...] = ()
    began: bool = False
    more: bool = False
    """Whether launches of further configurations were not counted."""
    failed: bool = False
    """Whether a kernel failed when it was launched again, or its launch: the program's own fails too."""
    counting: str = ""
    """The mangled name of a kernel that was being counted when the program was ended."""

    @property
    def uncounted(self) -> str:
        """Return why there is nothing, as a clause. Return "" if no wanted kernel was launched."""
        if self.launches:
            return ""
        return self.why if self.why or self.began else "CUPTI could not come into any process of it"

    @property
    def remarks(self) -> tuple[str, ...]:
        told: list[str] = []
        if self.more:
            count = len(self.launches)
            told.append(
                f"only {count} launch{'es were' if count > 1 else ' was'} profiled: more have other configurations"
            )
        if self.launches and self.why:
            told.append(f"a launch was not counted: {self.why}")
        if without := [each for each in self.launches if not each.counted.sampled.samples]:
            names = dict.fromkeys(symbols.short_name(each.record.symbol) for each in without)
            of = "" if len(without) == len(self.launches) else f" of {', '.join(names)}"
            told.append(f"CUPTI took no warp samples{of}, so no line{of and ' of it'} has a share")
        if dropped := sum(each.counted.sampled.dropped for each in self.launches):
            told.append(f"CUPTI dropped {dropped:,} warp samples, for which it had no room")
        if short := next((each for each in self.launches if not each.complete), None):
            told.append(profiler.fewer(short.seconds, short.passes))
        return tuple(told)


def environment(
    folder: Path, cache: Path, cupti: Cupti, wanted: Sequence[str], pattern: str, limit_s: float
) -> dict[str, str]:
    """Return the variables with which a recorded program counts its launches.

    It counts the first launch of each configuration of the `wanted` kernels, or of those that fit the `pattern`, both
    of mangled names. `folder` has its records; `limit_s` is the program's limit. Raises UncountedError.
    """
    library = profiler.library(cache, cupti)
    order = [
        *(f"symbol {symbol}" for symbol in wanted),
        *([f"pattern {pattern}"] if pattern and not wanted else []),
        f"most {_MOST}",
        f"longest {min(profiler.LONGEST_S, limit_s / 2)}",
        f"period {profiler.PERIOD}",
        f"long {profiler.LONG_S}",
        *(
            line
            for names in click_metrics.SETS
            for line in ("set next", *(f"counter {name}" for name in names))
        ),
    ]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / _ORDER).write_text("\n".join([*order, ""]), encoding="utf-8")
    # serial records would leave the samples without functions
    return {"ORBIT_PROFILER": str(library), "ORBIT_PROFILE": str(folder / _ORDER), "ORBIT_RECORD": "nothing"}


def read(folder: Path) -> ProgramCounts:
    """Return what the processes of a program counted: the first launch of each configuration. Torn lines are left
    out.
    """
    launches: dict[tuple[object, ...], CountedLaunch] = {}
    whys: list[str] = []
    launched: dict[str, None] = {}
    files = sorted(folder.glob("*.counted"))
    more = failed = False
    counting = ""
    for file in files:
        for line in _lines(file):
            with contextlib.suppress(KeyError, TypeError, ValueError):
                counting = str(line.get("begun", ""))
                if "values" in line:
                    launch = _launch(line, folder)
                    record = launch.record
                    launches.setdefault((record.symbol, record.grid, record.block), launch)
                elif "why" in line:
                    whys.append(str(line["why"]))
                elif "launched" in line:
                    launched |= dict.fromkeys(map(str, line["launched"]))
                else:
                    more |= "more" in line
                    failed |= "failed" in line
    why = "; ".join(dict.fromkeys(whys))
    return ProgramCounts(tuple(launches.values()), why, tuple(launched), bool(files), more, failed, counting)


def begun(folder: Path) -> list[tuple[str, bytes]]:
    """Return the kernels with a counted launch, also one that has only begun. They are by mangled name, each with its
    cubin.
    """
    told = [line for file in folder.glob("*.counted") for line in _lines(file) if "begun" in line]
    return [(str(line["begun"]), _code(str(line["begun"]), str(line["code"]), folder)) for line in told]


def profiles_of(
    counts: ProgramCounts, authorship: Authorship, tool: str, known: Mapping[str, Resources]
) -> tuple[Profile, ...]:
    """Return a profile of each launch. `tool` is CUPTI's version, `known` is what the compiler said of kernels by
    mangled name.
    """
    made: list[Profile] = []
    for each in counts.launches:
        resources = known.get(each.record.symbol)
        barriers = (resources.barriers if resources else None) or 0
        made.append(
            profiles.profile(each.record, each.counted, each.code, each.chip, authorship, tool, barriers)
        )
    return tuple(made)


def dumps_of(
    counts: ProgramCounts,
    known: Mapping[str, Resources],
    listings: Mapping[tuple[str, bytes], str],
    remarks: list[str],
    ptx: str = "",
) -> tuple[Dump, ...]:
    """Return what the compiler made of the counted kernels: SASS from `listings`, by kernel and cubin, and the `ptx`
    of the program. `remarks` gets more remarks.
    """
    made: dict[tuple[str, bytes], dumps.DumpedInstance] = {}
    for each in counts.launches:
        symbol, cubin = each.record.symbol, each.code.cubin
        texts: dict[Level, bytes] = {"ptx": ptx.encode("utf-8", "surrogateescape")} if ptx else {}
        if sass := listings.get((symbol, cubin), ""):
            texts["sass"] = sass.encode("utf-8", "replace")
        name = known[symbol].name if symbol in known else symbols.short_name(symbol)
        made.setdefault((symbol, cubin), dumps.DumpedInstance(symbol, name, {}, texts))
    return dumps.packed(list(made.values()), remarks)


def _lines(file: Path) -> Iterator[dict[str, Any]]:
    try:
        content = regular_files.head(file, limits.LAUNCHES)
    except OSError:  # of the program's own making
        return
    for line in content.splitlines():
        with contextlib.suppress(ValueError):
            item: Any = codec.read_json(line)
            if isinstance(item, dict):
                yield item


def _launch(line: dict[str, Any], folder: Path) -> CountedLaunch:
    cluster = _sizes(line["cluster"])
    record = LaunchRecord(
        symbol=str(line["symbol"]),
        start_ns=0,
        end_ns=round(float(line["values"].get("gpu__time_duration.sum", 0.0))),
        grid=_sizes(line["grid"]),
        block=_sizes(line["block"]),
        cluster=cluster if all(cluster) else None,
        registers=_allocated(line["registers"]),
        static_shared=_known(line["static"]),
        dynamic_shared=_known(line["dynamic"]),
        local_per_thread=_known(line["local"]),
    )
    values = {name: float(value) for name, value in line["values"].items() if name in click_metrics.UNITS}
    counted = Counted(values, profiler.sampled(line["samples"], int(line["period"])))
    major, minor, multiprocessors = map(int, line["chip"])
    return CountedLaunch(
        record,
        counted,
        LaunchedCode(_code(record.symbol, str(line.get("code", "")), folder)),
        Chip(f"{major}.{minor}", multiprocessors),
        int(line["passes"]),
        bool(line["complete"]),
        float(line["seconds"]),
    )


def _code(symbol: str, checksum: str, folder: Path) -> bytes:
    """Return the cubin that was launched: the one with this checksum, or else one that has the kernel."""
    named = folder / f"{checksum}.cubin"
    for file in (named, *sorted(folder.glob("*.cubin"))):
        with contextlib.suppress(OSError, ValueError):
            code = regular_files.read(file, limits.REPORT)
            if symbol in Cubin(code).functions():
                return code
    return b""


def _sizes(numbers: Any) -> tuple[int, int, int]:
    x, y, z = map(int, numbers)
    return x, y, z


def _allocated(registers: Any) -> int | None:
    """Return the registers of a thread that a launch gets, in steps of eight (CUDA Programming Guide, *Compute
    Capabilities*).
    """
    used = _known(registers)
    return None if used is None else max(16, -(-used // 8) * 8)


def _known(number: Any) -> int | None:
    return None if int(number) < 0 else int(number)
