"""Three clocks and what a recorder says, to a verdict: numbers in, a sentence out."""

from __future__ import annotations

from dataclasses import replace

import pytest

from orbit_remote.common.launch_records import LaunchRecord
from orbit_remote.common.requests import Policy
from orbit_remote.judge import side, verdict
from orbit_remote.judge.verdict import Baseline, MatchEvidence, Ran, RecordedCall, Samples


def samples(flags_us: int, gap_us: int, begin_us: int = 150) -> Samples:
    """By the three clocks: `begin_us` from the gate to the first flag, `gap_us` from the second to right values."""
    clocks = (flags_us, begin_us + flags_us, begin_us + flags_us + gap_us)
    return Samples(*((1000 * clock,) * 20 for clock in clocks))


EMPTY = samples(10, 50)
REFERENCE = samples(90, 60)
USUAL = Baseline(EMPTY, REFERENCE)
OWN = RecordedCall((Ran("fused", "", 1, 50_000),), 50_000, 1)


HONEST = MatchEvidence(verdict.clocks(samples(60, 60), USUAL, USUAL), OWN, records=True)


def test_a_call_that_computes_nothing_goes_off_all_clocks() -> None:
    assert (HONEST.clocks.flag_ns, HONEST.clocks.verified_ns, HONEST.clocks.n) == (50_000, 50_000, 20)


@pytest.mark.parametrize(
    ("begin_us", "flags_us", "score"),
    [
        (150, 60, "50 by the flags clock"),
        (154, 56, "46 by the flags clock"),  # within the resolution
        (180, 30, "50 by the gate clock"),  # it said that it begins when half of its work was done
    ],
)
def test_a_beginning_that_is_told_late_does_not_count(begin_us: int, flags_us: int, score: str) -> None:
    clocks = verdict.clocks(samples(flags_us, 60, begin_us), USUAL, USUAL)
    assert f"{clocks.flag_ns / 1000:.0f} by the {'gate' if clocks.from_gate else 'flags'} clock" == score
    assert clocks.agree


def test_a_beginning_that_is_told_now_early_and_now_late_does_not_count() -> None:
    """The spread of its own gaps is no resolution: 200 µs of work, told as 350 µs, 138 µs and nothing."""
    work = Samples(
        tuple(1000 * told for told in [350] * 45 + [138] * 10 + [1] * 45), (350_000,) * 100, (410_000,) * 100
    )
    empty, reference = (
        Samples(*(clock[:1] * 100 for clock in (each_side.flags, each_side.gate, each_side.verified)))
        for each_side in (samples(1, 60), samples(200, 60))
    )
    usual = Baseline(empty, reference)
    clocks = verdict.clocks(work, usual, usual)
    assert (clocks.from_gate, round(clocks.flag_ns, -3)) == (True, 199_000)


def test_a_gpu_that_is_kept_busy_while_the_judge_calibrates_makes_no_score_shorter() -> None:
    """Half of 200 µs is hidden before the first flag, and calls of calibration take 100 µs longer than before its code ran."""
    empty, before = samples(10, 150, begin_us=250), samples(10, 50)
    reference = samples(210, 60)
    told = verdict.clocks(
        samples(100, 60, begin_us=260), Baseline(empty, reference), Baseline(before, reference)
    )
    assert (told.from_gate, told.flag_ns) == (True, 200_000 - verdict.RESOLUTION_NS)


def test_without_a_gate_too_no_score_is_shorter_by_what_was_added_to_calibration() -> None:
    empty, before = samples(280, 50), samples(10, 50)
    work = samples(300, 60)
    told = verdict.clocks(work, Baseline(empty, work), Baseline(before, work), verdict.HOST_NS)
    assert told.flag_ns == 300_000 - 10_000 - verdict.HOST_NS


def test_kernels_left_for_the_references_calls_do_not_excuse_an_end_that_was_told_early() -> None:
    """Of 500 µs, 400 come after the end that was told; and the reference's outputs are read 400 µs later than before."""
    before = Baseline(EMPTY, samples(510, 60))
    told = verdict.clocks(samples(110, 460), Baseline(EMPTY, samples(510, 460)), before)
    assert not told.agree


def test_nor_does_the_spread_that_they_bring() -> None:
    early = tuple(range(0, 400_000, 20_000))
    wide = Samples(early, early, (460_000,) * 20)
    told = verdict.clocks(samples(110, 360), Baseline(EMPTY, wide), USUAL)
    assert (told.agree, round(told.resolution_ns)) == (False, round(3 * 40_000 / 20**0.5))


def test_gaps_that_drift_from_round_to_round_blur_nothing() -> None:
    """All gaps of a round are longer by the same, up to 100 µs; and of 60 µs of work, 12 come after the end that was told."""
    drift = [5_000 * number for number in range(20)]

    def drifting(known: Samples) -> Samples:
        return replace(known, verified=tuple(map(sum, zip(known.verified, drift, strict=True))))

    usual = Baseline(drifting(EMPTY), drifting(REFERENCE))
    honest, early = (
        verdict.clocks(drifting(each), usual, usual) for each in (samples(60, 60), samples(48, 72))
    )
    assert (honest.verified_ns, honest.resolution_ns) == (50_000, verdict.RESOLUTION_NS)
    assert (early.agree, early.verified_ns) == (False, 50_000)


