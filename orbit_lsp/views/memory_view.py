"""Shows what compute-sanitizer found in a kernel: a few words for its line, a table for its hover."""

from __future__ import annotations

from orbit_lsp.specs import job_builder, launch_plan
from orbit_lsp.state import staleness
from orbit_lsp.state.results import MemoryCheck
from orbit_lsp.state.session import Session, path_of
from orbit_lsp.views import kernel_status
from orbit_lsp.views.kernel_status import KernelStatus
from orbit_remote.common.messages import NOT_LAUNCHED

Row = tuple[str, str, str]


def label(session: Session, uri: str, known: KernelStatus) -> str:
    """Return `✓ memory checked` or `✗ 2 faults of memory`. Return "" if nothing is known."""
    check = session.results.memory_checks.get(known.target)
    if check is None:
        return ""
    mark = " · edited since" if is_stale(session, uri, known, check) else ""
    return _verdict(check) + mark


def section(session: Session, uri: str, known: KernelStatus, now: float) -> tuple[str, list[Row]] | None:
    """Return the last memory check, or None without one. `now` is Unix time in seconds."""
    check = session.results.memory_checks.get(known.target)
    if check is None:
        return None
    mark = ", edited since" if is_stale(session, uri, known, check) else ""
    title = f"{known.kernel.qualified}: memory checked {kernel_status.ago(now - check.at)}{mark}"
    source = f"compute-sanitizer {check.finished.toolchain.get('compute-sanitizer', '')}".strip()
    rows: list[Row] = [("result", f"{_verdict(check)}: {', '.join(check.tools)}", source)]
    problems = check.finished.problems
    for tool in check.tools:
        faults = [problem for problem in problems if problem.tool == tool and problem.severity == "error"]
        lines = sorted({problem.place.line for problem in faults if problem.place})
        where = f" in line{'s' * (len(lines) > 1)} {', '.join(map(str, lines))}" if lines else ""
        rows.append((tool, f"{len(faults)}{where}" if faults else "nothing", source))
    remarks = [problem for problem in problems if problem.severity != "error"]
    rows += [(other.tool, other.message, source) for other in remarks]
    rows += [("remark", remark, "orbit") for remark in check.finished.remarks]
    return title, rows


def is_stale(session: Session, uri: str, known: KernelStatus, check: MemoryCheck) -> bool:
    """Say whether the kernel, a file that was read or a setting has changed since."""
    if check.digest != known.digest or session.disk.changed(path_of(uri), check.files):
        return True
    frozen = session.freeze(uri)
    if frozen is None:
        return True
    plan = launch_plan.PROGRAM
    if check.through != "program" and (kernel := session.find(check.asked)):
        plan = launch_plan.of(session, uri, kernel, check.asked)
    return check.inputs != staleness.job_key(job_builder.make(session, frozen, "run", "", plan))


def _verdict(check: MemoryCheck) -> str:
    faults = sum(problem.severity == "error" for problem in check.finished.problems)
    if faults:
        return f"✗ {faults} fault{'s' * (faults > 1)} of memory"
    if any(problem.code == NOT_LAUNCHED for problem in check.finished.problems):
        return "memory not checked: never launched"
    return "✓ memory checked"
