"""Macros, as far as finding kernels needs them: which expand to `__global__`, and to what."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import chain
from typing import Final, NamedTuple

from orbit_lsp.kernels.cuda.lexer import (
    IDENTIFIER,
    SKIPPED_ITEM,
    CudaToken,
    clean_directive,
    directive_end,
    end_of,
    tokenize,
)
from orbit_remote.common.limits import MEANINGS

KEYWORD: Final = "__global__"

WELL_KNOWN: Final = (
    "CUTLASS_GLOBAL",
    "RAFT_KERNEL",
    "CUML_KERNEL",
    "CUDF_KERNEL",
    "CUVS_KERNEL",
    "KERNEL_DEF",
    "CUB_DETAIL_KERNEL_ATTRIBUTES",
    "CCCL_DETAIL_KERNEL_ATTRIBUTES",
    "_CCCL_KERNEL_ATTRIBUTES",
    "THRUST_DETAIL_KERNEL_ATTRIBUTES",
)
"""Macros of widely used libraries that stand for `__global__` (some with `static` or `void`) and are
defined in headers that a file's folder seldom has."""

_ATTRIBUTE: Final = re.compile(r"__attribute__[ \t]*\([ \t]*\([ \t]*(?:__)?global(?:__)?[ \t]*\)[ \t]*\)")
"""What CUDA's headers make of `__global__`; Clang's own sources write it themselves."""

_MOST_TOKENS = 20_000
_DEEPEST = 64
_MOST_HEADERS = 200
_MOST_HEADER_TEXT = 8_000_000

_DEFINE = re.compile(r"\#\s*define\s+([^\W\d]\w*)(\(([^()]*)\))?")
_UNDEF = re.compile(r"\#\s*undef\s+([^\W\d]\w*)")
_INCLUDE = re.compile(r'\#\s*(?:include|import|include_next)\s*(?:"([^"\n]*)"|<([^>\n]*)>)')
_DIRECTIVE_NAME = re.compile(r"\#\s*(\w*)")
_ANY_DEFINE = re.compile(r"\#[ \t]*define\b")
_DEFINE_PART = re.compile(r"(?:[^\n\\]++|\\(?:\r\n|[\s\S])){1,4096}")
_NEVER = re.compile(r"\#\s*(?:el)?if\s*\(?\s*(?:0+[uUlL]*|false)\s*\)?\s*(?:$|&&)")
_ALWAYS = re.compile(r"\#\s*(?:el)?if\s*\(?\s*(?:1[uUlL]*|true)\s*\)?\s*(?:$|\|\|)")


class Macro(NamedTuple):
    """A macro. `parameters` is None for an object-like macro. The parameters of a variadic one end in `__VA_ARGS__`."""

    name: str
    parameters: tuple[str, ...] | None
    body: str
    variadic: bool = False


_BY_MACRO: Final = re.compile(
    r"(?<!define )\b[A-Z][A-Z0-9_]{2,}\s++(?:(?:static|inline|void)\s++)*+[A-Za-z_]\w*+\s*\("
)
"""A function behind a name as macros have: `LIB_KERNEL static void scale(`."""

_ASSUMED: Final = {name: (Macro(name, None, KEYWORD),) for name in WELL_KNOWN}


class MacroDefinition(NamedTuple):
    """What one `#define` says, or one `#undef` (then `macro` is None)."""

    name: str
    macro: Macro | None


