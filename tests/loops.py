"""Loops without a GPU: a kernel file, a worker and a reviewer that are shell scripts, and a meter that knows the answers.

The scripts stand in for agents, the meter for the queue's comparisons: a text with FAST takes 7 % less time, with SLOW 7 % more, with
NOISE as much, and BUG does not compile. Everything that is begun is written to `began`, a line each.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import traceback
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from orbit_lsp.agents.loop import judge
from orbit_lsp.agents.loop.coordinator import Loop, LoopLimits, LoopSetup
from orbit_lsp.agents.loop.journal import Journal
from orbit_lsp.agents.loop.judge import LoopTarget, Measured
from orbit_lsp.agents.loop.parties import CommandParty, LoopParty
from orbit_lsp.agents.loop.records import Iteration, LoopSummary, Role, WorkerResult
from orbit_lsp.agents.loop.subject import LoopSubject
from orbit_remote.common import measure
from tests.remote.test_measure_versions import NOISE, ORDERED, runs

SPEC = """\
// orbit: n = 1 << 20; x = randn(n); y = empty(n)
// orbit: launch copy<<<n / 256, 256>>>(x, y)
// orbit: expect y == x
"""
KERNEL = "__global__ void copy(const float* x, float* y) { int i = blockIdx.x * 256 + threadIdx.x; y[i] = x[i]; }\n"
COPY = SPEC + KERNEL
RESULT = '{"iteration": %s, "kernel_path": "k.cu", "tests_passed": true, "benchmark_passed": true, "decision": "KEEP"%s}'
VERDICT = '{"iteration": %s, "verdict": "%s", "confidence": "high", "reason": "r"%s}'
_RUNS = (1.001, 0.999, 1.0, 1.002, 0.998, 1.0)


class Meter:
    def __init__(self, began: Path, bug: str = "compile error", remedy: str = "") -> None:
        self._began, self._bug, self._remedy = began, bug, remedy

    async def run(self, key: str, text: str) -> Measured:
        self._note("run", key)
        if "BUG" in text:
            return Measured("compile error", "does not compile")
        return Measured("ok", now_runs=(100_000.0,))

    async def compare(self, key: str, best: str, text: str) -> Measured:
        self._note("compare", key)
        if "BUG" in text:
            return Measured(self._bug, "now: does not compile", self._remedy)  # type: ignore[arg-type]
        then, now = _time(best), _time(text)
        verdict = "faster" if now < then else "slower" if now > then else "inconclusive"
        return Measured(
            "ok", job="j", verdict=verdict, ratio=now / then, low=now / then - 0.001, high=now / then + 0.001, pairs=6,
            then_runs=tuple(then * part for part in _RUNS), now_runs=tuple(now * part for part in _RUNS),
        )  # fmt: skip

    def _note(self, what: str, key: str) -> None:
        with self._began.open("a") as file:
            file.write(f"{what} {key.rpartition('/')[2]}\n")


def _time(text: str) -> float:
    return 100_000.0 * 0.93 ** text.count("FAST") * 1.07 ** text.count("SLOW")


class Lines:
    def __init__(self) -> None:
        self.lines: list[str] = []

    def stage(self, iteration: int, text: str) -> None:
        self.lines.append(f"{iteration}: {text}")

    def ended(self, rows: Sequence[Iteration], start_ns: float | None) -> None:
        self.lines.append(f"{rows[-1].iteration}: {rows[-1].decision} {rows[-1].outcome}")


class Bench:
    """A folder with `k.cu` and its loop. `edits` are what the worker appends in each iteration, then nothing."""

    def __init__(self, folder: Path, *, text: str = COPY, subject: LoopSubject | None = None) -> None:
        self.folder, self.kernel = folder, folder / "k.cu"
        self.state, self.began = folder / "state", folder / "began"
        self.kernel.write_text(text)
        self.began.touch()
        self.meter = Meter(self.began)
        self.limits = LoopLimits(iterations=2)
        self.target = LoopTarget("time_us")
        self.subject = subject or LoopSubject(self.kernel, "copy", checked=True)
        self.parties: dict[Role, LoopParty] = {}
        self.lines = Lines()
        self.harness: dict[str, str] = {}

    @classmethod
    def ready(cls, folder: Path) -> Bench:
        """With a worker that makes it faster once, and a reviewer."""
        bench = cls(folder)
        bench.worker("FAST", "NOISE")
        bench.reviewer()
        return bench

    def worker(self, *edits: str, result: str = RESULT, more: str = "") -> None:
        """A script that appends the edit of its iteration to the kernel file, and writes its result."""
        cases = "".join(f"{number}) echo '// {edit}' >> k.cu;;\n" for number, edit in enumerate(edits, 1))
        text = result % ("'$1'", more)
        self.party("worker", f"case $1 in {cases}esac\necho '{text}' > $2.part; mv $2.part $2")

    def reviewer(self, verdict: str = "CONTINUE", more: str = "") -> None:
        text = VERDICT % ("'$1'", verdict, more)
        self.party("reviewer", f"echo '{text}' > $2.part; mv $2.part $2")

    def party(self, role: Role, script: str) -> None:
        path = self.folder / f"{role}.sh"
        path.write_text(f"echo {role} $1 >> {self.began}\n{script}\n")
        words = ["/bin/sh", str(path), "{iteration}", "{result}"]
        self.parties[role] = CommandParty(role, words, self.state, "mark")

    def setup(self) -> LoopSetup:
        async def harness(start: str, text: str) -> dict[str, str]:
            return dict(self.harness)

        return LoopSetup(
            self.subject, self.meter, self.parties, self.target, self.limits, harness, self.lines, "command", "raise --budget",
        )  # fmt: skip

    def run(self) -> LoopSummary:
        journal = Journal(self.state)
        try:
            return asyncio.run(Loop(journal, "id", self.setup()).run())
        finally:
            journal.close()

    def rows(self) -> list[Iteration]:
        journal = Journal(self.state)
        try:
            # when it was decided is another time each time
            return [replace(row, at=0.0) for row in Loop(journal, "id", self.setup()).rows()]
        finally:
            journal.close()

    def outcomes(self) -> list[str]:
        return [f"{row.decision} {row.outcome}" for row in self.rows()]


def in_child(work: Callable[[], object]) -> int:
    """Do it in a forked process: minus the signal that ended it, else its exit code."""
    pid = os.fork()
    if not pid:
        code = 1
        try:
            work()
            code = 0
        except BaseException:  # noqa: BLE001 - it must not return into pytest
            traceback.print_exc()
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def killed_at(
    loop: Callable[[], object], wanted: Callable[[str, str, int, int], bool], *, after: bool
) -> int:
    """Run a loop in a child that kills itself before or after the first line of the journal that is `wanted`, by step,
    state, iteration, and the number of lines that this process has written.
    """

    def work() -> None:
        write, count = Journal.write, 0

        def fatal(self: Journal, step: str, state: str, iteration: int = 0, data: object = None) -> None:
            nonlocal count
            count += 1
            this = wanted(step, state, iteration, count)
            if this and not after:
                os.kill(os.getpid(), signal.SIGKILL)
            write(self, step, state, iteration, data)  # type: ignore[arg-type]
            if this:
                os.kill(os.getpid(), signal.SIGKILL)

        Journal.write = fatal  # type: ignore[method-assign]
        loop()

    return in_child(work)


def decided(rng: random.Random, deviation: float, effect: float) -> Iteration:
    """What the loop decides of a change with a known effect, by a worker that measured it honestly, once, at another time.
    The noise is that of tests/remote/test_measure_versions.py: measured deviations, a wandering clock, slow runs.
    """
    machine, start = runs(rng, deviation), 300_000.0
    claim = start * (1 - effect) * next(runs(rng, deviation))
    then: list[float] = []
    now: list[float] = []
    while (verdict := measure.settled(then, now) if then else None) is None:
        then.append(start * next(machine))
        now.append(start * (1 - effect) * next(machine))
    measured = Measured(
        "ok", verdict=verdict.verdict, ratio=verdict.ratio, low=verdict.low, high=verdict.high, pairs=verdict.pairs,
        then_runs=tuple(then), now_runs=tuple(now),
    )  # fmt: skip
    result = WorkerResult(1, "k.cu", True, True, "KEEP", "time_ns", claim)
    return judge.judged(1, result, measured, None, changed=True)


__all__ = ["NOISE", "ORDERED", "decided"]
