"""The functions that make tensors. Random ones draw from the spec's seed, the assignment and their place in it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from orbit_remote.spec.dtypes import DTYPES, DType
from orbit_remote.spec.functions.call import Arguments, Function
from orbit_remote.spec.scalars import misfit
from orbit_remote.spec.syntax_tree import SpecError
from orbit_remote.spec.values import Scalar, Tensor, TensorMap, Value

_SWIZZLES = (0, 32, 64, 128)


def _size(a: Arguments) -> tuple[int, ...]:
    shape = a.integers("size")
    a.world.bound(a.where("size"), shape, DTYPES["bool"])
    return shape


def _dtype(a: Arguments, kinds: tuple[str, ...], default: DType) -> DType:
    """The type that is asked for, else that of the parameter the tensor is passed to, else torch's."""
    given = a.dtype()
    if given and given.kind not in kinds:
        a.fail("dtype", f"{a.function.name} makes {' or '.join(kinds)} values, not {given.name}.")
    if given:
        return DTYPES["float64"] if a.world.exact and given.kind == "floating" else given
    hint = a.world.hint
    return hint if hint and hint.kind in kinds else default


def _random(
    a: Arguments, shape: tuple[int, ...], dtype: DType, draw: Callable[[Any, dict[str, Any]], Any]
) -> Tensor:
    """`draw` gets torch and its keywords. Types that torch cannot draw are drawn in float32 and rounded."""
    world = a.world
    if world.exact:
        raise SpecError(a.span, f"{a.function.name} is random; assign it to a name, and expect that.")

    def run() -> Any:
        direct = dtype.kind == "integer" or dtype.size > 1
        options = {
            "generator": world.generator(),
            "device": world.device,
            "dtype": world.type(dtype if direct else DTYPES["float32"]),
        }
        return draw(world.torch, options)

    return world.make(a.span, shape, dtype, run)


def _randn(a: Arguments) -> Value:
    shape, dtype = _size(a), _dtype(a, ("floating",), a.world.floats)
    return _random(a, shape, dtype, lambda t, options: t.randn(shape, **options))


def _rand(a: Arguments) -> Value:
    shape, dtype = _size(a), _dtype(a, ("floating",), a.world.floats)
    return _random(a, shape, dtype, lambda t, options: t.rand(shape, **options))


def _randint(a: Arguments) -> Value:
    """`randint(high, (n,))` as in torch, `randint(low, high, n)` with the size spelled out."""
    low, high = 0, a.integer("low")
    bounds = a.values.get("high")
    if isinstance(bounds, tuple):
        if a.has("size"):
            a.fail("high", "randint is randint(low, high, size) or randint(high, (size,)).")
        a.values["size"], a.spans["size"] = bounds, a.where("high")
    else:
        low, high = high, a.integer("high")
        if not a.has("size"):
            a.fail("high", "randint lacks 'size': randint(low, high, size) or randint(high, (size,)).")
    shape, dtype = _size(a), _dtype(a, ("integer", "bool"), DTYPES["int64"])
    if low >= high:
        a.fail("high", f"There is no integer from {low} to {high - 1}.")
    if low < dtype.lowest or high - 1 > dtype.highest:
        a.fail("high", f"The integers from {low} to {high - 1} do not all fit in {dtype.name}.")
    if dtype.name == "uint64":  # torch draws int64; what is asked for fits in it
        return _random(a, shape, dtype, lambda t, o: t.randint(low, high, shape, **(o | {"dtype": t.int64})))
    return _random(a, shape, dtype, lambda t, options: t.randint(low, high, shape, **options))


def _randperm(a: Arguments) -> Value:
    n, dtype = a.integer("n"), _dtype(a, ("integer",), DTYPES["int64"])
    if n - 1 > dtype.highest:
        a.fail("n", f"{n} numbers do not fit in {dtype.name}.")

    def draw(t: Any, options: dict[str, Any]) -> Any:
        return t.randperm(n, **(options | {"dtype": t.int64}))

    return _random(a, (n,), dtype, draw)


_ANY = ("floating", "integer", "bool")


