"""Turns statements into directives. A malformed statement is one fault; the rest is still read."""

from __future__ import annotations

import difflib
import re
import shlex
from collections.abc import Iterable

from orbit_remote.common.nvcc_flags import allowed_flags
from orbit_remote.spec import stored_tensors
from orbit_remote.spec.comment_scanner import RAW, WORDS, SpecStatement, SpecTarget, above, statements
from orbit_remote.spec.cpp_expressions import CppParser
from orbit_remote.spec.lexer import tokens
from orbit_remote.spec.python_expressions import PythonParser
from orbit_remote.spec.syntax_tree import (
    Amount,
    Assignment,
    Call,
    Case,
    Expect,
    Expression,
    Fault,
    Language,
    LaunchSpec,
    Name,
    Reference,
    SpecError,
    SpecLaunch,
    SpecSpan,
    Text,
    Within,
    Words,
)

_LIBRARY = re.compile(r"-l[A-Za-z0-9_+.-]+")
_GPU = re.compile(r"[A-Za-z][A-Za-z0-9-]*!?(?::\d+)?")
_ASSIGNED = re.compile(r"\s*(?:sweep\s+)?([A-Za-z_]\w*)\s*=(?!=)")
_MOST_WORDS = 64
_MOST_CASES = 32
_MOST_SWEPT = 64


def read(lines: list[str], target: SpecTarget) -> tuple[LaunchSpec, list[Fault]]:
    """Return the spec above a kernel, and what is malformed in it. Never raises."""
    pieces, faults = above(lines, target)
    parsed, more = statements(pieces, target.language)
    reader = _DirectiveReader(target)
    for statement in parsed:
        try:
            reader.read(statement)
        except SpecError as error:
            reader.faults.append(error.fault)
            if parsed := _ASSIGNED.match(statement.pieces[0].text):
                reader.broken.append(parsed[1])
    return reader.spec(tuple(piece.line for piece in pieces)), [*faults, *more, *reader.faults]


def parser(statement: SpecStatement, language: Language) -> CppParser | PythonParser:
    read = tokens(statement, language)
    return CppParser(read) if language == "cuda" else PythonParser(read)


