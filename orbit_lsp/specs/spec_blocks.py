"""What stands above the kernels of one text. It is read without the session, so a thread may do it.

A text may have thousands of kernels on one line below thousands of comment lines, so what several share is read once.
"""

from __future__ import annotations

import re
from collections import defaultdict
from hashlib import sha256
from typing import TYPE_CHECKING

from orbit_lsp.kernels.collector_pause import collector_pause
from orbit_lsp.kernels.model import SPECIFIED, Kernel, Scan
from orbit_lsp.state.checked_specs import Above, BlockOf, SpecBlock, SpecLines
from orbit_remote.common.requests import KernelDefinition

if TYPE_CHECKING:
    from orbit_remote.spec.comment_scanner import SpecTarget
    from orbit_remote.spec.syntax_tree import Fault

# neither may look at a character more often than twice: a line may have thousands of `)->`
_BODY = {"cuda": re.compile(r"^[^=]*\{"), "triton": re.compile(r"\)\s*(?:->[^:)]*)?:")}
_MOST_STRAYS = 20


def definition(kernel: Kernel) -> KernelDefinition:
    """Return where a kernel stands, in the form of jobs."""
    name = kernel.name_span
    return KernelDefinition(
        kernel.name, kernel.qualified, kernel.whole.line, kernel.line, name.line, name.end_column,
        kernel.whole.end_line,
    )  # fmt: skip


def target(kernel: Kernel) -> SpecTarget:
    """Return the kernel in the form that the spec modules take."""
    from orbit_remote.spec import launch_spec

    return launch_spec.target_of(definition(kernel), kernel.language)


def lines_of(version: int, text: str) -> SpecLines:
    """Return a text split into lines, before anything has read it."""
    if (
        "rbit" not in text and "RBIT" not in text
    ):  # most have none: the spec modules are not imported for them
        return SpecLines(version, text, says=False)
    from orbit_remote.spec.comment_scanner import mentions

    return SpecLines(version, text, mentions(text))


def read_all(version: int, text: str, scan: Scan) -> SpecLines:
    """Read everything about a long text beforehand, so that nothing is left to read on the event loop."""
    lines = lines_of(version, text)
    if lines.says:
        with collector_pause():
            for kernel in scan.kernels:
                block_of(lines, scan, kernel)
            strays(lines, scan)
    return lines


def block_of(text: SpecLines, scan: Scan, kernel: Kernel) -> BlockOf | None:
    """Return the spec above a kernel, or None for kernels of languages that have no launch specs."""
    if kernel.dsl not in SPECIFIED:
        return None
    known = text.blocks.get(id(kernel))
    if known is None or known.kernel is not kernel:
        of = target(kernel)
        known = text.blocks[id(kernel)] = BlockOf(kernel, of, _block(text, scan, kernel, of))
    return known


def _block(text: SpecLines, scan: Scan, kernel: Kernel, of: SpecTarget) -> SpecBlock | None:
    if of.name_line >= len(text.lines):
        return None
    above = _above(text, of)
    if not (above.pieces or above.faults) or _anothers(text, scan, kernel, above):
        return None
    lines = text.lines[of.start_line : _header_end(text.lines, of, kernel.whole.end_line) + 1]
    digest = _digest(above.digest, of.name_end, "\n".join(lines))
    return SpecBlock(above.pieces, above.faults, above.text, above.launches, digest)


def _above(text: SpecLines, of: SpecTarget) -> Above:
    from orbit_remote.spec import comment_scanner

    start = of.start_line
    known = text.above.get((start, of.line))
    if known is None:
        pieces, faults = comment_scanner.above(text.lines, of)
        moved = tuple(
            comment_scanner.CommentPiece(piece.line - start, piece.column, piece.text) for piece in pieces
        )
        faults = tuple(fault.moved(-start) for fault in faults)
        written = "\n".join(piece.text for piece in pieces)
        launched = frozenset(re.findall(r"\blaunch\s+(\w+)", written))
        launches = bool(re.search(r"\blaunch\b", written))
        known = Above(moved, faults, written, launches, launched, _digest(moved, faults))
        text.above[start, of.line] = known
    return known


def _digest(*parts: object) -> str:
    return sha256(repr(parts).encode("utf-8", "surrogatepass")).hexdigest()


def _anothers(text: SpecLines, scan: Scan, kernel: Kernel, above: Above) -> bool:
    """Say whether a spec belongs to another kernel. If several kernels begin on one line (a macro may make them), the
    spec is that of the one it launches.
    """
    if text.names is None or text.names[0] is not scan:
        by_line = defaultdict[int, set[str]](set)
        for each in scan.kernels:
            by_line[each.whole.line].add(each.name)
        text.names = scan, by_line
    beside = text.names[1][kernel.whole.line]
    return kernel.name not in above.launched and not beside.isdisjoint(above.launched)


def _header_end(lines: list[str], of: SpecTarget, end: int) -> int:
    """Return the line on which the body begins, or the definition's last line: typing in a body changes no spec."""
    for at in range(of.name_line, min(end, len(lines) - 1)):
        if _BODY[of.language].search(lines[at]):
            return at
    return end


def strays(text: SpecLines, scan: Scan) -> list[Fault]:
    """Return a warning for each group of lines that looks like a spec but stands above no kernel, and for each near
    miss of one.
    """
    if text.strays is None or text.strays[0] is not scan:
        text.strays = scan, [*_strays(text, scan), *_near_misses(text, scan)]
    return text.strays[1]


def _strays(text: SpecLines, scan: Scan) -> list[Fault]:
    from orbit_remote.spec.comment_scanner import begins
    from orbit_remote.spec.syntax_tree import Fault, SpecSpan

    read: set[int] = set()
    for kernel in scan.kernels:
        known = block_of(text, scan, kernel)
        if known and known.block:
            start = known.target.start_line
            read.update(start + piece.line for piece in known.block.pieces)
            read.update(start + fault.span.line for fault in known.block.faults)
    faults: list[Fault] = []
    before = -2
    for at, line in enumerate(text.lines):
        if at in read or not (end := begins(line, scan.language)):
            continue
        if at != before + 1:
            if len(faults) == _MOST_STRAYS:
                break
            span = SpecSpan(at, len(line) - len(line.lstrip()), at, end)
            message = "No CUDA or Triton kernel follows this launch spec, so it is not used."
            faults.append(Fault(span, message, "warning"))
        before = at
    return faults


def _near_misses(text: SpecLines, scan: Scan) -> list[Fault]:
    from orbit_remote.spec.comment_scanner import beginning, near_misses
    from orbit_remote.spec.syntax_tree import Fault

    message = f"This comment is not read as a launch spec; begin it with '{beginning(scan.language)}'."
    spans = list(near_misses(text.lines, scan.language).values())[:_MOST_STRAYS]
    return [Fault(span, message, "warning") for span in spans]
