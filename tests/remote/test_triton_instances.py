"""Which launch was of which compiled kernel, and which launches were autotuning's; no GPU needed."""

from __future__ import annotations

import itertools
import json
import os
import runpy
import subprocess
import sys
import types

import pytest

from orbit_remote import PACKAGE
from orbit_remote.child import python_job, triton_instances
from orbit_remote.common import messages as c
from orbit_remote.common.launch_records import LaunchRecord, series
from orbit_remote.recording import recorder


def instance(block: int = 128, **fields) -> c.Resources:
    known = {
        "symbol": "add", "name": "add", "place": c.Place("k.py", 6), "threads": 128, "dynamic_shared": 0,
        "registers": 24, "stack": 0, "architecture": "sm_90",
        "constants": {"BLOCK": str(block), "num_warps": "4"},
    }  # fmt: skip
    return c.Resources(**(known | fields))


def launch(start: int = 100, **fields) -> LaunchRecord:
    known = {"symbol": "add", "start_ns": start, "end_ns": start + 50, "grid": (4, 1, 1), "block": (128, 1, 1),
             "registers": 24, "static_shared": 0, "dynamic_shared": 0}  # fmt: skip
    return LaunchRecord(**(known | fields))


@pytest.mark.parametrize(
    ("other", "record"),
    [
        (instance(512, threads=256), launch(block=(256, 1, 1))),
        (instance(512, dynamic_shared=4096), launch(dynamic_shared=4096)),
        (instance(512, registers=70), launch(registers=72)),
    ],
)
def test_a_record_tells_instances_of_one_name_apart(other, record):
    matched = triton_instances.match(series([record, launch()]), [instance(128), other])
    assert [resources.constants["BLOCK"] for _, resources in matched.launches] == ["512", "128"]


def test_registers_are_recorded_in_steps_of_eight():
    [(_, resources)] = triton_instances.match(
        series([launch(registers=24)]), [instance(registers=18)]
    ).launches
    assert resources.registers == 18


def test_of_instances_that_cannot_be_told_apart_only_what_they_share_is_said():
    [(_, resources)] = triton_instances.match(series([launch()]), [instance(128), instance(256)]).launches
    assert resources.constants == {"num_warps": "4"}


def test_a_launch_of_one_of_two_functions_of_a_name_is_of_neither():
    other = instance(place=c.Place("lib/other.py", 2))
    matched = triton_instances.match(series([launch()]), [instance(), other])
    assert not matched.launches
    [remark] = matched.unclear
    assert (
        remark
        == "the kernels at k.py:6 and other.py:2 have one name, add: which of them was launched is not known. "
        "Give them names of their own"
    )


def test_two_functions_of_a_name_are_told_apart_by_what_they_use():
    other = instance(place=c.Place("lib/other.py", 2), registers=70)
    [(_, resources)] = triton_instances.match(series([launch(registers=72)]), [instance(), other]).launches
    assert resources.place == c.Place("lib/other.py", 2)


def test_kernels_that_are_not_tritons_are_counted():
    matched = triton_instances.match(series([launch(symbol="at_native_fill"), launch()]), [instance()])
    assert (len(matched.launches), matched.not_triton) == (1, 1)


def test_a_record_without_shared_memory_and_registers_still_fits():
    record = launch(static_shared=None, dynamic_shared=None, registers=None)
    [(_, resources)] = triton_instances.match(series([record]), [instance()]).launches
    assert resources.constants["BLOCK"] == "128"


class Clock:
    """A recorder whose time is the number of times it was asked."""

    def __init__(self) -> None:
        self.ticks = itertools.count(0, 1000)
        self.ended: list[str] = []

    def timestamp(self) -> int:
        return next(self.ticks)

    def end(self, why: str = "") -> None:
        self.ended.append(why)


