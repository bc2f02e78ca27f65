"""Code actions for comparisons and the history of a kernel, for a click, and for editors that cannot ask a question."""

from __future__ import annotations

from lsprotocol import types as lsp

from orbit_lsp.history import compare_candidates
from orbit_lsp.kernels.model import RUNNABLE
from orbit_lsp.state.kernel_ids import KernelId
from orbit_lsp.state.session import Session
from orbit_lsp.views import kernel_commands, kernel_status

_MOST_KERNELS = 20
"""An editor asks about all of a file that is selected."""


def actions(session: Session, uri: str, first: int, last: int) -> list[lsp.CodeAction]:
    """Return the actions for the kernels whose definition, and the contract whose name, meets the lines `first` to
    `last`.
    """
    offered: list[lsp.Command] = []
    left = _MOST_KERNELS
    for known in kernel_status.of(session, uri):
        kernel = known.kernel
        if kernel.whole.line > last or first > kernel.whole.end_line or not left:
            continue
        left -= 1
        runs = kernel_status.is_started(session, known)
        if kernel.launchable and kernel.dsl in RUNNABLE and runs and not known.running:
            offered += commands(session, known.target, kernel.name)
    checked = kernel_status.harness_status(session, uri)
    if checked and first <= checked.entry.span.line <= last:
        offered += commands(session, checked.entry.target, checked.entry.name)
    return [
        lsp.CodeAction(command.title, kind=lsp.CodeActionKind.Empty, command=command) for command in offered
    ]


def commands(session: Session, target: KernelId, name: str) -> list[lsp.Command]:
    choices = compare_candidates.choices(session, target)
    offered: list[lsp.Command] = []
    if choices and session.client.can_ask:
        offered.append(kernel_commands.of_kernel(f"Compare with… ({name})", "orbit.compareWith", target))
    elif choices:
        offered += [
            kernel_commands.of_kernel(
                f"Compare with {choice.title} ({name})", "orbit.compareWith", target, **{"with": choice.word}
            )
            for choice in choices
        ]
    if target in session.results.runs or target in session.results.profiles:
        offered.append(kernel_commands.of_kernel(f"Open the history ({name})", "orbit.history", target))
    if (versus := session.results.ab.get(target)) and versus.comparison:
        title = f"Open the comparison with {versus.against} ({name})"
        offered.append(kernel_commands.of_kernel(title, "orbit.compareWith", target, show="report"))
    return offered
