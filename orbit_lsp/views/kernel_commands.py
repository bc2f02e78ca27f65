"""Makes the commands that lenses and code actions send."""

from __future__ import annotations

from lsprotocol import types as lsp

from orbit_lsp.kernels.model import SPECIFIED
from orbit_lsp.state import fitting
from orbit_lsp.state.fitting import Part
from orbit_lsp.state.kernel_ids import KernelId
from orbit_lsp.state.session import Session
from orbit_lsp.views import harness_view, kernel_status, positions
from orbit_lsp.views.answer import outcome
from orbit_lsp.views.answer.outcome import EDITED
from orbit_lsp.views.kernel_status import HarnessStatus, KernelStatus
from orbit_lsp.views.profile import profile_price
from orbit_remote.common.messages import DEBUGGING

OF_CELLS = frozenset(
    ("orbit.draft", "orbit.openReport", "orbit.showFailure", "orbit.history", "orbit.openIr")
)
"""What is done with a kernel in a notebook's cell; all else would run or build it, which its notebook does."""


def of_kernel(title: str, command: str, target: KernelId, **more: str | int) -> lsp.Command:
    """Return a command about a kernel. `more` are further fields of its argument."""
    return lsp.Command(title, command, arguments=[{"uri": target.uri, "kernel": target.key, **more}])


def answer(known: KernelStatus, text: str) -> lsp.Command:
    """Return the last result as a lens: a click shows more of it."""
    target = known.target
    if known.failed:
        return of_kernel(text, "orbit.showFailure", target)
    if known.profile and known.profile.profiles and not known.profile_stale:
        return of_kernel(text, "orbit.openReport", target, what="profile")
    if known.result:
        return of_kernel(text, "orbit.openReport", target, what="run")
    return of_kernel(text, "orbit.history", target)


def harness_lenses(session: Session, uri: str, now: float) -> list[lsp.CodeLens]:
    """Return the lenses of a contract. `now` is on the monotonic clock."""
    harness_status = kernel_status.harness_status(session, uri)
    file = session.files.get(uri)
    if harness_status is None or file is None:
        return []
    end = positions.line_end(session, file.document, harness_status.entry.span.line)
    profile = profile_harness(harness_status)
    check = check_harness(session, harness_status, now)
    row = [None if harness_status.running else _harness_answer(session, harness_status), check, profile]
    return [lsp.CodeLens(lsp.Range(lsp.Position(end.line, 0), end), command) for command in row if command]


def _harness_answer(session: Session, harness_status: HarnessStatus) -> lsp.Command | None:
    target = harness_status.entry.target
    if failed := session.results.failures.get(target):
        return of_kernel(fitting.fit(outcome.failed(failed), fitting.LENS), "orbit.showFailure", target)
    if harness_status.result is None:
        return None
    parts = Part.of(0, *harness_view.forms(harness_status.result)) + Part.of(
        1, EDITED if harness_status.stale else ""
    )
    return of_kernel(fitting.fit(parts, fitting.LENS - len(" | ✓ Test | Profile")), "orbit.history", target)


def profile(session: Session, known: KernelStatus) -> lsp.Command:
    """Return *Profile* for a kernel that something launches. The tooltip says how long it will take. The title says
    so too if that is long, because few clients show a tooltip.
    """
    price = profile_price.of(session, known)
    title = f"Profile ({price.seconds:.0f} s)" if price and price.is_long else "Profile"
    command = of_kernel(title, "orbit.profile", known.target)
    command.tooltip = price.text if price else None
    return command


def profile_harness(harness_status: HarnessStatus) -> lsp.Command | None:
    """Return *Profile* for one call of what the file offers, unless something runs."""
    return (
        None if harness_status.running else of_kernel("Profile", "orbit.profile", harness_status.entry.target)
    )


def check_harness(session: Session, harness_status: HarnessStatus, now: float) -> lsp.Command:
    """Return the lens that tests and times a KernelBench or popcorn file. `now` is on the monotonic clock, in
    seconds.
    """
    if harness_status.running:
        why = f": {harness_status.running.why}" if harness_status.running.why else ""
        title = f"⏳ {harness_status.running.state} {int(now - harness_status.running.began)} s (cancel){why}"
        return of_kernel(title, "orbit.cancel", harness_status.entry.target)
    gpu = kernel_status.gpu_name(session)
    title = f"✓ Test on {gpu}" if gpu else "✓ Test"
    if harness_status.result or harness_status.entry.target in session.results.failures:
        title = "✓ Test"
    return of_kernel(title, "orbit.test", harness_status.entry.target)


def compile_command(session: Session, known: KernelStatus) -> lsp.Command | None:
    """Return *Compile* for a kernel that cannot be run here. The compile imports its file, so it is offered only if
    the kernel was not compiled yet or was edited since.
    """
    runs = kernel_status.is_started(session, known) and (
        session.setup.machine is None or kernel_status.gpu_name(session)
    )
    if runs or not kernel_status.waits_for_import(session, known):
        return None
    why = "edited since" if known.figures else "no registers yet"
    return of_kernel(f"Compile (imports this file): {why}", "orbit.compile", known.target)


def check_memory(session: Session, known: KernelStatus) -> lsp.Command | None:
    """Return *Check memory* for a kernel that something launches and that does not run now."""
    started = kernel_status.is_started(session, known)
    if not (started and known.kernel.launchable and known.kernel.dsl in SPECIFIED) or known.running:
        return None
    return of_kernel(f"Check memory ({known.kernel.name})", "orbit.checkMemory", known.target)


def debug(session: Session, uri: str, known: KernelStatus) -> list[lsp.Command]:
    """Return *Debug* for a Triton kernel that something launches, if this machine has the needed packages. The first
    command is the lens.
    """
    machine = session.setup.machine
    able = machine is not None and all(machine.packages.get(name) for name in DEBUGGING)
    able = able and not session.setup.settings.modal.restricted  # code that stays off this machine
    started = known.plan.through == "spec" or session.files[uri].scan.entries
    if not (able and started and known.kernel.launchable and known.kernel.dsl == "triton") or known.running:
        return []
    commands = [of_kernel("Debug", "orbit.debug", known.target)]
    if known.failed and known.failed.outcome == "wrong answer" and known.plan.through == "spec":
        title = "Debug at the first wrong element"
        commands.append(of_kernel(title, "orbit.debug", known.target, what="wrong"))
    return commands


def memory_lens(session: Session, known: KernelStatus) -> lsp.Command | None:
    """Return *Check memory* as a lens, if the settings ask for one."""
    if not session.setup.settings.check_memory.lens or check_memory(session, known) is None:
        return None
    return of_kernel("Check memory", "orbit.checkMemory", known.target)
