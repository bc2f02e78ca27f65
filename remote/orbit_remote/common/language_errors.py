"""What compilers of Python's other kernel languages say, as problems of the author's file: each has its own way to name a line."""

from __future__ import annotations

import linecache
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from orbit_remote.common import limits, regular_files
from orbit_remote.common.messages import Place, Problem

_COMPILERS = {
    "numba.": "numba", "warp.": "warp", "helion.": "helion", "cuda.tile.": "cuTile", "cupy.": "CuPy", "tilelang.": "TileLang",
}  # fmt: skip
"""Modules that define errors of a compiler, by how their names begin."""
_RUNNING = frozenset(
    ("CUDARuntimeError", "CUDADriverError", "CudaAPIError", "CudaSupportError", "OutOfMemoryError")
)
_OF_CUDA = re.compile(
    r"^(?P<file>\S[^\n(]*)\((?P<line>\d{1,7})\): (?:catastrophic |fatal )?(?P<severity>error|warning)[^:\n]*: (?P<words>[^\n]+)",
    re.MULTILINE,
)
"""NVRTC's and nvcc's."""
_MOST = 20
_NEAR = 40
"""Lines before and after an error that tell which of several equal lines it is at."""


def compiler(error: BaseException) -> str:
    """The language whose compiler refused a kernel with this error; empty for any other error."""
    kind = type(error)
    if kind is RuntimeError and str(error).startswith("Error building extension"):
        return "nvcc"  # of torch.utils.cpp_extension
    name = next((name for module, name in _COMPILERS.items() if kind.__module__.startswith(module)), "")
    return "" if kind.__name__ in _RUNNING else name


def named_line(words: str, path: str) -> Place | None:
    """The first line of the author's file that an error's words name: `File "k.py", line 8`, `at /a/k.py:8`, `k.py (8)`."""
    name = re.escape(Path(path).name)
    named = re.search(rf"""(?<![\w.-]){name}["']?(?:, line |:| \()(\d{{1,7}})\b""", words)
    return Place(path, int(named[1])) if named and int(named[1]) > 0 else None


def of_embedded(error: BaseException, words: str, path: str) -> list[Problem]:
    """The errors of CUDA C++ that stands in strings of the author's file, at their lines there."""
    problems: list[Problem] = []
    for match in _OF_CUDA.finditer(words):
        if match["severity"] == "error" and len(problems) < _MOST:
            source = _source(error, match["file"])
            line = _same_line(
                source, int(match["line"]), [text.rstrip() for text in linecache.getlines(path)]
            )
            if line is not None:
                problems.append(Problem("error", match["words"], "nvcc", Place(path, line)))
    return list(dict.fromkeys(problems))


def _source(error: BaseException, file: str) -> list[str]:
    """What was compiled: CuPy's error has it, torch leaves it in a file."""
    text = getattr(error, "source", None)
    if not isinstance(text, str):
        try:
            text = regular_files.text(file.strip(), limits.SOURCE)
        except (OSError, ValueError):
            return []
    return [line.rstrip() for line in text.split("\n")]


def _same_line(source: Sequence[str], line: int, lines: Sequence[str]) -> int | None:
    """The number in `lines` of a line of `source`; both count from 1. Where it stands more than once, most of the lines
    of the source stand at the same distance.
    """
    if not 0 < line <= len(source) or not source[line - 1].strip():
        return None
    at = _positions(lines)
    near = [
        number
        for number in range(max(line - _NEAR, 0), min(line + _NEAR, len(source)))
        if source[number].strip()
    ]
    distances = Counter(there - here for here in near for there in at.get(source[here], ()))
    best = max(at.get(source[line - 1], ()), key=lambda there: distances[there - (line - 1)], default=None)
    return None if best is None else best + 1


def _positions(lines: Sequence[str]) -> dict[str, list[int]]:
    positions: dict[str, list[int]] = {}
    for number, text in enumerate(lines):
        positions.setdefault(text, []).append(number)
    return positions