class Environment:
    """What each name may stand for at one place of a file.

    A name stands for several macros if branches of `#if` define it differently. `asked` collects the names that were
    looked up or changed, with their first meanings. What was found holds as long as these meanings stay.
    """

    def __init__(
        self,
        known: Mapping[str, tuple[Macro, ...]],
        names: frozenset[str],
        endings: frozenset[str] = frozenset(),
    ) -> None:
        self.known = dict(known)
        self.names = names
        """All that can lead to `__global__`, and perhaps more."""
        self.endings = endings
        """Those of `names` that close a brace which another macro has opened: `#define END }`."""
        self.asked: dict[str, tuple[Macro, ...]] = {}

    def get(self, name: str) -> tuple[Macro, ...]:
        macros = self.known.get(name, ())
        self.asked.setdefault(name, macros)
        return macros

    def apply(self, definition: MacroDefinition) -> None:
        name, macro = definition
        before = self.get(name)
        if macro is None:
            self.known.pop(name, None)
        elif before == _ASSUMED.get(name):  # a definition replaces what was assumed without one
            self.known[name] = (macro,)
        elif macro not in before and len(before) < MEANINGS.most:
            self.known[name] = (*before, macro)

    def still_means(self, asked: Mapping[str, tuple[Macro, ...]]) -> bool:
        return all(self.known.get(name, ()) == macros for name, macros in asked.items())

    def kernel_macro(self, name: str) -> Macro | None:
        """Return the first macro called `name` whose expansion can hold `__global__`."""
        return next((macro for macro in self.get(name) if self._reaches_keyword(macro)), None)

    def is_ambiguous(self, name: str) -> bool:
        """Say whether the expansion of `name` depends on which branch of `#if` defines it, or defines a macro in its
        body.
        """
        seen = {name}
        waiting = [name]
        while waiting:
            macros = self.get(waiting.pop())
            if len(macros) > 1:
                return True
            words = {word for macro in macros for word in IDENTIFIER.findall(macro.body)} - seen
            seen |= words
            waiting += words
        return False

    def _reaches_keyword(self, macro: Macro) -> bool:
        seen: set[str] = set()
        waiting = [macro]
        while waiting:
            words = set(IDENTIFIER.findall(waiting.pop().body))
            if KEYWORD in words:
                return True
            for word in words - seen:
                waiting += self.get(word)
            seen |= words
        return False


def directive_name(text: str) -> str:
    match = _DIRECTIVE_NAME.match(text)
    return match[1] if match else ""


def parse_include(text: str) -> str | None:
    match = _INCLUDE.match(clean_directive(text)) or _INCLUDE.match(text)  # <a//b.h> is no comment
    return (match[1] or match[2] or None) if match else None


def is_never(directive: str) -> bool:
    """Say whether a branch is never taken: `#if 0`, `#elif false`, `#if 0 && X`."""
    return _NEVER.match(clean_directive(directive).rstrip()) is not None


def is_always(directive: str) -> bool:
    return _ALWAYS.match(clean_directive(directive).rstrip()) is not None


def parse_definition(directive: str) -> MacroDefinition | None:
    text = clean_directive(directive)
    if match := _DEFINE.match(text):
        name = match[1]
        if name == KEYWORD:  # a stub for other compilers; the name keeps its meaning
            return None
        parameters: tuple[str, ...] | None = None
        variadic = False
        if match[2] is not None:
            names = [p.strip() for p in match[3].split(",")] if match[3].strip() else []
            if names and names[-1].endswith("..."):
                variadic = True
                names[-1] = names[-1][:-3].strip() or "__VA_ARGS__"
            parameters = tuple(names)
        return MacroDefinition(name, Macro(name, parameters, text[match.end() :].strip(), variadic))
    if match := _UNDEF.match(text):
        return MacroDefinition(match[1], None)
    return None


def base_macros(names: Collection[str]) -> dict[str, tuple[Macro, ...]]:
    """Return names that mean `__global__` if no definition is found. Those of the setting (`names`) do so even if one
    is found.
    """
    return _ASSUMED | {name: (Macro(name, None, f"{KEYWORD} "),) for name in names}


def kernel_names(known: Iterable[Macro], directives: Iterable[str]) -> tuple[frozenset[str], frozenset[str]]:
    """Return `__global__` with the names of macros that contain it, directly or through others. If one of these
    leaves a brace open, return also the names of macros that close one. The first set contains the second.
    """
    definitions = filter(None, map(parse_definition, directives))
    users: dict[str, list[str]] = {}
    kernel_macros: list[str] = []
    opening: set[str] = set()
    closing: set[str] = set()
    for macro in chain(known, (definition.macro for definition in definitions if definition.macro)):
        if opened := macro.body.count("{") - macro.body.count("}"):
            (opening if opened > 0 else closing).add(macro.name)
        for word in set(IDENTIFIER.findall(macro.body)):
            if word == KEYWORD:
                kernel_macros.append(macro.name)
            else:
                users.setdefault(word, []).append(macro.name)
    names: set[str] = {KEYWORD}
    while kernel_macros:
        name = kernel_macros.pop()
        if name not in names:
            names.add(name)
            kernel_macros += users.get(name, ())
    endings = frozenset(closing - names if opening & names else ())
    return endings.union(names), endings


