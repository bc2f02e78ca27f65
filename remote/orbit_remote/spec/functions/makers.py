"""The functions that make tensors. Random ones draw from the spec's seed, the name that they are assigned to, and
their number there.
"""

from __future__ import annotations

import base64
import math
import re
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from orbit_remote.common import limits, regular_files
from orbit_remote.spec import stored_tensors
from orbit_remote.spec.dtypes import DTYPES, DType
from orbit_remote.spec.functions.call import Arguments, SpecFunction
from orbit_remote.spec.scalars import misfit
from orbit_remote.spec.stored_tensors import StoredTensor
from orbit_remote.spec.syntax_tree import SpecError
from orbit_remote.spec.values import Scalar, TensorMap, Value, result_type, text_of

_FLOATING, _INTEGER, _ANY = ("floating",), ("integer", "bool"), ("floating", "integer", "bool")
_SWIZZLES = (0, 32, 64, 128)
_FILE = re.compile(r"(?!\.)[\w.+-]{1,120}")
_PORTION = 1 << 16
"""Random numbers that torch draws at a time where they have to be portable: how it divides more among threads depends on how many a
GPU has (`calc_execution_policy` in aten/src/ATen/native/cuda/DistributionTemplates.h), and with it which number is whose.
"""


def _shape(a: Arguments) -> tuple[int, ...]:
    """Return the size that is asked for, or the shape of f_like's tensor."""
    if "x" in a.function.names:
        return a.tensor("x").shape
    shape = a.integers("size")
    a.world.bound(a.where("size"), shape, DTYPES["bool"])
    return shape


def _dtype(a: Arguments, kinds: tuple[str, ...], default: DType) -> DType:
    """Return the type that is asked for, else that of f_like's tensor, else that of the parameter that gets the
    tensor, else torch's.
    """
    wanted = a.dtype() or (a.tensor("x").dtype if "x" in a.function.names else None)
    if wanted is None:
        hint = a.world.hint
        return hint if hint and hint.kind in kinds else default
    if wanted.kind not in kinds:
        where = "dtype" if a.has("dtype") else "x"
        a.fail(where, f"{a.function.name} makes {' or '.join(kinds)} values, not {wanted.name}.")
    return DTYPES["float64"] if a.world.exact and wanted.kind == "floating" else wanted


def _random(a: Arguments, shape: tuple[int, ...], dtype: DType, name: str, *bounds: int) -> Value:
    """Call torch's random function of this name. Types that torch cannot draw are drawn in a wider one and converted."""
    world = a.world
    if world.exact:
        raise SpecError(a.span, f"{a.function.name} is random; assign it to a name, and expect that.")
    drawn = dtype.name
    if drawn == "uint64":  # the values that can be asked for fit in int64
        drawn = "int64"
    elif dtype.kind != "integer" and dtype.size == 1:
        drawn = "float32"

    def run() -> Any:
        draw = getattr(world.torch, name)
        own, generator = world.type(DTYPES[drawn]), world.generator()
        if not world.portable:
            return draw(*bounds, shape, generator=generator, device=world.device, dtype=own)
        made = world.torch.empty(math.prod(shape), device=world.device, dtype=own)
        for portion in made.split(_PORTION):
            draw(*bounds, portion.shape, generator=generator, dtype=own, device=world.device, out=portion)
        return made.reshape(shape)

    return world.make(a.span, shape, dtype, run)


def _drawn(name: str) -> Callable[[Arguments], Value]:
    return lambda a: _random(a, _shape(a), _dtype(a, _FLOATING, a.world.floats), name)


def _randint(a: Arguments) -> Value:
    """Make `randint(high, (n,))` as in torch, or `randint(low, high, n)` with the size spelled out."""
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
    shape, dtype = _shape(a), _dtype(a, _INTEGER, DTYPES["int64"])
    if low >= high:
        a.fail("high", f"There is no integer from {low} to {high - 1}.")
    if low < dtype.lowest or high - 1 > dtype.highest:
        a.fail("high", f"The integers from {low} to {high - 1} do not all fit in {dtype.name}.")
    return _random(a, shape, dtype, "randint", low, high)


