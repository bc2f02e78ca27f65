"""What a worker and a reviewer write, and what the loop records of an iteration: published as JSON schemas, and checked."""

from __future__ import annotations

import json
import math
import os
from dataclasses import field
from pathlib import Path
from typing import Literal, TypeVar

from orbit_remote.common import limits, regular_files
from orbit_remote.common.lazy_dataclass import dataclass
from orbit_remote.common.messages import RESULT_VERSION
from orbit_remote.common.plain_text import visible

Decision = Literal["KEEP", "REVERT"]
Fault = Literal["evidence error", "infrastructure failure"]
Outcome = Literal[
    "faster", "slower", "inconclusive", "unchanged", "failed", "withdrawn", "vetoed", "evidence error", "infrastructure failure",
]  # fmt: skip
Verdict = Literal["CONTINUE", "STOP_TARGET_REACHED", "STOP_NO_PROGRESS", "STOP_BLOCKED"]
Role = Literal["worker", "reviewer"]
T = TypeVar("T")

FILES: dict[Role, str] = {"worker": "worker_result.json", "reviewer": "reviewer_verdict.json"}


@dataclass(frozen=True, slots=True)
class WorkerResult:
    """What the worker did in one iteration, as `worker_result.json`.

    `decision` REVERT withdraws the change. `metric_value` is what the worker measured, or null if it measured
    nothing. The loop measures again and compares. `artifacts` are files in the iteration's folder, by their paths
    relative to it.
    """

    iteration: int
    kernel_path: str
    tests_passed: bool
    benchmark_passed: bool
    decision: Decision
    metric_name: str = ""
    metric_value: float | None = None
    artifacts: tuple[str, ...] = ()
    errors: tuple[str, ...] = ()
    summary: str = ""
    version: int = RESULT_VERSION


@dataclass(frozen=True, slots=True)
class ReviewerVerdict:
    """What the reviewer says of one iteration, as `reviewer_verdict.json`. `requires_revert` reverts a change that
    the loop would keep. No field keeps a change that the loop would revert.
    """

    iteration: int
    verdict: Verdict
    confidence: Literal["low", "medium", "high"]
    reason: str
    next_change_hint: str = ""
    requires_revert: bool = False
    version: int = RESULT_VERSION


@dataclass(frozen=True, slots=True)
class Iteration:
    """One iteration, as a line of `history.jsonl`. Times are nanoseconds. `time_ns` is the candidate's time and
    `best_ns` that of the best version so far, both measured in turn. They are null if nothing was measured. `ratio`
    is the first over the second, from `low` to `high` at 95 %. `claim_ns` is the time that the worker claimed. `at`
    is seconds since 1970, `text` the SHA-256 of the candidate.
    """

    iteration: int
    decision: Decision
    outcome: Outcome
    reason: str
    summary: str = ""
    time_ns: float | None = None
    best_ns: float | None = None
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    pairs: int = 0
    claim_ns: float | None = None
    verdict: Verdict | None = None
    hint: str = ""
    usd: float | None = None
    job: str = ""
    text: str = ""
    at: float = 0.0
    simulated: bool = False
    version: int = RESULT_VERSION


@dataclass(frozen=True, slots=True)
class LoopSummary:
    """How a loop ended, as `summary.json` and `--json`. `ratio` is the best version's time over the start's, measured
    in turn at the end, from `low` to `high` at 95 %. It is null if no change was kept, or nothing was measured.
    """

    kernel: str
    folder: str
    mode: str
    stopped: str
    reason: str
    iterations: int = 0
    kept: int = 0
    start_ns: float | None = None
    best_ns: float | None = None
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    usd: float | None = None
    simulated: bool = False
    outcomes: dict[str, int] = field(default_factory=dict[str, int])
    version: int = RESULT_VERSION


class UnusableAnswerError(Exception):
    """A worker or a reviewer wrote something that cannot be used. The text is the sentence to record."""

    def __init__(self, fault: Fault, text: str) -> None:
        super().__init__(text)
        self.fault: Fault = fault


def unit_ns(metric: str) -> float | None:
    """Return the unit that a metric's name ends in, in nanoseconds: 1,000 for `gmean_us`. Return None for another
    name.
    """
    return {"ns": 1.0, "us": 1e3, "ms": 1e6}.get(metric.rpartition("_")[2])


def read(folder: Path, role: Role, iteration: int, cls: type[T]) -> T:
    """Read what `role` has written into the folder of an iteration. Raises UnusableAnswerError, and
    FileNotFoundError.
    """
    from pydantic import TypeAdapter, ValidationError

    name = FILES[role]
    try:
        within = os.open(folder, os.O_RDONLY) if os.name == "posix" else None
        try:
            content = regular_files.read(
                name if within is not None else folder / name, limits.LOOP_ANSWER, within=within
            )
        finally:
            if within is not None:
                os.close(within)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise UnusableAnswerError(
            "infrastructure failure", f"{name} cannot be read: {error.strerror}"
        ) from None
    try:
        value = TypeAdapter(cls).validate_json(content, strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        text = f"{name}: {f'{place}: ' if place else ''}{first['msg']}; `orbit-lsp schema {role}` prints its schema"
        raise UnusableAnswerError("infrastructure failure", visible(text)) from None
    version, given = getattr(value, "version", RESULT_VERSION), getattr(value, "iteration", 0)
    if version != RESULT_VERSION:
        text = f"{name} has schema version {version}, and this orbit-lsp knows {RESULT_VERSION}"
        raise UnusableAnswerError("infrastructure failure", text)
    if given != iteration:
        raise UnusableAnswerError(
            "evidence error",
            f"{name} is of iteration {given}, and stands in the folder of iteration {iteration}",
        )
    return value


def check(result: WorkerResult, folder: Path, kernel: Path, metric: str) -> None:
    """Check the evidence of a worker, as far as files show it. Raises UnusableAnswerError."""
    given = kernel.parent / result.kernel_path
    if kernel not in (_real(given), Path(os.path.normpath(given)), _real(Path(result.kernel_path))):
        _evidence(f"kernel_path is {result.kernel_path!r:.200}, and this loop is about {kernel}")
    for artifact in result.artifacts:
        place = _real(folder / artifact)
        if not place.is_relative_to(_real(folder)):
            other = next(
                (part for part in place.parts if part.startswith("iter_") and part != folder.name), ""
            )
            why = (
                f"lies in {other}, the folder of another iteration"
                if other
                else f"lies outside of {folder.name}"
            )
            _evidence(f"the artifact {artifact!r:.200} {why}")
        if not place.exists():
            _evidence(f"the artifact {artifact!r:.200} does not exist")
    if result.metric_value is not None:
        if not math.isfinite(result.metric_value) or result.metric_value <= 0:
            _evidence(f"metric_value is {result.metric_value:g}, which is not a time")
        if unit_ns(result.metric_name) is None:
            text = f"metric_name is {result.metric_name!r:.60}; the loop measures time, so it ends in _ns, _us or _ms, as in {metric}"
            _evidence(text)
    if result.decision == "KEEP" and not result.tests_passed:
        _evidence("the worker wants to KEEP a change whose tests did not pass")


def _evidence(text: str) -> None:
    raise UnusableAnswerError("evidence error", visible(text))


def _real(path: Path) -> Path:
    try:
        return Path(os.path.realpath(path))
    except ValueError:  # no path of this system
        return Path()


def dumps(value: object) -> bytes:
    return (json.dumps(value, ensure_ascii=False, indent=2) + "\n").encode("utf-8", "backslashreplace")
