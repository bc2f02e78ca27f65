"""Who does the work of a loop. In manual mode a worker and a reviewer write their files by themselves. In command
mode the loop starts programs. In a dry run the answers are made up, so that the whole folder can be looked at without
a GPU.
"""

from __future__ import annotations

import asyncio
import random
import re
import shlex
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol

from orbit_lsp.agents.loop import records
from orbit_lsp.agents.loop.judge import Measured
from orbit_lsp.agents.loop.records import FILES, ReviewerVerdict, Role, UnusableAnswerError, WorkerResult
from orbit_lsp.runners import command
from orbit_remote.common import measure, regular_files
from orbit_remote.common.lazy_dataclass import dataclass
from orbit_remote.common.plain_text import visible

CLASSES: dict[Role, type[WorkerResult | ReviewerVerdict]] = {
    "worker": WorkerResult,
    "reviewer": ReviewerVerdict,
}
POLL_S = 0.5
HALF_S = 5.0
"""A file that cannot be read is complete once it has not changed for so long: whoever writes may write in pieces."""
PLACEHOLDERS = ("iteration", "folder", "state", "kernel", "prompt", "result")


@dataclass(frozen=True, slots=True)
class Ask:
    """What is asked of a worker or a reviewer. `again`: it was asked before, by a loop that was killed meanwhile."""

    role: Role
    iteration: int
    folder: Path
    kernel: Path
    prompt: Path
    limit_s: float
    again: bool

    def read(self) -> WorkerResult | ReviewerVerdict:
        """Raises UnusableAnswerError, and FileNotFoundError."""
        return records.read(self.folder, self.role, self.iteration, CLASSES[self.role])


class LoopParty(Protocol):
    async def answer(self, ask: Ask) -> WorkerResult | ReviewerVerdict:
        """Raises UnusableAnswerError."""
        ...


class Manual:
    """Waits for the file of somebody who works beside the loop."""

    async def answer(self, ask: Ask) -> WorkerResult | ReviewerVerdict:
        """Raises UnusableAnswerError."""
        name, deadline = FILES[ask.role], time.monotonic() + ask.limit_s
        seen: tuple[int, int] | None = None
        since = time.monotonic()
        while True:
            status = _status(ask.folder / name)
            now = time.monotonic()
            if status != seen:
                seen, since = status, now
            if seen:
                try:
                    return await asyncio.to_thread(ask.read)
                except FileNotFoundError:
                    pass
                except UnusableAnswerError:
                    if now - since >= HALF_S or now >= deadline:
                        raise
            elif now >= deadline:
                text = f"the {ask.role} has not written {name} within {ask.limit_s / 60:.3g} minutes"
                raise UnusableAnswerError("infrastructure failure", text)
            await asyncio.sleep(POLL_S)


def _status(path: Path) -> tuple[int, int] | None:
    try:
        status = path.lstat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size


class CommandParty:
    """Starts a program from an argument vector with placeholders, without a shell. It is started once for an
    iteration. If the loop was killed meanwhile, an existing answer counts, and a missing one is a failure.
    """

    def __init__(self, role: Role, words: Sequence[str], state: Path, mark: str) -> None:
        self._words, self._state, self._mark = words, state, f"{mark}-{role}"

    async def answer(self, ask: Ask) -> WorkerResult | ReviewerVerdict:
        """Raises UnusableAnswerError."""
        status: int | None = 0
        if ask.again:
            await command.end(self._mark)
        else:
            status = await self._run(ask)
        try:
            return await asyncio.to_thread(ask.read)
        except FileNotFoundError:
            name = FILES[ask.role]
            ended = (
                f"ended with exit code {status}"
                if status is not None
                else f"was ended at the limit of {ask.limit_s / 60:.3g} minutes"
            )
            how = "was cut off when the loop was killed" if ask.again else ended
            raise UnusableAnswerError(
                "infrastructure failure", f"the {ask.role} {how} and has not written {name}"
            ) from None

    async def _run(self, ask: Ask) -> int | None:
        values = {
            "iteration": str(ask.iteration), "folder": str(ask.folder), "state": str(self._state), "kernel": str(ask.kernel),
            "prompt": str(ask.prompt), "result": str(ask.folder / FILES[ask.role]),
        }  # fmt: skip
        words = [re.sub(r"\{(\w+)\}", lambda match: values[match[1]], word) for word in self._words]
        try:
            done = await command.run(words, ask.kernel.parent, ask.limit_s, self._mark)
        except OSError as error:
            text = f"the {ask.role} cannot be started: {words[0]}: {error.strerror}"
            raise UnusableAnswerError("infrastructure failure", visible(text)) from None
        regular_files.replace(ask.folder / f"{ask.role}.log", done.output.encode("utf-8", "backslashreplace"))
        return done.status


