"""Finds the kernels that a declaration defines, from its tokens."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Final, NamedTuple

from orbit_lsp.kernels.cuda.lexer import IDENTIFIER, CudaToken
from orbit_lsp.kernels.cuda.macros import KEYWORD, Environment, expand, expand_name

_TAKE_ARGUMENTS: Final = frozenset(
    [
        "__launch_bounds__",
        "__cluster_dims__",
        "__maxnreg__",
        "__block_size__",
        "__attribute__",
        "__attribute",
        "__declspec",
        "alignas",
        "_Alignas",
        "__align__",
        "decltype",
        "__typeof__",
        "typeof",
        "__typeof",
        "noexcept",
        "throw",
        "requires",
        "explicit",
        "__annotate__",
        "asm",
        "__asm__",
        "sizeof",
    ]
)
_NO_NAMES: Final = frozenset(["void", "auto", "inline", "static", "const", "extern"])
_ENDS_HEAD: Final = frozenset(["{", ";", "=", "}", ","])
_MOST_SEARCHED = 20_000
"""How many tokens are looked at in vain for the ends of template arguments."""
_CLOSING: Final = {"(": ")", "[": "]", "{": "}"}
_Candidate = tuple[int, int, int]
"""First and last token of a name, and the last one of its parameters."""


class FoundDefinition(NamedTuple):
    """One definition. `end` is None if the body is the brace that follows the tokens. It is also None if a macro
    opens the body: `opened` says where, and by how many braces.
    """

    name: str
    name_start: int
    name_end: int
    keyword: int
    start: int
    end: int | None
    bounds: tuple[str, ...]
    template: bool
    renamed: bool
    opened: tuple[int, int] | None = None


def definitions(
    tokens: Sequence[CudaToken], environment: Environment, *, body_follows: bool
) -> list[FoundDefinition]:
    """Return the kernels that `tokens` define. If a body follows the tokens, it belongs to the last one."""
    return _Parser(tokens, environment, body_follows).run()


class _Parser:
    def __init__(self, tokens: Sequence[CudaToken], environment: Environment, body_follows: bool) -> None:
        self._tokens = expand(tokens, environment)
        self._texts = [token.text for token in self._tokens]
        self._written = tokens
        self._environment = environment
        self._body_follows = body_follows
        self._closing = _matches(self._texts)
        self._around = _arguments_around(self._texts)
        self._searches = _MOST_SEARCHED

    def run(self) -> list[FoundDefinition]:
        texts = self._texts
        definitions: list[FoundDefinition] = []
        begin = index = 0
        while index < len(texts):
            text = texts[index]
            if text == KEYWORD and (dropped := self._dropped(index)) >= 0:
                closing = self._closing.get(dropped, index)
                begin = closing + 1 if closing > index else begin
                index = max(index, closing) + 1
                continue
            if text == KEYWORD:
                definition, after = self._definition(begin, index)
                if definition:
                    definitions.append(definition)
                    begin = after
                index = after
                continue
            index += 1
            if text == "template" and index < len(texts) and texts[index] == "<":
                index = max(index, self._angle(index) + 1)
            elif text == "{":
                in_constraint = self._is_requires_expression(index - 1)
                index = max(index, self._closing.get(index - 1, 0) + 1)
                begin = begin if in_constraint else index
            elif text in {";", "}"} or (
                text == ":" and texts[index - 2] in {"public", "private", "protected"}
            ):
                begin = index
        return definitions

    def _dropped(self, keyword: int) -> int:
        """Return where the arguments begin of a macro that drops its argument with `keyword`, or makes a string of
        it. Return -1 if there is none.
        """
        opening, number = self._around[keyword]
        while opening >= 0:
            if opening and not self._keeps(self._texts[opening - 1], number):
                return opening
            opening, number = self._around[opening]
        return -1

    def _keeps(self, name: str, number: int) -> bool:
        """Say whether argument `number` of a macro is still code after expansion. That is also assumed of what is no
        macro, or not known to be one.
        """
        macros = self._environment.get(name) if IDENTIFIER.match(name) else ()
        if len(macros) != 1 or macros[0].parameters is None:
            return True
        texts = [name, "(", *[","] * number, KEYWORD, ")"]
        return any(
            token.text == KEYWORD
            for token in expand_name([CudaToken(text, 0, 0) for text in texts], self._environment)
        )

    def _definition(self, begin: int, keyword: int) -> tuple[FoundDefinition | None, int]:
        """Return the definition whose first `__global__` is at `keyword`, and where to go on."""
        candidates, index = self._candidates(keyword + 1)
        if not candidates:
            return None, index
        first, last, parameters = _best(candidates, self._texts)
        end: int | None = None
        opened: tuple[int, int] | None = None
        after = max(parameters + 1, keyword + 1)
        if self._at(index) == "{":
            close = self._closing.get(index, -1)
            if close < 0:
                opened, after = self._opened(index)
            else:
                end, after = self._tokens[close].end, close + 1
        elif not self._body_follows or self._at(index) not in {"", KEYWORD}:
            return None, max(index, keyword + 1)
        name, name_start, name_end = self._name(first, last)
        if not name:
            return None, after
        definition = FoundDefinition(
            name,
            name_start,
            name_end,
            self._tokens[keyword].start,
            self._tokens[self._start(begin, keyword)].start,
            end,
            self._bounds(begin, index),
            self._is_template(begin, keyword),
            "(" in name or self._is_renamed(name, name_start),
            opened,
        )
        return definition, after

    def _opened(self, brace: int) -> tuple[tuple[int, int], int]:
        """Return where the call of a macro ends that leaves the brace open, how many more braces it opens itself, and
        where to go on.
        """
        place = self._tokens[brace].end
        index = brace
        while index < len(self._tokens) and self._tokens[index].end <= place:
            index += 1
        count = sum(
            text == "{" and at not in self._closing for at, text in enumerate(self._texts[brace:index], brace)
        )
        return (place, count), index

    def _candidates(self, index: int) -> tuple[list[_Candidate], int]:
        """Return what may be the name with its parameters, and where to go on. Return nothing if a parenthesis stays
        open.
        """
        candidates: list[_Candidate] = []
        while text := self._at(index):
            if text in _ENDS_HEAD or (text == KEYWORD and candidates):
                break
            if candidates and text in {"noexcept", "requires", "->"}:
                return candidates, self._skip_to_body(index)
            if text == "(":
                close = self._closing.get(index)
                if close is None:
                    return [], index + 1
                if not candidates:
                    candidates += self._parenthesized(index, close)
                index = max(close, candidates[-1][2] if candidates else 0) + 1
            elif text == "[":
                index = self._closing.get(index, index) + 1
            elif text != KEYWORD and text not in _NO_NAMES and IDENTIFIER.match(text):
                candidate, after = self._candidate(index)
                if after < 0:
                    return [], index + 1
                candidates += candidate
                index = after
            else:
                index += 1
        return candidates, index

    def _candidate(self, word: int) -> tuple[list[_Candidate], int]:
        """Return the word at `word` if parameters follow, and where to go on; -1 if a parenthesis stays open."""
        takes_arguments = self._texts[word] in _TAKE_ARGUMENTS
        last = word
        if not takes_arguments and self._at(word + 1) == "<":
            last = self._angle(word + 1)
        if self._at(last + 1) != "(":
            return [], last + 1
        close = self._closing.get(last + 1, -1)
        if close < 0:
            return [], -1
        if takes_arguments:
            return [], close + 1
        if self._at(close + 1) == "(" and last == word:  # NAME(x)(int n)
            last, close = close, self._closing.get(close + 1, -1)
            if close < 0:
                return [], -1
        return [(word, last, close)], close + 1

    def _at(self, index: int) -> str:
        return self._texts[index] if index < len(self._texts) else ""

    def _parenthesized(self, opening: int, close: int) -> list[_Candidate]:
        """Return `(name)(int n)`, and the `(name)` of an unknown `KERNEL(name) {` or `KERNEL(name, …)(int n) {`."""
        texts = self._texts
        if close == opening + 1 or not IDENTIFIER.match(texts[opening + 1]) or texts[close - 1] == "*":
            return []
        following = texts[close + 1] if close + 1 < len(texts) else "{"
        if following == "(" and close + 1 in self._closing:
            return [(opening + 1, opening + 1, self._closing[close + 1])]
        if following == "{" and opening and texts[opening - 1] == KEYWORD:
            return [(opening + 1, opening + 1, close)]
        return []

    def _skip_to_body(self, index: int) -> int:
        """Return the place of the next brace that is a body, of `;`, or of `__global__`, after a trailing return type
        or a constraint.
        """
        texts = self._texts
        while index < len(texts):
            text = texts[index]
            if text in {";", KEYWORD, "}"}:
                return index
            if text == "{":
                if self._is_requires_expression(index):
                    index = self._closing.get(index, len(texts)) + 1
                    continue
                return index
            index = self._closing.get(index, index) + 1 if text in {"(", "["} else index + 1
        return index

    def _is_requires_expression(self, brace: int) -> bool:
        """Say whether the brace belongs to `requires {` or to `requires (T t) {` in a constraint."""
        texts = self._texts
        if texts[brace - 1] != ")":
            return texts[brace - 1] == "requires"
        opening = next((o for o, c in self._closing.items() if c == brace - 1), 0)
        return texts[opening - 1] == "requires" and texts[opening - 2] in {"requires", "&&", "||"}

    def _angle(self, opening: int) -> int:
        """Return the place of the `>` that closes the template arguments opened at `opening`, or `opening - 1` if
        none does.
        """
        depth = 0
        index = opening
        end = min(len(self._texts), opening + self._searches)
        while index < end:
            text = self._texts[index]
            if text == "<":
                depth += 1
            elif text == ">":
                depth -= 1
                if depth == 0:
                    return index
            elif text in _CLOSING:
                index = self._closing.get(index, end)
            elif text in {";", "}"}:
                break
            index += 1
        self._searches -= min(index, end) - opening
        return opening - 1

    def _name(self, first: int, last: int) -> tuple[str, int, int]:
        token = self._tokens[first]
        if last > first and self._texts[first + 1] == "(":
            names = expand_name(self._tokens[first : last + 1], self._environment)
            if len(names) == 1 or (names and names[0].text != token.text):
                token = names[0]
            return (
                token.text if len(names) == 1 else written(self._tokens[first : last + 1]),
                token.start,
                token.end,
            )
        return token.text, token.start, token.end

    def _is_renamed(self, name: str, start: int) -> bool:
        """Say whether the word in the name's place is a macro that makes another name from it, or is one of several."""
        at = bisect_left(self._written, start, key=lambda token: token.start)
        word = self._written[at].text if at < len(self._written) else ""
        unexpanded = word == name and any(macro.parameters is None for macro in self._environment.get(word))
        return unexpanded or self._environment.is_ambiguous(word)

    def _start(self, begin: int, keyword: int) -> int:
        """Return where the declaration itself begins: behind macros that need no `;`, as those that make kernels."""
        index = begin
        while index < keyword and self._texts[index] in {
            ")",
            ";",
        }:  # of a macro's call that holds declarations
            index += 1
        while index < keyword and self._environment.get(self._texts[index]):
            close = self._closing.get(index + 1, -1) if self._at(index + 1) == "(" else index
            made = expand_name(self._tokens[index : close + 1], self._environment)
            if close < index or not made or made[-1].text not in {";", "{", "}"}:
                break
            index = close + 1
        return index

    def _bounds(self, begin: int, end: int) -> tuple[str, ...]:
        for index in range(begin, min(end, len(self._texts)) - 1):
            text = self._texts[index]
            if text == "__launch_bounds__" or ("LAUNCH_BOUNDS" in text and IDENTIFIER.match(text)):
                close = self._closing.get(index + 1)
                if self._texts[index + 1] == "(" and close:
                    return tuple(written(part) for part in _split(self._tokens[index + 2 : close]))
        return ()

    def _is_template(self, begin: int, keyword: int) -> bool:
        texts = self._texts
        return any(
            texts[i] == "template" and texts[i + 1] == "<" and texts[i + 2] != ">"
            for i in range(begin, keyword - 2)
        )


