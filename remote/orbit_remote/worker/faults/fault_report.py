"""Turns what a GPU core dump says of a run into its problems: the line on which a kernel failed, or where its warps
stand.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from orbit_remote.common import messages as c
from orbit_remote.common import symbols
from orbit_remote.common.lazy_dataclass import dataclass
from orbit_remote.sanitizer.sanitizer_findings import Own
from orbit_remote.toolchain.gpu_dump import EXCEPTION_WORDS, TRAP, CoreDump, Grid, Site, Standing, Three

CRASHES = frozenset(
    f"CUDA_ERROR_{name}"
    for name in (
        "ILLEGAL_ADDRESS", "MISALIGNED_ADDRESS", "INVALID_ADDRESS_SPACE", "ILLEGAL_INSTRUCTION", "INVALID_PC",
        "HARDWARE_STACK_ERROR", "LAUNCH_FAILED", "ASSERT", "EXCEPTION", "TENSOR_MEMORY_LEAK",
    )
)  # fmt: skip
"""What the driver answers once a kernel has failed while it ran."""
_ACCESS = {
    "load": "a load",
    "store": "a store",
    "atomic": "an atomic operation",
    "copy": "a copy to shared memory",
}
_ADDRESS = frozenset((1, 5, 6, 7, 10, 11, 14, 17, 18))
_WAITED = {
    "barrier": "waited here for their block",
    "cluster": "waited here for their cluster",
    "mbarrier": "waited here for an mbarrier",
    "warp": "waited here for other lanes of their warp",
    "sleep": "slept here",
}
"""What warps did at an instruction of this kind, at a line."""
_NO_LINES = "the code was built without line information (-lineinfo), which would name the line"
_MOST_PLACES = 20
"""Places of one hang that are shown: a kernel whose warps are everywhere is slow, and has no place to look at."""


def crash_code(finished: c.Finished) -> str:
    """Return the CUDA error with which a kernel of this run failed. Return "" if none did."""
    if finished.outcome != "runtime error":
        return ""
    return next((problem.code for problem in finished.problems if problem.code in CRASHES), None) or ""


# -- a crash ----------------------------------------------------------------------------------------


def with_fault(finished: c.Finished, dump: CoreDump, own: Own) -> c.Finished:
    """Return the run's failure on the line of the instruction that failed. `dump` has a fault."""
    fault = dump.faults[0]
    site, code = fault.site, crash_code(finished)
    place, inside, callers = _placed(site, fault.calls, own)
    name = symbols.short_name(site.kernel) if site.kernel else "the kernel"
    said = next(problem for problem in finished.problems if problem.code == code)
    what = _what(fault)
    code = dump.error() if fault.exception != TRAP else code
    message = f"{code}: {what}, {_where(dump.faults, name)}{inside}"
    if place is None and site.kernel:
        message += f", at byte {site.offset:#x} of its code; {_NO_LINES}"
    notes = (*callers, *(note for note in said.notes if note.place and note.place != place))
    better = replace(
        said,
        message=message,
        code=code,
        place=place or said.place,
        symbol=site.kernel or said.symbol,
        notes=notes,
    )
    return _instead(finished, said, better, found=place is not None)


def with_finding(finished: c.Finished, finding: c.Problem) -> c.Finished:
    """Return the run's failure on the line where compute-sanitizer found a fault."""
    code = crash_code(finished)
    said = next(problem for problem in finished.problems if problem.code == code)
    better = replace(
        said,
        message=f"{code}: {finding.message}",
        place=finding.place or said.place,
        notes=(*finding.notes, *(note for note in said.notes if note.place and note.place != finding.place)),
    )
    return _instead(finished, said, better, found=finding.place is not None)


def _instead(finished: c.Finished, said: c.Problem, better: c.Problem, *, found: bool) -> c.Finished:
    problems = tuple(better if each is said else each for each in finished.problems)
    failure = finished.failure
    if failure:
        at = (
            f" ({better.place.file.rpartition('/')[2]}:{better.place.line})" if found and better.place else ""
        )
        failure = replace(
            failure,
            message=f"{better.message}{at}",
            remedy="" if found else failure.remedy,
            place=better.place,
            symbol=better.symbol,
        )
    return replace(finished, problems=problems, failure=failure)


def _what(fault: Standing) -> str:
    if fault.exception == TRAP:
        return "a trap instruction (__trap, or an assertion) ended it"
    words = EXCEPTION_WORDS.get(fault.exception, f"exception {fault.exception}")
    access = _ACCESS.get(fault.site.does, "") if fault.exception in _ADDRESS else ""
    return f"{words} in {access}" if access else words


def _where(faults: Sequence[Standing], name: str) -> str:
    """Return `in block (0,0,0), threads (192,0,0) to (223,0,0) of scale`, or how many warps there are and the first
    of them.
    """
    first = faults[0]
    warps = sum(fault.warps for fault in faults)
    if not warps:  # they have left their SM
        return f"in {name}"
    block, thread = first.first
    last = first.last[1]
    if warps > 1:
        return f"in {warps} warps of {name}, the first in block {_three(block)}, thread {_three(thread)}"
    threads = f"thread {_three(thread)}"
    if last != thread:
        threads = f"threads {_three(thread)} to {_three(last)}"
    return f"in block {_three(block)}, {threads} of {name}"


