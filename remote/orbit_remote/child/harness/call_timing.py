"""Measures how long whole calls take on the GPU, two versions in turn: each from its first kernel's start to its last
one's end.

A call of a model is many kernels, copies between them, and gaps. Its user waits for the time from first to last, not
for the sum, so that time is measured. CUDA events around the call take it, without CUPTI: recording would add to each
kernel and so favour the version with fewer of them. A pair of events shows more than what runs between them. That
surplus is measured on a kernel whose length is recorded, and subtracted. Before each call the GPU is kept busy for
longer than the host needs to launch the call's kernels: a gap that is only Python's would be the host's time. If the
first event has passed before the last one was asked for, the host was too slow, and the GPU is kept busy for longer.

Events on the current stream do not enclose calls that use other streams. Such calls are found by recording some calls
first; then both versions are timed by the records of all streams.
"""

from __future__ import annotations

import gc
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import median
from typing import Any, Final

from orbit_remote.child.harness import tensor_data
from orbit_remote.child.spec.launch_timing import COLD_S, FIRST_BATCH, MOST_LAUNCHES, WARM_S
from orbit_remote.common import launch_records, measure
from orbit_remote.common.launch_records import LaunchRecord
from orbit_remote.common.lazy_dataclass import dataclass
from orbit_remote.common.measurements import Timing
from orbit_remote.recording.recorder import Native, Recorder

BUDGET_S: Final = 2 * (COLD_S + WARM_S)
"""What timing two versions may take, in seconds."""
_WARM_UP: Final = 3
_RECORDED: Final = 4
_LEAD: Final = 1.5
_LEAST_LEAD_NS: Final = 20_000
_MOST_LEAD_NS: Final = 20_000_000
"""How much longer than launching takes the GPU is kept busy beforehand. A call that waits for its own results
cannot be launched ahead, and the limit keeps it from costing more than it must.
"""
_LATE: Final = 0.2
"""Share of a batch's calls that the host may launch too late: a median bears so many."""
_TRIES: Final = 5
_CYCLES_A_NS: Final = 2.0
"""More than the clock of any GPU that there is, in GHz: `torch.cuda._sleep` counts cycles."""
_IDLE: Final = 0.75
"""Kernels that take less than this share of a call's time leave the rest to be explained."""
_LEAST_NS: Final = 32


@dataclass(frozen=True, slots=True)
class TimedSide:
    """One version. It is called with inputs that it may write to."""

    name: str
    call: Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class RecordedLaunches:
    """What a recorded call launched: `records` in order of start, and `calls` for all recorded calls. None if nothing
    could be recorded.
    """

    records: tuple[LaunchRecord, ...]
    calls: tuple[LaunchRecord, ...]
    elsewhere: bool

    @property
    def busy_ns(self) -> int:
        return launch_records.busy_ns(self.records)


@dataclass(frozen=True, slots=True)
class Pair:
    """The events around a call. `late`: the GPU reached the first before the host had asked for the second, so it may
    have waited for the host between them.
    """

    begin: Any
    end: Any
    late: bool


@dataclass(frozen=True, slots=True)
class Timed:
    """The times of each side, in order. `comparison` is of the first against the second, None if there is one side."""

    cold: tuple[Timing, ...]
    warm: tuple[Timing, ...]
    seen: tuple[RecordedLaunches | None, ...]
    comparison: measure.AbVerdict | None
    remarks: tuple[str, ...]