def _filled(name: str) -> Callable[[Arguments], Value]:
    def rule(a: Arguments) -> Value:
        shape, dtype, world = _shape(a), _dtype(a, _ANY, a.world.floats), a.world

        def run() -> Any:
            return getattr(world.torch, name)(shape, dtype=world.type(dtype), device=world.device)

        return world.make(a.span, shape, dtype, run, unset=name == "empty")

    return rule


def _full(a: Arguments) -> Value:
    value, world = a.scalar("value"), a.world
    shape, dtype = _shape(a), _dtype(a, _ANY, result_type(world, [value]))
    if why := misfit(value, dtype):
        a.fail("value", f"{why[0].upper()}{why[1:]}.")
    fill = int(value.value) if dtype.kind == "integer" else value.value

    def run() -> Any:
        return world.torch.full(shape, fill, dtype=world.type(dtype), device=world.device)

    return world.make(a.span, shape, dtype, run)


def _stored(a: Arguments) -> Value:
    """Load the bytes of a file as they are, whatever the turn."""
    name, world = a.values.get("name"), a.world
    if not isinstance(name, str) or not _FILE.fullmatch(name):
        a.wrong("name", "the name of a file in the folder of this one")
    if world.exact:
        a.fail("name", "from_file reads a file; assign it to a name, and expect that.")
    shape, dtype = _shape(a), _dtype(a, _ANY, world.floats)
    size = math.prod(shape) * dtype.size

    def run() -> Any:
        torch = world.torch
        data = _unpacked(Path(world.folder) / name, size)
        if not data:
            return torch.empty(shape, dtype=world.type(dtype), device=world.device)
        return (
            torch.frombuffer(data, dtype=torch.uint8).view(world.type(dtype)).reshape(shape).to(world.device)
        )

    return world.make(a.span, shape, dtype, run)


def _captured(a: Arguments) -> Value:
    """Load a tensor of a file that a capture has written. When the file is read, it is compared with what the spec
    says of the tensor.
    """
    name, key, world = a.values.get("name"), a.values.get("key"), a.world
    if not stored_tensors.is_name(name) or not isinstance(name, str):
        a.wrong("name", f"the name of a *{stored_tensors.SUFFIX} file in the folder of this one")
    if not isinstance(key, str):
        a.wrong("key", "the name of a tensor in the file")
    if world.exact:
        a.fail(
            "name",
            "load reads a file; assign it to a name and expect that, or write 'as captured' behind it.",
        )
    shape, dtype = _shape(a), _dtype(a, _ANY, world.floats)

    def run() -> Any:
        torch = world.torch
        stored = stored_tensors.tensor(world.folder, name, key, world.stored)
        if (stored.dtype, stored.shape) != (dtype.name, shape):
            said = f"{text_of(shape)} of {dtype.name}"
            raise ValueError(f"{key} of {name} is {text_of(stored.shape)} of {stored.dtype}, not {said}")
        return of_stored(torch, stored, world.device)

    return world.make(a.span, shape, dtype, run)


def of_stored(torch: Any, stored: StoredTensor, device: str) -> Any:
    """Return torch's tensor of the stored elements."""
    kind = getattr(torch, stored.dtype)
    if not stored.data:
        return torch.empty(stored.shape, dtype=kind, device=device)
    data = torch.frombuffer(bytearray(stored.data), dtype=torch.uint8)
    return data.view(kind).reshape(stored.shape).to(device)


