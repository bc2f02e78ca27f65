"""A job and its result as the structured content of an answer to a coding agent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from orbit_lsp.profile import bottleneck
from orbit_lsp.queue import job_store, result_text
from orbit_lsp.queue.job_store import Result, StoredJob
from orbit_remote.common.lazy_dataclass import dataclass

# the SDK makes its schemas from classes without slots


@dataclass(frozen=True)
class AnswerNumber:
    """One measured or compiled number; `source` says where it comes from."""

    kernel: str
    what: str
    value: float
    unit: str
    source: str


@dataclass(frozen=True)
class AnswerProblem:
    severity: str
    file: str | None
    line: int | None
    column: int | None
    message: str
    tool: str


@dataclass(frozen=True)
class AnswerCodeLine:
    """Consecutive instructions, and the line of the source that they come from. `line` is null if none is known.
    `inner` names the lines that were inlined there.
    """

    file: str
    line: int | None
    inner: str
    source: str
    code: tuple[str, ...]


@dataclass(frozen=True)
class AnswerCode:
    """What the compiler made of one instance of a kernel, or the beginning of it. `length` is that of the whole:
    instructions of SASS, lines of another level.
    """

    kernel: str
    level: str
    architecture: str
    length: int
    lines: tuple[AnswerCodeLine, ...]


@dataclass(frozen=True)
class JobAnswer:
    """A job as it is now. `outcome` is null until it has ended. Then it is ok, compile error, runtime error, wrong
    answer, timed out, infrastructure or cancelled. `position` counts the jobs before it while it waits. `usd` is null
    if nothing was rented, or its price is not known. `grade` says how far its measurements can be trusted, author or
    referee. It is null until the job has ended. `score` is the time of a judged ModelNew in milliseconds. It is null
    if a `policy` forbids a score to a right answer. `waited_s` is how long the job waited until it began. While it
    waits, `predicted_wait_s` is how long it still will. `code` is that of `disassemble`: as much as the text shows.
    The resource code has all of it.
    """

    job: str
    state: str
    outcome: str | None
    summary: str
    action: str
    file: str
    kernel: str | None
    place: str
    position: int | None
    failure: str
    remedy: str
    problems: tuple[AnswerProblem, ...]
    numbers: tuple[AnswerNumber, ...]
    verdict: str
    grade: str | None
    grade_why: str
    score: float | None
    policy: str | None
    usd: float | None
    resources: tuple[str, ...]
    waited_s: float | None
    predicted_wait_s: float | None
    code: tuple[AnswerCode, ...] = ()


def of_job(
    job: StoredJob,
    position: int | None,
    result: Result | None,
    code: Sequence[job_store.Code] = (),
    predicted_wait_s: float | None = None,
) -> JobAnswer:
    """Make the answer for a job. `code` is the part of the result's code to show."""
    finished = result.finished if result else None
    failure = finished.failure if finished else None
    problems = tuple(
        AnswerProblem(
            problem.severity,
            problem.place.file if problem.place else None,
            problem.place.line if problem.place else None,
            problem.place.column if problem.place else None,
            problem.message,
            problem.tool,
        )
        for problem in (result.problems if result else ())
    )
    resources = [f"orbit://job/{job.id}/{what}" for what in ("text", "log", "record")] if result else []
    resources += [f"orbit://job/{job.id}/code"] if result and result.code else []
    resources += [f"orbit://report/{job.id}"] if result and result.report else []
    grade: dict[str, Any] = (
        result_text.graded(finished)
        if finished
        else {"grade": None, "grade_why": "there is no result", **result_text.scored(None)}
    )
    return JobAnswer(
        job.id, job.state, job.outcome, job.summary, job.action, job.file, job.kernel, job.slot, position,
        failure.message if failure else "", failure.remedy if failure else "", problems,
        _numbers(result) if result else (), _verdict(result) if result else "",
        grade["grade"], grade["grade_why"], grade["score"], grade["policy"],
        finished.cost.usd if finished and finished.cost else None, tuple(resources), job.waited_s, predicted_wait_s, tuple(map(_code, code)),
    )  # fmt: skip


def _code(code: job_store.Code) -> AnswerCode:
    lines = tuple(
        AnswerCodeLine(line.file, line.line, line.inner, line.source, line.code) for line in code.lines
    )
    return AnswerCode(code.kernel, code.level, code.architecture, code.length, lines)


def _numbers(result: Result) -> tuple[AnswerNumber, ...]:
    """Return the numbers of launches and of the compiler, in the order in which they were made."""
    numbers: list[AnswerNumber] = []
    for launch in result.finished.launches:
        timing = launch.timing
        if timing.under is not None:
            numbers.append(
                AnswerNumber(
                    launch.name, f"time, less than ({timing.label})", timing.under, "ns", timing.clock
                )
            )
            continue
        numbers.append(
            AnswerNumber(launch.name, f"time, median ({timing.label})", timing.median, "ns", timing.clock)
        )
        if timing.spread is not None:
            numbers.append(
                AnswerNumber(launch.name, "spread of the time", 100 * timing.spread, "%", timing.clock)
            )
        if launch.warm:
            numbers.append(
                AnswerNumber(
                    launch.name,
                    f"time, median ({launch.warm.label})",
                    launch.warm.median,
                    "ns",
                    launch.warm.clock,
                )
            )
        if launch.registers is not None:
            numbers.append(AnswerNumber(launch.name, "registers per thread", launch.registers, "", "CUPTI"))
    for made in result.finished.resources:
        for what, value, unit in (
            ("registers per thread", made.registers, ""),
            ("static shared memory", made.static_shared, "byte"),
            ("spill stores", made.spill_stores, "byte"),
            ("spill loads", made.spill_loads, "byte"),
        ):
            if value is not None:
                numbers.append(AnswerNumber(made.name, f"{what}, {made.architecture}", value, unit, "ptxas"))
    for profile in result.finished.profiles:
        numbers += [
            AnswerNumber(profile.name, metric.name, metric.value, metric.unit, profile.source)
            for metric in (profile.metrics[name] for name in sorted(profile.metrics))
            if metric.name in _SHOWN
        ]
    return tuple(numbers)


_SHOWN = frozenset(
    {
        "gpu__time_duration.sum",
        "dram__throughput.avg.pct_of_peak_sustained_elapsed",
        "sm__throughput.avg.pct_of_peak_sustained_elapsed",
        "sm__warps_active.avg.pct_of_peak_sustained_active",
        "launch__registers_per_thread",
    }
)
"""Counters that are in an answer; the others are in the record."""


def _verdict(result: Result) -> str:
    if sentence := result.versus.get("sentence"):
        return str(sentence)
    profiles = result.finished.profiles
    first = max(profiles, key=lambda profile: bottleneck.value(profile, bottleneck.TIME) or 0.0, default=None)
    verdict = bottleneck.verdict(first) if first and first.tier == "counters" else None
    return verdict.text if verdict else ""
