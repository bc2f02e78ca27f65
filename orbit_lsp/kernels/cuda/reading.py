"""Reads a CUDA file once: where braces, declarations and branches end, and so its regions."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Sequence
from typing import Final

from orbit_lsp.kernels import piecewise
from orbit_lsp.kernels.cuda import declarator
from orbit_lsp.kernels.cuda.launch_sites import add_constant
from orbit_lsp.kernels.cuda.lexer import (
    CLOSED_LITERAL,
    COMMENT,
    DATA,
    DIRECTIVE,
    ITEM,
    LITERAL,
    SKIPPED_ITEM,
    CudaSource,
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
from orbit_lsp.kernels.cuda.regions import CudaRegion, KernelExtent, RegionWriter
from orbit_lsp.kernels.cuda.scopes import (
    SCOPE_WORD,
    CudaScope,
    OpenConditional,
    expects_expression,
    scope_kind,
)

_LINE_END: Final = re.compile(r"[ \t\r\f\v]*+(?://[^\\\n]*+)?\n")
_CONDITIONS: Final = frozenset(["if", "ifdef", "ifndef"])
_BRANCHES: Final = frozenset(["else", "elif", "elifdef", "elifndef"])
_DECLARATIONS = 8
"""Of so many declarations without a body, one ends a region. Which one is up to its own text, so that an edit
further up does not move where regions end."""
_LONGEST_DECLARATION = 1 << 16
_MOST_SCOPES = 200
_MOST_ITEMS = 8_192
"""A line with more brackets, strings and the like is generated data: the rest of it is only counted."""
_MOST_RESUMED = 16
"""How often braces may interrupt one declaration (`dim3{1}` in default arguments) before it is given up."""


_MOST_UNDEFS = 16
"""How often an `#undef` may stand in one declaration and have it looked at."""


class RegionReader:
    """Reads regions of one text, in its order. What stands between two of them may be left out."""

    def __init__(self, text: str, environment: Environment) -> None:
        self.text = text
        self.source = CudaSource(text)
        self.environment = environment
        self.pattern = words_pattern(environment.names)
        self.longest = max(map(len, environment.names))
        self.words = [-1]

    def read(self, start: int, scope: CudaScope, conditional: OpenConditional | None) -> CudaRegion:
        """Return the region that starts at `start`, where `scope` and `conditional` are open."""
        self._begin(start, scope, conditional)
        gap = self.source.gap
        position = start
        while position >= 0:
            items = ITEM.finditer(self.text, position)
            position = -1
            for item in items:
                at = item.start()
                if at >= self.until and (ended := self._at_ending(at)) >= 0:
                    self._end_piece(ended)
                    if (end := self._region_end(ended)) >= 0:
                        return self._end_region(end)
                ended = -1
                self.count += 1
                if self.count > _MOST_ITEMS and (position := self._skip_data(at)) >= 0:
                    break
                character = self.text[at]
                if character == "(":
                    self.parens += 1
                elif character == ")":
                    self.parens -= self.parens > 0
                elif character == ";":
                    ended = self._at_semicolon(at)
                elif character == "{":
                    ended = self._at_opening(at)
                elif character == "}":
                    ended = self._at_closing(at)
                elif character == "/":
                    gap(at, item.end(), COMMENT)
                elif character == "<":
                    self.brackets.append(at)
                    position = at + 3
                elif character == "#":
                    position = self._at_hash(at)
                    ended = position if self.head == position and self.scope.namespace else -1
                elif item.end() > at + 1:
                    gap(at, item.end(), LITERAL)
                if ended >= 0:
                    self._end_piece(ended)
                    if (end := self._region_end(ended)) >= 0:
                        return self._end_region(end)
                if position >= 0:
                    break
        return self._end_of_text()

    def _begin(self, start: int, scope: CudaScope, conditional: OpenConditional | None) -> None:
        self.start = start
        self.scope = scope
        self.conditional = conditional
        self.environment.asked = {}
        self.writer = RegionWriter(self.source, start, scope, conditional)
        self.head = start  # where the declaration starts that is being read
        self.blank = (start, start, True)  # a head, and whether no code stands between it and the position
        self.parens = 0
        self.resumed = 0
        self.undefs = 0
        self.open: list[KernelExtent] = []
        self.closed: list[KernelExtent] = []
        self.brackets: list[int] = []  # where a `<<<` stands
        self.around = scope  # what the kernel stands in whose body a macro has opened
        self.until = self.ending = len(self.text) + 1  # the end and the start of the macro that may close it
        self.count = 0  # of items since `counted_from`
        self.counted_from = start
        self.word = self._next_word(start)

    def _at_semicolon(self, at: int) -> int:
        """Return where the declaration ends, if a declaration of a namespace ends here; else -1. The two methods
        below do so too.
        """
        if has_word := self.word < at:
            self._statement(at)
        self.parens = 0
        self.head = at + 1
        if has_word:
            self.word = self._next_word(at)
        return at + 1 if self.scope.namespace else -1

    def _at_opening(self, at: int) -> int:
        ended = -1
        has_word = self.word < at
        if has_word or self.scope.namespace or self.scope.type_body:
            settled = self._open(at, has_word)
            if settled and self.scope.namespace:
                ended = at + 1
        else:
            self._push(at)
        if has_word:
            self.word = self._next_word(at)
        return ended

    def _at_closing(self, at: int) -> int:
        if has_word := self.word < at:
            self._statement(at)
        ended = at + 1 if self._close(at) else -1
        if has_word or self.head < at:
            self.word = self._next_word(self.head)
        return ended

    def _at_hash(self, at: int) -> int:
        """Return where to go on after the directive at `at`, or -1 if none starts there."""
        if (end := directive_end(self.text, at)) < 0:
            return -1
        position = self._directive(at, end, self.word < at)
        if self.word < self.head:
            self.word = self._next_word(self.head)
        return position

    def _skip_data(self, at: int) -> int:
        """Return where to go on if more than `_MOST_ITEMS` stand in the line before `at`, else -1."""
        if self.text.find("\n", self.counted_from, at) < 0 and self._is_data(at, self.word):
            end = self._skip_line(at)
            self.word = self._next_word(end)
            return end
        self.count = 0
        self.counted_from = at
        return -1

    def _is_data(self, at: int, word: int) -> bool:
        """Say whether the line goes on from `at` without a kernel. `word` is the next name that can lead to one."""
        return word > len(self.text) or self.text.find("\n", at, word) >= 0

    def _skip_line(self, at: int) -> int:
        """Return the end of the line that contains `at`. The braces in the line are counted."""
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
        """Return the place of the next name that can lead to `__global__`, in code or not."""
        words = self.words
        while words[-1] < position:
            words.append(self._search(max(words[-1] + 1, self.start)))
        return words[bisect_left(words, position)]

    def _search(self, position: int) -> int:
        """Return the place of the next such name from `position` on."""
        match = piecewise.search(self.pattern, self.text, position, len(self.text), self.longest + 1)
        return match.start() if match else len(self.text) + 1

    def _push(self, at: int, *, interrupted: bool | None = None, type_name: str | None = None) -> None:
        if interrupted is None:
            interrupted = self.parens > 0
        if interrupted:
            self.resumed += 1
            interrupted = self.resumed <= _MOST_RESUMED
        self.scope = CudaScope(
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
        """Enter the brace at `at`. Return True if the declaration before it is settled."""
        head = self.head
        if has_word:
            definitions = self._define(at, body_follows=True)
            if definitions and definitions[-1].end is None:
                self._leave_functions(definitions[0].start)
                if not self._enter(definitions):
                    self._keep(definitions, at)
                    self._push(at, interrupted=False)
                    return True
                head = self.head
            else:
                self._keep(definitions, at)
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
        in_head = "template" in before and expects_expression(self.source.code(self._declaration(at), at))
        interrupted = self.parens > 0 or in_head
        self._push(at, interrupted=interrupted)
        return not interrupted

    def _close(self, at: int) -> bool:
        """Leave the innermost brace. Return True if that ends a declaration of a namespace."""
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
        """End the kernels that are still open deeper than `depth` at `end`: their brace is missing."""
        for kernel in self.open:
            if kernel.depth > depth:
                kernel.end = end
        self._sort_open()

    def _leave_functions(self, start: int) -> None:
        """Go to the scope in which the kernel that begins at `start` can be defined: a brace is missing above."""
        scope = self.scope
        while not (scope.namespace or scope.type_body):
            assert scope.parent
            scope = scope.parent
        if scope is not self.scope:
            self._settle_open(scope.depth, start)
            self.scope = scope

    def _enter(self, definitions: Sequence[declarator.FoundDefinition]) -> bool:
        """Enter the body of the last kernel, if a macro has opened it. It ends with a brace, or with a macro that
        closes one.
        """
        if not definitions or (opened := definitions[-1].opened) is None:
            return False
        body, count = opened
        self._keep(definitions, body)
        self.around = self.scope
        for _ in range(count):
            self._push(body, interrupted=False)
        self.head = body
        self._find_ending(body)
        return True

    def _find_ending(self, position: int) -> None:
        """Look for the next macro from `position` on that closes a brace."""
        self.until = self.ending = len(self.text) + 1
        if self.environment.endings:
            words = words_pattern(self.environment.endings).finditer(self.text, position)
            for match in words:
                before = self.text[match.start() - 1]
                if before != "_" and not before.isalnum():
                    self.ending, self.until = match.span()
                    self.environment.get(match[0])
                    break

    def _at_ending(self, at: int) -> int:
        """Return where a macro before `at` ends the kernel that another macro began, if it stands in a namespace.
        Otherwise return -1.
        """
        while self.until <= at and self.source.outside(self.ending) != self.ending:  # in a comment
            self._find_ending(self.until)
        end = self.until
        if end > at:
            return -1
        self.until = self.ending = len(self.text) + 1
        if self.scope.depth <= self.around.depth:  # a brace has closed it before
            return -1
        self._settle_open(self.around.depth, end)
        self.scope = self.around
        self.parens = 0
        self.head = end
        self.word = self._next_word(end)
        return end if self.scope.namespace else -1

    def _statement(self, at: int) -> bool:
        """Handle a declaration that ends at `at` without a body. It may hold invocations that have one."""
        definitions = self._define(at, body_follows=False)
        if definitions and definitions[-1].opened:
            self._leave_functions(definitions[0].start)
        if not self._enter(definitions):
            self._keep(definitions, at)
        return bool(definitions)

    def _define(self, at: int, *, body_follows: bool) -> list[declarator.FoundDefinition]:
        start = self._declaration(at)
        code = self.source.code(start, at)
        # each branch of an `#if` may open the parameter list that one `)` closes
        ways = self._branches(start, at) if code.count("(") > code.count(")") else []
        definitions: dict[object, declarator.FoundDefinition] = {}
        for way in ways or [()]:
            text = code
            for begin, end in way:
                text = text[: begin - start] + " " * (end - begin) + text[end - start :]
            for each in declarator.definitions(
                tokenize(text, start), self.environment, body_follows=body_follows
            ):
                definitions.setdefault((each.name, each.name_start), each)
        return list(definitions.values())

    def _branches(self, start: int, end: int) -> list[list[tuple[int, int]]]:
        """Return, for each branch of the first outermost `#if` in [start, end), where the other branches stand."""
        directives = [
            (at, after, name)
            for at, after, kind in self.source.gaps(start, end)
            if kind == DIRECTIVE
            and (name := directive_name(self.text[at:after])) in _CONDITIONS | _BRANCHES | {"endif"}
        ]
        depth = 1 if directives and directives[0][2] in _BRANCHES else 0  # the `#if` may stand further up
        began = start
        parts: list[tuple[int, int]] = []
        for at, after, name in directives:
            depth += name in _CONDITIONS
            if depth == 1 and name != "endif":
                if name in _BRANCHES:
                    parts.append((began, at))
                began = after
            elif depth == 1:
                parts.append((began, at))
                break
            depth -= name == "endif"
        return [[other for other in parts if other is not each] for each in parts]

    def _declaration(self, at: int) -> int:
        """Return the start of the declaration that ends at `at`. Of an endless one, return the start of the part that
        may matter.
        """
        return max(self.head, self.source.outside(at - _LONGEST_DECLARATION))

    def _keep(self, definitions: Sequence[declarator.FoundDefinition], at: int) -> None:
        scope = self.scope
        path = scope.path() if definitions else []
        for number, definition in enumerate(definitions):
            kernel = KernelExtent(definition, "::".join((*path, definition.name)), at, scope.depth + 1)
            end = definition.end
            if end is None and definition.opened and number + 1 < len(definitions):
                end = definitions[number + 1].start
            if end is not None:
                kernel.body = kernel.end = end
                self.closed.append(kernel)
            else:
                self.open.append(kernel)

    # -- directives ---------------------------------------------------------------------------

    def _directive(self, at: int, end: int, has_word: bool) -> int:
        """Return where to go on after the directive [at, end) and what it removes."""
        directive = self.text[at:end]
        name = directive_name(directive)
        fresh = self._is_blank(at)
        after = end
        if name in {"define", "undef"}:
            fresh = self._define_macro(directive, at, has_word) or fresh
        elif name in {"include", "import", "include_next"} and (include := parse_include(directive)):
            self.writer.region.includes.append(include)
        self.source.gap(at, end, DIRECTIVE)
        if name in _CONDITIONS:
            self._begin_conditional(name, directive)
        elif name in _BRANCHES and self.conditional:
            fresh = self._begin_branch(self.conditional, name, directive) or fresh
        elif name == "endif" and self.conditional:
            before = self.conditional
            self.conditional = before.outer
            if before.after is not None:
                fresh = self._return_to(*before.after) or fresh
        if name in _CONDITIONS | _BRANCHES and self.conditional and self.conditional.dead:
            after = self._skip(end)
            if after > end:
                self.source.gap(end, after, COMMENT)
        if fresh:
            self.head = after
        return after

    def _is_blank(self, at: int) -> bool:
        """Say whether no code stands between the head and the directive at `at`. What stands before the last
        directive is not searched again, because thousands of directives may follow a declaration that is being typed.
        """
        head, known, blank = self.blank
        if head != self.head:
            known, blank = self.head, True
        if blank and known < at:
            blank = not self.source.code(known, at).strip()
        self.blank = self.head, at, blank
        return blank

    def _define_macro(self, directive: str, at: int, has_word: bool) -> bool:
        """Say whether the declaration before an `#undef` is settled: it keeps its meaning."""
        if (definition := parse_definition(directive)) is None:
            return False
        settled = False
        if has_word and definition.macro is None and self.undefs < _MOST_UNDEFS:
            self.undefs += 1
            settled = self._statement(at)
        self.environment.apply(definition)
        region = self.writer.region
        region.definitions.append(definition)
        if (macro := definition.macro) and macro.parameters is None:
            add_constant(region.constants, macro.name, macro.body)
        return settled

    def _begin_conditional(self, name: str, directive: str) -> None:
        outer = self.conditional
        self.conditional = OpenConditional(
            outer,
            self.scope,
            self.parens,
            after=None,
            taken=name == "if" and is_always(directive),
            dead=name == "if" and is_never(directive),
            neutral=self.scope.namespace and self.parens == 0 and (outer is None or outer.neutral),
        )

    def _begin_branch(self, before: OpenConditional, name: str, directive: str) -> bool:
        """Begin the next branch of `before`. Return True if it begins in another scope than the present one."""
        ending = before.after
        if ending is None and not before.dead:
            ending = (self.scope, self.parens)
        self.conditional = before._replace(
            after=ending,
            dead=before.taken or (name == "elif" and is_never(directive)),
            taken=before.taken or (name == "elif" and is_always(directive)),
            neutral=before.neutral and (ending is None or (ending[0].namespace and ending[1] == 0)),
        )
        return self._return_to(before.scope, before.parens)

    def _return_to(self, scope: CudaScope, parens: int) -> bool:
        """Go on in `scope`. Return True if it differs from the present one."""
        other = scope is not self.scope
        self.scope = scope
        self.parens = parens
        return other

    def _skip(self, start: int) -> int:
        """Return the place of the directive that ends the dead branch starting at `start`."""
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
            if name in _CONDITIONS:
                depth += 1
            elif depth == 0 and (name in _BRANCHES or name == "endif"):
                return at
            elif name == "endif":
                depth -= 1
        return len(text)

    # -- the ends of pieces and regions -------------------------------------------------------

    def _end_piece(self, end: int) -> None:
        """Describe what stands before `end`. If a kernel is still open, do so later."""
        if self.open:
            return
        self.resumed = self.undefs = 0
        self.writer.describe(end, self.closed, self.brackets)
        self.closed = []
        self.brackets = []
        self.source.forget()

    def _region_end(self, ended: int) -> int:
        """Return where the region ends, if it ends with the line of the declaration that has `ended`; else -1."""
        if self.open or self.parens or not (self.conditional is None or self.conditional.neutral):
            return -1
        last = self.text[max(self.start, ended - 16) : ended]
        if last[-1] != "}" and sum(map(ord, last)) % _DECLARATIONS:
            return -1
        line_end = _LINE_END.match(self.text, ended)
        return line_end.end() if line_end else -1

    def _end_of_text(self) -> CudaRegion:
        end = len(self.text)
        self._at_ending(end)
        if self.word <= end:
            self._statement(end)
            self._at_ending(end)
        for kernel in self.open:
            kernel.end = end
        self._sort_open()
        self._end_piece(end)
        region = self._end_region(end)
        region.last = True
        return region

    def _end_region(self, end: int) -> CudaRegion:
        region = self.writer.end_region(end)
        region.asked = self.environment.asked
        region.end_scope = self.scope
        region.end_conditional = self.conditional
        return region
