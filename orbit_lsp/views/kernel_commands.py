"""Commands that lenses and code actions send."""

from __future__ import annotations

from lsprotocol import types as lsp

from orbit_lsp.kernels.model import RUNNABLE
from orbit_lsp.state import fitting
from orbit_lsp.state.fitting import Part
from orbit_lsp.state.kernel_ids import KernelId
from orbit_lsp.state.session import Session
from orbit_lsp.views import harness_view, kernel_status, positions
from orbit_lsp.views.answer import outcome
from orbit_lsp.views.answer.outcome import EDITED
from orbit_lsp.views.kernel_status import HarnessStatus, KernelStatus


def of_kernel(title: str, command: str, target: KernelId, **more: str) -> lsp.Command:
    """A command about a kernel; `more` are further fields of its argument."""
    return lsp.Command(title, command, arguments=[{"uri": target.uri, "kernel": target.key, **more}])


def answer(known: KernelStatus, text: str) -> lsp.Command:
    """The last result as a lens: a click shows more of it."""
    target = known.target
    if known.failed:
        return of_kernel(text, "orbit.showFailure", target)
    if known.profile and known.profile.profiles and not known.profile_stale:
        return of_kernel(text, "orbit.openReport", target, what="profile")
    if known.result and known.result.through == "spec":
        return of_kernel(text, "orbit.openReport", target, what="run")
    return of_kernel(text, "orbit.history", target)


def harness_lenses(session: Session, uri: str, now: float) -> list[lsp.CodeLens]:
    """`now` is on the monotonic clock."""
    found = kernel_status.harness_status(session, uri)
    file = session.files.get(uri)
    if found is None or file is None:
        return []
    where = positions.whole_line(session, file.document, found.entry.span.line)
    profile = profile_harness(found)
    check = check_harness(session, found, now)
    row = [None if found.running else _harness_answer(session, found), check, profile]
    return [lsp.CodeLens(where, one) for one in row if one]


def _harness_answer(session: Session, found: HarnessStatus) -> lsp.Command | None:
    target = found.entry.target
    if failed := session.results.failures.get(target):
        return of_kernel(outcome.failed(failed), "orbit.showFailure", target)
    if found.result is None:
        return None
    parts = Part.of(0, *harness_view.forms(found.result)) + Part.of(1, EDITED if found.stale else "")
    return of_kernel(fitting.fit(parts, fitting.LENS - len(" | ✓ Check | Profile")), "orbit.history", target)


def profile_harness(found: HarnessStatus) -> lsp.Command | None:
    """Of one call of what the file offers, unless something runs."""
    return None if found.running else of_kernel("Profile", "orbit.profile", found.entry.target)


def check_harness(session: Session, found: HarnessStatus, now: float) -> lsp.Command:
    if found.running:
        why = f": {found.running.why}" if found.running.why else ""
        title = f"⏳ {found.running.state} {int(now - found.running.began)} s (cancel){why}"
        return of_kernel(title, "orbit.cancel", found.entry.target)
    gpu = kernel_status.gpu_name(session)
    title = f"✓ Check on {gpu}" if gpu else "✓ Check"
    if found.result or found.entry.target in session.results.failures:
        title = "✓ Check"
    return of_kernel(title, "orbit.check", found.entry.target)


def check_memory(session: Session, uri: str, known: KernelStatus) -> lsp.Command | None:
    """*Check memory*, of a kernel that something launches and that does not run now."""
    started = known.plan.through == "spec" or session.files[uri].scan.entries
    if not (started and known.kernel.launchable and known.kernel.dsl in RUNNABLE) or known.running:
        return None
    return of_kernel(f"Check memory ({known.kernel.name})", "orbit.checkMemory", known.target)


def memory_lens(session: Session, uri: str, known: KernelStatus) -> lsp.Command | None:
    """The same as a lens, where the settings want one."""
    if not session.setup.settings.check_memory.lens or check_memory(session, uri, known) is None:
        return None
    return of_kernel("Check memory", "orbit.checkMemory", known.target)
