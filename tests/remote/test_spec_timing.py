"""How many launches are timed, and which are left out. The GPU and its recorder are acted."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from orbit_remote.child.spec.launch_timing import Bench, Clock
from orbit_remote.common.launch_records import Added, LaunchRecord
from orbit_remote.common.measurements import Timing

US = 1000
MS = 1000 * US


def _nothing(*_given: object, **_named: object) -> None: ...


def _properties(_device: object) -> SimpleNamespace:
    return SimpleNamespace(L2_cache_size=4)


class ActedGpu:
    """Every launch of `k` takes the next of `lengths` (ns; the last one again and again) and `gap` passes after it."""

    def __init__(self, lengths: Sequence[int], gap: int = 0) -> None:
        self.now = 0
        self.launched: list[LaunchRecord] = []
        self._lengths = list(lengths)
        self._gap = gap
        self._told = 0
        cuda = SimpleNamespace(
            get_device_properties=_properties, current_device=_nothing, synchronize=_nothing
        )
        self.torch: Any = SimpleNamespace(cuda=cuda, zeros=_nothing, sum=_nothing, float32=None)

    def launch(self) -> None:
        length = self._lengths.pop(0) if len(self._lengths) > 1 else self._lengths[0]
        self.launched.append(LaunchRecord("k", self.now + 1, self.now + 1 + length, (1, 1, 1), (1, 1, 1)))
        self.now += 1 + length + self._gap

    def fresh(self) -> list[LaunchRecord]:
        new = self.launched[self._told :]
        self._told = len(self.launched)
        return new


def timed(
    gpu: ActedGpu, *, iterations: int | None = None, clocks: Sequence[tuple[int, float]] = (), warmup: int = 0
) -> tuple[Timing, Bench]:
    sampler: Any = SimpleNamespace(clocks=list(clocks), default_sm_clock_mhz=1000)
    recorder: Any = gpu
    bench = Bench(gpu.torch, Clock(recorder, Added(0.0, 0.0)), ["k"], iterations, sampler, warmup=warmup)
    (timing,) = bench.cold(lambda: None, [gpu.launch])
    return timing, bench


@pytest.mark.parametrize(
    ("each", "iterations", "launches"),
    [
        (5 * US, None, 200),  # short ones: as many as settle the median
        (100 * US, None, 160),  # 16 ms of them
        (400 * US, None, 40),
        (5 * MS, None, 20),  # the first batch is enough
        (100 * US, 7, 7),  # what the author asks for
    ],
)
def test_measuring_ends_where_the_median_is_known_and_the_clock_settled(
    each: int, iterations: int | None, launches: int
) -> None:
    timing, _ = timed(ActedGpu([each]), iterations=iterations)
    assert (timing.n, timing.median) == (launches, each)


def test_warm_launches_end_sooner_because_the_clock_has_settled() -> None:
    gpu = ActedGpu([100 * US])
    _, bench = timed(gpu)
    (warm,) = bench.warm(lambda: None, [gpu.launch])
    assert (warm.n, warm.median) == (50, 100 * US)  # 5 ms of them


def test_launches_that_warm_up_are_not_timed() -> None:
    gpu = ActedGpu([5 * MS] * 10 + [100 * US])
    timing, _ = timed(gpu, iterations=7, warmup=10)
    assert (timing.n, timing.median, timing.maximum) == (7, 100 * US, 100 * US)
    assert len(gpu.launched) == 17


def test_a_noisy_kernel_is_measured_for_longer() -> None:
    noisy = [(100 + (at * 37) % 60) * US for at in range(5000)]
    timing, _ = timed(ActedGpu(noisy))
    assert timing.n > 200
    assert timing.stopped


def test_launches_at_a_throttled_clock_are_dropped_and_counted() -> None:
    # 200 launches of 100 µs; between 5 and 10 ms the clock was at half its default, and they took twice as long
    lengths = [100 * US] * 50 + [200 * US] * 25 + [100 * US]
    clocks = [
        (0, 1000.0),
        (5 * MS, 500.0),
        (10 * MS + 50 * US, 500.0),
        (10 * MS + 90 * US, 1000.0),
        (900 * MS, 1000.0),
    ]
    timing, bench = timed(ActedGpu(lengths), clocks=clocks)
    assert timing.dropped == 25
    assert timing.maximum == 100 * US
    assert not bench.throttled


def test_where_the_clock_was_low_all_the_time_nothing_is_dropped_and_it_is_said() -> None:
    timing, bench = timed(ActedGpu([100 * US]), clocks=[(0, 500.0), (900 * MS, 500.0)])
    assert (timing.dropped, bench.throttled) == (0, True)


def test_the_span_is_that_of_all_timed_launches() -> None:
    gpu = ActedGpu([100 * US])
    _, bench = timed(gpu)
    assert bench.span_ns == (gpu.launched[0].start_ns, gpu.launched[-1].end_ns)
