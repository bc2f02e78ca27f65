"""The coordinator of a loop. It does step after step, each in the journal, until a limit or the target is reached."""

from __future__ import annotations

import asyncio
import difflib
import hashlib
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Protocol

from orbit_lsp.agents.loop import history, judge, prompts, records, subject
from orbit_lsp.agents.loop.journal import Journal, JournalError
from orbit_lsp.agents.loop.judge import LoopTarget, Measured, Meter
from orbit_lsp.agents.loop.parties import Ask, LoopParty
from orbit_lsp.agents.loop.records import (
    Iteration,
    LoopSummary,
    ReviewerVerdict,
    Role,
    UnusableAnswerError,
    WorkerResult,
)
from orbit_lsp.agents.loop.subject import LoopSubject
from orbit_remote.common import codec, regular_files
from orbit_remote.common import limits as file_limits
from orbit_remote.common import messages as c
from orbit_remote.common.lazy_dataclass import dataclass

_BEAT_S = 10.0
Work = Callable[[bool], Awaitable[dict[str, Any]]]


@dataclass(frozen=True, slots=True)
class LoopLimits:
    """Limits of a loop. `no_progress` and `failures` count iterations in a row. `wait_minutes` limits one answer of
    the worker or the reviewer.
    """

    iterations: int = 40
    minutes: float = 360.0
    no_progress: int = 6
    failures: int = 3
    wait_minutes: float = 60.0


class LoopWatcher(Protocol):
    def stage(self, iteration: int, text: str) -> None: ...
    def ended(self, rows: Sequence[Iteration], start_ns: float | None) -> None: ...


class LoopError(Exception):
    """The loop cannot begin. `outcome` is that of the first measurement."""

    def __init__(self, outcome: c.Outcome, text: str, remedy: str = "") -> None:
        super().__init__(text)
        self.outcome: c.Outcome = outcome
        self.remedy = remedy


@dataclass(frozen=True, slots=True)
class LoopSetup:
    """The parts of a loop. `harness` hashes everything else that a measurement depends on, from the text at the start
    and the measured text. `remedy` is how a job says that the budget has no money for it. `simulated` is a dry run,
    which changes and measures nothing.
    """

    subject: LoopSubject
    meter: Meter
    parties: Mapping[Role, LoopParty]
    target: LoopTarget
    limits: LoopLimits
    harness: Callable[[str, str], Awaitable[dict[str, str]]]
    watcher: LoopWatcher
    mode: str
    remedy: str = ""
    simulated: bool = False


