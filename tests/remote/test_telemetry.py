"""Telemetry against a fake NVML: there is no GPU here. tests/gpu has the same questions for a real one.

The fake is a module object with pynvml's names, put where `import pynvml` finds it. It knows nothing
of pynvml's behaviour but what is written here: functions return numbers or raise NVMLError.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from orbit_remote.common.messages import Device
from orbit_remote.process import process_groups
from orbit_remote.recording import gpu_neighbours, telemetry


class NVMLError(Exception):
    pass


class FakeNvml(ModuleType):
    """An H100 as NVML reports one; `broken` names the functions that raise, `missing` those not there."""

    def __init__(self, *, broken: set[str] | None = None, missing: set[str] | None = None) -> None:
        super().__init__("pynvml")
        self.open = 0
        self.reasons = 0x1
        self.sm_clock = 1980
        self.used = 700_000_000
        self.energy = 5_000_000
        self.compute_mode = 0
        self.processes = {os.getpid(): 90}
        """Process -> per cent of the time in which it used the GPU; None for one that NVML only lists."""
        self._broken, self._missing = broken or set(), missing or set()

    def __getattr__(self, name: str):
        answers = {
            "nvmlInit": lambda: self._count(1),
            "nvmlShutdown": lambda: self._count(-1),
            "nvmlSystemGetDriverVersion": lambda: "580.159.04",
            "nvmlDeviceGetCount": lambda: 1,
            "nvmlDeviceGetHandleByIndex": self._handle,
            "nvmlDeviceGetHandleByUUID": self._handle,
            "nvmlDeviceGetName": lambda h: b"NVIDIA H100 80GB HBM3",
            "nvmlDeviceGetUUID": lambda h: "GPU-fake",
            "nvmlDeviceGetCudaComputeCapability": lambda h: (9, 0),
            "nvmlDeviceGetNumGpuCores": lambda h: 16896,
            "nvmlDeviceGetMemoryInfo": lambda h: SimpleNamespace(total=85_520_809_984, used=self.used),
            "nvmlDeviceGetMaxClockInfo": lambda h, kind: {1: 1980, 2: 2619}[kind],
            "nvmlDeviceGetMemoryBusWidth": lambda h: 5120,
            "nvmlDeviceGetDefaultApplicationsClock": lambda h, kind: 1755,
            "nvmlDeviceGetClockInfo": lambda h, kind: {1: self.sm_clock, 2: 2619}[kind],
            "nvmlDeviceGetComputeMode": lambda h: self.compute_mode,
            "nvmlDeviceGetTemperature": lambda h, sensor: 41,
            "nvmlDeviceGetPowerUsage": lambda h: 118_500,
            "nvmlDeviceGetUtilizationRates": lambda h: SimpleNamespace(gpu=97, memory=40),
            "nvmlDeviceGetTotalEnergyConsumption": lambda h: self.energy,
            "nvmlDeviceGetComputeRunningProcesses": lambda h: [
                SimpleNamespace(pid=pid) for pid in self.processes
            ],
            "nvmlDeviceGetGraphicsRunningProcesses": lambda h: [],
            "nvmlDeviceGetProcessUtilization": self._shares,
            "nvmlDeviceGetCurrentClocksEventReasons": lambda h: self.reasons,
            "nvmlDeviceGetCurrentClocksThrottleReasons": lambda h: 0x8,
        }
        if name in self._missing or name not in answers:
            raise AttributeError(name)
        return self._raise if name in self._broken else answers[name]

    def _raise(self, *arguments: object) -> None:
        raise NVMLError("Not Supported")

    def _shares(self, handle: object, since_us: int) -> list[SimpleNamespace]:
        """Stand in for NVML's Python binding, which raises if there is no sample."""
        del handle
        known = {pid: used for pid, used in self.processes.items() if used is not None}
        if not known:
            raise NVMLError("Not Found")
        return [SimpleNamespace(pid=pid, timeStamp=since_us + 1, smUtil=used) for pid, used in known.items()]

    def _count(self, by: int) -> None:
        self.open += by

    def _handle(self, device: int | str) -> str:
        if device not in (0, "GPU-fake"):
            raise NVMLError("Not Found")
        return "handle"


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch):
    def put(**kwargs: set[str]) -> FakeNvml:
        fake = FakeNvml(**kwargs)
        monkeypatch.setitem(sys.modules, "pynvml", fake)
        return fake

    return put


