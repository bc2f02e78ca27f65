"""The outlines of a file's regions -> its `Scan`: which functions are kernels, who calls whom, digests.

A `Reader` follows edits: as long as the changed regions mean the same to the others (imports,
aliases, signatures), what was found elsewhere stands.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b

from orbit_lsp.kernels.model import Kernel, Launch, Scan, Span
from orbit_lsp.kernels.python.expressions import Written
from orbit_lsp.kernels.python.names import Names
from orbit_lsp.kernels.python.outline import Assignment, Function, Outline, Scope

ENTRIES = ("benchmark", "benchmark_kernel", "main", "run", "test")
"""Functions that run a file, the first of them wins; after them the `__main__` part."""
MAIN_GUARD = "__main__"
_TRITON = ("triton", "gluon")

PieceId = tuple[int, int]
"""(region, number of the piece in its outline)"""


@dataclass(slots=True, eq=False)
class _Found:
    """A kernel on its way to a `Kernel`."""

    region: int
    source: Function | Assignment
    dsl: str
    qualified: str
    in_class: bool
    pieces: tuple[PieceId, ...]
    """What makes it up: its own text, and for `k = jit(f)` that of `f`."""
    words: frozenset[str]
    """The words in them, less the names of its own."""
    tuned: bool
    returns_value: bool
    said: frozenset[str] = frozenset()
    """Names of kernels among the words."""
    calls: list[int] = field(default_factory=list[int])
    reached: list[int] = field(default_factory=list[int])
    """Kernels that it calls, directly or through others."""
    says: tuple[int, bool, tuple[str, ...]] | None = None
    kernel: Kernel | None = None
    """Made of it when `says` was true: its row, whether it can be launched, its callers."""


class Reader:
    def __init__(self) -> None:
        self._outlines: list[Outline] = []
        self._names = Names([])
        self._found: list[list[_Found]] = []
        self._known: frozenset[str] = frozenset()
        self._host: dict[int, tuple[Outline, frozenset[int], bytes]] = {}

    def scan(self, outlines: Sequence[Outline], rows: Sequence[int]) -> Scan:
        """`rows` are the lines at which the outlines' regions begin."""
        found = self._find(outlines)
        by_word: dict[str, list[int]] = {}
        for i, one in enumerate(found):
            by_word.setdefault(one.source.name, []).append(i)
            if one.in_class:
                by_word.setdefault("." + one.source.name, []).append(i)
        self._link(found, by_word)
        owned: dict[int, set[int]] = {}
        for one in found:
            for region, piece in one.pieces:
                owned.setdefault(region, set()).add(piece)
        launchable = self._launchable(found, owned)
        callers: list[list[str]] = [[] for _ in found]
        for i, one in enumerate(found):
            for j in one.reached if launchable[i] else ():
                if not launchable[j]:
                    callers[j].append(one.qualified)
        names = {one.source.name for one in found}
        return Scan(
            language="triton",
            kernels=tuple(self._make_kernels(found, rows, launchable, callers)),
            launches=tuple(
                Launch(site.name, site.line + row, site.arguments, None, site.grid)
                for outline, row in zip(outlines, rows, strict=False)
                for site in outline.launches
                if site.name in names
            ),
            entries=self._entries(found),
            includes=tuple(dict.fromkeys(name for outline in outlines for name in outline.imports)),
            digests=tuple(self._digests(found, owned)),
        )

    # -- finding -------------------------------------------------------------------------------

    def _find(self, outlines: Sequence[Outline]) -> list[_Found]:
        past = self._outlines
        changed = [i for i, outline in enumerate(outlines) if i >= len(past) or outline is not past[i]]
        same = len(past) == len(outlines) and all(
            self._names.interface(past[i]) == self._names.interface(outlines[i]) for i in changed
        )
        self._outlines = list(outlines)
        if same:
            for i in changed:
                self._names.replace(i, outlines[i])
            touched = set(changed)  # an assignment's kernel has its body in another region
            changed = sorted(
                touched.union(
                    one.region
                    for region in self._found
                    for one in region
                    if isinstance(one.source, Assignment) and any(i in touched for i, _ in one.pieces)
                )
            )
        else:
            self._names = Names(self._outlines)
            self._found = [[] for _ in outlines]
            changed = range(len(outlines))
        for i in changed:
            self._found[i] = sorted(self._find_in(i), key=lambda one: one.source.order)
        return [one for region in self._found for one in region]

    def _find_in(self, region: int) -> Iterator[_Found]:
        outline = self._outlines[region]
        for function in outline.functions:
            if function.decorators and (dsl := self._names.kernel_language(region, function)):
                around, body = outline.scopes[function.scope], outline.scopes[function.body_scope]
                pieces = self._with_nested(region, function.piece)
                yield _Found(
                    region, function, dsl, body.qualified, around.kind == "class", pieces,
                    self._words(pieces, _own_names(body)), self._names.tuned(region, function),
                    function.returns_value,
                )  # fmt: skip
        for assignment in outline.assignments:
            if dsl := self._names.assigned_language(region, assignment):
                yield self._assigned(region, assignment, dsl)

    def _assigned(self, region: int, assignment: Assignment, dsl: str) -> _Found:
        outline = self._outlines[region]
        pieces: tuple[PieceId, ...] = ()
        own: set[str] = set()
        returns_value = False
        if not outline.functions and not outline.classes:
            pieces = ((region, 0),)
        if target := self._names.target(region, assignment):
            where, function = target
            pieces += self._with_nested(where, function.piece)
            own = _own_names(self._outlines[where].scopes[function.body_scope])
            returns_value = function.returns_value
        around = outline.scopes[assignment.scope]
        qualified = f"{around.qualified}.{assignment.name}" if around.qualified else assignment.name
        return _Found(
            region, assignment, dsl, qualified, around.kind == "class", pieces,
            self._words(pieces, own), False, returns_value,
        )  # fmt: skip

    def _with_nested(self, region: int, piece: int) -> tuple[PieceId, ...]:
        inside = {piece}
        pieces = self._outlines[region].pieces
        for i in range(piece + 1, len(pieces)):
            if pieces[i].parent not in inside:
                break
            inside.add(i)
        return tuple((region, i) for i in sorted(inside))

    def _words(self, pieces: Sequence[PieceId], own: set[str]) -> frozenset[str]:
        words = frozenset[str]().union(*(self._outlines[i].pieces[j].words for i, j in pieces))
        return words.difference(own)

    # -- who calls whom ------------------------------------------------------------------------

    def _link(self, found: Sequence[_Found], by_word: dict[str, list[int]]) -> None:
        known = frozenset(by_word)
        if known != self._known:
            self._known = known
            for one in found:
                one.said = frozenset()
        for i, one in enumerate(found):
            if not one.said:  # it says its own name at least, so this is asked once
                one.said = known & (one.words | {one.source.name})
            one.calls = (
                sorted({j for word in one.said for j in by_word[word]} - {i}) if len(one.said) > 1 else []
            )
        for one in found:
            reached: set[int] = set()
            waiting = list(one.calls)
            while waiting:
                if (j := waiting.pop()) not in reached:
                    reached.add(j)
                    waiting += found[j].calls
            one.reached = sorted(reached)

    def _launchable(self, found: Sequence[_Found], owned: dict[int, set[int]]) -> list[bool]:
        called = {j for one in found for j in one.calls}
        names = {found[j].source.name for j in called}
        launched = {site.name for outline in self._outlines for site in outline.launches}
        on_host = self._said_by_host(names, owned) if names else names
        result: list[bool] = []
        for i, one in enumerate(found):
            if one.dsl not in _TRITON or one.tuned or one.source.name in launched:
                result.append(True)
            elif one.returns_value:
                result.append(False)
            else:
                result.append(i not in called or one.source.name in on_host)
        return result

    def _said_by_host(self, names: set[str], owned: dict[int, set[int]]) -> set[str]:
        """Those of `names` that stand in code outside kernels as well, or in `__all__`."""
        asked = names | {f".{name}" for name in names}
        said: set[str] = set()
        for i, outline in enumerate(self._outlines):
            said |= names & outline.exported
            if not asked.isdisjoint(outline.words):
                for j, piece in enumerate(outline.pieces):
                    if j not in owned.get(i, ()):
                        said.update(word.lstrip(".") for word in asked & piece.words)
        return said

    # -- the rest of a scan --------------------------------------------------------------------

    def _make_kernels(
        self, found: Sequence[_Found], rows: Sequence[int], launchable: Sequence[bool],
        callers: Sequence[Sequence[str]],
    ) -> Iterator[Kernel]:  # fmt: skip
        for i, one in enumerate(found):
            row = rows[one.region]
            says = (row, launchable[i], tuple(dict.fromkeys(callers[i])))
            if one.kernel is None or one.says != says:
                span = _down(one.source.name_span, row)
                one.says = says
                one.kernel = Kernel(
                    one.source.name, one.qualified, "triton", span.line, span, _down(one.source.whole, row),
                    *says[1:], dsl=one.dsl,
                )  # fmt: skip
            yield one.kernel

    def _entries(self, found: Sequence[_Found]) -> tuple[str, ...]:
        kernels = {id(one.source) for one in found}
        bare: dict[str, bool] = {}
        guarded = False
        for outline in self._outlines:
            guarded |= outline.main_guard
            for function in outline.functions:
                if function.scope == 0 and not function.path and function.name in ENTRIES:
                    bare[function.name] = function.callable_bare and id(function) not in kernels
        return (*(name for name in ENTRIES if bare.get(name)), *((MAIN_GUARD,) if guarded else ()))

    def _digests(self, found: Sequence[_Found], owned: dict[int, set[int]]) -> Iterator[str]:
        host = blake2b(self._host_digests(owned), digest_size=16)
        for one in found:
            total = host.copy()
            pieces = dict.fromkeys(one.pieces)
            for j in one.reached:
                pieces.update(dict.fromkeys(found[j].pieces))
            for i, j in pieces:
                total.update(self._outlines[i].pieces[j].digest)
            for line in self._specs(one):
                total.update(b"\0" + line.encode())
            yield total.hexdigest()

    def _host_digests(self, owned: dict[int, set[int]]) -> bytes:
        """Of everything in the file that belongs to no kernel."""
        kept: dict[int, tuple[Outline, frozenset[int], bytes]] = {}
        for i, outline in enumerate(self._outlines):
            own = frozenset(owned.get(i, ()))
            past = self._host.get(i)
            if past is None or past[0] is not outline or past[1] != own:
                digests = b"".join(piece.digest for j, piece in enumerate(outline.pieces) if j not in own)
                past = (outline, own, digests)
            kept[i] = past
        self._host = kept
        return b"".join(digests for _, _, digests in kept.values())

    def _specs(self, one: _Found) -> tuple[str, ...]:
        """The `# orbit:` lines above a kernel; the region before may end with them."""
        own = one.source.comments
        whole = one.source.whole
        if one.region and (whole.line, whole.column) == (0, 0):
            return (*self._outlines[one.region - 1].trailing, *own)
        return own


def _down(span: Span, rows: int) -> Span:
    return Span(span.line + rows, span.column, span.end_line + rows, span.end_column)


def _own_names(body: Scope) -> set[str]:
    """Parameters and variables, which mean no function of the module; but `total = total(x)` calls one."""
    called = {
        name
        for name, bindings in body.bindings.items()
        if any(f"{name}(" in one.value.text for one in bindings if isinstance(one.value, Written))
    }
    return {*body.parameters, *body.bindings} - body.globals - called
