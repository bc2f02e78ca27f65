"""CUDA kernels of a file: found lexically, without a compiler, and followed through edits.

A file is cut into regions. A region ends with a line at whose end only namespaces are open, nothing is
half-declared, and the same holds for every branch of `#if` that is open; so what it holds follows from
its text, the scope and conditionals it starts in, and the macros it asks for. An edit rescans regions
from the one it touches to the first that starts where an old one did, in the same state. What regions
say is relative to their first line, so that a shift costs no scan.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import accumulate, chain
from typing import Final, NamedTuple

from orbit_lsp.kernels import cuda_declarator, cuda_launches
from orbit_lsp.kernels.cuda_lexer import (
    COMMENT,
    DIRECTIVE,
    IDENTIFIER,
    ITEM,
    LITERAL,
    SKIPPED_ITEM,
    Source,
    directive_end,
    tokenize,
)
from orbit_lsp.kernels.cuda_macros import (
    KEYWORD,
    Definition,
    Environment,
    Macro,
    base_macros,
    directive_name,
    is_always,
    is_never,
    kernel_names,
    parse_definition,
    parse_include,
    possible_macros,
    read_headers,
    words_pattern,
)
from orbit_lsp.kernels.model import Edit, Kernel, Launch, Scan, Span

Headers = Callable[[str], str | None]

_LINE_END: Final = re.compile(r"[ \t\r\f\v]*+(?://[^\\\n]*+)?\n")
_LONE_RETURN: Final = re.compile(r"\r(?!\n)")
_MAIN: Final = re.compile(r"(?<![\w:.])w?main\s*\(")
_SCOPE_WORD: Final = re.compile(r"\b(?:namespace|struct|class|union|extern)\b")
_SPEC: Final = re.compile(r"//[/!]?\s*orbit:")
_REQUIRES_END: Final = re.compile(r"\brequires\s*(?:\([^(){}]*\)\s*)?\Z")
_ANGLE: Final = re.compile(r"(?<!-)[<>]")
_LONGEST_TEMPLATE_HEAD = 4_000
_LONGEST_CONSTANT = 2_000
_MOST_EDITS = 32
_MOST_SCOPES = 200
_MOST_RESUMED = 16
"""How often braces may interrupt one declaration (`dim3{1}` in default arguments) before it is given up."""


def scan(text: str, *, macros: Collection[str] = (), headers: Headers | None = None) -> Scan:
    """What `text` defines and launches; never raises.

    `macros` are further names that stand for `__global__`. `headers` returns the text of an included
    header, whose macros then count, or None.
    """
    return CudaTracker(text, macros=macros, headers=headers).scan


class Scope:
    """One open brace, or (without parent) the file.

    Namespaces are one object per name and place, so that equal states are identical. `interrupted` is
    where the declaration starts that goes on after the brace closes, -1 if it ends there.
    """

    __slots__ = ("children", "depth", "interrupted", "name", "namespace", "parens", "parent", "type_body")

    def __init__(
        self, parent: Scope | None, name: str, *, namespace: bool, type_body: bool = False, parens: int = 0, interrupted: int = -1
    ) -> None:
        self.parent = parent
        self.name = name
        self.namespace = namespace
        self.type_body = type_body
        self.parens = parens
        self.interrupted = interrupted
        self.depth: int = parent.depth + 1 if parent else 0
        self.children: dict[str, Scope] = {}

    def inner_namespace(self, name: str) -> Scope:
        if (found := self.children.get(name)) is None:
            found = self.children[name] = Scope(self, name, namespace=True)
        return found

    def path(self) -> list[str]:
        names: list[str] = []
        scope: Scope | None = self
        while scope:
            if scope.name:
                names.append(scope.name)
            scope = scope.parent
        return names[::-1]


class Conditional(NamedTuple):
    """An open `#if`: what it began in, and what its first branch ended in.

    Every branch starts in the former; after `#endif` the latter counts, so that branches which open
    and close different braces do no harm.
    """

    outer: Conditional | None
    scope: Scope
    parens: int
    after: tuple[Scope, int] | None
    taken: bool
    """A branch under `#if 1` came: the others are dead."""
    dead: bool
    neutral: bool
    """Nothing but namespaces is open in what any branch starts from or ended in."""


class _OpenKernel:
    __slots__ = ("body", "definition", "depth", "end", "qualified")

    def __init__(self, definition: cuda_declarator.Found, qualified: str, body: int, depth: int) -> None:
        self.definition = definition
        self.qualified = qualified
        self.body = body
        self.depth = depth
        self.end = -1


class PlacedKernel(NamedTuple):
    """A kernel with lines relative to its region, and the digest of its own tokens."""

    kernel: Kernel
    digest: str


@dataclass(slots=True, eq=False)
class Region:
    scope: Scope
    conditional: Conditional | None
    length: int = 0
    lines: int = 0
    kernels: list[PlacedKernel] = field(default_factory=list[PlacedKernel])
    launches: list[tuple[Launch, dict[str, str]]] = field(default_factory=list["tuple[Launch, dict[str, str]]"])
    """With the constants of the function around."""
    shared: bytes = b""
    """Digests of what is not a kernel's body, declaration by declaration."""
    definitions: list[Definition] = field(default_factory=list[Definition])
    asked: frozenset[str] = frozenset()
    includes: list[str] = field(default_factory=list[str])
    constants: dict[str, str] = field(default_factory=dict[str, str])
    main: bool = False
    busy: bool = False
    """Whether it says anything."""
    line: int = -1
    """The first line that `placed` was computed for."""
    placed: list[Kernel] = field(default_factory=list[Kernel])


