"""Code actions that write a launch spec above a kernel that has none."""

from __future__ import annotations

import ast
import asyncio
import re
from itertools import islice
from textwrap import dedent
from typing import TYPE_CHECKING, NamedTuple

from lsprotocol import types as lsp

from orbit_lsp.drafts import spec_lines
from orbit_lsp.kernels import Kernel
from orbit_lsp.kernels.model import SPECIFIED
from orbit_lsp.specs import spec_blocks, spec_cache
from orbit_lsp.state.session import Session
from orbit_lsp.views import positions
from orbit_remote.common.limits import OUTLINED

if TYPE_CHECKING:
    from collections.abc import Mapping

    from orbit_lsp.drafts.guesses import DraftStatement, DraftSubject
    from orbit_remote.spec.rules import LaunchLimits
    from orbit_remote.spec.values import Value


_MOST_KERNELS = 8
"""Of a file that is selected: each costs a reading of the whole file."""


class DraftAction(NamedTuple):
    title: str
    edit: lsp.WorkspaceEdit


def actions(
    session: Session, uri: str, first: int, last: int, *, versioned: bool = False
) -> list[lsp.CodeAction]:
    """Return the actions for the first kernels whose definition meets the lines `first` to `last`.

    They have no kind: editors put actions that have one first, above *Run*.
    """
    return [
        lsp.CodeAction(f"{draft.title} ({kernel.name})", kind=lsp.CodeActionKind.Empty, edit=draft.edit)
        for kernel in _asked_for(session, uri, first, last)
        for draft in drafts(session, uri, kernel, versioned=versioned)
    ]


def _asked_for(session: Session, uri: str, first: int, last: int) -> list[Kernel]:
    file = session.files.get(uri)
    meeting = (
        kernel
        for kernel in (file.scan.kernels if file else ())
        if kernel.whole.line <= last and first <= kernel.whole.end_line
    )
    return [kernel for kernel in islice(meeting, _MOST_KERNELS) if _may_have(session, uri, kernel)]


def _may_have(session: Session, uri: str, kernel: Kernel) -> bool:
    return (
        kernel.dsl in SPECIFIED
        and kernel.launchable
        and not kernel.generator
        and not spec_cache.spec_of(session, uri, kernel)
    )


async def prepare(session: Session, uri: str, first: int, last: int) -> None:
    """Write the drafts of these kernels outside of the event loop. `actions` and `drafts` find them after that."""
    for kernel in _asked_for(session, uri, first, last):
        if uri not in session.files:
            return
        present = spec_cache.text_lines(session, uri)
        limits = spec_cache.limits(session, uri, kernel)
        key = (spec_blocks.target(kernel), limits)
        if key not in present.drafts:
            present.drafts[key] = await asyncio.to_thread(written, present.lines, kernel, limits)


def drafts(session: Session, uri: str, kernel: Kernel, *, versioned: bool = False) -> list[DraftAction]:
    """Return specs to begin with, the one from host code first. Return none if the kernel has a spec, or nothing can
    be made up.

    Each has no fault, except for values that only the author knows. `versioned` says that the client accepts
    `documentChanges`.
    """
    file = session.files.get(uri)
    if file is None or not _may_have(session, uri, kernel):
        return []
    made: list[DraftAction] = []
    present = spec_cache.text_lines(session, uri)
    limits = spec_cache.limits(session, uri, kernel)
    key = (spec_blocks.target(kernel), limits)
    if key not in present.drafts:
        present.drafts[key] = written(present.lines, kernel, limits)
    for title, lines in present.drafts[key]:
        text = lines.replace("\n", _line_end(file.document.line(kernel.whole.line), file.document.text))
        at = positions.position(session, file.document, kernel.whole.line, 0)
        edit = lsp.TextEdit(lsp.Range(at, at), text)
        made.append(DraftAction(title, positions.edit_of(file.document, [edit], versioned=versioned)))
    return made


def none(session: Session, uri: str, kernel: Kernel) -> str:
    """Return what to say if there is nothing to draft."""
    if spec_cache.spec_of(session, uri, kernel):
        return f"orbit: {kernel.name} has a launch spec: it stands above it"
    if kernel.dsl not in SPECIFIED:
        return f"orbit: {kernel.name} is run by its file's own program: only CUDA and Triton kernels have launch specs"
    mark = "//" if kernel.language == "cuda" else "#"
    launch = "<<<grid, block>>>" if kernel.language == "cuda" else "[grid]"
    why, written = _reason(spec_cache.text_lines(session, uri).lines, kernel)
    remedy = (
        f"one begins with `{mark} orbit: launch {kernel.name}{launch}(…)` above it"
        if written
        else ("a program can launch it: give the file a main, or run it through a test or script that does")
    )
    return f"orbit: no launch spec can be drafted for {kernel.name}: {why}; {remedy}"