def _listed(a: Arguments) -> Value:
    """Make `tensor([1, 2, 3])` as torch does."""
    shape, numbers = _flat(a, a.values.get("values"))
    dtype, world = _dtype(a, _ANY, result_type(a.world, numbers)), a.world
    for number in numbers:
        if why := misfit(number, dtype):
            a.fail("values", f"{why[0].upper()}{why[1:]}.")
    plain = [int(number.value) if dtype.kind == "integer" else number.value for number in numbers]

    def run() -> Any:
        return world.torch.tensor(plain, dtype=world.type(dtype), device=world.device).reshape(shape)

    return world.make(a.span, shape, dtype, run)


def _flat(a: Arguments, value: Value) -> tuple[tuple[int, ...], list[Scalar]]:
    """Return the shape of nested lists, and their numbers in C order. Raises SpecError if they have no shape."""
    if isinstance(value, Scalar):
        return (), [value]
    if not isinstance(value, tuple):
        a.wrong("values", "a number or a list of numbers")
    parts = [_flat(a, item) for item in value]
    if len({shape for shape, _ in parts}) > 1:
        a.fail("values", "The lists of one tensor have one length.")
    inner = parts[0][0] if parts else ()
    return (len(parts), *inner), [number for _, numbers in parts for number in numbers]


def _unpacked(path: Path, size: int) -> bytearray:
    """Raises ValueError, which becomes a fault at its place."""
    unpacking = zlib.decompressobj()
    try:
        data = bytearray(
            unpacking.decompress(base64.b64decode(regular_files.read(path, limits.SOURCE)), size + 1)
        )
    except (OSError, zlib.error) as error:
        raise ValueError(f"{path.name} cannot be read: {error}") from None
    if len(data) != size:
        raise ValueError(
            f"{path.name} has {len(data) if len(data) < size else 'more'} bytes; the tensor takes {size}"
        )
    return data


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
    dtype = _dtype(a, ("floating", "integer"), DTYPES["int64"] if whole else a.world.floats)
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
_FORMS: dict[str, tuple[Callable[[Arguments], Value], str]] = {
    "randn": (_drawn("randn"), "normally distributed values"),
    "rand": (_drawn("rand"), "values evenly distributed over [0, 1)"),
    "zeros": (_filled("zeros"), "zeros"),
    "ones": (_filled("ones"), "ones"),
    "empty": (
        _filled("empty"),
        "uninitialized memory, for an output; the right side of an `expect` must not read it",
    ),
}
MAKERS = (
    *(SpecFunction(name, "*size, dtype=None", _G, doc, rule) for name, (rule, doc) in _FORMS.items()),
    SpecFunction("full", "size, value, dtype=None", _G, "one value everywhere", _full),
    SpecFunction("from_file", "name, *size, dtype=None", _G, "elements from a file in the kernel file's folder; that file holds their bytes, compressed with zlib and then encoded in base64", _stored),
    SpecFunction("load", "name, key, *size, dtype=None", _G, "a tensor that a capture stored in a `.orbit.safetensors` file of the kernel file's folder, with the size and type that it has there", _captured),
    SpecFunction("tensor", "values, dtype=None", _G, "these numbers: a list, or a list of lists", _listed),
    SpecFunction("randint", "low, high, *size, dtype=None", _G, "integers from low to high - 1; also randint(high, (size,))", _randint),
    SpecFunction("arange", "start, end=None, step=1, dtype=None", _G, "from start in steps, end not included; arange(n): from 0 to n - 1", _arange),
    *(SpecFunction(f"{name}_like", "x, dtype=None", _G, f"{name} in x's shape and type", rule, method=True) for name, (rule, _) in _FORMS.items()),
    SpecFunction("full_like", "x, value, dtype=None", _G, "one value in x's shape and type", _full, method=True),
    SpecFunction("tensor_map", "x, box, swizzle=0", _G, "a tensor map for TMA: blocks of x with the shape box; swizzle is 0 (none), 32, 64 or 128 bytes", _tensor_map, language="cuda"),
    SpecFunction("from_tensor", "x, block_shape", _G, "TensorDescriptor.from_tensor: a descriptor of blocks of x", _descriptor, language="triton"),
)  # fmt: skip
