"""Diagnostics of compilers and runs, at their places in the present text."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator

from lsprotocol import types as lsp

from orbit_lsp.kernels import Span
from orbit_lsp.state.documents import Document
from orbit_lsp.state.session import Session
from orbit_lsp.views import harness_view, kernel_status, labels, positions
from orbit_lsp.views.compiler import cost_diagnostics
from orbit_lsp.views.profile import profile_lines
from orbit_lsp.views.spec import spec_diagnostics
from orbit_remote.common import limits
from orbit_remote.common.messages import Place, Problem

_SEVERITY = {
    "error": lsp.DiagnosticSeverity.Error,
    "warning": lsp.DiagnosticSeverity.Warning,
    "information": lsp.DiagnosticSeverity.Information,
}


def diagnostics(session: Session, uri: str) -> list[lsp.Diagnostic]:
    """Messages whose line has been edited since they were made are left out until the next compile."""
    file = session.files.get(uri)
    document = file.document if file else None
    found: list[lsp.Diagnostic] = []
    found += [as_shown(session, document, line, problem) for problem, line in present(session, uri)]
    found += spec_diagnostics.diagnostics(session, uri)
    found += cost_diagnostics.diagnostics(session, uri)
    if file and (beyond := file.scan.left_out):
        text = f"Kernels from this one on are left out: {limits.KERNELS.most:,} are shown of a file."
        where = positions.whole_line(session, file.document, beyond.line)
        found.append(lsp.Diagnostic(where, text, severity=lsp.DiagnosticSeverity.Information, source="orbit"))
    if session.client.mirror_hints and document:
        found += _mirrored(session, uri, document)
    return found


_MOST = (1 << 31) - 1
"""The protocol's largest number of a line."""


def present(session: Session, uri: str) -> Iterator[tuple[Problem, int]]:
    """The problems of a file whose lines have not been edited, with the line, from 0, where each stands now."""
    file = session.files.get(uri)
    for (_, about), problems in session.results.problems.items():
        for problem in problems.items if about == uri else ():
            line = max(problem.place.line - 1, 0) if problem.place else 0
            if file is None:
                yield problem, line
            elif (now := file.document.line_since(problems.version, line)) is not None:
                yield problem, min(now, len(file.document.lines) - 1)


def as_shown(session: Session, document: Document | None, line: int, problem: Problem) -> lsp.Diagnostic:
    """A problem that stands at `line` now."""
    place = problem.place
    return lsp.Diagnostic(
        _range(session, document, line, place),
        problem.message,
        severity=_SEVERITY[problem.severity],
        code=problem.code,
        source=problem.tool,
        tags=_tags(problem) if session.client.tags else None,
        related_information=[
            lsp.DiagnosticRelatedInformation(_location(session, note.place), note.message)
            for note in problem.notes
            if note.place
        ]
        or None,
    )


_UNNECESSARY = {"#111-D", "#128-D", "#177-D", "#550-D", "#4121-D"}
"""Warnings of the CUDA front end: code that is never reached, variables that nothing reads."""
_DEPRECATED = {"#1215-D", "#1444-D", "#1445-D", "-Wdeprecated", "-Wdeprecated-declarations"}


def _tags(problem: Problem) -> list[lsp.DiagnosticTag] | None:
    """How an editor may draw what is named: faded, or struck through."""
    if problem.severity != "error" and problem.code:
        if problem.code in _UNNECESSARY or problem.code.startswith("-Wunused"):
            return [lsp.DiagnosticTag.Unnecessary]
        if problem.code in _DEPRECATED:
            return [lsp.DiagnosticTag.Deprecated]
    return None


def _range(session: Session, document: Document | None, line: int, place: Place | None) -> lsp.Range:
    """The token at the column, or the whole line where no column is known."""
    if document is None:
        line = min(line, _MOST)
        column = place.column - 1 if place and place.column else 0
        end = place.end_column - 1 if place and place.end_column else column
        return lsp.Range(lsp.Position(line, column), lsp.Position(line, end))
    if place is None or place.column is None:
        return positions.whole_line(session, document, line)
    start = place.column - 1
    if place.end_column:
        end = place.end_column - 1
    else:
        token = re.compile(r"\w+|\S").match(document.line(line), start)
        end = token.end() if token else start + 1
    return lsp.Range(
        positions.position(session, document, line, start), positions.position(session, document, line, end)
    )


def _location(session: Session, place: Place) -> lsp.Location:
    uri = session.uri_for(place.file)
    file = session.files.get(uri)
    return lsp.Location(uri, _range(session, file.document if file else None, place.line - 1, place))


def _mirrored(session: Session, uri: str, document: Document) -> list[lsp.Diagnostic]:
    """A kernel's hints as one Hint diagnostic on its name: Helix asks for hints again only after an edit
    or a scroll, and at the end of a line it shows one diagnostic.
    """
    return [
        lsp.Diagnostic(
            positions.of_span(session, document, span),
            "   ".join(texts),
            severity=lsp.DiagnosticSeverity.Hint,
            source="orbit",
        )
        for span, texts in _labelled(session, uri)
    ]


def _labelled(session: Session, uri: str) -> Iterator[tuple[Span, list[str]]]:
    for known in kernel_status.of(session, uri):
        if texts := labels.labels(session, uri, known):
            yield known.kernel.name_span, texts
    lines = defaultdict[int, list[str]](list)
    for line, label in profile_lines.labels(session, uri):
        lines[line].append(label)
    document = session.files[uri].document
    for line, said in lines.items():
        text = document.line(line).rstrip()
        yield Span(line, len(text) - len(text.lstrip()), line, len(text)), said
    checked = kernel_status.harness_status(session, uri)
    if checked and (said := harness_view.labels(session, uri)[1]):
        yield checked.entry.span, said