class Samples(list[telemetry._Sample]):
    """A sampler's samples, whose number can be waited for."""

    def __init__(self) -> None:
        super().__init__()
        self._more = threading.Condition()

    def append(self, sample: telemetry._Sample) -> None:
        with self._more:
            super().append(sample)
            self._more.notify_all()

    def wait_for(self, number: int) -> None:
        with self._more:
            assert self._more.wait_for(lambda: len(self) >= number, 120), (
                f"{len(self)} of {number} samples came"
            )


def counted(sampler: telemetry.Sampler) -> Samples:
    samples = Samples()
    sampler._samples = samples
    return samples


def test_the_gpu_as_nvml_names_it(install) -> None:
    fake = install()
    assert telemetry.problem() is None
    assert telemetry.devices() == (
        Device(
            name="NVIDIA H100 80GB HBM3",
            index=0,
            capability="9.0",
            uuid="GPU-fake",
            driver="580.159.04",
            multiprocessors=132,
            memory=85_520_809_984,
            sm_clock_mhz=1980,
            memory_clock_mhz=2619,
            bus_width_bits=5120,
        ),
    )
    assert fake.open == 0


@pytest.mark.parametrize(("mode", "exclusive"), [(0, False), (1, True), (2, False), (3, True)])
def test_a_gpu_for_one_process_at_a_time_says_so(install, mode: int, *, exclusive: bool) -> None:
    install().compute_mode = mode
    (device,) = telemetry.devices()
    assert device.exclusive is exclusive


def test_what_a_gpu_does_not_report_is_unknown(install) -> None:
    install(
        broken={"nvmlDeviceGetCudaComputeCapability", "nvmlDeviceGetMemoryInfo", "nvmlDeviceGetMaxClockInfo"},
        missing={"nvmlDeviceGetMemoryBusWidth", "nvmlDeviceGetNumGpuCores"},
    )
    (device,) = telemetry.devices()
    assert device == Device(
        name="NVIDIA H100 80GB HBM3", capability=None, uuid="GPU-fake", driver="580.159.04"
    )


@pytest.mark.parametrize(
    ("capability", "cores", "multiprocessors"),
    [
        ((7, 5), 2560, 40),
        ((8, 0), 6912, 108),
        ((8, 9), 18176, 142),
        ((9, 0), 16900, None),
        ((7, 0), 5120, None),
    ],
)
def test_multiprocessors_are_counted_from_cores(capability, cores, multiprocessors) -> None:
    assert telemetry._multiprocessors(cores, capability) == multiprocessors


