"""Reads what a kernel's attributes (`__launch_bounds__`, `__block_size__`, `__cluster_dims__`) allow its launches, as
far as the file's text shows.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from orbit_remote.common.lazy_dataclass import dataclass
from orbit_remote.spec.cpp_expressions import CppParser
from orbit_remote.spec.file_context import Surroundings, bracketed
from orbit_remote.spec.interpreter import SpecScope, UntunedError, evaluate
from orbit_remote.spec.syntax_tree import Expression, Name, SpecError, walk
from orbit_remote.spec.values import Scalar, Value, World

_BOUNDS = re.compile(r"\b(?:__launch_bounds__|C10_LAUNCH_BOUNDS_[12])\s*(?=\()")
_BLOCK_SIZE = re.compile(r"\b__block_size__\s*(?=\()")
_CLUSTER_DIMS = re.compile(r"\b__cluster_dims__\s*(?=\()")
_FIRST = re.compile(r"(?:[^,()]|\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\))+")
_CONSTANT = (
    r"\bconst(?:expr)?\b[^;{{}}()<>]{{0,200}}?\b{name}\s*(?:=(?!=)|\{{)\s*"
    r"((?:[^;,{{}}()]|\((?:[^()]|\([^()]*\))*\)){{1,200}}+)(?=[;,}}])"
)
"""Bounded, because a text may have thousands of `const` and no semicolon; what was read is not read again."""
_MACRO = r"^[ \t]*#[ \t]*define[ \t]+{name}[ \t]+([^\n]+)$"
_ELSEWHERE = r"(?:\bifndef\s+|\bdefined\s*\(?\s*|\bundef\s+){name}\b"
_DEEPEST = 8


@dataclass(frozen=True, slots=True)
class ThreadBound:
    """The first argument of `__launch_bounds__`. `constants` are the names in it that the file defines."""

    text: str
    node: Expression
    constants: Mapping[str, Value]

    def threads(self, templates: Mapping[str, Value]) -> int | None:
        """Return the threads that a block may have with these template arguments. Return None if the text does not
        give them.
        """
        scalar = _integer(self.node, {**self.constants, **templates})
        return int(scalar.value) if scalar and scalar.value > 0 else None


@dataclass(frozen=True, slots=True)
class Extents:
    """The 1 to 3 extents that an attribute prescribes. `text` is the attribute as written."""

    text: str
    each: tuple[ThreadBound, ...]

    def values(self, templates: Mapping[str, Value]) -> tuple[int, int, int] | None:
        """Return the extents, or None if the text does not give them all."""
        known = [bound.threads(templates) for bound in self.each]
        if None in known:
            return None
        x, y, z = [extent or 1 for extent in known] + [1] * (3 - len(known))
        return x, y, z


@dataclass(frozen=True, slots=True)
class Attributes:
    """The attributes of a kernel. `most_blocks` is the third value of `__launch_bounds__`: the most blocks that a
    cluster may have.
    """

    bound: ThreadBound | None = None
    most_blocks: ThreadBound | None = None
    block: Extents | None = None
    cluster: Extents | None = None


def attributes(header: str, templates: Collection[str], around: Surroundings) -> Attributes:
    """Read the attributes from the text between a definition's beginning and its kernel's name. `templates` are the
    names of its template parameters, which hide the file's.
    """
    bounds = [_bound(part, templates, around) for part in _arguments(header, _BOUNDS)]
    size = _arguments(header, _BLOCK_SIZE)
    dims = _arguments(header, _CLUSTER_DIMS)
    block = _parts(bracketed(size[0]) or size[0]) if size else []
    return Attributes(
        bounds[0] if bounds else None,
        bounds[2] if len(bounds) == 3 else None,
        _extents(f"__block_size__({', '.join(size)})", block, templates, around),
        _extents(f"__cluster_dims__({', '.join(dims)})", dims, templates, around),
    )


def _arguments(header: str, attribute: re.Pattern[str]) -> list[str]:
    ends = [match.end() for match in attribute.finditer(header)]
    return _parts(bracketed(header[ends[-1] :]) or "") if ends else []


def _parts(text: str) -> list[str]:
    return [" ".join(part.split()) for part in _FIRST.findall(text) if part.strip()]


def _extents(text: str, parts: list[str], templates: Collection[str], around: Surroundings) -> Extents | None:
    bounds = [_bound(part, templates, around) for part in parts]
    each = tuple(bound for bound in bounds if bound)
    return Extents(text, each) if each and len(each) == len(parts) <= 3 else None


def _bound(text: str, templates: Collection[str], around: Surroundings) -> ThreadBound | None:
    node = CppParser.parsed(text)
    return ThreadBound(text, node, _constants(node, around, 0, hidden=templates)) if node else None


def constant(name: str, around: Surroundings, depth: int = 0) -> Scalar | None:
    """Return an integer that the file defines as a macro or constant. It must be defined once, or always the same,
    and be no default that a compiler flag replaces. In a Python file it must be assigned at the top level.
    """
    if around.language == "triton":
        number = around.number(name)
        return None if number is None else Scalar(number, "int")
    escaped = re.escape(name)
    if depth > _DEEPEST or re.search(_ELSEWHERE.format(name=escaped), around.text):
        return None
    texts = {
        " ".join(match[1].split())
        for pattern in (_CONSTANT, _MACRO)
        for match in re.finditer(pattern.format(name=escaped), around.text, re.MULTILINE)
    }
    node = CppParser.parsed(next(iter(texts))) if len(texts) == 1 else None
    return _integer(node, _constants(node, around, depth + 1)) if node else None


def _constants(
    node: Expression, around: Surroundings, depth: int, hidden: Collection[str] = ()
) -> dict[str, Value]:
    names = {expression.name for expression in walk(node) if isinstance(expression, Name)} - set(hidden)
    scalars = {name: constant(name, around, depth) for name in names}
    return {name: value for name, value in scalars.items() if value is not None}


def _integer(node: Expression, known: Mapping[str, Value]) -> Scalar | None:
    try:
        value = evaluate(node, World("cuda"), SpecScope(known))
    except (SpecError, UntunedError):
        return None
    return value if isinstance(value, Scalar) and value.integral else None