def _best(candidates: list[_Candidate], texts: list[str]) -> _Candidate:
    """Return the name: the last `word(…)`, except for attribute macros such as `k(…) ATTRIBUTE(x) {`."""
    if len(candidates) > 1 and texts[candidates[-1][0]].isupper():
        return next((c for c in reversed(candidates) if not texts[c[0]].isupper()), candidates[-1])
    return candidates[-1]


def _arguments_around(texts: Sequence[str]) -> list[tuple[int, int]]:
    """Return for each token the parenthesis that is open around it (-1 for none), and the number of its argument
    there.
    """
    around: list[tuple[int, int]] = []
    outer: list[tuple[int, int]] = []
    here = (-1, 0)
    for at, text in enumerate(texts):
        if text == ")" and outer:
            here = outer.pop()
        around.append(here)
        if text == "(":
            outer.append(here)
            here = (at, 0)
        elif text == ",":
            here = (here[0], here[1] + 1)
    return around


def _matches(texts: list[str]) -> dict[int, int]:
    """Return opening -> closing index. A closing bracket also closes what was left open inside."""
    pairs: dict[int, int] = {}
    open_at: dict[str, list[int]] = {")": [], "]": [], "}": []}
    order: list[int] = []
    for index, text in enumerate(texts):
        if text in _CLOSING:
            order.append(index)
            open_at[_CLOSING[text]].append(index)
        elif open_at.get(text):
            opening = open_at[text].pop()
            while order and order[-1] != opening:
                inner = order.pop()
                open_at[_CLOSING[texts[inner]]].pop()
            order.pop()
            pairs[opening] = index
    return pairs


def _split(tokens: Sequence[CudaToken]) -> list[list[CudaToken]]:
    parts: list[list[CudaToken]] = [[]]
    depth = 0
    for token in tokens:
        if token.text in _CLOSING:
            depth += 1
        elif token.text in {")", "]", "}"}:
            depth -= 1
        if token.text == "," and depth == 0:
            parts.append([])
        else:
            parts[-1].append(token)
    return parts if parts != [[]] else []


def written(tokens: Sequence[CudaToken]) -> str:
    """Return tokens as their author wrote them, except for the amount of white space."""
    parts: list[str] = []
    for index, token in enumerate(tokens):
        if index:
            before = tokens[index - 1]
            words = (before.text[-1] + token.text[0]).replace("_", "a").isalnum()
            if token.start > before.end or (token.start < before.end and words):
                parts.append(" ")
        parts.append(token.text)
    return "".join(parts)
