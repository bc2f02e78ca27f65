"""Whole calls timed in turn, on a GPU that is acted: a clock that only its queue moves. Real ones: tests/gpu.

The actor stands for what cannot be had here: events, a queue, activity records. It keeps the order in
which things were asked for, which is what these tests are about.
"""

from __future__ import annotations

import importlib.util
import random
import re
from types import SimpleNamespace

import pytest

from orbit_remote.child.harness import call_timing
from orbit_remote.child.harness.call_timing import CallBench, TimedSide
from orbit_remote.common.launch_records import LaunchRecord
from orbit_remote.recording import recorder

pytestmark = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="no torch here")

EMPTY_NS = 1_500
AFTER_EVENT_NS = 400
"""A kernel starts so much later behind an event."""
L2 = 50 << 20


class Gpu:
    """`now` is its clock in ns; a call of a version moves it by what its kernels take. `host` is the clock of a host
    that takes `host_ns` for each thing that it asks for.
    """

    def __init__(self, host_ns: int = 0) -> None:
        self.now = 1_000_000
        self.host = 0
        self.host_ns = host_ns
        self.log: list[str] = []
        self.records: list[LaunchRecord] = []
        self.how = "concurrent"
        self.after_event = False

    def kernel(self, name: str, ns: int, stream: int = 7, gap: int = 0, beside: bool = False) -> None:
        self.ask()
        start = self.now + gap + self.after_event * AFTER_EVENT_NS
        self.after_event = False
        if self.how != "nothing":
            self.records.append(LaunchRecord(name, start, start + ns, (4, 1, 1), (128, 1, 1), stream=stream))
        if not beside:
            self.now = start + ns

    def ask(self) -> None:
        self.host += self.host_ns
        self.now = max(self.now, self.host)

    def synchronize(self) -> None:
        self.host = max(self.host, self.now)

    @property
    def torch(self) -> SimpleNamespace:
        import torch

        gpu = self

        class Event:
            def __init__(self, enable_timing: bool) -> None:
                assert enable_timing

            def record(self) -> None:
                gpu.ask()
                gpu.now += EMPTY_NS
                gpu.after_event = True
                self.at = gpu.now

            def query(self) -> bool:
                return self.at <= gpu.host

            def elapsed_time(self, end: Event) -> float:
                return (end.at - self.at) / 1e6

        def total(data: range, *, dim: int, out: object) -> None:
            flushes = len(data) * 4 >= L2
            gpu.log += ["flush"] if flushes else []
            gpu.kernel("reduce", 40_000 if flushes else 2_000)

        def sleep(cycles: int) -> None:
            gpu.ask()
            gpu.now += cycles // 2

        cuda = SimpleNamespace(
            Event=Event, synchronize=gpu.synchronize, _sleep=sleep, current_device=lambda: 0,
            get_device_properties=lambda _: SimpleNamespace(L2_cache_size=L2),
        )  # fmt: skip
        return SimpleNamespace(
            cuda=cuda,
            sum=total,
            float32=None,
            zeros=lambda size, **_: range(size or 1),
            Tensor=torch.Tensor,
            no_grad=torch.no_grad,
        )


class Records(recorder.Native):
    """The recorder of that GPU."""

    def __init__(self, gpu: Gpu) -> None:
        self._gpu = gpu

    def record(self, how) -> bool:
        self._gpu.how = how
        return True

    def fresh(self) -> list[LaunchRecord]:
        taken, self._gpu.records = self._gpu.records, []
        return taken

    def end(self, why: str = "") -> None:
        pass


class Even(random.Random):
    """A coin that always falls the same way."""

    def shuffle(self, x) -> None:
        del x


def timed(gpu: Gpu, *sides: TimedSide, sets=None, written=False, recording=True, coin=None):
    import torch

    made = Records(gpu) if recording else recorder.Nothing()
    contents = sets or [[torch.zeros(4)], [torch.ones(4)]]
    buffers = [torch.empty(4)]
    return CallBench(gpu.torch, made, coin or Even()).time(
        sides, contents, buffers, written=written, budget_s=0.2
    )


def version(gpu: Gpu, name: str, *kernels: int, **fields) -> TimedSide:
    def call(data) -> None:
        gpu.log.append(f"{name}({data[0][0]:g})")
        for at, ns in enumerate(kernels):
            gpu.kernel(f"{name}_{at}", ns, **fields)

    return TimedSide(name, call)


