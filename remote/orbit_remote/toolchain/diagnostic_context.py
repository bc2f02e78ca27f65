"""The facts about a build that readers of compiler output need: names, sources, intermediate code."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from pathlib import Path

from orbit_remote.common.lazy_dataclass import dataclass
from orbit_remote.common.messages import Place
from orbit_remote.toolchain import carets
from orbit_remote.toolchain.ptx import Ptx

_TEMPORARY = re.compile(r"[\w.+-]\.(?:cudafe1|cpp\d|compute_\w+)\.\w+")
"""How the name of a file of the compiler's own ends. A pattern of the whole name takes cubic time."""
_RUN = re.compile(r"\S+")
_LINE_DIRECTIVE = re.compile(  # without those of `spec_instances`, whose lines are not the author's
    r"^[ \t]*#[ \t]*(?:line\b[ \t]*|(?=\d))(?:(?P<line>\d{1,9})(?:[ \t]+\"(?P<file>[^\"\n]*)\")?)?"
    r"(?![^\n]*\nnamespace orbit_spec[_ ])",
    re.MULTILINE,
)


@dataclass(slots=True)
class DiagnosticContext:
    """What the reader knows about the build whose output it reads.

    `main` is the path under which the author knows the compiled file. `aliases` maps other spellings (a staged copy)
    to the path to show. `source` gives a file's text as the compiler saw it. `directory` is where the compiler ran,
    for relative names. A path that begins with a key of `folders` lies in its value. Other files in `scratch` are
    intermediate forms of the main file.
    """

    main: str
    source: Callable[[str], str | None] = lambda _: None
    directory: str = ""
    aliases: Mapping[str, str] = field(default_factory=dict[str, str])
    scratch: str = ""
    folders: Mapping[str, str] = field(default_factory=dict[str, str])
    ptx: tuple[Ptx, ...] = ()
    _sources: dict[str, carets.CaretSource | None] = field(
        default_factory=dict[str, "carets.CaretSource | None"]
    )
    _renumbered: list[tuple[int, str, int]] | None = None

    def file(self, name: str) -> str:
        """Return the path to show for a name in the output."""
        if name in self.aliases:
            return self.aliases[name]
        ending = _TEMPORARY.search(name)
        if ending and ending.end() == len(name) and not re.search(r"\s", name):
            return self.main
        path = os.path.normpath(Path(self.directory, name)) if self.directory else name
        for linked, shown in self.folders.items():
            if path.startswith(linked):
                return shown + path.removeprefix(linked)
        if self.scratch and path.startswith(self.scratch + os.sep):
            return self.main
        return self.aliases.get(path, path)

    def place(self, name: str, line: int, echo: str = "") -> Place | None:
        """Return where a line that the compiler names really stands. Return None if nobody knows. `#line` in the main
        file renames its lines: to those of a file that exists, or else to some of its own. `echo` chooses among
        several.
        """
        file = self.file(name)
        parts = self._parts()
        if len(parts) == 1 or (file != self.main and self.text(file) is not None):
            return Place(file, line)
        beyond = [first - 1 for first, _, _ in parts[1:]] + [1 << 30]
        lines = [
            at
            for (first, named, number), end in zip(parts, beyond, strict=True)
            if number and self.file(named) == file and first <= (at := first + line - number) < end
        ]
        if len(lines) > 1 and (source := self.text(self.main)):
            words = [token.text for token in carets.tokenise(echo)]
            alike = [
                _alike(words, [token.text for token in carets.tokenise(source.line(at))]) for at in lines
            ]
            lines = [at for at, share in zip(lines, alike, strict=True) if share and share == max(alike)]
        if len(lines) == 1:
            return Place(self.main, lines[0])
        return None if lines or file == self.main else Place(file, line)

    def _parts(self) -> list[tuple[int, str, int]]:
        """Return the parts of the main file between its `#line`s: first line, and the file and number that it has
        there (0: unknown).
        """
        if self._renumbered is None:
            self._renumbered = [(1, self.main, 1)]
            text = self.source(self.main) or ""
            for match in _LINE_DIRECTIVE.finditer(text) if "#" in text else ():
                after = text.count("\n", 0, match.start()) + 2
                file = match["file"] or self._renumbered[-1][1]
                self._renumbered.append((after, file, int(match["line"] or 0)))
        return self._renumbered

    def words(self, text: str) -> str:
        """Return `text` with the names of staged and intermediate files replaced by the author's name."""
        for staged, shown in (*self.aliases.items(), *self.folders.items()):
            text = text.replace(staged, shown)
        if self.scratch:
            text = re.sub(re.escape(self.scratch) + r"[/\\][^\s'\":;)]*", lambda _: self.main, text)
        return _RUN.sub(self._without_temporary, text)

    def _without_temporary(self, run: re.Match[str]) -> str:
        ends = [match.end() for match in _TEMPORARY.finditer(run[0])]
        return self.main * len(ends) + run[0][ends[-1] :] if ends else run[0]

    def text(self, file: str) -> carets.CaretSource | None:
        if file not in self._sources:
            text = self.source(file)
            self._sources[file] = None if text is None else carets.CaretSource(text)
        return self._sources[file]

    def named(self, place: Place | None, name: str) -> Place | None:
        """Return `place` with the column of the token `name`, if that is beyond doubt."""
        if place is None or place.column is not None or (text := self.text(place.file)) is None:
            return place
        span = text.named(place.line, name)
        return Place(place.file, span.line, span.column, span.end_column) if span else place


def _alike(words: Sequence[str], text: Sequence[str]) -> float:
    """Return the share of tokens that two lines have in common, in order."""
    from difflib import SequenceMatcher  # few files have `#line`

    return SequenceMatcher(None, words, text, autojunk=False).ratio()