class Loop:
    def __init__(self, journal: Journal, loop_id: str, setup: LoopSetup) -> None:
        self._journal, self._id, self._setup = journal, loop_id, setup
        self._subject, self._limits = setup.subject, setup.limits
        self._now = "begin"

    async def run(self) -> LoopSummary:
        """Run the loop until it ends. Raises LoopError, JournalError and OSError."""
        self._journal.write("session", "begin")
        (self._journal.folder / "stop").unlink(missing_ok=True)
        beating = asyncio.create_task(self._beat())
        try:
            await self._step("start", 0, self._start)
            while True:
                number = 1 + len(self._journal.ends("record"))
                # what has begun is ended first: a change that was kept is put there before any limit counts it
                if not self._journal.has_begun("open", number) and (why := self._stop()):
                    return await self._end(*why)
                await self._iterate(number)
        finally:
            beating.cancel()
            with suppress(asyncio.CancelledError):
                await beating

    # -- what the journal says ----------------------------------------------------------------

    def rows(self) -> list[Iteration]:
        """Return the iterations so far. Raises JournalError if another version has written them."""
        try:
            return [
                codec.build(Iteration, entry.data, lenient=True) for entry in self._journal.ends("decide")
            ]
        except ValueError as error:
            raise JournalError(
                f"the journal of {self._journal.folder} cannot be used ({error}); begin with --fresh-start"
            ) from None

    def _recent(self) -> list[Iteration]:
        """Return the iterations since the last stop: whoever starts a loop again has looked at what stopped it."""
        stops = [entry.iteration for entry in self._journal.ends("stop")]
        return [row for row in self.rows() if row.iteration > max(stops, default=0)]

    @property
    def _start_ns(self) -> float | None:
        data = self._journal.ended("start")
        return judge.measured_of(data["measured"]).now_ns if data else None

    def _stop(self) -> tuple[str, str] | None:
        """Return what stops the loop, in a sentence. Return None to go on."""
        rows, recent, limits = self.rows(), self._recent(), self._limits
        best = history.best_ns(rows, self._start_ns)
        target, last = self._setup.target, recent[-1] if recent else None
        if target.reached(best):
            return "target reached", f"{target.metric} is {target.text(best)}, at most {target.threshold:g}"
        if (self._journal.folder / "stop").exists():
            return "stopped", "the file `stop` was put into the loop's folder"
        if len(rows) >= limits.iterations:
            return "iterations", f"the limit of {limits.iterations} iterations (--max-iterations)"
        if self._journal.active_s() >= 60 * limits.minutes:
            return "minutes", f"the limit of {limits.minutes:g} minutes (--max-wall-clock-minutes)"
        failures = _trailing(recent, "infrastructure failure")
        if last and self._setup.remedy and self._setup.remedy in last.reason:
            return "budget", last.reason
        if failures >= limits.failures:
            return (
                "infrastructure",
                f"{failures} infrastructure failures in a row, the last: {recent[-1].reason}",
            )
        if (without := _without_progress(recent)) >= limits.no_progress:
            return (
                "no progress",
                f"{without} iterations in a row without a change that was kept (--no-progress-limit)",
            )
        if last and last.verdict in ("STOP_NO_PROGRESS", "STOP_BLOCKED"):
            return "reviewer", f"the reviewer's verdict is {last.verdict}"
        if last and last.verdict == "STOP_TARGET_REACHED" and target.threshold is None:
            return (
                "reviewer",
                "the reviewer's verdict is STOP_TARGET_REACHED, and the loop has no threshold of its own",
            )
        return None

    # -- steps --------------------------------------------------------------------------------

    async def _step(self, name: str, iteration: int, work: Work) -> dict[str, Any]:
        """Return the result of a step: from the journal, else by doing it. `work` learns whether it had begun before."""
        known = self._journal.ended(name, iteration)
        if known is not None:
            return known
        again = self._journal.has_begun(name, iteration)
        self._now = name
        if not again:
            self._journal.write(name, "begin", iteration)
        data = await work(again)
        self._journal.write(name, "end", iteration, data)
        return data

    async def _start(self, _again: bool) -> dict[str, Any]:
        """Measure the kernel as it is. If it fails, the loop does not begin until the file is fixed."""
        content = await asyncio.to_thread(self._subject.content)
        name, text = await asyncio.to_thread(self._copy, content), subject.text_of(content)
        self._setup.watcher.stage(0, "measuring the kernel as it is")
        measured = await self._setup.meter.run(f"{self._id}/start-{name[:12]}", text)
        if measured.outcome != "ok":
            raise LoopError(measured.outcome, measured.message, measured.remedy)
        return {"text": name, "harness": await self._setup.harness(text, text), "measured": asdict(measured)}

    async def _iterate(self, number: int) -> None:
        folder = self._journal.folder / f"iter_{number:04d}"
        await self._step("open", number, lambda _: self._open(number, folder))
        work = await self._step(
            "work", number, lambda again: self._ask("worker", number, folder, again=again)
        )
        take = await self._step("take", number, lambda _: self._take(folder, work))
        measure = await self._step("measure", number, lambda _: self._measure(number, work, take))
        row = self._row(number, work, take, measure, {})
        review: dict[str, Any] = {}
        if "reviewer" in self._setup.parties and row.outcome not in (
            "evidence error",
            "infrastructure failure",
        ):
            await self._step("show", number, lambda _: self._show(number, folder, row))
            review = await self._step(
                "review", number, lambda again: self._ask("reviewer", number, folder, again=again)
            )
        decided = await self._step(
            "decide", number, lambda _: self._decide(self._row(number, work, take, measure, review))
        )
        await self._step("apply", number, lambda _: self._apply(decided, take))
        await self._step("record", number, lambda _: self._record())
        self._setup.watcher.ended(self.rows(), self._start_ns)

    async def _open(self, number: int, folder: Path) -> dict[str, Any]:
        text = prompts.worker(self._subject, folder, number, self._setup.target, self.rows(), self._start_ns)
        await asyncio.to_thread(
            regular_files.replace, folder / "worker_prompt.txt", text.encode("utf-8", "backslashreplace")
        )
        return {}

    async def _ask(self, role: Role, number: int, folder: Path, *, again: bool) -> dict[str, Any]:
        """Return what a worker or a reviewer answers, or its fault."""
        left_s = 60 * self._limits.minutes - self._journal.active_s()
        limit_s = max(0.0, min(60 * self._limits.wait_minutes, left_s))
        ask = Ask(role, number, folder, self._subject.path, folder / f"{role}_prompt.txt", limit_s, again)
        self._setup.watcher.stage(number, f"the {role} is at work; it writes {folder / records.FILES[role]}")
        try:
            answer = await self._setup.parties[role].answer(ask)
            if isinstance(answer, WorkerResult):
                records.check(answer, folder, self._subject.path, self._setup.target.metric)
        except UnusableAnswerError as fault:
            return {"fault": fault.fault, "text": str(fault)}
        return {"answer": asdict(answer)}

    async def _take(self, folder: Path, work: dict[str, Any]) -> dict[str, Any]:
        """Take a copy of the kernel file as the worker left it, and say whether the harness is unchanged."""
        if "fault" in work:
            return {}
        try:
            content = await asyncio.to_thread(self._subject.content)
        except OSError as error:
            return {"fault": "evidence error", "text": f"the kernel file cannot be read: {error.strerror}"}
        best = self._best()
        text = await asyncio.to_thread(self._copy, content)
        await asyncio.to_thread(self._patch, folder, self._content(best), content)
        if fault := await self._harness_fault(subject.text_of(content)):
            return {"text": text, **fault}
        return {"text": text, "changed": text != best or self._setup.simulated}

    async def _measure(self, number: int, work: dict[str, Any], take: dict[str, Any]) -> dict[str, Any]:
        if "fault" in work or "fault" in take or not take["changed"] or work["answer"]["decision"] != "KEEP":
            return {}
        self._setup.watcher.stage(number, "measuring the change against the best so far, in turn")
        best, now = (subject.text_of(self._content(name)) for name in (self._best(), take["text"]))
        measured = await self._setup.meter.compare(f"{self._id}/{number}", best, now)
        return {"measured": asdict(measured), **await self._harness_fault(now)}

    async def _harness_fault(self, text: str) -> dict[str, Any]:
        start = self._journal.ended("start")
        assert start
        first = subject.text_of(self._content(start["text"]))
        changed = subject.changed(start["harness"], await self._setup.harness(first, text))
        why = f"only the kernel file may change, and {changed}; put it back as it was" if changed else ""
        return {"fault": "evidence error", "text": why} if changed else {}

    async def _show(self, number: int, folder: Path, row: Iteration) -> dict[str, Any]:
        """Write what the reviewer looks at."""
        text = prompts.reviewer(self._subject, folder, number, self._setup.target, row)
        for name, content in (
            ("measurement.json", records.dumps(asdict(row))),
            ("reviewer_prompt.txt", text.encode("utf-8", "backslashreplace")),
        ):
            await asyncio.to_thread(regular_files.replace, folder / name, content)
        return {}

    def _row(
        self,
        number: int,
        work: dict[str, Any],
        take: dict[str, Any],
        measure: dict[str, Any],
        review: dict[str, Any],
    ) -> Iteration:
        result = WorkerResult(**work["answer"]) if "answer" in work else None
        summary = result.summary if result else ""
        text = take.get("text", "")
        fault = next((data for data in (work, take, measure) if "fault" in data), None)
        if fault:
            row = judge.failed(number, fault["fault"], fault["text"], summary)
        else:
            assert result
            measured: Measured | None = judge.measured_of(measure["measured"]) if measure else None
            verdict = ReviewerVerdict(**review["answer"]) if "answer" in review else None
            row = judge.judged(number, result, measured, verdict, changed=take["changed"])
        if "fault" in review:  # a change without a review is reverted
            row = replace(row, decision="REVERT", outcome=review["fault"], reason=review["text"])
        return replace(row, text=text, simulated=self._setup.simulated)

    async def _decide(self, row: Iteration) -> dict[str, Any]:
        return asdict(replace(row, at=self._journal.entries[-1].at))

    async def _apply(self, decided: dict[str, Any], take: dict[str, Any]) -> dict[str, Any]:
        """Keep or revert: write the kernel file from our own copies, and nothing else."""
        name = take["text"] if decided["decision"] == "KEEP" else self._best()
        if not self._setup.simulated:
            await asyncio.to_thread(self._subject.put, self._content(name))
        return {"best": name}

    async def _record(self) -> dict[str, Any]:
        folder, name = self._journal.folder, self._subject.name
        await asyncio.to_thread(history.write, folder, name, self.rows(), self._start_ns)
        await asyncio.to_thread(
            regular_files.replace, folder / "best" / self._subject.path.name, self._content(self._best())
        )
        return {}

    async def _end(self, stopped: str, reason: str) -> LoopSummary:
        rows = self.rows()
        number = len(rows)
        whole = Measured("ok")
        if (
            any(row.decision == "KEEP" for row in rows)
            and not self._setup.simulated
            and stopped not in ("budget", "infrastructure")
        ):
            self._setup.watcher.stage(number, "measuring the best version against the start, in turn")
            whole = judge.measured_of(await self._step("whole", number, self._whole))
        start = self._journal.ended("start")
        assert start
        spent = (start["measured"]["usd"], whole.usd, *(row.usd for row in rows))
        costs = [usd for usd in spent if usd is not None]
        summary = LoopSummary(
            self._subject.name, str(self._journal.folder), self._setup.mode, stopped, reason, number,
            sum(row.decision == "KEEP" for row in rows), self._start_ns, history.best_ns(rows, self._start_ns),
            whole.ratio, whole.low, whole.high, sum(costs) if costs else None, self._setup.simulated,
            dict(Counter(row.outcome for row in rows)),
        )  # fmt: skip
        regular_files.replace(self._journal.folder / "summary.json", records.dumps(asdict(summary)))
        self._journal.write("stop", "end", number, {"stopped": stopped, "reason": reason})
        return summary

    async def _whole(self, _again: bool) -> dict[str, Any]:
        start = self._journal.ended("start")
        assert start
        first, best = (subject.text_of(self._content(name)) for name in (start["text"], self._best()))
        return asdict(await self._setup.meter.compare(f"{self._id}/whole-{len(self.rows())}", first, best))

    # -- copies -------------------------------------------------------------------------------

    def _best(self) -> str:
        """Return the name of the copy of the best version so far."""
        applied = self._journal.ends("apply")
        if applied:
            return str(applied[-1].data["best"])
        start = self._journal.ended("start")
        assert start
        return str(start["text"])

    def _path(self, name: str) -> Path:
        return self._journal.folder / "copies" / f"{name}{self._subject.path.suffix}"

    def _copy(self, content: bytes) -> str:
        """Keep a content of the kernel file under its hash."""
        name = hashlib.sha256(content).hexdigest()
        regular_files.replace(self._path(name), content)
        return name

    def _content(self, name: str) -> bytes:
        """Return a copy of ours. Raises JournalError if somebody has changed it."""
        try:
            content = regular_files.read(self._path(name), file_limits.SOURCE)
        except OSError as error:
            raise JournalError(
                f"the loop's copy {self._path(name)} cannot be read: {error.strerror}; begin with --fresh-start"
            ) from None
        if hashlib.sha256(content).hexdigest() != name:
            raise JournalError(f"the loop's copy {self._path(name)} was changed; begin with --fresh-start")
        return content

    def _patch(self, folder: Path, before: bytes, now: bytes) -> None:
        """Write what the worker changed, for people and the reviewer."""
        then, since = (subject.text_of(content).splitlines(keepends=True) for content in (before, now))
        name = self._subject.path.name
        text = "".join(difflib.unified_diff(then, since, f"best/{name}", f"now/{name}"))
        regular_files.replace(folder / "change.patch", text.encode("utf-8", "backslashreplace"))

    # -- heartbeat ----------------------------------------------------------------------------

    async def _beat(self) -> None:
        while True:
            rows = self.rows()
            values = {
                "iteration": 1 + len(self._journal.ends("record")), "step": self._now, "best_ns": history.best_ns(rows, self._start_ns),
                "no_progress": _without_progress(self._recent()), "failures": _trailing(self._recent(), "infrastructure failure"),
            }  # fmt: skip
            with suppress(OSError):
                await asyncio.to_thread(self._journal.beat, values)
            await asyncio.sleep(_BEAT_S)


def _trailing(rows: Sequence[Iteration], outcome: str) -> int:
    return next((at for at, row in enumerate(reversed(rows)) if row.outcome != outcome), len(rows))


def _without_progress(rows: Sequence[Iteration]) -> int:
    """Count the iterations since the last one that was kept. Failures of the machine are no attempts."""
    tried = [row for row in rows if row.outcome != "infrastructure failure"]
    return next((at for at, row in enumerate(reversed(tried)) if row.decision == "KEEP"), len(tried))
