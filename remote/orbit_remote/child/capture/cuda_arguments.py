"""Reads the arguments of a CUDA launch that was taken, from its bytes and the types of its parameters: numbers, and
tensors in its memory.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from orbit_remote.child.capture.launch_watch import Form, NotCapturedError
from orbit_remote.common import symbols
from orbit_remote.common.lazy_dataclass import dataclass
from orbit_remote.recording.taken_launch import TakenLaunch
from orbit_remote.spec import signature as spec_signature
from orbit_remote.spec.dtypes import DTYPES, DType
from orbit_remote.spec.interpreter import is_known
from orbit_remote.spec.signature import Parameter, Signature

_FLOATS: Final = {"float16": "e", "float32": "f", "float64": "d"}
_OF_BYTES: Final = DTYPES["uint8"]
"""What memory of a type that launch specs do not have is taken for: `void`, a struct."""

Argument = Form | int | float | bool | None


@dataclass(frozen=True, slots=True)
class CudaArguments:
    """The arguments by parameter, in order. A pointer is a tensor of one dimension, up to the next pointer into the
    same allocation or to its end. `typed` are those whose elements have the parameter's own type.
    """

    values: dict[str, Argument]
    typed: frozenset[str]


def instance(symbol: str) -> tuple[str, str]:
    """Return the template arguments and the parameters' types of a mangled name: (`<32, float>`, `float const*,
    int`). Both are "" if it has none.
    """
    whole = symbols.demangle(symbol)
    name = symbols.short_name(symbol)
    if whole == symbol or not whole.endswith(")"):
        return "", ""
    start = symbols.opening(whole, "(")
    templates = name[symbols.opening(name, "<") :] if name.endswith(">") else ""
    return templates, whole[start + 1 : -1]


def signature_of(header: Signature, types: str) -> Signature:
    """Return the kernel's signature with the types that were compiled, and with names that a launch spec can give to
    its arguments.
    """
    known = spec_signature.compiled(header, types) if types else header
    named: list[Parameter] = []
    taken = {parameter.name for parameter in known.parameters}
    for at, parameter in enumerate(known.parameters):
        name = parameter.name or f"p{at}"
        while is_known(name, "cuda") or (name != parameter.name and name in taken):
            name += "_"
        named.append(replace(parameter, name=name))
    return replace(known, parameters=tuple(named))


def read(taken: TakenLaunch, parameters: Sequence[Parameter]) -> CudaArguments:
    """Raises NotCapturedError for what a launch spec cannot pass."""
    if len(taken.parameters) != len(parameters):
        raise NotCapturedError(
            f"it was launched with {len(taken.parameters)} arguments, and its text has {len(parameters)} parameters: another kernel has its name"
        )
    pointing = {at: to for at, offset, to in taken.pointers if offset == 0}
    inside = {at for at, offset, _ in taken.pointers if offset}
    addresses = sorted(
        {int.from_bytes(taken.argument(at), "little") for at in pointing if taken.parameters[at][1] == 8}
    )
    values: dict[str, Argument] = {}
    typed: set[str] = set()
    for at, parameter in enumerate(parameters):
        if at in inside or (parameter.kind == "refused" and at in pointing and taken.parameters[at][1] > 8):
            raise NotCapturedError(
                f"{parameter.name} is a struct that has pointers in it, which a launch spec cannot pass"
            )
        if parameter.refused:
            raise NotCapturedError(parameter.refused.rstrip("."))
        if parameter.kind == "tensor map":
            raise NotCapturedError(f"{parameter.name} is a tensor map, which is not captured")
        data = taken.argument(at)
        if parameter.kind != "pointer":
            if at in pointing:
                raise NotCapturedError(
                    f"{parameter.name} is an address of memory, which a launch spec cannot describe"
                )
            values[parameter.name] = number(parameter, data)
            continue
        address = int.from_bytes(data, "little")
        if at not in pointing and address:
            raise NotCapturedError(
                f"{parameter.name} points to memory that the driver does not know, as that of the host",
                "allocate it by cudaMalloc",
            )
        if not address:
            values[parameter.name] = None
            continue
        dtype = DTYPES[parameter.element] if parameter.element else _OF_BYTES
        values[parameter.name] = _form(taken, pointing[at], address, addresses, dtype)
        if parameter.element:
            typed.add(parameter.name)
    return CudaArguments(values, frozenset(typed))


def _form(taken: TakenLaunch, at: int, address: int, addresses: Sequence[int], dtype: DType) -> Form:
    known = taken.ranges[at]
    if not known.begin <= address < known.end:
        raise NotCapturedError("what was recorded of it is damaged")
    end = min([known.end, *(each for each in addresses if address < each < known.end)])
    return Form(dtype.name, ((end - address) // dtype.size,), (1,), address)


def number(parameter: Parameter, data: bytes) -> int | float | bool:
    """Return a scalar argument. Raises NotCapturedError for a type that has no numbers in Python."""
    dtype = DTYPES.get(parameter.element)
    if dtype is None or dtype.size != len(data):
        raise NotCapturedError(
            f"{parameter.name} is {parameter.type} of {len(data)} bytes, which a launch spec cannot pass"
        )
    if dtype.kind == "bool":
        return data != b"\0"
    if dtype.kind == "integer":
        return int.from_bytes(data, "little", signed=dtype.signed)
    if dtype.name == "bfloat16":
        data, code = b"\0\0" + data, "f"
    elif (code := _FLOATS.get(dtype.name, "")) == "":
        raise NotCapturedError(
            f"{parameter.name} is a number of {dtype.name}, which a launch spec cannot pass"
        )
    return float(struct.unpack(f"<{code}", data)[0])


def shown(value: float | bool, dtype: str) -> str:
    """Return a number in the spelling of C++."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return f"{value}ull" if value >= 1 << 63 else str(value)
    return _real(value, dtype) + ("f" if dtype == "float32" and math.isfinite(value) else "")


def _real(value: float, dtype: str) -> str:
    """Return the shortest C++ number that equals this one in its type."""
    if math.isnan(value):
        return "NAN"
    if math.isinf(value):
        return "-INFINITY" if value < 0 else "INFINITY"
    if dtype == "float64":
        return repr(value)
    code = _FLOATS.get(dtype, "f")
    wanted = struct.pack(f"<{code}", value)
    for digits in range(1, 10):
        text = f"{value:.{digits}g}"
        if struct.pack(f"<{code}", float(text)) == wanted:
            break
    else:
        text = repr(value)
    return text if any(mark in text for mark in ".e") else f"{text}.0"


def sizes(arguments: Mapping[str, Argument]) -> dict[str, int]:
    """Return the positive integers among the arguments, which may be sizes."""
    return {name: value for name, value in arguments.items() if type(value) is int and value > 0}
