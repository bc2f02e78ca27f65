"""Writes a captured launch as the statements of a launch spec, as its author would write them: sizes have names, and
expressions use them.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, cast

from orbit_remote.child.capture.launch_watch import Descriptor, Form, NotCapturedError, Tuned, WatchedLaunch
from orbit_remote.child.capture.values import TensorRecipe
from orbit_remote.common.lazy_dataclass import dataclass
from orbit_remote.spec.rules import OPTIONS

_SIZES: Final = ("n", "m", "k", "d", "h", "b", "s", "t")
"""Names of sizes that no parameter has, in the order in which tensors have them."""
_OF_BLOCKS: Final = re.compile(
    r"BLOCK|TILE|GROUP|STAGE|WARP|SPLIT|CHUNK|\bB[A-Z]{1,2}\b|^num_|^NUM_", re.IGNORECASE
)
_SMALL: Final = 4
"""Up to this, that a size equals another says nothing."""
_SHIFTED: Final = 1 << 14
"""Powers of two from here on are written as shifts."""


@dataclass(frozen=True, slots=True)
class _Factor:
    """A part of an extent of the grid: a size, or how many blocks of a constant it takes to cover one."""

    name: str
    size: int
    block: str = ""

    @property
    def text(self) -> str:
        return f"triton.cdiv({self.name}, META['{self.block}'])" if self.block else self.name

    def value(self, constants: Mapping[str, int]) -> int:
        return -(-self.size // constants[self.block]) if self.block else self.size


@dataclass(frozen=True, slots=True)
class _Product:
    factors: tuple[_Factor, ...]

    @property
    def text(self) -> str:
        return " * ".join(each.text for each in self.factors)

    def value(self, constants: Mapping[str, int]) -> int:
        return math.prod(each.value(constants) for each in self.factors)


class SpecText:
    """Makes the text for one launch. `made` says how each tensor is made, by parameter. If several parameters are one
    tensor, the first has it.
    """

    def __init__(
        self, taken: WatchedLaunch, made: Mapping[str, TensorRecipe], same: Mapping[str, str], tuned: Tuned
    ) -> None:
        self._taken = taken
        self._made = made
        self._same = same
        self._tuned = tuned
        function = taken.function
        self._parameters = [each for each in function.arg_names if each in taken.arguments]
        self._constants = constants(function)
        self._names: dict[int, str] = {}
        """The names of sizes, by value."""
        self._sizes()

    def statements(self) -> list[str]:
        """Return the statements: sizes, tensors, and the launch. Raises NotCapturedError."""
        lines = [
            f"{self._variable(name)} = {made.text(self._said)}"
            for name in self._parameters
            if (made := self._made.get(name))
        ]
        lines.append(self._launch())
        used = set(re.findall(r"\w+", " ".join(line.partition(" = ")[2] or line for line in lines)))
        sizes = [f"{name} = {size_text(value)}" for value, name in self._names.items() if name in used]
        return [*sizes, *lines]

    def outputs(self, names: Sequence[str]) -> list[str]:
        return [self._variable(name) for name in names]

    def _variable(self, name: str) -> str:
        return self._same.get(name, name)

    # -- sizes ------------------------------------------------------------------------------------

    def _sizes(self) -> None:
        extents = [extent for each in self._made.values() for extent in each.layout.extents]
        extents += [
            extent for each in self._made.values() for extent in each.layout.shape if extent not in extents
        ]
        wanted = [extent for extent in dict.fromkeys(extents) if extent > 1]
        for name in self._parameters:
            value = self._taken.arguments[name]
            if type(value) is not int or value not in wanted or value in self._names or value <= _SMALL:
                continue
            if name in self._tuned.names or "stride" in name.lower():
                continue
            if not (name in self._constants and _OF_BLOCKS.search(name)):
                self._names[value] = name
        taken = {*self._taken.function.arg_names, *self._same.values()}
        free = (name for name in _SIZES if name not in taken and name.upper() not in taken)
        counted = Counter(extents)
        for extent in wanted:
            if extent not in self._names and extent > 8 and counted[extent] > 1 and (name := next(free, "")):
                self._names[extent] = name

    def _said(self, extent: int) -> str:
        return self._names.get(extent) or size_text(extent)

    # -- the launch -------------------------------------------------------------------------------

    def _launch(self) -> str:
        given = [name for name in self._parameters if name not in self._tuned.names]
        every = list(self._taken.function.arg_names)
        plain = [
            name
            for name, _ in itertools.takewhile(
                lambda pair: pair[0] == pair[1] and pair[0] not in self._constants,
                zip(given, every, strict=False),
            )
        ]
        arguments = [self._argument(name) for name in plain]
        arguments += [f"{name}={self._argument(name)}" for name in given[len(plain) :]]
        for name, value in self._taken.options.items():
            if name in self._tuned.names or value is None:
                continue
            if name not in OPTIONS:
                raise NotCapturedError(
                    f"it is launched with {name}={value!r:.40}, which a launch spec does not pass"
                )
            arguments.append(f"{name}={value!r}")
        name = self._taken.function.fn.__name__
        return f"launch {name}[{self._grid()}]({', '.join(arguments)})"

    def _argument(self, name: str) -> str:
        return self._passed(name, self._taken.arguments[name])

    def _passed(self, name: str, value: Any) -> str:
        if isinstance(value, Form):
            return self._variable(name)
        if isinstance(value, Descriptor):
            block = ", ".join(map(str, value.block))
            return f"TensorDescriptor.from_tensor({self._variable(name)}, [{block}])"
        if isinstance(value, tuple):
            parts = [self._passed(name, each) for each in cast("tuple[Any, ...]", value)]
            return f"({', '.join(parts)}{',' * (len(parts) == 1)})"
        if isinstance(value, bool) or value is None:
            return str(value)
        if isinstance(value, int):
            if self._names.get(value) == name:
                return name
            return self._whole(name, value)
        if isinstance(value, float):
            return str(value)
        if isinstance(value, str):
            if not re.fullmatch(r"[\w .,:+*/-]*", value):
                raise NotCapturedError(f"{name} is a text that a launch spec cannot pass")
            return f'"{value}"'
        return f"tl.{value}"

    def _whole(self, name: str, value: int) -> str:
        """Return the expression for the stride of a whole tensor in the spec's host code."""
        if name in self._constants or "stride" not in name.lower() or value < 2:
            return size_text(value)
        rest = re.sub(r"strides?|_", "", name.lower())
        fitting = [
            (tensor, dim)
            for tensor, made in self._made.items()
            for dim, step in enumerate(self._taken.forms[tensor].strides)
            if step == value and made.layout.shape[dim] > 1
        ]
        if not fitting:
            return self._names.get(value) or size_text(value)
        tensor, dim = max(fitting, key=lambda pair: _meant(pair[0], rest))
        return f"{self._variable(tensor)}.stride({dim})"

    # -- the grid ---------------------------------------------------------------------------------

    def _grid(self) -> str:
        """Return the grid in terms of the sizes, as far as that is certain. If the driver gave a function, it is also
        evaluated for other constants.
        """
        grid = self._taken.grid
        asked = [(self._constants_given(), grid), *self._asked()]
        parts = [self._extent(at, asked) for at in range(len(grid))]
        text = f"({', '.join(parts)}{',' * (len(parts) == 1)})"
        return f"lambda META: {text}" if "META[" in text else text

    def _constants_given(self) -> dict[str, int]:
        return {
            name: value
            for name in self._constants
            if type(value := self._taken.arguments.get(name)) is int and value > 0
        }

    def _asked(self) -> Iterator[tuple[dict[str, int], tuple[int, ...]]]:
        """Yield the grids that the driver's function gives for other constants: for each one doubled, and for each
        configuration.
        """
        if self._taken.grid_of is None:
            return
        now = self._constants_given()
        others = [now | {name: 2 * value} for name, value in now.items()]
        others += [
            now | {name: value for name, value in each.items() if type(value) is int and name in now}
            for each in self._tuned.configurations
        ]
        for each in others:
            with contextlib.suppress(Exception):  # the driver's grid may not fit such constants
                grid = self._taken.grid_of(self._taken.arguments | self._taken.options | each)
                yield each, tuple(int(extent) for extent in grid)

    def _extent(self, at: int, asked: Sequence[tuple[dict[str, int], tuple[int, ...]]]) -> str:
        constants, grid = asked[0]
        wanted = grid[at]
        others = [(each, other[at]) for each, other in asked if at < len(other)]
        for product in self._products(wanted, constants):
            if all(product.value(each) == extent for each, extent in others):
                return product.text
        if self._tuned.configurations and any(extent != wanted for _, extent in others):
            raise NotCapturedError(
                "its grid follows from constants that autotuning chooses, in a way that could not be found out",
                "write the launch spec's grid by hand: `orbit-lsp draft` prints a spec to begin with",
            )
        return size_text(wanted)

    def _products(self, wanted: int, constants: Mapping[str, int]) -> Iterator[_Product]:
        """Yield what gives the wanted extent with these constants, the likelier first."""
        if wanted == 1:
            yield _Product((_Factor("1", 1),))
        named = [_Factor(name, value) for value, name in self._names.items()]
        numbers = [value for name in self._parameters if (value := self._whole_number(name)) > 1]
        extents = [extent for each in self._made.values() for extent in each.layout.shape if extent > 1]
        others = dict.fromkeys(value for value in (*numbers, *extents) if value not in self._names)
        sizes = [*named, *(_Factor(size_text(value), value) for value in others)]
        blocks = [name for name in constants if _OF_BLOCKS.search(name) or self._taken.grid_of]
        divided = [_Factor(size.name, size.size, block) for block in blocks for size in sizes]
        pairs = itertools.product([*named, *divided], divided)
        products = [
            *(_Product((each,)) for each in (*named, *divided)),
            *(
                _Product(pair)
                for pair in pairs
                if pair[0] != pair[1] and 1 not in [each.value(constants) for each in pair]
            ),
            *(_Product(pair) for pair in itertools.combinations(named, 2)),
        ]
        yield from (each for each in products if each.value(constants) == wanted)

    def _whole_number(self, name: str) -> int:
        """Return the integer that a parameter was given and that is no constant, or 0 for any other."""
        value = self._taken.arguments[name]
        return value if type(value) is int and name not in self._constants else 0


def _meant(tensor: str, rest: str) -> int:
    """Return how many letters of a stride's name, without that word, match a tensor: for `xm` and `inputgradbatch`
    those of `x_ptr` and `input_grad_pointer`.
    """
    name = re.sub(r"_?(ptr|pointer)s?$|_", "", tensor.lower())
    pairs = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(name, rest, strict=False))
    return sum(1 for _ in pairs)


def size_text(value: int) -> str:
    power = value.bit_length() - 1
    return f"1 << {power}" if value >= _SHIFTED and value == 1 << power else str(value)


def constants(function: Any) -> set[str]:
    """Return the parameters that are `tl.constexpr`."""
    if hasattr(function, "params"):
        return {each.name for each in function.params if each.is_constexpr}
    return {name for name, kind in function.fn.__annotations__.items() if "constexpr" in str(kind)}
