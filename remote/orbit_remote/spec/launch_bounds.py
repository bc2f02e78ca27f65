"""How many threads `__launch_bounds__` allows a block of a kernel, as far as the file's text shows."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from orbit_remote.common.lazy_dataclass import dataclass
from orbit_remote.spec.cpp_expressions import CppParser
from orbit_remote.spec.file_context import Surroundings, bracketed
from orbit_remote.spec.interpreter import Scope, Untuned, evaluate
from orbit_remote.spec.syntax_tree import Expression, Name, SpecError, walk
from orbit_remote.spec.values import Scalar, Value, World

_BOUNDS = re.compile(r"\b(?:__launch_bounds__|C10_LAUNCH_BOUNDS_[12])\s*(?=\()")
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
class Bound:
    """The first argument of `__launch_bounds__`; `constants` are those names in it that the file defines."""

    text: str
    node: Expression
    constants: Mapping[str, Value]

    def threads(self, templates: Mapping[str, Value]) -> int | None:
        """Threads a block may have for these template arguments; None if the text does not give them."""
        scalar = _integer(self.node, {**self.constants, **templates})
        return int(scalar.value) if scalar and scalar.value > 0 else None


def bound(header: str, templates: Collection[str], around: Surroundings) -> Bound | None:
    """From the text between a definition's beginning and its kernel's name; `templates` are the names of its template
    parameters, which hide the file's.
    """
    ends = [match.end() for match in _BOUNDS.finditer(header)]
    inner = bracketed(header[ends[-1] :]) if ends else None
    first = _FIRST.match(inner) if inner else None
    node = CppParser.parsed(first[0]) if first else None
    if first is None or node is None:
        return None
    constants = _constants(node, around, 0, hidden=templates)
    return Bound(" ".join(first[0].split()), node, constants)


def constant(name: str, around: Surroundings, depth: int = 0) -> Scalar | None:
    """An integer that the file defines as a macro or constant: once, or always the same, and not a default that a
    compiler flag replaces.
    """
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
        value = evaluate(node, World("cuda"), Scope(known))
    except (SpecError, Untuned):
        return None
    return value if isinstance(value, Scalar) and value.integral else None
