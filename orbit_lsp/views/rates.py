"""Computes bytes and operations per second of what a launch spec ran, and compares them with what the GPU can do."""

from __future__ import annotations

from typing import Literal

from orbit_lsp.state import units
from orbit_remote.common import peaks
from orbit_remote.common.lazy_dataclass import dataclass
from orbit_remote.common.messages import Device, Point

_OPERATIONS: dict[str, tuple[peaks.Operation, ...]] = {
    "float64": ("fp64", "fp64 tensor"),
    "float32": ("fp32", "tf32 tensor"),
    "float16": ("fp16", "fp16 tensor"),
    "bfloat16": ("bf16", "bf16 tensor"),
    "float8_e4m3fn": ("fp8 tensor",),
    "float8_e5m2": ("fp8 tensor",),
}
"""Units that compute on elements of a type. Only hardware counters show which of them a kernel uses, so the
fastest is assumed."""

_HINT_SHARE = 0.01
"""A share of the peak below this says nothing of what holds a kernel back."""


@dataclass(frozen=True, slots=True)
class Rate:
    """A rate. `value` is per second. `limit` names the peak that it is compared with; None if none is known.

    If a rate is above the peak, `suspect` is what must be wrong. `resident` says that everything the launches touch
    fits in L2.
    """

    kind: Literal["memory", "arithmetic"]
    value: float
    peak: peaks.Peak | None
    limit: str = ""
    suspect: peaks.Suspect | None = None
    resident: bool = False

    @property
    def share(self) -> float | None:
        """Return the share of the peak. Return None for a rate that cannot be true."""
        return None if self.suspect else peaks.share(self.value, self.peak)

    @property
    def share_reached(self) -> float | None:
        """Return the share of what this GPU was measured to reach. Return None if it was not measured, or the rate
        cannot be true.
        """
        if self.suspect or self.peak is None or not self.peak.reached:
            return None
        return self.value / self.peak.reached

    @property
    def text(self) -> str:
        write = units.bandwidth if self.kind == "memory" else units.flops
        return write(self.value)


def of(
    point: Point, nanoseconds: float | None, device: Device | None, elements: tuple[str, ...]
) -> list[Rate]:
    """Return the rates of the bytes and operations that a spec declares, over the cold time of all its launches."""
    rates: list[Rate] = []
    known = peaks.peaks(device) if device else None
    if (value := peaks.rate(point.bytes, nanoseconds)) is not None:
        peak = known.dram if known else None
        l2 = device.l2_bytes if device else None
        suspect = peaks.suspect(value, peak, declared=True, footprint=point.footprint, l2_bytes=l2)
        resident = point.footprint is not None and l2 is not None and point.footprint <= l2
        rates.append(Rate("memory", value, peak, "DRAM", suspect, resident))
    if (value := peaks.rate(point.flops, nanoseconds)) is not None:
        operations = {operation for name in elements for operation in _OPERATIONS.get(name, ())}
        stated = [(name, peak) for name, peak in known.flops.items() if name in operations] if known else []
        name, peak = max(stated, key=lambda pair: pair[1].rate, default=("", None))
        suspect = peaks.suspect(value, peak, declared=True)
        rates.append(Rate("arithmetic", value, peak, _spelled(name), suspect))
    return rates


def short(rates: list[Rate]) -> tuple[str, ...]:
    """Return the rate that says most, for a kernel's line, the longest form first. It is one with a doubt, else the
    one nearest to its peak.
    """
    if not rates:
        return ()
    best = max(rates, key=lambda rate: (rate.suspect is not None, rate.share or 0, rate.kind == "memory"))
    if best.suspect == "L2-resident":
        return f"{best.text} (L2-resident)", f"{best.text} (L2)"
    if best.suspect and best.peak:
        word = "bytes" if best.kind == "memory" else "flops"
        return f"⚠ '{word}' too large? {best.text} is above the peak", f"⚠ '{word}' too large?"
    share = best.share
    if share is None or share < _HINT_SHARE:
        return (best.text,)
    percent = units.percent(share)
    of_what = "" if best.kind == "memory" else f"{best.limit} "
    resident = ", L2-resident" if best.resident else ""
    short = f"{best.text} ({percent})" if best.kind == "memory" else f"{best.text} ({percent} {best.limit})"
    return f"{best.text} ({percent} of {of_what}peak{resident})", short, f"{best.text} ({percent})"


def explained(rate: Rate) -> tuple[str, str]:
    """Return (value, where it comes from) in full."""
    word = "bytes" if rate.kind == "memory" else "flops"
    source = f"declared {word} over the cold median"
    if rate.peak is None:
        return rate.text, f"{source}; no peak is known to compare with"
    write = units.bandwidth if rate.kind == "memory" else units.flops
    peak = f"{write(rate.peak.rate)} of {rate.limit}"
    source += f"; peak: {rate.peak.source}"
    if rate.kind == "arithmetic":
        source += "; which cores the kernel uses is not known, the fastest for its types are assumed"
    match rate.suspect:
        case "L2-resident":
            value = f"{rate.text}, above the {peak}: what it touches fits in L2 and stays there"
        case "declared amount":
            value = f"{rate.text}, above the {peak}: more than it can be, so '{word}' is declared too large"
        case "measurement":
            value = f"{rate.text}, above the {peak}: the measurement is in doubt"
        case None:
            resident = "; what it touches fits in L2" if rate.resident else ""
            value = f"{rate.text}, {units.percent(rate.share)} of {peak}{resident}"
    if rate.peak.reached and rate.share_reached is not None:
        value += f", {units.percent(rate.share_reached)} of the {write(rate.peak.reached)} that this GPU was measured to reach"
        source += "; measured on this very GPU, by a kernel that does nothing else"
        if rate.peak.stated:
            source += f"; {rate.peak.stated[1]}: {write(rate.peak.stated[0])}"
    return value, source


def _spelled(operation: str) -> str:
    """Return the name of an operation: `FP16 tensor cores`, `FP32`."""
    name, _, tensor = operation.partition(" ")
    return f"{name.upper()} tensor" if tensor else name.upper()
