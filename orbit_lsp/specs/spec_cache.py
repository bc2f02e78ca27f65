"""The launch specs of open files, checked and cached by the text that they depend on.

The modules that read them are imported on first use: most files have no spec. Checking one takes a millisecond. It is
done when somebody asks, never while an edit is processed. `features.spec_checks` asks once typing has paused.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from orbit_lsp.kernels.collector_pause import collector_pause
from orbit_lsp.kernels.model import SPECIFIED, Kernel
from orbit_lsp.specs import spec_blocks
from orbit_lsp.state import daemon_thread
from orbit_lsp.state.checked_specs import CheckedSpec, SpecBlock, SpecKey, SpecLines, SpecToCheck
from orbit_lsp.state.kernel_ids import KernelId
from orbit_lsp.state.session import OpenFile, Session
from orbit_remote.common.limits import AT_ONCE, KERNELS

if TYPE_CHECKING:
    from orbit_remote.spec.comment_scanner import CommentPiece
    from orbit_remote.spec.launch_spec import EvaluatedSpec
    from orbit_remote.spec.rules import LaunchLimits
    from orbit_remote.spec.syntax_tree import Fault

_MOST_KNOWN = 2 * KERNELS.most
"""Checked specs remembered of one file: those of its kernels and of texts that an undo brings back."""
_AT_ONCE = 8
"""Specs that are checked while somebody waits; checking one takes a millisecond."""
_MOST_FAULTS = 500
"""Of one file: an editor is sent all of them after every pause, and the rest comes once some are fixed."""


def spec_of(session: Session, uri: str, kernel: Kernel, *, placed: bool = True) -> EvaluatedSpec | None:
    """Return the spec above a kernel, or None if there is none.

    Its places are those of the present text. A caller that needs no places passes `placed=False`. Then a spec that
    has only moved is not read again, and one without faults may have the lines where it stood before.
    """
    if not speaks(session, uri):
        return None
    asked = _asked(session, uri, kernel)
    if asked is None or not asked.block.pieces:
        return None
    known = _known(session, uri, asked)
    if known and (known.start_line == asked.start or not (placed or known.checked.faults)):
        return known.checked
    return _check(session, uri, asked)


def pieces_of(session: Session, uri: str, kernel: Kernel) -> tuple[CommentPiece, ...]:
    """Return what follows `orbit:` in each line of the spec above a kernel, from its top, with its place."""
    from orbit_remote.spec.comment_scanner import CommentPiece

    asked = _asked(session, uri, kernel) if speaks(session, uri) else None
    pieces = asked.block.pieces if asked else ()
    return tuple(CommentPiece(piece.line + kernel.whole.line, piece.column, piece.text) for piece in pieces)


def block_of(session: Session, uri: str, kernel: Kernel) -> SpecBlock | None:
    """Return what is written above a kernel, right or wrong. Return None if nothing is."""
    asked = _asked(session, uri, kernel) if speaks(session, uri) else None
    return asked.block if asked else None


def faults(session: Session, uri: str) -> list[Fault]:
    """Return what is wrong with the specs of a file, from its top."""
    if not speaks(session, uri):
        return []
    every = list(spec_blocks.strays(text_lines(session, uri), session.files[uri].scan))
    for asked in _all(session, uri):
        known = _known(session, uri, asked)
        every += (
            known.checked.faults if known and _in_place(known, asked) else _check(session, uri, asked).faults
        )
        if len(every) > _MOST_FAULTS:
            break
    ordered = sorted(set(every), key=lambda fault: (fault.span.line, fault.span.column))
    return ordered[:_MOST_FAULTS]


def _in_place(known: CheckedSpec, asked: SpecToCheck) -> bool:
    """Say whether a known check still holds in place. A spec that has moved is checked again only if its faults have
    places.
    """
    return known.start_line == asked.start or not known.checked.faults


def refusal(checked: EvaluatedSpec) -> str | None:
    """Return why a spec is not run, in one sentence. Return None if nothing is wrong with it."""
    error = next((fault for fault in checked.faults if fault.severity == "error"), None)
    return f"line {error.span.line + 1}, in the launch spec: {error.message}" if error else None


def shape(session: Session, uri: str, kernel: Kernel) -> tuple[int, int] | None:
    """Return (threads of a block, bytes of dynamic shared memory) of the first CUDA launch in a kernel's spec. Return
    None if there is none, or an error must be fixed first.
    """
    checked = spec_of(session, uri, kernel, placed=False) if kernel.language == "cuda" else None
    launch = (
        next((launch for launch in checked.spec.launches if launch.kernel.name == kernel.name), None)
        if checked
        else None
    )
    if checked is None or launch is None or launch.block is None:
        return None
    from orbit_remote.spec.interpreter import SpecScope, UntunedError, evaluate
    from orbit_remote.spec.rules import triple, whole
    from orbit_remote.spec.syntax_tree import SpecError
    from orbit_remote.spec.values import World

    world, scope = World("cuda"), SpecScope(checked.values)
    try:
        extents = triple(evaluate(launch.block, world, scope), launch.block.span, "block")
        shared = whole(evaluate(launch.shared, world, scope), launch.shared.span, "") if launch.shared else 0
    except (SpecError, UntunedError):
        return None
    return math.prod(extents), shared


def lines_of(session: Session, uri: str) -> list[str]:
    """The lines of an open file without their ends."""
    return text_lines(session, uri).lines


def text_lines(session: Session, uri: str) -> SpecLines:
    """Return what is remembered of the present text of an open file."""
    file = session.files[uri]
    document, known = file.document, file.spec_lines
    if known is None or known.version != document.version or known.text is not document.text:
        known = file.spec_lines = spec_blocks.lines_of(document.version, document.text)
    return known


def kernel_at(session: Session, uri: str, line: int) -> Kernel | None:
    """Return the kernel whose spec the line belongs to."""
    if not speaks(session, uri):
        return None
    below = [
        kernel
        for kernel in session.files[uri].scan.kernels
        if kernel.whole.line > line and kernel.dsl in SPECIFIED
    ]
    nearest = min(below, key=lambda kernel: (kernel.whole.line, kernel.name_span.line), default=None)
    asked = _asked(session, uri, nearest) if nearest else None
    if asked is None or all(piece.line + asked.start != line for piece in asked.block.pieces):
        return None
    return nearest


def speaks(session: Session, uri: str) -> bool:
    return uri in session.files and text_lines(session, uri).says


def _all(session: Session, uri: str) -> list[SpecToCheck]:
    """Return the specs to check: one for every kernel that has something written above it."""
    if not speaks(session, uri):
        return []
    requests = [_asked(session, uri, kernel) for kernel in session.files[uri].scan.kernels]
    return [asked for asked in requests if asked]


def _asked(session: Session, uri: str, kernel: Kernel) -> SpecToCheck | None:
    """Return the spec to check of one kernel, or None if nothing is written above it."""
    text, scan = text_lines(session, uri), session.files[uri].scan
    known = spec_blocks.block_of(text, scan, kernel)
    if known is None or known.block is None:
        return None
    # what a text of a thousand specs is asked thousands of times between two edits
    figures = (
        session.results.figures.get(KernelId(uri, kernel.qualified)) if kernel.language == "cuda" else None
    )
    architecture = session.setup.architecture() if kernel.language == "cuda" else ""
    before = text.asked.get(id(kernel))
    if before and before[0] is scan and before[1] is figures and before[2] == architecture:
        return before[3]
    key = SpecKey(known.block.digest, limits(session, uri, kernel))
    asked = SpecToCheck(key, known.block, known.target, known.target.start_line)
    text.asked[id(kernel)] = scan, figures, architecture, asked
    return asked


def limits(session: Session, uri: str, kernel: Kernel) -> LaunchLimits | None:
    """Return the GPU that a CUDA kernel runs on and what the compiler said of the present text. Neither needs a
    check.
    """
    if kernel.language != "cuda":
        return None
    from orbit_remote.spec.rules import LaunchLimits

    static = local = 0
    figures = session.results.figures.get(KernelId(uri, kernel.qualified))
    if figures and figures.digest == _digests(session, uri).get(id(kernel), ""):
        static = min((resource.static_shared or 0 for resource in figures.resources), default=0)
        local = min((resource.stack or 0 for resource in figures.resources), default=0)
    return LaunchLimits(session.setup.architecture(), static, local)


def _digests(session: Session, uri: str) -> Mapping[int, str]:
    text, scan = text_lines(session, uri), session.files[uri].scan
    if text.digests is None or text.digests[0] is not scan:
        text.digests = scan, dict(zip(map(id, scan.kernels), scan.digests, strict=True))
    return text.digests[1]


def _known(session: Session, uri: str, asked: SpecToCheck) -> CheckedSpec | None:
    file = session.files[uri]
    known = file.specs.get(asked.key)
    if known and known.checked.asked and known.version != file.document.version:
        return None
    return known


def _check(session: Session, uri: str, asked: SpecToCheck) -> EvaluatedSpec:
    from orbit_remote.spec import launch_spec

    checked = launch_spec.check_lines(lines_of(session, uri), asked.target, asked.key.limits)
    _remember(session, uri, asked, CheckedSpec(asked.start, session.files[uri].document.version, checked))
    return checked


def _remember(session: Session, uri: str, asked: SpecToCheck, known: CheckedSpec) -> None:
    if (file := session.files.get(uri)) is None:
        return
    file.specs.pop(asked.key, None)
    file.specs[asked.key] = known
    while len(file.specs) > _MOST_KNOWN:
        del file.specs[next(iter(file.specs))]


def _unknown(session: Session, uri: str) -> list[SpecToCheck]:
    unknown: list[SpecToCheck] = []
    for asked in _all(session, uri):
        known = _known(session, uri, asked)
        if known is None or not _in_place(known, asked):
            unknown.append(asked)
    return unknown


def _few(unknown: list[SpecToCheck]) -> bool:
    size = sum(len(piece.text) for asked in unknown[:_AT_ONCE] for piece in asked.block.pieces)
    return len(unknown) <= _AT_ONCE and size <= AT_ONCE.most


def _read(session: Session, uri: str) -> bool:
    """Say whether what stands above kernels has been read, or will be soon."""
    file, text = session.files[uri], text_lines(session, uri)
    return len(text.text) <= AT_ONCE.most or (text.strays is not None and text.strays[0] is file.scan)


def checked(session: Session, uri: str) -> bool:
    """Say whether the specs of a file are known, except for a few."""
    if uri not in session.files or not speaks(session, uri):
        return True
    return _read(session, uri) and _few(_unknown(session, uri))


async def check_aside(session: Session, uri: str) -> None:
    """Read and check the specs of a file beside the event loop, in its present text."""
    file = session.files.get(uri)
    if file is None or not speaks(session, uri):
        return
    # one thread at a time for a file: several would do the same work, and each holds the interpreter's lock against the event loop;
    # of several that wait here, one begins and the rest wait for it
    while (under_way := file.specs_under_check) is not None:
        await asyncio.wait([under_way])
    file.specs_under_check = asyncio.create_task(
        _check_file(session, uri, file), name=f"launch specs of {uri}"
    )
    await asyncio.shield(file.specs_under_check)


async def _check_file(session: Session, uri: str, file: OpenFile) -> None:
    try:
        if session.files.get(uri) is file:
            await _check_text(session, uri, file)
    finally:
        file.specs_under_check = None


async def _check_text(session: Session, uri: str, file: OpenFile) -> None:
    version, text = file.document.version, file.document.text

    def present() -> bool:
        return session.files.get(uri) is file and file.document.text is text

    if not _read(session, uri):
        await file.scan_aside()  # it may have been edited since somebody asked
        if not present():
            return
        scan = file.scan
        read = await daemon_thread.call(lambda: spec_blocks.read_all(version, text, scan))
        if not present():
            return  # edited meanwhile: whoever waits asks again
        file.spec_lines = read
    asked = _unknown(session, uri)
    if not asked:
        return
    lines = lines_of(session, uri)
    for request, known in await daemon_thread.call(lambda: _checked(lines, asked, present)):
        _remember(session, uri, request, CheckedSpec(request.start, version, known))


def is_settled(session: Session, uri: str) -> bool:
    """Return whether nothing about this file takes long: it is scanned, and its launch specs are checked."""
    file = session.files.get(uri)
    return file is None or (file.scanned and checked(session, uri))


async def settle(session: Session, uri: str) -> None:
    """Scan and check a file beside the event loop, so that requests about other files do not wait."""
    while not is_settled(session, uri):
        await session.files[uri].scan_aside()
        if uri in session.files and not checked(session, uri):
            await check_aside(session, uri)


def _checked(
    lines: list[str], asked: list[SpecToCheck], present: Callable[[], bool]
) -> list[tuple[SpecToCheck, EvaluatedSpec]]:
    """Check specs. Stop when the text changes."""
    from orbit_remote.spec import launch_spec

    with collector_pause():
        return [
            (request, launch_spec.check_lines(lines, request.target, request.key.limits))
            for request in asked
            if present()
        ]
