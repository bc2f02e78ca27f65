"""Predicts how long jobs wait, by grade. It only uses what this process has seen.

A job is expected to take the median time of jobs with the same problem, else of those with the same action and grade.
Jobs wait in the order of the queue for the first of their places that becomes free.
"""

from __future__ import annotations

import hashlib
import statistics
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import field
from typing import Final

from orbit_lsp.queue.request import Request
from orbit_remote.common.lazy_dataclass import dataclass

_KEPT: Final = 1_000
"""Jobs of a grade whose figures are kept."""
_LIKE: Final = 16
"""Of the same problem, so many count."""
_PROBLEMS: Final = 10_000
_LONGER: Final = 0.25
"""A job that takes longer than expected goes on for this share of what it has taken."""
NEAR_SHARE: Final = 0.25
NEAR_S: Final = 2.0
"""A prediction was good if it is off by at most this share of the wait, or these seconds."""


@dataclass(frozen=True, slots=True)
class Like:
    """Which jobs take about as long as a request's: those of its problem, and those of its action and grade."""

    problem: str
    kind: str
    grade: str


def like(request: Request) -> Like:
    """Return what a request is like. A problem is what a candidate is judged against, if that came with it, else the
    text itself.
    """
    hashed = hashlib.blake2b(digest_size=16)
    parts = sorted(f"{name}\0{text}" for name, text in request.files.items()) or [request.text]
    kind = f"{request.action} {request.grade} {request.detail}"
    for part in (kind, request.kernel or "", request.gpu, *parts):
        hashed.update(part.encode("utf-8", "surrogatepass") + b"\0")
    return Like(hashed.hexdigest(), kind, request.grade)


@dataclass(frozen=True, slots=True)
class Spread:
    """The times of jobs. Half of `n` jobs took at most `p50` seconds, 95 % of them at most `p95`."""

    p50: float
    p95: float
    n: int


def spread(seconds: Sequence[float]) -> Spread | None:
    """Return the spread of some times, or None without times."""
    if not seconds:
        return None
    ordered = sorted(seconds)
    return Spread(
        statistics.median(ordered), ordered[min(len(ordered) - 1, int(0.95 * len(ordered)))], len(ordered)
    )


@dataclass(frozen=True, slots=True)
class Predicted:
    """A prediction. `wait_s` is the time until the job begins. `of` is how many earlier jobs have begun. `good` is
    the share of those that waited as long as predicted, within 25 % or 2 s; None if none was predicted.
    """

    wait_s: float
    good: float | None
    of: int


@dataclass(slots=True)
class _Grade:
    waited: deque[float] = field(default_factory=lambda: deque(maxlen=_KEPT))
    took: deque[float] = field(default_factory=lambda: deque(maxlen=_KEPT))


@dataclass(frozen=True, slots=True)
class Ahead:
    """A job in the queue: what it is like, and the places in which it may run."""

    like: Like
    places: Collection[str]


class Forecast:
    def __init__(self) -> None:
        self._grades: dict[str, _Grade] = {}
        self._problems: dict[str, deque[float]] = {}
        self._kinds: dict[str, deque[float]] = {}
        self._predicted: dict[str, float] = {}
        """Job -> the wait that was predicted when it was submitted."""
        self._good: deque[bool] = deque(maxlen=_KEPT)

    # -- what happens --------------------------------------------------------------------------

    def submitted(self, job: str, wait_s: float | None) -> None:
        if wait_s is not None:
            self._predicted[job] = wait_s

    def begun(self, job: str, known: Like, waited_s: float) -> None:
        self._grades.setdefault(known.grade, _Grade()).waited.append(waited_s)
        predicted = self._predicted.pop(job, None)
        if predicted is not None:
            self._good.append(abs(predicted - waited_s) <= max(NEAR_SHARE * waited_s, NEAR_S))

    def given_up(self, job: str) -> None:
        """Take note that a job will not begin."""
        self._predicted.pop(job, None)

    def ended(self, known: Like, took_s: float) -> None:
        """Take note that a job has ended. `took_s` is how long its place was not free."""
        self._grades.setdefault(known.grade, _Grade()).took.append(took_s)
        for key, store in ((known.problem, self._problems), (known.kind, self._kinds)):
            seconds = store.pop(key, None) or deque(maxlen=_LIKE)
            seconds.append(took_s)
            store[key] = seconds  # the newest last
        while len(self._problems) > _PROBLEMS:
            del self._problems[next(iter(self._problems))]

    # -- what is known -------------------------------------------------------------------------

    def expected_s(self, known: Like) -> float | None:
        """Return the seconds that such a job takes. Return None if no job was like it."""
        seconds = self._problems.get(known.problem) or self._kinds.get(known.kind)
        return statistics.median(seconds) if seconds else None

    def waits_s(
        self, running: Mapping[str, tuple[Like, float] | None], ahead: Sequence[Ahead]
    ) -> list[float | None]:
        """Return the seconds until each of the jobs `ahead` begins, in their order. It is None if that depends on a
        job like no other. `running` has each place that takes jobs with (the job there, the seconds it has run), or
        None.
        """
        free: dict[str, float | None] = {place: self._left_s(job) for place, job in running.items()}
        waits: list[float | None] = []
        for each in ahead:
            places = [place for place in each.places if place in free]
            if not places or any(free[place] is None for place in places):
                waits.append(None)
                for place in places:
                    free[place] = None
                continue
            first = min(places, key=lambda place: free[place] or 0.0)
            begins = free[first] or 0.0
            waits.append(begins)
            takes = self.expected_s(each.like)
            free[first] = None if takes is None else begins + takes
        return waits

    def _left_s(self, job: tuple[Like, float] | None) -> float | None:
        if job is None:
            return 0.0
        known, for_s = job
        expected = self.expected_s(known)
        if expected is None:
            return None
        return expected - for_s if for_s < expected else _LONGER * for_s

    def predicted(self, wait_s: float | None) -> Predicted | None:
        if wait_s is None:
            return None
        count = len(self._good)
        return Predicted(wait_s, sum(self._good) / count if count else None, count)

    def good(self) -> tuple[float | None, int]:
        """Return the share of predictions that were good, and how many there were."""
        count = len(self._good)
        return (sum(self._good) / count if count else None), count

    def figures(self) -> dict[str, tuple[Spread | None, Spread | None]]:
        """Return, by grade, how long jobs waited and took."""
        return {
            name: (spread(grade.waited), spread(grade.took)) for name, grade in sorted(self._grades.items())
        }