class CallBench:
    """Times calls. It is made before the user's code is loaded, so that it measures with torch's functions and not
    with what a file may have put in their place.
    """

    def __init__(self, torch: Any, recorder: Recorder, coin: random.Random | None = None) -> None:
        """Make a bench. `coin` decides the order of each round."""
        self._torch = torch
        self.coin = coin or random.SystemRandom()
        self._recorder = recorder if isinstance(recorder, Native) else None
        if self._recorder is None:
            recorder.end()  # torch's own profiler would be in the times
        self._event: Any = torch.cuda.Event
        self._record_event: Callable[[Any], None] = torch.cuda.Event.record
        self._passed: Callable[[Any], bool] = torch.cuda.Event.query
        self._elapsed: Callable[[Any, Any], float] = torch.cuda.Event.elapsed_time
        self._synchronize: Callable[[], None] = torch.cuda.synchronize
        self._sleep: Callable[[int], None] | None = getattr(torch.cuda, "_sleep", None)
        self._sum: Any = torch.sum
        size = measure.FLUSHED * int(
            torch.cuda.get_device_properties(torch.cuda.current_device()).L2_cache_size
        )
        self._flush = torch.zeros(size // 4, dtype=torch.float32, device="cuda")
        self._sink = torch.zeros((), dtype=torch.float32, device="cuda")
        self._few = self._flush[: measure.KNOWN]

    def time(
        self, sides: Sequence[TimedSide], sets: Sequence[Any], buffers: Any, *, written: bool, budget_s: float
    ) -> Timed:
        """Time calls. `sets` are inputs of one shape with different contents, which the calls get by turns in the one
        memory of `buffers`: what a version has kept from an earlier call is of no use to it. `written` says that a
        call writes to its inputs. `budget_s` is about what all of it may take.
        """
        seen = tuple(self._look(side, sets[0], buffers) for side in sides)
        elsewhere = any(call_seen is not None and call_seen.elsewhere for call_seen in seen)
        rounds = _Rounds(
            self._torch, self, sides, sets, buffers, written, elsewhere, self._leads(sides, sets[0], buffers)
        )
        part = budget_s / (COLD_S + WARM_S)
        cold = rounds.timings("cold L2", COLD_S * part)
        comparison = measure.compare(cold[1][1], cold[0][1]) if len(sides) > 1 else None
        warm = rounds.timings("warm L2", WARM_S * part)
        self.record(True)  # as it was: the clocks that are told are those from the first record to the last
        timed = Timed(tuple(t for t, _ in cold), tuple(t for t, _ in warm), seen, comparison, ())
        return replace(timed, remarks=tuple(self._remarks(sides, timed)))

    # -- before timing ------------------------------------------------------------------------------

    def _look(self, side: TimedSide, inputs: Any, buffers: Any) -> RecordedLaunches | None:
        """Call it until everything is compiled and chosen, then record what calls launch."""
        for _ in range(_WARM_UP):
            self._call(side, inputs, buffers)
        recorder = self._recorder
        if recorder is None or not recorder.record("concurrent"):
            return None
        try:
            self._synchronize()
            recorder.fresh()
            self._sum(self._flush, dim=0, out=self._sink)  # its record names the current stream
            self._synchronize()
            here = {launch_record.stream for launch_record in recorder.fresh()}
            calls: list[LaunchRecord] = []
            records: list[LaunchRecord] = []
            for _ in range(_RECORDED):
                tensor_data.refill(self._torch, buffers, inputs)
                self._synchronize()
                recorder.fresh()
                side.call(buffers)
                self._synchronize()
                records = sorted(recorder.fresh(), key=lambda launch_record: launch_record.start_ns)
                calls += records
        finally:
            recorder.record("nothing")
        if not here or not all(record.timed for record in records):
            return None
        return RecordedLaunches(
            tuple(records), tuple(calls), any(record.stream not in here for record in records)
        )

    def _call(self, side: TimedSide, inputs: Any, buffers: Any) -> None:
        tensor_data.refill(self._torch, buffers, inputs)
        side.call(buffers)
        self._synchronize()

    def _leads(self, sides: Sequence[TimedSide], inputs: Any, buffers: Any) -> list[int]:
        """Return for each side how long, in ns, the GPU is kept busy while the host launches its kernels."""
        numbers: list[int] = []
        for side in sides:
            spent: list[int] = []
            for _ in range(_WARM_UP):
                tensor_data.refill(self._torch, buffers, inputs)
                self._synchronize()
                began = time.perf_counter_ns()
                side.call(buffers)
                spent.append(time.perf_counter_ns() - began)
            self._synchronize()
            numbers.append(min(_MOST_LEAD_NS, round(_LEAD * median(spent)) + _LEAST_LEAD_NS))
        return numbers

    # -- what a round is made of --------------------------------------------------------------------

    def flush(self) -> None:
        """Push the contents of L2 out by reading other memory. Written data would be written back during the time of
        the call.
        """
        self._sum(self._flush, dim=0, out=self._sink)

    def by_events(self, call: Callable[[], Any], lead_ns: int) -> Pair:
        begin, end = self._event(enable_timing=True), self._event(enable_timing=True)
        if self._sleep is not None:
            self._sleep(round(lead_ns * _CYCLES_A_NS))
        self._record_event(begin)
        call()
        self._record_event(end)
        return Pair(begin, end, self._passed(begin))

    def between_ns(self, pair: Pair) -> float:
        return self._elapsed(pair.begin, pair.end) * 1e6

    def by_records(self, call: Callable[[], Any]) -> int | None:
        """Return the time from the first start to the last end on any stream. Return None if something was not
        recorded.
        """
        recorder = self._recorder
        assert recorder is not None
        self._synchronize()
        recorder.fresh()
        call()
        self._synchronize()
        records = recorder.fresh()
        if not records or not all(record.timed for record in records):
            return None
        return max(record.end_ns for record in records) - min(record.start_ns for record in records)

    def surplus_ns(self) -> float:
        """Return what a pair of events shows beyond the time from its first kernel's start to its last one's end. If
        nothing can be recorded, return what it shows with nothing between.
        """
        known_ns = self._known_ns()
        call = self._known_kernel if known_ns else lambda: None
        lead_ns = _LEAST_LEAD_NS
        while True:
            pairs = [self.by_events(call, lead_ns) for _ in range(measure.KNOWN_CALLS)]
            self._synchronize()
            if lead_ns >= _MOST_LEAD_NS or not _too_late(pairs):
                return median(self.between_ns(pair) for pair in pairs) - known_ns
            lead_ns *= 2

    def _known_kernel(self) -> None:
        self._sum(self._few, dim=0, out=self._sink)

    def _known_ns(self) -> int:
        """Return the recorded length of the known kernel, or 0 if nothing is recorded."""
        if not self.record(True):
            return 0
        try:
            self._known_kernel()
            lengths = [self.by_records(self._known_kernel) for _ in range(measure.KNOWN_CALLS)]
        finally:
            self.record(False)
        return round(median(length or 0 for length in lengths))

    def wait(self) -> None:
        self._synchronize()

    def record(self, wanted: bool) -> bool:
        return self._recorder is not None and self._recorder.record("concurrent" if wanted else "nothing")

    def _remarks(self, sides: Sequence[TimedSide], timed: Timed) -> list[str]:
        remarks: list[str] = []
        if any(seen is None for seen in timed.seen):
            remarks.append("calls could not be recorded: work on other streams is not in the times")
        for side, seen, warm in zip(sides, timed.seen, timed.warm, strict=True):
            if seen is None:
                continue
            if seen.elsewhere:
                remarks.append(
                    f"{side.name} uses more than one stream: its times cover the kernels of all of them"
                )
            elif not seen.records:
                remarks.append(f"{side.name} launched no kernel")
            elif seen.busy_ns < _IDLE * warm.median:
                share = 100 * (1 - seen.busy_ns / warm.median)
                remarks.append(
                    f"for {share:.0f} % of the time of {side.name} none of its kernels runs: it copies memory, or the GPU waits for the host"
                )
        return remarks


def _too_late(pairs: Sequence[Pair]) -> bool:
    return sum(pair.late for pair in pairs) > _LATE * len(pairs)


class _Rounds:
    """Rounds of calls, one of each side, in an order that is drawn for each round."""

    def __init__(
        self, torch: Any, bench: CallBench, sides: Sequence[TimedSide], sets: Sequence[Any], buffers: Any,
        written: bool, elsewhere: bool, leads: Sequence[int],
    ) -> None:  # fmt: skip
        self._bench = bench
        self._torch = torch
        self._sides = sides
        self._sets = sets
        self._buffers = buffers
        self._written = written
        self._elsewhere = elsewhere
        self._leads = list(leads)
        self._turn = 0
        self._surplus = 0.0 if elsewhere else bench.surplus_ns()

    def timings(self, label: str, cap_s: float) -> list[tuple[Timing, list[int]]]:
        """Return for each side its statistics and all samples."""
        samples: list[list[int]] = [[] for _ in self._sides]
        collecting = gc.isenabled()
        gc.disable()
        if self._elsewhere:
            self._bench.record(True)
        try:
            first = self._first(label)
            began = time.perf_counter()
            size = max(1, min(FIRST_BATCH, int(cap_s / 2 / max(first, 1e-6))))
            while True:
                self._batch(label, size, samples)
                count = len(samples[0])
                at_cap = count >= MOST_LAUNCHES or time.perf_counter() - began >= cap_s
                stops = [measure.stop(sample, at_cap=at_cap) for sample in samples]
                if all(stops):
                    break
                size = min(measure.next_batch(count), MOST_LAUNCHES - count)
        finally:
            if self._elsewhere:
                self._bench.record(False)
            if collecting:
                gc.enable()
        kind = "records of all streams" if self._elsewhere else "CUDA events"
        surplus = f"{kind}, less the {self._surplus / 1000:.2f} µs that a pair shows beyond its kernels"
        clock = kind if self._elsewhere else surplus
        return [
            (
                replace(
                    measure.timing(sample, f"{label}, n={len(sample)}", clock=clock),
                    error=stop.relative_error,
                    stopped=stop.reason,
                ),
                sample,
            )
            for sample, stop in zip(samples, stops, strict=True)
            if stop is not None
        ]

    def _first(self, label: str) -> float:
        """Return how many seconds a round takes, which sets the size of the first batch. Leads are long enough
        afterwards.
        """
        took = 0.0
        for _ in range(_TRIES):
            before, began = tuple(self._leads), time.perf_counter()
            self._batch(label, 1, [[] for _ in self._sides])
            took = time.perf_counter() - began
            if before == tuple(self._leads):
                break
        return took

    def _batch(self, label: str, size: int, samples: list[list[int]]) -> None:
        """Add to the samples of each side. The lead of a side whose calls were launched too late is lengthened."""
        pairs: list[list[Pair]] = [[] for _ in self._sides]
        for _ in range(size):
            self._turn += 1
            for at, side in measure.in_drawn_order([*enumerate(self._sides)], self._bench.coin):
                self._prepare(side, label)

                def call(side: TimedSide = side) -> Any:
                    return side.call(self._buffers)

                if self._elsewhere:
                    length = self._bench.by_records(call)
                    if length is None:
                        raise RuntimeError("the launches of a call were not all recorded")
                    samples[at].append(max(_LEAST_NS, length))
                else:
                    pairs[at].append(self._bench.by_events(call, self._leads[at]))
        self._bench.wait()
        for at, batch in enumerate(pairs):
            lengths = (self._bench.between_ns(pair) - self._surplus for pair in batch)
            samples[at] += [max(_LEAST_NS, round(length)) for length in lengths]
            if _too_late(batch):
                self._leads[at] = min(_MOST_LEAD_NS, 2 * self._leads[at])

    def _prepare(self, side: TimedSide, label: str) -> None:
        inputs = self._sets[self._turn % len(self._sets)]
        tensor_data.refill(self._torch, self._buffers, inputs)
        if label.startswith("cold"):
            self._bench.flush()
            return
        side.call(self._buffers)  # so that what fits of this version's memory is in L2, not of the other's
        if self._written:
            tensor_data.refill(self._torch, self._buffers, inputs)
