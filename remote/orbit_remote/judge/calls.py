"""Calls of the judge's sides as they were seen, and the result of a match."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import Any

from orbit_remote.child.harness.harness_case import ExplainedCheck
from orbit_remote.common.lazy_dataclass import dataclass
from orbit_remote.common.measurements import Digests
from orbit_remote.common.messages import Attempt
from orbit_remote.judge import verdict
from orbit_remote.judge.arguments import Leaf
from orbit_remote.judge.beyond import Beyond
from orbit_remote.judge.party import Times
from orbit_remote.judge.stopwatch import Stopwatch


@dataclass(frozen=True, slots=True)
class Given:
    """The arguments of one call. `contents` are the judge's own copies, `seed` is for what the call itself draws,
    `drawn` the seed of the arguments.
    """

    packed: Any
    leaves: tuple[Leaf, ...]
    contents: tuple[Any, ...]
    seed: int
    drawn: int

    @property
    def room(self) -> int:
        return sum(leaf.room for leaf in self.leaves)


@dataclass(slots=True)
class ReturnedTensor:
    """A tensor that a call returned. `data` is its memory, `copy` is the judge's own."""

    name: str
    leaf: Leaf
    data: Any
    copy: Any = None


@dataclass(slots=True)
class SideCall:
    times: Times
    placing_ns: int
    outputs: list[ReturnedTensor]
    ran: Any = None
    waited: bool = False
    """The side waited for the GPU before the gate was open."""


@dataclass(slots=True)
class MatchResult:
    checks: list[ExplainedCheck] = field(default_factory=list[ExplainedCheck])
    invalid: str = ""
    gated: bool = True
    on_gpu: bool = True
    rounds: int = 0
    candidate: verdict.Samples = field(default_factory=verdict.Samples)
    against: verdict.Samples = field(default_factory=verdict.Samples)
    """The reference's calls that the candidate's are compared with."""
    now: verdict.Baseline = field(default_factory=verdict.Baseline)
    before: verdict.Baseline = field(default_factory=verdict.Baseline)
    twice: tuple[verdict.Samples, verdict.Samples] = (verdict.Samples(), verdict.Samples())
    """The reference's calls before and after the candidate's, of rounds that have both."""
    digests: Digests | None = None
    late: str = ""
    how: str = ""
    """How arguments are drawn that the author's calls do not make; and how parameters were made the same, empty where neither was needed."""
    adopted: str = ""
    ran: list[Any] = field(default_factory=list[Any])
    beyond: Beyond = field(default_factory=Beyond)
    shapes: list[Attempt] = field(default_factory=list[Attempt])
    """Shapes that the problem states and the candidate was not timed on."""
    error: float | None = None
    reference_error: float | None = None
    written: int = 0
    bandwidth: float | None = None
    kept_bytes: int = 0
    held: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    watch: Stopwatch = field(default_factory=Stopwatch)


@dataclass(slots=True)
class ReferenceCalls:
    """Calls of the reference's process: see `verdict.Baseline`. `placing` is how long it took to put the arguments of
    `reference` in place.
    """

    empty: list[Times] = field(default_factory=list[Times])
    reference: list[Times] = field(default_factory=list[Times])
    placing: list[int] = field(default_factory=list[int])

    def baseline(self) -> verdict.Baseline:
        return verdict.Baseline(samples(self.empty), samples(self.reference))


def samples(calls: Sequence[Times]) -> verdict.Samples:
    return verdict.Samples(*map(tuple, zip(*calls, strict=True)))