def _filled(name: str, *, unset: bool = False) -> Callable[[Arguments], Value]:
    def rule(a: Arguments) -> Value:
        shape, dtype = _size(a), _dtype(a, _ANY, a.world.floats)
        world = a.world

        def run() -> Any:
            return getattr(world.torch, name)(shape, dtype=world.type(dtype), device=world.device)

        return world.make(a.span, shape, dtype, run, unset=unset)

    return rule


def _full(a: Arguments) -> Value:
    value = a.scalar("value")
    default = (
        value.dtype if value.dtype.kind == "bool" else DTYPES["int64"] if value.integral else a.world.floats
    )
    shape, dtype = _size(a), _dtype(a, _ANY, default)
    return _constant(a, shape, value, dtype)


def _constant(a: Arguments, shape: tuple[int, ...], value: Scalar, dtype: DType) -> Tensor:
    if why := misfit(value, dtype):
        a.fail("value", f"{why[0].upper()}{why[1:]}.")
    world = a.world
    fill = int(value.value) if dtype.kind == "integer" else value.value

    def run() -> Any:
        return world.torch.full(shape, fill, dtype=world.type(dtype), device=world.device)

    return world.make(a.span, shape, dtype, run)


def _full_like(a: Arguments) -> Value:
    x = a.tensor("x")
    return _constant(a, x.shape, a.scalar("value"), _like(a, x))


def _like(a: Arguments, x: Tensor) -> DType:
    given = a.dtype() or x.dtype
    return DTYPES["float64"] if a.world.exact and given.kind == "floating" else given


def _filled_like(name: str, *, unset: bool = False) -> Callable[[Arguments], Value]:
    def rule(a: Arguments) -> Value:
        x = a.tensor("x")
        dtype, world = _like(a, x), a.world

        def run() -> Any:
            return getattr(world.torch, name)(x.shape, dtype=world.type(dtype), device=world.device)

        return world.make(a.span, x.shape, dtype, run, unset=unset)

    return rule


def _random_like(name: str) -> Callable[[Arguments], Value]:
    def rule(a: Arguments) -> Value:
        x = a.tensor("x")
        dtype = _like(a, x)
        if dtype.kind != "floating":
            a.fail("x", f"{a.function.name} makes floating values, and this is {dtype.name}; use randint.")
        return _random(a, x.shape, dtype, lambda t, options: getattr(t, name)(x.shape, **options))

    return rule


def _arange(a: Arguments) -> Value:
    first, second = a.scalar("start"), a.scalar("end") if a.has("end") else None
    start, end = (first, second) if second else (Scalar(0, first.type), first)
    step = a.number("step", 1)
    numbers = (start.value, end.value, step)
    if not all(math.isfinite(number) for number in numbers) or step == 0:
        a.fail("step", "arange counts from start to end in finite steps other than 0.")
    steps = (end.value - start.value) / step
    if not math.isfinite(steps):
        a.fail("step", "arange takes too many steps from start to end.")
    count = max(0, math.ceil(steps))
    whole = all(isinstance(number, int) for number in numbers)
    dtype = _dtype(a, _ANY[:2], DTYPES["int64"] if whole else a.world.floats)
    last = start.value + max(0, count - 1) * step
    if dtype.kind == "integer" and not (
        dtype.lowest <= min(start.value, last) and max(start.value, last) <= dtype.highest
    ):
        a.fail("start", f"The numbers up to {last} do not fit in {dtype.name}.")
    world = a.world

    def run() -> Any:
        wide = world.torch.int64 if whole else world.torch.float64
        return world.torch.arange(count, dtype=wide, device=world.device) * step + start.value

    return world.make(a.span, (count,), dtype, run)


def _linspace(a: Arguments) -> Value:
    start, end, steps = a.scalar("start").value, a.scalar("end").value, a.integer("steps")
    dtype, world = _dtype(a, ("floating",), a.world.floats), a.world

    def run() -> Any:
        return world.torch.linspace(start, end, steps, dtype=world.torch.float64, device=world.device)

    return world.make(a.span, (steps,), dtype, run)


