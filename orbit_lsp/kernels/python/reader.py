"""Makes the `Scan` of a file from the outlines of its regions: which functions are kernels, who calls whom, digests."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import field
from hashlib import blake2b
from itertools import accumulate

from orbit_lsp.kernels.model import SPECIFIED, Kernel, Scan, Span, WrittenLaunch
from orbit_lsp.kernels.python.names import Names
from orbit_lsp.kernels.python.outline import CallAssignment, Outline, PythonFunction
from orbit_remote.common.lazy_dataclass import dataclass

ENTRIES = ("benchmark", "benchmark_kernel", "main", "run", "test")
"""Functions that run a file, the first of them wins; after them the `__main__` part."""
MAIN_GUARD = "__main__"
_TRITON = ("triton", "gluon")

PieceId = tuple[int, int]
"""(region, number of the piece in its outline)"""


@dataclass(slots=True, eq=False)
class _Found:
    """A kernel that was found, before it becomes a `Kernel`."""

    region: int
    source: PythonFunction | CallAssignment
    dsl: str
    qualified: str
    in_class: bool
    pieces: tuple[PieceId, ...]
    """What makes it up: its own text, and for `k = jit(f)` that of `f`."""
    words: frozenset[str]
    """The words in them, less the names of its own."""
    tuned: bool
    library: str
    returns_value: bool
    assigned: bool = False
    """It is what a call returns, in another region perhaps."""
    calls: list[int] = field(default_factory=list[int])
    reached: list[int] = field(default_factory=list[int])
    """Kernels that it calls, directly or through other functions."""
    made: tuple[tuple[int, bool, tuple[str, ...]], Kernel] | None = None
    """The kernel, and the row, whether it can be launched, and the callers that it was made with."""


class OutlineReader:
    """Reads one file's outlines again and again. Kernels are looked for again in what changed, and everywhere if the
    change means something else to the other regions.
    """

    def __init__(self) -> None:
        self._outlines: Sequence[Outline] = ()
        self._found: list[tuple[_Found, ...]] = []

    def scan(self, outlines: Sequence[Outline]) -> Scan:
        functions = self._find(outlines)
        rows = list(accumulate((outline.lines for outline in outlines), initial=0))
        by_word: dict[str, list[int]] = {}
        for i, kernel_function in enumerate(functions):
            by_word.setdefault(kernel_function.source.name, []).append(i)
            if kernel_function.in_class:
                by_word.setdefault("." + kernel_function.source.name, []).append(i)
        self._link(functions, by_word)
        owned: dict[int, set[int]] = {}
        for function in functions:
            for region, piece in function.pieces:
                owned.setdefault(region, set()).add(piece)
        launchable = self._launchable(functions, owned)
        callers: list[list[str]] = [[] for _ in functions]
        for directly in (True, False):
            for i, caller in enumerate(functions):
                for j in (caller.calls if directly else caller.reached) if launchable[i] else ():
                    if not launchable[j]:
                        callers[j].append(caller.qualified)
        names = {function.source.name for function in functions}
        return Scan(
            language="triton",
            kernels=tuple(self._make_kernels(functions, rows, launchable, callers)),
            launches=tuple(
                WrittenLaunch(site.name, site.line + row, site.arguments, None, site.grid)
                for outline, row in zip(outlines, rows, strict=False)
                for site in outline.launches
                if site.name in names
            ),
            entries=self._entries(functions),
            includes=tuple(dict.fromkeys(name for outline in outlines for name in outline.imports)),
            digests=tuple(self._digests(functions, owned)),
            unread=next(
                (row for outline, row in zip(outlines, rows, strict=False) if outline.left_out), None
            ),
        )

    # -- finding -------------------------------------------------------------------------------

    def _find(self, outlines: Sequence[Outline]) -> list[_Found]:
        before, self._outlines = self._outlines, outlines
        self._names = Names(outlines)
        if [outline.interface for outline in before] != [outline.interface for outline in outlines]:
            before = [None] * len(outlines)
            self._found = [()] * len(outlines)
        for region, (old, new) in enumerate(zip(before, outlines, strict=True)):
            # what `k = jit(f)` makes a kernel of may stand in another region
            if old is not new or any(kernel.assigned for kernel in self._found[region]):
                self._found[region] = tuple(_without_makers(list(self._find_in(region))))
        functions = [kernel for region in self._found for kernel in region]
        return sorted(functions, key=lambda kernel: (kernel.region, kernel.source.order))

    def _find_in(self, region: int) -> Iterator[_Found]:
        outline = self._outlines[region]
        for function in outline.functions:
            dsl, tuned, library = self._names.decorated(region, function)
            if dsl:
                around, body = outline.scopes[function.scope], outline.scopes[function.body_scope]
                yield _Found(
                    region, function, dsl, body.qualified, around.kind == "class",
                    _pieces(region, function.pieces), function.words, tuned, library, function.returns_value,
                )  # fmt: skip
        for assignment in outline.assignments:
            if (dsl := self._names.assigned_language(region, assignment)) and (
                kernel := self._assigned(region, assignment, dsl)
            ):
                yield kernel

        alone = not outline.functions and not outline.classes
        for kernel in outline.embedded:
            pieces = ((region, 0),) if alone else ()  # else it counts as host code
            yield _Found(
                region, kernel, "embedded", kernel.name, False, pieces, frozenset(), False, "", False
            )

    def _assigned(self, region: int, assignment: CallAssignment, dsl: str) -> _Found | None:
        """Return the kernel of `k = jit(f)`. For `f = jit(f)` it is the `def`. Return None if that is a kernel
        already.
        """
        outline = self._outlines[region]
        pieces: tuple[PieceId, ...] = ()
        words = frozenset[str]()
        returns_value = False
        if not outline.functions and not outline.classes:
            pieces, words = ((region, 0),), outline.pieces[0].words
        if target := self._names.target(region, assignment):
            where, function = target
            same_scope = function.scope == assignment.scope and (where == region or not function.scope)
            if function.name == assignment.name and same_scope:
                if self._names.decorated(where, function).language:
                    return None
                around, body = (
                    self._outlines[where].scopes[i] for i in (function.scope, function.body_scope)
                )
                return _Found(
                    where, function, dsl, body.qualified, around.kind == "class",
                    (*_pieces(where, function.pieces), *pieces), function.words | words, False, "",
                    function.returns_value, assigned=True,
                )  # fmt: skip
            pieces += _pieces(where, function.pieces)
            words |= function.words
            returns_value = function.returns_value
        around = outline.scopes[assignment.scope]
        qualified = f"{around.qualified}.{assignment.name}" if around.qualified else assignment.name
        return _Found(
            region, assignment, dsl, qualified, around.kind == "class", pieces, words, False, "", returns_value,
            assigned=True,
        )  # fmt: skip

    # -- who calls whom ------------------------------------------------------------------------

    def _link(self, functions: Sequence[_Found], by_word: dict[str, list[int]]) -> None:
        known = frozenset(by_word)
        for i, function in enumerate(functions):
            words = known & (function.words | {function.source.name})
            function.calls = (  # its own name is among them
                sorted({j for word in words for j in by_word[word]} - {i}) if len(words) > 1 else []
            )
        for function in functions:
            reached: set[int] = set()
            waiting = list(function.calls)
            while waiting:
                if (j := waiting.pop()) not in reached:
                    reached.add(j)
                    waiting += functions[j].calls
            function.reached = sorted(reached)

    def _launchable(self, functions: Sequence[_Found], owned: dict[int, set[int]]) -> list[bool]:
        called = {j for function in functions for j in function.calls}
        names = {functions[j].source.name for j in called}
        launched = {site.name for outline in self._outlines for site in outline.launches}
        on_host = self._said_by_host(names, owned) if names else names
        result: list[bool] = []
        for i, kernel_function in enumerate(functions):
            if (
                kernel_function.dsl not in _TRITON
                or kernel_function.tuned
                or kernel_function.source.name in launched
            ):
                result.append(True)
            elif kernel_function.returns_value and not kernel_function.library:
                result.append(False)
            else:
                result.append(i not in called or kernel_function.source.name in on_host)
        return result

    def _said_by_host(self, names: set[str], owned: dict[int, set[int]]) -> set[str]:
        """Return those of `names` that also occur in code outside of kernels, or in `__all__`."""
        asked = names | {f".{name}" for name in names}
        host_names: set[str] = set()
        for i, outline in enumerate(self._outlines):
            host_names |= names & outline.exported
            if not asked.isdisjoint(outline.words):
                for j, piece in enumerate(outline.pieces):
                    if j not in owned.get(i, ()):
                        host_names.update(word.lstrip(".") for word in asked & piece.words)
        return host_names

    # -- the rest of a scan --------------------------------------------------------------------

    def _make_kernels(
        self, functions: Sequence[_Found], rows: Sequence[int], launchable: Sequence[bool],
        callers: Sequence[Sequence[str]],
    ) -> Iterator[Kernel]:  # fmt: skip
        for i, function in enumerate(functions):
            made_with = (rows[function.region], launchable[i], tuple(dict.fromkeys(callers[i])))
            if function.made is None or function.made[0] != made_with:
                span, whole = (
                    _down(span, made_with[0]) for span in (function.source.name_span, function.source.whole)
                )
                kernel = Kernel(
                    function.source.name,
                    function.qualified,
                    "triton",
                    span.line,
                    span,
                    whole,
                    *made_with[1:],
                    dsl=function.dsl,
                    generator=function.library if function.returns_value else "",
                )
                function.made = made_with, kernel
            yield function.made[1]

    def _entries(self, functions: Sequence[_Found]) -> tuple[str, ...]:
        kernels = {id(function.source) for function in functions}
        bare: dict[str, bool] = {}
        # a script's kernels of other languages need no launch spec: it is run as it is
        script = any(function.dsl not in SPECIFIED for function in functions)
        guarded = False
        for outline in self._outlines:
            guarded |= outline.main_guard or (script and outline.calls)
            for function in outline.functions:
                if function.scope == 0 and not function.path and function.name in ENTRIES:
                    bare[function.name] = function.callable_bare and id(function) not in kernels
        return (*(name for name in ENTRIES if bare.get(name)), *((MAIN_GUARD,) if guarded else ()))

    def _digests(self, functions: Sequence[_Found], owned: dict[int, set[int]]) -> Iterator[str]:
        """Yield digests of a kernel's own pieces, of what it calls, and of everything that belongs to no kernel."""
        host = blake2b(digest_size=16)
        for i, outline in enumerate(self._outlines):
            own = owned.get(i, ())
            host.update(b"".join([piece.digest for j, piece in enumerate(outline.pieces) if j not in own]))
        for function in functions:
            total = host.copy()
            pieces = dict.fromkeys(function.pieces)
            for j in function.reached:
                pieces.update(dict.fromkeys(functions[j].pieces))
            for i, j in pieces:
                total.update(self._outlines[i].pieces[j].digest)
            for line in self._specs(function):
                total.update(b"\0" + line.encode())
            yield total.hexdigest()

    def _specs(self, function: _Found) -> tuple[str, ...]:
        """Return the `# orbit:` lines above a kernel. They may be the end of the region before."""
        own = function.source.comments
        whole = function.source.whole
        if function.region and (whole.line, whole.column) == (0, 0):
            return (*self._outlines[function.region - 1].trailing, *own)
        return own


def _without_makers(kernels: list[_Found]) -> Iterator[_Found]:
    """Drop makers: TileLang's `jit` may stand on a function that makes and returns the kernel. Then only the inner
    function counts.
    """
    for kernel in kernels:
        inner = (other for other in kernels if other is not kernel and other.dsl == kernel.dsl == "tilelang")
        if not any(_is_inside(other.source.whole, kernel.source.whole) for other in inner):
            yield kernel


def _is_inside(span: Span, around: Span) -> bool:
    return around.line <= span.line and span.end_line <= around.end_line


def _down(span: Span, rows: int) -> Span:
    return Span(span.line + rows, span.column, span.end_line + rows, span.end_column)


def _pieces(region: int, numbers: range) -> tuple[PieceId, ...]:
    return tuple([(region, number) for number in numbers])
