"""NVML's view of the GPU: which one it is, and its clocks while work runs.

NVML comes with the driver. Its Python binding `nvidia-ml-py` is optional and imported on first use. Anything that is
missing (the binding, the driver, a permission, a field this GPU does not report) is None or a sentence, never 0 and
never an exception.

NVML counts the GPUs by PCI bus and ignores CUDA_VISIBLE_DEVICES, so name a GPU by its UUID if the program may see
only some of them.
"""

from __future__ import annotations

import importlib
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from statistics import median
from types import TracebackType
from typing import Any, Self

from orbit_remote.common.lazy_dataclass import dataclass
from orbit_remote.common.measurements import Telemetry, TelemetrySeries
from orbit_remote.common.messages import Device
from orbit_remote.recording.gpu_neighbours import Neighbours

PERIOD_S = 0.02
"""Between two samples; NVML itself renews clocks and power about every 10 to 100 ms."""
_USE_WINDOW_NS = 1_000_000_000
"""NVML's utilization is of a window before the reading: of 1/6 s to a second, says its documentation."""

ENERGY_S = 0.1
"""Between two readings of the energy counter, the first after as long: each takes NVML 3 to 10 ms, and at every sample they held up a
program's start of CUDA by 50 ms (H100, 2026-11-26).
"""
ENERGY_FROM_S = 0.05
"""Nor is it read before this time, or in the last sample, for which a run waits: of a run of 40 ms the readings took a third (H200,
2026-11-28), and its counter advances too seldom to tell its energy.
"""

UNRECORDED_S = 1.0
"""How long a program that is watched through its recorder may take to open CUDA before it is sampled all the same, as where
nothing can be recorded. While a program opens CUDA and while it ends, NVML's questions and the driver hold each other up:
sampled from its start, a program took 50 ms longer (H100, 2026-11-26).
"""
_POLL_S = 0.003

LOOK_S = 0.25
"""Between two looks at who is on the GPU: NVML counts a process's share over 1/6 s to 1 s."""

MOST_POINTS = 120
"""As many moments of a series travel with a result, and are kept with it."""

IDLE = 0x1
REASONS: dict[int, str] = {
    0x2: "application clocks",
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x10: "sync boost",
    0x20: "thermal slowdown (driver)",
    0x40: "thermal slowdown (hardware)",
    0x80: "power brake",
    0x100: "display clocks",
    0x200: "board limit",
    0x400: "reliability",
}
"""nvml.h's `nvmlClocksEventReason…` (until CUDA 12 `nvmlClocksThrottleReason…`), without the idle one."""

_SM, _MEMORY = 1, 2  # nvmlClockType_t
_GPU_TEMPERATURE = 0  # nvmlTemperatureSensors_t
_EXCLUSIVE = (1, 3)  # nvmlComputeMode_t: of a thread (until CUDA 8), of a process

# FP32 lanes of a multiprocessor, by compute capability (CUDA Programming Guide, "Arithmetic
# Instructions"): NVML counts "cores", which are these.
_CORES_PER_SM = {(7, 5): 64, (8, 0): 64}
_CORES_PER_NEWER_SM = 128


class NvmlUnavailableError(Exception):
    """NVML cannot be asked. The message says why."""


class _Nvml:
    """An initialised NVML. Questions that the GPU does not answer return None."""

    def __init__(self) -> None:
        try:
            self.module: Any = importlib.import_module("pynvml")
        except ImportError:
            raise NvmlUnavailableError("NVML cannot be used: nvidia-ml-py is not installed") from None
        try:
            self.module.nvmlInit()
        except Exception as error:  # noqa: BLE001 - the binding raises more than its own NVMLError
            raise NvmlUnavailableError(f"NVML cannot be used: {error}") from None

    def ask(self, function: str, *arguments: Any) -> Any:
        call: Callable[..., Any] | None = getattr(self.module, function, None)
        if call is None:  # an older binding
            return None
        try:
            answer = call(*arguments)
        except Exception:  # noqa: BLE001 - see above: not supported, no permission, GPU lost, no symbol
            return None
        return answer.decode(errors="replace") if isinstance(answer, bytes) else answer

    def handle(self, device: int | str) -> Any:
        by = "nvmlDeviceGetHandleByUUID" if isinstance(device, str) else "nvmlDeviceGetHandleByIndex"
        handle = self.ask(by, device)
        if handle is None:
            raise NvmlUnavailableError(f"NVML knows no GPU {device}")
        return handle

    def close(self) -> None:
        with suppress(Exception):
            self.module.nvmlShutdown()


