"""Times a spec's launches, always with the same inputs, with a cold L2 and with a warm one.

The times are CUPTI's serial records, which change no kernel (docs/dev/measuring.md says what concurrent records do).
What recording itself adds to each is subtracted: a constant of the GPU and the driver that `recording_overhead`
measures with a kernel that reports its own length. If launches cannot be recorded, CUDA events are used, and the
result says so.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

from orbit_remote.child.spec.sm_clock import SmClock
from orbit_remote.common import measure
from orbit_remote.common.launch_records import TICK_NS, Added, LaunchRecord, clock_label
from orbit_remote.common.lazy_dataclass import dataclass
from orbit_remote.common.measurements import Timing
from orbit_remote.recording.recorder import Native
from orbit_remote.recording.telemetry import Sampler

FIRST_BATCH: Final = 20
COLD_LEAST_S: Final = 0.016
WARM_LEAST_S: Final = 0.005
ENOUGH_LAUNCHES: Final = 200
"""Below this time of kernels, and this many launches, measuring goes on even if the median seems known: the
clocks of a GPU settle within milliseconds, and ten clicks are to agree, not only the launches of one. The warm
launches come after the cold ones, when the clocks have settled.
"""
MOST_LAUNCHES: Final = 2000
COLD_S: Final = 1.0
WARM_S: Final = 0.5
"""Caps of one point: launches, and seconds with a cold and with a warm L2."""


@dataclass(frozen=True, slots=True)
class Clock:
    """What takes the times. `added` is what recording adds to a launch, None if it is not known."""

    recorder: Native | None
    added: Added | None = None

    @property
    def name(self) -> str:
        if self.recorder is None:
            return "CUDA events"
        return clock_label("serial", self.added)


@dataclass(frozen=True, slots=True)
class _Round:
    """One launch of each kernel of the spec: how long each took, and when they were (Unix time in ns)."""

    lengths: list[int]
    span: tuple[int, int]


class ColdCache:
    """Pushes what is in L2 out of it by reads. Writes would leave lines that have to be written back in the time of
    the kernel.
    """

    def __init__(self, torch: Any) -> None:
        size = measure.FLUSHED * int(
            torch.cuda.get_device_properties(torch.cuda.current_device()).L2_cache_size
        )
        self._torch = torch
        self._read = torch.zeros(size // 4, dtype=torch.float32, device="cuda")
        self._sink = torch.zeros((), dtype=torch.float32, device="cuda")

    def flush(self) -> None:
        self._torch.sum(self._read, dim=0, out=self._sink)


class Bench:
    """Times the launches of one point. All of them are on torch's current stream."""

    def __init__(
        self,
        torch: Any,
        clock: Clock,
        symbols: Sequence[str],
        iterations: int | None,
        sampler: Sampler | None = None,
        sm_clock: SmClock | None = None,
        *,
        warmup: int = 0,
    ) -> None:
        """Make a bench. `symbols` are the kernels' mangled names in the order of launching. `warmup` launches of each
        come before the timed ones, for a cold and for a warm L2. `sampler` watches the clock that is set; `sm_clock`
        measures the one that the launches had.
        """
        self._torch = torch
        self._clock = clock
        self._symbols = list(symbols)
        self._cap = iterations or MOST_LAUNCHES
        self._warmup = warmup
        self._sampler = sampler
        self._sm_clock = sm_clock
        self.span_ns: tuple[int, int] | None = None
        """From the first recorded launch to the end of the last, in Unix time."""
        self.throttled = False
        """Whether the clock was too low all the time, so that nothing could be dropped."""
        self.seen: dict[str, LaunchRecord] = {}
        """A record of each kernel: what it used as launched."""
        self._cache = ColdCache(torch)

    def cold(self, restore: Callable[[], None], launches: Sequence[Callable[[], None]]) -> list[Timing]:
        """Return one Timing for each launch, with a cold L2."""

        def prepare() -> None:
            restore()
            self._cache.flush()

        timings = self._timings(prepare, launches, "cold L2", COLD_S, COLD_LEAST_S)
        if not timings or self._sm_clock is None:
            return timings
        mhz = self._sm_clock.during(prepare, launches, sum(timing.median for timing in timings))
        return [replace(timing, sm_clock_mhz=mhz) for timing in timings]

    def warm(self, restore: Callable[[], None], launches: Sequence[Callable[[], None]]) -> list[Timing]:
        """Return one Timing for each launch, with a warm L2: inputs that fit are in it from the launch before."""
        return self._timings(restore, launches, "warm L2", WARM_S, WARM_LEAST_S)

    def _timings(
        self,
        prepare: Callable[[], None],
        launches: Sequence[Callable[[], None]],
        label: str,
        cap_s: float,
        least_s: float,
    ) -> list[Timing]:
        rounds: list[_Round] = []
        for _ in range(self._warmup):
            prepare()
            for launch in launches:
                launch()
        if self._warmup:
            self._torch.cuda.synchronize()
        began = time.perf_counter()
        size = min(FIRST_BATCH, self._cap)
        while True:
            batch = self._batch(prepare, launches, size)
            if batch is None:
                return []
            rounds += batch
            kept = self._kept(rounds)
            at_cap = len(rounds) >= self._cap or time.perf_counter() - began >= cap_s
            # of a spec with several launches what they take together is to be known
            together = [sum(kept_round.lengths) for kept_round in kept]
            stop = measure.stop(together, at_cap=at_cap)
            missing = 0 if at_cap else _missing(together, least_s)
            if stop is not None and not missing:
                break
            size = min(missing or measure.next_batch(len(rounds)), self._cap - len(rounds))
        samples = [[kept_round.lengths[at] for kept_round in kept] for at in range(len(launches))]
        return [
            replace(
                measure.timing(
                    sample,
                    f"{label}, n={len(sample)}",
                    clock=self._clock.name,
                    least_ns=self._clock.added.least_ns if self._clock.added else None,
                ),
                error=measure.relative_error(sample),
                stopped=stop.reason,
                dropped=len(rounds) - len(kept),
            )
            for sample in samples
        ]

    def _kept(self, rounds: list[_Round]) -> list[_Round]:
        """Return the rounds without those made at a throttled clock, unless that leaves none."""
        if self._sampler is None:
            return rounds
        low = measure.at_low_clock(
            [measured.span for measured in rounds], self._sampler.clocks, self._sampler.default_sm_clock_mhz
        )
        kept = [measured for measured, slow in zip(rounds, low, strict=True) if not slow]
        self.throttled = not kept
        return kept or rounds

    def _batch(
        self, prepare: Callable[[], None], launches: Sequence[Callable[[], None]], size: int
    ) -> list[_Round] | None:
        """Return the times of `size` rounds. Return None if they could not be recorded."""
        if self._clock.recorder is None:
            return self._by_events(prepare, launches, size)
        self._clock.recorder.fresh()
        for _ in range(size):
            prepare()
            for launch in launches:
                launch()
        self._torch.cuda.synchronize()
        wanted = set(self._symbols)
        records = [
            launch_record for launch_record in self._clock.recorder.fresh() if launch_record.symbol in wanted
        ]
        records.sort(key=lambda launch_record: launch_record.start_ns)
        each = len(launches)
        if len(records) != size * each or not all(record.timed for record in records):
            return None
        self.seen |= {record.symbol: record for record in records[-each:]}
        together = [records[at : at + each] for at in range(0, len(records), each)]
        rounds = [
            _Round(
                [self._length(r) for r in launch_records],
                (launch_records[0].start_ns, launch_records[-1].end_ns),
            )
            for launch_records in together
        ]
        return self._seen(rounds)

    def _seen(self, rounds: list[_Round]) -> list[_Round]:
        begin, end = rounds[0].span[0], rounds[-1].span[1]
        self.span_ns = (self.span_ns[0] if self.span_ns else begin, end)
        return rounds

    def _length(self, record: LaunchRecord) -> int:
        return max(TICK_NS, round(record.duration_ns - (self._clock.added.ns if self._clock.added else 0.0)))

    def _by_events(
        self, prepare: Callable[[], None], launches: Sequence[Callable[[], None]], size: int
    ) -> list[_Round]:
        event = self._torch.cuda.Event
        pairs: list[list[tuple[Any, Any]]] = []
        began = time.time_ns()
        for _ in range(size):
            prepare()
            pairs.append([])
            for launch in launches:
                begin, end = event(enable_timing=True), event(enable_timing=True)
                begin.record()
                launch()
                end.record()
                pairs[-1].append((begin, end))
        self._torch.cuda.synchronize()
        span = began, time.time_ns()  # when each was is not known
        return self._seen(
            [_Round([round(begin.elapsed_time(end) * 1e6) for begin, end in pair], span) for pair in pairs]
        )


def _missing(times_ns: Sequence[int], least_s: float) -> int:
    """Return how many more launches are needed, by `least_s` and `ENOUGH_LAUNCHES`."""
    lacking_ns = least_s * 1e9 - sum(times_ns)
    by_time = math.ceil(lacking_ns * len(times_ns) / max(sum(times_ns), 1))
    return max(0, min(by_time, ENOUGH_LAUNCHES - len(times_ns)))
