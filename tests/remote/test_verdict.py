"""Two clocks and what a recorder says, to a verdict: numbers in, a sentence out."""

from __future__ import annotations

from dataclasses import replace

import pytest

from orbit_remote.judge import verdict
from orbit_remote.judge.verdict import Ran, Recorded, Samples, Seen

EMPTY = Samples((10_000,) * 20, (60_000,) * 20)
REFERENCE = Samples((90_000,) * 20, (150_000,) * 20)
OWN = Recorded((Ran("fused", "", 1, 50_000),), 50_000, 1)


def samples(flag_us: int, gap_us: int) -> Samples:
    return Samples((1000 * flag_us,) * 20, (1000 * (flag_us + gap_us),) * 20)


HONEST = Seen(verdict.clocks(samples(60, 60), EMPTY, REFERENCE), OWN, records=True)


def test_a_call_that_computes_nothing_goes_off_both_clocks() -> None:
    assert (HONEST.clocks.flag_ns, HONEST.clocks.verified_ns, HONEST.clocks.n) == (50_000, 50_000, 20)


@pytest.mark.parametrize(
    ("seen", "words"),
    [
        (HONEST, ""),
        (replace(HONEST, clocks=verdict.clocks(samples(12, 108), EMPTY, REFERENCE)), "work goes on after the end"),
        (replace(HONEST, late="it wrote to its outputs"), "it wrote to its outputs"),
        (replace(HONEST, floor_ns=200_000.0), "writing its outputs alone takes 200.00 µs"),
        (replace(HONEST, error=3e-4, reference_error=6e-8), "less than the reference's precision"),
        (replace(HONEST, error=3e-6, reference_error=6e-8), ""),
        (replace(HONEST, recorded=None), "no kernel of it was recorded"),
        (replace(HONEST, recorded=replace(OWN, busy_ns=900_000)), "its kernels take 900.00 µs where they are recorded"),
        (replace(HONEST, recorded=replace(OWN, kernels=(Ran("nvjet_sm90", "cuBLAS", 1, 50_000),))), "kernels of libraries (cuBLAS)"),
        (replace(HONEST, recorded=None, records=False), ""),
    ],
)  # fmt: skip
def test_what_no_honest_kernel_does(seen: Seen, words: str) -> None:
    suspicion = verdict.suspicion(seen)
    assert words in suspicion
    assert bool(words) == bool(suspicion)


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


def test_a_record_that_is_none_is_not_believed() -> None:
    assert verdict.recorded("a lot") is None
    assert verdict.recorded([{"name": "x", "start": "soon"}]) is None


def test_the_host_is_waited_for_between_two_recorded_launches_and_not_counted() -> None:
    def launch(start: int, end: int, stream: int = 7) -> dict[str, object]:
        return {"name": "k", "start": start, "end": end, "stream": stream}

    alone = [launch(1_000, 4_000), launch(54_000, 57_000)]
    beside = [launch(1_000, 4_000), launch(2_000, 6_000, stream=8), launch(2_500, 3_000, stream=9)]
    assert [call.busy_ns for call in map(verdict.recorded, (alone, beside)) if call] == [6_000, 5_000]


def test_a_gpu_that_is_busy_between_calls_is_noticed() -> None:
    assert verdict.busy([900_000] * 5, [300_000] * 5).startswith("the GPU is busy")
    assert verdict.busy([320_000] * 5, [300_000] * 5) == ""
