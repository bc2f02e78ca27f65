"""Shows a file in a terminal as in an editor: lenses above, hints behind, squiggles below."""

from __future__ import annotations

from collections import defaultdict

from lsprotocol import types as lsp

from orbit_lsp.cli import terminal_text
from orbit_lsp.state.documents import from_client
from orbit_lsp.state.session import Session, path_of
from orbit_lsp.views import diagnostics, hints, lenses
from orbit_remote.common.plain_text import visible

_STYLE = {
    "lens": "\x1b[2;36m",
    "hint": "\x1b[2;33m",
    "error": "\x1b[31m",
    "warning": "\x1b[33m",
    "information": "\x1b[34m",
    "number": "\x1b[2m",
}
_NAMES = {
    lsp.DiagnosticSeverity.Error: "error",
    lsp.DiagnosticSeverity.Warning: "warning",
    lsp.DiagnosticSeverity.Information: "information",
    lsp.DiagnosticSeverity.Hint: "information",
}


def lines(session: Session, uri: str, *, color: bool) -> list[str]:
    """Return the whole file. Lenses, hints and diagnostics have the text that an editor would get."""
    document = session.files[uri].document
    above: dict[int, list[str]] = defaultdict(list)
    behind: dict[int, list[str]] = defaultdict(list)
    below: dict[int, list[lsp.Diagnostic]] = defaultdict(list)
    for lens in lenses.lenses(session, uri):
        if lens.command:
            above[lens.range.start.line].append(lens.command.title)
    for hint in hints.hints(session, uri, 0, len(document.lines)):
        behind[hint.position.line].append(str(hint.label))
    for diagnostic in diagnostics.diagnostics(session, uri):
        below[diagnostic.range.start.line].append(diagnostic)
    width = len(str(len(document.lines)))
    shown: list[str] = []
    for number, line in enumerate(document.lines):
        text = visible(line.rstrip("\r\n").expandtabs(4))
        indent = " " * (width + 1)
        if number in above:
            lead = len(text) - len(text.lstrip())
            shown.append(indent + " " * lead + _paint("lens", " | ".join(above[number]), color))
        tail = "".join("   " + _paint("hint", label, color) for label in behind[number])
        shown.append((_paint("number", f"{number + 1:>{width}} ", color) + text + tail).rstrip())
        for diagnostic in below[number]:
            shown += [indent + part for part in _squiggle(session, line, diagnostic, color)]
    if shown and not document.lines[-1]:
        shown.pop()  # the empty line after the last line end
    return shown


def _squiggle(session: Session, line: str, diagnostic: lsp.Diagnostic, color: bool) -> list[str]:
    style = _NAMES[diagnostic.severity or lsp.DiagnosticSeverity.Error]
    start = from_client(line, diagnostic.range.start.character, session.client.encoding)
    same_line = diagnostic.range.end.line == diagnostic.range.start.line
    end = (
        from_client(line, diagnostic.range.end.character, session.client.encoding) if same_line else len(line)
    )
    before = len(line[:start].expandtabs(4))
    length = max(1, len(line[:end].expandtabs(4)) - before)
    code = f" {diagnostic.code}" if diagnostic.code else ""
    parts = [" " * before + _paint(style, "~" * length, color)]
    parts += [
        " " * before + _paint(style, text if number else f"{style} {diagnostic.source}{code}: {text}", color)
        for number, text in enumerate(terminal_text.with_options(diagnostic.message).splitlines() or [""])
    ]
    for note in diagnostic.related_information or []:
        place = note.location
        file = path_of(place.uri).rpartition("/")[2]
        parts.append(
            " " * before + _paint(style, f"  {file}:{place.range.start.line + 1}: {note.message}", color)
        )
    return parts


def _paint(style: str, text: str, color: bool) -> str:
    text = visible(text)
    return f"{_STYLE[style]}{text}\x1b[0m" if color else text
