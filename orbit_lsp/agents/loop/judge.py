"""Decides about a change. The engine of `orbit-lsp compare` measures it in turn with the best so far.

A change is kept only if that comparison's verdict is *faster*: seven of seven pairs of runs, or eleven of twelve, and
at least 0.5 % less time. Between equal versions that happens in at most 1 % of comparisons, whatever the noise. (That
is half of the 1.9 % of `measure.settled`, which errs to both sides alike.) So *inconclusive* is a REVERT: a change
that looks like noise is not worth its text. docs/dev/results/decisions.md has the simulation.
"""

from __future__ import annotations

import functools
import json
from dataclasses import replace
from typing import Any, Literal, Protocol

from orbit_lsp.agents.loop import records
from orbit_lsp.agents.loop.records import Iteration, ReviewerVerdict, WorkerResult
from orbit_lsp.queue import result_text
from orbit_lsp.queue.job_queue import JobQueue
from orbit_lsp.queue.job_store import Result, StoreError
from orbit_lsp.queue.request import Request, RequestRefusedError
from orbit_lsp.state import units
from orbit_remote.common import codec, measure
from orbit_remote.common import messages as c
from orbit_remote.common.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Measured:
    """The result of a measurement. Times are nanoseconds, one of each run that counts. `then` is the best so far."""

    outcome: c.Outcome
    message: str = ""
    remedy: str = ""
    job: str = ""
    verdict: Literal["faster", "slower", "inconclusive"] | None = None
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    pairs: int = 0
    then_runs: tuple[float, ...] = ()
    now_runs: tuple[float, ...] = ()
    usd: float | None = None

    @property
    def now_ns(self) -> float | None:
        return measure.median(self.now_runs) if self.now_runs else None

    @property
    def then_ns(self) -> float | None:
        return measure.median(self.then_runs) if self.then_runs else None


class Meter(Protocol):
    """Measures texts of the kernel file. The same `key` is not measured twice."""

    async def run(self, key: str, text: str) -> Measured: ...
    async def compare(self, key: str, best: str, text: str) -> Measured: ...


class QueueMeter:
    """Measures by jobs of the queue, like every door: alone on the GPU, within the budget, recorded."""

    def __init__(self, queue: JobQueue, request: Request) -> None:
        """Make a meter. `request` is of the kernel file, with everything that a measurement needs except its text."""
        self._queue, self._request = queue, request

    async def run(self, key: str, text: str) -> Measured:
        result, made = await self._perform(replace(self._request, action="run", key=key, text=text))
        if result is None or made.outcome != "ok":
            return made
        # of a launch spec and of a contract they are all of one round
        total = sum(launch.timing.median for launch in result.finished.launches)
        if not total:
            return replace(made, outcome="runtime error", message=f"{self._request.kernel} was not launched")
        return replace(made, now_runs=(total,))

    async def compare(self, key: str, best: str, text: str) -> Measured:
        path = self._request.path
        request = replace(
            self._request, action="compare", key=key, text=text, against=path, against_text=best
        )
        result, made = await self._perform(request)
        if result is None or made.outcome != "ok":
            # the best version has run before: where it fails now, the machine is at fault
            best_failed = made.message.startswith(f"{request.name}: ")
            return replace(made, outcome="infrastructure") if best_failed else made
        versus = result.versus
        then, now = versus["runs"]
        return replace(
            made, verdict=versus["verdict"], ratio=versus["ratio"], low=versus["low"], high=versus["high"],
            pairs=versus["pairs"], then_runs=tuple(then), now_runs=tuple(now),
        )  # fmt: skip

    async def _perform(self, request: Request) -> tuple[Result | None, Measured]:
        try:
            job = await self._queue.submit(request)
            ended = await self._queue.wait(job.id)
            read = functools.partial(result_text.result_of, self._queue.store)
            result = await self._queue.read(functools.partial(read, ended)) if ended else None
        except RequestRefusedError as why:
            return None, Measured("compile error", str(why))
        except StoreError as error:
            return None, Measured("infrastructure", str(error))
        if result is None:
            return None, Measured("infrastructure", f"the result of job {job.id} cannot be read", job=job.id)
        finished, failure = result.finished, result.finished.failure
        cost = finished.cost.usd if finished.cost else None
        message, remedy = (failure.message, failure.remedy) if failure else ("", "")
        return result, Measured(finished.outcome, message, remedy, job.id, usd=cost)


