"""A kernel's runs as versions of it, and which of them may be compared."""

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
    """`14:05` of today, else with its date."""
    then = time.localtime(entry.at)
    same_day = then[:3] == time.localtime()[:3]
    return time.strftime("%H:%M" if same_day else "%Y-%m-%d %H:%M", then)


def has_result(entry: HistoryEntry) -> bool:
    """Whether a run came to what can be shown and compared; one that failed before is kept only to be listed."""
    return entry.action != "run" or bool(entry.result.launches) or entry.result.finished.outcome == "ok"


def setup(entry: HistoryEntry) -> tuple[object, ...] | None:
    """What two runs must share for their times to be of the same work: GPU and driver, tools, settings, values; of a
    program's kernel the one configuration that it is launched in. None for what has no time, or several.
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
    """Entries, oldest first, grouped as versions: from one to the next the kernel's tokens, or a file that it
    was built from, differ.
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
    """Whether the version that was run last is slower than one before it, by runs of the same work."""
    last = next((entry for entry in reversed(entries) if entry.action == "run" and has_result(entry)), None)
    wanted = setup(last) if last else None
    if wanted is None:
        return None
    versions = grouped([entry for entry in entries if setup(entry) == wanted])
    runs = [
        [[launch.timing for launch in run.result.launches] for run in version.runs] for version in versions
    ]
    return measure.regression(runs)
