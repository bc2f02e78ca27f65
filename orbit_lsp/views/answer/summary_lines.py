"""Makes the first lines of a hover: the answer, the facts that matter most, and what to do. Everything else stands
below.
"""

from __future__ import annotations

from orbit_lsp.profile import bottleneck
from orbit_lsp.runs import summary
from orbit_lsp.state import fitting, units
from orbit_lsp.state.results import Profiled, RunResult
from orbit_lsp.state.session import Session
from orbit_lsp.views import kernel_status, rates, sweep_tables
from orbit_lsp.views.answer import outcome
from orbit_lsp.views.kernel_status import KernelStatus
from orbit_lsp.views.profile import next_steps, profile_hints, profile_hover
from orbit_lsp.views.tables import TitledLines
from orbit_remote.common.messages import Profile
from orbit_remote.common.requests import BY_AUTHOR

COLUMNS = 78
"""A hover in VS Code and a float in Neovim show so many without wrapping."""
_FACTS = 3


def lines(session: Session, uri: str, known: KernelStatus, now: float) -> TitledLines | None:
    """Return the lines. Return None if nothing was run, profiled or compiled, and there is no reason to show."""
    if not (known.failed or known.result or known.profile or known.figures):
        why = kernel_status.why_nothing(session, uri, known)
        return TitledLines(f"{known.kernel.name}: not compiled, not run yet", why) if why else None
    profile = known.profile.main if known.profile else None
    texts: list[str] = []
    if known.failed and (failure := known.failed.failure):
        texts += [summary.first_error(failure.message)]
    elif known.result:
        texts += of_run(known.result)
    verdict = bottleneck.verdict(profile) if profile else None
    if verdict:
        stale = f" ({outcome.EDITED})" if known.profile_stale else ""
        texts.append(f"{verdict.text}: {verdict.why.partition(': ')[0]}{stale}")
    texts += _facts(session, uri, known, profile)[:_FACTS]
    texts = [fitting.cut(line, COLUMNS - 2) for line in texts]
    if step := _what_to_do(session, known, profile):
        texts.append(f"→ {step}")
    return TitledLines(_title(known, now), tuple(texts))


def _title(known: KernelStatus, now: float) -> str:
    parts = outcome.parts(known)
    text = fitting.fit(parts, fitting.LENS) if parts else "compiled, not run yet"
    at = known.result.at if known.result and not known.failed else known.profile.at if known.profile else None
    ago = f" · {kernel_status.ago(now - at)}" if at is not None and not known.failed else ""
    return f"{known.kernel.name}: {text}{ago}"


def of_run(result: RunResult) -> list[str]:
    """Return the rate and the check of a run."""
    points = result.finished.points
    parts: list[str] = []
    if shown := sweep_tables.shown(points):
        total = sweep_tables.rated_ns(result.launches)
        of_spec = rates.of(shown, total, result.finished.device, result.elements)
        parts += list(rates.short(of_spec)[:1])
    if check := sweep_tables.verdict(points):
        every = (*sweep_tables.telling(points), *points)  # the point on the line may have no check
        checks = [check for point in every for check in point.checks]
        wrong = next((check for check in checks if not check.passed), None)
        parts.append(f"✗ {wrong.what}: {check.removeprefix('✗ ')}" if wrong else f"✓ {checks[0].what}")
    if result.through in BY_AUTHOR and (main := kernel_status.main_launch(result.launches)):
        first = f", the first {units.time(main.timing.first)}" if main.timing.first is not None else ""
        parts.append(f"{main.count} launches {main.timing.label}{first}")
    if result.driver:
        parts.append(f"via {result.driver.id}")
    return parts


def _facts(session: Session, uri: str, known: KernelStatus, profile: Profile | None) -> list[str]:
    """Return what most often explains a time: where it goes, occupancy with its limit, spills."""
    texts: list[str] = []
    if known.profile and profile and (hot := _hottest(known.profile, profile)):
        texts.append(hot)
    resources = kernel_status.launched_instance(known)[0] if known.figures else None
    if resources and (spills := (resources.spill_stores or 0) + (resources.spill_loads or 0)):
        texts.append(f"⚠ spills {units.size(spills)} a thread to local memory")
    main = kernel_status.main_launch(known.result.launches) if known.result else None
    device = known.result.finished.device if known.result else None
    if profile and (held_text := profile_hints.occupancy(profile)):
        texts.append(f"occupancy {held_text} achieved")
    elif main and device and device.capability and known.result:
        held = kernel_status.launch_occupancy(main, device.capability, known.result.finished.resources)
        x, y, z = main.block
        if held:
            limit = kernel_status.limited_by(held)
            texts.append(f"occupancy ≤{units.occupancy(held.fraction)}{limit} at {x * y * z} threads a block")
    elif resources and (forms := kernel_status.static_occupancy(session, uri, known.kernel, resources)):
        texts.append(forms[0].replace("occ ", "occupancy ", 1))
    if resources and resources.registers is not None:
        shared = (resources.static_shared or 0) + (resources.dynamic_shared or 0)
        more = f", {units.size(shared)} of shared memory a block" if shared else ""
        texts.append(f"{resources.registers} registers a thread{more}, compiled for {resources.architecture}")
    return texts


def _hottest(profiled: Profiled, profile: Profile) -> str:
    table = profile_hover.hot_lines(profiled, profile)
    if table is None:
        return ""
    place, share, stall, text = table.rows[0]
    return f"{share} of the samples in {place}, {stall}: {text}".rstrip(": ")


def _what_to_do(session: Session, known: KernelStatus, profile: Profile | None) -> str:
    """Return a remedy, the first step of a profile, or the command that says more."""
    if known.failed:
        return known.failed.failure.remedy if known.failed.failure else ""
    if profile and profile.tier == "counters":
        return next(iter(next_steps.steps(profile)), "")
    if profile:
        return profile.why
    if known.result and known.result.launches:
        return "Profile says what limits it"
    return "Run measures it" if kernel_status.gpu_name(session) else ""