def with_keyword(text: str) -> str:
    """Return the text with `__global__` in place of the attribute that it stands for. Every character keeps its
    place.
    """
    if "__attribute__" not in text:
        return text
    return _ATTRIBUTE.sub(lambda match: KEYWORD.ljust(len(match[0])), text)


def may_name_kernels(text: str) -> bool:
    """Say whether a header's kernels may carry a macro of the project that another of its headers defines."""
    return ("threadIdx" in text or "blockIdx" in text) and _BY_MACRO.search(text) is not None


def possible_definitions(text: str) -> list[str]:
    """Return everything that looks like a definition, also in comments and skipped branches. These are too many."""
    definitions: list[str] = []
    position = 0
    while (
        word := text.find("define", position)
    ) >= 0:  # a pattern would keep the interpreter ten times as long
        start = text.rfind("#", position, word)
        position = word + len("define")
        if start >= 0 and (match := _ANY_DEFINE.match(text, start)):
            position = end_of(_DEFINE_PART, text, match.end())
            definitions.append(text[start:position])
    return definitions


@lru_cache(maxsize=64)
def words_pattern(names: frozenset[str]) -> re.Pattern[str]:
    """Return a pattern for any of `names` as a whole word."""
    return re.compile(r"(?:" + "|".join(map(re.escape, sorted(names, reverse=True))) + r")(?!\w)")


def read_headers(includes: Sequence[str], headers: Callable[[str], str | None]) -> list[MacroDefinition]:
    """Return the definitions in the headers that `headers` knows, and in those that they include."""
    definitions: list[MacroDefinition] = []
    seen: set[str] = set()
    size = 0
    waiting = list(reversed(includes))
    while waiting and len(seen) < _MOST_HEADERS and size < _MOST_HEADER_TEXT:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        try:
            text = headers(name)
        except (OSError, ValueError):
            text = None
        if not text:
            continue
        size += len(text)
        text = with_keyword(text)
        nested: list[str] = []
        for directive in directives(text):
            if (definition := parse_definition(directive)) and definition.macro:
                definitions.append(definition)
            elif (include := parse_include(directive)) and include not in seen:
                nested.append(include)
        waiting += reversed(nested)
    return definitions


def directives(text: str) -> list[str]:
    """Return the directives of a text that the preprocessor may take."""
    lines: list[str] = []
    depth = dead_below = 0  # a dead branch lasts until its depth is left, or another branch begins
    position = 0
    while match := SKIPPED_ITEM.search(text, position):
        position = match.end()
        if text[match.start()] != "#":
            continue
        if (end := directive_end(text, match.start())) < 0:
            continue
        position = end
        directive = text[match.start() : end]
        name = directive_name(directive)
        if name in {"if", "ifdef", "ifndef"}:
            depth += 1
            if not dead_below and is_never(directive):
                dead_below = depth
        elif name in {"else", "elif", "elifdef", "elifndef"} and dead_below == depth:
            dead_below = depth if is_never(directive) else 0
        elif name == "endif":
            if dead_below == depth:
                dead_below = 0
            depth = max(0, depth - 1)
        elif not dead_below:
            lines.append(directive)
    return lines


def expand(tokens: Sequence[CudaToken], environment: Environment) -> list[CudaToken]:
    """Return `tokens` with the macros that lead to `__global__` replaced, and every macro in their replacements.

    Tokens of a macro's body get the place of the invocation. Tokens of an argument keep their own.
    """
    return _Expansion(environment).run(list(tokens), frozenset(), kernels_only=True)


def expand_name(tokens: Sequence[CudaToken], environment: Environment) -> list[CudaToken]:
    """Expand as `expand` does, but every macro."""
    return _Expansion(environment).run(list(tokens), frozenset())


