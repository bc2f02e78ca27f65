"""What compute-sanitizer found in a kernel: a few words for its line, a table for its hover."""

from __future__ import annotations

from lsprotocol import types as lsp

from orbit_lsp.kernels.model import RUNNABLE
from orbit_lsp.specs import job_builder, launch_plan
from orbit_lsp.state import placement, staleness
from orbit_lsp.state.session import KernelId, MemoryCheck, Session, path_of
from orbit_lsp.views import kernel_status
from orbit_lsp.views.kernel_status import Facts
from orbit_remote.common.messages import NOT_LAUNCHED

Row = tuple[str, str, str]


def label(session: Session, uri: str, known: Facts) -> str:
    """`✓ memory checked`, `✗ 2 faults of memory`; empty where nothing is known."""
    check = session.memory_checks.get(known.target)
    if check is None:
        return ""
    mark = " · edited since" if is_stale(session, uri, known, check) else ""
    return _verdict(check) + mark


def section(session: Session, uri: str, known: Facts, now: float) -> tuple[str, list[Row]] | None:
    check = session.memory_checks.get(known.target)
    if check is None:
        return None
    mark = ", edited since" if is_stale(session, uri, known, check) else ""
    title = f"{known.kernel.qualified}: memory checked {kernel_status.ago(now - check.at)}{mark}"
    source = f"compute-sanitizer {check.finished.toolchain.get('compute-sanitizer', '')}".strip()
    rows: list[Row] = [("result", f"{_verdict(check)}: {', '.join(check.tools)}", source)]
    problems = check.finished.problems
    for tool in check.tools:
        found = [one for one in problems if one.tool == tool and one.severity == "error"]
        lines = sorted({one.place.line for one in found if one.place})
        where = f" in line{'s' * (len(lines) > 1)} {', '.join(map(str, lines))}" if lines else ""
        rows.append((tool, f"{len(found)}{where}" if found else "nothing", source))
    others = [one for one in problems if one.severity != "error"]
    rows += [(one.tool, one.message, source) for one in others]
    rows += [("remark", remark, "orbit") for remark in check.finished.remarks]
    return title, rows


def is_stale(session: Session, uri: str, known: Facts, check: MemoryCheck) -> bool:
    """Whether the kernel, a file that was read or a setting is no longer what it was."""
    if check.digest != known.digest or staleness.files_changed(session, path_of(uri), check.files):
        return True
    frozen = session.freeze(uri)
    if frozen is None:
        return True
    recipe = launch_plan.PROGRAM
    if check.through != "program" and (kernel := session.find(check.asked)):
        recipe = launch_plan.of(session, uri, kernel)
    return check.inputs != staleness.job_key(job_builder.make(session, frozen, "run", "", recipe))


def command(session: Session, uri: str, known: Facts) -> lsp.Command | None:
    """*Check memory*, of a kernel that something launches and that does not run now."""
    started = known.recipe.through == "spec" or session.files[uri].scan.entries
    if not (started and known.kernel.launchable and known.kernel.dsl in RUNNABLE) or known.running:
        return None
    return _command(f"Check memory ({known.kernel.name})", known.target)


def lens(session: Session, uri: str, known: Facts) -> lsp.Command | None:
    """The same as a lens, where the settings want one."""
    if not placement.settings_of(session).check_memory.lens or command(session, uri, known) is None:
        return None
    return _command("Check memory", known.target)


def _command(title: str, target: KernelId) -> lsp.Command:
    arguments = [{"uri": target.uri, "kernel": target.key}]
    return lsp.Command(title, "orbit.checkMemory", arguments=arguments)


def _verdict(check: MemoryCheck) -> str:
    faults = sum(one.severity == "error" for one in check.finished.problems)
    if faults:
        return f"✗ {faults} fault{'s' * (faults > 1)} of memory"
    if any(one.code == NOT_LAUNCHED for one in check.finished.problems):
        return "memory not checked: never launched"
    return "✓ memory checked"