def _placed(site: Site, calls: Sequence[Site], own: Own) -> tuple[c.Place | None, str, tuple[c.Note, ...]]:
    """Return the author's innermost line of an instruction, the library's function in which it stands, and the
    author's lines from which that was called.
    """
    frames = [*site.frames, *(frame for call in calls for frame in call.frames)]
    places = [c.Place(file, line) if (file := own(name)) else None for name, line in frames]
    at = next((number for number, place in enumerate(places) if place), None)
    if at is None:
        return None, "", ()
    name, line = frames[0]
    inside = f", inside {name.rpartition('/')[2]}:{line}" if at else ""
    outer = dict.fromkeys(place for place in places[at + 1 :] if place and place != places[at])
    return places[at], inside, tuple(c.Note("called from here", place) for place in outer)


def _three(index: Three) -> str:
    return f"({','.join(map(str, index))})"


# -- a hang -----------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Group:
    """Warps of a kernel that do the same on a line. `block` and `thread` are those of the first of them."""

    grid: int
    place: c.Place | None
    does: str
    block: Three
    thread: Three
    warps: int = 0
    lanes: int = 0
    partly: bool = False
    notes: tuple[c.Note, ...] = ()
    inside: str = ""


def with_standing(finished: c.Finished, dump: CoreDump, own: Own) -> c.Finished:
    """Return a run that was ended at its limit, with the lines on which the warps of its kernels stood. `dump` has
    grids.
    """
    groups = _groups(dump.standing, own)
    several = len(dump.grids) > 1
    problems = tuple(
        _problem(group, dump.grids[group.grid], named=several) for group in groups[:_MOST_PLACES]
    )
    summary = progress(dump)
    stood = ", ".join(_short(group, dump.grids[group.grid]) for group in groups[:3])
    failure = finished.failure
    if failure:
        first = groups[0].place if groups else None
        symbol = next((grid.kernel for grid in dump.grids.values()), None)
        message = f"{failure.message}. {summary}: {stood}" if stood else f"{failure.message}. {summary}"
        failure = replace(
            failure, message=message, place=first or failure.place, symbol=failure.symbol or symbol
        )
    return replace(finished, failure=failure, problems=(*finished.problems, *problems))


def _groups(standing: Iterable[Standing], own: Own) -> list[_Group]:
    """Return the groups, the largest first. Warps that wait come before those that only stand there: they wait for
    these.
    """
    found: dict[object, _Group] = {}
    for each in standing:
        place, inside, notes = _placed(each.site, each.calls, own)
        does = (
            each.site.does if each.site.does in _WAITED and (each.site.does != "warp" or each.partly) else ""
        )
        key = (each.grid, place or each.site.offset, does)
        block, thread = each.first
        group = found.setdefault(
            key, _Group(each.grid, place, does, block, thread, notes=notes, inside=inside)
        )
        group.warps += each.warps
        group.lanes += each.lanes
        group.partly = group.partly or bool(each.partly)
    return sorted(found.values(), key=lambda group: (not group.does, -group.warps))


def _problem(group: _Group, grid: Grid, *, named: bool) -> c.Problem:
    of = f" of {symbols.short_name(grid.kernel)}" if named and grid.kernel else ""
    doing = _WAITED.get(group.does, "stood here")
    message = (
        f"{_counted(group, grid)}{of} {doing}{group.inside}; "
        f"the first: block {_three(group.block)}, thread {_three(group.thread)}"
    )
    if group.place is None:
        message += f"; {_NO_LINES}"
    return c.Problem("warning", message, "cuda", group.place, c.STANDS, grid.kernel or None, group.notes)


def _counted(group: _Group, grid: Grid) -> str:
    """Return `3 of 4 warps`. If warps have diverged, their lanes are counted."""
    if group.partly:
        return (
            f"{group.lanes} threads of {group.warps} warps"
            if group.warps > 1
            else f"{group.lanes} threads of a warp"
        )
    return f"{group.warps} of {grid.warps} warps"


def _short(group: _Group, grid: Grid) -> str:
    doing = _WAITED.get(group.does, "stood here")
    where = f"line {group.place.line}" if group.place else "an unknown line"
    return f"{_counted(group, grid)} {doing.replace(' here', '', 1)} at {where}"


def progress(dump: CoreDump) -> str:
    """Return how far each kernel had come, in blocks."""
    return "; ".join(_progress(grid) for grid in dump.grids.values() if grid.kernel)


def _progress(grid: Grid) -> str:
    name, total = symbols.short_name(grid.kernel), grid.ended + grid.resident + grid.waiting
    waiting = f", {grid.waiting} had not begun" if grid.waiting else ""
    return f"{grid.ended} of {total} blocks of {name} had ended, {grid.resident} were running{waiting}"
