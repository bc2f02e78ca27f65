"""Shows how a kernel's last run ended, its time and its bottleneck, as parts of a line. `✗` failed, `✓` ran and was
checked, `⏱` was timed.
"""

from __future__ import annotations

import re
import time

from orbit_lsp.profile import bottleneck
from orbit_lsp.state import units
from orbit_lsp.state.fitting import Part
from orbit_lsp.state.results import FailedRun, RunResult
from orbit_lsp.views import kernel_status, sweep_tables
from orbit_lsp.views.kernel_status import KernelStatus
from orbit_lsp.views.profile import profile_hints
from orbit_remote.common.measurements import Timing
from orbit_remote.common.requests import BY_AUTHOR

EDITED = "edited since"
_CUDA = re.compile(r"(?:CUDA_ERROR_|cudaError)(\w+)")
_EXIT = re.compile(r"ended with (exit code \d+)|was ended by (SIG\w+)")
_PYTHON = re.compile(r"(\w+(?:Error|Exception|Interrupt))\b")


def parts(known: KernelStatus) -> list[Part]:
    """Return the parts of the last run: what failed, else the check and the time. They are empty if nothing has run."""
    if known.failed:
        stale = known.failed.digest != known.digest
        return failed(known.failed) + Part.of(1, EDITED if stale else "")
    if known.result:
        return of_run(known.result) + Part.of(1, EDITED if known.stale else "")
    if known.profile and known.profile.main:
        stale = Part.of(1, EDITED if known.profile_stale else "")
        return Part.of(0, f"{profile_hints.MARK} {profile_hints.time_text(known.profile)}".strip()) + stale
    return []


def of_run(result: RunResult) -> list[Part]:
    if result.through in BY_AUTHOR:
        main = kernel_status.main_launch(result.launches)
        return timed("⏱", main.timing) if main else Part.of(0, "⏱ not launched")
    check = sweep_tables.verdict(result.finished.points)
    if check.startswith("✗"):
        time = sweep_tables.median_text(result.launches) if result.launches else ""
        return Part.of(0, check, "✗ wrong answer") + Part.of(3, time)
    mark = check[:1] or "⏱"
    if timing := sweep_tables.total(result.launches):
        return timed(mark, timing)
    if result.launches:
        return Part.of(0, f"{mark} {sweep_tables.median_text(result.launches)}")
    return Part.of(0, f"{mark} not timed")


def timed(mark: str, timing: Timing) -> list[Part]:
    """Return `⏱ 288 µs ±0.2%`. The shorter form has no spread."""
    return Part.of(0, f"{mark} {units.timing(timing)}", f"{mark} {units.median(timing)}")


def verdict(known: KernelStatus) -> list[Part]:
    """Return `memory 79% of peak` for the last profile, or nothing if the kernel has been edited since."""
    profile = known.profile.main if known.profile and not known.profile_stale else None
    counted = bottleneck.verdict(profile) if profile else None
    return Part.of(2, counted.text, counted.text.removesuffix(" of peak")) if counted else []


def failed(what: FailedRun) -> list[Part]:
    """Return `✗ illegal address · 14:05:07`. A time of day stays true on a screen that is not drawn again."""
    clock = time.strftime("%H:%M:%S", time.localtime(what.at))
    mark = "⚠" if what.outcome == "infrastructure" else "✗"
    return Part.of(0, f"{mark} {reason(what)}") + Part.of(2, clock)


def reason(what: FailedRun) -> str:
    """Return the reason in two or three words: `illegal address`, `exit code 3`, `SIGSEGV`, `ValueError`, `timed
    out`.
    """
    if what.outcome == "infrastructure":
        return "could not run"
    message = what.failure.message if what.failure else ""
    if ", in the launch spec: " in message:
        return "launch spec"
    if what.outcome != "runtime error":
        return what.outcome
    if message.startswith("device assertion"):
        return "device assertion failed"
    if named := _CUDA.search(message):
        words = (
            named[1]
            if "_" in named[1] or named[1].isupper()
            else re.sub(r"(?<=[a-z])(?=[A-Z])", "_", named[1])
        )
        return words.replace("_", " ").lower()
    if ended := _EXIT.search(message):
        return ended[1] or ended[2]
    return python[1] if (python := _PYTHON.match(message)) else what.outcome
