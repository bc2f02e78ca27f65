"""A code action that asks the compiler for one more block on each multiprocessor: `__launch_bounds__` on a CUDA
kernel.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from lsprotocol import types as lsp

from orbit_lsp.kernels import Kernel, Span
from orbit_lsp.state import units
from orbit_lsp.state.documents import Document
from orbit_lsp.state.session import Session
from orbit_lsp.views import kernel_status, positions
from orbit_remote.common import occupancy
from orbit_remote.common.messages import Resources

_MOST_TAKEN = 0.25
"""Share of its registers that a thread may lose: beyond it nearly every kernel spills, and there is no gain."""
_WRITTEN = re.compile(r"__launch_bounds__\s*\(([^()]*)\)")


class Proposal(NamedTuple):
    """A proposal: `blocks` of `threads` threads on each multiprocessor, if the compiler uses at most `registers` for
    a thread.
    """

    threads: int
    blocks: int
    registers: int
    fraction: float


def actions(session: Session, uri: str, line: int, *, versioned: bool) -> list[lsp.CodeAction]:
    """Return the action for the kernel whose signature is at `line`, if its figures are of its present text."""
    file, target = session.files.get(uri), session.at(uri, line)
    known = next((kernel for kernel in kernel_status.of(session, uri) if kernel.target == target), None)
    if (
        file is None
        or known is None
        or known.kernel.language != "cuda"
        or line > known.kernel.name_span.end_line
    ):
        return []
    if known.figures is None or known.figures_stale or not known.figures.resources:
        return []
    resources, _ = kernel_status.launched_instance(known)
    threads, dynamic = kernel_status.launch_shape(session, uri, known.kernel, resources)
    now = _occupancy(resources, threads, dynamic) if threads else None
    proposal = propose(resources, threads, dynamic, now) if threads and now else None
    if proposal is None or now is None:
        return []
    edit = _edit(file.document, known.kernel, proposal)
    if edit is None:
        return []
    change = lsp.TextEdit(positions.of_span(session, file.document, edit[0]), edit[1])
    title = (
        f"Set __launch_bounds__({proposal.threads}, {proposal.blocks}): occupancy {units.occupancy(proposal.fraction)} "
        f"instead of {units.occupancy(now.fraction)}; at most {proposal.registers} registers a thread instead of "
        f"{resources.registers}, which may spill"
    )
    return [
        lsp.CodeAction(
            title,
            kind=lsp.CodeActionKind.RefactorRewrite,
            edit=positions.edit_of(file.document, [change], versioned=versioned),
        )
    ]


def propose(resources: Resources, threads: int, dynamic: int, now: occupancy.Occupancy) -> Proposal | None:
    """Return the most registers with which one more block fits. Return None if registers are not the limit, or too
    many of them would have to go. Return None too if the kernel is bound to blocks of another size, because the
    number of blocks counts those.
    """
    if resources.registers is None or now.reason or now.limiters != ("registers",):
        return None
    if resources.max_threads not in (None, threads):
        return None
    for registers in range(resources.registers - 1, int(resources.registers * (1 - _MOST_TAKEN)), -1):
        better = _occupancy(resources, threads, dynamic, registers)
        if better and better.blocks > now.blocks:
            return Proposal(threads, better.blocks, registers, better.fraction)
    return None


def _occupancy(
    resources: Resources, threads: int, dynamic: int, registers: int | None = None
) -> occupancy.Occupancy | None:
    return occupancy.occupancy(
        resources.architecture, registers or resources.registers or 0, threads, resources.static_shared or 0, dynamic,
        barriers=resources.barriers or 0, max_threads=resources.max_threads,
    )  # fmt: skip


def _edit(document: Document, kernel: Kernel, proposal: Proposal) -> tuple[Span, str] | None:
    """Return the bounds in front of the kernel's name, or in place of the present ones. Return None if a macro hides
    them.
    """
    name = kernel.name_span
    if not kernel.bounds:
        at = Span(name.line, name.column, name.line, name.column)
        return at, f"__launch_bounds__({proposal.threads}, {proposal.blocks}) "
    for line in range(kernel.whole.line, name.end_line + 1):
        if written := _WRITTEN.search(document.line(line)):
            span = Span(line, written.start(1), line, written.end(1))
            return span, f"{kernel.bounds[0]}, {proposal.blocks}"
    return None