@pytest.mark.parametrize("fails", [False, True])
def test_launches_made_while_a_configuration_is_tried_are_autotunings(fails):
    triton = pytest.importorskip("triton")
    autotuner = pytest.importorskip("triton.runtime.autotuner")

    def kernel(x): ...

    def bench(_call, quantiles):
        if fails:
            raise RuntimeError("does not compile")
        return [1.0] * len(quantiles)

    original = autotuner.Autotuner._bench
    configuration = triton.Config({})
    tuner = autotuner.Autotuner(kernel, ["x"], [configuration], [], None, None, do_bench=bench)
    tuner.nargs = {}
    with python_job.autotuning(Clock()) as tuning:
        for _ in range(2):
            try:
                tuner._bench(config=configuration)
            except RuntimeError:
                assert fails
    assert tuning.spans == [(0, 1000), (2000, 3000)]
    [kept], dropped = tuning.without(series([launch(500), launch(1500), launch(2500), launch(3500)]))
    assert (list(kept.starts), dropped) == ([1500, 3500], 2)
    assert autotuner.Autotuner._bench is original


def test_what_triton_tried_last_is_known_by_kernel():
    triton = pytest.importorskip("triton")
    autotuner = pytest.importorskip("triton.runtime.autotuner")
    times = iter([3.0, 5.0, float("inf"), 2.0, 1.0])

    def kernel(x): ...

    tuner = autotuner.Autotuner(
        kernel,
        ["x"],
        [triton.Config({})],
        [],
        None,
        None,
        do_bench=lambda _call, quantiles: [next(times)] * len(quantiles),
    )
    tuner.nargs = {}
    small, large, huge = (triton.Config({"BLOCK": size}) for size in (64, 128, 4096))
    with python_job.autotuning(Clock()) as tuning:
        for configuration in (small, large, huge):
            tuner._bench(config=configuration)
        first = [
            (tried.configuration.split(",")[0], tried.median, tried.chosen) for tried in tuning.of("kernel")
        ]
        tuner.nargs = {}  # for arguments of another size
        for configuration in (small, large):
            tuner._bench(config=configuration)
    assert first == [("BLOCK: 64", 3e6, True), ("BLOCK: 128", 5e6, False), ("BLOCK: 4096", None, False)]
    assert [(tried.configuration.split(",")[0], tried.median) for tried in tuning.of("kernel")] == [
        ("BLOCK: 128", 1e6), ("BLOCK: 64", 2e6),
    ]  # fmt: skip
    assert not any(tried.chosen for tried in tuning.of("kernel"))  # launches may be of either size
    assert tuning.of("kernel_2") == tuning.of("kernel")
    assert tuning.of("kernels") == ()


