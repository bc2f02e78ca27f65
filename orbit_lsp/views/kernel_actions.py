"""Code actions that have no lens, to keep lenses few: the program instead of the launch spec, Live, full profiles, reports, IR."""

from __future__ import annotations

import time

from lsprotocol import types as lsp

from orbit_lsp.kernels.model import RUNNABLE, SPECIFIED
from orbit_lsp.profile import dump_files
from orbit_lsp.state.session import Session
from orbit_lsp.views import kernel_commands, kernel_status
from orbit_lsp.views.kernel_status import KernelStatus


def actions(session: Session, uri: str, first: int, last: int) -> list[lsp.CodeAction]:
    """For the kernels whose definition meets the lines `first` to `last`."""
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


def commands(session: Session, uri: str, known: KernelStatus, line: int) -> list[lsp.Command]:
    name, target = known.kernel.name, known.target
    by_spec = known.plan.through == "spec"
    entries = session.files[uri].scan.entries
    offered: list[lsp.Command] = []
    if by_spec and entries and not known.running:
        offered.append(
            kernel_commands.of_kernel(f"▶ Run {entries[0]} ({name})", "orbit.run", target, through="program")
        )
    if target in session.live:
        offered.append(kernel_commands.of_kernel(f"◉ Live: stop ({name})", "orbit.live", target))
    elif known.kernel.launchable and (by_spec or entries):
        offered.append(kernel_commands.of_kernel(f"○ Live: run at every save ({name})", "orbit.live", target))
    if known.kernel.launchable and (by_spec or entries) and not known.running:
        offered.append(
            kernel_commands.of_kernel(f"Profile in full ({name})", "orbit.profile", target, detail="full")
        )
    offered += [
        lsp.Command(f"{command.title} ({name})", command.command, arguments=command.arguments)
        for command in kernel_commands.debug(session, uri, known)
    ]
    if check := kernel_commands.check_memory(session, uri, known):
        offered.append(check)
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
        if known.profile.profiles[0].tier == "counters":
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