class _Pass:
    """One reading of a text from the start of a region on."""

    def __init__(self, text: str, start: int, scope: Scope, conditional: Conditional | None, environment: Environment) -> None:
        self.text = text
        self.source = Source(text)
        self.environment = environment
        self.scope = scope
        self.conditional = conditional
        self.begin = start
        self.region = Region(scope, conditional)
        self.piece = start  # where what is not yet in `region.shared` starts
        self.head = start  # where the declaration starts that is being read
        self.parens = 0
        self.resumed = 0
        self.open: list[_OpenKernel] = []
        self.closed: list[_OpenKernel] = []
        self.brackets: list[int] = []
        self.pieces: list[bytes] = []
        self.newlines: list[int] = []
        self.pattern = words_pattern(environment.names)
        self.words = [start - 1]

    def regions(self) -> Iterator[Region]:
        """The regions up to the end of the text. Runs no further than the caller asks."""
        text = self.text
        gap = self.source.gap
        word = self._next_word(self.begin)
        position = self.begin
        while position >= 0:
            items = ITEM.finditer(text, position)
            position = -1
            for item in items:
                at = item.start()
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
                    if not (self.open or self.parens) and (self.conditional is None or self.conditional.neutral):
                        line_end = _LINE_END.match(text, ended)
                        if line_end:
                            yield self._end_region(line_end.end())
                            position = line_end.end()
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
        if _SCOPE_WORD.search(before) and (kind := _scope_kind(self.source.code(head, at))):
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
        interrupted = self.parens > 0 or _expects_expression(before)
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

    def _define(self, at: int, *, body_follows: bool) -> list[cuda_declarator.Found]:
        code = self.source.code(self.head, at)
        return cuda_declarator.definitions(tokenize(code, self.head), self.environment, body_follows=body_follows)

    def _keep(self, found: Sequence[cuda_declarator.Found], at: int) -> None:
        scope = self.scope
        path = scope.path() if found else []
        for definition in found:
            kernel = _OpenKernel(definition, "::".join((*path, definition.name)), at, scope.depth + 1)
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
                self.region.definitions.append(definition)
        elif name in {"include", "import", "include_next"}:
            if include := parse_include(directive):
                self.region.includes.append(include)
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

    # -- what a region says -------------------------------------------------------------------

    def _end_piece(self, end: int) -> None:
        """Digest and describe everything since the last piece. A kernel that is still open prolongs it."""
        if self.open:
            return
        source = self.source
        begin, self.piece = self.piece, end
        self.resumed = 0
        kernels = sorted(self.closed, key=lambda kernel: kernel.definition.keyword)
        self.closed = []
        done = begin
        for kernel in kernels:
            if kernel.body > done:
                self._share(done, kernel.body)
            done = max(done, kernel.end)
        self._share(done, end)
        for kernel in kernels:
            self._describe_kernel(kernel, begin)
        launches = [b for b in self.brackets if not any(k.body <= b < k.end for k in kernels)]
        self.brackets = []
        text = self.text
        if launches:
            code = source.code(begin, end)
            constants = cuda_launches.constants(code)
            for bracket in launches:
                if found := cuda_launches.find(code, bracket - begin):
                    line = self._position(begin + found.at)[0]
                    self.region.launches.append((Launch(found.kernel, line, found.arguments), constants))
        if end - begin < _LONGEST_CONSTANT and text.endswith(";", begin, end) and text.find("const", begin, end) >= 0:
            self.region.constants.update(cuda_launches.constants(source.code(begin, end)))
        if not self.region.main and text.find("main", begin, end) >= 0:
            self.region.main = self._defines_main(begin, end)
        source.forget()

    def _share(self, begin: int, end: int) -> None:
        if tokens := self.source.tokens(begin, end):
            self.pieces.append(_digest(tokens))

    def _describe_kernel(self, kernel: _OpenKernel, limit: int) -> None:
        definition = kernel.definition
        end = max(kernel.end, definition.name_end)
        specs = [c for c in self.source.comments_above(definition.start, limit) if _SPEC.match(c)]
        tokens = self.source.tokens(definition.start, end)
        own = "\0".join((tokens, *(" ".join(spec.split()) for spec in specs)))
        position = self._position
        self.region.kernels.append(
            PlacedKernel(
                Kernel(
                    name=definition.name,
                    qualified=kernel.qualified,
                    language="cuda",
                    line=position(definition.keyword)[0],
                    name_span=Span(*position(definition.name_start), *position(definition.name_end)),
                    whole=Span(*position(definition.start), *position(end)),
                    bounds=definition.bounds,
                    template=definition.template,
                ),
                _digest(own).hex(),
            )
        )

    def _defines_main(self, begin: int, end: int) -> bool:
        code = self.source.code(begin, end)
        match = _MAIN.search(code)
        return match is not None and "{" in code[match.end() :] and ";" not in code[: code.find("{", match.end())][match.end() :]

    def _position(self, offset: int) -> tuple[int, int]:
        """Line and column of `offset`, the line from the start of the region."""
        newlines = self.newlines
        if not newlines:
            newlines.append(self.begin - 1)
        while newlines[-1] < offset:
            following = self.text.find("\n", newlines[-1] + 1)
            newlines.append(following if following >= 0 else len(self.text) + 1)
        line = bisect_left(newlines, offset) - 1
        return line, offset - newlines[line] - 1

    def _end_region(self, end: int) -> Region:
        region = self.region
        region.length = end - self.begin
        region.lines = self.text.count("\n", self.begin, end)
        region.shared = b"".join(self.pieces)
        region.asked = frozenset(self.environment.asked)
        region.busy = bool(
            region.kernels or region.launches or region.main or region.includes or region.definitions or region.constants
        )
        self.environment.asked.clear()
        self.pieces = []
        self.newlines.clear()
        self.region = Region(self.scope, self.conditional)
        self.begin = self.piece = self.head = end
        return region


