"""The kernels of a notebook's cell. Its first line gives its language; its text is read without IPython's own lines."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Collection
from dataclasses import replace
from itertools import pairwise

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
    """Return the language of a cell with this first line. Return None for another language, as with `%%bash`."""
    magic = _MAGIC.match(text)
    if magic is None:
        return "triton"
    if magic[1] == "orbit":
        return "triton" if is_python(text[magic.end() :]) else "cuda"
    return "cuda" if magic[1] == "cuda" else "triton" if magic[1] in _OF_PYTHON else None


def is_python(text: str) -> bool:
    """Say whether a cell below `%%orbit` is Python and not CUDA. A cell that does not parse, or is too long for that,
    is CUDA if it contains `__global__`.
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
    """Return what a parser of the language `kind` can read of a cell, with the same number of characters. Return ""
    if there is none.
    """
    if kind is None:
        return ""
    if magic := _MAGIC.match(text):
        text = " " * magic.end() + text[magic.end() :]
    return _OF_A_LINE.sub("#", text) if kind == "triton" else text


def _imports(text: str) -> str:
    """Return a line that imports the kernel languages that a cell uses without importing them."""
    assumed = [
        statement
        for name, statement in _IMPORTS.items()
        if f"{name}." in text
        and not any(re.search(rf"\b{name}\b", line[0]) for line in _IMPORT.finditer(text))
    ]
    return ";".join(assumed) + "\n"


class _LastScan:
    """Keeps the scan of the last text."""

    _scanned: tuple[str, Scan] | None = None

    def scan(self, text: str) -> Scan:
        if self._scanned is None or self._scanned[0] != text:
            self._scanned = text, self._scan(text)
        return self._scanned[1]

    def _scan(self, text: str) -> Scan:
        raise NotImplementedError


class CellTracker(_LastScan):
    """Scans a cell again and again as it changes. The arguments are those of `kernels.tracker`."""

    def __init__(
        self, macros: Collection[str] = (), headers: Callable[[str], str | None] | None = None
    ) -> None:
        self._cuda = CudaTracker(macros=macros, headers=headers)
        self._python = TritonTracker()

    def _scan(self, text: str) -> Scan:
        kind = language(text)
        cell = readable(text, kind)
        if kind == "cuda":
            return self._cuda.scan(cell)
        return _moved(self._python.scan(_imports(cell) + cell), -1)  # as it is without the line of imports


class NotebookTracker(_LastScan):
    """Scans the Python cells of a notebook that come as one text, again and again as it changes."""

    def __init__(self, ran: Collection[str] = ()) -> None:
        """Make a tracker. `ran` are cells that ran: it is known where they begin and end, and so what their kernels
        depend on.
        """
        self._ran = ran
        self._cell = CellTracker()

    def _scan(self, text: str) -> Scan:
        begins = sorted({0, len(text), *(place for cell in self._ran for place in _places(cell, text))})
        scans = [
            _moved(self._cell.scan(text[begin:end]), text.count("\n", 0, begin))
            for begin, end in pairwise(begins)
        ]
        return Scan(
            "triton",
            tuple(kernel for scan in scans for kernel in scan.kernels),
            tuple(launch for scan in scans for launch in scan.launches),
            digests=tuple(digest for scan in scans for digest in scan.digests),
        )


def _places(cell: str, text: str) -> tuple[int, ...]:
    """Return where a Python cell begins and ends in the text of its notebook. Return () if it is not there literally."""
    magic = _MAGIC.match(cell)
    code = cell[magic.end() if magic else 0 :].strip("\r\n")
    begin = f"\n{text}\n".find(f"\n{code}\n")
    return (begin, begin + len(code)) if begin >= 0 and code and language(cell) == "triton" else ()


def _moved(scan: Scan, by: int) -> Scan:
    """Move a scan down by this many lines."""
    return replace(
        scan,
        kernels=tuple(_kernel_moved(kernel, by) for kernel in scan.kernels),
        launches=tuple(replace(launch, line=launch.line + by) for launch in scan.launches),
        left_out=_kernel_moved(scan.left_out, by) if scan.left_out else None,
        unread=None if scan.unread is None else max(0, scan.unread + by),
    )


def _kernel_moved(kernel: Kernel, by: int) -> Kernel:
    name, whole = _span_moved(kernel.name_span, by), _span_moved(kernel.whole, by)
    return replace(kernel, line=kernel.line + by, name_span=name, whole=whole)


def _span_moved(span: Span, by: int) -> Span:
    return replace(span, line=span.line + by, end_line=span.end_line + by)