def _eye(a: Arguments) -> Value:
    n = a.integer("n")
    shape = (n, a.integer("m", n))
    dtype, world = _dtype(a, _ANY, a.world.floats), a.world
    return world.make(a.span, shape, dtype, lambda: world.torch.eye(*shape, device=world.device))


def _tensor_map(a: Arguments) -> Value:
    x, box, swizzle = a.tensor("x"), a.integers("box"), a.integer("swizzle", 0)
    if len(box) != len(x.shape):
        a.fail("box", f"The box has {len(box)} extents and the tensor {len(x.shape)} dimensions.")
    if not 1 <= len(box) <= 5:
        a.fail("x", "A tensor map has 1 to 5 dimensions.")
    if any(not 1 <= extent <= 256 for extent in box):
        a.fail("box", "Every extent of a box is from 1 to 256.")
    if swizzle not in _SWIZZLES:
        a.fail("swizzle", "'swizzle' is 0, 32, 64 or 128 bytes.")
    inner = box[-1] * x.dtype.size
    if inner % 16:
        a.fail("box", f"The box's last extent is {inner} bytes; it must be a multiple of 16.")
    if swizzle and inner > swizzle:
        a.fail("box", f"The box's last extent is {inner} bytes, more than the swizzle's {swizzle}.")
    return TensorMap(x, box, swizzle)


def _descriptor(a: Arguments) -> Value:
    x, block = a.tensor("x"), a.integers("block_shape")
    if len(block) != len(x.shape):
        a.fail("block_shape", f"The block has {len(block)} extents and the tensor {len(x.shape)} dimensions.")
    if any(extent < 1 for extent in block):
        a.fail("block_shape", "Every extent of a block is at least 1.")
    return TensorMap(x, block)


_G = "Making tensors"
MAKERS = (
    Function("randn", "*size, dtype=None", _G, "normally distributed values", _randn),
    Function("rand", "*size, dtype=None", _G, "values evenly distributed over [0, 1)", _rand),
    Function("randint", "low, high, *size, dtype=None", _G, "integers from low to high - 1; also randint(high, (size,))", _randint),
    Function("randperm", "n, dtype=None", _G, "0 to n - 1 in random order", _randperm),
    Function("zeros", "*size, dtype=None", _G, "zeros", _filled("zeros")),
    Function("ones", "*size, dtype=None", _G, "ones", _filled("ones")),
    Function("empty", "*size, dtype=None", _G, "room for an output; nothing may be expected of what is in it", _filled("empty", unset=True)),
    Function("full", "size, value, dtype=None", _G, "one value everywhere", _full),
    Function("arange", "start, end=None, step=1, dtype=None", _G, "0 to start - 1, or start to end in steps", _arange),
    Function("linspace", "start, end, steps, dtype=None", _G, "evenly spaced values, both ends included", _linspace),
    Function("eye", "n, m=None, dtype=None", _G, "ones on the diagonal, zeros elsewhere", _eye),
    Function("randn_like", "x, dtype=None", _G, "randn in x's shape and type", _random_like("randn"), method=True),
    Function("rand_like", "x, dtype=None", _G, "rand in x's shape and type", _random_like("rand"), method=True),
    Function("zeros_like", "x, dtype=None", _G, "zeros in x's shape and type", _filled_like("zeros"), method=True),
    Function("ones_like", "x, dtype=None", _G, "ones in x's shape and type", _filled_like("ones"), method=True),
    Function("empty_like", "x, dtype=None", _G, "empty in x's shape and type", _filled_like("empty", unset=True), method=True),
    Function("full_like", "x, value, dtype=None", _G, "one value in x's shape and type", _full_like, method=True),
    Function("tensor_map", "x, box, swizzle=0", _G, "a tensor map for TMA: blocks of x, swizzled over so many bytes", _tensor_map, language="cuda"),
    Function("from_tensor", "x, block_shape", _G, "TensorDescriptor.from_tensor: a descriptor of blocks of x", _descriptor, language="triton"),
)  # fmt: skip
