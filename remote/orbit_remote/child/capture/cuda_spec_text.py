"""Writes a captured launch of a CUDA kernel as the statements of a launch spec. Sizes are named by the parameters
that have them, also as products, and the grid by how many blocks it takes to cover one.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import cast

from orbit_remote.child.capture import cuda_arguments
from orbit_remote.child.capture.launch_watch import Form, Tuned, WatchedLaunch
from orbit_remote.child.capture.spec_text import SpecText, size_text
from orbit_remote.child.capture.values import TensorRecipe
from orbit_remote.common.lazy_dataclass import dataclass
from orbit_remote.spec.signature import Parameter

_SMALL = 4
"""Up to this, that a size equals another says nothing."""
_MOST = 1 << 31
"""C++'s int, in which sizes are multiplied, ends here."""
_PER_THREAD = (1, 2, 4, 8, 16)
"""How many elements a thread may have, where a grid covers a size."""


@dataclass(frozen=True, slots=True)
class CudaForm:
    """What stands around the arguments. `name` has the template arguments, as in `tiled<32>`."""

    name: str
    block: tuple[int, int, int]
    shared: int
    cluster: tuple[int, int, int] | None
    cooperative: bool
    parameters: tuple[Parameter, ...]


def products(numbers: Mapping[str, int]) -> Iterator[tuple[str, int]]:
    """Yield (text, value) of what sizes may be, the likelier first: each integer of a launch, products of two and
    three of them, one more than one, and some for each thread or lane.
    """
    large = {name: value for name, value in numbers.items() if value > _SMALL}
    several = {name: value for name, value in numbers.items() if value > 1}
    yield from large.items()
    for count in (2, 3):
        for names in itertools.combinations_with_replacement(several, count):
            if any(name in large for name in names):
                yield " * ".join(names), math.prod(several[name] for name in names)
    for name, value in large.items():
        yield f"{name} + 1", value + 1
        yield from ((f"{factor} * {name}", factor * value) for factor in (2, 3, 4))


class CudaSpecText(SpecText):
    """Makes the text for one launch."""

    def __init__(
        self, taken: WatchedLaunch, made: Mapping[str, TensorRecipe], same: Mapping[str, str], form: CudaForm
    ) -> None:
        self._form = form
        self._numbers = cuda_arguments.sizes(taken.arguments)
        self._expressions: dict[int, str] = {}
        for text, value in products(self._numbers):
            if value < _MOST or text in self._numbers:
                self._expressions.setdefault(value, text)
        super().__init__(taken, made, same, Tuned())

    def statements(self) -> list[str]:
        """Return the statements: sizes, tensors, and the launch."""
        kinds = {parameter.name: parameter for parameter in self._form.parameters}
        lines = [
            f"{self._variable(name)} = {self._tensor(made, kinds[name])}"
            for name in self._parameters
            if (made := self._made.get(name))
        ]
        grid = self._dims(self._extent_text(at, extent) for at, extent in enumerate(self._taken.grid))
        used = set(
            re.findall(r"[A-Za-z_]\w*", " ".join([grid, *(line.partition(" = ")[2] for line in lines)]))
        )
        assigned = {name: value for name, value in self._numbers.items() if name in used}
        shared = f", {self._form.shared}" if self._form.shared else ""
        block = self._dims(str(extent) for extent in self._form.block)
        arguments = ", ".join(self._given(kinds[name], assigned) for name in self._parameters)
        launch = f"launch {self._form.name}<<<{grid}, {block}{shared}>>>({arguments})"
        launch += " cooperative" if self._form.cooperative else ""
        if self._form.cluster and math.prod(self._form.cluster) > 1:
            launch += f" cluster({', '.join(map(str, self._form.cluster))})"
        free = [
            (name, value) for value, name in self._names.items() if name in used and name not in self._numbers
        ]
        sizes = [f"{name} = {_size(value)}" for name, value in (*assigned.items(), *free)]
        return [*sizes, *lines, launch]

    def _said(self, extent: int) -> str:
        return self._expressions.get(extent) or self._names.get(extent) or _size(extent)

    def _tensor(self, made: TensorRecipe, parameter: Parameter) -> str:
        text = made.text(self._said)
        if parameter.element == made.dtype:
            text = re.sub(rf", dtype={made.dtype}\b", "", text)
        if text.startswith("tensor("):
            text = text.replace("[", "{").replace("]", "}")
        return text

    def _given(self, parameter: Parameter, assigned: Mapping[str, int]) -> str:
        value = self._taken.arguments[parameter.name]
        if value is None:
            return "nullptr"
        if isinstance(value, Form):
            return self._variable(parameter.name)
        if parameter.name in assigned:
            return parameter.name
        return cuda_arguments.shown(cast("int | float", value), parameter.element)

    # -- the grid ---------------------------------------------------------------------------------

    @staticmethod
    def _dims(extents: Iterable[str]) -> str:
        known = [*extents]
        while len(known) > 1 and known[-1] == "1":
            known.pop()
        return known[0] if len(known) == 1 else f"dim3({', '.join(known)})"

    def _extent_text(self, at: int, extent: int) -> str:
        if extent <= 1:
            return str(extent)
        if (text := self._expressions.get(extent)) and extent > _SMALL:
            return text
        sizes = self._grid_sizes()
        for (text, value), block, each in itertools.product(
            sizes, dict.fromkeys((self._form.block[at], math.prod(self._form.block))), _PER_THREAD
        ):
            span = block * each
            if 1 < span < value and -(-value // span) == extent:
                whole = f"({text})" if " " in text else text
                return f"({whole} + {span - 1}) / {span}"
        return _size(extent)

    def _grid_sizes(self) -> list[tuple[str, int]]:
        """Return sizes that a grid may cover. Those of tensors go before the other numbers."""
        extents = {made.layout.extents[0] for made in self._made.values() if made.layout.extents}
        known = [(text, value) for text, value in products(self._numbers) if "+" not in text]
        return sorted(known, key=lambda pair: pair[1] not in extents)


def _size(value: int) -> str:
    """Return a size as C++ text. A size beyond `int` is no shift, because a shift of an `int` overflows."""
    return size_text(value) if value < _MOST else str(value)
