"""A rate against the GPU's peak, and against what that very GPU was measured to reach."""

from __future__ import annotations

import pytest

from orbit_lsp.views import rates
from orbit_remote.common import messages as c

H100 = c.Device(
    "NVIDIA H100 80GB HBM3", capability="9.0", multiprocessors=132, sm_clock_mhz=1980, memory_clock_mhz=2619,
    bus_width_bits=5120, reached={"dram": 3.0e12, "fp32": 6.0e13},
)  # fmt: skip


def test_the_hover_has_both_shares_and_the_datasheet() -> None:
    (rate,) = rates.of(c.Point(bytes=805_306_368), 288_000, H100, ())
    value, source = rates.explained(rate)
    assert (
        value
        == "2.80 TB/s, 83% of 3.35 TB/s of DRAM, 93% of the 3.00 TB/s that this GPU was measured to reach"
    )
    assert source.endswith("by a kernel that does nothing else; NVIDIA H100 datasheet (SXM): 3.35 TB/s")


@pytest.mark.parametrize("bytes_", [1.0e9, 2.0e9])
def test_a_rate_that_cannot_be_true_is_compared_with_nothing(bytes_: float) -> None:
    (rate,) = rates.of(c.Point(bytes=bytes_), 288_000, H100, ())
    assert rate.suspect == "declared amount"
    assert rate.share_reached is None


def test_what_was_not_measured_is_not_mentioned() -> None:
    (rate,) = rates.of(c.Point(flops=1e9), 288_000, H100, ("bfloat16",))
    assert rate.share_reached is None
    assert "measured to reach" not in rates.explained(rate)[0]
