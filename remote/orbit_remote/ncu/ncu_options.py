"""Nsight Compute on this machine: its path, its version, and the options of a profile."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Literal

from orbit_remote.common.lazy_dataclass import dataclass
from orbit_remote.process import client_environment, tool_output

_VERSION_S = 20.0
_OLDEST = (2023, 3)
"""The first with `--filter-mode per-launch-config` and a reader that tells the speed-ups of rules."""
_SYMBOLS = 64
"""Instances beyond this are asked for by one pattern of the kernel's name, not by each of their own."""

MOST_RESULTS = 16
"""Launch configurations profiled in one run: each is replayed some ten times."""

CLICK = (
    "SpeedOfLight",
    "SpeedOfLight_RooflineChart",
    "Occupancy",
    "LaunchStats",
    "WarpStateStats",
    "MemoryWorkloadAnalysis",
    "SourceCounters",
)
"""What a click shows. The roofline's floating-point operations cost a pass or two; the tables of memory, the
pipes and the schedulers are for the full set."""

DURATION = "gpu__time_duration.sum"

Detail = Literal["click", "full"]


@dataclass(frozen=True, slots=True)
class Tool:
    """The tool. `readers` are folders from which NVIDIA's own `ncu_report` may be imported, the one of this version
    first.
    """

    path: str
    version: str
    readers: tuple[str, ...] = ()

    @property
    def too_old(self) -> str:
        """Return why the tool is too old to be used, in a sentence. Return "" if it is not."""
        numbers = tuple(int(part) for part in self.version.split(".")[:2] if part.isdigit())
        if numbers >= _OLDEST or not numbers:
            return ""
        oldest = ".".join(map(str, _OLDEST))
        return (
            f"Nsight Compute {self.version} at {self.path} is older than {oldest}, the first that can be used"
        )


def find() -> Tool | None:
    """Return the `ncu` on the path, else that of the newest toolkit or package."""
    for path in _candidates():
        if version := _version(str(path), path.stat().st_mtime_ns):
            return Tool(str(path), version, tuple(map(str, _readers(path, version))))
    return None


def _candidates() -> list[Path]:
    roots = [
        *map(client_environment.current().get, ("CUDA_HOME", "CUDA_PATH")),
        "/usr/local/cuda",
        "/opt/cuda",
    ]
    paths = [
        client_environment.which("ncu"),
        *(shutil.which("ncu", path=f"{root}/bin") for root in roots if root),
    ]
    apart = [
        *Path("/opt/nvidia/nsight-compute").glob("*/ncu"),
        *Path("/usr/local").glob("cuda*/nsight-compute*/ncu"),
    ]
    newest = sorted(apart, key=lambda path: _numbers(path.parent.name), reverse=True)
    every = [Path(path) for path in paths if path] + newest
    return [path for path in dict.fromkeys(every) if path.is_file()]


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", text))


@lru_cache
def _version(path: str, changed: int) -> str:  # noqa: ARG001 - an ncu that was replaced is asked again
    try:
        done = tool_output.ask([path, "--version"], timeout_s=_VERSION_S)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    match = re.search(r"^Version (\d+(?:\.\d+)+)", done.stdout, re.MULTILINE)
    return match[1] if match else ""


def _readers(path: Path, version: str) -> list[Path]:
    """Return the folders of readers beside the program itself. The path may be a link, or a script that starts
    another program.
    """
    near = [parent / "extras" / "python" for parent in path.resolve().parents[:4]]
    release = ".".join(version.split(".")[:3])
    places = (f"/opt/nvidia/nsight-compute/{release}*", f"/usr/local/cuda*/nsight-compute-{release}*")
    for place in places:
        near += sorted(Path("/").glob(f"{place[1:]}/extras/python"))
    return [folder for folder in dict.fromkeys(near) if (folder / "ncu_report.py").is_file()]


@dataclass(frozen=True, slots=True)
class ProfileOrder:
    """What is profiled. `symbols` are mangled names; without them any kernel is profiled. If they are too many,
    `pattern` is used instead. `marked` waits for the program to say where (`under_profiler`). `sources` puts the
    source files, as they lie on the disk, into the report. `sections` replace those of `detail`.
    """

    report: Path
    log: Path
    symbols: Sequence[str] = ()
    pattern: str = ""
    marked: bool = False
    sources: bool = True
    detail: Detail = "click"
    sections: Sequence[str] = ()


def command(tool: Tool, order: ProfileOrder, program: Sequence[str | os.PathLike[str]]) -> list[str]:
    """Return the command line of a profile. Clocks are left alone: locking them needs rights, and changes what is
    measured. The first launch of each launch configuration is profiled, however many there are.
    """
    wanted = (
        ["--set", "full"]
        if order.detail == "full" and not order.sections
        else [part for section in order.sections or CLICK for part in ("--section", section)]
    )
    return [
        tool.path,
        *("--clock-control", "none"),
        *("--target-processes", "all"),
        *("--import-source", "yes" if order.sources else "no"),
        *("--filter-mode", "per-launch-config"),
        *("--launch-count", "1"),
        *(("--kernel-name-base", "mangled", "--kernel-name", name) if (name := _names(order)) else ()),
        *(("--profile-from-start", "off") if order.marked else ()),
        *wanted,
        # the time tells which launch was the longest, and whether anything was counted at all
        *(("--metrics", DURATION) if order.sections else ()),
        *("--log-file", str(order.log)),
        *("--force-overwrite", "--export", str(order.report)),
        *(os.fspath(part) for part in program),
    ]


def _names(order: ProfileOrder) -> str:
    if order.symbols and len(order.symbols) <= _SYMBOLS:
        return f"regex:^({'|'.join(map(_literal, order.symbols))})$"
    return f"regex:{order.pattern}" if order.pattern else ""


def _literal(symbol: str) -> str:
    """Return a mangled name as a regular expression. Only `.` and `$` in it have a meaning there."""
    return re.sub(r"([^\w])", r"\\\1", symbol)
