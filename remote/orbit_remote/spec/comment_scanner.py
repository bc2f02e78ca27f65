"""Cuts the comment lines directly above a kernel into statements whose characters know their place.

They are `// orbit: …` in CUDA (`///` and `//!` too), `# orbit: …` in Python. Going up from the kernel's first line,
blank lines and other comments are skipped, block comments as a whole; anything else ends the spec. A block comment
holds no spec, because people write *about* specs there. `;` and line ends separate statements, except in strings and
brackets. An open bracket goes on in the next `orbit:` line, unless that line begins a directive.
"""

from __future__ import annotations

import re
from typing import Final

from orbit_remote.common.lazy_dataclass import dataclass
from orbit_remote.spec.syntax_tree import Fault, Language, SpecSpan

WORDS: Final = {
    "launch": "one launch of a kernel of this file; several launches run in order",
    "expect": "what an output must equal after the spec's launches have run once; computed from the original inputs",
    "reference": "a Python function or another kernel whose results the outputs must equal",
    "bytes": "the minimum number of bytes that the kernel has to read and write; gives the bandwidth in GB/s or TB/s",
    "flops": "the minimum number of floating-point operations that the kernel has to do; gives TFLOP/s",
    "sweep": "several values for a name, as in 'n = sweep(1024, 4096)'; the kernel runs with each",
    "case": "other values for names of the spec, as in 'case tail: n = 1000003'; results are checked, not timed",
    "gpu": "the GPU to rent for this kernel; ignored if the run uses this machine's own GPU",
    "seed": "the seed of random inputs; 0 unless given",
    "flags": "compiler flags and libraries",
    "args": "arguments of the program, where the file has a main",
    "stdin": "what the program reads, where the file has a main",
    "iterations": "the maximum number of timed launches; 2000 unless given",
    "warmup": "the number of untimed launches before the timed ones; 0 unless given",
    "timeout": "seconds that a run may take",
    "symbol": "the value of a `__constant__` or `__device__` variable",
}
"""The words that direct, each with the line that completion shows."""

PARTS: Final = {
    "within": "the tolerance: |actual - expected| <= atol + rtol * |expected|, as in 'within rtol, atol'",
    "sweep": "several values for a name, as in 'n = sweep(1024, 4096)'; the kernel runs with each",
    "captured": "what the kernel wrote when its launch was captured, as in 'expect y == load(…) as captured'; finds a change, does not say that it was right",
    "cooperative": "all blocks run at once, and may wait for each other",
    "cluster": "how many blocks a cluster has, as in 'cluster(2, 1, 1)'",
    "dim3": "1 to 3 extents, x first",
    "sizeof": "the size in bytes of a type or of a number, as in 'sizeof(float)'",
    "META": "the constexpr arguments of a Triton launch, as its grid uses them: META['BLOCK']",
}
"""What else has a meaning of its own, each with the line that completion shows."""

RAW: Final = frozenset(("gpu", "flags", "args", "stdin"))
"""The words followed by plain words instead of expressions."""

MOST_STATEMENTS: Final = 256
LONGEST_LINE: Final = 4000
LONGEST_SPEC: Final = 1 << 16
"""Characters of all lines together: it is checked while an editor waits."""
_FURTHEST_UP: Final = 2000

_BREAK = re.compile(r"\r\n|\r|\n")
_AT_ONCE = 1 << 16
_ORBIT = {
    "cuda": re.compile(r"\s*//[/!]?\s*orbit:"),
    "triton": re.compile(r"\s*#+\s*orbit:"),
}
_COMMENT = {"cuda": "//", "triton": "#"}
_NEARLY = re.compile(
    r"\s*((?://|#)[/#!*<@.\s-]*(?P<word>orbit(?:s|[-_]lsp)?\b)(?P<colon>\s*[:;=.,\uff1a-]+)?)(?P<rest>.*)",
    re.IGNORECASE,
)
_CERTAIN = re.compile(
    r"""\s*(?:launch\s+[\w:.<>, ]*(?:<<<|\[) | expect\b.*== | reference\s+[\w.:]+\s*\( | case\s+\w+\s*:
    | sweep\s+\w+\s*= | symbol\s+\w | (?:bytes|flops|iterations|warmup|timeout|seed)\s+[\d(] | gpu\s+[A-Z]+\d+
    | flags\s+- | args\s+\S | stdin\s+[<"'\w])""",
    re.VERBOSE,
)
_ASSIGNS = re.compile(r"\s*[A-Za-z_]\w*\s*=(?!=)\s*[\w(\"'.~-]")
_PIECE = {
    "cuda": re.compile(r"\d[\w'.]*|[A-Za-z_]\w*|\"(?:[^\"\\]|\\.)*\"|//|."),
    "triton": re.compile(r"[A-Za-z_]\w*|\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'|."),
}
_BEGINS = re.compile(r"\s*[A-Za-z_]\w*\s+(?:(?!(?:if|else|and|or|in|is|not)\b)[\w\"']|-\w*[A-Za-z])")
_ANY_WORD = re.compile(r"\s*([A-Za-z_]\w*)")