def test_a_call_is_timed_from_its_first_kernel_to_its_last_as_a_kernel_of_known_length_shows():
    gpu = Gpu()
    result = timed(gpu, version(gpu, "new", 30_000), version(gpu, "old", 20_000, 25_000, gap=1_000))
    assert [round(timing.median) for timing in result.cold] == [30_000, 47_000]
    assert [round(timing.median) for timing in result.warm] == [30_000, 47_000]
    assert result.cold[0].label.startswith("cold L2, n=")
    assert result.cold[0].clock == "CUDA events, less the 1.90 µs that a pair shows beyond its kernels"
    assert result.comparison.verdict == "faster"
    assert result.comparison.ratio == pytest.approx(30 / 47)
    assert [len(seen.records) for seen in result.seen] == [1, 2]
    assert result.seen[1].busy_ns == 45_000
    assert result.remarks == ()


def test_a_slow_host_is_neither_in_the_times_nor_in_what_is_taken_off():
    gpu = Gpu(host_ns=200_000)
    result = timed(gpu, version(gpu, "new", 30_000), version(gpu, "old", 20_000, 25_000))
    assert [round(timing.median) for timing in (*result.cold, *result.warm)] == [30_000, 45_000] * 2
    assert result.cold[0].clock == "CUDA events, less the 1.90 µs that a pair shows beyond its kernels"


def test_cold_rounds_take_turns_behind_a_flush_with_other_contents_each_time():
    gpu = Gpu()
    timed(gpu, version(gpu, "a", 1_000), version(gpu, "b", 1_000))
    log = " ".join(gpu.log)
    assert "flush a(1) flush b(1) flush a(0) flush b(0) flush a(1)" in log


def test_the_order_of_each_round_is_drawn():
    gpu = Gpu()
    timed(gpu, version(gpu, "a", 1_000), version(gpu, "b", 1_000), coin=random.Random(2))
    calls = re.findall(r"flush (\w)", " ".join(gpu.log))
    rounds = [first + second for first, second in zip(calls[::2], calls[1::2], strict=False)]
    assert " ".join(rounds[:8]) == "ab ba ba ba ab ba ab ab"


def test_warm_calls_follow_one_of_the_same_version_with_the_same_contents():
    gpu = Gpu()
    timed(gpu, version(gpu, "a", 1_000), version(gpu, "b", 1_000))
    rounds = " ".join(gpu.log[-8:])
    assert rounds in ("a(1) a(1) b(1) b(1) a(0) a(0) b(0) b(0)", "a(0) a(0) b(0) b(0) a(1) a(1) b(1) b(1)")


@pytest.mark.parametrize("written", [True, False])
def test_inputs_that_calls_write_to_are_given_anew_before_the_timed_call(written):
    import torch

    gpu = Gpu()
    seen: list[float] = []

    def call(data) -> None:
        seen.append(float(data[0][0]))
        data[0] += 1
        gpu.kernel("k", 1_000)

    timed(gpu, TimedSide("a", call), sets=[[torch.zeros(4)]], written=written)
    assert set(seen[-4:]) == ({0.0} if written else {0.0, 1.0})


def test_work_on_another_stream_is_in_the_times():
    gpu = Gpu()
    hidden = version(gpu, "new", 90_000, stream=13, beside=True)
    result = timed(gpu, hidden, version(gpu, "old", 50_000))
    assert [round(timing.median) for timing in result.cold] == [90_000, 50_000]
    assert result.cold[0].clock == result.cold[1].clock == "records of all streams"
    assert result.comparison.verdict == "slower"
    assert result.remarks == ("new uses more than one stream: its times cover the kernels of all of them",)


def test_a_call_that_leaves_the_gpu_idle_is_told():
    gpu = Gpu()
    result = timed(gpu, version(gpu, "new", 10_000, 10_000, gap=15_000))
    assert result.comparison is None
    assert result.remarks == (
        "for 60 % of the time of new none of its kernels runs: it copies memory, or the GPU waits for the host",
    )
    assert timed(gpu, version(gpu, "none")).remarks == ("none launched no kernel",)


def test_without_records_it_is_said_what_would_not_be_seen():
    gpu = Gpu()
    result = timed(gpu, version(gpu, "new", 10_000), recording=False)
    assert result.seen == (None,)
    assert round(result.cold[0].median) == 10_000 + AFTER_EVENT_NS  # which nothing shows here
    assert "other streams" in result.remarks[0]


def test_the_gpu_is_kept_busy_while_the_host_launches():
    """So that a kernel's start is not the host's."""
    import torch

    gpu = Gpu()
    slept: list[int] = []
    made = gpu.torch
    made.cuda._sleep = slept.append
    bench = CallBench(made, Records(gpu))
    side = version(gpu, "a", 1_000)
    bench.time([side], [[torch.zeros(4)]], [torch.empty(4)], written=False, budget_s=0.2)
    least = call_timing._LEAST_LEAD_NS * call_timing._CYCLES_A_NS
    assert slept
    assert min(slept) >= least