def test_kernels_left_for_the_references_calls_are_noticed() -> None:
    crowded, alone = samples(90, 60, begin_us=400), samples(90, 60, begin_us=160)
    assert verdict.crowded(crowded, REFERENCE).startswith("the GPU is busy in the reference's calls")
    assert verdict.crowded(alone, REFERENCE) == ""


@pytest.mark.parametrize(
    ("seen", "words"),
    [
        (HONEST, ""),
        (replace(HONEST, clocks=verdict.clocks(samples(12, 108), USUAL, USUAL)), "work goes on after the end"),
        (replace(HONEST, late="it wrote to its outputs"), "it wrote to its outputs"),
        (replace(HONEST, floor_ns=200_000.0), "writing its outputs alone takes 200.00 µs"),
        (replace(HONEST, recorded=None), "no kernel of it was recorded"),
        (replace(HONEST, recorded=replace(OWN, busy_ns=900_000)), "its kernels take 900.00 µs where they are recorded"),
        (replace(HONEST, recorded=None, records=False), ""),
    ],
)  # fmt: skip
def test_what_no_honest_kernel_does(seen: MatchEvidence, words: str) -> None:
    suspicion = verdict.suspicion(seen)
    assert words in suspicion
    assert bool(words) == bool(suspicion)


LESS = replace(HONEST, error=3e-4, reference_error=6e-8)


def of(*kernels: tuple[str, int, int, str]) -> MatchEvidence:
    """A call of which these kernels were recorded: name, launches, nanoseconds, library."""
    ran = tuple(Ran(name, library, count, taken) for name, count, taken, library in kernels)
    return replace(HONEST, recorded=replace(OWN, kernels=ran))


LIBRARY = replace(HONEST, recorded=replace(OWN, kernels=(Ran("nvjet_sm90", "cuBLAS", 1, 50_000),)))


@pytest.mark.parametrize(
    ("seen", "allow", "found"),
    [
        (HONEST, (), []),
        (replace(HONEST, error=3e-6, reference_error=6e-8), (), []),
        (LESS, (), ["precision: its error against double precision is 3.0e-04"]),
        (LESS, ("precision",), ["precision, allowed: its error"]),
        (LIBRARY, (), ["libraries: 100 % of its GPU time is in kernels of libraries (cuBLAS)"]),
        (LIBRARY, ("precision",), ["libraries: 100 %"]),
        (replace(LIBRARY, error=3e-4, reference_error=6e-8), ("libraries",), ["libraries, allowed: 100 %", "precision: its error"]),
        (replace(LIBRARY, own_kernels=False), (), []),
        (of(("relu", 3, 5_472, "PyTorch"), ("decoy", 1, 704, "")), (), ["libraries: 100 % of its GPU time is in kernels of libraries (PyTorch)"]),
        (of(("relu", 3, 5_472, "PyTorch"), ("fused", 1, 1_400, "")), (), []),
        (of(("tiny", 2, 1_500, ""), ("fill", 1, 700, "PyTorch")), (), []),
    ],
)  # fmt: skip
def test_what_a_problem_may_forbid_is_no_suspicion(
    seen: MatchEvidence, allow: tuple[Policy, ...], found: list[str]
) -> None:
    told = [
        f"{each.name}{', allowed' if each.allowed else ''}: {each.why}"
        for each in verdict.policies(seen, allow)
    ]
    assert [each[: len(words)] for each, words in zip(told, found, strict=True)] == found
    assert verdict.suspicion(seen) == ""


@pytest.mark.parametrize(
    ("name", "library"),
    [
        ("_ZN2at6native29vectorized_elementwise_kernelILi4", "PyTorch"),
        ("nvjet_sm90_hsh_256x128_64x4_1x2", "cuBLAS"),
        ("fused", ""),
        ("matmul_kernel", ""),
    ],
)
def test_whose_kernel_it_is(name: str, library: str) -> None:
    assert verdict.library_of(name) == library


def test_a_report_of_another_form_counts_for_nothing() -> None:
    assert verdict.recorded("a lot") is None
    assert verdict.recorded({"kernels": [{"name": "x", "count": "many"}], "busy": 1, "streams": 1}) is None


def test_a_report_sums_all_launches() -> None:
    """However many short kernels hide a long one, and however long the host takes between two launches."""
    times = [("decoy", at, at + 1_000) for at in range(50_000, 10_050_000, 50_000)] + [
        ("cublas", 10**8, 10**8 + 10**6)
    ]
    launches = [LaunchRecord(name, start, end, (1, 1, 1), (32, 1, 1)) for name, start, end in times]
    call = verdict.recorded(side.summed(launches))
    assert call
    assert call.kernels[0] == Ran("cublas", "cuBLAS", 1, 10**6)
    assert (call.busy_ns, call.streams, round(call.own_share or 0, 2)) == (10**6 + 200 * 1_000, 1, 0.17)


def test_a_gpu_that_is_busy_between_calls_is_noticed() -> None:
    usual = [300_000] * 5
    assert verdict.busy([900_000] * 5, usual, usual).startswith("the GPU is busy")
    assert verdict.busy([430_000] * 5, usual, usual).startswith("the GPU is busy")
    assert verdict.busy([420_000] * 5, usual, usual) == ""
    assert verdict.busy([900_000] * 5, [800_000] * 5, usual).startswith("the GPU is busy")
