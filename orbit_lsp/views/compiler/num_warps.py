"""A code action that launches a Triton kernel with another `num_warps`, if a compilation with that number showed that more warps fit a multiprocessor."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from typing import Any

from lsprotocol import types as lsp

from orbit_lsp.kernels import Kernel, Span
from orbit_lsp.specs import spec_cache
from orbit_lsp.state import units
from orbit_lsp.state.session import Session
from orbit_lsp.views import kernel_status, positions
from orbit_lsp.views.compiler import gpu_occupancy
from orbit_remote.common import limits, occupancy
from orbit_remote.common.messages import Resources

_GAIN = 1.25
"""Gain in resident warps below which another number is not worth an edit."""
_DEFAULT = 4
"""Triton's own, where a launch gives no number."""


def actions(session: Session, uri: str, line: int, *, versioned: bool) -> list[lsp.CodeAction]:
    """Return the action for the kernel whose signature or launch is at `line`, if its figures are of its present
    text.
    """
    file = session.files.get(uri)
    if file is None or file.scan.language != "triton":
        return []
    offered: list[lsp.CodeAction] = []
    for known in kernel_status.of(session, uri):
        every = gpu_occupancy.compiled(session, uri, known)
        if every is None or known.figures is None or not known.figures.resources:
            continue
        resources, _ = kernel_status.launched_instance(known)
        better = propose(resources, gpu_occupancy.over_warps(every, resources))
        edits = _edits(session, uri, known.kernel, (resources.threads or 0) // occupancy.WARP, better)
        lines = {*range(known.kernel.whole.line, known.kernel.name_span.end_line + 1)}
        if better is None or line not in lines | {span.line for span, _ in edits}:
            continue
        changes = [
            lsp.TextEdit(positions.of_span(session, file.document, span), text) for span, text in edits
        ]
        if changes:
            offered.append(
                lsp.CodeAction(
                    _title(known.kernel, resources, better),
                    kind=lsp.CodeActionKind.RefactorRewrite,
                    edit=positions.edit_of(file.document, changes, versioned=versioned),
                )
            )
    return offered


def propose(now: Resources, by_warps: Mapping[int, Resources]) -> Resources | None:
    """Return the instance with the most resident warps, among several the one nearest to the present one. Return None
    if it gains too little, or spills more than the present one.
    """
    today = _occupancy(now)
    if today is None or not now.threads:
        return None
    best: tuple[int, float, Resources] | None = None
    for other in by_warps.values():
        reached = _occupancy(other)
        if reached is None or not other.threads or _spills(other) > _spills(now):
            continue
        distance = max(other.threads / now.threads, now.threads / other.threads)
        if best is None or (reached.warps, -distance) > best[:2]:
            best = reached.warps, -distance, other
    return best[2] if best and best[0] >= max(1, _GAIN * today.warps) else None


def _title(kernel: Kernel, now: Resources, better: Resources) -> str:
    before, after = _occupancy(now), _occupancy(better)
    assert before
    assert after
    assert now.threads
    assert better.threads
    today = "a launch that fails" if before.reason else units.occupancy(before.fraction)
    trades = (
        "less work for each thread between loads, and reductions across more warps"
        if better.threads > now.threads
        else "more of the tile for each thread, and fewer warps of a program that hide its latency"
    )
    return (
        f"Launch {kernel.name} with num_warps={better.threads // occupancy.WARP}: occupancy "
        f"{units.occupancy(after.fraction)} instead of {today} ({better.registers} registers a thread, not "
        f"{now.registers}; compiled for {better.architecture}); {trades}"
    )


def _occupancy(resources: Resources) -> occupancy.Occupancy | None:
    if resources.registers is None or not resources.threads:
        return None
    return occupancy.occupancy(
        resources.architecture, resources.registers, resources.threads, resources.static_shared or 0,
        resources.dynamic_shared or 0, barriers=resources.barriers or 0,
    )  # fmt: skip


def _spills(resources: Resources) -> int:
    return (resources.spill_stores or 0) + (resources.spill_loads or 0)


def _edits(
    session: Session, uri: str, kernel: Kernel, today: int, better: Resources | None
) -> list[tuple[Span, str]]:
    """Return the edits that make every launch of the kernel use the better number. Return none if one of them is not
    written as a number, or the kernel itself depends on it.
    """
    document = session.files[uri].document
    checked = spec_cache.spec_of(session, uri, kernel)
    if checked and any(fault.severity == "error" for fault in checked.faults):
        return []  # its launches are not known
    body = "\n".join(document.line(line) for line in range(kernel.whole.line, kernel.whole.end_line + 1))
    if (
        better is None
        or not better.threads
        or "num_warps" in body
        or len(document.text) > limits.OUTLINED.most
    ):
        return []
    number = str(better.threads // occupancy.WARP)
    edits: list[tuple[Span, str]] = []
    launches = [*_specified(session, uri, kernel), *_of_host_code(document.text, kernel)]
    for span, value in launches:
        lines = [document.line(line) for line in range(span.line, span.end_line + 1)]
        if value is not None:
            text = lines[value.line - span.line][value.column : value.end_column]
            if not text.isdigit() or int(text) != today:
                return []
            edits.append((value, number))
            continue
        end = lines[-1][: span.end_column].rstrip()
        if today != _DEFAULT or not end.endswith(")"):
            return []
        comma = "" if re.search(r"[(,]\s*$", end[:-1]) else ", "
        at = Span(span.end_line, len(end) - 1, span.end_line, len(end) - 1)
        edits.append((at, f"{comma}num_warps={number}"))
    return edits


def _specified(session: Session, uri: str, kernel: Kernel) -> Iterator[tuple[Span, Span | None]]:
    """Yield (the whole, the value of `num_warps`) for the launches in the kernel's launch spec."""
    checked = spec_cache.spec_of(session, uri, kernel)
    for launch in checked.spec.launches if checked else ():
        if launch.kernel.name == kernel.name:
            values = [each.value.span for each in launch.keywords if each.name == "num_warps"]
            yield _span(launch.span), _span(values[0]) if values else None


def _of_host_code(text: str, kernel: Kernel) -> Iterator[tuple[Span, Span | None]]:
    """Yield the same for the launches in the file's own code. A launch that unpacks its keywords is a value as a
    whole, and no number.
    """
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return
    lines = text.split("\n")
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Subscript)):
            continue
        if not (isinstance(node.func.value, ast.Name) and node.func.value.id == kernel.name):
            continue
        values = [each.value for each in node.keywords if each.arg in ("num_warps", None)]
        yield _place(node, lines), _place(values[0], lines) if values else None


def _span(span: Any) -> Span:
    return Span(span.line, span.column, span.end_line, span.end_column)


def _place(node: ast.expr, lines: list[str]) -> Span:
    """Return a span in code points. Python counts the bytes of UTF-8."""
    first, last = node.lineno - 1, (node.end_lineno or node.lineno) - 1

    def column(line: int, count: int) -> int:
        return len(lines[line].encode()[:count].decode(errors="replace"))

    return Span(first, column(first, node.col_offset), last, column(last, node.end_col_offset or 0))
