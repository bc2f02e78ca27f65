"""Makes a verdict from what the judge saw: clocks that must agree, and what no honest kernel does. Pure.

Times are nanoseconds. The *flags* clock runs between two words of the side's own stream: that a call begins and that
it has ended. It is precise to a microsecond or two, and a side could forge both. The *gate* clock begins when the
judge lets the call begin. Only its end could be forged, and the GPU's switch to the side's process varies by
microseconds. The *verified* clock begins there too and runs until the judge itself has read right values from the
outputs. Only work before the gate could forge it, and it is the least precise. From all of them the time is
subtracted that a call takes besides its kernels.
"""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Sequence
from typing import Any, Final

from orbit_remote.common.lazy_dataclass import dataclass
from orbit_remote.common.messages import PolicyFinding, Ran
from orbit_remote.common.requests import Policy

TOLERANCE: Final = 0.05
PRECISE: Final = 0.005
"""Standard error of a time, relative, that ends the rounds."""
RESOLUTION_NS: Final = 5000.0
"""The least difference of the two clocks that is believed, where a gate hides the host's part,"""
HOST_NS: Final = 100_000.0
"""where it does not,"""
NO_GPU_NS: Final = 4_000_000.0
"""and where both processes compute on the same cores."""
_BUSY, _BUSY_NS = 1.25, 50_000
"""A GPU is busy where something takes longer than usual by more than this factor, plus these nanoseconds. For honest kernels and
for the reference, the medians of putting arguments in place were at most 15 µs apart (docs/dev/judge.md).
"""
_GAP_NS: Final = 100_000.0
"""Reading outputs may take so much longer than before any code of the candidate ran: honest medians differed by up to
50 µs (docs/dev/judge.md)."""
_WIDER, _SPREAD_NS = 3.0, 40_000.0
"""It may also spread wider than before: by this factor, or up to so many nanoseconds."""
_LEAST_OWN: Final = 0.02
"""Share of the GPU's time below which kernels of one's own are a decoy."""
_IDLE_NS: Final = 1000
"""A kernel that takes less hardly touches memory: one that does nothing took 704 ns on an H200, those that read and wrote 2 MiB at least 1,536."""
_PEAK: Final = 1.1
"""Of the measured bandwidth: what a kernel may exceed it by before it is not believed."""
_LESS_PRECISE: Final = 30.0
_SINGLE: Final = 1e-5