def test_without_the_binding(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert telemetry.devices() == ()
    assert telemetry.problem() == "NVML cannot be used: nvidia-ml-py is not installed"
    with telemetry.Sampler() as sampler:
        pass
    assert (sampler.telemetry(), sampler.clocks) == (None, [])
    assert sampler.problem == telemetry.problem()


def test_without_a_driver(install) -> None:
    install(broken={"nvmlInit"})
    assert telemetry.devices() == ()
    with telemetry.Sampler() as sampler:
        pass
    assert sampler.telemetry() is None
    assert sampler.problem == "NVML cannot be used: Not Supported"


def test_a_gpu_that_is_not_there(install) -> None:
    fake = install()
    with telemetry.Sampler("GPU-other") as sampler:
        pass
    assert sampler.problem == "NVML knows no GPU GPU-other"
    assert sampler.telemetry() is None
    assert fake.open == 0


def test_a_sampler_states_lowest_median_and_highest(install) -> None:
    fake = install()
    sampler = telemetry.Sampler("GPU-fake", period_s=0.001)
    samples = counted(sampler)
    with sampler:
        samples.wait_for(3)
        fake.sm_clock, fake.reasons, fake.used = 1200, 0x4 | 0x40, 900_000_000
        samples.wait_for(len(samples) + 3)
        fake.reasons, fake.used = 0x1, 700_000_000
        samples.wait_for(len(samples) + 2)
    result = sampler.telemetry()
    assert result is not None
    assert result.samples == len(sampler.clocks) >= 6
    assert result.sm_clock_mhz is not None
    assert (result.sm_clock_mhz[0], result.sm_clock_mhz[2]) == (1200, 1980)
    assert result.memory_clock_mhz == (2619, 2619, 2619)
    assert result.temperature_c == (41, 41, 41)
    assert result.power_w == (118.5, 118.5, 118.5)
    assert result.memory_used == 900_000_000
    assert result.throttle_reasons == ("power cap", "thermal slowdown (hardware)")
    assert result.default_sm_clock_mhz == 1755
    assert sampler.problem is None


def sampler_thread() -> threading.Thread:
    (thread,) = (thread for thread in threading.enumerate() if thread.name == "nvml-sampler")
    return thread


def test_leaving_ends_the_thread_which_closes_nvml_while_nobody_waits(install, monkeypatch) -> None:
    fake = install()
    may_close, shutdown = threading.Event(), fake.nvmlShutdown
    monkeypatch.setattr(fake, "nvmlShutdown", lambda: (may_close.wait(), shutdown()), raising=False)
    with telemetry.Sampler() as sampler:
        thread = sampler_thread()
    assert thread.is_alive()
    assert sampler.clocks  # at least the one at the end, however short the block
    may_close.set()
    thread.join()
    assert fake.open == 0


def test_an_error_in_the_block_is_not_hidden_and_still_ends_the_thread(install) -> None:
    fake = install()
    sampler = telemetry.Sampler()
    with pytest.raises(ZeroDivisionError), sampler:
        _ = 1 / 0
    sampler._thread.join()
    assert fake.open == 0


def test_fields_that_are_not_supported_are_unknown_not_zero(install) -> None:
    install(
        broken={
            "nvmlDeviceGetPowerUsage",
            "nvmlDeviceGetTemperature",
            "nvmlDeviceGetMemoryInfo",
            "nvmlDeviceGetDefaultApplicationsClock",
            "nvmlDeviceGetCurrentClocksEventReasons",
            "nvmlDeviceGetCurrentClocksThrottleReasons",
        }
    )
    with telemetry.Sampler() as sampler:
        pass
    result = sampler.telemetry()
    assert result is not None
    assert (result.power_w, result.temperature_c, result.memory_used) == (None, None, None)
    assert (result.default_sm_clock_mhz, result.throttle_reasons) == (None, None)
    assert result.sm_clock_mhz == (1980, 1980, 1980)
    assert sampler.problem == "this GPU does not report why it throttles"


def test_an_older_binding_is_asked_by_the_older_name(install) -> None:
    install(missing={"nvmlDeviceGetCurrentClocksEventReasons"})
    with telemetry.Sampler() as sampler:
        pass
    result = sampler.telemetry()
    assert result is not None
    assert result.throttle_reasons == ("hardware slowdown",)


def test_only_the_samples_between_two_moments_count(install) -> None:
    fake = install()
    sampler = telemetry.Sampler(period_s=0.001)
    samples = counted(sampler)
    with sampler:
        samples.wait_for(2)
        fake.sm_clock = 500
        samples.wait_for(len(samples) + 3)
    times = [t for t, clock in sampler.clocks if clock == 500]
    within = sampler.telemetry(times[0], times[1])
    assert within is not None
    assert (within.samples, within.sm_clock_mhz) == (2, (500, 500, 500))
    never = sampler.telemetry(1, 2)
    assert never is not None
    assert (never.samples, never.sm_clock_mhz, never.memory_used) == (0, None, None)


NOBODY = 2**22 + 1
"""A process id that Linux gives to none."""


@pytest.mark.parametrize(
    ("processes", "remarks"),
    [
        ({os.getpid(): 90}, ()),
        ({os.getpid(): 90, NOBODY: 0}, ()),
        (
            {os.getpid(): 60, NOBODY: 37},
            (
                f"other processes used the GPU meanwhile, so times may be longer: process {NOBODY} for 37 % of the time",
            ),
        ),
        (
            {os.getpid(): 20} | {NOBODY + at: 20 - at for at in range(5)},
            (
                "other processes used the GPU meanwhile, so times may be longer: "
                + ", ".join(f"process {NOBODY + at} for {20 - at} % of the time" for at in range(3))
                + " and 2 more",
            ),
        ),
        (
            {os.getpid(): None, NOBODY: None},
            (
                f"other processes have the GPU open: process {NOBODY}; NVML does not say whether they used it",
            ),
        ),
        ({NOBODY: 37}, ()),
    ],
    ids=[
        "ours alone", "one that only has it open", "one that uses it", "many", "shares are not counted",
        "numbers of another name space",
    ],
)  # fmt: skip
def test_other_processes_that_use_the_gpu_are_a_remark(install, processes, remarks) -> None:
    install().processes = processes
    with telemetry.Sampler() as sampler:
        pass
    assert sampler.remarks == remarks
    assert sampler.disturbed == any("used the GPU meanwhile" in remark for remark in remarks)


async def test_a_process_of_ours_is_none_of_the_others() -> None:
    child = await asyncio.create_subprocess_exec("sleep", "600")
    try:
        assert gpu_neighbours._is_ours(child.pid)
        assert gpu_neighbours._name(child.pid) == f"sleep (process {child.pid})"
        assert not gpu_neighbours._is_ours(1)
    finally:
        child.kill()
        await child.wait()


def test_a_process_of_the_same_worker_is_ours(monkeypatch) -> None:
    monkeypatch.setenv(process_groups.MARK, "this-worker")
    # it prints its own number: between fork and exec the system shows no environment
    program = "import os, time; print(os.getpid(), flush=True); time.sleep(600)"
    command = ["sh", "-c", f"{sys.executable} -c '{program}' & exit"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as shell:
        assert shell.stdout
        orphan = int(shell.stdout.readline())
        try:
            assert gpu_neighbours._is_ours(orphan)
        finally:
            os.kill(orphan, signal.SIGKILL)


@pytest.mark.parametrize(
    ("readings", "energy"),
    [
        ([5_000_000, 5_000_000, 5_012_000, 5_012_000, 5_025_000, 5_039_000], (39.0, 13.0)),
        ([5_000_000, 5_000_000, 5_012_000], (None, None)),
        ([None, None], (None, None)),
        ([], (None, None)),
    ],
    ids=["several steps", "one step tells nothing", "no counter", "no sample"],
)
def test_energy_is_what_the_counter_advanced(readings, energy) -> None:
    assert telemetry._energy(readings) == energy


@pytest.mark.parametrize(
    ("from_s", "energy"),
    [(0.0, [5_000_000, None]), (1e9, [None, None])],
    ids=["each sample but the last", "a short run"],
)
def test_no_run_waits_for_its_energy(install, monkeypatch, from_s, energy) -> None:
    install()
    monkeypatch.setattr(telemetry, "ENERGY_FROM_S", from_s)
    sampler = telemetry.Sampler(period_s=1e9, energy_s=0.0)
    samples = counted(sampler)
    with sampler:
        samples.wait_for(1)
    assert [sample.energy_mj for sample in samples] == energy


def test_the_series_has_both_ends_and_a_bounded_number_of_points(install) -> None:
    install()
    sampler = telemetry.Sampler(period_s=0.0001)
    samples = counted(sampler)
    with sampler:
        samples.wait_for(300)
    sampled = sampler.telemetry()
    assert sampled
    assert sampled.series
    assert sampled.utilization == (97, 97, 97)
    assert len(sampled.series.at_s) == len(sampled.series.power_w) == telemetry.MOST_POINTS
    assert sampled.series.at_s[0] == 0
    assert sampled.series.at_s[-1] == round((samples[-1].time_ns - samples[0].time_ns) / 1e9, 3)


@pytest.mark.parametrize(
    ("seconds", "readings", "use"),
    [
        (0.2, (0.0, 0.0), None),  # of the time before: the kernel ran all the same
        (0.2, (0.0, 40.0), (0.0, 20.0, 40.0)),
        (2.0, (0.0, 0.0), (0.0, 0.0, 0.0)),
        (0.2, (None, None), None),
    ],
)
def test_a_use_of_nothing_is_absent_where_the_run_is_shorter_than_its_window(seconds, readings, use) -> None:
    sampler = telemetry.Sampler()
    sampler._samples = [
        telemetry._Sample(int(at * seconds * 1e9), None, None, None, None, None, None, reading, None)
        for at, reading in enumerate(readings)
    ]
    sampled = sampler.telemetry()
    assert sampled
    assert sampled.utilization == use


def test_a_program_is_sampled_from_when_it_has_opened_cuda(install, monkeypatch) -> None:
    monkeypatch.setattr(telemetry, "UNRECORDED_S", 1e9)
    install()
    opened, asked = threading.Event(), threading.Event()
    sampler = telemetry.Sampler(period_s=0.0, has_context=lambda: (asked.set(), opened.is_set())[1])
    samples = counted(sampler)
    with sampler:
        asked.wait()
        assert len(samples) == 1  # of before the program
        opened.set()
        samples.wait_for(3)
        opened.clear()
        asked.clear()
        asked.wait()
        held = len(samples)
    assert len(samples) in (held, held + 1, held + 2)  # one under way, and the one at the end


def test_a_program_that_cannot_be_recorded_is_sampled_after_a_while(install, monkeypatch) -> None:
    monkeypatch.setattr(telemetry, "UNRECORDED_S", 0.0)
    install()
    sampler = telemetry.Sampler(period_s=0.0, has_context=lambda: False)
    samples = counted(sampler)
    with sampler:
        samples.wait_for(3)


def test_reasons_have_names_idle_is_none_and_new_ones_are_not_lost() -> None:
    assert telemetry._names(0x1) == ()
    assert telemetry._names(0x1 | 0x20) == ("thermal slowdown (driver)",)
    assert telemetry._names(0x10000 | 0x2) == ("application clocks", "reason 0x10000")


def test_the_names_agree_with_the_binding_that_is_installed() -> None:
    pynvml = pytest.importorskip("pynvml")
    assert pynvml.nvmlClocksEventReasonGpuIdle == telemetry.IDLE
    assert telemetry.REASONS[pynvml.nvmlClocksEventReasonSwPowerCap] == "power cap"
    assert telemetry.REASONS[pynvml.nvmlClocksEventReasonHwThermalSlowdown] == "thermal slowdown (hardware)"
    assert telemetry.REASONS[pynvml.nvmlClocksEventReasonHwPowerBrakeSlowdown] == "power brake"
    constants = (pynvml.NVML_CLOCK_SM, pynvml.NVML_CLOCK_MEM, pynvml.NVML_TEMPERATURE_GPU)
    assert constants == (telemetry._SM, telemetry._MEMORY, telemetry._GPU_TEMPERATURE)


def test_every_question_exists_in_the_binding_that_is_installed() -> None:
    # `ask` answers None for a function that is not there, so a misspelt one would never be noticed
    pynvml = pytest.importorskip("pynvml")
    modules = (telemetry, gpu_neighbours)
    asked = {
        name for module in modules for name in re.findall(r'"(nvml\w+)"', Path(module.__file__).read_text())
    }
    assert len(asked) > 10
    assert not [name for name in asked if not hasattr(pynvml, name)]