class _Expansion:
    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._left = _MOST_TOKENS

    def run(
        self, tokens: list[CudaToken], hidden: frozenset[str], *, kernels_only: bool = False
    ) -> list[CudaToken]:
        out: list[CudaToken] = []
        index = 0
        while index < len(tokens):
            token = tokens[index]
            index += 1
            text = token.text
            macro = None if text in hidden else self._macro(text, kernels_only=kernels_only)
            passes_on = (
                macro is None and kernels_only and text not in hidden and self._passes_on(tokens, index)
            )
            if passes_on:
                macro = self._environment.get(text)[0]
            if macro is None or self._left <= 0 or len(hidden) >= _DEEPEST:
                out.append(token)
                continue
            place = token
            arguments: list[list[CudaToken]] = []
            if macro.parameters is not None:
                close = -1
                if index < len(tokens) and tokens[index].text == "(":
                    close, arguments = _arguments(tokens, index)
                if close < 0:
                    out.append(token)
                    continue
                place = CudaToken(text, token.start, max(token.end, tokens[close].end))
                index = close + 1
            replaced = self._substitute(macro, arguments, place, hidden)
            self._left -= len(replaced) + 1
            made = self.run(replaced, hidden | {macro.name})
            # the name of a macro is no place of a kernel that is made by it
            out += [CudaToken(each.text, place.start, place.end) for each in made] if passes_on else made
        return out

    def _macro(self, name: str, *, kernels_only: bool) -> Macro | None:
        """Return the macro that replaces `name`."""
        environment = self._environment
        macro = environment.kernel_macro(name) if name in environment.names or not kernels_only else None
        if macro is None and (not kernels_only or name in environment.endings):
            macro = next(iter(environment.get(name)), None)
        return macro

    def _passes_on(self, tokens: list[CudaToken], index: int) -> bool:
        """Say whether the macro before `index` is given a macro that makes kernels: `OPS(DEF)`, with `#define OPS(X)
        X(add) X(sub)`.
        """
        if index >= len(tokens) or tokens[index].text != "(":
            return False
        macros = self._environment.get(tokens[index - 1].text)
        if not macros or not macros[0].parameters:
            return False
        return any(
            len(argument) == 1
            and argument[0].text != KEYWORD
            and self._macro(argument[0].text, kernels_only=True)
            for argument in _arguments(tokens, index)[1]
        )

    def _substitute(
        self, macro: Macro, arguments: list[list[CudaToken]], place: CudaToken, hidden: frozenset[str]
    ) -> list[CudaToken]:
        body = [CudaToken(t.text, place.start, place.end) for t in tokenize(macro.body)]
        named: dict[str, list[CudaToken]] = {}
        if macro.parameters is not None:
            last = len(macro.parameters) - 1
            for i, name in enumerate(macro.parameters):
                if macro.variadic and i == last:
                    rest: list[CudaToken] = []
                    for argument in arguments[i:]:
                        rest += [CudaToken(",", place.start, place.end), *argument] if rest else argument
                    named[name] = rest
                else:
                    named[name] = arguments[i] if i < len(arguments) else []
        out: list[CudaToken] = []
        paste = False
        for i, token in enumerate(body):
            if token.text == "##":
                continue
            pasted = i + 1 < len(body) and body[i + 1].text == "##"
            new = [token]
            if token.text in named:
                new = named[token.text]
                if i and body[i - 1].text == "#":
                    out.pop()
                    new = [CudaToken('""', place.start, place.end)]
                elif not paste and not pasted:
                    self._left -= len(new)
                    new = self.run(new, hidden) if self._left > 0 else []
            left = paste or bool(new)
            if paste and new and out[-1].text != ",":  # `, ## __VA_ARGS__` pastes nothing
                out[-1] = CudaToken(out[-1].text + new[0].text, place.start, place.end)
                new = new[1:]
            paste = pasted and left
            out += new
            if len(out) > self._left:
                self._left = 0
                break
        return out


def _arguments(tokens: list[CudaToken], opening: int) -> tuple[int, list[list[CudaToken]]]:
    """Return the index of the closing parenthesis (-1 without one), and the arguments before it."""
    depth = 0
    arguments: list[list[CudaToken]] = [[]]
    for index in range(opening, len(tokens)):
        text = tokens[index].text
        if text in {"(", "[", "{"}:
            depth += 1
            if depth == 1:
                continue
        elif text in {")", "]", "}"}:
            depth -= 1
            if depth == 0:
                return index, arguments if arguments != [[]] else []
        elif text == "," and depth == 1:
            arguments.append([])
            continue
        arguments[-1].append(tokens[index])
    return -1, []