@dataclass(frozen=True, slots=True)
class LoopTarget:
    """The goal of a loop. The metric's name ends in its unit; the value is what it shall come down to. None: as far
    as possible.
    """

    metric: str
    threshold: float | None = None

    def reached(self, ns: float | None) -> bool:
        unit = records.unit_ns(self.metric)
        return self.threshold is not None and ns is not None and bool(unit) and ns <= self.threshold * unit

    def text(self, ns: float | None) -> str:
        """Return a time in the metric's unit."""
        return "unknown" if ns is None else f"{ns / (records.unit_ns(self.metric) or 1.0):.6g}"


def claim_ns(result: WorkerResult) -> float | None:
    unit = records.unit_ns(result.metric_name)
    return result.metric_value * unit if result.metric_value is not None and unit else None


def claim_fault(claim: float | None, measured: Measured) -> str:
    """Return why a worker's number is no measurement of its text, or "" if it may be one.

    It was measured in a run of its own at another time. Two such runs differ by up to `measure.RUN_TO_RUN`, seen on
    an H100 over hours. If the runs of this comparison lie further apart, that difference is allowed.
    """
    if claim is None or not measured.now_runs or measured.now_ns is None:
        return ""
    ns = measured.now_ns
    spread = max(measure.RUN_TO_RUN, (max(measured.now_runs) - min(measured.now_runs)) / ns)
    apart = claim / ns - 1
    if abs(apart) <= spread:
        return ""
    return (
        f"the worker claims {units.time(claim)}, and the loop measured {units.time(ns)}: {100 * apart:+.1f}%, where runs differ "
        f"by at most {100 * spread:.1f}%"
    )


def judged(
    number: int,
    result: WorkerResult,
    measured: Measured | None,
    verdict: ReviewerVerdict | None,
    *,
    changed: bool,
) -> Iteration:
    """Decide about the change of an iteration whose evidence stands so far."""
    claim = claim_ns(result)
    row = Iteration(
        number,
        "REVERT",
        "withdrawn",
        "the worker withdrew its change",
        summary=result.summary[:400],
        claim_ns=claim,
    )
    if verdict:
        row = replace(row, verdict=verdict.verdict, hint=verdict.next_change_hint[:2000])
    if measured is None:
        if not changed and result.decision == "KEEP":
            return replace(
                row, outcome="unchanged", reason="the kernel file is the best version so far, unchanged"
            )
        return replace(row, reason=_errors(result) or row.reason)
    row = replace(
        row, time_ns=measured.now_ns, best_ns=measured.then_ns, ratio=measured.ratio, low=measured.low, high=measured.high,
        pairs=measured.pairs, usd=measured.usd, job=measured.job,
    )  # fmt: skip
    if measured.outcome != "ok":
        ours = measured.outcome in ("infrastructure", "cancelled")
        text = f"{measured.message} [{measured.outcome}]" + (
            f"; {measured.remedy}" if measured.remedy else ""
        )
        return replace(
            row, outcome="infrastructure failure" if ours else "failed", reason=text.removeprefix("now: ")
        )
    if fault := claim_fault(claim, measured):
        return replace(row, outcome="evidence error", reason=fault)
    assert measured.verdict
    assert measured.ratio is not None
    row = replace(row, outcome=measured.verdict, reason=_sentence(measured))
    if measured.verdict != "faster":
        return row
    if verdict and verdict.requires_revert:
        return replace(
            row,
            outcome="vetoed",
            reason=f"faster, but the reviewer requires a revert: {verdict.reason[:400]}",
        )
    return replace(row, decision="KEEP")


def failed(number: int, fault: records.Fault, reason: str, summary: str = "") -> Iteration:
    return Iteration(number, "REVERT", fault, reason, summary=summary[:400])


def _errors(result: WorkerResult) -> str:
    return f"the worker withdrew its change: {result.errors[0][:400]}" if result.errors else ""


def _sentence(measured: Measured) -> str:
    low, high = (100 * ((bound or measured.ratio or 1.0) - 1) for bound in (measured.low, measured.high))
    change = 100 * ((measured.ratio or 1.0) - 1)
    return f"{change:+.1f}% time against the best so far ({low:+.1f}% to {high:+.1f}%, {measured.pairs} pairs of runs)"


def measured_of(data: dict[str, Any]) -> Measured:
    """Build a measurement from the journal's form."""
    return codec.build(Measured, codec.read_json(json.dumps(data)))