_LIBRARIES: Final = (
    (r"at::native|at6native|at_cuda_detail|at::cuda|at4cuda", "PyTorch"),
    (r"cublas|gemv2T|gemvNSP|splitK[A-Z]|gemmk1|nvjet|s?d?gemm_|_xmma_|sm\d\d_xmma|ampere_|volta_|turing_|hopper_.*gemm", "cuBLAS"),
    (r"cudnn|implicit_convolve|winograd|wgrad|dgrad", "cuDNN"),
    (r"cusparse|cusolver|cufft|regular_fft|vector_fft", "cuSPARSE, cuSOLVER, cuFFT"),
    (r"flash_fwd|flash_bwd|fmha_cutlass|pytorch_flash", "PyTorch's attention"),
    (r"ncclDevKernel|ncclKernel", "NCCL"),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Clocks:
    """The times of one side: medians of `n` calls by the clock that is the score and by the verified one, and by how
    much the latter may be wrong. `error_ns` is the standard error of `flag_ns`. `from_gate`: the score is by the gate
    clock.
    """

    flag_ns: float
    verified_ns: float
    resolution_ns: float
    n: int
    error_ns: float = 0.0
    from_gate: bool = False

    @property
    def agree(self) -> bool:
        return self.verified_ns <= self.flag_ns + self.resolution_ns


@dataclass(frozen=True, slots=True)
class Samples:
    """The times of the same calls by the three clocks."""

    flags: tuple[int, ...] = ()
    gate: tuple[int, ...] = ()
    verified: tuple[int, ...] = ()

    def score(self, *, from_gate: bool) -> tuple[int, ...]:
        return self.gate if from_gate else self.flags


@dataclass(frozen=True, slots=True)
class Baseline:
    """Calls of the reference's process: `empty` ones less their known kernel, and whole calls of the `reference`."""

    empty: Samples = Samples()
    reference: Samples = Samples()


def clocks(samples: Samples, now: Baseline, before: Baseline, least_ns: float = RESOLUTION_NS) -> Clocks:
    """Return the clocks for calls of a side, those of `now` in turn with them, and those `before` any code of the
    candidate ran. The resolution is at least `least_ns`.

    The score is by the flags clock if it agrees with the verified one, else by the gate clock, whose beginning the
    side does not report.
    """
    precise = _clocks(samples, now, before, least_ns, from_gate=False)
    return precise if precise.agree else _clocks(samples, now, before, least_ns, from_gate=True)


def overhead_ns(now: Baseline, before: Baseline, least_ns: float, *, from_gate: bool) -> float:
    """Return what a call takes besides its kernels. A candidate that keeps the GPU busy could lengthen this, but not
    what it was `before`: so it is at most `least_ns` more.
    """
    return _bounded(now.empty.score(from_gate=from_gate), before.empty.score(from_gate=from_gate), least_ns)


def _bounded(empty: Sequence[int], before: Sequence[int], least_ns: float) -> float:
    now = statistics.median(empty)
    return min(now, statistics.median(before) + least_ns) if before else now


def _clocks(samples: Samples, now: Baseline, before: Baseline, least_ns: float, *, from_gate: bool) -> Clocks:
    """Reading outputs takes longer after work than after none, so the gap between the clocks is compared with the reference's, or that of
    the calls without kernels where it is larger: with those of the same round, because gaps drift from round to round (docs/dev/judge.md).
    Kernels that the candidate left on the GPU could lengthen both gaps, and widen their spread: so they are bounded by what they were
    before. A side that tells when it begins could widen the spread of its own gaps at will, and with it the resolution: by the flags clock
    only the spread of the reference's process counts.
    """
    score, empty = (side.score(from_gate=from_gate) for side in (samples, now.empty))
    own, theirs, none, theirs_before, none_before = (
        [verified - at for at, verified in zip(side.score(from_gate=from_gate), side.verified, strict=True)]
        for side in (samples, now.reference, now.empty, before.reference, before.empty)
    )
    flag = statistics.median(score) - overhead_ns(now, before, least_ns, from_gate=from_gate)
    longer = min(
        statistics.median(_less(own, _capped(theirs, theirs_before))),
        statistics.median(_less(own, _capped(none, none_before))),
    )
    theirs_error = _error(_less(theirs, none))
    if theirs_before:
        spread = max(_WIDER * _spread(_less(theirs_before, none_before)), _SPREAD_NS)
        theirs_error = min(theirs_error, spread / len(theirs) ** 0.5)
    noise = (
        min(_error(_less(own, theirs)), math.hypot(_error(own), theirs_error)) if from_gate else theirs_error
    )
    error = (_error(score) ** 2 + _error(empty) ** 2) ** 0.5
    resolution = max(3 * noise, least_ns, TOLERANCE * flag)
    return Clocks(flag, flag + longer, resolution, len(score), error, from_gate)


def _less(ones: Sequence[int], others: Sequence[int]) -> list[int]:
    """Return the differences within the same rounds."""
    return [one - other for one, other in zip(ones, others, strict=True)]


def _capped(gaps: Sequence[int], before: Sequence[int]) -> list[int]:
    """Return the gaps, none of which counts for longer than they may be by what they were before."""
    most = statistics.median(before) + _GAP_NS if before else math.inf
    return [gap if gap <= most else round(most) for gap in gaps]


def busy(between: Sequence[int], reference: Sequence[int], before: Sequence[int]) -> str:
    """Return why a side is suspicious whose GPU is busy between its calls. Return "" if it is not.

    `between` is how long it took to put its arguments in place, `reference` the same for the reference, which waits.
    `before` is the same while no code of the candidate had run. A GPU is shared by turns of milliseconds.
    """
    if not between or not reference:
        return ""
    own, usual = statistics.median(between), _bounded(reference, before, _BUSY_NS)
    if not _is_longer(own, usual):
        return ""
    return f"the GPU is busy before its call begins: putting its arguments in place takes {_us(own)}, and {_us(usual)} for other sides"


def crowded(reference: Samples, before: Samples) -> str:
    """Return why a side is suspicious that leaves kernels on the GPU for the reference's calls. Return "" if it does
    not. It uses the gate clock, which honest kernels changed by at most 3 µs (docs/dev/judge.md).
    """
    if not reference.gate or not before.gate:
        return ""
    now, usual = statistics.median(reference.gate), statistics.median(before.gate)
    if not _is_longer(now, usual):
        return ""
    return f"the GPU is busy in the reference's calls: they take {_us(now)}, and took {_us(usual)} before its code ran"


def _is_longer(now_ns: float, usual_ns: float) -> bool:
    return now_ns > _BUSY * usual_ns + _BUSY_NS


def _error(samples: Sequence[int]) -> float:
    """Return the standard error of a median."""
    return _spread(samples) / len(samples) ** 0.5


def _spread(samples: Sequence[int]) -> float:
    """Return the standard error of a median of one sample, from the median distance to the median of these."""
    middle = statistics.median(samples)
    away = statistics.median(abs(sample - middle) for sample in samples)
    return 1.2533 * 1.4826 * away


@dataclass(frozen=True, slots=True)
class RecordedCall:
    """What the recorder in the candidate's process says of one call: its word, not the judge's. `busy_ns` is the time
    in which at least one kernel ran. Between two launches of a recorded call the GPU waits for the host, which it
    does not in a timed call.
    """

    kernels: tuple[Ran, ...]
    busy_ns: int
    streams: int

    @property
    def own_share(self) -> float | None:
        """Return the share of the GPU's time. Kernels of its own that can do nothing do not count beside libraries' that
        take longer.
        """
        total = sum(kernel.ns for kernel in self.kernels)
        own = [kernel for kernel in self.kernels if not kernel.library]
        idle_ns = sum(kernel.ns for kernel in own if kernel.ns < _IDLE_NS * kernel.count)
        own_ns = sum(kernel.ns for kernel in own)
        if total - own_ns > idle_ns:
            own_ns -= idle_ns
        return own_ns / total if total else None


def recorded(claims: Any) -> RecordedCall | None:
    """Read a claim. Return None if nothing was recorded, or the claim has another form."""
    try:
        kernels = [
            Ran(name := str(kernel["name"]), library_of(name), int(kernel["count"]), int(kernel["ns"]))
            for kernel in claims["kernels"]
        ]
        return RecordedCall(tuple(kernels), int(claims["busy"]), int(claims["streams"]))
    except (KeyError, TypeError, ValueError):
        return None


def shortest(calls: Sequence[RecordedCall]) -> RecordedCall | None:
    """Return the shortest of the calls with the most launches: records can be lost, and other processes on the GPU
    only lengthen a call.
    """
    launches = [sum(kernel.count for kernel in call.kernels) for call in calls]
    whole = [call for call, count in zip(calls, launches, strict=True) if count == max(launches)]
    return min(whole, key=lambda call: call.busy_ns, default=None)


def library_of(name: str) -> str:
    """Return the library of a kernel, by the kernel's name. Return "" if no library is known by it."""
    return next((library for pattern, library in _LIBRARIES if re.search(pattern, name)), "")


@dataclass(frozen=True, slots=True)
class MatchEvidence:
    """What is judged, besides whether the answers were right. None is what is not known.

    `floor_ns` is the least time in which the outputs can be written at all. Errors are relative, root mean square,
    against the reference in double precision. `own_kernels`: the candidate was handed in as one that brings kernels.
    """

    clocks: Clocks
    recorded: RecordedCall | None
    records: bool
    floor_ns: float | None = None
    error: float | None = None
    reference_error: float | None = None
    own_kernels: bool = True
    late: str = ""


def suspicion(seen: MatchEvidence) -> str:
    """Return why there is no score, in a sentence. Return "" if nothing speaks against it."""
    timed = seen.clocks
    if seen.late:
        return seen.late
    if not timed.agree:
        return (
            f"its process said that a call ends after {_us(timed.flag_ns)}; its outputs were complete after {_us(timed.verified_ns)} "
            f"(± {_us(timed.resolution_ns)}): work goes on after the end"
        )
    if seen.floor_ns is not None and timed.flag_ns + timed.resolution_ns < seen.floor_ns:
        return f"{_us(timed.flag_ns)} a call: writing its outputs alone takes {_us(seen.floor_ns)} at this GPU's measured bandwidth"
    return _of_records(seen) if seen.records else ""


def _of_records(seen: MatchEvidence) -> str:
    if seen.recorded is None or not seen.recorded.kernels:
        return "its answers are right, and no kernel of it was recorded"
    kernels_ns, timed = seen.recorded.busy_ns, seen.clocks
    if kernels_ns > 1.25 * timed.flag_ns + 3 * timed.resolution_ns + 5000:
        return f"its kernels take {_us(kernels_ns)} where they are recorded, and {_us(timed.flag_ns)} where they are timed"
    return ""


def policies(seen: MatchEvidence, allow: Sequence[Policy]) -> tuple[PolicyFinding, ...]:
    """Return what a problem may forbid although the answers are right. A text that brings no kernel of its own only
    uses a library, and hides nothing.
    """
    found: list[tuple[Policy, str]] = []
    share = seen.recorded.own_share if seen.recorded else None
    if seen.own_kernels and share is not None and share < _LEAST_OWN:
        assert seen.recorded
        libraries = ", ".join(
            dict.fromkeys(kernel.library for kernel in seen.recorded.kernels if kernel.library)
        )
        why = f"{100 * (1 - share):.0f} % of its GPU time is in kernels of libraries ({libraries}): it brings no kernel that does the work"
        found.append(("libraries", why))
    if seen.error is not None and seen.reference_error is not None:
        least = max(_SINGLE, _LESS_PRECISE * seen.reference_error)
        if seen.error > least:
            why = (
                f"its error against double precision is {seen.error:.1e}, that of the reference {seen.reference_error:.1e}: it computes "
                "in less than the reference's precision"
            )
            found.append(("precision", why))
    return tuple(PolicyFinding(name, why, name in allow) for name, why in found)


def least_ns(size: int, bandwidth: float | None) -> float | None:
    """Return the nanoseconds to write `size` bytes, at `bandwidth` in bytes per second. Return None if it was not
    measured.
    """
    return None if not bandwidth else size / (bandwidth * _PEAK) * 1e9


def _us(nanoseconds: float) -> str:
    return f"{nanoseconds / 1000:.2f} µs"