def words_of(text: str, option: str) -> list[str]:
    """Return the argument vector of a command. Raises ValueError, with a sentence."""
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise ValueError(f"{option} is not a command line: {error}") from None
    if not words:
        raise ValueError(f"{option} is empty: give a program and its arguments")
    unknown = [name for word in words for name in re.findall(r"\{(\w+)\}", word) if name not in PLACEHOLDERS]
    if unknown:
        have = ", ".join(f"{{{name}}}" for name in PLACEHOLDERS)
        raise ValueError(f"{option} has the unknown placeholder {{{unknown[0]}}}; there are {have}")
    return words


# -- dry-run ----------------------------------------------------------------------------------------

_EFFECTS = (0.03, 0.0, 0.10, 0.0, 0.01)
"""Of the made-up changes, one after the other, as shares of the time; those that follow have none."""
_NOISE = 0.002
_START_NS = 300_000.0


class DryRun:
    """A worker and a reviewer that change nothing, and write what real ones would write."""

    def __init__(self, metric: str) -> None:
        self._metric = metric

    async def answer(self, ask: Ask) -> WorkerResult | ReviewerVerdict:
        value: WorkerResult | ReviewerVerdict
        if ask.role == "worker":
            what = f"made up: a change that takes {_effect(ask.iteration):.0%} of the time away"
            value = WorkerResult(
                ask.iteration, str(ask.kernel), True, True, "KEEP", self._metric, summary=what
            )
        else:
            value = ReviewerVerdict(
                ask.iteration, "CONTINUE", "low", "made up", "made up: try the next change"
            )
        regular_files.replace(ask.folder / FILES[ask.role], records.dumps(_plain(value)))
        return value


class SimulatedMeter:
    """Draws the times of runs, and judges them by the rule of real ones."""

    async def run(self, key: str, text: str) -> Measured:
        del key, text
        return Measured("ok", now_runs=(_START_NS,))

    async def compare(self, key: str, best: str, text: str) -> Measured:
        del best, text
        start_ns = _START_NS
        for iteration in range(1, int(key.rpartition("/")[2])):
            if _drawn(iteration, start_ns).verdict == "faster":
                start_ns *= 1 - _effect(iteration)
        return _drawn(int(key.rpartition("/")[2]), start_ns)


def _effect(iteration: int) -> float:
    return _EFFECTS[iteration - 1] if iteration <= len(_EFFECTS) else 0.0


def _drawn(iteration: int, start_ns: float) -> Measured:
    """Draw a measurement. It is the same each time."""
    return simulated(random.Random(iteration), start_ns, 1 - _effect(iteration), _NOISE)  # noqa: S311 - no secret


def simulated(rng: random.Random, start_ns: float, ratio: float, deviation: float) -> Measured:
    """Compare made-up runs: their noise is normal with this deviation from run to run."""
    then: list[float] = []
    now: list[float] = []
    while True:
        then.append(start_ns * (1 + rng.gauss(0, deviation)))
        now.append(start_ns * ratio * (1 + rng.gauss(0, deviation)))
        if verdict := measure.settled(then, now):
            return Measured(
                "ok", verdict=verdict.verdict, ratio=verdict.ratio, low=verdict.low, high=verdict.high, pairs=verdict.pairs,
                then_runs=tuple(then), now_runs=tuple(now),
            )  # fmt: skip


def _plain(value: WorkerResult | ReviewerVerdict) -> dict[str, Any]:
    return asdict(value)
