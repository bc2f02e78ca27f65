"""The kernels of the project's headers that a source file instantiates. A file of tests has no others."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from orbit_lsp.cli import terminal_text
from orbit_lsp.kernels import language_of
from orbit_lsp.state import units
from orbit_lsp.state.session import Session, path_of
from orbit_lsp.views import kernel_status
from orbit_lsp.views.kernel_status import KernelStatus
from orbit_remote.common import limits, regular_files
from orbit_remote.common.messages import Finished, Resources


def of(session: Session, uri: str) -> list[KernelStatus]:
    """Return the kernels of headers under which the last job of `uri` has filed something. Those headers are opened
    for it. Kernels of a library are left out.
    """
    results, file = session.results, session.files[uri]
    if file.source:  # the user asked for this header alone, not for the rest of its source
        return []
    filed = [*results.figures, *(target for target, run in results.runs.items() if run.launches)]
    statuses: list[KernelStatus] = []
    for header in dict.fromkeys(target.uri for target in filed if target.uri != uri):
        if not Path(path_of(header)).is_relative_to(file.compilation.root or Path(path_of(uri)).parent):
            continue
        if header not in session.files and not _open(session, header, uri):
            continue
        # a header is compiled as its source is, and the results are of this moment
        statuses += [
            replace(known, figures_stale=False, stale=False)
            for known in kernel_status.of(session, header)
            if known.figures or known.result
        ]
    return statuses


def made_by_macros(session: Session, uri: str, finished: Finished) -> list[str]:
    """Return a line for each compiled instance of the project's files that belongs to no kernel of an open file.
    Macros make it, in the file or in one that it includes, such as an `.inc`.
    """
    shown = _shown(session)
    file = session.files[uri]
    root = file.compilation.root or str(Path(path_of(uri)).parent)
    lines: dict[tuple[str, int, str], str] = {}
    for each in finished.resources:
        place = each.place
        if place and _instance(each) not in shown and Path(place.file).is_relative_to(root):
            figures = [f"{each.registers} regs"] if each.registers is not None else []
            figures += [f"{units.size(each.static_shared)} shared"] if each.static_shared else []
            where = f"{terminal_text.relative(place.file)}:{place.line}"
            line = f"with it, {where} is compiled: {each.name}   {' · '.join(figures)}"
            lines[place.file, place.line, each.name] = line.rstrip()
    return [lines[key] for key in sorted(lines)]


def _shown(session: Session) -> set[object]:
    return {
        _instance(each)
        for target, figures in session.results.figures.items()
        if target.uri in session.files
        for each in figures.resources
    }


def _instance(resources: Resources) -> object:
    return resources.symbol, *sorted(resources.constants.items())


def unseen(session: Session, uri: str, finished: Finished) -> str:
    """Return how many compiled instances are of kernels that no open file has, as the end of a sentence. They are
    those of libraries, and those that macros of the file make. Return "" if every instance is shown.
    """
    shown = _shown(session)
    in_file = {
        _instance(each): each.place is not None and each.place.file == path_of(uri)
        for each in finished.resources
    }
    own = [is_own for instance, is_own in in_file.items() if instance not in shown]
    by_macro, in_headers = own.count(True), own.count(False)
    parts = (
        f", {by_macro} of them made by macros of this file and not shown" if by_macro else "",
        f", {in_headers} of them in headers that are not shown" if in_headers else "",
    )
    return "".join(parts)


def place(known: KernelStatus) -> str:
    """Return a kernel's place as compilers write it: `include/scale.cuh:12`."""
    return f"{terminal_text.relative(path_of(known.target.uri))}:{known.kernel.name_span.line + 1}"


def _open(session: Session, header: str, source: str) -> bool:
    try:
        text = regular_files.text(Path(path_of(header)), limits.SCANNED)
    except (OSError, ValueError):
        return False
    if language_of(path_of(header), text) is None or not (opened := session.open(header, 0, text)):
        return False
    opened.compilation = session.files[source].compilation
    session.use_headers(header, session.files[source].include_folders)
    return True