class CudaTracker:
    """A scan that follows edits: `update` gives what `scan` would of the new text, sooner.

    Headers are read again only when the names of the included ones change.
    """

    def __init__(self, text: str, *, macros: Collection[str] = (), headers: Headers | None = None) -> None:
        self._headers = headers
        self._given = base_macros(macros)
        self._base = self._given
        self._includes: tuple[str, ...] = ()
        self._names: frozenset[str] = frozenset()
        self._root = Scope(None, "", namespace=True)
        self._regions: list[Region] = []
        self._starts: list[int] = []
        self._text = ""
        self._read(_with_line_feeds(text))
        self._scan = self._assemble()

    @property
    def scan(self) -> Scan:
        return self._scan

    def update(self, edits: Sequence[Edit], text: str) -> Scan:
        """`edits` lead from the last text to `text`, each applied to what the one before it left."""
        if not self._follow(edits, text):
            self._read(_with_line_feeds(text))
        self._scan = self._assemble()
        return self._scan

    def _follow(self, edits: Sequence[Edit], text: str) -> bool:
        """Whether rescanning what the edits touch was enough."""
        if len(edits) > _MOST_EDITS or ("\r" in text and _LONE_RETURN.search(text)):
            return False
        texts: list[str] = []
        now = self._text
        for edit in edits:
            if not 0 <= edit.start <= edit.end <= len(now):
                return False
            now = f"{now[: edit.start]}{edit.text}{now[edit.end :]}"
            texts.append(now)
        if now != text:
            return False
        return all(self._splice(edit, new) for edit, new in zip(edits, texts, strict=True))

    def _read(self, text: str) -> None:
        """Scan all of `text`."""
        self._text = text
        for _ in range(2):  # once more where headers define macros
            macros = possible_macros(text)
            self._names = _names((m for known in self._base.values() for m in known), macros)
            environment = Environment(self._base, self._names)
            self._root = Scope(None, "", namespace=True)
            self._regions = list(_Pass(text, 0, self._root, None, environment).regions())
            if not self._includes_changed():
                break
        self._starts = [0, *accumulate(region.length for region in self._regions[:-1])]

    def _includes_changed(self) -> bool:
        """Read the headers again if others are included now; True if that changes macros."""
        if self._headers is None:
            return False
        includes = tuple(include for region in self._regions if region.busy for include in region.includes)
        if includes == self._includes:
            return False
        self._includes = includes
        environment = Environment(self._given, frozenset())
        for definition in read_headers(includes, self._headers):
            environment.apply(definition)
        changed = environment.known != self._base
        self._base = environment.known
        return changed

    def _splice(self, edit: Edit, text: str) -> bool:
        """Rescan the regions that `edit` touches; False if others may depend on what it changed."""
        regions, starts = self._regions, self._starts
        first = bisect_right(starts, edit.start) - 1
        environment = Environment(self._base, self._names)
        for region in regions[:first]:
            if region.busy:
                for definition in region.definitions:
                    environment.apply(definition)
        position = starts[first]
        reading = _Pass(text, position, regions[first].scope, regions[first].conditional, environment)
        moved = len(edit.text) - (edit.end - edit.start)
        new: list[Region] = []
        new_starts: list[int] = []
        following = len(regions)
        for region in reading.regions():
            new.append(region)
            new_starts.append(position)
            position += region.length
            if edit.start + len(edit.text) <= position < len(text):
                index = bisect_left(starts, position - moved, first)
                if (
                    index < len(starts)
                    and starts[index] == position - moved
                    and regions[index].scope is reading.scope
                    and _same(regions[index].conditional, reading.conditional)
                ):
                    following = index
                    break
        old = regions[first:following]
        regions[first:following] = new
        starts[first:] = new_starts + ([s + moved for s in starts[following:]] if moved else starts[following:])
        self._text = text
        before = [definition for region in old for definition in region.definitions]
        after = [definition for region in new for definition in region.definitions]
        if before != after and self._macros_matter({d.name for d in (*before, *after)}):
            return False
        includes = [include for region in new for include in region.includes]
        return includes == [include for region in old for include in region.includes] or not self._includes_changed()

    def _macros_matter(self, changed: set[str]) -> bool:
        """Whether other meanings of the names in `changed` can change what regions say."""
        definitions = (d.macro for region in self._regions if region.busy for d in region.definitions if d.macro)
        names = _names((m for known in self._base.values() for m in known), definitions)
        return not names <= self._names or any(not changed.isdisjoint(region.asked) for region in self._regions)

    def _assemble(self) -> Scan:
        kernels: list[Kernel] = []
        launches: list[Launch] = []
        digests: list[str] = []
        includes: list[str] = []
        main = False
        constants = self._constants()
        rest = _digest_bytes(b"".join([region.shared for region in self._regions])).hex()
        line = 0
        for region in self._regions:
            if region.busy:
                if region.kernels:
                    if region.line != line:
                        region.placed = [_at(placed.kernel, line) for placed in region.kernels]
                        region.line = line
                    kernels += region.placed
                    digests += [placed.digest + rest for placed in region.kernels]
                for launch, local in region.launches:
                    size = launch.arguments[1] if len(launch.arguments) > 1 else ""
                    block = cuda_launches.block_size(size, {**constants, **local})
                    launches.append(Launch(launch.kernel, launch.line + line, launch.arguments, block))
                includes += region.includes
                main = main or region.main
            line += region.lines
        return Scan(
            "cuda",
            tuple(kernels),
            tuple(launches),
            ("main",) if main else (),
            tuple(includes),
            tuple(digests),
        )

    def _constants(self) -> dict[str, str]:
        found: dict[str, str] = {}
        for region in self._regions:
            if region.busy:
                for name, value in region.constants.items():
                    cuda_launches.add_constant(found, name, value)
                for _, macro in region.definitions:
                    if macro and macro.parameters is None:
                        cuda_launches.add_constant(found, macro.name, macro.body)
        return found


