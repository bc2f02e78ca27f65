"""Peaks: what clocks and widths give against what NVIDIA publishes, and rates that cannot be."""

from __future__ import annotations

import pytest

from orbit_remote.common import peaks
from orbit_remote.common.messages import Device

# Published multiprocessors, clocks in MHz and bus: the derived peak must be the datasheet's. NVIDIA
# states Hopper's and Blackwell's tensor rates at a lower clock than their boost, so those have two.
PUBLISHED = [
    ("Tesla T4", "7.5", 40, 1590, 1590, 5001, 256),
    ("NVIDIA L4", "8.9", 58, 2040, 2040, 6251, 192),
    ("NVIDIA A10", "8.6", 72, 1695, 1695, 6251, 384),
    ("NVIDIA A100-SXM4-40GB", "8.0", 108, 1410, 1410, 1215, 5120),
    ("NVIDIA A100-SXM4-80GB", "8.0", 108, 1410, 1410, 1593, 5120),
    ("NVIDIA A100 80GB PCIe", "8.0", 108, 1410, 1410, 1512, 5120),
    ("NVIDIA L40S", "8.9", 142, 2520, 2490, 9001, 384),
    ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", "12.0", 188, 2617, 2617, 14001, 512),
    ("NVIDIA H100 80GB HBM3", "9.0", 132, 1980, 1830, 2619, 5120),
    ("NVIDIA H100 PCIe", "9.0", 114, 1755, 1620, 1593, 5120),
    ("NVIDIA H200", "9.0", 132, 1980, 1830, 3201, 6016),
    ("NVIDIA B200", "10.0", 148, 1980, 1860, 3760, 8192),
]


@pytest.mark.parametrize("gpu", PUBLISHED, ids=lambda gpu: gpu[0])
def test_clocks_and_widths_give_what_the_datasheet_states(gpu) -> None:
    name, capability, sms, clock, tensor_clock, memory, bus = gpu
    sheet = peaks.peaks(Device(name))
    assert sheet.dram is not None
    assert sheet.flops
    for operation, stated in sheet.flops.items():
        low_clock = "tensor" in operation and operation != "fp64 tensor"
        derived = peaks.peaks(
            Device(
                "a GPU of no known name",
                capability=capability,
                multiprocessors=sms,
                sm_clock_mhz=tensor_clock if low_clock else clock,
                memory_clock_mhz=memory,
                bus_width_bits=bus,
            )
        )
        assert derived.flops[operation].rate == pytest.approx(stated.rate, rel=0.03), operation
        assert derived.dram is not None
        assert derived.dram.rate == pytest.approx(sheet.dram.rate, rel=0.03)


def test_the_gpus_own_clocks_go_before_its_datasheet_and_say_so() -> None:
    result = peaks.peaks(
        Device(
            "NVIDIA H100 80GB HBM3",
            capability="9.0",
            multiprocessors=132,
            sm_clock_mhz=1980,
            memory_clock_mhz=2619,
            bus_width_bits=5120,
        )
    )
    sheet = (3350e9, "NVIDIA H100 datasheet (SXM)")
    assert result.dram == peaks.Peak(3_352_320_000_000.0, "2 × 2619 MHz × 5120 bit", sheet)
    assert result.flops["fp32"].source == "132 SMs × 1980 MHz × 256 per clock"
    assert result.flops["fp16 tensor"].rate == pytest.approx(1070e12, rel=0.001)


def test_what_the_gpu_was_measured_to_reach_stands_beside_its_peak() -> None:
    result = peaks.peaks(Device("NVIDIA L4", reached={"dram": 270e9, "fp32": 21e12}))
    assert result.dram == peaks.Peak(300e9, "NVIDIA L4 datasheet", reached=270e9)
    assert (result.flops["fp32"].reached, result.flops["tf32 tensor"].reached) == (21e12, None)


def test_a_name_alone_gives_the_datasheet() -> None:
    result = peaks.peaks(Device("NVIDIA L4"))
    assert result.dram == peaks.Peak(300e9, "NVIDIA L4 datasheet")


@pytest.mark.parametrize(
    ("alias", "name"),
    [
        ("H100", "NVIDIA H100 80GB HBM3"),
        ("H100!", "NVIDIA H100 80GB HBM3"),
        ("A100-80GB", "NVIDIA A100-SXM4-80GB"),
    ],
)
def test_the_names_that_clouds_use(alias, name) -> None:
    assert peaks.peaks(Device(alias)) == peaks.peaks(Device(name))


@pytest.mark.parametrize("name", ["NVIDIA GeForce RTX 4090", "A100X", "", "H1000"])
def test_an_unknown_gpu_has_unknown_peaks(name) -> None:
    assert peaks.peaks(Device(name, capability="8.9")) == peaks.Peaks(None, {})


def test_a_gpu_that_states_half_keeps_that_half() -> None:
    result = peaks.peaks(Device("some GPU", memory_clock_mhz=1000, bus_width_bits=128, multiprocessors=10))
    assert result.dram is not None
    assert result.dram.rate == 32e9
    assert result.flops == {}


def test_the_ceiling_of_saxpy_on_an_h100() -> None:
    # 3 arrays of 2^26 floats in 288 µs
    measured = peaks.rate(3 * 4 * 2**26, 288_000)
    peak = peaks.Peak(3.35232e12, "")
    assert measured == pytest.approx(2.796e12, rel=0.001)
    assert peaks.share(measured, peak) == pytest.approx(0.834, abs=0.001)
    assert peaks.suspect(measured, peak, declared=True) is None


@pytest.mark.parametrize(("amount", "time"), [(None, 1.0), (1.0, None), (1.0, 0.0), (1.0, -1.0)])
def test_an_unknown_rate_is_not_zero(amount, time) -> None:
    assert peaks.rate(amount, time) is None


def test_an_unknown_share_is_not_zero() -> None:
    assert peaks.share(None, peaks.Peak(1.0, "")) is None
    assert peaks.share(1.0, None) is None


@pytest.mark.parametrize(
    ("measured", "keywords", "suspect"),
    [
        (100.0, {"declared": True}, None),
        (100.1, {"declared": True}, "declared amount"),
        (100.1, {"declared": False}, "measurement"),
        (100.1, {"declared": True, "footprint": 50, "l2_bytes": 50}, "L2-resident"),
        (100.1, {"declared": True, "footprint": 51, "l2_bytes": 50}, "declared amount"),
        (100.1, {"declared": False, "footprint": 50}, "measurement"),
        (99.0, {"declared": True, "footprint": 50, "l2_bytes": 50}, None),
        (None, {"declared": True}, None),
    ],
)
def test_a_rate_above_the_peak_names_its_suspect(measured, keywords, suspect) -> None:
    assert peaks.suspect(measured, peaks.Peak(100.0, ""), **keywords) == suspect


def test_without_a_peak_nothing_is_suspected() -> None:
    assert peaks.suspect(1e30, None, declared=True) is None
