"""NVML on a real GPU: what it names must agree with what CUDA and nvidia-smi say."""

from __future__ import annotations

import ctypes
import os
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
    device = telemetry.devices()[0]
    name, uuid, driver, capability, sm_clock, memory_clock = smi(
        "name,uuid,driver_version,compute_cap,clocks.max.sm,clocks.max.memory"
    )
    assert (device.name, device.uuid, device.driver, device.capability) == (name, uuid, driver, capability)
    assert (device.sm_clock_mhz, device.memory_clock_mhz) == (int(sm_clock), int(memory_clock))


def test_multiprocessors_bus_and_memory_are_those_cuda_counts() -> None:
    cuda = ctypes.CDLL("libcuda.so.1")
    device, value = ctypes.c_int(), ctypes.c_int()
    assert cuda.cuInit(0) == 0
    result = telemetry.devices()[0]
    assert cuda.cuDeviceGet(ctypes.byref(device), 0) == 0
    # CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, _GLOBAL_MEMORY_BUS_WIDTH, _MEMORY_CLOCK_RATE (kHz)
    for attribute, ours in ((16, result.multiprocessors), (37, result.bus_width_bits)):
        assert cuda.cuDeviceGetAttribute(ctypes.byref(value), attribute, device) == 0
        assert ours == value.value
    assert cuda.cuDeviceGetAttribute(ctypes.byref(value), 36, device) == 0
    assert result.memory_clock_mhz == value.value // 1000


def test_its_peaks_are_near_its_datasheets() -> None:
    device = telemetry.devices()[0]
    own, sheet = peaks.peaks(device), peaks.peaks(type(device)(device.name))
    if sheet.dram is None or own.dram is None:
        pytest.skip(f"no datasheet for {device.name}")
    assert own.dram.rate == pytest.approx(sheet.dram.rate, rel=0.05)
    for operation, peak in sheet.flops.items():
        assert own.flops[operation].rate == pytest.approx(peak.rate, rel=0.12), operation


def test_a_sampler_sees_the_gpu() -> None:
    uuid = telemetry.devices()[0].uuid
    assert uuid is not None
    with telemetry.Sampler(uuid) as sampler:
        time.sleep(1.0)
    result = sampler.telemetry()
    assert result is not None
    assert result.samples == len(sampler.clocks) >= 2
    for low, middle, high in (
        result.sm_clock_mhz,
        result.memory_clock_mhz,
        result.temperature_c,
        result.power_w,
    ):
        assert 0 < low <= middle <= high
    assert result.sm_clock_mhz[2] <= telemetry.devices()[0].sm_clock_mhz
    assert result.memory_used is not None
    assert result.utilization is not None
    assert 0 <= result.utilization[0] <= result.utilization[2] <= 100
    assert result.energy_j is not None
    assert result.energy_step_j is not None
    assert result.energy_j == pytest.approx(result.power_w[1] * 1.0, rel=0.5, abs=4 * result.energy_step_j)
    assert result.series is not None
    assert result.series.at_s[-1] == pytest.approx(1.0, rel=0.3)


SPIN = """\
__global__ void spin(unsigned ns) {
  unsigned long long begin, now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(begin));
  do asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now)); while (now - begin < ns);
}
int main() {
  for (int i = 0; i < 40; ++i) { spin<<<1, 32>>>(100000000u); cudaDeviceSynchronize(); }
  return 0;
}
"""


def test_another_program_on_the_gpu_is_named(tmp_path) -> None:
    (tmp_path / "neighbour.cu").write_text(SPIN)
    subprocess.run(
        ["nvcc", "-arch=sm_90", tmp_path / "neighbour.cu", "-o", tmp_path / "neighbour"], check=True
    )
    uuid = telemetry.devices()[0].uuid
    assert uuid is not None
    torch = pytest.importorskip("torch")
    with subprocess.Popen(
        ["sh", "-c", f"{tmp_path}/neighbour & echo $!"],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as shell:
        assert shell.stdout
        pid = int(shell.stdout.readline())  # its shell has ended: it is nobody's child here
        with telemetry.Sampler(uuid) as sampler:
            began = time.monotonic()
            while time.monotonic() - began < 3:
                torch.zeros(1 << 20, device="cuda").sum().item()
    pids = {
        process.pid
        for process in telemetry._Nvml().module.nvmlDeviceGetComputeRunningProcesses(
            telemetry._Nvml().handle(uuid)
        )
    }
    print(sampler.remarks, pids, os.getpid(), pid)
    if os.getpid() not in pids:
        assert sampler.remarks == ()
        pytest.skip("NVML counts processes in another name space here, so none is named")
    assert f"neighbour (process {pid})" in sampler.remarks[0]