def _at(kernel: Kernel, line: int) -> Kernel:
    name, whole = kernel.name_span, kernel.whole
    return Kernel(
        kernel.name,
        kernel.qualified,
        kernel.language,
        kernel.line + line,
        Span(name.line + line, name.column, name.end_line + line, name.end_column),
        Span(whole.line + line, whole.column, whole.end_line + line, whole.end_column),
        kernel.launchable,
        kernel.callers,
        kernel.bounds,
        kernel.template,
    )


def _names(*macros: Iterable[Macro]) -> frozenset[str]:
    return kernel_names(chain(*macros)) | {KEYWORD}


def _same(one: Conditional | None, other: Conditional | None) -> bool:
    while one is not other:
        if one is None or other is None or one[1:] != other[1:]:
            return False
        one, other = one.outer, other.outer
    return True


def _digest(tokens: str) -> bytes:
    return _digest_bytes(tokens.encode("utf-8", "surrogatepass"))


def _digest_bytes(data: bytes) -> bytes:
    return blake2b(data, digest_size=16).digest()


def _with_line_feeds(text: str) -> str:
    """A lone carriage return ends a line too; as a line feed it takes as much room."""
    return _LONE_RETURN.sub("\n", text) if "\r" in text else text


def _expects_expression(head: str) -> bool:
    """Whether the brace after `head` belongs to an expression in the head of a template."""
    stripped = head.lstrip()
    if not stripped.startswith("template"):
        return False
    if _REQUIRES_END.search(head):
        return True
    depth = 0
    for match in _ANGLE.finditer(stripped[:_LONGEST_TEMPLATE_HEAD]):
        depth += 1 if match[0] == "<" else -1
        if depth == 0:
            return False
    return depth > 0


