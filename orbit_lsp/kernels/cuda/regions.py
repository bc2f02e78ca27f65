"""The contents of one region of a CUDA file (see `cuda_kernels`): kernels, launches, constants, digests of its
tokens.
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import field
from hashlib import blake2b
from typing import Final, NamedTuple

from orbit_lsp.kernels.cuda import launch_sites
from orbit_lsp.kernels.cuda.declarator import FoundDefinition
from orbit_lsp.kernels.cuda.lexer import CudaSource
from orbit_lsp.kernels.cuda.macros import Macro, MacroDefinition
from orbit_lsp.kernels.cuda.scopes import CudaScope, OpenConditional
from orbit_lsp.kernels.model import Kernel, Span, WrittenLaunch
from orbit_remote.common.lazy_dataclass import dataclass
from orbit_remote.common.limits import KERNEL_LINE

_MAIN: Final = re.compile(r"(?<![\w:.])w?main\s*\(")
_SPEC: Final = re.compile(r"//[/!]?\s*orbit:")
_LONGEST_CONSTANT = 2_000


class KernelExtent:
    """Where a kernel's definition stands. Its body is [body, end); `end` is -1 while it is still open.

    `depth` is that of the scope that the body opens.
    """

    __slots__ = ("body", "definition", "depth", "end", "qualified")

    def __init__(self, definition: FoundDefinition, qualified: str, body: int, depth: int) -> None:
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
class CudaRegion:
    """The content of a part of a file, with lines counted from its first, and what is open where it begins and ends."""

    scope: CudaScope
    conditional: OpenConditional | None
    end_scope: CudaScope
    end_conditional: OpenConditional | None
    length: int = 0
    lines: int = 0
    kernels: list[PlacedKernel] = field(default_factory=list[PlacedKernel])
    launches: list[tuple[WrittenLaunch, dict[str, str]]] = field(
        default_factory=list["tuple[WrittenLaunch, dict[str, str]]"]
    )
    """With the constants of the function around."""
    shared: bytes = b""
    """Digests of what is not a kernel's body, declaration by declaration."""
    definitions: list[MacroDefinition] = field(default_factory=list[MacroDefinition])
    asked: dict[str, tuple[Macro, ...]] = field(default_factory=dict[str, "tuple[Macro, ...]"])
    """The macros that it asked for or changed, as they were where it begins."""
    includes: list[str] = field(default_factory=list[str])
    constants: dict[str, str] = field(default_factory=dict[str, str])
    main: bool = False
    last: bool = False
    """It ends because the text does."""
    line: int = -1
    """The first line that `placed` was computed for."""
    placed: list[Kernel] = field(default_factory=list[Kernel])


class RegionWriter:
    """Writes down the content of one region in pieces. Each piece goes up to the end of a declaration.

    After each piece `source` may forget the gaps in it. The reader itself puts the content of directives into
    `region`.
    """

    def __init__(
        self, source: CudaSource, start: int, scope: CudaScope, conditional: OpenConditional | None
    ) -> None:
        self.source = source
        self.region = CudaRegion(scope, conditional, scope, conditional)
        self._begin = start
        self._piece = start
        self._shared: list[bytes] = []
        self._newlines = array("q", [start - 1])

    def describe(self, end: int, kernels: Sequence[KernelExtent], brackets: Sequence[int]) -> None:
        """Digest and describe the piece that ends at `end`. It holds `kernels`, and a `<<<` at each of `brackets`."""
        source = self.source
        text = source.text
        begin, self._piece = self._piece, end
        kernels = sorted(kernels, key=lambda kernel: kernel.definition.keyword)
        done = begin
        for kernel in kernels:
            if kernel.body > done:
                self._share(done, kernel.body)
            done = max(done, kernel.end)
        self._share(done, end)
        for kernel in kernels:
            self._describe_kernel(kernel, begin)
        launches = [b for b in brackets if not any(k.body <= b < k.end for k in kernels)]
        if launches:
            code = source.code(begin, end)
            constants = launch_sites.constants(code)
            for bracket in launches:
                if launched := launch_sites.find(code, bracket - begin):
                    line = self._position(begin + launched.at)[0]
                    self.region.launches.append(
                        (WrittenLaunch(launched.kernel, line, launched.arguments), constants)
                    )
        if (
            end - begin < _LONGEST_CONSTANT
            and text.endswith(";", begin, end)
            and text.find("const", begin, end) >= 0
        ):
            for name, value in launch_sites.constants(source.code(begin, end)).items():
                launch_sites.add_constant(self.region.constants, name, value)
        if not self.region.main and text.find("main", begin, end) >= 0:
            self.region.main = self._defines_main(begin, end)

    def _share(self, begin: int, end: int) -> None:
        if tokens := self.source.tokens(begin, end):
            self._shared.append(_digest(tokens))

    def _describe_kernel(self, kernel: KernelExtent, limit: int) -> None:
        definition = kernel.definition
        if self._position(definition.name_end)[1] > KERNEL_LINE.most:
            return
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
                    renamed=definition.renamed,
                ),
                _digest(own).hex(),
            )
        )

    def _defines_main(self, begin: int, end: int) -> bool:
        code = self.source.code(begin, end)
        match = _MAIN.search(code)
        return (
            match is not None
            and "{" in code[match.end() :]
            and ";" not in code[: code.find("{", match.end())][match.end() :]
        )

    def _position(self, offset: int) -> tuple[int, int]:
        """Return line and column of `offset`, with the line from the start of the region."""
        newlines = self._newlines
        while newlines[-1] < offset:
            following = self.source.text.find("\n", newlines[-1] + 1)
            newlines.append(following if following >= 0 else len(self.source.text) + 1)
        line = bisect_left(newlines, offset) - 1
        return line, offset - newlines[line] - 1

    def end_region(self, end: int) -> CudaRegion:
        region = self.region
        region.length = end - self._begin
        region.lines = self.source.text.count("\n", self._begin, end)
        region.shared = b"".join(self._shared)
        return region


def _digest(tokens: str) -> bytes:
    return digest_bytes(tokens.encode("utf-8", "surrogatepass"))


def digest_bytes(data: bytes) -> bytes:
    return blake2b(data, digest_size=16).digest()
