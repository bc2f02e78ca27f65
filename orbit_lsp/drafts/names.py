"""What the names of parameters usually mean, and how large a first run is."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

LINEAR: Final = "1 << 20"
_SIDE: Final = "1024"

_STEP = re.compile(
    r"(?:^|_)(?:stride|strides|pitch|step)|(?:^|_)(?:ld|inc)[a-z]?$|stride$|pitch$", re.IGNORECASE
)
_FLAG = re.compile(r"^(?:is|has|use|do|with|causal|transpose)(?:_|[A-Z]|$)|flag|mask$", re.IGNORECASE)
_START = re.compile(r"(?:^|_)(?:offset|off|start|begin|first|seed|axis|shift|mode|rank|index|idx|id|lo|lower)$", re.IGNORECASE)  # fmt: skip
_ROWS = re.compile(r"^(?:n|num|nr|no)?_?(?:rows?|height|ny)$|^(?:m|h|hh|rows_\w+|height_\w+)$", re.IGNORECASE)
_COLS = re.compile(
    r"^(?:n|num|nr|no)?_?(?:cols?|columns?|width|nx)$|^(?:w|ww|cols_\w+|width_\w+)$", re.IGNORECASE
)
_DEPTH = re.compile(r"^(?:nz|depth|d)$", re.IGNORECASE)
_WEAK = re.compile(r"^[tlispq]$")
_SEQUENCE = re.compile(r"seq|ctx|context|tokens", re.IGNORECASE)
_BATCH = re.compile(r"^(?:n|num)?_?(?:b|z|batch|batches|batch_size|bs|groups?|heads?|h|nheads|channels?|c|ch)$", re.IGNORECASE)  # fmt: skip
_COUNT = re.compile(
    r"^(?:n|m|k|p|q|s|t|l|i|sz|dim|seq\w*|n_?ctx|N_?CTX|n?_?features?|embed\w*|tokens?|hidden\w*|vocab\w*|d_?\w{0,6}|dims?\w*|size|len|length|count|num|total|numel|nelems?|"
    r"elements?|points?|limit|end|bins?|\w*(?:_|^)(?:size|len|length|count|dim|elements?|numel|elems?|points?|items?|bins?|tokens?)|"
    r"n[A-Z_]\w*|num\w+|max_?\w+|[NMKLPQT]\d?|size_?\w+|len_?\w+|total\w*)$",
)


@dataclass(frozen=True, slots=True)
class Sizes:
    """What the integers of a signature are: `named` are the assignments of sizes in order, `shape` the extents of
    an ordinary tensor, `matrices` (m, n, k) where three names say a product of matrices.
    """

    named: dict[str, str]
    shape: tuple[str, ...]
    matrices: tuple[str, str, str] | None = None
    free: bool = False
    """Whether no parameter is a size: the count is our own name."""
    attention: bool = False
    """Whether the last two extents are a sequence and the width of a head, those before them heads."""

    @property
    def total(self) -> str:
        return " * ".join(self.shape)


def sizes(integers: Sequence[str], taken: Sequence[str], row: str = "") -> Sizes:
    """`taken` are the names of all parameters: a size of our own gets another. `row` is how long the body takes rows
    to be.
    """
    extents = [name for name in integers if extent(name)]
    if len(extents) > 1:  # a step's number is called t beside a count
        extents = [name for name in extents if not _WEAK.match(name)] or extents
    by_lower = {name.lower(): name for name in extents}
    if all(letter in by_lower for letter in "mnk"):
        m, n, k = (by_lower[letter] for letter in "mnk")
        named = {name: _SIDE if name in (m, n, k) else "8" for name in extents}
        return Sizes(named, (m, n), (m, n, k))
    rows = next((name for name in extents if _ROWS.match(name) and name.lower() not in ("h", "hh")), None)
    columns = next((name for name in extents if _COLS.match(name)), None)
    if columns and not rows:  # an h beside others than a w counts heads
        rows = next((name for name in extents if _ROWS.match(name)), None)
    if rows and not columns:
        columns = next((name for name in extents if name != rows and name.lower() in ("n", "k")), None)
    if columns and not rows:
        rows = next(
            (name for name in extents if name != columns and name.lower() in ("n", "m", "k", "batch")), None
        )
    if rows and columns:
        others = [name for name in extents if name not in (rows, columns)]
        side = _SIDE if not others else "256"
        return Sizes(
            {name: side if name in (rows, columns) else "4" for name in extents}, (*others, rows, columns)
        )
    if not extents:
        name = next(one for one in ("n", "count", "elements", "n_") if one not in taken)
        return Sizes({name: LINEAR}, (name,), free=True)
    if len(extents) == 1:
        if (columns or row == extents[0]) and "rows" not in taken:  # a row for every block
            return Sizes({"rows": _SIDE, extents[0]: _SIDE}, ("rows", extents[0]))
        return Sizes({extents[0]: LINEAR}, (extents[0],))
    several = {
        name: "4" if _BATCH.match(name) else ("256" if len(extents) == 2 or _SEQUENCE.search(name) else "32")
        for name in extents
    }
    if several[extents[-1]] == "4":  # channels that lie side by side
        several[extents[-1]] = "256"
    return Sizes(several, tuple(extents))


def squared(found: Sizes) -> Sizes:
    """One size for both extents of a square."""
    if len(found.shape) != 1:
        return found
    (name,) = found.shape
    return Sizes({name: _SIDE}, (name, name), free=found.free)


def extent(name: str) -> bool:
    """Whether an integer of this name says how much there is, not where it begins or how to do it."""
    if _STEP.search(name) or _FLAG.search(name) or _START.search(name):
        return False
    return any(one.match(name) for one in (_ROWS, _COLS, _DEPTH, _BATCH, _COUNT))


def integer(name: str, found: Sizes) -> str:
    """A value for an integer that is no size: a step is the length of a row, anything else 0 or 1."""
    if _STEP.search(name):
        return _step(name, found)
    return "0" if _START.search(name) else "1"


_AXES = {"z": 0, "b": 0, "h": 1, "m": 2, "n": 2, "s": 2, "t": 2, "l": 2, "k": 3, "d": 3}
"""Of (batch, heads, sequence, width), by how the names of strides end."""


def _step(name: str, found: Sizes) -> str:
    if len(found.shape) == 4 and "_" in name and (axis := _AXES.get(name[-1:].lower())) is not None:
        return " * ".join(found.shape[axis + 1 :]) or "1"
    if re.search(r"(?:^|_)inc[a-z]?$", name) or len(found.shape) == 1:
        return "1"
    if found.matrices:
        _, n, k = found.matrices
        lowered = name.lower()
        if re.search(r"[abc]?k$|n$", lowered) and "_" in lowered and not lowered.endswith("bk"):
            return "1"  # stride_ak, stride_bn, stride_cn
        return k if re.search(r"(?:^ld|_)a(?:m)?$|a$", lowered) else n
    if (
        re.search(r"(?:col|n|x|1|last|inner|w|d|k)$", name.lower())
        and "row" not in name.lower()
        and "_" in name
    ):
        return "1"
    return found.shape[-1]


def real(name: str, *, double: bool) -> str:
    """A value for a floating parameter."""
    lowered = name.lower()
    value = "1e-5" if lowered.startswith("eps") else "0.5" if lowered in ("p", "prob", "dropout") else "2.0" if lowered in ("a", "alpha") else "1.0"  # fmt: skip
    return value if double else f"{value}f"
