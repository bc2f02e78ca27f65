from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbit_lsp.state import units


@pytest.mark.parametrize(
    ("nanoseconds", "text"),
    [
        (288_123, "288 µs"),
        (1_846_600, "1.85 ms"),
        (12_345, "12.3 µs"),
        (1_220, "1.22 µs"),
        (999, "999 ns"),
        (999.7, "1.00 µs"),
        (999_600, "1.00 ms"),
        (9_996, "10.0 µs"),
        (99_960, "100 µs"),
        (2.5e9, "2.50 s"),
        (3.6e12, "3600 s"),
        (640, "640 ns"),
        (0.4, "0.4 ns"),
        (0, "0 ns"),
        (None, "unavailable"),
    ],
)
def test_times(nanoseconds, text) -> None:
    assert units.time(nanoseconds) == text


@pytest.mark.parametrize(("value", "text"), [(3.24, "3.2"), (0.06, "0.1"), (0.01, "<0.1"), (0, "0.0")])
def test_cycles(value: float, text: str) -> None:
    assert units.cycles(value) == text


@given(st.floats(1, 999e9))
def test_a_time_reads_back_within_its_three_digits(nanoseconds) -> None:
    number, unit = units.time(nanoseconds).split()
    value = float(number) * {"ns": 1, "µs": 1e3, "ms": 1e6, "s": 1e9}[unit]
    assert value == pytest.approx(nanoseconds, rel=0.0051, abs=0.51)
    assert unit == "ns" or len(re.sub(r"\D", "", number)) == 3


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (512, "512 B"),
        (1023, "1023 B"),
        (1024, "1 KiB"),
        (48 * 1024, "48 KiB"),
        (232_448, "227 KiB"),
        (1536 * 1024**2, "1.5 GiB"),
        (52_428_800, "50 MiB"),
        (1024**2 - 1, "1 MiB"),
        (None, "unavailable"),
    ],
)
def test_sizes(count, text) -> None:
    assert units.size(count) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (2.79e12, "2.79 TB/s"),
        (864e9, "864 GB/s"),
        (999.9e9, "1.00 TB/s"),
        (0, "0.00 B/s"),
        (None, "unavailable"),
    ],
)
def test_bandwidths(value, text) -> None:
    assert units.bandwidth(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(634.2e12, "634 TFLOP/s"), (66.97e12, "67.0 TFLOP/s"), (2.25e15, "2.25 PFLOP/s"), (None, "unavailable")],
)
def test_rates_of_arithmetic(value, text) -> None:
    assert units.flops(value) == text


@pytest.mark.parametrize(
    ("fraction", "text"),
    [
        (0.832, "83%"),
        (1.0, "100%"),
        (1.27, "127%"),
        (0.0994, "9.9%"),
        (0.09996, "10%"),
        (0.002, "0.2%"),
        (0.0001, "<0.1%"),
        (0.0, "0%"),
        (-0.03, "-3.0%"),
        (None, "unavailable"),
    ],
)
def test_percents(fraction, text) -> None:
    assert units.percent(fraction) == text


def test_a_spread_that_is_not_stated_leaves_no_trace() -> None:
    assert units.spread(0.002) == "±0.2%"
    assert units.spread(None) == ""


@pytest.mark.parametrize(
    ("fraction", "text"), [(1.0, "100%"), (0.125, "12.5%"), (0.9375, "93.8%"), (0, "0%")]
)
def test_an_occupancy_keeps_its_half_percents(fraction, text) -> None:
    assert units.occupancy(fraction) == text


def test_counts_and_clocks() -> None:
    assert units.count(1_048_576) == "1,048,576"
    assert units.clock(1980.0) == "1980 MHz"
    assert (units.count(None), units.clock(None)) == ("unavailable", "unavailable")


@given(st.floats(1e-6, 1e6))
def test_a_share_that_is_not_zero_is_never_written_as_zero(fraction) -> None:
    assert units.percent(fraction) not in ("0%", "0.0%")


@pytest.mark.parametrize(
    ("dollars", "text"),
    [
        (None, "unavailable"), (0, "$0.00"), (4.0816, "$4.08"), (0.5, "$0.50"), (0.01, "$0.01"),
        (0.0966, "$0.097"), (0.00307, "$0.0031"), (0.0000364, "$0.000036"), (1234.4, "$1,234"), (999.996, "$1,000"),
    ],
)  # fmt: skip
def test_dollars(dollars, text) -> None:
    assert units.money(dollars) == text
