"""A function of the closed list, and a call of one with its arguments bound to the parameters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, NoReturn, cast

from orbit_remote.common.lazy_dataclass import dataclass
from orbit_remote.spec.dtypes import DType
from orbit_remote.spec.syntax_tree import SpecError, SpecSpan
from orbit_remote.spec.values import Scalar, Tensor, Value, World, shown

Group = Literal[
    "Making tensors", "Numbers", "Element by element", "Reductions", "Linear algebra", "Shapes", "Types"
]
Languages = Literal["both", "cuda", "triton"]


@dataclass(frozen=True, slots=True)
class SpecFunction:
    """One row of the table. `parameters` is as in Python; `*size` takes numbers or one list of them.

    `rule` computes the result's shape and dtype, and with a torch the result itself. A `method` may be written
    `x.f(…)`; `x` is then its first parameter.
    """

    name: str
    parameters: str
    group: Group
    doc: str
    rule: Callable[[Arguments], Value]
    method: bool = False
    language: Languages = "both"

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(part.partition("=")[0].lstrip("*") for part in self.parameters.split(", ") if part)

    @property
    def required(self) -> tuple[str, ...]:
        return tuple(
            part for part in self.parameters.split(", ") if part and "=" not in part and part[0] != "*"
        )

    @property
    def variadic(self) -> int | None:
        parts = self.parameters.split(", ")
        return next((at for at, part in enumerate(parts) if part.startswith("*")), None)

    @property
    def usage(self) -> str:
        return f"{self.name}({self.parameters})"


@dataclass
class Arguments:
    """The bound arguments of one call. Arguments that are not given are absent."""

    function: SpecFunction
    world: World
    span: SpecSpan
    values: dict[str, Value]
    spans: dict[str, SpecSpan]

    def has(self, name: str) -> bool:
        return self.values.get(name) is not None

    def where(self, name: str) -> SpecSpan:
        return self.spans.get(name, self.span)

    def fail(self, name: str, message: str) -> NoReturn:
        """Raises SpecError at an argument, or at the call if it was not given."""
        raise SpecError(self.where(name), message)

    def wrong(self, name: str, wanted: str) -> NoReturn:
        self.fail(name, f"'{name}' of {self.function.name} is {wanted}, not {shown(self.values.get(name))}.")

    def tensor(self, name: str) -> Tensor:
        value = self.values.get(name)
        if not isinstance(value, Tensor):
            self.wrong(name, "a tensor")
        return value

    def operand(self, name: str) -> Tensor:
        """Return a tensor that torch can calculate with."""
        return self.world.operand(self.where(name), self.tensor(name))

    def floating(self, name: str) -> Tensor:
        return self.world.floating(self.where(name), self.tensor(name))

    def scalar(self, name: str) -> Scalar:
        value = self.values.get(name)
        if not isinstance(value, Scalar):
            self.wrong(name, "a number")
        return value

    def number(self, name: str, default: float) -> float:
        return self.scalar(name).value if self.has(name) else default

    def integer(self, name: str, default: int | None = None) -> int:
        if default is not None and not self.has(name):
            return default
        return self.whole(name, self.values.get(name))

    def whole(self, name: str, value: Value) -> int:
        if not isinstance(value, Scalar) or not value.integral:
            self.fail(name, f"'{name}' of {self.function.name} takes integers, not {shown(value)}.")
        return int(value.value)

    def integers(self, name: str) -> tuple[int, ...]:
        """Return integers. `f(a, b)`, `f((a, b))` and `f({a, b})` are the same."""
        value = self.values.get(name, ())
        items = cast("tuple[Value, ...]", value if isinstance(value, tuple) else (value,))
        if len(items) == 1 and isinstance(items[0], tuple):
            items = cast("tuple[Value, ...]", items[0])
        return tuple(self.whole(name, item) for item in items)

    def flag(self, name: str, *, default: bool = False) -> bool:
        return bool(self.scalar(name).value) if self.has(name) else default

    def dtype(self, name: str = "dtype") -> DType | None:
        value = self.values.get(name)
        if value is not None and not isinstance(value, DType):
            self.wrong(name, "a type such as float16")
        return value

    def dim(self, name: str, rank: int, default: int | None = None) -> int:
        """Return a dimension, from 0 on. Negative ones count from the last, as in torch."""
        return self._dim(name, rank, self.integer(name, default))

    def _dim(self, name: str, rank: int, value: int) -> int:
        if not -rank <= value < rank:
            s = "s" * (rank != 1)
            self.fail(name, f"There is no dimension {value} in a tensor of {rank} dimension{s}.")
        return value % rank

    def dims(self, name: str, rank: int) -> tuple[int, ...]:
        """Return several dimensions, or all if none is given."""
        given = self.integers(name) if self.has(name) else ()
        dims = tuple(self._dim(name, rank, value) for value in given or range(rank))
        if len(set(dims)) != len(dims):
            self.fail(name, "A dimension is given twice.")
        return dims


Given = tuple[Value, SpecSpan]
IGNORED = frozenset(("device", "requires_grad", "pin_memory", "generator"))
"""Keywords of pasted code that a spec decides itself: they are not even evaluated."""


def bind(
    function: SpecFunction,
    world: World,
    span: SpecSpan,
    given: Sequence[Given],
    keywords: Sequence[tuple[str, Value, SpecSpan]],
) -> Arguments:
    """Raises SpecError for a wrong number of arguments and for an unknown keyword."""
    names, star = function.names, function.variadic
    values: dict[str, Value] = {}
    spans: dict[str, SpecSpan] = {}
    if star is None and len(given) > len(names):
        raise SpecError(
            given[len(names)][1], f"{function.usage} takes at most {len(names)} arguments, not {len(given)}."
        )
    plain = given if star is None else given[:star]
    for name, (value, where) in zip(names, plain, strict=False):
        values[name], spans[name] = value, where
    if star is not None and len(given) > star:
        rest = given[star:]
        values[names[star]] = tuple(value for value, _ in rest)
        spans[names[star]] = rest[0][1].to(rest[-1][1])
    for name, value, where in keywords:
        if name not in names:
            raise SpecError(where, f"{function.usage} has no '{name}'.")
        if name in values:
            raise SpecError(where, f"'{name}' is given twice.")
        values[name], spans[name] = value, where
    missing = [name for name in function.required if name not in values]
    if missing:
        raise SpecError(span, f"{function.usage} lacks '{missing[0]}'.")
    return Arguments(function, world, span, values, spans)
