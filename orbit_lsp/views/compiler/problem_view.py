"""Shows problems of compilers and runs as diagnostics: their ranges in the present text, their notes, their tags."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from lsprotocol import types as lsp

from orbit_lsp.state.documents import Document
from orbit_lsp.state.session import Session, path_of
from orbit_lsp.views import positions
from orbit_remote.common.messages import Note, Place, Problem

_SEVERITY = {
    "error": lsp.DiagnosticSeverity.Error,
    "warning": lsp.DiagnosticSeverity.Warning,
    "information": lsp.DiagnosticSeverity.Information,
}
_MOST_NOTES = 12
_MOST = (1 << 31) - 1
"""The protocol's largest number."""


def present(session: Session, uri: str) -> Iterator[tuple[Problem, int]]:
    """Yield the problems of a file whose lines have not been edited, with their present lines, from 0. The build of
    every file that includes a header reports the header's problems; each is yielded once.
    """
    file = session.files.get(uri)
    yielded: set[object] = set()
    for (_, about), problems in session.results.problems.items():
        for problem in problems.items if about == uri else ():
            line = max(problem.place.line - 1, 0) if problem.place else 0
            if file is not None:
                if (now := file.document.line_since(problems.version, line)) is None:
                    continue
                line = min(now, len(file.document.lines) - 1)
            key = (
                line,
                problem.place and problem.place.column,
                problem.severity,
                problem.message,
                problem.tool,
            )
            if key not in yielded:
                yielded.add(key)
                yield problem, line


def of_headers(session: Session, uri: str) -> Iterator[tuple[Problem, int]]:
    """Yield the errors that the build of a file found in other files of the project, at its own lines that lead
    there. Then a reader of only this file sees why it has no figures.
    """
    file = session.files.get(uri)
    if file is None or file.source is not None:
        return
    path = path_of(uri)
    led: dict[int, Problem] = {}
    for (source, about), problems in session.results.problems.items():
        if about == uri or source not in (f"build {uri}", f"typed {uri}"):
            continue
        for problem in problems.items:
            if problem.severity == "error" and problem.place is not None:
                _lead(led, problem, path, file.document.text)
    for line, problem in led.items():
        yield problem, line


def _lead(led: dict[int, Problem], problem: Problem, path: str, text: str) -> None:
    """Note an error of a header under the line, from 0, that leads to it. The first error of a line says what is
    wrong.
    """
    from orbit_lsp.compilation import compiler_messages

    assert problem.place
    leading = (note.place for note in problem.notes if note.place and note.place.file == path)
    place = next(leading, None)
    place = (
        place or compiler_messages.including(problem.place.file, path, text, quoted=True) or Place(path, 1)
    )
    line = max(place.line - 1, 0)
    first = led.get(line)
    note = Note(problem.message.partition(";")[0].partition("\n")[0], problem.place)
    if first is None:
        led[line] = replace(problem, place=place, notes=(note,))
    elif note not in first.notes and len(first.notes) < _MOST_NOTES:
        led[line] = replace(first, notes=(*first.notes, note))


def as_shown(session: Session, document: Document | None, line: int, problem: Problem) -> lsp.Diagnostic:
    """Return a problem that stands at `line` now."""
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
    """Return how an editor may draw a problem's text: faded, or struck through."""
    if problem.severity != "error" and problem.code:
        if problem.code in _UNNECESSARY or problem.code.startswith("-Wunused"):
            return [lsp.DiagnosticTag.Unnecessary]
        if problem.code in _DEPRECATED:
            return [lsp.DiagnosticTag.Deprecated]
    return None


def _range(session: Session, document: Document | None, line: int, place: Place | None) -> lsp.Range:
    """Return the token at the column, or the whole line if no column is known. Compilers also name line 0."""
    line = min(max(0, line), _MOST)
    if document is None:
        column = min(max(0, place.column - 1), _MOST) if place and place.column else 0
        end = min(max(column, place.end_column - 1), _MOST) if place and place.end_column else column
        return lsp.Range(lsp.Position(line, column), lsp.Position(line, end))
    if place is None or place.column is None:
        return positions.whole_line(session, document, line)
    start = min(max(0, place.column - 1), len(document.line(line)))
    if place.end_column:
        end = max(start, place.end_column - 1)
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
