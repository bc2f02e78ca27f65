"""Asks a candidate whose answers to the author's draws are right about the families of `families`.

A family counts if the reference can be trusted with it: in its own precision and in double it agrees, and in double
it also agrees with itself on arguments that differ by a billionth. So neither rounding nor a tie nor a jump accuses
anybody. One set of arguments is used to find this out. The candidate is asked about another one, before the reference
computes what was expected.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import field, replace
from typing import Any, Final

from orbit_remote.child.harness import kernelbench
from orbit_remote.child.spec import output_compare
from orbit_remote.common import messages as c
from orbit_remote.common.contracts.harness_files import AllowedDifference, Domain
from orbit_remote.common.lazy_dataclass import dataclass
from orbit_remote.judge import arguments, families
from orbit_remote.judge.families import Family
from orbit_remote.judge.party import SideFailedError

NOISE: Final = 1e-9
LEFT_OUT: Final = "left out: "
_SHOWN: Final = 3
_ROUNDING: Final = 16.0
"""Times the reference's own largest error is allowed besides the tolerance: another order of adding may be less lucky."""


@dataclass(frozen=True, slots=True)
class Answered:
    """The outputs of a call: names, and tensors of the judge's own."""

    names: tuple[str, ...]
    tensors: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class AskedSides:
    """Who can be asked, with arguments as `match.Given`. The reference gives its answer in its own precision, and those in double
    precision to arguments changed by each of some shares; none of these if it does not run in double precision.
    """

    drawn: Callable[[], Any]
    candidate: Callable[[Any], Answered]
    reference: Callable[[Any, Sequence[float]], list[Answered]]


@dataclass(slots=True)
class Beyond:
    """The results. `wrong` is the first wrong answer, in words. `failed` is how the candidate failed when the
    reference did not.
    """

    tried: list[c.Attempt] = field(default_factory=list[c.Attempt])
    wrong: str = ""
    check: c.Check | None = None
    failed: c.Failure | None = None
    gone: bool = False
    """The reference's process is not to be asked again."""