def _scope_kind(head: str) -> tuple[str, str] | None:
    """("namespace", its name) or ("type", its name) if `head` opens one; an `extern "C"` has no name."""
    tokens = [token.text for token in tokenize(head)]
    if tokens[-2:-1] == ["extern"] and tokens[-1].startswith('"'):
        return "namespace", ""
    depth = angle = 0
    keyword = -1
    for index, text in enumerate(tokens):
        if text in {"(", "["}:
            depth += 1
        elif text in {")", "]"}:
            depth -= 1
        elif depth == 0 and text == "<" and keyword < 0:
            angle += 1
        elif depth == 0 and text == ">" and keyword < 0:
            angle = max(0, angle - 1)
        elif depth == 0 and angle == 0 and text in {"namespace", "struct", "class", "union", "enum"}:
            if text == "enum":
                return None
            keyword = index
    if keyword < 0:
        return None
    names: list[str] = []
    depth = 0
    for index in range(keyword + 1, len(tokens)):
        text = tokens[index]
        if text == "(" and depth == 0 and names and not _is_attribute(names[-1]):
            return None  # a function that returns a struct
        if text in {"(", "[", "<"}:
            depth += 1
        elif text in {")", "]", ">"}:
            depth -= 1
        elif depth == 0:
            if text == ":":
                break
            if text == "=":
                return None
            if text == "::" and names:
                names[-1] += "::"
            elif IDENTIFIER.match(text) and text != "final":
                if names and names[-1].endswith("::"):
                    names[-1] += text
                else:
                    names.append(text)
    return ("namespace" if tokens[keyword] == "namespace" else "type"), names[-1] if names else ""


def _is_attribute(name: str) -> bool:
    return name in {"alignas", "__align__", "__attribute__", "__declspec"} or name.isupper()
