"""Code actions that have no lens, to keep lenses few: the program in place of the launch spec, Live, full profiles,
reports, IR.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

from lsprotocol import types as lsp

from orbit_lsp.kernels import BY_TEXT_SUFFIXES, CUDA_SUFFIXES
from orbit_lsp.kernels.model import RUNNABLE, SPECIFIED
from orbit_lsp.profile import dump_files
from orbit_lsp.runs import capture
from orbit_lsp.specs import driver_choice
from orbit_lsp.state import units
from orbit_lsp.state.session import Session
from orbit_lsp.views import kernel_commands, kernel_status
from orbit_lsp.views.kernel_status import KernelStatus
from orbit_lsp.views.profile import profile_price
from orbit_remote.common.measure import REPEATS
from orbit_remote.common.requests import Driver

_MOST_DRIVERS = 5
"""Other drivers that are offered for a kernel."""


def actions(session: Session, uri: str, first: int, last: int) -> list[lsp.CodeAction]:
    """Return the actions for the kernels whose definition meets the lines `first` to `last`."""
    offered: list[lsp.CodeAction] = []
    for known in kernel_status.of(session, uri):
        whole = known.kernel.whole
        if whole.line <= last and first <= whole.end_line and known.kernel.dsl in RUNNABLE:
            offered += [
                lsp.CodeAction(command.title, kind=lsp.CodeActionKind.Empty, command=command)
                for command in commands(session, uri, known, first)
            ]
    checked = kernel_status.harness_status(session, uri)
    if checked and first <= checked.entry.span.line <= last:
        commands_of = (
            kernel_commands.check_harness(session, checked, time.monotonic()),
            kernel_commands.profile_harness(checked),
        )
        offered += [
            lsp.CodeAction(command.title, kind=lsp.CodeActionKind.Empty, command=command)
            for command in commands_of
            if command
        ]
    return offered


def _drivers(session: Session, known: KernelStatus) -> Iterator[tuple[str, Driver]]:
    """Yield the drivers that a click does not take, each with what is known about it, or the way that leads there."""
    others = [
        route for route in driver_choice.ranked(session, known.target) if route.driver != known.plan.driver
    ]
    for route in others[:_MOST_DRIVERS]:
        seen = session.results.learned.get(known.target, {}).get(route.driver)
        about = " <- ".join(map(_last_name, route.way))
        if seen:
            about = units.time(seen.seconds * 1e9) if seen.launches else "did not launch it"
        yield f"▶ Run through {route.driver.id}: {about} ({known.kernel.name})", route.driver


def _last_name(label: str) -> str:
    """Return `main` for `bench.bench_ops.main`. A label that ends in the name of a file, such as `main of saxpy.cu`,
    stays.
    """
    return label if label.endswith((".py", *BY_TEXT_SUFFIXES, *CUDA_SUFFIXES)) else label.rpartition(".")[2]


def _again(known: KernelStatus) -> list[lsp.Command]:
    """Return the command that repeats a driver. It launched the kernel too few times for its median."""
    result = known.result
    main = kernel_status.main_launch(result.launches) if result else None
    if (
        result is None
        or result.driver is None
        or result.driver.kind == "program"
        or main is None
        or main.timing.n >= REPEATS
    ):
        return []
    title = f"▶ Measure again: repeat {result.driver.short} ({known.kernel.name})"
    more = {"through": result.driver.id, "repeated": True}
    return [kernel_commands.of_kernel(title, "orbit.run", known.target, **more)]


def _capture(session: Session, known: KernelStatus) -> list[lsp.Command]:
    """Return the command that writes a launch spec from a driver's launch: the driver that a click takes, else the
    best one.
    """
    ranked = driver_choice.ranked(session, known.target)
    driver = known.plan.driver or capture.own_program(session, known.target)
    driver = driver or (ranked[0].driver if ranked else None)
    if driver is None or capture.refusal(session, known.target, known.kernel):
        return []
    title = f"Capture a launch spec from {driver.short} ({known.kernel.name})"
    return [kernel_commands.of_kernel(title, "orbit.capture", known.target, through=driver.id)]


def _pins(session: Session, known: KernelStatus) -> list[lsp.Command]:
    """Return the commands that keep the driver that ran last, or forget what was chosen or learned."""
    name, target = known.kernel.name, known.target
    ran = known.result.driver if known.result else None
    pinned = session.results.pinned.get(target)
    offered: list[lsp.Command] = []
    if ran and ran != pinned and driver_choice.named(session, target, ran.id):
        title = f"Always run through {ran.id} ({name})"
        offered.append(kernel_commands.of_kernel(title, "orbit.pinDriver", target, through=ran.id))
    if pinned:
        title = f"Let clicks choose a driver again ({name})"
        offered.append(kernel_commands.of_kernel(title, "orbit.pinDriver", target))
    if session.results.learned.get(target):
        title = f"Forget which drivers launched it ({name})"
        offered.append(kernel_commands.of_kernel(title, "orbit.forgetDrivers", target))
    return offered


def commands(session: Session, uri: str, known: KernelStatus, line: int) -> list[lsp.Command]:
    name, target = known.kernel.name, known.target
    by_spec = known.plan.through == "spec"
    started, driver = kernel_status.is_started(session, known), known.plan.driver
    entries = session.files[uri].scan.entries
    offered: list[lsp.Command] = []
    if known.running and known.running.state == "running" and session.setup.place() == "local":
        offered.append(kernel_commands.of_kernel(f"Where is it? ({name})", "orbit.locate", target))
    if by_spec and entries and not known.running:
        offered.append(
            kernel_commands.of_kernel(f"▶ Run {entries[0]} ({name})", "orbit.run", target, through="program")
        )
    if not known.running:
        offered += [
            kernel_commands.of_kernel(title, "orbit.run", target, through=each.id)
            for title, each in _drivers(session, known)
        ]
        offered += _again(known)
        offered += _capture(session, known)
        offered += _pins(session, known)
    if target in session.live:
        offered.append(kernel_commands.of_kernel(f"◉ Live: stop ({name})", "orbit.live", target))
    elif known.kernel.launchable and started and driver_choice.is_quick(session, target, driver):
        offered.append(kernel_commands.of_kernel(f"○ Live: run at every save ({name})", "orbit.live", target))
    if known.kernel.launchable and started and not known.running:
        price = profile_price.of(session, known, "full")
        title = f"Profile in full ({name})" + (f": {price.text}" if price else "")
        offered.append(kernel_commands.of_kernel(title, "orbit.profile", target, detail="full"))
    offered += [
        lsp.Command(f"{command.title} ({name})", command.command, arguments=command.arguments)
        for command in kernel_commands.debug(session, uri, known)
    ]
    if check := kernel_commands.check_memory(session, known):
        offered.append(check)
    if compiles := kernel_commands.compile_command(session, known):
        offered.append(lsp.Command(f"Compile ({name})", compiles.command, arguments=compiles.arguments))
    if known.result:
        offered.append(
            kernel_commands.of_kernel(f"Open the report ({name})", "orbit.openReport", target, what="run")
        )
    if known.profile and known.profile.profiles:
        offered.append(
            kernel_commands.of_kernel(
                f"Open the profile's report ({name})", "orbit.openReport", target, what="profile"
            )
        )
        first = known.profile.profiles[0]
        if first.tier == "counters" and first.counted_by == "Nsight Compute":  # CUPTI writes no report
            offered.append(
                kernel_commands.of_kernel(
                    f"Open in Nsight Compute ({name})", "orbit.openReport", target, what="nsight"
                )
            )
    made = ("ttgir", "ptx", "sass") if known.kernel.dsl == "triton" else ("ptx", "sass")
    offered += [
        kernel_commands.of_kernel(
            f"Show {dump_files.TITLES[level]} ({name})", "orbit.disassemble", target, kind=level, line=line
        )
        for level in made
        if known.kernel.launchable and known.kernel.dsl in SPECIFIED
    ]
    levels = {level: dump_files.TITLES[level] for level in dump_files.levels(known.profile)}
    if session.client.can_ask and len(levels) > 1:
        *most, last = levels.values()
        offered.append(
            kernel_commands.of_kernel(f"Open {', '.join(most)} or {last}… ({name})", "orbit.openIr", target)
        )
    else:
        offered += [
            kernel_commands.of_kernel(f"Open {title} ({name})", "orbit.openIr", target, kind=level)
            for level, title in levels.items()
        ]
    return offered
