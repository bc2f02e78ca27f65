"""Numbers as text, the same in hints, hovers and on the command line.

They have three significant digits, and the unit that keeps the number between 1 and 1000. An unknown number is
"unavailable", so that it is never read as 0.
"""

from __future__ import annotations

import math

from orbit_remote.common.measurements import Timing

UNAVAILABLE = "unavailable"

_TIMES = ((1, "ns"), (1e3, "µs"), (1e6, "ms"), (1e9, "s"))
_BYTES = ((1, "B"), (1 << 10, "KiB"), (1 << 20, "MiB"), (1 << 30, "GiB"), (1 << 40, "TiB"))
_DECIMAL = ((1, ""), (1e3, "k"), (1e6, "M"), (1e9, "G"), (1e12, "T"), (1e15, "P"))


def time(nanoseconds: float | None) -> str:
    """Write a time: `288 µs`, `1.85 ms`, `12.3 µs`. Below a microsecond it is in whole nanoseconds, from a second on
    in seconds.
    """
    if nanoseconds is not None and abs(nanoseconds) < 1:
        return f"{nanoseconds:.2g} ns"
    return _scaled(nanoseconds, _TIMES, whole_base=True)


def timing(known: Timing | None) -> str:
    """Write `288 µs ±0.2%`. The spread is left out if there are too few launches. A time below what the recording can
    measure is `under 1 µs`.
    """
    if known is None:
        return UNAVAILABLE
    return f"{median(known)} {'' if known.under else spread(known.spread)}".strip()


def median(known: Timing) -> str:
    """Write `288 µs`, or `under 1 µs`, in whole microseconds, below what the recording can measure."""
    return time(known.median) if known.under is None else f"under {math.ceil(known.under / 1000)} µs"


def size(count: float | None) -> str:
    """Write bytes by powers of 1024, the sizes of shared memory and caches: `48 KiB`, `1.5 GiB`, `512 B`."""
    return _scaled(count, _BYTES, whole_base=True, pad=False)


def bytes_moved(count: float | None) -> str:
    """Write bytes by powers of 1000, to compare traffic with bandwidths: `134 MB`."""
    return _scaled(count, tuple((factor, f"{prefix}B") for factor, prefix in _DECIMAL), whole_base=True)


def bandwidth(bytes_per_second: float | None) -> str:
    """Write a bandwidth by powers of 1000, as datasheets do: `2.79 TB/s`."""
    return _scaled(bytes_per_second, tuple((factor, f"{prefix}B/s") for factor, prefix in _DECIMAL))


def flops(per_second: float | None) -> str:
    """Write operations per second: `634 TFLOP/s`, `67.0 TFLOP/s`."""
    return _scaled(per_second, tuple((factor, f"{prefix}FLOP/s") for factor, prefix in _DECIMAL))


def clock(megahertz: float | None) -> str:
    """Write a clock: `1980 MHz`. Clocks are compared digit by digit, so they are never scaled to GHz."""
    return UNAVAILABLE if megahertz is None else f"{megahertz:.0f} MHz"


def percent(fraction: float | None) -> str:
    """Write a share: `83%`, `0.4%`. Below 10 % it has one decimal. A share that is not 0 is not written as 0."""
    if fraction is None:
        return UNAVAILABLE
    value = 100 * fraction
    if value == 0 or round(abs(value), 1) >= 10:
        return f"{value:.0f}%"
    return "<0.1%" if 0 < value < 0.05 else f"{value:.1f}%"


def cycles(value: float) -> str:
    """Write the cycles of a warp between two instructions: `3.2`. A value that is not 0 is not written as 0."""
    return "<0.1" if 0 < value < 0.05 else f"{value:.1f}"


def occupancy(fraction: float) -> str:
    """Write an occupancy: `75%`, `12.5%`. It is warps over warps, so a decimal is exact and no noise."""
    return f"{100 * fraction:.1f}".removesuffix(".0") + "%"


def spread(fraction: float | None) -> str:
    """Write `±0.2%` for the end of a time. It is empty if no spread is stated, because too few launches is no news."""
    return "" if fraction is None else f"±{percent(fraction)}"


def count(number: int | None) -> str:
    """Write `1,048,576`."""
    return UNAVAILABLE if number is None else f"{number:,}"


def amount(number: float) -> str:
    """Write a large amount by powers of 1000: `20.5 M`, `16.4 k`, `512`."""
    return _scaled(number, tuple((factor, prefix) for factor, prefix in _DECIMAL), whole_base=True).strip()


def money(dollars: float | None) -> str:
    """Write `$4.06`, `$1,234`, `$0.0031`: two significant digits below ten cents, whole dollars from 1,000 on."""
    if dollars is None:
        return UNAVAILABLE
    if dollars and abs(dollars) < 0.0995:
        text = f"{dollars:.{1 - math.floor(math.log10(abs(dollars)))}f}"
        return f"${text.removesuffix('0') if len(text) > len('0.00') else text}"
    return f"${dollars:,.0f}" if round(abs(dollars), 2) >= 1000 else f"${dollars:.2f}"


def _scaled(
    value: float | None,
    units: tuple[tuple[float, str], ...],
    *,
    whole_base: bool = False,
    pad: bool = True,
) -> str:
    """Write a value in its unit. `whole_base` writes the smallest unit without decimals; `pad` keeps zeros that are
    significant.
    """
    if value is None or not math.isfinite(value):
        return UNAVAILABLE
    chosen = 0
    # what rounds to the next unit is written in it: 999.6 µs is 1.00 ms, not 1000 µs
    while chosen + 1 < len(units) and _reaches(abs(value), units[chosen][0], units[chosen + 1][0]):
        chosen += 1
    factor, unit = units[chosen]
    scaled = value / factor
    digits = 0 if whole_base and chosen == 0 else _decimals(abs(scaled))
    text = f"{scaled:.{digits}f}"
    if not pad and "." in text:
        text = text.rstrip("0").rstrip(".")
    return f"{text} {unit}"


def _reaches(value: float, factor: float, following: float) -> bool:
    return round(value / factor) >= following / factor


def _decimals(value: float) -> int:
    """Return how many decimals make three significant digits of a number from 1 up."""
    return 2 if value < 9.995 else 1 if value < 99.95 else 0
