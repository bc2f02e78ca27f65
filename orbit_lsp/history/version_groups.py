"""A kernel's runs as versions of it, and which of them may be compared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from orbit_lsp.history.history_store import Entry
from orbit_remote.common import measure


@dataclass(frozen=True, slots=True)
class Version:
    """Runs of the same code, one after the other, oldest first."""

    digest: str
    runs: tuple[Entry, ...]


def setup(entry: Entry) -> tuple[object, ...] | None:
    """What two runs must share for their times to be of the same work: GPU and driver, tools, settings, values; of a
    program's kernel the one configuration that it is launched in. None for what has no time, or several.
    """
    said = entry.said
    if entry.action != "run" or not said.launches or said.finished.outcome != "ok":
        return None
    device, one = said.finished.device, said.launches[0]
    machine = (device.name, device.driver) if device else ("", None)
    tools = tuple(sorted(said.finished.toolchain.items()))
    work: tuple[object, ...]
    if said.through == "program":
        if len(said.launches) > 1:
            return None
        work = (one.grid, one.block, one.cluster, one.dynamic_shared)
    else:
        point = next((one for one in said.finished.points if one.launches and not one.case), None)
        values = sorted(point.values.items()) if point else []
        work = (" ".join(said.lines.split()), tuple(values), len(said.launches))
    return (said.through, machine, tools, entry.inputs, work)


def grouped(entries: Sequence[Entry]) -> list[Version]:
    """Entries, oldest first, as versions: a kernel's tokens, or a file that it was built from, are others in the next."""
    found: list[Version] = []
    before: tuple[object, ...] | None = None
    for entry in entries:
        files = {path: digest for path, digest in (entry.said.files or {}).items() if path != entry.path}
        now = (entry.digest, tuple(sorted(files.items())))
        if found and now == before:
            found[-1] = Version(entry.digest, (*found[-1].runs, entry))
        else:
            found.append(Version(entry.digest, (entry,)))
        before = now
    return found


def regression(entries: Sequence[Entry]) -> measure.Regression | None:
    """Whether the version that was run last is slower than one before it, by runs of the same work."""
    last = next((entry for entry in reversed(entries) if entry.action == "run"), None)
    wanted = setup(last) if last else None
    if wanted is None:
        return None
    versions = grouped([entry for entry in entries if setup(entry) == wanted])
    runs = [[[one.timing for one in run.said.launches] for run in version.runs] for version in versions]
    return measure.regression(runs)
