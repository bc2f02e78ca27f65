"""The launch specs of open files, checked and cached by the text that they depend on.

What reads them is imported on first use: most files have none. Checking one takes a millisecond; it is done when
somebody asks, never while an edit is taken in. `Watch` asks once typing has paused.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, NamedTuple

from orbit_lsp.kernels.model import RUNNABLE, Kernel
from orbit_lsp.state import daemon_thread
from orbit_lsp.state.checked_specs import BlockOf, CheckedSpec, SpecBlock, SpecKey, SpecLines
from orbit_lsp.state.debounce import Debounce
from orbit_lsp.state.kernel_ids import KernelId
from orbit_lsp.state.session import Session
from orbit_remote.common import messages as c
from orbit_remote.common.limits import KERNELS

if TYPE_CHECKING:
    from orbit_remote.spec.comment_scanner import Piece, Target
    from orbit_remote.spec.launch_spec import Checked
    from orbit_remote.spec.rules import Limits
    from orbit_remote.spec.syntax_tree import Fault

PAUSE_S = 0.3
_BODY = {"cuda": re.compile(r"^[^=]*\{"), "triton": re.compile(r"\)\s*(?:->[^:]*)?:")}
_MOST_STRAYS = 20
_MOST_KNOWN = 2 * KERNELS.most
"""Checked specs remembered of one file: those of its kernels and of texts that an undo brings back."""
_AT_ONCE = 8
"""Specs that are checked while somebody waits; checking one takes a millisecond."""


class Asked(NamedTuple):
    """One spec to check, apart from the session: a thread may do it."""

    key: SpecKey
    target: Target
    start: int


def definition(kernel: Kernel) -> c.Definition:
    """Where a kernel stands, as a job says it."""
    name = kernel.name_span
    return c.Definition(
        kernel.name, kernel.qualified, kernel.whole.line, kernel.line, name.line, name.end_column,
        kernel.whole.end_line,
    )  # fmt: skip


def target(kernel: Kernel) -> Target:
    """The kernel as the spec modules are asked about it."""
    from orbit_remote.spec import launch_spec

    return launch_spec.target_of(definition(kernel), kernel.language)


def spec_of(session: Session, uri: str, kernel: Kernel, *, placed: bool = True) -> Checked | None:
    """The spec above a kernel; None where there is none.

    Its places are those of the present text. Who needs none says so with `placed`: then a spec that has only
    moved is not read again, and faultless ones may have the lines of where they stood.
    """
    if not _speaks(session, uri):
        return None
    asked = _asked(session, uri, kernel)
    if asked is None or not asked.key.block.pieces:
        return None
    known = _known(session, uri, asked)
    if known and (known.start_line == asked.start or not (placed or known.checked.faults)):
        return known.checked
    return _check(session, uri, asked)


def pieces_of(session: Session, uri: str, kernel: Kernel) -> tuple[Piece, ...]:
    """What follows `orbit:` in each line of the spec above a kernel, from its top, at its place."""
    from orbit_remote.spec.comment_scanner import Piece

    asked = _asked(session, uri, kernel) if _speaks(session, uri) else None
    pieces = asked.key.block.pieces if asked else ()
    return tuple(Piece(piece.line + kernel.whole.line, piece.column, piece.text) for piece in pieces)


def text_of(session: Session, uri: str, kernel: Kernel) -> str:
    """The lines of a kernel's spec as they are written, what stands before `orbit:` left out."""
    asked = _asked(session, uri, kernel) if _speaks(session, uri) else None
    return "\n".join(piece.text for piece in asked.key.block.pieces) if asked else ""


def faults(session: Session, uri: str) -> list[Fault]:
    """What is wrong with the specs of a file, from its top."""
    everything = _all(session, uri)
    strays = _strays(session, uri, everything)
    for asked in everything:
        known = _known(session, uri, asked)
        # what has moved is checked again only where something has a place to tell
        if known and (known.start_line == asked.start or not known.checked.faults):
            strays += known.checked.faults
        else:
            strays += _check(session, uri, asked).faults
    return sorted(set(strays), key=lambda fault: (fault.span.line, fault.span.column))


def _strays(session: Session, uri: str, everything: list[Asked]) -> list[Fault]:
    """A warning for each group of lines that look like a spec and stand above no kernel."""
    if not _speaks(session, uri):
        return []
    from orbit_remote.spec.comment_scanner import begins
    from orbit_remote.spec.syntax_tree import Fault, Span

    read = {piece.line + asked.start for asked in everything for piece in asked.key.block.pieces}
    read |= {fault.span.line + asked.start for asked in everything for fault in asked.key.block.faults}
    language = session.files[uri].scan.language
    strays: list[Fault] = []
    before = -2
    for at, line in enumerate(lines_of(session, uri)):
        if at in read or not (end := begins(line, language)):
            continue
        if at != before + 1 and len(strays) < _MOST_STRAYS:
            span = Span(at, len(line) - len(line.lstrip()), at, end)
            strays.append(
                Fault(
                    span,
                    "No CUDA or Triton kernel follows this launch spec, so it is not used.",
                    "warning",
                )
            )
        before = at
    return strays