class Beyonds:
    """Asks the families. `usual` is an answer of the reference to a draw: its size scales the tolerances."""

    def __init__(
        self,
        torch: Any,
        asked: AskedSides,
        usual: Answered,
        within: AllowedDifference | None,
        domain: Domain,
        coin: random.Random,
    ) -> None:
        self._torch = torch
        self._asked = asked
        self._within = within
        self._domain: Domain = domain
        self._coin = coin
        self._sizes = [_rms(tensor) for tensor in usual.tensors]
        self._positions = any(not tensor.is_floating_point() for tensor in usual.tensors)
        self.result = Beyond()

    def judge(self, late: Callable[[bool], bool]) -> Beyond:
        """Ask about each family with one argument, in random order, then about more arguments. `late` says whether
        time is up, for the first turn or for more.
        """
        result = self.result
        base = self._asked.drawn()
        places = [at for at, tensor in enumerate(self._tensors(base)) if families.fits(self._torch, tensor)]
        if not places:
            result.tried.append(
                c.Attempt("every family", "", f"{LEFT_OUT}no argument has finite numbers that are not whole")
            )
            return result
        first, more = self._turns(places)
        for turn, wanted in ((False, first), (True, more)):
            for family, at in wanted:
                if late(turn):
                    result.tried += (
                        [] if turn else [c.Attempt(family.name, _argument(at), f"{LEFT_OUT}no time")]
                    )
                    continue
                base, said = self._family(family, at, base)
                result.tried.append(c.Attempt(family.name, _argument(at), said))
                if result.wrong or result.failed or result.gone:
                    return result
        return result

    def _turns(self, places: Sequence[int]) -> tuple[list[tuple[Family, int]], list[tuple[Family, int]]]:
        """Return each family with one argument, and the other pairs."""
        able = [
            family
            for family in families.FAMILIES
            if self._domain in family.domains and (family.in_order or not self._positions)
        ]
        self._coin.shuffle(able)
        first = [(family, self._coin.choice(places)) for family in able]
        more = [(family, at) for family in able for at in places if (family, at) not in first]
        self._coin.shuffle(more)
        return first, more

    def _family(self, family: Family, at: int, base: Any) -> tuple[Any, str]:
        """Ask about a family with the draw `base`. Return the draw that the next family begins with, and the result of this one."""
        try:
            if left_out := self._untrusted(self._varied(family, at, base, base)):
                return base, f"{LEFT_OUT}{left_out}"
        except SideFailedError as error:
            self.result.gone = self._gone(base)
            return base, f"{LEFT_OUT}the reference fails in it: {error.failure.message:.200}"
        following = self._asked.drawn()
        another = self._asked.drawn() if family.after_the_draw else following
        given = self._varied(family, at, following, another)
        failed: SideFailedError | None = None
        mine: Answered | None = None
        try:
            if family.after_the_draw:
                self._asked.candidate(following)
            mine = self._asked.candidate(given)
        except SideFailedError as error:
            failed = error
        answers: list[Answered] = []
        try:
            answers, left_out = self._trusted(given, (0.0,))
        except SideFailedError as error:
            self.result.gone = self._gone(another)
            left_out = f"the reference fails in it: {error.failure.message:.200}"
        if failed and (left_out or failed.reference):
            raise failed  # its process may be gone, which its next call would report
        if left_out:
            return another, f"{LEFT_OUT}{left_out}"
        if failed:
            words = f"{failed.failure.message} ({_where(family, at)})"
            self.result.failed = replace(failed.failure, message=words)
            return another, "it fails"
        assert mine
        return another, self._compared(family, at, mine, *answers)

    def _untrusted(self, given: Any) -> str:
        """Return why the reference is not to be trusted with such arguments. Return "" if it is."""
        answers, why = self._trusted(given, (0.0, NOISE))
        if why:
            return why
        _, exact, near = answers
        for at, (one, other) in enumerate(zip(exact.tensors, near.tensors, strict=True)):
            if not self._agree(other, one, self._allowed(at, one, 0.0)):
                return "the answer changes by more than the tolerance where arguments change by a billionth"
        return ""

    def _trusted(self, given: Any, noises: Sequence[float]) -> tuple[list[Answered], str]:
        """Return the reference's answers in its own precision and in double, and why they do not count."""
        own, *exact = answers = self._asked.reference(given, noises)
        if not exact:
            return answers, "the reference does not run in double precision"
        if exact[0].names != own.names:
            return answers, "the reference has other outputs in double precision"
        for at, (one, true) in enumerate(zip(own.tensors, exact[0].tensors, strict=True)):
            if one.shape != true.shape or not self._agree(one, true, self._allowed(at, one, 0.0)):
                return (
                    answers,
                    "the reference differs from itself in double precision, or its answer is not finite",
                )
        return answers, ""

    def _allowed(self, at: int, expected: Any, error: float) -> AllowedDifference:
        """Return the tolerance. Its absolute part grows with the answers, and by the possible rounding of the
        reference itself.
        """
        allowed = kernelbench.tolerance(expected, self._within)
        grown = max(1.0, _rms(expected) / self._sizes[at]) if self._sizes[at] else 1.0
        more = _ROUNDING * error
        cap = None if allowed.cap is None else allowed.cap * grown + more
        return replace(allowed, atol=allowed.atol * grown + more, cap=cap)

    def _agree(self, one: Any, other: Any, allowed: AllowedDifference) -> bool:
        if not one.is_floating_point() and not one.is_complex():
            return bool(self._torch.equal(one, other.to(one.dtype)))
        wide = self._torch.complex128 if one.is_complex() else self._torch.float64
        mine, true = one.to(wide), other.to(wide)
        if not one.is_complex():
            return not mine.numel() or (
                output_compare.largest_within(self._torch, mine, true, allowed.atol, allowed.rtol) is not None
            )
        near = (mine - true).abs() <= allowed.atol + allowed.rtol * true.abs()
        return bool((near & true.isfinite()).all())

    def _compared(self, family: Family, at: int, mine: Answered, expected: Answered, exact: Answered) -> str:
        if mine.names != expected.names:
            self.result.wrong = (
                f"{len(mine.names)} outputs in place of {len(expected.names)}, {_where(family, at)}"
            )
            return "wrong"
        for number, (name, one, true, wide) in enumerate(
            zip(expected.names, mine.tensors, expected.tensors, exact.tensors, strict=True)
        ):
            error = float((true.to(wide.dtype) - wide).abs().max()) if true.numel() else 0.0
            judged = kernelbench.compared(self._torch, name, one, true, self._allowed(number, true, error))
            if not judged.check.passed:
                self.result.wrong = f"{judged.words}, {_where(family, at)}"
                self.result.check = judged.check
                return "wrong"
        return c.RIGHT

    def _varied(self, family: Family, at: int, base: Any, other: Any) -> Any:
        """Return arguments of a draw with one of them varied. If two draws have different shapes, the second one's
        values are not used.
        """
        torch, leaf = self._torch, base.leaves[at]
        tensor = arguments.tensor_in(torch, leaf, base.contents[at])
        fits = len(other.leaves) > at and other.leaves[at] == leaf
        second = arguments.tensor_in(torch, leaf, other.contents[at]) if fits else tensor.flip(0)
        content = base.contents[at].clone()
        arguments.tensor_in(torch, leaf, content).copy_(families.varied(torch, family, tensor, second))
        return replace(base, contents=(*base.contents[:at], content, *base.contents[at + 1 :]))

    def _tensors(self, given: Any) -> list[Any]:
        return [
            arguments.tensor_in(self._torch, leaf, content)
            for leaf, content in zip(given.leaves, given.contents, strict=True)
        ]

    def _gone(self, given: Any) -> bool:
        """Say whether the reference fails with the author's own arguments too: a kernel that faults ends its process."""
        try:
            self._asked.reference(given, ())
        except SideFailedError:
            return True
        return False