@dataclass(frozen=True, slots=True)
class SpecTarget:
    """The kernel in question, as discovery has found it (lines and columns from 0).

    `start_line` is the first line of the whole definition (template header, first decorator), `line` that of
    `__global__` or `def`. (`name_line`, `name_end`) is where its name ends.
    """

    name: str
    language: Language
    start_line: int
    line: int
    name_line: int
    name_end: int


@dataclass(frozen=True, slots=True)
class CommentPiece:
    """The text of one line, from `column` on."""

    line: int
    column: int
    text: str


@dataclass(frozen=True, slots=True)
class SpecStatement:
    """The text between two separators. It has several pieces if an open bracket goes on."""

    pieces: tuple[CommentPiece, ...]

    @property
    def span(self) -> SpecSpan:
        first, last = self.pieces[0], self.pieces[-1]
        lead = len(first.text) - len(first.text.lstrip())
        return SpecSpan(first.line, first.column + lead, last.line, last.column + len(last.text.rstrip()))

    @property
    def word(self) -> str:
        """Return the first word, if it is that of a directive and not a name."""
        return directive(self.pieces[0].text)


def lines_of(text: str) -> list[str]:
    """Return the lines of a text without their ends."""
    lines: list[str] = []
    start = 0
    while (
        end := text.find("\n", start + _AT_ONCE)
    ) >= 0:  # a whole text would keep the interpreter from other threads
        lines += _BREAK.split(text[start : end - (text[end - 1] == "\r")])
        start = end + 1
    return lines + _BREAK.split(text[start:])


def begins(line: str, language: Language) -> int | None:
    """Return the column behind `orbit:`, if a spec stands on the line."""
    match = _ORBIT[language].match(line)
    return match.end() if match else None


def mentions(text: str) -> bool:
    """Say whether a text may have launch specs or near misses. It is quick, because it is called at each edit."""
    return any(word in text for word in ("orbit", "Orbit", "ORBIT"))


def near_misses(lines: list[str], language: Language) -> dict[int, SpecSpan]:
    """Return, by line, the beginning (up to its content) of each comment that was meant as a launch spec but is not one,
    such as `// Orbit:` and `// orbit launch …`.

    Prose about orbits does not count: a statement has to follow. If the colon is missing too, the statement must be
    one that cannot be prose, or stand beside a line of a spec.
    """
    certain: dict[int, SpecSpan] = {}
    perhaps: dict[int, SpecSpan] = {}
    specs: set[int] = set()
    for at, line in enumerate(lines):
        if not mentions(line):
            continue
        if begins(line, language) is not None:
            specs.add(at)
        elif match := _NEARLY.match(line):
            span = SpecSpan(at, match.start(1), at, match.end(1))
            assigns = bool(_ASSIGNS.match(match["rest"]))
            colon = ":" in (match["colon"] or "") or "\uff1a" in (match["colon"] or "")
            if _CERTAIN.match(match["rest"]) or (colon and assigns):
                certain[at] = span
            elif colon or assigns or directive(match["rest"]):
                perhaps[at] = span
    for order in (sorted(perhaps), sorted(perhaps, reverse=True)):
        for at in order:
            if any(beside in certain or beside in specs for beside in (at - 1, at + 1)):
                certain[at] = perhaps[at]
    return dict(sorted(certain.items()))


def beginning(language: Language) -> str:
    """Return the beginning of a line of a launch spec."""
    return f"{_COMMENT[language]} orbit:"


def directive(text: str) -> str:
    """Return `launch` for `launch k<<<…`, nothing for `seed = 3` and `seed(…)`."""
    match = _ANY_WORD.match(text)
    if not match or match[1] not in WORDS:
        return ""
    after = text[match.end() :].lstrip()
    assigned = after.startswith("=") and not after.startswith("==")
    return "" if assigned else match[1]


