"""The peaks of a GPU, and what a rate above a peak means.

Peaks come from the GPU's own clocks and widths if they are known: that is the ceiling of the very GPU that ran.
NVIDIA's datasheets are used if only the name is known. They state some rates at a lower clock than the GPU allows
(the H100 SXM's 989 TFLOP/s of FP16 are at 1.83 GHz, the GPU goes to 1.98), so the two differ by up to a tenth. Rates
are per second: bytes or floating-point operations, a fused multiply-add counted as two, matrices dense. On GeForce
boards the tensor rates hold for FP16 accumulation; with FP32 accumulation they are half.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Literal

from orbit_remote.common.lazy_dataclass import dataclass
from orbit_remote.common.messages import Device

Operation = Literal[
    "fp64", "fp32", "fp16", "bf16", "fp64 tensor", "tf32 tensor", "fp16 tensor", "bf16 tensor", "fp8 tensor"
]


@dataclass(frozen=True, slots=True)
class Peak:
    """The highest rate, per second, and how it is known. `stated` is the datasheet's figure, `reached` the
    rate measured on this very GPU; each is None if not known.
    """

    rate: float
    source: str
    stated: tuple[float, str] | None = None
    reached: float | None = None


@dataclass(frozen=True, slots=True)
class Peaks:
    """The known ceilings of a GPU. An absent operation is not known."""

    dram: Peak | None
    flops: Mapping[Operation, Peak]


# Floating-point operations per clock and multiprocessor. CUDA cores: CUDA Programming Guide,
# "Throughput of Native Arithmetic Instructions", times two for the multiply-add. Tensor cores: the
# architecture white papers (Turing, A100, GA102, Ada, H100, RTX Blackwell) and, for 10.0, NVIDIA's
# Blackwell datasheet over its multiprocessors and clock. What neither states is left out.
_FLOPS_PER_CLOCK: Mapping[str, Mapping[Operation, int]] = {
    "7.5": {"fp64": 4, "fp32": 128, "fp16": 256, "fp16 tensor": 1024},
    "8.0": {
        "fp64": 64, "fp32": 128, "fp16": 512, "bf16": 256,
        "fp64 tensor": 128, "tf32 tensor": 1024, "fp16 tensor": 2048, "bf16 tensor": 2048,
    },
    "8.6": {
        "fp64": 4, "fp32": 256, "fp16": 256, "bf16": 256,
        "tf32 tensor": 512, "fp16 tensor": 1024, "bf16 tensor": 1024,
    },
    "8.9": {
        "fp64": 4, "fp32": 256, "fp16": 256, "bf16": 256,
        "tf32 tensor": 512, "fp16 tensor": 1024, "bf16 tensor": 1024, "fp8 tensor": 2048,
    },
    "9.0": {
        "fp64": 128, "fp32": 256, "fp16": 512, "bf16": 512,
        "fp64 tensor": 256, "tf32 tensor": 2048, "fp16 tensor": 4096, "bf16 tensor": 4096, "fp8 tensor": 8192,
    },
    "10.0": {
        "fp64": 128, "fp32": 256, "fp64 tensor": 128,
        "tf32 tensor": 4096, "fp16 tensor": 8192, "bf16 tensor": 8192, "fp8 tensor": 16384,
    },
    "12.0": {
        "fp64": 4, "fp32": 256, "fp16": 256, "bf16": 256,
        "tf32 tensor": 512, "fp16 tensor": 1024, "bf16 tensor": 1024, "fp8 tensor": 2048,
    },
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Sheet:
    """One datasheet: memory in GB/s, arithmetic in TFLOP/s."""

    source: str
    gigabytes: float
    teraflops: Mapping[Operation, float]


def _hopper(source: str, gigabytes: float, fp64: float, tf32: float) -> _Sheet:
    # every Hopper product keeps these proportions; its datasheet states them with and without sparsity
    return _Sheet(
        source,
        gigabytes,
        {
            "fp64": fp64, "fp32": 2 * fp64, "fp64 tensor": 2 * fp64,
            "tf32 tensor": tf32, "fp16 tensor": 2 * tf32, "bf16 tensor": 2 * tf32, "fp8 tensor": 4 * tf32,
        },
    )  # fmt: skip


_A100: Mapping[Operation, float] = {
    "fp64": 9.7, "fp32": 19.5, "fp16": 78, "bf16": 39,
    "fp64 tensor": 19.5, "tf32 tensor": 156, "fp16 tensor": 312, "bf16 tensor": 312,
}  # fmt: skip
_RTX_PRO_6000: Mapping[Operation, float] = {
    "fp32": 125, "tf32 tensor": 251.9, "fp16 tensor": 503.8, "bf16 tensor": 503.8, "fp8 tensor": 1007.6,
}  # fmt: skip

# By NVML's name without "NVIDIA" or "Tesla", as NVIDIA published them by November 2025.
_SHEETS: Mapping[str, _Sheet] = {
    "T4": _Sheet("NVIDIA T4 datasheet", 320, {"fp32": 8.1, "fp16 tensor": 65}),
    "L4": _Sheet(
        "NVIDIA L4 datasheet",
        300,
        {"fp32": 30.3, "tf32 tensor": 60, "fp16 tensor": 121, "bf16 tensor": 121, "fp8 tensor": 242.5},
    ),
    "A10": _Sheet(
        "NVIDIA A10 datasheet",
        600,
        {"fp32": 31.2, "tf32 tensor": 62.5, "fp16 tensor": 125, "bf16 tensor": 125},
    ),
    "A100-SXM4-40GB": _Sheet("NVIDIA A100 datasheet (40 GB)", 1555, _A100),
    "A100-PCIE-40GB": _Sheet("NVIDIA A100 datasheet (40 GB)", 1555, _A100),
    "A100-SXM4-80GB": _Sheet("NVIDIA A100 datasheet (80 GB SXM)", 2039, _A100),
    "A100 80GB PCIe": _Sheet("NVIDIA A100 datasheet (80 GB PCIe)", 1935, _A100),
    "L40S": _Sheet(
        "NVIDIA L40S datasheet",
        864,
        {"fp32": 91.6, "tf32 tensor": 183, "fp16 tensor": 362.05, "bf16 tensor": 362.05, "fp8 tensor": 733},
    ),
    "RTX PRO 6000 Blackwell Server Edition": _Sheet(
        "NVIDIA RTX PRO 6000 Blackwell Server Edition datasheet", 1597, {"fp32": 120}
    ),
    "RTX PRO 6000 Blackwell Workstation Edition": _Sheet(
        "NVIDIA RTX Blackwell PRO white paper", 1792, _RTX_PRO_6000
    ),
    "H100 80GB HBM3": _hopper("NVIDIA H100 datasheet (SXM)", 3350, 33.5, 494.7),
    "H100 PCIe": _hopper("NVIDIA H100 datasheet (PCIe)", 2039, 25.6, 378),
    "H100 NVL": _hopper("NVIDIA H100 datasheet (NVL)", 3900, 30, 417.5),
    "H200": _hopper("NVIDIA H200 datasheet (SXM)", 4800, 33.5, 494.7),
    "B200": _Sheet(
        "NVIDIA Blackwell datasheet (HGX B200)",
        7700,
        {
            "fp64": 37, "fp32": 75, "fp64 tensor": 37,
            "tf32 tensor": 1100, "fp16 tensor": 2250, "bf16 tensor": 2250, "fp8 tensor": 4500,
        },
    ),
}  # fmt: skip

# what clouds call them
_ALIASES = {
    "A100": "A100-SXM4-40GB",
    "A100-40GB": "A100-SXM4-40GB",
    "A100-80GB": "A100-SXM4-80GB",
    "H100": "H100 80GB HBM3",
    "RTX-PRO-6000": "RTX PRO 6000 Blackwell Server Edition",
}


def peaks(device: Device) -> Peaks:
    """Return the ceilings of a GPU: from its own clocks and widths if known, else from its datasheet. The datasheet
    and what it was measured to reach (`Device.reached`) stand beside them.
    """
    name = device.name.removeprefix("NVIDIA ").removeprefix("Tesla ").rstrip("!")
    sheet = _SHEETS.get(_ALIASES.get(name, name))
    dram = _dram(device)
    flops = _flops(device)
    if sheet is not None:
        dram = _beside(dram, sheet.gigabytes * 1e9, sheet.source)
        for operation, teraflops in sheet.teraflops.items():
            flops[operation] = _beside(flops.get(operation), teraflops * 1e12, sheet.source)
    reached = device.reached
    if dram is not None:
        dram = replace(dram, reached=reached.get("dram"))
    return Peaks(dram, {name: replace(peak, reached=reached.get(name)) for name, peak in flops.items()})


def _beside(peak: Peak | None, rate: float, source: str) -> Peak:
    """Add what a datasheet states to a peak. It is the peak if nothing else is known."""
    return replace(peak, stated=(rate, source)) if peak else Peak(rate, source)


def _dram(device: Device) -> Peak | None:
    clock, width = device.memory_clock_mhz, device.bus_width_bits
    if not clock or not width:
        return None
    # two transfers a clock, as NVML and CUDA count the memory clock: HBM, GDDR5, GDDR6 and GDDR7 alike
    return Peak(2 * clock * 1e6 * width / 8, f"2 × {clock} MHz × {width} bit")


def _flops(device: Device) -> dict[Operation, Peak]:
    count, clock = device.multiprocessors, device.sm_clock_mhz
    if not count or not clock:
        return {}
    return {
        operation: Peak(count * clock * 1e6 * per_clock, f"{count} SMs × {clock} MHz × {per_clock} per clock")
        for operation, per_clock in _FLOPS_PER_CLOCK.get(device.capability or "", {}).items()
    }


# -- rates ------------------------------------------------------------------------------------------


def rate(amount: float | None, nanoseconds: float | None) -> float | None:
    """Return bytes or operations per second. Return None if either is not known or the time is not positive."""
    if amount is None or nanoseconds is None or nanoseconds <= 0:
        return None
    return amount * 1e9 / nanoseconds


def share(measured: float | None, peak: Peak | None) -> float | None:
    """Return the share of the peak, 0 to 1, or None if not known. Above 1 ask `suspect` before showing it."""
    return None if measured is None or peak is None else measured / peak.rate


Suspect = Literal["L2-resident", "declared amount", "measurement"]
"""What a rate above the peak casts doubt on: see `suspect`."""


def suspect(
    measured: float | None,
    peak: Peak | None,
    *,
    declared: bool,
    footprint: int | None = None,
    l2_bytes: int | None = None,
) -> Suspect | None:
    """Return why a rate cannot be what it claims. Return None if it is at most the peak, or nothing is known.

    `declared` says that the amount is what the author declared and not what counters counted. `footprint` is the
    distinct memory of one launch in bytes; give it only for rates of memory. A footprint that fits in L2 may be
    served from there, so its rate is no rate of DRAM ("L2-resident"). Otherwise the author's "declared amount" is the
    first suspect, and without one our own "measurement".
    """
    if measured is None or peak is None or measured <= peak.rate:
        return None
    if footprint is not None and l2_bytes is not None and footprint <= l2_bytes:
        return "L2-resident"
    return "declared amount" if declared else "measurement"
