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
from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import accumulate, chain
from typing import Final

from orbit_lsp.kernels.cuda import launch_sites
from orbit_lsp.kernels.cuda.macros import (
    KEYWORD,
    Environment,
    Macro,
    base_macros,
    kernel_names,
    possible_macros,
    read_headers,
)
from orbit_lsp.kernels.cuda.reading import RegionReader
from orbit_lsp.kernels.cuda.regions import Region, digest_bytes
from orbit_lsp.kernels.cuda.scopes import Scope, same_conditionals
from orbit_lsp.kernels.model import Edit, Kernel, Launch, Scan, Span

Headers = Callable[[str], str | None]

_LONE_RETURN: Final = re.compile(r"\r(?!\n)")
_MOST_EDITS = 32


def scan(text: str, *, macros: Collection[str] = (), headers: Headers | None = None) -> Scan:
    """What `text` defines and launches; never raises.

    `macros` are further names that stand for `__global__`. `headers` returns the text of an included
    header, whose macros then count, or None.
    """
    return CudaTracker(text, macros=macros, headers=headers).scan


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
            self._regions = list(RegionReader(text, 0, self._root, None, environment).regions())
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
        reading = RegionReader(text, position, regions[first].scope, regions[first].conditional, environment)
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
                    and same_conditionals(regions[index].conditional, reading.conditional)
                ):
                    following = index
                    break
        old = regions[first:following]
        regions[first:following] = new
        starts[first:] = new_starts + (
            [s + moved for s in starts[following:]] if moved else starts[following:]
        )
        self._text = text
        before = [definition for region in old for definition in region.definitions]
        after = [definition for region in new for definition in region.definitions]
        if before != after and self._macros_matter({d.name for d in (*before, *after)}):
            return False
        includes = [include for region in new for include in region.includes]
        return (
            includes == [include for region in old for include in region.includes]
            or not self._includes_changed()
        )

    def _macros_matter(self, changed: set[str]) -> bool:
        """Whether other meanings of the names in `changed` can change what regions say."""
        definitions = (
            d.macro for region in self._regions if region.busy for d in region.definitions if d.macro
        )
        names = _names((m for known in self._base.values() for m in known), definitions)
        return not names <= self._names or any(
            not changed.isdisjoint(region.asked) for region in self._regions
        )

    def _assemble(self) -> Scan:
        kernels: list[Kernel] = []
        launches: list[Launch] = []
        digests: list[str] = []
        includes: list[str] = []
        main = False
        constants = self._constants()
        rest = digest_bytes(b"".join([region.shared for region in self._regions])).hex()
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
                    block = launch_sites.block_size(size, {**constants, **local})
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
                    launch_sites.add_constant(found, name, value)
                for _, macro in region.definitions:
                    if macro and macro.parameters is None:
                        launch_sites.add_constant(found, macro.name, macro.body)
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


def _with_line_feeds(text: str) -> str:
    """A lone carriage return ends a line too; as a line feed it takes as much room."""
    return _LONE_RETURN.sub("\n", text) if "\r" in text else text