def refusal(checked: Checked) -> str | None:
    """Why a spec is not run, in one sentence; None where nothing is wrong with it."""
    error = next((fault for fault in checked.faults if fault.severity == "error"), None)
    return f"line {error.span.line + 1}, in the launch spec: {error.message}" if error else None


def shape(session: Session, uri: str, kernel: Kernel) -> tuple[int, int] | None:
    """Threads a block and bytes of dynamic shared memory of the first CUDA launch of a kernel in its spec; None
    where there is none, or an error must be fixed first.
    """
    checked = spec_of(session, uri, kernel, placed=False) if kernel.language == "cuda" else None
    launch = (
        next((launch for launch in checked.spec.launches if launch.kernel.name == kernel.name), None)
        if checked
        else None
    )
    if checked is None or launch is None or launch.block is None:
        return None
    from orbit_remote.spec.interpreter import Scope, Untuned, evaluate
    from orbit_remote.spec.rules import triple, whole
    from orbit_remote.spec.syntax_tree import SpecError
    from orbit_remote.spec.values import World

    world, scope = World("cuda"), Scope(checked.values)
    try:
        extents = triple(evaluate(launch.block, world, scope), launch.block.span, "block")
        shared = whole(evaluate(launch.shared, world, scope), launch.shared.span, "") if launch.shared else 0
    except (SpecError, Untuned):
        return None
    return math.prod(extents), shared


def lines_of(session: Session, uri: str) -> list[str]:
    """The lines of an open file without their ends."""
    return text_lines(session, uri).lines


def text_lines(session: Session, uri: str) -> SpecLines:
    """What is remembered of the present text of an open file."""
    file = session.files[uri]
    document, known = file.document, file.spec_lines
    if known is None or known.version != document.version or known.text is not document.text:
        known = file.spec_lines = SpecLines(document.version, document.text, "orbit:" in document.text)
    return known


def kernel_at(session: Session, uri: str, line: int) -> Kernel | None:
    """The kernel whose spec the line belongs to."""
    if not _speaks(session, uri):
        return None
    below = [
        kernel
        for kernel in session.files[uri].scan.kernels
        if kernel.whole.line > line and kernel.dsl in RUNNABLE
    ]
    nearest = min(below, key=lambda kernel: (kernel.whole.line, kernel.name_span.line), default=None)
    asked = _asked(session, uri, nearest) if nearest else None
    if asked is None or all(piece.line + asked.start != line for piece in asked.key.block.pieces):
        return None
    return nearest


def _speaks(session: Session, uri: str) -> bool:
    return uri in session.files and text_lines(session, uri).says


def _all(session: Session, uri: str) -> list[Asked]:
    """One for every kernel above which something is said."""
    if not _speaks(session, uri):
        return []
    requests = [_asked(session, uri, kernel) for kernel in session.files[uri].scan.kernels]
    return [asked for asked in requests if asked]


def _asked(session: Session, uri: str, kernel: Kernel) -> Asked | None:
    """None if there is no spec above the kernel."""
    if kernel.dsl not in RUNNABLE:
        return None
    text = text_lines(session, uri)
    known = text.blocks.get(id(kernel))
    if known is None or known.kernel is not kernel:
        of = target(kernel)
        block = _block(text.lines, of, kernel.whole.end_line)
        if block and _anothers(session, uri, kernel, block):
            block = None
        known = text.blocks[id(kernel)] = BlockOf(kernel, of, block)
    if known.block is None:
        return None
    return Asked(SpecKey(known.block, limits(session, uri, kernel)), known.target, known.target.start_line)


def _anothers(session: Session, uri: str, kernel: Kernel, block: SpecBlock) -> bool:
    """Of several kernels that begin on one line (a macro may make them), a spec is that of the one it launches."""
    scan, text = session.files[uri].scan, text_lines(session, uri)
    if text.names is None or text.names[0] is not scan:
        by_line = defaultdict[int, set[str]](set)
        for each in scan.kernels:
            by_line[each.whole.line].add(each.name)
        text.names = scan, by_line
    beside = text.names[1][kernel.whole.line] - {kernel.name}
    spec = "\n".join(piece.text for piece in block.pieces) if beside else ""
    launched = set(re.findall(r"\blaunch\s+(\w+)", spec))
    return bool(launched & beside) and kernel.name not in launched


