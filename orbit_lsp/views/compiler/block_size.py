"""A code action that launches a CUDA kernel with blocks of another size, if more of its threads then fit a
multiprocessor.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from typing import NamedTuple

from lsprotocol import types as lsp

from orbit_lsp.kernels import Kernel, Span
from orbit_lsp.kernels.cuda import launch_sites
from orbit_lsp.specs import spec_cache
from orbit_lsp.state import units
from orbit_lsp.state.documents import Document
from orbit_lsp.state.session import Session
from orbit_lsp.views import kernel_status, positions
from orbit_remote.common import occupancy
from orbit_remote.common.messages import Resources

_GAIN = 1.25
"""Gain in resident warps below which another size is not worth an edit."""
_SIZES = (64, 128, 256, 512, 1024)
_LAUNCH = re.compile(r"\s*(?:<[^<>]*>\s*)?<<<(.*?)>>>")
_BLOCK = re.compile(r"(?:dim3\s*[({]\s*)?(\w+?)[uU]?(?:\s*[)}])?")
_ROUNDS_UP = re.compile(r"-\s*1\b|cdiv|ceil", re.IGNORECASE)
_COMMENT = re.compile(r"//.*|/\*.*?\*/")


class Edit(NamedTuple):
    span: Span
    text: str


def actions(session: Session, uri: str, line: int, *, versioned: bool) -> list[lsp.CodeAction]:
    """Return the action for the kernel whose signature or launch is at `line`, if its figures are of its present
    text.
    """
    file = session.files.get(uri)
    if file is None or file.scan.language != "cuda":
        return []
    offered: list[lsp.CodeAction] = []
    by_name: defaultdict[str, set[int]] = defaultdict(set)
    for launch in file.scan.launches:
        by_name[launch.kernel.rpartition("::")[2]].add(launch.line)
    for known in kernel_status.of(session, uri):
        kernel = known.kernel
        if known.figures is None or known.figures_stale or not known.figures.resources:
            continue
        launches = by_name[kernel.name] | _specified_lines(session, uri, kernel)
        if line not in launches and not kernel.whole.line <= line <= kernel.name_span.end_line:
            continue
        resources, _ = kernel_status.launched_instance(known)
        threads, dynamic = kernel_status.launch_shape(session, uri, kernel, resources)
        better = None if threads is None or dynamic else propose(resources, threads)
        edits = _edits(session, uri, kernel, launches, threads, better[0]) if threads and better else []
        if threads and better and edits:
            changes = [
                lsp.TextEdit(positions.of_span(session, file.document, edit.span), edit.text)
                for edit in edits
            ]
            offered.append(
                lsp.CodeAction(
                    _title(kernel, resources, threads, *better),
                    kind=lsp.CodeActionKind.RefactorRewrite,
                    edit=positions.edit_of(file.document, changes, versioned=versioned),
                )
            )
    return offered


def propose(resources: Resources, threads: int) -> tuple[int, occupancy.Occupancy] | None:
    """Return the size nearest to the present one with the highest occupancy. Return None if it gains too little."""
    now = _occupancy(resources, threads)
    if now is None:
        return None
    reached = [(size, better) for size in _SIZES if (better := _occupancy(resources, size)) and better.warps]
    if not reached:
        return None
    size, better = max(reached, key=lambda at: (at[1].warps, -max(at[0] / threads, threads / at[0])))
    return (size, better) if better.warps >= max(1, _GAIN * now.warps) else None


def _title(kernel: Kernel, resources: Resources, threads: int, size: int, better: occupancy.Occupancy) -> str:
    now = _occupancy(resources, threads)
    today = "a launch that fails" if now is None or now.reason else units.occupancy(now.fraction)
    common = math.gcd(threads, size)
    trades = (
        f"{units.amount(threads / size)} times as many blocks to start, and fewer threads to share data with"
        if size < threads
        else f"{threads // common}/{size // common} of the blocks, so a small grid leaves more multiprocessors idle"
    )
    return (
        f"Launch {kernel.name} with {size} threads a block: occupancy {units.occupancy(better.fraction)} instead of "
        f"{today}; {trades}"
    )


def _occupancy(resources: Resources, threads: int) -> occupancy.Occupancy | None:
    return occupancy.occupancy(
        resources.architecture, resources.registers or 0, threads, resources.static_shared or 0, 0,
        barriers=resources.barriers or 0, max_threads=resources.max_threads,
    )  # fmt: skip


def _specified_lines(session: Session, uri: str, kernel: Kernel) -> set[int]:
    """Return the lines on which the kernel's launch spec launches it."""
    checked = spec_cache.spec_of(session, uri, kernel)
    return {
        launch.span.line
        for launch in (checked.spec.launches if checked else ())
        if launch.kernel.name == kernel.name
    }


