"""Commands that lenses and code actions send."""

from __future__ import annotations

from lsprotocol import types as lsp

from orbit_lsp.kernels.model import RUNNABLE
from orbit_lsp.state.kernel_ids import KernelId
from orbit_lsp.state.session import Session
from orbit_lsp.views import harness_view, kernel_status, positions
from orbit_lsp.views.kernel_status import HarnessStatus, KernelStatus


def of_kernel(title: str, command: str, target: KernelId, **more: str) -> lsp.Command:
    """A command about a kernel; `more` are further fields of its argument."""
    return lsp.Command(title, command, arguments=[{"uri": target.uri, "kernel": target.key, **more}])


def harness_lenses(session: Session, uri: str, now: float) -> list[lsp.CodeLens]:
    """`now` is on the monotonic clock."""
    found = kernel_status.harness_status(session, uri)
    file = session.files.get(uri)
    if found is None or file is None:
        return []
    where = positions.whole_line(session, file.document, found.entry.span.line)
    profile = profile_harness(found)
    return [lsp.CodeLens(where, one) for one in (check_harness(session, found, now), profile) if one]


def profile_harness(found: HarnessStatus) -> lsp.Command | None:
    """Of one call of what the file offers, unless something runs."""
    return None if found.running else of_kernel("Profile", "orbit.profile", found.entry.target)


def check_harness(session: Session, found: HarnessStatus, now: float) -> lsp.Command:
    if found.running:
        why = f": {found.running.why}" if found.running.why else ""
        title = f"⏳ {found.running.state} {int(now - found.running.began)} s (cancel){why}"
        return of_kernel(title, "orbit.cancel", found.entry.target)
    title = f"✓ Check on {kernel_status.gpu_name(session)}"
    if found.result:
        title += f" · last {harness_view.text(found.result)}" + (", edited since" if found.stale else "")
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
