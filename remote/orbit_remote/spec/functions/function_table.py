"""The closed list of functions: completion offers it, the reference shows it, and the interpreter calls it."""

from __future__ import annotations

from orbit_remote.spec.functions.call import SpecFunction
from orbit_remote.spec.functions.elementwise import ELEMENTWISE
from orbit_remote.spec.functions.linear import LINEAR
from orbit_remote.spec.functions.makers import MAKERS
from orbit_remote.spec.functions.reductions import REDUCTIONS
from orbit_remote.spec.functions.shapes import SHAPES
from orbit_remote.spec.syntax_tree import Language

FUNCTIONS: dict[str, SpecFunction] = {
    operation.name: operation for operation in (*MAKERS, *ELEMENTWISE, *REDUCTIONS, *LINEAR, *SHAPES)
}

_ALIASES = {
    "mm": "matmul", "bmm": "matmul", "ceil_div": "cdiv", "ceildiv": "cdiv", "expf": "exp", "sqrtf": "sqrt",
    "rsqrtf": "rsqrt", "fabs": "abs", "fabsf": "abs", "tanhf": "tanh", "logf": "log", "swapaxes": "transpose",
    "concat": "cat", "clip": "clamp",
}  # fmt: skip


def function(name: str, language: Language) -> SpecFunction | None:
    known = FUNCTIONS.get(_ALIASES.get(name, name))
    return known if known and known.language in ("both", language) else None


def names(language: Language) -> list[str]:
    return [name for name, operation in FUNCTIONS.items() if operation.language in ("both", language)]
