"""Finds the CUDA kernels of a file lexically, without a compiler.

A file is cut into regions. At the end of a region's last line only namespaces are open, and nothing is half-declared;
the same holds for every branch of `#if` that is open. So the content of a region follows from its text, the scope and
conditionals in which it starts, and the macros that it asks for. If all of these are unchanged, the region is not
read again. Its content is relative to its first line.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from itertools import accumulate, chain, islice

from orbit_lsp.kernels.cuda import launch_sites
from orbit_lsp.kernels.cuda.lexer import LONE_RETURN
from orbit_lsp.kernels.cuda.macros import (
    Environment,
    base_macros,
    kernel_names,
    possible_definitions,
    read_headers,
    with_keyword,
)
from orbit_lsp.kernels.cuda.reading import RegionReader
from orbit_lsp.kernels.cuda.regions import CudaRegion, digest_bytes
from orbit_lsp.kernels.cuda.scopes import CudaScope, OpenConditional, same_conditionals
from orbit_lsp.kernels.model import Kernel, Scan, Span, WrittenLaunch, within_limit
from orbit_remote.common import limits

Headers = Callable[[str], str | None]
State = tuple[CudaScope, OpenConditional | None]


def scan(text: str, *, macros: Collection[str] = (), headers: Headers | None = None) -> Scan:
    """Return what `text` defines and launches; never raises.

    `macros` are further names that stand for `__global__`. `headers` returns the text of an included header, whose
    macros then count, or None.
    """
    return CudaTracker(macros=macros, headers=headers).scan(text)


class CudaTracker:
    """Scans CUDA texts. Headers are read again only when the names of the included ones change."""

    def __init__(self, *, macros: Collection[str] = (), headers: Headers | None = None) -> None:
        self._headers = headers
        self._given = base_macros(macros)
        self._base = self._given
        self._includes: tuple[str, ...] = ()
        self._defines: list[str] | None = None
        self._names: tuple[frozenset[str], frozenset[str]] = frozenset(), frozenset()
        self._root = CudaScope(None, "", namespace=True)
        self._regions: list[CudaRegion] = []
        self._text = ""
        self._rest = ""
        """What follows the last region, behind the limit."""
        self._scanned: tuple[str, Scan] | None = None

    def scan(self, text: str) -> Scan:
        if self._scanned is None or self._scanned[0] != text:
            clean = with_keyword(LONE_RETURN.sub("\n", text) if "\r" in text else text)
            self._read(clean)
            if self._includes_changed():  # headers define macros
                self._read(clean)
            self._scanned = text, within_limit(self._assemble())
        return self._scanned[1]

    def _read(self, text: str) -> None:
        """Read the regions of `text`, except for those that are unchanged and mean the same."""
        defines = possible_definitions(text)
        if defines != self._defines:
            names = kernel_names(chain(*self._base.values()), defines)
            if names != self._names:  # a reader looks for these words alone
                self._regions = []
            self._defines, self._names = defines, names
        environment = Environment(self._base, *self._names)
        reader = RegionReader(text, environment)
        starts = accumulate((region.length for region in self._regions), initial=0)
        numbers = {start: number for number, start in enumerate(starts) if number < len(self._regions)}
        shift, last_shift = 0, len(text) - len(self._text)  # of the text here, and behind the last edit
        regions: list[CudaRegion] = []
        state: State = self._root, None
        position = 0
        most = limits.DECLARATIONS.most
        while (position < len(text) or not regions) and len(regions) < most:
            count = len(regions)
            for by in (shift, last_shift):
                number = numbers.get(position - by, len(self._regions))
                standing = self._standing(number, text, position, by, state, environment)
                regions += islice(standing, most - count)
                if len(regions) > count:
                    shift = by
                    break
            else:
                regions.append(reader.read(position, *state))
                if (number := numbers.get(position - shift)) is not None:
                    shift += regions[-1].length - self._regions[number].length
            position += sum([region.length for region in regions[count:]])
            state = regions[-1].end_scope, regions[-1].end_conditional
        self._regions, self._text, self._rest = regions, text, text[position:]

    def _standing(
        self, number: int, text: str, position: int, shift: int, state: State, environment: Environment
    ) -> Iterator[CudaRegion]:
        """Yield the old regions from `number` on, as long as they stand in `text`, `shift` further, and mean the same
        there.
        """
        scope, conditional = state
        for i in range(number, len(self._regions)):
            region = self._regions[i]
            end = position + region.length
            if not (
                region.scope is scope
                and same_conditionals(region.conditional, conditional)
                and text.startswith(self._text[position - shift : end - shift], position)
                and (not region.last or end == len(text))
                and (not region.asked or environment.still_means(region.asked))
            ):
                return
            for definition in region.definitions:
                environment.apply(definition)
            yield region
            position, scope, conditional = end, region.end_scope, region.end_conditional

    def _includes_changed(self) -> bool:
        """Read the headers again if the included ones have changed. Return True if that changes macros."""
        if self._headers is None:
            return False
        includes = tuple(include for region in self._regions for include in region.includes)
        if includes == self._includes:
            return False
        self._includes = includes
        environment = Environment(self._given, frozenset())
        for definition in read_headers(includes, self._headers):
            environment.apply(definition)
        if environment.known == self._base:
            return False
        self._base = environment.known
        self._defines = None
        return True

    def _assemble(self) -> Scan:
        kernels: list[Kernel] = []
        launches: list[WrittenLaunch] = []
        digests: list[str] = []
        constants: dict[str, str] | None = None
        unread = self._rest.encode("utf-8", "surrogatepass")
        rest = digest_bytes(b"".join([*(region.shared for region in self._regions), unread])).hex()
        line = 0
        for region in self._regions:
            if region.line != line:
                region.line, region.placed = line, [_at(placed.kernel, line) for placed in region.kernels]
            kernels += region.placed
            digests += [placed.digest + rest for placed in region.kernels]
            for launch, local in region.launches:
                size = launch.arguments[1] if len(launch.arguments) > 1 else ""
                constants = self._constants() if constants is None else constants
                names = {**constants, **local}
                block = launch_sites.block_size(size, names)
                shared = launch_sites.shared_size(launch.arguments, names)
                launches.append(
                    WrittenLaunch(launch.kernel, launch.line + line, launch.arguments, block, shared=shared)
                )
            line += region.lines
        return Scan(
            "cuda",
            tuple(kernels),
            tuple(launches),
            ("main",) if any(region.main for region in self._regions) else (),
            tuple(include for region in self._regions for include in region.includes),
            tuple(digests),
            unread=line if b"__global__" in unread else None,
        )

    def _constants(self) -> dict[str, str]:
        constants: dict[str, str] = {}
        for region in self._regions:
            for name, value in region.constants.items():
                launch_sites.add_constant(constants, name, value)
        return constants


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
        renamed=kernel.renamed,
    )
