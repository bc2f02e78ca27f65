"""The result of a gate: of each kernel and of the whole, in the form of JSON and reports."""

from __future__ import annotations

from dataclasses import field
from typing import Literal

from orbit_lsp.state.results import Moved
from orbit_remote.common.lazy_dataclass import dataclass
from orbit_remote.common.messages import EXIT_CODES, Cost, Failure

SLOWER, INCONCLUSIVE = 6, 7
"""Exit codes of a gate besides those of every command: a kernel is slower; the gate is inconclusive and was to fail then."""

KernelVerdict = Literal["slower", "not slower", "inconclusive", "failed", "not compared"]
GateVerdict = Literal["passed", "slower", "inconclusive", "failed"]


@dataclass(frozen=True, slots=True)
class GatedKernel:
    """A kernel of a gate. `file` is relative to the repository, `line` counts from 1, `through` says what ran it.

    `ratio` is the median of the pairs' ratios, the time now over that of the base, and lies from `low` to `high` at 95 %, however often
    one looks. `then_ns` and `now_ns` are medians of the runs. `evidence` is the capital of the bet that it is slower by more than the
    margin, as a natural logarithm; `needed` is what makes it slower. `discarded` are pairs left out for the state of the GPU.
    `noise` is the deviation of its pairs, and `finds` the slow-down that 95 % of gates find with it; null where unknown. `reason`
    says why there is no verdict; `counters` are those that differ between the profiles of its two sides; `failure` is how it failed. `runs` are the times of the counted runs in nanoseconds, by pairs: of the
    base, now. `pair_s` is how long a pair took, `first_s` how long it took to build both sides and to run each once.
    """

    file: str
    kernel: str
    line: int
    verdict: KernelVerdict
    through: str = ""
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    then_ns: float | None = None
    now_ns: float | None = None
    evidence: float = 0.0
    needed: float = 0.0
    pairs: int = 0
    discarded: int = 0
    noise: float | None = None
    finds: float | None = None
    reason: str = ""
    failure: Failure | None = None
    remarks: tuple[str, ...] = ()
    counters: tuple[Moved, ...] = ()
    runs: tuple[tuple[float, ...], tuple[float, ...]] = ((), ())
    pair_s: float | None = None
    first_s: float | None = None


@dataclass(frozen=True, slots=True)
class GateControl:
    """A kernel that ran against itself in the same loop. `red`: it was found to differ, so the machine is at fault."""

    file: str
    kernel: str
    pairs: int
    ratio: float | None
    red: bool


@dataclass(frozen=True, slots=True)
class GateForecast:
    """What was known before the counted pairs. `finds` is the slow-down that is found with 95 % in every kernel whose noise is
    known; `unknown` are kernels without a known noise. `seconds` is how long the gate was to take, builds included, if no kernel is
    slower: named before, or, where no gate of a kernel is known, after its first pair.
    """

    finds: float | None = None
    unknown: int = 0
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class GateResult:
    """A gate. `false_alarm` bounds the chance that it calls any kernel slower which takes at most `margin` more time; `find` is the
    slow-down that it looks for. `base` and `head` are commits; `edited`: the working tree differs from `head`.

    `unchanged` kernels were not looked at. `discarded` counts pairs left out, by reason. `carried` is when this verdict was reached,
    in seconds since 1970, if it is of an earlier gate of the same code. `remarks` are sentences about the whole change.
    """

    verdict: GateVerdict
    sentence: str
    exit_code: int
    base: str
    base_name: str
    head: str
    edited: bool
    gpu: str
    false_alarm: float
    find: float
    margin: float
    kernels: tuple[GatedKernel, ...] = ()
    controls: tuple[GateControl, ...] = ()
    unchanged: int = 0
    discarded: dict[str, int] = field(default_factory=dict[str, int])
    forecast: GateForecast | None = None
    seconds: float = 0.0
    at: float = 0.0
    carried: float | None = None
    failure: Failure | None = None
    cost: Cost | None = None
    remarks: tuple[str, ...] = ()


def exit_code(
    kernels: tuple[GatedKernel, ...], verdict: GateVerdict, failure: Failure | None, *, strict: bool
) -> int:
    """Return the exit code. A failure to build or to compute comes first, then a slower kernel, then the machine's
    own failure.
    """
    for kernel in kernels:
        if kernel.failure:
            return EXIT_CODES[kernel.failure.category]
    if verdict == "slower":
        return SLOWER
    if failure:
        return EXIT_CODES[failure.category]
    return INCONCLUSIVE if verdict == "inconclusive" and strict else 0


def sentence(
    verdict: GateVerdict,
    kernels: tuple[GatedKernel, ...],
    *,
    base: str,
    find: float,
    false_alarm: float,
    red_control: bool,
    failure: Failure | None,
) -> str:
    """Return the one sentence for a reader in a hurry."""

    def names(which: str) -> str:
        listed = [name_of(kernel, kernels) for kernel in kernels if kernel.verdict == which]
        return ", ".join(listed[:3]) + (f" and {len(listed) - 3} more" if listed[3:] else "")

    compared = sum(kernel.verdict not in ("failed", "not compared") for kernel in kernels)
    match verdict:
        case "failed":
            bad = next(kernel for kernel in kernels if kernel.failure)
            assert bad.failure
            return f"{names('failed')}: {bad.failure.category}. {bad.failure.message}"
        case "slower":
            slower = [kernel for kernel in kernels if kernel.verdict == "slower"]
            if len(slower) == 1 and slower[0].ratio:
                return f"{name_of(slower[0], kernels)} takes {100 * (slower[0].ratio - 1):.1f}% more time than in {base}."
            return f"{len(slower)} of {_count(compared)} take more time than in {base}: {names('slower')}."
        case "inconclusive":
            if red_control:
                return "Inconclusive (machine): a kernel differed from itself, so this GPU's times cannot be trusted now."
            why = f": {failure.message}" if failure else ""
            return f"Inconclusive for {names('inconclusive') or 'all kernels'}{why}."
        case "passed" if kernels and not compared:
            return f"Not compared with {base}: {names('not compared')}."
        case "passed" if not compared:
            return f"No kernel to compare with {base}."
        case "passed":
            left_out = names("not compared")
            return (
                f"{_count(compared)} compared with {base}: none is slower by {100 * find:g}% or more "
                f"(false alarms: at most {100 * false_alarm:g}% of gates)"
                + (f"; not compared: {left_out}." if left_out else ".")
            )


def name_of(kernel: GatedKernel, kernels: tuple[GatedKernel, ...]) -> str:
    """Return the name of a kernel, with its file if another file has a kernel of that name."""
    twins = any(other.kernel == kernel.kernel and other.file != kernel.file for other in kernels)
    return f"{kernel.kernel} ({kernel.file})" if twins else kernel.kernel


def _count(number: int) -> str:
    return f"{number} kernel{'' if number == 1 else 's'}"
