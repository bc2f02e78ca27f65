"""The runs of a kernel as versions of it, and which of them may be compared."""

from __future__ import annotations

import time
from collections.abc import Sequence

from orbit_lsp.history.history_store import HistoryEntry
from orbit_remote.common import measure
from orbit_remote.common.lazy_dataclass import dataclass
from orbit_remote.common.requests import BY_AUTHOR


@dataclass(frozen=True, slots=True)
class Version:
    """Runs of the same code, one after the other, oldest first."""

    digest: str
    runs: tuple[HistoryEntry, ...]


def when(entry: HistoryEntry) -> str:
    """Return when a run was: `14:05` for today, else with the date."""
    then = time.localtime(entry.at)
    same_day = then[:3] == time.localtime()[:3]
    return time.strftime("%H:%M" if same_day else "%Y-%m-%d %H:%M", then)


def has_result(entry: HistoryEntry) -> bool:
    """Say whether a run has something to show and compare. A run that failed before is only kept for the list."""
    return entry.action != "run" or bool(entry.result.launches) or entry.result.finished.outcome == "ok"


def setup(entry: HistoryEntry) -> tuple[object, ...] | None:
    """Return what two runs must share so that their times are of the same work: GPU and driver, tools, settings,
    values. For a program's kernel that includes its one launch configuration. Return None for an entry without a
    time, or with several.
    """
    stored = entry.result
    if entry.action != "run" or not stored.launches or stored.finished.outcome != "ok":
        return None
    device, launches = stored.finished.device, stored.launches[0]
    machine = (device.name, device.driver) if device else ("", None)
    tools = tuple(sorted(stored.finished.toolchain.items()))
    work: tuple[object, ...]
    if stored.through in BY_AUTHOR:
        if len(stored.launches) > 1:
            return None
        work = (launches.grid, launches.block, launches.cluster, launches.dynamic_shared)
    else:
        point = next((point for point in stored.finished.points if point.launches and not point.case), None)
        values = sorted(point.values.items()) if point else []
        work = (" ".join(stored.lines.split()), tuple(values), len(stored.launches))
    return (stored.through, stored.driver, machine, tools, entry.inputs, work)


def grouped(entries: Sequence[HistoryEntry]) -> list[Version]:
    """Group entries, which come oldest first, into versions. A new version begins where the kernel's tokens differ,
    or a file that it was built from.
    """
    versions: list[Version] = []
    before: tuple[object, ...] | None = None
    for entry in entries:
        files = {path: digest for path, digest in (entry.result.files or {}).items() if path != entry.path}
        now = (entry.digest, tuple(sorted(files.items())))
        if versions and now == before:
            versions[-1] = Version(entry.digest, (*versions[-1].runs, entry))
        else:
            versions.append(Version(entry.digest, (entry,)))
        before = now
    return versions


def regression(entries: Sequence[HistoryEntry]) -> measure.Regression | None:
    """Return how much slower the version that ran last is than an earlier one, by runs of the same work. Return None
    if it is not slower.
    """
    last = next((entry for entry in reversed(entries) if entry.action == "run" and has_result(entry)), None)
    wanted = setup(last) if last else None
    if wanted is None:
        return None
    versions = grouped([entry for entry in entries if setup(entry) == wanted])
    runs = [
        [[launch.timing for launch in run.result.launches] for run in version.runs] for version in versions
    ]
    return measure.regression(runs)