# -- which GPUs -------------------------------------------------------------------------------------


def problem() -> str | None:
    """Return why NVML cannot be asked on this machine. Return None if it can."""
    try:
        _Nvml().close()
    except NvmlUnavailableError as error:
        return str(error)
    return None


def devices() -> tuple[Device, ...]:
    """Return the GPUs of this machine in NVML's order. Return none if NVML cannot be asked (see `problem`).

    The clocks are the highest the GPU has, the memory is its whole size. `l2_bytes` stays None: NVML does not know
    it.
    """
    try:
        nvml = _Nvml()
    except NvmlUnavailableError:
        return ()
    try:
        driver = nvml.ask("nvmlSystemGetDriverVersion")
        handles = [
            nvml.ask("nvmlDeviceGetHandleByIndex", i) for i in range(nvml.ask("nvmlDeviceGetCount") or 0)
        ]
        return tuple(_device(nvml, i, h, driver) for i, h in enumerate(handles) if h is not None)
    finally:
        nvml.close()


def _device(nvml: _Nvml, index: int, handle: Any, driver: str | None) -> Device:
    capability: tuple[int, int] | None = _pair(nvml.ask("nvmlDeviceGetCudaComputeCapability", handle))
    memory = nvml.ask("nvmlDeviceGetMemoryInfo", handle)
    return Device(
        name=nvml.ask("nvmlDeviceGetName", handle) or "a GPU that does not state its name",
        index=index,
        capability=f"{capability[0]}.{capability[1]}" if capability else None,
        uuid=nvml.ask("nvmlDeviceGetUUID", handle),
        driver=driver,
        multiprocessors=_multiprocessors(nvml.ask("nvmlDeviceGetNumGpuCores", handle), capability),
        memory=memory.total if memory is not None else None,
        sm_clock_mhz=nvml.ask("nvmlDeviceGetMaxClockInfo", handle, _SM),
        memory_clock_mhz=nvml.ask("nvmlDeviceGetMaxClockInfo", handle, _MEMORY),
        bus_width_bits=nvml.ask("nvmlDeviceGetMemoryBusWidth", handle),
        exclusive=nvml.ask("nvmlDeviceGetComputeMode", handle) in _EXCLUSIVE,
    )


def _pair(answer: Any) -> tuple[int, int] | None:
    return (answer[0], answer[1]) if answer is not None else None


def _multiprocessors(cores: int | None, capability: tuple[int, int] | None) -> int | None:
    if not cores or capability is None or capability < (7, 5):
        return None
    per_sm = _CORES_PER_SM.get(capability, _CORES_PER_NEWER_SM)
    return cores // per_sm if cores % per_sm == 0 else None


# -- while work runs --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Sample:
    time_ns: int
    sm_clock_mhz: float | None
    memory_clock_mhz: float | None
    temperature_c: float | None
    power_w: float | None
    memory_used: int | None
    reasons: int | None
    utilization: float | None
    energy_mj: int | None


