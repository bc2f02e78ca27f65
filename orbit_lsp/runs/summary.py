"""Writes a finished run in one line, in the same words for a progress bar, the log and a terminal."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from orbit_lsp.kernels import Kernel
from orbit_lsp.profile import bottleneck
from orbit_lsp.state import units
from orbit_remote.common import messages as c
from orbit_remote.common import symbols
from orbit_remote.common.plain_text import visible


def one_line(finished: c.Finished, *, compiled_only: bool, kernel: str = "") -> str:
    """Return `saxpy 288 µs, tiled<32> 1.85 ms`, `3 kernels compiled for sm_90a`, or the failure's own sentence, with
    the cost of a rented GPU behind it. `kernel` is one whose name the reader sees before it: if no other was
    launched, the line is `288 µs`.
    """
    text = visible(_outcome(finished, kernel, compiled_only=compiled_only))
    return f"{text} · {cost(finished.cost)}" if finished.cost else text


def cost(spent: c.Cost) -> str:
    """Return `4.2 s of H100, $0.0048 at Modal's rates`."""
    text = f"{spent.seconds:.1f} s of {spent.gpu}"
    return text if spent.usd is None else f"{text}, {units.money(spent.usd)} at {spent.rates}"


def explained(failure: c.Failure) -> str:
    """Return what failed, and what to do."""
    if not failure.remedy:
        return failure.message
    between = "\n" if "\n" in failure.remedy else " "  # a list has lines of its own
    return f"{failure.message.rstrip('.')}.{between}{failure.remedy}"


def _names(launches: Sequence[c.Launches | c.Profile], kernel: str) -> dict[str, str]:
    """Return the short name of each launch: `saxpy ` for `saxpy(int, float)`, and nothing for the only kernel if it
    is `kernel`. Overloads keep their parameters.
    """
    whole = dict.fromkeys(launch.name for launch in launches)
    short = {name: symbols.without_parameters(name) for name in whole}
    if list(short.values()) == [kernel]:
        return dict.fromkeys(whole, "")
    counts = Counter(short.values())
    return {name: f"{short[name] if counts[short[name]] == 1 else name} " for name in whole}


def first_error(message: str) -> str:
    """Return `k.cu:3: expected a ";"` for `k.cu does not compile (1 error): k.cu:3: expected a ";"`, for places with
    little room. Any other message stays.
    """
    return re.sub(r"^\S.* does not compile \(\d+ errors?\): ", "", message)


def _outcome(finished: c.Finished, kernel: str, *, compiled_only: bool) -> str:
    if finished.outcome != "ok":
        message = first_error(finished.failure.message) if finished.failure else ""
        return (
            f"{finished.outcome}: {message}" if message and message != finished.outcome else finished.outcome
        )
    if finished.judged and (policy := finished.judged.policy):
        return f"right, no score by the policy {policy.name}: {policy.why}"
    if compiled_only:
        return _compiled(finished.resources)
    if "compute-sanitizer" in finished.toolchain:
        return _checked(finished)
    if finished.profiles:
        return _profiled(finished, kernel)
    names = _names(finished.launches, kernel)
    times = [f"{names[launch.name]}{units.median(launch.timing)}" for launch in finished.launches]
    more = f" and {len(times) - 4} more" if len(times) > 4 else ""
    # none may have been made, or the recorder was not to be had: a remark says which
    return (", ".join(times[:4]) + more or "ran, no kernel launch was recorded") + _points(finished.points)


def _checked(finished: c.Finished) -> str:
    """Return `no fault of memory found, 1 warning`. A kernel that never ran was not checked."""
    if unchecked := next((problem for problem in finished.problems if problem.code == c.NOT_LAUNCHED), None):
        return unchecked.message
    counts = {
        name: sum(problem.severity == severity for problem in finished.problems)
        for name, severity in (("warning", "warning"), ("remark", "information"))
    }
    more = "".join(f", {count} {name}{'s' * (count > 1)}" for name, count in counts.items() if count)
    return f"no memory fault was found{more}"


def _profiled(finished: c.Finished, kernel: str) -> str:
    """Return `saxpy 70.3 µs, memory 79% of peak`. Of several launches the longest is taken."""
    first = max(finished.profiles, key=lambda profile: bottleneck.value(profile, bottleneck.TIME) or 0.0)
    name = _names(finished.profiles, kernel)[first.name]
    if first.tier == "times":
        head = f"{name.rstrip()}: " if name else ""
        return f"{head}times only, no counters: {first.why}".rstrip(": ")
    verdict = bottleneck.verdict(first)
    time = bottleneck.value(first, bottleneck.TIME)
    parts = [units.time(time) if time is not None else "profiled", *([verdict.text] if verdict else [])]
    more = f", the longest of {len(finished.profiles)} launches" if len(finished.profiles) > 1 else ""
    return f"{name}{', '.join(parts)}{more}"


def _points(points: tuple[c.Point, ...]) -> str:
    """Return `, the first of 3 sets of values, 8 checks passed` for a launch spec. For a contract, return its other
    versions.
    """
    timed = [point for point in points if not point.case]
    checks = sum(len(point.checks) for point in points)
    calls = [launch for point in timed for launch in point.launches if launch.kernels is not None]
    if calls:
        text = "".join(f", {call.name} {units.median(call.timing)}" for call in calls[1:4])
    else:
        text = f", the first of {len(timed)} sets of values" if len(timed) > 1 else ""
    return text + (f", {checks} check{'s' if checks > 1 else ''} passed" if checks else "")


def _compiled(resources: tuple[c.Resources, ...]) -> str:
    """Return how many kernels were compiled. Each instance of a template counts as a kernel, as for the compiler."""
    count = len({(resource.symbol, *sorted(resource.constants.items())) for resource in resources})
    if not count:
        return "no kernel was compiled"
    architectures = ", ".join(sorted({resource.architecture for resource in resources}))
    return f"{count} kernel{'s' if count > 1 else ''} compiled for {architectures}"


def only_helpers(finished: c.Finished, kernels: Sequence[Kernel]) -> str:
    """Return why a file without a mistake has no figures, if it holds no kernel that could be launched."""
    if finished.resources or not kernels or any(kernel.launchable for kernel in kernels):
        return ""
    names = ", ".join(dict.fromkeys(kernel.name for kernel in kernels))
    return f"only helper functions, which are compiled with the kernels that call them: {names}"


def problem_lines(problem: c.Problem, path: str = "") -> list[str]:
    """Return `file:line:column: error: … [nvcc #20]` and its notes, indented. `path` is the file of a problem without
    a place.
    """
    place = problem.place
    where = place.file if place and not path else path
    where += f":{place.line}" if place else ""
    where += f":{place.column}" if place and place.column else ""
    code = f" {problem.code}" if problem.code else ""
    shown = [f"{where}{': ' if where else ''}{problem.severity}: {problem.message} [{problem.tool}{code}]"]
    for note in problem.notes:
        at = f"{note.place.file}:{note.place.line}: " if note.place else ""
        shown.append(f"    {at}{note.message}")
    return shown