def _block(lines: list[str], of: Target, end: int) -> SpecBlock | None:
    from orbit_remote.spec import comment_scanner

    if of.name_line >= len(lines):
        return None
    pieces, block_faults = comment_scanner.above(lines, of)
    if not pieces and not block_faults:
        return None
    start = of.start_line
    return SpecBlock(
        tuple(comment_scanner.Piece(piece.line - start, piece.column, piece.text) for piece in pieces),
        tuple(fault.moved(-start) for fault in block_faults),
        "\n".join(lines[start : _header_end(lines, of, end) + 1]),
        of.name_end,
    )


def _header_end(lines: list[str], of: Target, end: int) -> int:
    """The line on which the body begins, or the definition's last: typing in a body changes no spec."""
    for at in range(of.name_line, min(end, len(lines) - 1)):
        if _BODY[of.language].search(lines[at]):
            return at
    return end


def limits(session: Session, uri: str, kernel: Kernel) -> Limits | None:
    """The GPU that a CUDA kernel runs on, and what the compiler said of the present text; neither needs a check."""
    if kernel.language != "cuda":
        return None
    from orbit_remote.spec.rules import Limits

    scan = session.files[uri].scan
    static = 0
    if figures := session.results.figures.get(KernelId(uri, kernel.qualified)):
        digest = next(
            (d for other_kernel, d in zip(scan.kernels, scan.digests, strict=True) if other_kernel is kernel),
            "",
        )
        if figures.digest == digest:
            static = min((resource.static_shared or 0 for resource in figures.resources), default=0)
    return Limits(session.setup.architecture(), static)


def _known(session: Session, uri: str, asked: Asked) -> CheckedSpec | None:
    file = session.files[uri]
    known = file.specs.get(asked.key)
    if known and known.checked.asked and known.version != file.document.version:
        return None
    return known


def _check(session: Session, uri: str, asked: Asked) -> Checked:
    from orbit_remote.spec import launch_spec

    checked = launch_spec.check_lines(lines_of(session, uri), asked.target, asked.key.limits)
    _remember(session, uri, asked, CheckedSpec(asked.start, session.files[uri].document.version, checked))
    return checked


def _remember(session: Session, uri: str, asked: Asked, known: CheckedSpec) -> None:
    if (file := session.files.get(uri)) is None:
        return
    file.specs.pop(asked.key, None)
    file.specs[asked.key] = known
    while len(file.specs) > _MOST_KNOWN:
        del file.specs[next(iter(file.specs))]


def _unknown(session: Session, uri: str) -> list[Asked]:
    return [asked for asked in _all(session, uri) if _known(session, uri, asked) is None]


def checked(session: Session, uri: str) -> bool:
    """Whether the specs of a file are known, but for a few."""
    file = session.files.get(uri)
    return file is None or not _speaks(session, uri) or len(_unknown(session, uri)) <= _AT_ONCE


async def check_aside(session: Session, uri: str) -> None:
    """Check the specs of a file beside the event loop, in its present text."""
    asked = _unknown(session, uri)
    if not asked:
        return
    lines, version = lines_of(session, uri), session.files[uri].document.version
    for request, known in await daemon_thread.call(lambda: _checked(lines, asked)):
        _remember(session, uri, request, CheckedSpec(request.start, version, known))


class Watch:
    """Checks the specs of a file off the loop once typing has paused, and reports when that is done."""

    def __init__(self, session: Session, changed: Callable[[set[str]], None]) -> None:
        self._session = session
        self._changed = changed
        self._pauses = Debounce(self._begin, "launch specs")
        self._published: set[str] = set()

    def edited(self, uri: str, pause_s: float = PAUSE_S) -> None:
        """The text of an open file is new."""
        if uri in self._session.files:
            self._pauses.edited(uri, pause_s)

    def forget(self, uri: str) -> None:
        self._pauses.forget(uri)

    def close(self) -> None:
        self._pauses.close()

    def _begin(self, uri: str) -> Coroutine[Any, Any, None] | None:
        return self.check(uri) if _speaks(self._session, uri) or uri in self._published else None

    async def check(self, uri: str) -> None:
        session = self._session
        if file := session.files.get(uri):
            await file.scan_aside()
            await check_aside(session, uri)
        if uri not in session.files:
            return
        if uri in self._pauses:
            return  # typed on: what is known now is old already
        self._published.add(uri)
        self._changed({uri})


def _checked(lines: list[str], asked: list[Asked]) -> list[tuple[Asked, Checked]]:
    from orbit_remote.spec import launch_spec

    return [
        (request, launch_spec.check_lines(lines, request.target, request.key.limits)) for request in asked
    ]