class Sampler:
    """Watches one GPU from a thread of its own for as long as the `with` block lasts.

        with Sampler(uuid) as sampler:
            …
        result = sampler.telemetry()

    Entering does not wait for NVML and never raises; leaving waits for the sample under way, some
    milliseconds, and not for NVML to close. `problem` then says what, if anything, is missing.
    """

    def __init__(
        self,
        device: int | str = 0,
        *,
        period_s: float = PERIOD_S,
        energy_s: float = ENERGY_S,
        has_context: Callable[[], bool] | None = None,
    ) -> None:
        """Make a sampler. `energy_s` is the time between two readings of the energy counter; with 0 each sample
        except the last reads it (see ENERGY_FROM_S). `has_context` says whether the program has opened CUDA and has
        not begun to end. It is only sampled then, and in the first sample and the last (see UNRECORDED_S).
        """
        self.problem: str | None = None
        self.remarks: tuple[str, ...] = ()
        """On other processes that used this GPU meanwhile; complete when the block has been left."""
        self.disturbed = False
        """Whether other processes used this GPU meanwhile, by NVML's account."""
        self._device = device
        self._period_s = period_s
        self._energy_s = energy_s
        self._has_context = has_context or (lambda: True)
        self._had_context = False
        self._samples: list[_Sample] = []
        self.default_sm_clock_mhz: int | None = None
        self._done = threading.Event()
        self._sampled = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="nvml-sampler", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._done.set()
        self._sampled.wait()

    def enough(self) -> None:
        """Take the last sample now, so that leaving the block later does not have to wait for it."""
        self._done.set()

    def _watch(self) -> None:
        nvml: _Nvml | None = None
        try:
            nvml = _Nvml()
            self._sample_until_done(nvml, nvml.handle(self._device))
        except NvmlUnavailableError as error:
            self.problem = str(error)
        finally:
            self._sampled.set()
            if nvml:
                nvml.close()

    def _sample_until_done(self, nvml: _Nvml, handle: Any) -> None:
        self.default_sm_clock_mhz = nvml.ask("nvmlDeviceGetDefaultApplicationsClock", handle, _SM)
        neighbours, look_at = Neighbours(nvml.ask, handle, time.time_ns() // 1000), 0.0
        done, energy_at = False, time.monotonic() + max(self._energy_s, ENERGY_FROM_S)
        unrecorded_at = time.monotonic() + UNRECORDED_S
        while not done:
            # asked before the sample, so that even the shortest block has one after its work
            done = self._done.is_set()
            energy = None
            if not done and time.monotonic() >= energy_at:
                energy = nvml.ask("nvmlDeviceGetTotalEnergyConsumption", handle)
                energy_at = time.monotonic() + self._energy_s
            self._samples.append(_sample(nvml, handle, energy))
            if done or time.monotonic() >= look_at:
                look_at = time.monotonic() + LOOK_S
                neighbours.look()
                self.remarks, self.disturbed = neighbours.remarks(), bool(neighbours.busy())
            self._done.wait(self._period_s)
            self._wait_for_context(unrecorded_at)
        if all(s.reasons is None for s in self._samples):
            self.problem = "this GPU does not report why it throttles"

    def _wait_for_context(self, unrecorded_at: float) -> None:
        while not self._done.is_set() and not self._has_context():
            if not self._had_context and time.monotonic() > unrecorded_at:
                return
            self._done.wait(_POLL_S)
        self._had_context = True

    @property
    def clocks(self) -> list[tuple[int, float]]:
        """Return (Unix time in ns, SM clock in MHz) in order of time, in the form of `measure.at_low_clock`."""
        return [(s.time_ns, s.sm_clock_mhz) for s in self._samples if s.sm_clock_mhz is not None]

    def telemetry(self, begin_ns: int | None = None, end_ns: int | None = None) -> Telemetry | None:
        """Return what was seen between two moments (Unix time, as CUPTI's stamps are). Return None without NVML.

        Without bounds it is all of the block. If the GPU idled for most of it, the clocks are those of an idle GPU.
        Give the first launch and the last end to get the clocks that the kernels had. If no sample fell between them,
        `samples` is 0 and nothing is known. `memory_used` is the most that was in use on the whole GPU.
        """
        if not self._samples:
            return None
        chosen = [
            s
            for s in self._samples
            if (begin_ns is None or s.time_ns >= begin_ns) and (end_ns is None or s.time_ns <= end_ns)
        ]
        if chosen and not any(s.utilization for s in chosen) and _span_ns(chosen) < _USE_WINDOW_NS:
            chosen = [replace(s, utilization=None) for s in chosen]  # of the time before the run
        reported = [sample.reasons for sample in chosen if sample.reasons is not None]
        reasons = 0
        for reason in reported:
            reasons |= reason
        energy, step = _energy([s.energy_mj for s in chosen])
        return Telemetry(
            samples=len(chosen),
            sm_clock_mhz=_range(s.sm_clock_mhz for s in chosen),
            memory_clock_mhz=_range(s.memory_clock_mhz for s in chosen),
            temperature_c=_range(s.temperature_c for s in chosen),
            power_w=_range(s.power_w for s in chosen),
            memory_used=max((s.memory_used for s in chosen if s.memory_used is not None), default=None),
            throttle_reasons=_names(reasons) if reported else None,
            default_sm_clock_mhz=self.default_sm_clock_mhz,
            utilization=_range(s.utilization for s in chosen),
            energy_j=energy,
            energy_step_j=step,
            series=_series(chosen),
            shared=self.disturbed,
        )


def _span_ns(samples: list[_Sample]) -> int:
    return samples[-1].time_ns - samples[0].time_ns


def _energy(readings: list[int | None]) -> tuple[float | None, float | None]:
    """Return the joules between the first and the last reading, and the counter's step. They are None if it did not
    advance twice.

    Both ends may be wrong by up to one step.
    """
    known = [reading for reading in readings if reading is not None]
    steps = [later - earlier for earlier, later in pairwise(known) if later > earlier]
    if len(steps) < 2:
        return None, None
    return (known[-1] - known[0]) / 1000, median(steps) / 1000


def _series(samples: list[_Sample]) -> TelemetrySeries | None:
    """Return at most MOST_POINTS samples, evenly spread, with the first and the last among them. Return None for
    fewer than two.
    """
    if len(samples) < 2:
        return None
    count = min(len(samples), MOST_POINTS)
    chosen = [samples[at * (len(samples) - 1) // (count - 1)] for at in range(count)]
    return TelemetrySeries(
        tuple(round((s.time_ns - chosen[0].time_ns) / 1e9, 3) for s in chosen),
        tuple(s.sm_clock_mhz for s in chosen),
        tuple(s.power_w for s in chosen),
        tuple(s.utilization for s in chosen),
    )


def _sample(nvml: _Nvml, handle: Any, energy_mj: int | None) -> _Sample:
    power = nvml.ask("nvmlDeviceGetPowerUsage", handle)
    rates = nvml.ask("nvmlDeviceGetUtilizationRates", handle)
    memory = nvml.ask("nvmlDeviceGetMemoryInfo", handle)
    reasons = nvml.ask("nvmlDeviceGetCurrentClocksEventReasons", handle)
    if reasons is None:  # drivers and bindings of CUDA 11 and before
        reasons = nvml.ask("nvmlDeviceGetCurrentClocksThrottleReasons", handle)
    return _Sample(
        time_ns=time.time_ns(),
        sm_clock_mhz=nvml.ask("nvmlDeviceGetClockInfo", handle, _SM),
        memory_clock_mhz=nvml.ask("nvmlDeviceGetClockInfo", handle, _MEMORY),
        temperature_c=nvml.ask("nvmlDeviceGetTemperature", handle, _GPU_TEMPERATURE),
        power_w=power / 1000 if power is not None else None,
        memory_used=memory.used if memory is not None else None,
        reasons=reasons,
        utilization=float(rates.gpu) if rates is not None else None,
        energy_mj=energy_mj,
    )


def _range(values: Iterable[float | None]) -> tuple[float, float, float] | None:
    known = [value for value in values if value is not None]
    return (min(known), median(known), max(known)) if known else None


def _names(reasons: int) -> tuple[str, ...]:
    named = [name for bit, name in REASONS.items() if reasons & bit]
    other = reasons & ~IDLE & ~sum(REASONS)
    return (*named, f"reason {other:#x}") if other else tuple(named)
