"""One reading of a CUDA file: where braces, declarations and branches end, and so regions (see `cuda`)."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import Final

from orbit_lsp.kernels.cuda import declarator
from orbit_lsp.kernels.cuda.lexer import (
    CLOSED_LITERAL,
    COMMENT,
    DATA,
    DIRECTIVE,
    ITEM,
    LITERAL,
    SKIPPED_ITEM,
    Source,
    directive_end,
    tokenize,
)
from orbit_lsp.kernels.cuda.macros import (
    Environment,
    directive_name,
    is_always,
    is_never,
    parse_definition,
    parse_include,
    words_pattern,
)
from orbit_lsp.kernels.cuda.regions import KernelExtent, Region, RegionWriter
from orbit_lsp.kernels.cuda.scopes import SCOPE_WORD, Conditional, Scope, expects_expression, scope_kind

_LINE_END: Final = re.compile(r"[ \t\r\f\v]*+(?://[^\\\n]*+)?\n")
_LONGEST_DECLARATION = 1 << 16
_MOST_SCOPES = 200
_MOST_ITEMS = 8_192
"""A line with more brackets, strings and the like is generated data: the rest of it is only counted."""
_MOST_RESUMED = 16
"""How often braces may interrupt one declaration (`dim3{1}` in default arguments) before it is given up."""


class RegionReader:
    """One reading of a text from the start of a region on."""

    def __init__(
        self, text: str, start: int, scope: Scope, conditional: Conditional | None, environment: Environment
    ) -> None:
        self.text = text
        self.source = Source(text)
        self.environment = environment
        self.scope = scope
        self.conditional = conditional
        self.writer = RegionWriter(self.source, start, scope, conditional)
        self.head = start  # where the declaration starts that is being read
        self.parens = 0
        self.resumed = 0
        self.open: list[KernelExtent] = []
        self.closed: list[KernelExtent] = []
        self.brackets: list[int] = []  # where a `<<<` stands
        self.pattern = words_pattern(environment.names)
        self.words = [start - 1]

    def regions(self) -> Iterator[Region]:
        """The regions up to the end of the text. Runs no further than the caller asks."""
        text = self.text
        gap = self.source.gap
        position = self.head
        word = self._next_word(position)
        count = 0
        counted_from = position
        while position >= 0:
            items = ITEM.finditer(text, position)
            position = -1
            for item in items:
                at = item.start()
                count += 1
                if count > _MOST_ITEMS:
                    if text.find("\n", counted_from, at) < 0 and self._is_data(at, word):
                        position = self._skip_line(at)
                        word = self._next_word(position)
                        break
                    count = 0
                    counted_from = at
                character = text[at]
                if character == "(":
                    self.parens += 1
                    continue
                if character == ")":
                    if self.parens:
                        self.parens -= 1
                    continue
                ended = -1
                if character == ";":
                    if word < at:
                        self._statement(at)
                    self.parens = 0
                    self.head = at + 1
                    if word < at:
                        word = self._next_word(at)
                    if self.scope.namespace:
                        ended = at + 1
                elif character == "{":
                    if word < at or self.scope.namespace or self.scope.type_body:
                        settled = self._open(at, word < at)
                        if settled and self.scope.namespace:
                            ended = at + 1
                    else:
                        self._push(at)
                    if word < at:
                        word = self._next_word(at)
                elif character == "}":
                    if word < at:
                        self._statement(at)
                    if self._close(at):
                        ended = at + 1
                    if word < at or self.head < at:
                        word = self._next_word(self.head)
                elif character == "/":
                    gap(at, item.end(), COMMENT)
                    continue
                elif character == "<":
                    self.brackets.append(at)
                    position = at + 3
                    break
                elif character == "#":
                    if (end := directive_end(text, at)) < 0:
                        continue
                    position = self._directive(at, end, word < at)
                    if word < self.head:
                        word = self._next_word(self.head)
                    if self.head == position and self.scope.namespace:
                        ended = position
                else:
                    if item.end() > at + 1:
                        gap(at, item.end(), LITERAL)
                    continue
                if ended >= 0:
                    self._end_piece(ended)
                    if not (self.open or self.parens) and (
                        self.conditional is None or self.conditional.neutral
                    ):
                        line_end = _LINE_END.match(text, ended)
                        if line_end:
                            yield self._end_region(line_end.end())
                            position = counted_from = line_end.end()
                            count = 0
                            break
                if position >= 0:
                    break
        if word <= len(text):
            self._statement(len(text))
        for kernel in self.open:
            kernel.end = len(text)
        self.closed += self.open
        self._end_piece(len(text))
        yield self._end_region(len(text))

    def _is_data(self, at: int, word: int) -> bool:
        """Whether the line goes on from `at` without a kernel: `word` is the next name that can lead to one."""
        return word > len(self.text) or self.text.find("\n", at, word) >= 0

    def _skip_line(self, at: int) -> int:
        """Where the line ends that `at` stands in, with as much open then as its braces say."""
        text = self.text
        end = text.find("\n", at)
        end = len(text) if end < 0 else end
        self.source.gap(at, end, DATA)
        rest = text[at:end]
        if ("{" in rest or "}" in rest) and ('"' in rest or "'" in rest):
            rest = CLOSED_LITERAL.sub("", rest)
        opened = rest.count("{") - rest.count("}")
        for _ in range(min(opened, _MOST_SCOPES)):
            self._push(at, interrupted=False)
        while opened < 0 and self.scope.parent:
            self._close(at)
            opened += 1
        self.parens = 0
        self.head = end
        return end

    def _next_word(self, position: int) -> int:
        """Where the next name stands that can lead to `__global__`, in code or not."""
        words = self.words
        while words[-1] < position:
            match = self.pattern.search(self.text, words[-1] + 1)
            words.append(match.start() if match else len(self.text) + 1)
        return words[bisect_left(words, position)]

    def _push(self, at: int, *, interrupted: bool | None = None, type_name: str | None = None) -> None:
        if interrupted is None:
            interrupted = self.parens > 0
        if interrupted:
            self.resumed += 1
            interrupted = self.resumed <= _MOST_RESUMED
        self.scope = Scope(
            self.scope,
            type_name or "",
            namespace=False,
            type_body=type_name is not None,
            parens=self.parens if interrupted else 0,
            interrupted=self.head if interrupted else -1,
        )
        self.parens = 0
        self.head = at + 1

    def _open(self, at: int, has_word: bool) -> bool:
        """Go into the brace at `at`; True when the declaration before it is settled."""
        head = self.head
        if has_word:
            found = self._define(at, body_follows=True)
            if found and found[-1].end is None:
                scope = self.scope
                while not (scope.namespace or scope.type_body):
                    assert scope.parent
                    scope = scope.parent
                if scope is not self.scope:  # kernels are not defined in functions: a brace is missing above
                    self._settle_open(scope.depth, found[0].start)
                    self.scope = scope
                self._keep(found, at)
                self._push(at, interrupted=False)
                return True
            self._keep(found, at)
        before = self.text[head:at]
        if SCOPE_WORD.search(before) and (kind := scope_kind(self.source.code(self._declaration(at), at))):
            word, name = kind
            if word == "type":
                self._push(at, interrupted=False, type_name=name)
            elif self.scope.namespace and self.scope.depth < _MOST_SCOPES:
                self.scope = self.scope.inner_namespace(name)
                self.parens = 0
                self.head = at + 1
            else:
                self._push(at, interrupted=False)
            return True
        interrupted = self.parens > 0 or expects_expression(before)
        self._push(at, interrupted=interrupted)
        return not interrupted

    def _close(self, at: int) -> bool:
        """Leave the innermost brace; True when that ends a declaration of a namespace."""
        scope = self.scope
        if scope.parent is None:
            self.head = at + 1
            self.parens = 0
            return True
        for kernel in self.open:
            if kernel.depth >= scope.depth:
                kernel.end = at + 1
        if self.open:
            self._sort_open()
        self.scope = scope.parent
        self.parens = scope.parens
        if scope.interrupted >= 0:
            self.head = scope.interrupted
            return False
        self.head = at + 1
        return self.scope.namespace

    def _sort_open(self) -> None:
        self.closed += [kernel for kernel in self.open if kernel.end >= 0]
        self.open = [kernel for kernel in self.open if kernel.end < 0]

    def _settle_open(self, depth: int, end: int) -> None:
        """Kernels that are still open deeper than `depth` end at `end`: their brace is missing."""
        for kernel in self.open:
            if kernel.depth > depth:
                kernel.end = end
        self._sort_open()

    def _statement(self, at: int) -> bool:
        """The declaration that ends at `at` without a body may hold invocations that have one."""
        found = self._define(at, body_follows=False)
        self._keep(found, at)
        return bool(found)

    def _define(self, at: int, *, body_follows: bool) -> list[declarator.Found]:
        start = self._declaration(at)
        return declarator.definitions(
            tokenize(self.source.code(start, at), start), self.environment, body_follows=body_follows
        )

    def _declaration(self, at: int) -> int:
        """Where the declaration starts that ends at `at`; of an endless one, what may matter of it."""
        return max(self.head, self.source.outside(at - _LONGEST_DECLARATION))

    def _keep(self, found: Sequence[declarator.Found], at: int) -> None:
        scope = self.scope
        path = scope.path() if found else []
        for definition in found:
            kernel = KernelExtent(definition, "::".join((*path, definition.name)), at, scope.depth + 1)
            if definition.end is not None:
                kernel.body = kernel.end = definition.end
                self.closed.append(kernel)
            else:
                self.open.append(kernel)

    # -- directives ---------------------------------------------------------------------------

    def _directive(self, at: int, end: int, has_word: bool) -> int:
        """Where to go on after the directive [at, end) and what it removes."""
        text = self.text
        directive = text[at:end]
        name = directive_name(directive)
        fresh = not self.source.code(self.head, at).strip() if self.head < at else True
        if name in {"define", "undef"}:
            if (definition := parse_definition(directive)) is not None:
                if has_word and definition.macro is None and self._statement(at):
                    fresh = True  # what stands before the #undef means what it meant
                self.environment.apply(definition)
                self.writer.region.definitions.append(definition)
        elif name in {"include", "import", "include_next"} and (include := parse_include(directive)):
            self.writer.region.includes.append(include)
        self.source.gap(at, end, DIRECTIVE)
        after = end
        if name in {"if", "ifdef", "ifndef"}:
            dead = name == "if" and is_never(directive)
            outer = self.conditional
            neutral = self.scope.namespace and self.parens == 0 and (outer is None or outer.neutral)
            taken = name == "if" and is_always(directive)
            self.conditional = Conditional(outer, self.scope, self.parens, None, taken, dead, neutral)
            after = self._skip(end) if dead else end
        elif name in {"else", "elif", "elifdef", "elifndef"} and self.conditional:
            before = self.conditional
            ending = before.after
            if ending is None and not before.dead:
                ending = (self.scope, self.parens)
            dead = before.taken or (name == "elif" and is_never(directive))
            self.conditional = before._replace(
                after=ending,
                dead=dead,
                taken=before.taken or (name == "elif" and is_always(directive)),
                neutral=before.neutral and (ending is None or (ending[0].namespace and ending[1] == 0)),
            )
            fresh = self._return_to(before.scope, before.parens) or fresh
            after = self._skip(end) if dead else end
        elif name == "endif" and self.conditional:
            before = self.conditional
            self.conditional = before.outer
            if before.after is not None:
                fresh = self._return_to(*before.after) or fresh
        if after > end:
            self.source.gap(end, after, COMMENT)
        if fresh:
            self.head = after
        return after

    def _return_to(self, scope: Scope, parens: int) -> bool:
        """Go on in `scope`; True if that is another one than now."""
        other = scope is not self.scope
        self.scope = scope
        self.parens = parens
        return other

    def _skip(self, start: int) -> int:
        """Where the directive stands that ends the dead branch which starts at `start`."""
        text = self.text
        depth = 0
        position = start
        while match := SKIPPED_ITEM.search(text, position):
            at = match.start()
            position = match.end()
            if text[at] != "#":
                continue
            if (end := directive_end(text, at)) < 0:
                continue
            position = end
            name = directive_name(text[at:end])
            if name in {"if", "ifdef", "ifndef"}:
                depth += 1
            elif depth == 0 and name in {"else", "elif", "elifdef", "elifndef", "endif"}:
                return at
            elif name == "endif":
                depth -= 1
        return len(text)

    # -- the ends of pieces and regions -------------------------------------------------------

    def _end_piece(self, end: int) -> None:
        """What stands before `end` can be described. A kernel that is still open puts that off."""
        if self.open:
            return
        self.resumed = 0
        self.writer.describe(end, self.closed, self.brackets)
        self.closed = []
        self.brackets = []
        self.source.forget()

    def _end_region(self, end: int) -> Region:
        asked = self.environment.asked
        region = self.writer.end_region(end, frozenset(asked), self.scope, self.conditional)
        asked.clear()
        self.head = end
        return region
