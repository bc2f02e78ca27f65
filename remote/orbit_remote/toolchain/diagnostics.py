"""Turns the text that nvcc and its parts print into problems at their places.

There is one reader for all of them: the CUDA front end (cudafe++ and cicc, which are EDG), the host compiler as
preprocessor and as compiler (GCC, Clang, MSVC), ptxas, nvlink, the host linker, nvcc itself. A text that is not
understood and mentions an error becomes an error of the whole file: none is ever lost.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Final

from orbit_remote.common import limits, plain_text, symbols
from orbit_remote.common.messages import Note, Place, Problem, Severity
from orbit_remote.toolchain import host_diagnostics
from orbit_remote.toolchain.diagnostic_context import DiagnosticContext
from orbit_remote.toolchain.ptx import asm_place

__all__ = ["DiagnosticContext", "parse"]

_EDG = re.compile(
    r"^(?P<file>\S.*?)\((?P<line>\d{1,9})(?:,\d+)?\)\s?: "
    r"(?P<kind>fatal error|catastrophic error|internal error|command-line error|[Ee]rror|[Ww]arning|remark|note)"
    r"(?: #?(?P<code>[A-Z]*\d+(?:-D)?))?\s?: (?P<message>.*)$"
)
_EDG_END = re.compile(
    r"^At end of source: (?P<kind>[\w -]*?error|warning|remark)(?: #(?P<code>\d+(?:-D)?))?: (?P<message>.*)$"
)
_MSVC_CODE = re.compile(r"[A-Z]+\d+")
_TOOL = re.compile(
    r"^(?P<who>ptxas|nvlink|nvcc|fatbinary|cicc|cudafe\+\+)\s+(?:(?P<file>\S.*?), line (?P<line>\d{1,9}); )?"
    r"(?P<kind>error|fatal|warning|info)\s*: (?P<message>.*)$"
)
_SUMMARY = re.compile(
    r"^(?:\d+ (?:errors?|warnings?|catastrophic errors?).* (?:detected|generated)\b.*|compilation terminated\.|"
    r"Compilation terminated\.|Remark: The warnings can be suppressed.*|Error limit reached.*|"
    r"ptxas fatal\s+: Ptx assembly aborted due to errors|collect2: .*ld returned.*|clang.*linker command failed.*|"
    r".*: Assembler messages:|.*: In (?:instantiation|function|member function|constructor|lambda).*|"
    r".*: At global scope:|[\w.-]+\.(?:cu|cuh|cpp|cc|cxx|c))$"
)
_STEP = re.compile(
    r'^(?P<message>.*?) at line (?P<line>\d{1,9})(?: of (?:"(?P<quoted>[^"]+)"|(?P<file>\S.*)))?$'
)
_DECLARED = re.compile(
    r"\((?:declared|previous definition|defined|first declared)(?: implicitly)?"
    r' at line (?P<line>\d{1,9})(?: of (?:"(?P<quoted>[^"]+)"|(?P<file>[^)]+)))?\)'
)
_SYMBOL = re.compile(r"'(?P<symbol>[A-Za-z_$][\w$.]*)'|\b[Ff]or entry (?P<entry>[A-Za-z_$][\w$]*)")
_QUOTED = re.compile(r"'([^'%\s]+)'")
_OF_ARCHITECTURE = re.compile(r"\.compute_(\w+)\.ptx\Z")
_AROUND = re.compile(r" in around line (?P<line>\d{1,9})(?= by)")
"""As notes name a line of the temporary PTX file."""
_ADVICE = re.compile(r"^\((?P<code>C\d+)\) (?P<message>.*)$")
_NAMED = re.compile(r'"(?:[^"(<]*?::)?([A-Za-z_]\w*)(?:[(<][^"]*)?"')
_INSTANCE = re.compile(r'"[^"]*?([A-Za-z_]\w*)[<(]')
_TROUBLE = re.compile(r"\b(?:error|fatal|cannot|died|killed|Killed|No space left)\b", re.IGNORECASE)


MOST_PROBLEMS: Final = 1_000


def parse(output: str, context: DiagnosticContext, *, failed: bool = False) -> tuple[Problem, ...]:
    """Return the problems in `output`, each once, in the order of their first appearance.

    With `failed` the compiler is known to have failed: if no error is found, its whole output is one.
    """
    reader = _MessageReader(plain_text.plain(output), context)
    problems = [problem for problem in reader.read() if not _of_a_header_alone(problem)]
    if failed and not any(p.severity == "error" for p in problems):
        words = "\n".join(reader.unknown).strip() or "the compiler failed without a message"
        problems.append(Problem("error", words, "nvcc"))
    return _few(tuple(_distinct(problems)))


def _few(problems: tuple[Problem, ...]) -> tuple[Problem, ...]:
    """Return as many problems as anybody reads, errors first. A file may have hundreds of thousands of warnings,
    which an editor's server would receive at once.
    """
    if len(problems) <= MOST_PROBLEMS:
        return problems
    severe = sorted(range(len(problems)), key=lambda at: problems[at].severity != "error")
    kept = [problems[at] for at in sorted(severe[:MOST_PROBLEMS])]
    words = f"{len(problems) - MOST_PROBLEMS:,} further messages of the compilers are left out"
    return (*kept, Problem("information", words, "nvcc"))


def _of_a_header_alone(problem: Problem) -> bool:
    """Say whether a problem only arises because a header was compiled by itself. No option silences GCC, and
    constants of a header are for the files that include it.
    """
    place, text = problem.place, problem.message
    alone = text.startswith("#pragma once in main file") or text.endswith("was declared but never referenced")
    return (
        alone
        and problem.severity == "warning"
        and place is not None
        and not place.file.endswith((".cu", ".cu.cc", ".cu.cpp", ".cu.cxx"))
    )


def _distinct(problems: Iterable[Problem]) -> Iterable[Problem]:
    """Yield distinct problems. Host and device pass repeat each other: the same words at the same place count once."""
    kept: dict[object, Problem] = {}
    for problem in problems:
        key = (problem.severity, problem.message, problem.place, problem.code, problem.symbol)
        if key not in kept or len(problem.notes) > len(kept[key].notes):
            kept[key] = problem
    return kept.values()


def _severity(kind: str) -> Severity:
    if kind.lower() == "warning":
        return "warning"
    return "information" if kind in ("remark", "note", "info") else "error"


class _MessageReader:
    def __init__(self, output: str, context: DiagnosticContext) -> None:
        most = limits.OUTPUT_LINE.most
        self.lines = [line[:most] for line in output.replace("\r\n", "\n").split("\n")]
        self.context = context
        self.at = 0
        self.problems: list[Problem] = []
        self.unknown: list[str] = []
        self.included: list[Note] = []
        self.linking = ""

    def read(self) -> list[Problem]:
        rules: tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], None]], ...] = (
            (_SUMMARY, lambda _: None),
            (_TOOL, self._tool),
            (_EDG, self._edg),
            (_EDG_END, self._edg_end),
            (host_diagnostics.COMPILER, self._host),
            (host_diagnostics.COMPILER_ITSELF, self._host_itself),
            (host_diagnostics.INCLUDED, self._included),
            (host_diagnostics.LINKER, self._linker),
        )
        while self.at < len(self.lines):
            line = self.lines[self.at]
            self.at += 1
            if not line.strip():
                continue
            for pattern, rule in rules:
                if match := pattern.match(line):
                    rule(match)
                    break
            else:
                self._strange(line)
        return self.problems

    # -- the CUDA front end, and MSVC, whose form is the same ---------------------------------------

    def _edg(self, match: re.Match[str]) -> None:
        extra, echo, caret, after = self._body()
        line_only = self.context.place(match["file"], int(match["line"]), echo)
        place = self._place(line_only, echo, caret)
        file = place.file if place else self.context.main
        # errors found after parsing have no caret; of a line with a system header's macro only a part is quoted
        for name in _NAMED.findall(match["message"]):
            place = self.context.named(place, name) or place
        code = match["code"]
        if match["kind"] == "note" and self.problems:
            self._note(Note(match["message"], place))
            return
        notes = [*self._declared(match["message"], file), *self.included]
        message = match["message"]
        for text in extra:
            declared = self._declared(text, file)
            notes += declared
            if not declared:
                message += "\n" + text
        notes += self._steps(after, file)
        self.included = []
        msvc = bool(code and _MSVC_CODE.fullmatch(code))
        self._add(
            match["kind"],
            message,
            "host compiler" if msvc else "nvcc",
            place,
            code=code if msvc or not code else f"#{code}",
            notes=tuple(notes),
        )

    def _edg_end(self, match: re.Match[str]) -> None:
        main = self.context.main
        source = self.context.text(main)
        self._body()
        span = source.last() if source else None
        place = Place(main, span.line, span.column, span.end_column) if span else Place(main, 1)
        code = match["code"]
        self._add(match["kind"], match["message"], "nvcc", place, code=f"#{code}" if code else None)

    def _body(self) -> tuple[list[str], str, int | None, list[str]]:
        """Return the indented lines under a message: (more words, echoed line, caret, what follows it)."""
        body: list[str] = []
        while self.at < len(self.lines) and self.lines[self.at][:1] in (" ", "\t"):
            body.append(self.lines[self.at])
            self.at += 1
        caret = next((i for i, text in enumerate(body) if i and text.strip() == "^"), None)
        if caret is None:
            words = [text.strip() for text in body]
            start = next((i for i, w in enumerate(words) if w.startswith("detected during")), len(words))
            return words[:start], "", None, words[start:]
        words = [text.strip() for text in body[: caret - 1]]
        return words, body[caret - 1], body[caret].index("^"), [text.strip() for text in body[caret + 1 :]]

    def _place(self, at: Place | None, echo: str, caret: int | None) -> Place | None:
        source = self.context.text(at.file) if at else None
        if at is None or source is None or caret is None:
            return at
        span = source.locate(at.line, echo, caret)
        return Place(at.file, span.line, span.column, span.end_column) if span else at

    def _steps(self, lines: Iterable[str], file: str) -> list[Note]:
        """Return notes for `detected during: instantiation of … at line N [of file]`, innermost first."""
        steps: list[Note] = []
        for text in lines:
            words = text.removeprefix("detected during:").removeprefix("detected during").strip()
            if not words:
                continue
            if step := _STEP.match(words):
                named = step["quoted"] or step["file"]
                place = self.context.place(named or file, int(step["line"]))
                if function := _INSTANCE.search(step["message"]):
                    place = self.context.named(place, function[1]) or place
                steps.append(Note(f"detected during {step['message']}", place))
            else:
                steps.append(Note(words))
        return steps

    def _declared(self, message: str, file: str) -> list[Note]:
        """Return a place to go to for each `(declared at line 3 of "x.h")` inside a message."""
        notes: list[Note] = []
        for match in _DECLARED.finditer(message):
            named = match["quoted"] or match["file"]
            place = self.context.place(named or file, int(match["line"]))
            names = _NAMED.findall(message[: match.start()])
            notes.append(Note("declared here", self.context.named(place, names[-1]) if names else place))
        return notes

    def _note(self, note: Note) -> None:
        last = self.problems[-1]
        self.problems[-1] = replace(last, notes=(*last.notes, note))

    # -- the host compiler and linker ---------------------------------------------------------------

    def _host(self, match: re.Match[str]) -> None:
        place = host_diagnostics.compiler_place(match, self.context)
        self._skip_excerpt()
        message, option = host_diagnostics.compiler_message(match)
        if match["kind"] == "note" and self.problems:
            self._note(Note(message, place))
            return
        notes, self.included = tuple(self.included), []
        self._add(match["kind"], message, "host compiler", place, code=option, notes=notes)

    def _host_itself(self, match: re.Match[str]) -> None:
        self._skip_excerpt()
        self._add(match["kind"], match["message"], "host compiler", None)

    def _included(self, match: re.Match[str]) -> None:
        place = self.context.place(match["file"], int(match["line"]))
        self.included.append(Note("in file included from here", place))

    def _skip_excerpt(self) -> None:
        while self.at < len(self.lines) and host_diagnostics.EXCERPT.match(self.lines[self.at]):
            self.at += 1

    def _linker(self, match: re.Match[str]) -> None:
        self.problems.append(host_diagnostics.linker_problem(match, self.context, self.linking))

    # -- ptxas, nvlink, nvcc ------------------------------------------------------------------------

    def _tool(self, match: re.Match[str]) -> None:
        who, kind, message = match["who"], match["kind"], match["message"]
        code = None
        if advice := _ADVICE.match(message):
            code, message = advice["code"], advice["message"]
        elif kind == "info":
            return
        place: Place | None = None
        notes: tuple[Note, ...] = ()
        symbol: str | None = None
        around = _AROUND.search(message)
        if around:
            message = message[: around.start()] + message[around.end() :]
        if match["line"]:
            place, notes = self._ptx_line(int(match["line"]), message, file=match["file"])
        elif named := next((m for m in _SYMBOL.finditer(message) if self._is_symbol(m)), None):
            symbol = _symbol_in(named)
            start, end = named.span("symbol" if named["symbol"] else "entry")
            # of a function that nobody defines, its parameters say which overload is meant
            name = symbols.demangle if message.startswith("Unresolved extern") else symbols.short_name
            message = message[:start] + name(symbol) + message[end:]
            if around:
                place, notes = self._ptx_line(int(around["line"]), "", symbol)
            place = place or self._symbol_place(symbol)
        if who == "nvlink":
            message = re.sub(r",?(?: first defined)? in '[^']*'", "", message)
        self._add(kind, message, who, place, code=code, symbol=symbol, notes=notes)

    def _is_symbol(self, match: re.Match[str]) -> bool:
        name = _symbol_in(match)
        return (
            name.startswith("_Z")
            or match.string.startswith("Unresolved extern")  # `extern "C"` leaves the name as it is
            or any(name in ptx.entries for ptx in self.context.ptx)
            or bool(match["entry"])
        )

    def _ptx_line(
        self, line: int, message: str, entry: str = "", file: str = ""
    ) -> tuple[Place | None, tuple[Note, ...]]:
        """Return the `asm` statement behind a line of the PTX that has `entry`, or is called `file`, at what the
        message quotes.
        """
        named = _OF_ARCHITECTURE.search(file)
        for ptx in self.context.ptx:
            if named and ptx.target not in ("", named[1]):  # a build for several architectures
                continue
            place, notes = ptx.at_line(line)
            if place and (not entry or entry in ptx.entries):
                notes = tuple(
                    replace(n, place=self.context.place(n.place.file, n.place.line)) for n in notes if n.place
                )
                place = self.context.place(place.file, place.line)
                within = ptx.asm_line(line)
                source = self.context.text(place.file) if place and within is not None else None
                if place is None or within is None or source is None:
                    return place, notes
                span = asm_place(source, place.line, within, _QUOTED.findall(message))
                return Place(place.file, span.line, span.column, span.end_column) if span else place, notes
        return None, ()

    def _symbol_place(self, symbol: str) -> Place | None:
        """Return the place of the kernel itself, or where an undefined function is called."""
        for ptx in self.context.ptx:
            place = ptx.entries[symbol].place if symbol in ptx.entries else ptx.use_of(symbol)
            if place:
                place = self.context.place(place.file, place.line)
                return self.context.named(place, symbols.base_name(symbol))
        return None

    # -- the rest -----------------------------------------------------------------------------------

    def _strange(self, line: str) -> None:
        if caller := host_diagnostics.LINKER_IN.search(line):
            self.linking = caller["function"]
            return
        self.unknown.append(self.context.words(line))
        if line[:1] not in (" ", "\t") and _TROUBLE.search(line):
            self._add("error", line, "nvcc", None)

    def _add(
        self,
        kind: str,
        message: str,
        tool: str,
        place: Place | None,
        *,
        code: str | None = None,
        symbol: str | None = None,
        notes: tuple[Note, ...] = (),
    ) -> None:
        words = self.context.words(message)
        self.problems.append(Problem(_severity(kind), words, tool, place, code, symbol, notes))


def _symbol_in(match: re.Match[str]) -> str:
    return match["symbol"] or match["entry"] or ""