def above(lines: list[str], target: SpecTarget) -> tuple[list[CommentPiece], list[Fault]]:
    """Return the spec lines above a kernel from the top: what follows `orbit:` in each."""
    pieces: list[CommentPiece] = []
    faults: list[Fault] = []
    mark = _COMMENT[target.language]
    size = 0
    line = min(target.start_line, len(lines)) - 1
    lowest = max(0, line - _FURTHEST_UP)
    while line >= lowest:
        text = lines[line]
        body = text.strip()
        if spec := _ORBIT[target.language].match(text):
            if len(text) > LONGEST_LINE:
                faults.append(
                    Fault(SpecSpan(line, 0, line, len(text)), "This line is too long for a launch spec.")
                )
            elif (size := size + len(text)) > LONGEST_SPEC:
                message = f"A launch spec has at most {LONGEST_SPEC:,} characters; this line and those above are not read."
                faults.append(Fault(SpecSpan(line, 0, line, len(text)), message))
                break
            else:
                pieces.append(CommentPiece(line, spec.end(), text[spec.end() :]))
        elif target.language == "cuda" and body.endswith("*/") and not body.startswith(mark):
            opening = line
            while opening >= lowest and "/*" not in lines[opening]:
                opening -= 1
            if opening < lowest or not lines[opening].lstrip().startswith("/*"):
                break
            faults += _in_block(lines, opening, line)
            line = opening
        elif body and not body.startswith(mark):
            break
        line -= 1
    faults += _below(lines, target)
    return pieces[::-1], faults


def _in_block(lines: list[str], first: int, last: int) -> list[Fault]:
    """Return a warning for a line in block comments that looks like a spec. They are not specs."""
    for line in range(first, last + 1):
        if match := re.match(r"\s*(?:/\*+|\*)?\s*(orbit:)", lines[line]):
            span = SpecSpan(line, match.start(1), line, match.end(1))
            return [
                Fault(span, "A launch spec is written in // comments; this block is not read.", "warning")
            ]
    return []


def _below(lines: list[str], target: SpecTarget) -> list[Fault]:
    """Return warnings for spec lines between a template header or decorator and the kernel itself: they are easily
    overlooked.
    """
    for line in range(target.start_line, min(target.line, len(lines))):
        if _ORBIT[target.language].match(lines[line]):
            span = SpecSpan(line, 0, line, len(lines[line]))
            words = "template header" if target.language == "cuda" else "decorators"
            return [Fault(span, f"Launch specs belong above the {words}; this line is not read.", "warning")]
    return []


def statements(pieces: list[CommentPiece], language: Language) -> tuple[list[SpecStatement], list[Fault]]:
    parsed: list[SpecStatement] = []
    open_pieces: list[CommentPiece] = []
    depth = 0
    for piece in pieces:
        if open_pieces and _BEGINS.match(piece.text) and directive(piece.text):
            parsed.append(SpecStatement(tuple(open_pieces)))
            open_pieces, depth = [], 0
        start, depth = 0, depth if open_pieces else 0
        raw = not open_pieces and directive(piece.text) in RAW
        end = len(piece.text)
        for match in _PIECE[language].finditer(piece.text):
            text = match[0]
            if text == _COMMENT[language] and not raw:
                end = match.start()
                break
            if text in ("(", "[", "{"):
                depth += 1
            elif text in (")", "]", "}"):
                depth = max(0, depth - 1)
            elif text == ";" and (depth == 0 or raw):
                open_pieces.append(
                    CommentPiece(piece.line, piece.column + start, piece.text[start : match.start()])
                )
                parsed.append(SpecStatement(tuple(open_pieces)))
                open_pieces, start, depth = [], match.end(), 0
                raw = directive(piece.text[start:]) in RAW
        rest = CommentPiece(piece.line, piece.column + start, piece.text[start:end])
        open_pieces.append(rest)
        if depth == 0 or raw:
            parsed.append(SpecStatement(tuple(open_pieces)))
            open_pieces, depth = [], 0
    if open_pieces:
        parsed.append(SpecStatement(tuple(open_pieces)))
    parsed = [statement for statement in parsed if any(piece.text.strip() for piece in statement.pieces)]
    if len(parsed) > MOST_STATEMENTS:
        message = f"A launch spec has at most {MOST_STATEMENTS} statements."
        return parsed[:MOST_STATEMENTS], [Fault(parsed[MOST_STATEMENTS].span, message)]
    return parsed, []
