"""The functions of a CUDA text as tokens: their heads, and what stands between their braces."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from typing import Final

from orbit_lsp.kernels.cuda.lexer import (
    IDENTIFIER,
    LONE_RETURN,
    SKIPPED_ITEM,
    CudaToken,
    directive_end,
    tokenize,
)
from orbit_lsp.kernels.cuda.macros import Macro, directive_name, is_never, parse_definition, with_keyword
from orbit_lsp.kernels.model import Kernel
from orbit_remote.common.lazy_dataclass import dataclass

_OPENING: Final = {")": "(", "]": "[", "}": "{"}
_CONDITIONS: Final = frozenset(["if", "ifdef", "ifndef"])
_TYPES: Final = frozenset(["struct", "class", "union"])
_NO_FUNCTION: Final = frozenset(
    ["if", "for", "while", "switch", "catch", "__launch_bounds__", "__attribute__", "alignas", "decltype"]
)


@dataclass(frozen=True, slots=True)
class CudaFunction:
    """A function. `head` begins behind the declaration before it. `parameters` and `body` are without their brackets."""

    name: str
    head: Sequence[CudaToken]
    parameters: Sequence[CudaToken]
    body: Sequence[CudaToken]
    words: Sequence[str]
    """The texts of the body's tokens."""

    def parameter_list(self) -> Iterator[list[str]]:
        """Yield the texts of each parameter's tokens."""
        part: list[str] = []
        depth = 0
        for token in self.parameters:
            word = token.text
            depth += (word in {"(", "[", "<", "{"}) - (word in {")", "]", ">", "}"})
            if word == "," and depth == 0:
                yield part
                part = []
            else:
                part.append(word)
        if part:
            yield part

    @property
    def on_device(self) -> bool:
        return any(token.text in {"__global__", "__device__"} for token in self.head)


class CudaText:
    """A text. Every branch of an `#if` counts, except for those that are never taken."""

    def __init__(self, text: str) -> None:
        text = LONE_RETURN.sub("\n", text)
        self._macros: list[Macro] = []
        self.tokens = tokenize(self._code(with_keyword(text)))
        self.words = [token.text for token in self.tokens]
        self.closing = closings(self.words)
        self.macros = {macro.name: macro for macro in self._macros}
        self._lines = [0, *(at + 1 for at, character in enumerate(text) if character == "\n")]
        self._starts = [token.start for token in self.tokens]

    def _code(self, text: str) -> str:
        """Return the text with blanks for comments and directives."""
        parts: list[str] = []
        done = position = depth = 0
        dead = -1
        while match := SKIPPED_ITEM.search(text, position):
            at, position = match.span()
            if text[at] == "#":
                end = directive_end(text, at)
                if end < 0:
                    continue
                position = end
                name = directive_name(text[at:end])
                if dead >= 0:
                    depth += (name in _CONDITIONS) - (name == "endif")
                    if depth and not (depth == 1 and name.startswith("el")):
                        continue
                    at, dead = dead, -1
                elif name == "if" and is_never(text[at:end]):
                    dead, depth = at, 1
                    continue
                elif name == "define" and (definition := parse_definition(text[at:end])) and definition.macro:
                    self._macros.append(definition.macro)
            elif dead >= 0 or not text.startswith(("//", "/*"), at):
                continue
            parts += (text[done:at], " " * (position - at))
            done = position
        if dead >= 0:
            parts += (text[done:dead], " " * (len(text) - dead))
            done = len(text)
        return "".join((*parts, text[done:]))

    def line(self, token: CudaToken) -> int:
        """Return a token's line, from 0."""
        return bisect_right(self._lines, token.start) - 1

    def kernel(self, kernel: Kernel) -> CudaFunction | None:
        """Return the function that the scanner found there. Return None if its brackets do not match."""
        whole, name = kernel.whole, kernel.name_span
        first = self._at(whole.line, whole.column)
        after = self._at(whole.end_line, whole.end_column)
        opening = self._at(name.line, name.column) + 1
        if (
            opening >= after
            or self.words[opening] != "("
            or (closing := self.closing.get(opening, after)) >= after
        ):
            return None
        brace = next((at for at in range(closing, after) if self.words[at] == "{"), after)
        if self.closing.get(brace, after) != after - 1:
            return None
        return self._made(kernel.name, first, opening, closing, brace, after - 1)

    def _made(self, name: str, first: int, opening: int, closing: int, brace: int, end: int) -> CudaFunction:
        tokens = self.tokens
        return CudaFunction(
            name,
            tokens[first:opening],
            tokens[opening + 1 : closing],
            tokens[brace + 1 : end],
            self.words[brace + 1 : end],
        )

    def _at(self, line: int, column: int) -> int:
        start = self._lines[line] + column if line < len(self._lines) else self._starts[-1] + 1
        return bisect_left(self._starts, start)

    def functions(self) -> Iterator[CudaFunction]:
        """Yield the functions of the file, of its namespaces and of its types. Lambdas are part of the function
        around them.
        """
        words = self.words
        begin = at = 0
        while at < len(words):
            word = words[at]
            if word == "{":
                end = self.closing.get(at)
                kind = words[begin:at]
                function = self._function(begin, at, end) if end is not None else None
                if function:
                    yield function
                elif "namespace" in kind or kind[:1] == ["extern"] or (_TYPES & {*kind} and "=" not in kind):
                    end = None  # go into it
                at = at if end is None else end
                begin = at + 1
            elif word in {";", "}"}:
                begin = at + 1
            elif word == "(":
                at = self.closing.get(at, at)
            at += 1

    def _function(self, begin: int, brace: int, end: int) -> CudaFunction | None:
        """Return the function with its body in these braces: the last `name(…)` before them that no initialiser of a
        member is.
        """
        words, at = self.words, begin
        while at < brace:
            word = words[at]
            if word == "(":
                closing = self.closing.get(at, brace)
                name = words[at - 1] if at > begin else ""
                if IDENTIFIER.match(name) and name not in _NO_FUNCTION and closing < brace:
                    return self._made(name, begin, at, closing, brace, end)
                at = closing
            elif word == "=":
                return None
            at += 1
        return None


def closings(words: Sequence[str]) -> dict[int, int]:
    """Return opening bracket -> its closing one, which also closes what was left open inside."""
    pairs: dict[int, int] = {}
    open_at: list[int] = []
    for at, word in enumerate(words):
        if word in {"(", "[", "{"}:
            open_at.append(at)
        elif word in _OPENING:
            while open_at:
                opening = open_at.pop()
                if words[opening] == _OPENING[word]:
                    pairs[opening] = at
                    break
    return pairs


def named(parameter: Sequence[str]) -> str:
    """Return the name that a parameter has, or ""."""
    for end in ("=", "["):
        parameter = parameter[: parameter.index(end)] if end in parameter else parameter
    return parameter[-1] if len(parameter) > 1 and IDENTIFIER.match(parameter[-1]) else ""