def _edits(
    session: Session, uri: str, kernel: Kernel, launches: set[int], threads: int, size: int
) -> list[Edit]:
    """Return the edits that make every launch use `size`. Return none if the kernel may depend on the size otherwise
    than by `blockDim`.
    """
    document = session.files[uri].document
    body = "\n".join(
        _COMMENT.sub("", document.line(line)) for line in range(kernel.whole.line, kernel.whole.end_line + 1)
    )
    if "blockDim" not in body or _numbers(body) & {threads, threads - 1, threads // occupancy.WARP}:
        return []
    edits: list[Edit] = []
    names: set[str] = set()
    for line in launches:
        text = document.line(line)
        here = re.finditer(rf"\b{re.escape(kernel.name)}(?=\s*<)", text)
        for written in [_LAUNCH.match(text, name.end()) for name in here] or [None]:
            arguments = launch_sites.top_level(written[1]) if written else []
            block = _BLOCK.fullmatch(arguments[1].strip()) if len(arguments) == 2 else None
            if written is None or block is None:
                return []
            rounds_up = _ROUNDS_UP.search(arguments[0]) or threads - 1 in _numbers(arguments[0])
            if threads % size and not rounds_up:
                return []  # the last elements would be left out
            if not block[1].isdigit():
                names.add(block[1])
                continue
            replaced = {str(threads): str(size), str(threads - 1): str(size - 1)}
            if int(block[1]) != threads or threads not in _numbers(arguments[0]):
                return []  # a grid that does not follow from the size
            edits += [
                Edit(Span(line, at.start(), line, at.end()), replaced[at[0]])
                for at in re.finditer(r"\b\d+(?=[uUlL]*\b)", text[: written.end(1)])
                if at.start() >= written.start(1) and at[0] in replaced
            ]
    for name in names:
        defined = _definition(document, name, threads)
        word = re.compile(rf"\b{re.escape(name)}\b")
        elsewhere = word.search(body) or any(
            word.search(document.line(launch.line))
            for launch in session.files[uri].scan.launches
            if launch.line not in launches
        )
        grids = all(len(word.findall(document.line(line))) > 1 for line in launches)
        if defined is None or elsewhere or not grids:
            return []
        edits.append(Edit(defined, str(size)))
    return edits


def _definition(document: Document, name: str, value: int) -> Span | None:
    """Return where the file says, once, that `name` is `value`: a constant, a macro, or an assignment of a launch
    spec.
    """
    name = re.escape(name)
    written = re.compile(
        rf"(?:\b(?:constexpr|const)\b[^;=(){{}}<>,]*\b{name}\s*[={{]\s*|#\s*define\s+{name}\s+|orbit:(?:.*;)?\s*{name}\s*=\s*)"
        r"(\d+)(?=[uU]?\s*(?:[;}]|//|$))"
    )
    places = [
        (line, match)
        for line, text in enumerate(document.text.split("\n"))
        for match in written.finditer(text.rstrip("\r"))
    ]
    if len(places) != 1 or int(places[0][1][1]) != value:
        return None
    line, match = places[0]
    return Span(line, match.start(1), line, match.end(1))


def _numbers(text: str) -> set[int]:
    return {int(digits) for digits in re.findall(r"\b(\d{1,9})[uUlL]*\b", text)}
