"""The parts of a draft, and the few values that are guessed from parameter names. Drafts mark these values."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from orbit_remote.common.lazy_dataclass import dataclass
from orbit_remote.spec.comment_scanner import SpecTarget
from orbit_remote.spec.file_context import Surroundings
from orbit_remote.spec.signature import Signature, signature

LINEAR: Final = "1 << 20"
SIDE: Final = "1024"

_COUNTS = frozenset((
    "size", "sizes", "len", "length", "count", "total", "numel", "nelem", "elements", "elems", "points", "items", "rows",
    "nrows", "cols", "columns", "ncols", "width", "height", "depth", "batch", "batches", "heads", "seq", "seqlen", "ctx",
    "dim", "hidden", "features", "channels", "tokens", "vocab", "bins", "nx", "ny", "nz",
))  # fmt: skip
_LETTERS = frozenset("nmkhwNMKHWBCDLSTZ")
_NO_COUNTS = frozenset((
    "stride", "strides", "pitch", "ld", "lda", "ldb", "ldc", "offset", "off", "start", "begin", "first", "index", "idx",
    "id", "seed", "axis", "mode", "rank", "flag", "mask", "pad", "padding", "dilation", "kernel", "block", "tile", "group",
    "chunk", "split", "warps", "stages", "sms", "programs", "per",
))  # fmt: skip
_ROWS = frozenset(("rows", "nrows", "height", "ny", "h", "m"))
_COLUMNS = frozenset(("cols", "columns", "ncols", "width", "nx", "w"))


@dataclass(frozen=True, slots=True)
class DraftSubject:
    """The kernel to draft for. `body` and the text of `around` have no comments."""

    name: str
    header: Signature
    body: str
    around: Surroundings

    @property
    def names(self) -> list[str]:
        return [parameter.name for parameter in self.header.parameters]


def subject(lines: list[str], of: SpecTarget, last_line: int) -> DraftSubject | None:
    """Return the kernel `of`, whose definition ends on `last_line`. Return None if its parameters cannot be read."""
    around = Surroundings(lines, of.language)
    header = signature(lines, of, around)
    if header is None:
        return None
    clean = around.text.split("\n")
    body = "\n".join(clean[of.name_line : last_line + 1])[of.name_end :]
    return DraftSubject(of.name, header, body[body.find("{") :], around)


class DraftStatement(NamedTuple):
    """A statement of a draft. `remark` becomes the comment behind it. A statement without a remark was read from the
    code.
    """

    text: str
    remark: str = ""

    @property
    def missing(self) -> bool:
        """Say whether the author has to write the value. Until then it is an error."""
        return self.remark.startswith("fill in")

    def named(self, name: str) -> DraftStatement:
        """Return the same value under another name."""
        return self._replace(text=f"{name} ={self.text.partition(' =')[2]}")


def guessed(name: str, value: str | None, kind: str = "") -> DraftStatement:
    """Return an assignment. Without a value, the author fills it in with something of this kind."""
    if value:
        return DraftStatement(f"{name} = {value}", "guessed")
    return DraftStatement(f"{name} =", f"fill in: {kind}" if kind else "fill in")


def used(statements: Sequence[DraftStatement]) -> list[DraftStatement]:
    """Remove assignments of names that no later statement mentions."""
    kept: list[DraftStatement] = []
    for each in reversed(statements):
        name = re.match(r"(\w+) =", each.text)
        if name is None or any(re.search(rf"\b{name[1]}\b", below.text) for below in kept):
            kept.append(each)
    return kept[::-1]


@dataclass(frozen=True, slots=True)
class Sizes:
    """The sizes of a draft. `values` are the ones to assign, in order. `shape` is that of an ordinary tensor.
    `matrices` are the names of (m, n, k) if a kernel has all three.
    """

    values: dict[str, str]
    shape: tuple[str, ...]
    matrices: tuple[str, str, str] | None = None

    def renamed(self, names: Mapping[str, str]) -> Sizes:
        """Return the same tensors with other names."""
        shape = tuple(names.get(name, name) for name in self.shape)
        m, n, k = (names.get(name, name) for name in self.matrices or ("", "", ""))
        return replace(self, shape=shape, matrices=(m, n, k) if self.matrices else None)

    def operand(self, name: str, inputs: list[str]) -> tuple[str, ...]:
        """Return the shape of the tensor `name`. In a product of matrices the first of `inputs` has (m, k), the second
        (k, n), and any other tensor (m, n).
        """
        if self.matrices is None:
            return self.shape
        m, n, k = self.matrices
        return (m, k) if inputs[:1] == [name] else (k, n) if inputs[1:2] == [name] else (m, n)


def words(name: str) -> list[str]:
    return [part.lower() for part in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)]


def is_size(name: str) -> bool:
    """Say whether the name of an integer suggests that it is a size."""
    parts = words(name)
    if not parts or _NO_COUNTS & set(parts):
        return False
    return bool(_COUNTS & set(parts)) or parts[0] in ("n", "num") or name in _LETTERS


def sizes(integers: Sequence[str], taken: Sequence[str], *, row: bool, square: bool) -> Sizes:
    """Return the sizes among the integers with these names. `taken` are the names of all parameters. `row`: a block
    takes a row of the only size. `square`: the only size is both sides of a square.
    """
    names = [name for name in integers if is_size(name)]
    by_letter = {name.lower(): name for name in names}
    if all(letter in by_letter for letter in "mnk"):
        m, n, k = (by_letter[letter] for letter in "mnk")
        return Sizes({name: SIDE if name in (m, n, k) else "8" for name in names}, (m, n), (m, n, k))
    name = names[0] if names else "n" if "n" not in taken else "n_"
    if len(names) == 1 and (row or _COLUMNS & set(words(name))):
        rows = "rows" if "rows" not in taken else "rows_"
        return Sizes({rows: SIDE, name: SIDE}, (rows, name))
    if len(names) < 2:
        return Sizes({name: SIDE}, (name, name)) if square else Sizes({name: LINEAR}, (name,))
    columns = [name for name in names if _COLUMNS & set(words(name))][:1]
    rows = [name for name in names if _ROWS & set(words(name))][:1]
    last = [*rows, *columns] if columns and (rows or len(names) == 2) else []
    shape = (*(name for name in names if name not in last), *last)  # `width, height` is the other way round
    if len(shape) == 2:
        return Sizes(dict.fromkeys(names, SIDE), shape)
    values = {**dict.fromkeys(names, "4"), shape[-2]: "256", shape[-1]: "64"}
    return Sizes(values, shape)


def stride(name: str, every: Sequence[str], of: Sizes) -> str:
    """Return how far apart neighbours are, by Triton's usual naming. Return "" if the name gives no hint. `every` are
    the names of all parameters.
    """
    if not {"stride", "strides", "lda", "ldb", "ldc", "pitch"} & set(words(name)):
        return ""
    if of.matrices:
        _, n, k = of.matrices
        return {"am": k, "ak": "1", "bk": n, "bn": "1", "cm": n, "cn": "1", "da": k, "db": n, "dc": n}.get(
            name[-2:], ""
        )
    group = [each for each in every if each[:-1] == name[:-1]]
    if len(group) == len(of.shape):  # stride_qz, stride_qh, stride_qm, stride_qk
        return " * ".join(of.shape[group.index(name) + 1 :]) or "1"
    return of.shape[-1] if len(of.shape) == 2 and len(group) == 1 else ""


def real(name: str) -> str:
    """Return a real number for a parameter: one half. It is no identity of any operation, it is exact, and it may be
    a probability.
    """
    return "1e-5" if name.lower().startswith("eps") else "0.5"
