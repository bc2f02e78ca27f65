"""NVML on a real GPU: what it names must agree with what CUDA and nvidia-smi say."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import time

import pytest

from orbit_remote.common import peaks
from orbit_remote.recording import telemetry

pytest.importorskip("pynvml", reason="nvidia-ml-py is not installed")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(shutil.which("nvidia-smi") is None, reason="no NVIDIA GPU on this machine"),
]


def smi(query: str) -> list[str]:
    done = subprocess.run(
        ["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader,nounits", "--id=0"],
        check=True,
        capture_output=True,
        text=True,
    )
    return [field.strip() for field in done.stdout.split(",")]


def test_the_gpu_is_the_one_nvidia_smi_names() -> None:
    assert telemetry.problem() is None
    found = telemetry.devices()[0]
    name, uuid, driver, capability, sm_clock, memory_clock = smi(
        "name,uuid,driver_version,compute_cap,clocks.max.sm,clocks.max.memory"
    )
    assert (found.name, found.uuid, found.driver, found.capability) == (name, uuid, driver, capability)
    assert (found.sm_clock_mhz, found.memory_clock_mhz) == (int(sm_clock), int(memory_clock))


def test_multiprocessors_bus_and_memory_are_those_cuda_counts() -> None:
    cuda = ctypes.CDLL("libcuda.so.1")
    device, value = ctypes.c_int(), ctypes.c_int()
    assert cuda.cuInit(0) == 0
    found = telemetry.devices()[0]
    assert cuda.cuDeviceGet(ctypes.byref(device), 0) == 0
    # CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, _GLOBAL_MEMORY_BUS_WIDTH, _MEMORY_CLOCK_RATE (kHz)
    for attribute, ours in ((16, found.multiprocessors), (37, found.bus_width_bits)):
        assert cuda.cuDeviceGetAttribute(ctypes.byref(value), attribute, device) == 0
        assert ours == value.value
    assert cuda.cuDeviceGetAttribute(ctypes.byref(value), 36, device) == 0
    assert found.memory_clock_mhz == value.value // 1000


def test_its_peaks_are_near_its_datasheets() -> None:
    found = telemetry.devices()[0]
    own, sheet = peaks.peaks(found), peaks.peaks(type(found)(found.name))
    if sheet.dram is None or own.dram is None:
        pytest.skip(f"no datasheet for {found.name}")
    assert own.dram.rate == pytest.approx(sheet.dram.rate, rel=0.05)
    for operation, peak in sheet.flops.items():
        assert own.flops[operation].rate == pytest.approx(peak.rate, rel=0.12), operation


def test_a_sampler_sees_the_gpu() -> None:
    uuid = telemetry.devices()[0].uuid
    assert uuid is not None
    with telemetry.Sampler(uuid) as sampler:
        time.sleep(0.3)
    found = sampler.telemetry()
    assert found is not None
    assert found.samples == len(sampler.clocks) >= 2
    for low, middle, high in (found.sm_clock_mhz, found.memory_clock_mhz, found.temperature_c, found.power_w):
        assert 0 < low <= middle <= high
    assert found.sm_clock_mhz[2] <= telemetry.devices()[0].sm_clock_mhz
    assert found.memory_used is not None
