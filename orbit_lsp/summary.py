"""A finished run in one line, the same words for a progress bar, the log and a terminal."""

from __future__ import annotations

from orbit_lsp import units
from orbit_remote import contracts as c


def one_line(finished: c.Finished) -> str:
    """`ok: saxpy 288 µs, tiled<32> 1.85 ms` or the failure's own sentence."""
    if finished.outcome != "ok":
        message = finished.failure.message if finished.failure else ""
        return (
            f"{finished.outcome}: {message}" if message and message != finished.outcome else finished.outcome
        )
    times = [f"{one.name} {units.time(one.timing.median)}" for one in finished.launches]
    return ", ".join(times[:4]) + (f" and {len(times) - 4} more" if len(times) > 4 else "") or "done"
