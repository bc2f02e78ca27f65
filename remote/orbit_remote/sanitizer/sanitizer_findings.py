"""Turns findings of compute-sanitizer into problems on the author's lines. They are merged, with related places, and
without those that only follow from another.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import field

from orbit_remote.common.lazy_dataclass import dataclass
from orbit_remote.common.messages import Note, Place, Problem, Severity
from orbit_remote.sanitizer.sanitizer_records import Access, Record, SanitizerFrame

Own = Callable[[str], str | None]
"""The author's name of a file; None for one that is not the author's."""

_API = re.compile(
    r'Program hit (?P<error>\w+) \(error \d+\) due to "(?P<why>.*)" on CUDA API call to (?P<call>\w+)\.?$'
)
_LEAK = re.compile(r"Leaked (\d+) bytes")
_FATAL = frozenset(
    [
        "IllegalAddress", "MisalignedAddress", "InvalidAddressSpace", "IllegalInstruction", "InvalidPc",
        "HardwareStackError", "LaunchFailure", "Assert", "LaunchTimeout", "ContextIsDestroyed", "Unknown",
    ]
)  # fmt: skip
"""What every call answers once a kernel has failed (`cudaError…`): no finding of its own."""


def problems(
    tool: str, records: Sequence[Record], own: Own, assertion: tuple[Place, str] | None = None
) -> tuple[Problem, ...]:
    """Return a problem for each line and kind of fault, by file and line. A problem without a line is last.

    `assertion` is where a device assertion failed, and how, as the CUDA runtime printed it: the records have no line.
    """
    faulty = any(record.kind not in ("Api", "Leak") for record in records)
    folded: dict[object, _Folded] = {}
    races: list[Record] = []
    for raw in records:
        if raw.kind == "Analysis" and raw.accesses:
            races.append(raw)
        elif not (faulty and (raw.kind == "Leak" or raw.error.removeprefix("cudaError") in _FATAL)):
            site = _site(raw, own)
            key = (raw.kind, raw.error if raw.kind == "Leak" else raw.text, site.place, site.symbol)
            entry = folded.setdefault(key, _Folded(raw, site))
            entry.records.append(raw)
            entry.callers.update(dict.fromkeys(site.callers))
    reported = [_problem(tool, group, assertion) for group in folded.values()]
    reported += [problem for race in races for problem in _race(tool, race, own)]
    return tuple(sorted(reported, key=_order))  # the tool's own order differs from run to run


def _order(problem: Problem) -> tuple[bool, str, int]:
    place = problem.place
    return (False, place.file, place.line) if place else (True, problem.symbol or "", 0)


@dataclass(frozen=True, slots=True)
class _FindingPlace:
    """Where a finding is shown: the author's innermost line, else the kernel. `inside` names the function that this
    line called.
    """

    place: Place | None
    symbol: str | None = None
    inside: str = ""
    callers: tuple[Note, ...] = ()


@dataclass(frozen=True, slots=True)
class _Folded:
    first: Record
    site: _FindingPlace
    records: list[Record] = field(default_factory=list["Record"])
    callers: dict[Note, None] = field(default_factory=dict["Note", None])


def _site(record: Record, own: Own) -> _FindingPlace:
    frames = record.frames
    at = next((n for n, frame in enumerate(frames) if _place(frame, own)), None)
    if at is None:
        host = next((place for frame in record.host if (place := _place(frame, own))), None)
        if not frames or record.kind == "Imprecise":
            return _FindingPlace(host)
        launched = (Note("launched here", host),) if host else ()
        unknown = "the code has no line information (-lineinfo)"
        return _FindingPlace(
            None, frames[-1].function, _inside(frames[0]) if frames[0].file else unknown, launched
        )
    callers = tuple(
        Note(f"called from {frame.function}", place)
        for frame in frames[at + 1 :]
        if (place := _place(frame, own))
    )
    return _FindingPlace(_place(frames[at], own), None, _inside(frames[0]) if at else "", callers)


def _inside(frame: SanitizerFrame) -> str:
    """Return `inside reduce (reduce.h:222)`."""
    where = f" ({frame.file.rpartition('/')[2]}:{frame.line})" if frame.file else ""
    return f"inside {frame.function}{where}"


def _place(frame: SanitizerFrame, own: Own) -> Place | None:
    if frame.file is None or frame.line is None:
        return None
    file = own(frame.file)
    return Place(file, frame.line) if file else None


def _problem(tool: str, folded: _Folded, assertion: tuple[Place, str] | None) -> Problem:
    first, site, count = folded.first, folded.site, len(folded.records)
    severity: Severity = "warning" if first.level == "Warning" else "error"
    if first.kind == "Leak":
        size = sum(int(match[1]) for record in folded.records if (match := _LEAK.match(record.text)))
        what = f"{count} allocations of {size:,} bytes" if count > 1 else f"{size:,} bytes"
        return Problem("information", f"{what} allocated here are never freed", tool, site.place)
    if first.kind == "Api":
        message, severity = _api(first.text, count)
        return Problem(severity, message, tool, site.place)
    text = first.text.rstrip(".")
    place = site.place
    if assertion and "assert" in text.lower():
        place, text = assertion
    if first.nearest and first.error == "out of bounds":
        text += ": " + re.sub(r"^1 bytes", "1 byte", first.nearest)
    parts = [text, site.inside, _who(first)]
    if count > 1:
        parts.append(f"{count} such findings")
    symbol = None if place else site.symbol
    return Problem(
        severity, "; ".join(filter(None, parts)), tool, place, symbol=symbol, notes=tuple(folded.callers)
    )


def _who(record: Record) -> str:
    if not record.thread:
        return ""
    return f"first by thread ({record.thread}) in block ({record.block})"


def _api(text: str, count: int) -> tuple[str, Severity]:
    match = _API.match(text)
    if match is None:
        return text, "warning"
    times = f", {count} times" if count > 1 else ""
    sentence = f"{match['call']} answered {match['error']}: {match['why']}{times}"
    if re.match(r"cu(da)?Launch", match["call"]):
        return f"{sentence}; the kernel did not run, so nothing in it was checked", "error"
    return sentence, "warning"


# -- races ------------------------------------------------------------------------------------------


def _race(tool: str, record: Record, own: Own) -> Iterable[Problem]:
    """Return a problem on each line of the race, related to the other line."""
    severity: Severity = "warning" if record.level == "Warning" else "error"
    source, *accesses = record.accesses
    here = _access_place(source, own)
    notes = [
        Note(f"the {_word(other)}, {_hazards(other)}", place)
        for other in accesses
        if (place := _access_place(other, own))
    ]
    sentence = " and ".join(f"{_which(other, source, here, own)} ({_hazards(other)})" for other in accesses)
    message = f"race: this {_word(source)} is not ordered against {sentence}"
    symbol = source.frames[0].function if here is None and source.frames else None
    yield Problem(
        severity, message, tool, here, symbol=symbol,
        notes=tuple(note for note in notes if note.place != here),
    )  # fmt: skip
    places = {here}
    for access in accesses:
        there = _access_place(access, own)
        if there is None or there in places:
            continue
        places.add(there)
        back = _which(source, access, there, own)
        text = f"race: this {_word(access)} is not ordered against {back} ({_hazards(access)})"
        notes = (Note(f"the {_word(source)}", here),) if here else ()
        yield Problem(severity, text, tool, there, notes=notes)


def _access_place(access: Access, own: Own) -> Place | None:
    return next((place for frame in access.frames if (place := _place(frame, own))), None)


def _which(access: Access, against: Access, here: Place | None, own: Own) -> str:
    """Return which access it is: `the read in line 6`, `itself by other threads`, `the write in inlined.cuh:12`."""
    place = _access_place(access, own)
    if place is None:
        return f"a {_word(access)}"
    if place == here:
        same = access.direction == against.direction
        return "itself by other threads" if same else f"the {_word(access)} in the same line"
    file = "" if here is not None and here.file == place.file else place.file.rpartition("/")[2]
    return (
        f"the {_word(access)} in {file}:{place.line}" if file else f"the {_word(access)} in line {place.line}"
    )


def _word(access: Access) -> str:
    return access.direction.lower() or "access"


def _hazards(access: Access) -> str:
    return "1 hazard" if access.hazards == 1 else f"{access.hazards:,} hazards"
