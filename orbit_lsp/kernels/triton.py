"""Triton (and its neighbours in Python) -> kernels: the file's text says, nothing is imported or run.

A file is a row of top-level statements. Each is reduced to an `Outline` that is kept while its text
stands; a keystroke makes one new outline, and names are resolved anew over all of them.

While the text has a syntax error, the parser loses what is near it. A `TritonTracker` then keeps the
last good result of every kernel whose header, from the first decorator through the name, was not
touched: lenses do not blink while someone types. On error-free text it says what a fresh scan says.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import TYPE_CHECKING

from orbit_lsp.kernels.model import Edit, Kernel, Launch, Scan, Span
from orbit_lsp.kernels.python_names import MAKERS, Names
from orbit_lsp.kernels.python_outline import (
    Assignment,
    Call,
    Function,
    Imported,
    Local,
    Outline,
    Written,
    orbit_comment,
    outline,
    parser,
)

if TYPE_CHECKING:
    from tree_sitter import Tree

ENTRIES = ("benchmark", "benchmark_kernel", "main", "run", "test")
"""Functions that run a file, the first of them wins; after them the `__main__` part."""
MAIN_GUARD = "__main__"
_TRITON = ("triton", "gluon")


def scan(text: str) -> Scan:
    """Every kernel of a Python file; never raises."""
    return TritonTracker(text).scan


@dataclass(slots=True)
class _Statement:
    outline: Outline
    row: int
    column: int
    """Of its first character, in code points."""
    comments: tuple[str, ...]


class TritonTracker:
    """The scan of a text that is being edited."""

    def __init__(self, text: str) -> None:
        self._text = clean(text)
        self._data = self._text.encode()
        self._tree = parser().parse(self._data)
        self._outlines: dict[bytes, Outline] = {}
        self._scan = self._read()

    @property
    def scan(self) -> Scan:
        return self._scan

    def update(self, edits: Sequence[Edit], text: str) -> Scan:
        """`edits` lead to `text` one after another; where they do not, the difference is found."""
        text = clean(text)
        if text == self._text:
            return self._scan
        data = text.encode()
        changes = _in_bytes(self._text, edits, text)
        if changes is None:
            changes = [_difference(self._data, data)]
        before, rows = self._text, _Rows()
        at = self._data
        for change in changes:
            at = _edit(self._tree, at, data, change, rows, last=change is changes[-1])
        self._tree = parser().parse(data, self._tree)
        self._text, self._data = text, data
        fresh = self._read()
        if self._tree.root_node.has_error:
            fresh = _keep(self._scan, fresh, before, text, rows)
        self._scan = fresh
        return fresh

    def _read(self) -> Scan:
        data, known = self._data, self._outlines
        kept: dict[bytes, Outline] = {}
        statements: list[_Statement] = []
        comments: tuple[str, ...] = ()
        for node in self._tree.root_node.children:
            if node.type == "comment":
                if line := orbit_comment(data, node):
                    comments = (*comments, line)
                continue
            if not node.is_named:
                continue
            start = node.start_byte
            source = data[start : node.end_byte]
            found = kept.get(source) or known.get(source) or outline(node, data)
            kept[source] = found
            row, column = node.start_point
            if column:
                column = len(data[start - column : start].decode(errors="replace"))
            statements.append(_Statement(found, row, column, comments))
            comments = ()
        self._outlines = kept
        return _Reader(statements).scan()


# -- from outlines to a scan ---------------------------------------------------------------------


@dataclass(slots=True)
class _Found:
    """A kernel on its way to a `Kernel`."""

    statement: int
    source: Function | Assignment
    dsl: str
    pieces: list[tuple[int, int]]
    parameters: frozenset[str]
    tuned: bool
    returns_value: bool
    in_class: bool
    qualified: str
    calls: list[int] = field(default_factory=list[int])
    reached: list[int] = field(default_factory=list[int])


class _Reader:
    def __init__(self, statements: list[_Statement]) -> None:
        self.statements = statements
        self.names = Names([statement.outline for statement in statements])

    def scan(self) -> Scan:
        found = self.find()
        owned = {piece for one in found for piece in one.pieces}
        by_word: dict[str, list[int]] = {}
        for i, one in enumerate(found):
            by_word.setdefault(one.source.name, []).append(i)
            if one.in_class:
                by_word.setdefault("." + one.source.name, []).append(i)
        self.link(found, by_word)
        launched = {
            site.name for statement in self.statements for site in statement.outline.launches if site.name
        }
        on_host = self.said_by_host(found, owned)
        launchable = [self.launchable(one, found, launched, on_host) for one in found]
        callers: list[list[str]] = [[] for _ in found]
        for i, one in enumerate(found):
            if launchable[i]:
                for j in one.reached:
                    if not launchable[j]:
                        callers[j].append(one.qualified)
        kernels = tuple(
            self.kernel(one, launchable[i], tuple(dict.fromkeys(callers[i]))) for i, one in enumerate(found)
        )
        return Scan(
            language="triton",
            kernels=kernels,
            launches=tuple(self.launches({one.source.name for one in found})),
            entries=self.entries(found),
            includes=tuple(dict.fromkeys(m for one in self.statements for m in one.outline.imports)),
            digests=tuple(self.digests(found, owned)),
        )

    def find(self) -> list[_Found]:
        names, found = self.names, list[_Found]()
        words = _maker_words(self.statements)
        for i, statement in enumerate(self.statements):
            outline = statement.outline
            for function in outline.functions:
                if function.decorators and (dsl := names.kernel_language(i, function)):
                    found.append(self.from_function(i, function, dsl))
            if outline.assignments:
                inside = not words.isdisjoint(outline.words)
                for assignment in outline.assignments:
                    if (inside or not isinstance(assignment.value, Written)) and (
                        dsl := names.assigned_language(i, assignment)
                    ):
                        found.append(self.from_assignment(i, assignment, dsl))
        found.sort(key=lambda one: (one.statement, one.source.order))
        return found

    def from_function(self, i: int, function: Function, dsl: str) -> _Found:
        scopes = self.statements[i].outline.scopes
        around, body = scopes[function.scope], scopes[function.body_scope]
        return _Found(
            i, function, dsl, self.nested(i, function.piece), frozenset(body.parameters),
            self.names.tuned(i, function), function.returns_value, around.kind == "class", body.qualified,
        )  # fmt: skip

    def from_assignment(self, i: int, assignment: Assignment, dsl: str) -> _Found:
        outline = self.statements[i].outline
        around = outline.scopes[assignment.scope]
        found: list[tuple[int, int]] = []
        parameters: frozenset[str] = frozenset()
        returns_value = False
        if not outline.functions and not outline.classes:
            found.append((i, 0))
        if target := self.names.target(i, assignment):
            where, function = target
            found += self.nested(where, function.piece)
            scopes = self.statements[where].outline.scopes
            parameters = frozenset(scopes[function.body_scope].parameters)
            returns_value = function.returns_value
        qualified = f"{around.qualified}.{assignment.name}" if around.qualified else assignment.name
        return _Found(
            i, assignment, dsl, found, parameters, False, returns_value, around.kind == "class", qualified
        )

    def nested(self, statement: int, piece: int) -> list[tuple[int, int]]:
        """The piece and all pieces inside it."""
        inside = {piece}
        pieces = self.statements[statement].outline.pieces
        for i in range(piece + 1, len(pieces)):
            if pieces[i].parent not in inside:
                break
            inside.add(i)
        return [(statement, i) for i in sorted(inside)]

    # -- who calls whom ------------------------------------------------------------------------

    def link(self, found: list[_Found], by_word: dict[str, list[int]]) -> None:
        known = by_word.keys()
        for i, one in enumerate(found):
            calls: set[int] = set()
            for where, piece in one.pieces:
                for word in known & self.statements[where].outline.pieces[piece].words:
                    if word not in one.parameters:
                        calls.update(by_word[word])
            calls.discard(i)
            one.calls = sorted(calls)
        for one in found:
            if not one.calls:
                continue
            reached: set[int] = set()
            waiting = list(one.calls)
            while waiting:
                if (j := waiting.pop()) not in reached:
                    reached.add(j)
                    waiting += found[j].calls
            one.reached = sorted(reached)

    def said_by_host(self, found: list[_Found], owned: set[tuple[int, int]]) -> set[str]:
        """The names of called kernels that stand in code of the host as well, or in `__all__`."""
        called = {found[j].source.name for one in found for j in one.calls}
        if not called:
            return called
        asked = called | {f".{name}" for name in called}
        said: set[str] = set()
        for i, statement in enumerate(self.statements):
            said |= called & statement.outline.exported
            if asked.isdisjoint(statement.outline.words):
                continue
            for j, piece in enumerate(statement.outline.pieces):
                if (i, j) not in owned:
                    said.update(word.lstrip(".") for word in asked & piece.words)
        return said

    def launchable(self, one: _Found, found: list[_Found], launched: set[str], on_host: set[str]) -> bool:
        name = one.source.name
        if one.dsl not in _TRITON or one.tuned or name in launched:
            return True
        if one.returns_value:
            return False
        called = any(found[j] is one for other in found for j in other.calls)
        return not called or name in on_host

    # -- the rest of a scan --------------------------------------------------------------------

    def kernel(self, one: _Found, launchable: bool, callers: tuple[str, ...]) -> Kernel:
        statement = self.statements[one.statement]
        name_span = _shift(one.source.name_span, statement)
        return Kernel(
            one.source.name, one.qualified, "triton", name_span.line, name_span,
            _shift(one.source.whole, statement), launchable, callers, dsl=one.dsl,
        )  # fmt: skip

    def launches(self, kernels: set[str]) -> Iterator[Launch]:
        for statement in self.statements:
            for site in statement.outline.launches:
                if site.name in kernels:
                    yield Launch(site.name, site.line + statement.row, site.arguments, None, site.grid)

    def entries(self, found: list[_Found]) -> tuple[str, ...]:
        kernels = {id(one.source) for one in found}
        bare: dict[str, bool] = {}
        guarded = False
        for statement in self.statements:
            guarded |= statement.outline.main_guard
            for function in statement.outline.functions:
                if function.scope == 0 and not function.path and function.name in ENTRIES:
                    bare[function.name] = function.callable_bare and id(function) not in kernels
        return (*(name for name in ENTRIES if bare.get(name)), *((MAIN_GUARD,) if guarded else ()))

    def digests(self, found: list[_Found], owned: set[tuple[int, int]]) -> Iterator[str]:
        host = blake2b(digest_size=16)
        host.update(
            b"".join(
                piece.digest
                for i, statement in enumerate(self.statements)
                for j, piece in enumerate(statement.outline.pieces)
                if (i, j) not in owned
            )
        )
        for one in found:
            total = host.copy()
            parts = dict.fromkeys(one.pieces)
            for j in one.reached:
                parts.update(dict.fromkeys(found[j].pieces))
            for i, j in parts:
                total.update(self.statements[i].outline.pieces[j].digest)
            for line in (*self.above(one), *one.source.comments):
                total.update(b"\0" + line.encode())
            yield total.hexdigest()

    def above(self, one: _Found) -> tuple[str, ...]:
        """The orbit comments over a top-level statement, which are not part of its own text."""
        whole = one.source.whole
        return self.statements[one.statement].comments if (whole.line, whole.column) == (0, 0) else ()


_MAKER_WORDS = {path.rpartition(".")[2] for path in MAKERS}
_MAKER_WORDS |= {f".{name}" for name in _MAKER_WORDS}


def _maker_words(statements: Iterable[_Statement]) -> set[str]:
    """Words without which an assignment inside a function cannot make a kernel."""
    words = set(_MAKER_WORDS)
    for statement in statements:
        outline = statement.outline
        for name, bindings in outline.scopes[0].bindings.items():
            for binding in bindings:
                value = binding.value
                if isinstance(value, Imported):
                    if value.path.rpartition(".")[2] in words:
                        words.add(name)
                elif isinstance(value, Local):
                    if value.kind == "function" and not outline.functions[value.index].returns:
                        continue
                    if not words.isdisjoint(outline.words):
                        words.add(name)
                elif isinstance(value, Call) or value is not None:
                    if not words.isdisjoint(outline.words):
                        words.add(name)
    return words


def _shift(span: Span, by: _Statement) -> Span:
    return Span(
        span.line + by.row,
        span.column + (by.column if span.line == 0 else 0),
        span.end_line + by.row,
        span.end_column + (by.column if span.end_line == 0 else 0),
    )


# -- texts and edits -----------------------------------------------------------------------------

_UNUSUAL = re.compile("\r(?!\n)|[\0\ud800-\udfff]")


def clean(text: str) -> str:
    """What the parser can read, character for character: lone CRs end lines, NULs are blanks."""
    if text.isascii() and "\r" not in text and "\0" not in text:
        return text
    return _UNUSUAL.sub(lambda match: {"\r": "\n", "\0": " "}.get(match[0], "\ufffd"), text)


@dataclass(frozen=True, slots=True)
class _Change:
    """Bytes [start, old_end) of the text before became [start, new_end)."""

    start: int
    old_end: int
    new_end: int
    text: bytes | None = None


@dataclass(slots=True)
class _Rows:
    """Which rows edits touched: rows up to `first` and from `old_last` on are as they were."""

    first: int = 1 << 60
    from_end: int = 1 << 60
    """Rows after the last one touched."""


def _in_bytes(old: str, edits: Sequence[Edit], new: str) -> list[_Change] | None:
    """The edits in bytes; None unless they lead from `old` to `new`."""
    changes: list[_Change] = []
    text = old
    for edit in edits:
        if not 0 <= edit.start <= edit.end <= len(text):
            return None
        added = clean(edit.text)
        before, removed = text[: edit.start], text[edit.start : edit.end]
        start = len(before.encode())
        encoded = added.encode()
        changes.append(_Change(start, start + len(removed.encode()), start + len(encoded), encoded))
        text = before + added + text[edit.end :]
    return changes if changes and text == new else None


def _difference(old: bytes, new: bytes) -> _Change:
    """One change that leads from `old` to `new`, at character boundaries."""
    shorter = min(len(old), len(new))
    start = _common(old, new, shorter)
    while start and start < len(new) and new[start] & 0xC0 == 0x80:
        start -= 1
    while start and start < len(old) and old[start] & 0xC0 == 0x80:
        start -= 1
    same = _common(
        old[: start - 1 : -1] if start else old[::-1],
        new[: start - 1 : -1] if start else new[::-1],
        shorter - start,
    )
    while same and new[len(new) - same] & 0xC0 == 0x80:
        same -= 1
    return _Change(start, len(old) - same, len(new) - same)


def _common(a: bytes, b: bytes, limit: int) -> int:
    """The length of the common beginning, at most `limit`."""
    low, high = 0, limit
    while low < high:
        middle = (low + high + 1) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _edit(tree: Tree, old: bytes, new: bytes, change: _Change, rows: _Rows, *, last: bool) -> bytes:
    """Tell the tree; returns the text after this change."""
    start, old_end, new_end = change.start, change.old_end, change.new_end
    after = new if last or change.text is None else old[:start] + change.text + old[old_end:]
    first = _point(old, start)
    end = _point(old, old_end)
    tree.edit(start, old_end, new_end, first, end, _point(after, new_end))
    rows.first = min(rows.first, first[0])
    rows.from_end = min(rows.from_end, old.count(b"\n", old_end))
    return after


def _point(data: bytes, byte: int) -> tuple[int, int]:
    return data.count(b"\n", 0, byte), byte - data.rfind(b"\n", 0, byte) - 1


# -- what stays through a syntax error ----------------------------------------------------------


def _keep(old: Scan, fresh: Scan, before: str, after: str, rows: _Rows) -> Scan:
    """`fresh`, with the kernels of `old` that vanished though nobody touched their headers."""
    old_lines, new_lines = before.split("\n"), after.split("\n")
    last = len(old_lines) - 1 - rows.from_end
    by = len(new_lines) - len(old_lines)
    entries = tuple(
        name
        for name in (*ENTRIES, MAIN_GUARD)
        if name in fresh.entries or (name in old.entries and _still_there(name, after))
    )
    there = {(kernel.line, kernel.name) for kernel in fresh.kernels}
    kept: list[tuple[Kernel, str]] = []
    for kernel, digest in zip(old.kernels, old.digests, strict=True):
        first, column = kernel.line, kernel.name_span.end_column
        shift = 0 if first <= rows.first else by if kernel.whole.line > last else None
        if shift is None or (first + shift, kernel.name) in there:
            continue
        top = kernel.whole.line
        if (
            old_lines[top:first] == new_lines[top + shift : first + shift]
            and first + shift < len(new_lines)
            and old_lines[first][:column] == new_lines[first + shift][:column]
        ):
            kept.append(
                (_moved(kernel, shift, by if kernel.whole.end_line > last else shift, len(new_lines)), digest)
            )
    if not kept:
        return replace(fresh, entries=entries)
    known = {kernel.qualified: kernel for kernel in old.kernels}
    for kernel, digest in zip(fresh.kernels, fresh.digests, strict=True):
        past = known.get(kernel.qualified, kernel)
        kept.append((replace(kernel, launchable=past.launchable, callers=past.callers), digest))
    kept.sort(key=lambda pair: (pair[0].line, pair[0].name_span.column))
    return replace(
        fresh,
        kernels=tuple(kernel for kernel, _ in kept),
        digests=tuple(digest for _, digest in kept),
        entries=entries,
    )


def _still_there(entry: str, text: str) -> bool:
    return (entry if entry == MAIN_GUARD else f"def {entry}(") in text


def _moved(kernel: Kernel, by: int, end_by: int, lines: int) -> Kernel:
    name, whole = kernel.name_span, kernel.whole
    end_line = min(max(whole.end_line + end_by, kernel.line + by), lines - 1)
    return replace(
        kernel,
        line=kernel.line + by,
        name_span=Span(name.line + by, name.column, name.end_line + by, name.end_column),
        whole=Span(whole.line + by, whole.column, end_line, whole.end_column),
    )
