"""Evaluates expressions, within the closed list. With a torch in the world tensors carry data, else only shapes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import field, replace
from typing import Any

from orbit_remote.common.lazy_dataclass import dataclass
from orbit_remote.spec import dtypes, scalars
from orbit_remote.spec.directives import nearest
from orbit_remote.spec.dtypes import DTYPES, DType
from orbit_remote.spec.functions import function_table
from orbit_remote.spec.functions import operators as functions_operators
from orbit_remote.spec.functions import shapes as functions_shapes
from orbit_remote.spec.functions.call import IGNORED, bind
from orbit_remote.spec.syntax_tree import (
    Attribute,
    Binary,
    Call,
    Cast,
    Conditional,
    Expression,
    Index,
    Lambda,
    Language,
    Name,
    Number,
    Sequence,
    Slice,
    SpecError,
    Text,
    Unary,
)
from orbit_remote.spec.values import Dim3, Scalar, Tensor, Value, World, sentence, shown

_BOTH: dict[str, float | bool | None] = {"inf": math.inf, "nan": math.nan, "pi": math.pi}
CONSTANTS: dict[str, dict[str, float | bool | None]] = {
    "cuda": _BOTH | {
        "INFINITY": math.inf, "NAN": math.nan, "M_PI": math.pi, "true": True, "false": False, "nullptr": None,
        "INT_MAX": (1 << 31) - 1, "FLT_MAX": DTYPES["float32"].largest,
    },
    "triton": _BOTH | {"True": True, "False": False, "None": None},
}  # fmt: skip
_MODULES = ("torch", "np", "numpy", "math")
"""Where an author knows the functions of launch specs from."""


class UntunedError(Exception):
    """A grid asks for a constant that only tuning on the GPU gives."""


@dataclass
class SpecScope:
    """The values of names. `used` collects the names that were used, `later` those assigned further below."""

    values: Mapping[str, Value]
    later: frozenset[str] = frozenset()
    used: set[str] = field(default_factory=set[str])
    meta: str = ""
    constants: Mapping[str, Value] = field(default_factory=dict[str, Value])
    tuned: bool = False


def is_known(name: str, language: Language) -> bool:
    """Return whether a name stands for something in every launch spec: a constant, a type or a function."""
    return (
        name in CONSTANTS[language]
        or dtypes.named(name, language) is not None
        or name in function_table.names(language)
    )


def evaluate(node: Expression, world: World, scope: SpecScope) -> Value:
    """Evaluate the expression. It raises nothing but SpecError, and UntunedError if a grid depends on autotuning."""
    return _Interpreter(world, scope).value(node)


def grid(
    node: Expression, world: World, scope: SpecScope, constants: Mapping[str, Value], *, tuned: bool
) -> Value:
    """Return a Triton grid: a tuple, or what its `lambda META` gives for these constants."""
    value = evaluate(node, world, scope)
    if not isinstance(value, Lambda):
        return value
    inner = replace(scope, meta=value.parameter, constants=constants, tuned=tuned)
    return evaluate(value.body, world, inner)


def _flat(value: Value) -> bool:
    """Say whether a value is a scalar or a list of scalars, which may be compared. A list of lists may not: with parts that
    are shared, each level doubles the work.
    """
    return not isinstance(value, tuple) or all(isinstance(element, Scalar) for element in value)


class _Interpreter:
    def __init__(self, world: World, scope: SpecScope) -> None:
        self.world = world
        self.scope = scope

    def value(self, node: Expression) -> Value:
        self.world.work.left -= 1
        if self.world.work.left < 0:
            raise SpecError(node.span, "This spec asks for too many steps; give it fewer values to sweep.")
        match node:
            case Number():
                return self._number(node)
            case Text():
                return node.value
            case Name():
                return self._name(node)
            case Unary():
                operand = self.value(node.operand)
                if isinstance(operand, Tensor):
                    return functions_operators.unary(self.world, node.span, node.operator, operand)
                if isinstance(operand, Scalar):
                    return scalars.unary(self.world, node.span, node.operator, operand)
                raise SpecError(
                    node.operand.span, f"'{node.operator}' takes a number or a tensor, not {shown(operand)}."
                )
            case Binary():
                return self._binary(node)
            case Conditional():
                condition = self.value(node.condition)
                if not isinstance(condition, Scalar):
                    raise SpecError(
                        node.condition.span, f"A condition is a truth value, not {shown(condition)}."
                    )
                return self.value(node.then if bool(condition.value) else node.otherwise)
            case Call():
                return self._call(node)
            case Attribute():
                return self._attribute(node)
            case Index():
                return self._index(node)
            case Sequence():
                return tuple(self.value(item) for item in node.items)
            case Cast():
                return self._cast(node)
            case Lambda():
                return node
            case Slice():
                raise SpecError(node.span, "A slice is allowed only in an index.")

    def _number(self, node: Number) -> Scalar:
        if self.world.wide and node.type in ("int32", "uint32", "uint64"):
            return scalars.integer(self.world, node.span, int(node.value))
        if node.type == "float32":
            return scalars.floating(self.world, float(node.value), node.type)
        return Scalar(node.value, node.type)

    def _name(self, node: Name) -> Value:
        name = node.name
        if name in self.scope.values:
            self.scope.used.add(name)
            value = self.scope.values[name]
            if isinstance(value, Tensor) and self.world.exact:
                return self.world.precise(value)
            if isinstance(value, Scalar) and self.world.wide and value.integral:
                return scalars.integer(self.world, node.span, int(value.value))
            return value
        if name in self.scope.later:
            self.scope.used.add(name)
            raise SpecError(node.span, f"'{name}' is used before it is assigned.")
        constants = CONSTANTS[self.world.language]
        if name in constants:
            return self._constant(constants[name])
        if dtype := dtypes.named(name, self.world.language):
            return dtype
        known = [*self.scope.values, *constants, *function_table.names(self.world.language)]
        raise SpecError(node.span, f"'{name[:40]}' is not known here{nearest(name, known, '.')}")

    def _constant(self, value: float | bool | None) -> Value:
        if value is None:
            return None
        if isinstance(value, bool):
            return Scalar(value, "bool")
        cpp = self.world.language == "cuda"
        if isinstance(value, int):
            return Scalar(value, "int32" if cpp else "int")
        return Scalar(value, "float64" if cpp else "float")

    def _binary(self, node: Binary) -> Value:
        left = self.value(node.left)
        if node.operator in ("and", "or") and isinstance(left, Scalar):
            if bool(left.value) == (node.operator == "or"):
                return Scalar(node.operator == "or", "bool")
            right = self.value(node.right)
            if isinstance(right, Scalar):
                return Scalar(bool(right.value), "bool")
        else:
            right = self.value(node.right)
        if isinstance(left, Tensor) or isinstance(right, Tensor):
            return functions_operators.binary(self.world, node.span, node.operator, left, right)
        if isinstance(left, Scalar) and isinstance(right, Scalar):
            return scalars.binary(self.world, node.span, node.operator, left, right)
        if node.operator in ("==", "!=") and _flat(left) and _flat(right):
            return Scalar((left == right) == (node.operator == "=="), "bool")
        wrong = right if isinstance(left, Scalar) else left
        raise SpecError(
            node.operator_span, f"'{node.operator}' takes numbers and tensors, not {shown(wrong)}."
        )

    def _cast(self, node: Cast) -> Value:
        dtype = dtypes.named(node.type.name, self.world.language)
        operand = self.value(node.operand)
        if dtype and isinstance(operand, Scalar):
            return scalars.converted(self.world, node.span, operand, dtype)
        if dtype and isinstance(operand, Tensor):
            return self.world.cast(node.span, operand, dtype)
        raise SpecError(node.span, sentence(operand, f"is not converted to {node.type.name}."))

    def _attribute(self, node: Attribute) -> Value:
        value = self.value(node.value)
        if isinstance(value, Tensor):
            return functions_shapes.attribute(self.world, node.name_span, value, node.name)
        if isinstance(value, DType) and node.name == "itemsize":
            return self._constant(value.size)
        if isinstance(value, Dim3) and node.name in ("x", "y", "z"):
            return Scalar(getattr(value, node.name), "uint32")
        raise SpecError(node.name_span, sentence(value, f"has no '.{node.name[:40]}' in launch specs."))

    # -- indices -----------------------------------------------------------------------------------

    def _index(self, node: Index) -> Value:
        if isinstance(node.value, Name) and self.scope.meta and node.value.name == self.scope.meta:
            return self._meta(node)
        value = self.value(node.value)
        if isinstance(value, Tensor):
            return functions_shapes.indexed(
                self.world, node.span, value, [self._item(item) for item in node.items]
            )
        if not isinstance(value, tuple) or len(node.items) != 1:
            raise SpecError(node.span, sentence(value, "takes no index."))
        item = self._item(node.items[0])
        if isinstance(item, slice):
            return value[item]
        if not isinstance(item, int) or not -len(value) <= item < len(value):
            raise SpecError(node.items[0].span, f"The index is outside of a list of {len(value)}.")
        return value[item]

    def _meta(self, node: Index) -> Value:
        item = node.items[0]
        if len(node.items) != 1 or not isinstance(item, Text):
            raise SpecError(node.span, f"Constants are asked for by name, as in {self.scope.meta}['BLOCK'].")
        if item.value in self.scope.constants:
            return self.scope.constants[item.value]
        if self.scope.tuned:
            raise UntunedError
        raise SpecError(
            item.span,
            f"The launch gives no '{item.value[:40]}'{nearest(item.value, self.scope.constants, '.')}",
        )

    def _item(self, node: Expression) -> Any:
        if isinstance(node, Slice):
            return slice(
                *(
                    None if expression is None else self._whole(expression)
                    for expression in (node.start, node.stop, node.step)
                )
            )
        value = self.value(node)
        if value is None or isinstance(value, Tensor):
            return value
        if isinstance(value, Scalar) and value.integral:
            return int(value.value)
        raise SpecError(node.span, f"An index is an integer, not {shown(value)}.")

    def _whole(self, node: Expression) -> int:
        value = self.value(node)
        if not isinstance(value, Scalar) or not value.integral:
            raise SpecError(node.span, f"This takes an integer, not {shown(value)}.")
        return int(value.value)

    # -- calls -------------------------------------------------------------------------------------

    def _call(self, node: Call) -> Value:
        if node.receiver is None and node.name == "dim3" and self.world.language == "cuda":
            return self._dim3(node)
        if node.receiver is None and node.name == "sizeof" and self.world.language == "cuda":
            return self._sizeof(node)
        if node.name == "sweep":
            raise SpecError(node.name_span, "A sweep is the whole value of a name, as in 'n = sweep(a, b)'.")
        function = function_table.function(node.name, self.world.language)
        module = node.receiver
        if (
            function
            and isinstance(module, Name)
            and module.name in _MODULES
            and module.name not in self.scope.values
        ):
            raise SpecError(
                module.span, f"'{module.name}.{node.name}' is written '{node.name}' in launch specs."
            )
        dtype = None if function or node.receiver else dtypes.named(node.name, self.world.language)
        if dtype and len(node.arguments) == 1 and not node.keywords:
            return self._cast(Cast(node.span, Name(node.name_span, node.name), node.arguments[0]))
        if function is None or (node.receiver is not None and not function.method):
            known = function_table.names(self.world.language)
            what = "method" if node.receiver is not None else "function"
            raise SpecError(
                node.name_span,
                f"'{node.name[:40]}' is not a {what} of launch specs{nearest(node.name, known, '.')}",
            )
        arguments = node.arguments if node.receiver is None else (node.receiver, *node.arguments)
        given = [(self.value(argument), argument.span) for argument in arguments]
        keywords = [(k.name, self.value(k.value), k.span) for k in node.keywords if k.name not in IGNORED]
        return function.rule(bind(function, self.world, node.span, given, keywords))

    def _dim3(self, node: Call) -> Dim3:
        if not 1 <= len(node.arguments) <= 3 or node.keywords:
            raise SpecError(node.span, "dim3 takes 1 to 3 integers.")
        return Dim3(*(self._whole(argument) for argument in node.arguments))

    def _sizeof(self, node: Call) -> Scalar:
        inner = node.arguments[0]
        if isinstance(inner, Name) and inner.name in dtypes.VECTORS and inner.name not in self.scope.values:
            dtype, lanes = dtypes.VECTORS[inner.name]
            return Scalar(DTYPES[dtype].size * lanes, "int64" if self.world.wide else "uint64")
        value = self.value(inner)
        kind = value if isinstance(value, DType) else value.dtype if isinstance(value, Scalar) else None
        if kind is None:
            raise SpecError(
                inner.span,
                f"sizeof takes a type or a number; of {shown(value)} ask for .numel() and .element_size().",
            )
        return Scalar(kind.size, "int64" if self.world.wide else "uint64")