def limit(most_s: float, more_s: float) -> Callable[[bool], bool]:
    """Return what says whether time is up, after `most_s` seconds for the first turn, and `more_s` for more."""
    began = time.monotonic()
    return lambda more: time.monotonic() - began > (more_s if more else most_s)


def words(tried: Sequence[c.Attempt]) -> str:
    """Return what was tried, in a sentence. Return "" if nothing was."""
    right = [attempt for attempt in tried if attempt.answer == c.RIGHT]
    left = [
        f"{attempt.family} of {attempt.argument} ({attempt.answer.removeprefix(LEFT_OUT)})".replace(
            " of  (", " ("
        )
        for attempt in tried
        if attempt.answer.startswith(LEFT_OUT)
    ]
    if not tried:
        return ""
    more = f"; left out: {'; '.join(left[:_SHOWN])}" if left else ""
    more += f"; and {len(left) - _SHOWN} more" if len(left) > _SHOWN else ""
    return f"beyond get_inputs, right for {len(right)} of {len(tried)} families of arguments that were tried{more}"


def _argument(at: int) -> str:
    return f"inputs[{at}]"


def _where(family: Family, at: int) -> str:
    return f"for inputs beyond get_inputs: {_argument(at)} {family.name}"


def _rms(tensor: Any) -> float:
    """Return the root mean square of the finite values, or 0 if there is none."""
    wide = tensor.abs().double()
    usual = float(wide.norm()) / max(1, wide.numel()) ** 0.5
    if math.isfinite(usual):
        return usual
    finite = wide[wide.isfinite()]
    return float(finite.square().mean().sqrt()) if finite.numel() else 0.0