class _DirectiveReader:
    def __init__(self, target: SpecTarget) -> None:
        self.language: Language = target.language
        self.faults: list[Fault] = []
        self.assignments: list[Assignment] = []
        self.launches: list[SpecLaunch] = []
        self.expects: list[Expect] = []
        self.references: list[Reference] = []
        self.cases: list[Case] = []
        self.symbols: list[Assignment] = []
        self.amounts: dict[str, Amount] = {}
        self.words: dict[str, Words] = {}
        self.broken: list[str] = []

    def spec(self, lines: tuple[int, ...]) -> LaunchSpec:
        return LaunchSpec(
            self.language, tuple(self.assignments), tuple(self.launches), tuple(self.expects), tuple(self.references),
            tuple(self.cases), tuple(self.symbols), self.amounts, self.words, tuple(self.broken), lines,
        )  # fmt: skip

    def read(self, statement: SpecStatement) -> None:
        word = statement.word
        if word in RAW:
            self._raw(word, statement)
            return
        reader = parser(statement, self.language)
        if word:
            where = reader.take().span
            getattr(self, f"_{word}", self._amount)(reader, statement.span, Name(where, word))
        elif reader.next.kind == "name" and reader.ahead().text == "=":
            self._assign(self._assignment(reader, "A name"))
        else:
            raise self._unknown(reader)
        reader.finish()

    def _unknown(self, reader: CppParser | PythonParser) -> SpecError:
        first = reader.next
        if first.kind != "name":
            return SpecError(
                first.span, "A statement is 'name = value' or begins with a word such as 'launch'."
            )
        rest = [token.text for token in reader.tokens[:8]]
        if (
            self.language == "cuda"
            and "=" in rest[2:]
            and all(t.isidentifier() for t in rest[: rest.index("=")])
        ):
            name = rest[rest.index("=") - 1]
            return SpecError(
                first.span, f"Names take the type of their value; write '{name} = …' without a type."
            )
        near = nearest(first.text, WORDS, ".")
        return SpecError(first.span, f"'{first.text[:40]}' is not a word of launch specs{near}")

    # -- statements --------------------------------------------------------------------------------

    def _assignment(self, reader: CppParser | PythonParser, what: str) -> Assignment:
        name = reader.name(what.lower())
        reader.expect("=")
        value = reader.whole()
        return Assignment(name.span.to(value.span), name, value)

    def _assign(self, assignment: Assignment) -> None:
        self._once(assignment.name, [each.name for each in self.assignments], "is assigned")
        self.assignments.append(assignment)

    def _once(self, name: Name, known: list[Name], what: str) -> None:
        first = next((each for each in known if each.name == name.name), None)
        if first:
            raise SpecError(
                name.span, f"'{name.name}' {what} twice; the first is on line {first.span.line + 1}."
            )

    def _sweep(self, reader: CppParser | PythonParser, span: SpecSpan, word: Name) -> None:
        """Read `sweep n = a, b`, which is `n = sweep(a, b)`."""
        name = reader.name("the name that takes these values")
        reader.expect("=")
        values = self._listed(reader)
        call = Call(values[0].span.to(values[-1].span), "sweep", word.span, tuple(values))
        self._assign(Assignment(span, name, call))

    def _listed(self, reader: CppParser | PythonParser) -> list[Expression]:
        values = [reader.whole()]
        while reader.accept(","):
            values.append(reader.whole())
            if len(values) > _MOST_SWEPT:
                raise SpecError(reader.last.span, f"A sweep has at most {_MOST_SWEPT} values.")
        return values

    def _launch(self, reader: CppParser | PythonParser, span: SpecSpan, word: Name) -> None:  # noqa: ARG002
        self.launches.append(reader.launch())

    def _expect(self, reader: CppParser | PythonParser, span: SpecSpan, word: Name) -> None:  # noqa: ARG002
        actual = reader.whole(reader.comparison_levels[-1] + 1)
        if not reader.sees("=="):
            if reader.next.kind == "end" or reader.next.text == "=":
                raise SpecError(reader.next.span, "An expectation is 'output == value'.")
            reader.unexpected("'=='")
        reader.take()
        expected = reader.whole()
        captured = self._captured(reader, expected)
        self.expects.append(Expect(span, actual, expected, self._within(reader), captured))

    def _captured(self, reader: CppParser | PythonParser, expected: Expression) -> bool:
        if not reader.sees("as"):
            return False
        reader.take()
        reader.expect("captured")
        match expected:
            case Call(receiver=None, name="load", arguments=(Text(value=name), Text()), keywords=()):
                if stored_tensors.is_name(name):
                    return True
            case _:
                pass
        example = f'load("file{stored_tensors.SUFFIX}", "kernel.output")'
        raise SpecError(expected.span, f"What is captured is in a file beside this one: {example}.")

    def _within(self, reader: CppParser | PythonParser) -> Within | None:
        if not reader.sees("within"):
            return None
        start = reader.take().span
        rtol = reader.whole()
        atol = reader.whole() if reader.accept(",") else None
        return Within(reader.to_here(start), rtol, atol)

    def _reference(self, reader: CppParser | PythonParser, span: SpecSpan, word: Name) -> None:  # noqa: ARG002
        outputs: list[Name] = []
        texts = [token.text for token in reader.tokens]
        if "==" in texts:
            outputs.append(reader.name("an output's name"))
            while reader.accept(","):
                outputs.append(reader.name("an output's name"))
            reader.expect("==")
        opening = "<<<" if self.language == "cuda" else "["
        call: Name | Call | None = None
        launch: SpecLaunch | None = None
        if opening in texts and "(" not in texts[: texts.index(opening)]:
            launch = reader.launch()
        else:
            node = reader.whole()
            if not isinstance(node, Name | Call) or (isinstance(node, Call) and node.receiver is not None):
                raise SpecError(
                    node.span, "A reference is a function of this file, or a launch of another kernel."
                )
            call = node
        self.references.append(Reference(span, call, launch, tuple(outputs), self._within(reader)))

    def _case(self, reader: CppParser | PythonParser, span: SpecSpan, word: Name) -> None:  # noqa: ARG002
        name = reader.name("the case's name")
        reader.expect(":")
        values = [self._assignment(reader, "A name")]
        while reader.accept(","):
            assignment = self._assignment(reader, "A name")
            self._once(assignment.name, [each.name for each in values], "is given")
            values.append(assignment)
        self._once(name, [case.name for case in self.cases], "names a case")
        if len(self.cases) == _MOST_CASES:
            raise SpecError(span, f"A launch spec has at most {_MOST_CASES} cases.")
        self.cases.append(Case(span, name, tuple(values)))

    def _symbol(self, reader: CppParser | PythonParser, span: SpecSpan, word: Name) -> None:
        if self.language != "cuda":
            raise SpecError(word.span, "Only CUDA has symbols; assign a global of a Python file in the file.")
        assignment = self._assignment(reader, "A variable's name")
        self._once(assignment.name, [each.name for each in self.symbols], "is set")
        self.symbols.append(Assignment(span, assignment.name, assignment.value))

    def _amount(self, reader: CppParser | PythonParser, span: SpecSpan, word: Name) -> None:
        value = reader.whole()
        if first := self.amounts.get(word.name):
            raise _twice(word, first.span)
        self.amounts[word.name] = Amount(span, word.name, value)

    def _raw(self, word: str, statement: SpecStatement) -> None:
        span = statement.span
        text = statement.pieces[0].text.strip()[len(word) :].strip()
        where = Name(SpecSpan(span.line, span.column, span.line, span.column + len(word)), word)
        try:
            values = shlex.split(text)
        except ValueError:
            raise SpecError(span, "A quotation mark is never closed.") from None
        if not values and word != "args":
            raise SpecError(where.span, f"'{word}' needs something after it: {WORDS[word]}.")
        if len(values) > _MOST_WORDS:
            raise SpecError(span, f"'{word}' takes at most {_MOST_WORDS} words.")
        if first := self.words.get(word):
            raise _twice(where, first.span)
        if word == "stdin":
            if len(values) != 1:
                raise SpecError(span, "'stdin' takes one text in quotation marks.")
            values = [values[0].replace("\\n", "\n").replace("\\t", "\t")]
        elif word == "gpu" and (wrong := [value for value in values if not _GPU.fullmatch(value)]):
            raise SpecError(span, f"{wrong[0][:40]!r} is not the name of a GPU; write 'gpu H100'.")
        elif word == "flags":
            values = _glued(values)
            flags, refused = allowed_flags([v for v in values if not _LIBRARY.fullmatch(v)], trusted=False)
            if refused:
                flag = refused[0].split(" is left out", maxsplit=1)[0]
                raise SpecError(span, f"The flag {flag[:60]} is not among those that a launch spec may set.")
            values = [*flags, *(v for v in values if _LIBRARY.fullmatch(v))]
        self.words[word] = Words(span, word, tuple(values))


def _glued(flags: list[str]) -> list[str]:
    """Return flags with `-l curand` and `--library=curand` as `-lcurand`. nvcc takes all of these."""
    words = iter(flags)
    glued: list[str] = []
    for flag in words:
        if flag in ("-l", "--library"):
            glued.append(f"-l{next(words, '')}")
        else:
            glued.append(re.sub(r"^(?:--library|-l)=", "-l", flag))
    return glued


def _twice(word: Name, first: SpecSpan) -> SpecError:
    return SpecError(word.span, f"'{word.name}' is given twice; the first is on line {first.line + 1}.")


def nearest(name: str, known: Iterable[str], end: str = "") -> str:
    """Return the end of a sentence about an unknown name: `; did you mean 'x'?`, or `end` if no known name is near."""
    if len(name) > 60:
        return end
    names = sorted(known)
    near = [
        known_name for known_name in names if known_name.lower() == name.lower()
    ] or difflib.get_close_matches(name, names, 1, 0.7)
    return f"; did you mean '{near[0]}'?" if near else end