def _reason(lines: list[str], kernel: Kernel) -> tuple[str, bool]:
    """Return why nothing can be drafted for a kernel, and whether its author can write a launch spec nevertheless."""
    from orbit_lsp.drafts import cuda, guesses

    if (near := _near(lines, kernel)) is None:
        return "it is too long", True
    subject = guesses.subject(near, spec_blocks.target(kernel), kernel.whole.end_line)
    if subject is None:
        return "its parameters are not written behind its name, as where a macro makes it", True
    for parameter in subject.header.parameters:
        if parameter.refused:
            return parameter.refused.rstrip("."), False
    if kernel.language == "cuda" and cuda.template_arguments(subject) is None:
        return "what its template parameters stand for cannot be guessed", True
    return "its arguments cannot be guessed from its text", True


def _line_end(line: str, text: str) -> str:
    """Return a line's own end, else that of the file: some clients insert a text as it is."""
    match = re.search(r"\r\n|\r|\n", line) or re.search(r"\r\n|\r|\n", text)
    return match[0] if match else "\n"


def written(lines: list[str], kernel: Kernel, limits: LaunchLimits | None = None) -> list[tuple[str, str]]:
    """Return titles and lines of the drafts that have no fault, except what an author has to fill in, on the GPU with
    these limits.
    """
    from orbit_lsp.drafts import elementwise, guesses

    if (near := _near(lines, kernel)) is None:
        return []
    lines, of = near, spec_blocks.target(kernel)
    if (subject := guesses.subject(lines, of, kernel.whole.end_line)) is None:
        return []
    drafts, tree = (_cuda(subject), None) if of.language == "cuda" else _triton(subject, lines, kernel)
    titles = ("Write a launch spec from the launch in this file", "Write a launch spec from the signature")
    first = lines[kernel.whole.line]
    titled: list[tuple[str, str]] = []
    for title, draft in zip(titles, drafts, strict=False):
        statements = guesses.used(draft) if draft else []
        text = spec_lines.above(kernel.language, statements, first)
        values = _values(lines, kernel, text, limits) if statements else None
        if values is None:
            continue
        if more := elementwise.statements(subject, statements, values, tree):
            longer = spec_lines.above(kernel.language, [*statements, *more], first)
            text = longer if faultless(lines, kernel, longer, limits) else text
        titled.append((title, text))
    return titled


def _near(lines: list[str], kernel: Kernel) -> list[str] | None:
    """Return the lines of the file, or only of the kernel if the file is too long. Return None if the kernel is too
    long.
    """
    if sum(map(len, lines)) <= OUTLINED.most:
        return lines
    first, last = kernel.whole.line, kernel.whole.end_line + 1
    own = lines[first:last]
    return None if sum(map(len, own)) > OUTLINED.most else [*[""] * first, *own]


def _cuda(subject: DraftSubject) -> list[list[DraftStatement] | None]:
    from orbit_lsp.drafts import cuda, host_cuda

    return [host_cuda.draft(subject), cuda.draft(subject)]


def _triton(
    subject: DraftSubject, lines: list[str], kernel: Kernel
) -> tuple[list[list[DraftStatement] | None], ast.Module | None]:
    from orbit_lsp.drafts import host_triton, triton

    own = lines[kernel.whole.line : kernel.whole.end_line + 1]
    for text in ("\n".join(lines), dedent("\n".join(own))):  # the kernel alone where the rest is being typed
        if len(text) > OUTLINED.most:
            continue
        try:
            tree = ast.parse(text)
            if body := triton.body_of(subject, tree):
                return [host_triton.draft(subject, body, tree), triton.draft(subject, body)], tree
        except (SyntaxError, ValueError, RecursionError, MemoryError):  # no Python, or nested beyond reading
            pass
    return [], None


def faultless(lines: list[str], kernel: Kernel, draft: str, limits: LaunchLimits | None = None) -> bool:
    """Say whether the file with the draft in it has no error there, except at what is to be filled in."""
    return _values(lines, kernel, draft, limits) is not None


def _values(
    lines: list[str], kernel: Kernel, draft: str, limits: LaunchLimits | None
) -> Mapping[str, Value] | None:
    """Return the values of a draft, or None if it has faults."""
    from orbit_remote.spec import launch_spec

    start = kernel.whole.line
    added = draft.split("\n")[:-1]
    open_lines = {start + at for at, line in enumerate(added) if "fill in" in line}
    of = spec_blocks.target(kernel)
    moved = launch_spec.target_of(spec_blocks.definition(kernel), of.language, len(added))
    checked = launch_spec.check_lines([*lines[:start], *added, *lines[start:]], moved, limits)
    faulty = any(fault.severity == "error" and fault.span.line not in open_lines for fault in checked.faults)
    return None if faulty else checked.values