def test_what_tilelang_tried_is_read_from_what_it_prints(monkeypatch):
    """TileLang itself needs a GPU to tune."""

    class Bar:
        @staticmethod
        def write(text):
            print(text)

    class AutoTuner:
        def run(self):
            tuner.tqdm.write("Tuned Latency 0.5 with config {'block': 128} at index 0")
            tuner.tqdm.write("Tuned Latency 0.25 with config {'block': 256} at index 1")
            return types.SimpleNamespace(func=types.SimpleNamespace(attrs={"global_symbol": "add"}))

    tuner = types.ModuleType("tilelang.autotuner.tuner")
    tuner.AutoTuner, tuner.tqdm = AutoTuner, Bar
    for name in ("tilelang", "tilelang.autotuner"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    monkeypatch.setitem(sys.modules, "tilelang.autotuner.tuner", tuner)
    with python_job.autotuning(Clock(), languages=("tilelang",)) as tuning:
        AutoTuner().run()
    assert [(tried.configuration, tried.median) for tried in tuning.of("add_kernel")] == [
        ("block: 256", 250_000.0), ("block: 128", 500_000.0),
    ]  # fmt: skip
    assert tuner.tqdm is Bar


def test_what_another_language_launches_while_it_tunes_is_autotunings(monkeypatch):
    class BoundKernel:
        def autotune(self):
            return "the best"

    module = types.ModuleType("helion.runtime.kernel")
    module.BoundKernel = BoundKernel
    for name in ("helion", "helion.runtime", "helion.runtime.kernel"):
        monkeypatch.setitem(sys.modules, name, module)
    with python_job.autotuning(Clock(), languages=("helion",)) as tuning:
        assert BoundKernel().autotune() == "the best"
    assert tuning.spans == [(0, 1000)]
    with python_job.autotuning(Clock()) as tuning:
        BoundKernel().autotune()
    assert not tuning.spans


YIELDS = """
import sys, json
sys.path.insert(0, sys.argv[1])
from orbit_remote.recording import recorder
class Recorder:
    ended = []
    def end(self, why=""): self.ended.append(why)
recorder._yield_to_profilers(Recorder())
import torch
from torch.profiler import profile, ProfilerActivity
with profile(activities=[ProfilerActivity.CPU]) as found:
    torch.zeros(3) + 1
print(json.dumps([Recorder.ended, any("add" in e.key for e in found.key_averages())]))
"""


@pytest.mark.slow
def test_the_users_profiler_comes_first():
    pytest.importorskip("torch")
    remote = str(PACKAGE.parent)
    done = subprocess.run(
        [sys.executable, "-c", YIELDS, remote], capture_output=True, text=True, timeout=480, check=True,
        env={k: v for k, v in os.environ.items() if not k.startswith("COV")},
    )  # fmt: skip
    assert json.loads(done.stdout.splitlines()[-1]) == [[recorder.YIELDED], True]


def test_a_trace_of_torchs_profiler_is_read_in_nanoseconds():
    kineto = object.__new__(recorder.Kineto)
    kineto._offset, kineto._remarks = 5_000_000_000, ("recorded by torch.profiler",)
    kernel = {
        "cat": "kernel", "name": "add", "ts": 12.345, "dur": 3.2,
        "args": {"grid": [4, 2, 1], "block": [128, 1, 1], "registers per thread": 24, "device": 1, "stream": 7,
                 "shared memory": 0, "correlation": 9},
    }  # fmt: skip
    kineto._events = [{"cat": "cpu_op", "name": "aten::add"}, kernel]
    [record] = kineto.recorded().records
    assert (record.start_ns, record.end_ns) == (5_000_012_345, 5_000_015_545)
    assert (record.grid, record.block, record.registers) == ((4, 2, 1), (128, 1, 1), 24)
    assert (record.stream, record.device) == (7, 1)
    assert record.static_shared is None


def test_what_autotuning_chose_is_told_of_each_kernel_that_was_tuned():
    """Triton's own objects; the choice is set by hand, because tuning needs a GPU."""
    import triton
    from triton import language as tl

    configs = [triton.Config({"BLOCK": 64}, num_warps=2), triton.Config({"BLOCK": 128}, num_warps=4)]

    @triton.autotune(configs, key=[])
    @triton.jit
    def scale(x, BLOCK: tl.constexpr):  # noqa: N803 - as kernels are written
        tl.store(x + tl.arange(0, BLOCK), 1.0)

    assert not [name for name in triton_instances.tuned() if name.endswith(" for scale")]
    scale.best_config = configs[1]
    (message,) = [name for name in triton_instances.tuned() if name.endswith(" for scale")]
    assert message.startswith("autotuning chose BLOCK: 128, num_warps: 4")


def test_unloaded_kernels_are_loaded_anew_at_their_next_launch(monkeypatch):
    loaded = types.SimpleNamespace(device_caches={0: ({"key": "a kernel"},)})
    older = types.SimpleNamespace()  # of a Triton that keeps them elsewhere
    monkeypatch.setattr(triton_instances, "jit_functions", lambda: [loaded, older])
    triton_instances.unload()
    assert loaded.device_caches == {}


def test_what_torch_compile_launches_under_the_name_of_a_kernel_is_a_copy(tmp_path, monkeypatch):
    """As seen with torch 2.11: the kernel itself has no instance, and torch drops the Python function of what it makes."""
    pytest.importorskip("triton")
    kernels = {}
    for place in ("project/k.py", "project/other.py", "torchinductor/own.py"):
        path = tmp_path / place
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"import triton\n\n@triton.jit\ndef of_{path.stem}(x): ...\n")
        kernels[path.stem] = runpy.run_path(str(path))[f"of_{path.stem}"]
    kernels["own"].fn = None
    assert kernels["own"] not in triton_instances.jit_functions()
    known = [instance(symbol="of_other", name="of_other")]
    monkeypatch.delitem(sys.modules, triton_instances._COPIES, raising=False)
    assert triton_instances.copied(known, str(tmp_path / "project")) == set()
    monkeypatch.setitem(sys.modules, triton_instances._COPIES, types.ModuleType("heuristics"))
    assert triton_instances.copied(known, str(tmp_path / "project")) == {"of_k"}
