"""The kernels of a notebook's cell: its language by its first line, and its text without what is IPython's own."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Collection
from dataclasses import replace

from orbit_lsp.kernels.cuda.cuda_kernels import CudaTracker
from orbit_lsp.kernels.model import Kernel, Language, Scan, Span
from orbit_lsp.kernels.python.triton_kernels import TritonTracker
from orbit_remote.common.limits import OUTLINED

_MAGIC = re.compile(r"%%(\w*)[^\r\n]*")
_OF_PYTHON = frozenset(("orbit", "time", "timeit", "capture", "prun"))
"""Magics whose cell is Python; that of `%%orbit` may be CUDA too."""
_OF_A_LINE = re.compile(r"^[%!]", re.MULTILINE)
"""What begins a line that is IPython's. One that continues an expression with `%` is indented, as formatters write it."""
_IMPORT = re.compile(r"\bimport\b[^\n]*+")
_IMPORTS = {
    "triton": "import triton",
    "tl": "import triton.language as tl",
    "gluon": "from triton.experimental import gluon",
    "cuda": "from numba import cuda",
}
"""Names that another cell has usually imported, by the import that is assumed."""


def language(text: str) -> Language | None:
    """Of a cell with its first line; None for another language's, as of `%%bash`."""
    magic = _MAGIC.match(text)
    if magic is None:
        return "triton"
    if magic[1] == "orbit":
        return "triton" if is_python(text[magic.end() :]) else "cuda"
    return "cuda" if magic[1] == "cuda" else "triton" if magic[1] in _OF_PYTHON else None


def is_python(text: str) -> bool:
    """Whether a cell below `%%orbit` is Python and not CUDA. One that does not parse, or is too long for that, is CUDA if it contains
    `__global__`.
    """
    if "__global__" not in text:
        return True
    if len(text) > OUTLINED.most:
        return False
    try:
        ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True


def readable(text: str, kind: Language | None) -> str:
    """What a parser of its language, `kind`, can read of a cell, character for character; empty where there is none."""
    if kind is None:
        return ""
    if magic := _MAGIC.match(text):
        text = " " * magic.end() + text[magic.end() :]
    return _OF_A_LINE.sub("#", text) if kind == "triton" else text


def _imports(text: str) -> str:
    """A line for the names of kernel languages that a cell uses and does not import."""
    assumed = [
        statement
        for name, statement in _IMPORTS.items()
        if f"{name}." in text
        and not any(re.search(rf"\b{name}\b", line[0]) for line in _IMPORT.finditer(text))
    ]
    return ";".join(assumed) + "\n"


class CellTracker:
    """Scans a cell again and again as it changes. Arguments as of `kernels.tracker`."""

    def __init__(
        self, macros: Collection[str] = (), headers: Callable[[str], str | None] | None = None
    ) -> None:
        self._cuda = CudaTracker(macros=macros, headers=headers)
        self._python = TritonTracker()
        self._scanned: tuple[str, Scan] | None = None

    def scan(self, text: str) -> Scan:
        if self._scanned is None or self._scanned[0] != text:
            self._scanned = text, self._scan(text)
        return self._scanned[1]

    def _scan(self, text: str) -> Scan:
        kind = language(text)
        cell = readable(text, kind)
        if kind == "cuda":
            return self._cuda.scan(cell)
        return _up(self._python.scan(_imports(cell) + cell))


def _up(scan: Scan) -> Scan:
    """The same a line higher: as it is without the line of imports."""
    return replace(
        scan,
        kernels=tuple(map(_kernel_up, scan.kernels)),
        launches=tuple(replace(launch, line=launch.line - 1) for launch in scan.launches),
        left_out=_kernel_up(scan.left_out) if scan.left_out else None,
        unread=None if scan.unread is None else max(0, scan.unread - 1),
    )


def _kernel_up(kernel: Kernel) -> Kernel:
    name, whole = _span_up(kernel.name_span), _span_up(kernel.whole)
    return replace(kernel, line=kernel.line - 1, name_span=name, whole=whole)


def _span_up(span: Span) -> Span:
    return replace(span, line=span.line - 1, end_line=span.end_line - 1)
