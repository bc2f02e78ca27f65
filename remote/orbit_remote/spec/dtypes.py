"""Element types: their sizes, their names in torch and in C++, how they mix, and how closely they compare."""

from __future__ import annotations

import ast
import math
from typing import Literal

from orbit_remote.common.lazy_dataclass import dataclass

Kind = Literal["bool", "integer", "floating"]


@dataclass(frozen=True, slots=True)
class DType:
    """An element type. `rtol` and `atol` are what `expect` allows for an output of this type. `unit` is the unit
    roundoff.
    """

    name: str
    size: int
    kind: Kind
    signed: bool = True
    rtol: float = 0.0
    atol: float = 0.0
    unit: float = 0.0
    largest: float = math.inf

    @property
    def lowest(self) -> int:
        return -(1 << (8 * self.size - 1)) if self.kind == "integer" and self.signed else 0

    @property
    def highest(self) -> int:
        return (1 << (8 * self.size - self.signed)) - 1 if self.kind == "integer" else 1


# rtol and atol of float64, float32, float16 and bfloat16 are those of torch.testing.assert_close
# (docs.pytorch.org/docs/stable/testing.html). It has none for fp8. There one step between neighbours is
# allowed, 2^-3 and 2^-2 of a value, because two correct kernels may round to either side of a tie, and
# absolutely the smallest subnormal, 2^-9 and 2^-16 (the OCP 8-bit floating point specification 1.0).
_TYPES = (
    DType("bool", 1, "bool", signed=False),
    DType("int8", 1, "integer"),
    DType("int16", 2, "integer"),
    DType("int32", 4, "integer"),
    DType("int64", 8, "integer"),
    DType("uint8", 1, "integer", signed=False),
    DType("uint16", 2, "integer", signed=False),
    DType("uint32", 4, "integer", signed=False),
    DType("uint64", 8, "integer", signed=False),
    DType("float8_e4m3fn", 1, "floating", rtol=2**-3, atol=2**-9, unit=2**-4, largest=448.0),
    DType("float8_e5m2", 1, "floating", rtol=2**-2, atol=2**-16, unit=2**-3, largest=57344.0),
    DType("float16", 2, "floating", rtol=1e-3, atol=1e-5, unit=2**-11, largest=65504.0),
    DType("bfloat16", 2, "floating", rtol=1.6e-2, atol=1e-5, unit=2**-8, largest=3.3895313892515355e38),
    DType("float32", 4, "floating", rtol=1.3e-6, atol=1e-5, unit=2**-24, largest=3.4028234663852886e38),
    DType("float64", 8, "floating", rtol=1e-7, atol=1e-7, unit=2**-53, largest=1.7976931348623157e308),
)
DTYPES: dict[str, DType] = {dtype.name: dtype for dtype in _TYPES}

_TORCH = {
    "half": "float16", "double": "float64", "float": "float32", "int": "int32", "long": "int64", "short": "int16",
    "fp16": "float16", "bf16": "bfloat16", "fp32": "float32", "fp64": "float64", "int1": "bool",
    "float8e4nv": "float8_e4m3fn", "float8e5": "float8_e5m2",
}  # fmt: skip
"""Names beside the canonical ones, of torch and of `triton.language`; `int` is a C++ author's."""

CPP: dict[str, str] = {
    "bool": "bool", "char": "int8", "signed char": "int8", "unsigned char": "uint8", "short": "int16",
    "unsigned short": "uint16", "int": "int32", "signed": "int32", "unsigned": "uint32", "unsigned int": "uint32",
    "long": "int64", "unsigned long": "uint64", "long long": "int64", "unsigned long long": "uint64",
    "float": "float32", "double": "float64", "int8_t": "int8", "int16_t": "int16", "int32_t": "int32",
    "int64_t": "int64", "uint8_t": "uint8", "uint16_t": "uint16", "uint32_t": "uint32", "uint64_t": "uint64",
    "size_t": "uint64", "ptrdiff_t": "int64", "ssize_t": "int64", "uchar": "uint8", "ushort": "uint16",
    "uint": "uint32", "ulong": "uint64", "half": "float16", "__half": "float16", "__half_raw": "float16",
    "nv_half": "float16", "__nv_bfloat16": "bfloat16", "nv_bfloat16": "bfloat16", "bfloat16": "bfloat16",
    "__nv_bfloat16_raw": "bfloat16", "__nv_fp8_e4m3": "float8_e4m3fn", "__nv_fp8_e5m2": "float8_e5m2",
    "__nv_fp8_storage_t": "uint8", "at::Half": "float16", "c10::Half": "float16", "at::BFloat16": "bfloat16",
    "c10::BFloat16": "bfloat16", "cutlass::half_t": "float16", "cutlass::bfloat16_t": "bfloat16",
    "half_t": "float16", "bfloat16_t": "bfloat16", "cuda::std::byte": "uint8", "std::byte": "uint8",
}  # fmt: skip
"""C++ types on the platforms of CUDA with 64 bits under Linux, where `long` has 64."""

_SPELLED = {
    "bool": "bool", "int8": "signed char", "int16": "short", "int32": "int", "int64": "long", "uint8": "unsigned char",
    "uint16": "unsigned short", "uint32": "unsigned int", "uint64": "unsigned long", "float16": "__half",
    "bfloat16": "__nv_bfloat16", "float32": "float", "float64": "double", "float8_e4m3fn": "__nv_fp8_e4m3",
    "float8_e5m2": "__nv_fp8_e5m2",
}  # fmt: skip

_VECTOR_BASES = {
    "char": "int8", "uchar": "uint8", "short": "int16", "ushort": "uint16", "int": "int32", "uint": "uint32",
    "long": "int64", "ulong": "uint64", "longlong": "int64", "ulonglong": "uint64", "float": "float32",
    "double": "float64",
}  # fmt: skip
VECTORS: dict[str, tuple[str, int]] = {
    f"{base}{lanes}": (name, lanes) for base, name in _VECTOR_BASES.items() for lanes in (1, 2, 3, 4)
} | {
    "half2": ("float16", 2), "__half2": ("float16", 2), "__nv_bfloat162": ("bfloat16", 2),
    "nv_bfloat162": ("bfloat16", 2), "__nv_fp8x2_e4m3": ("float8_e4m3fn", 2), "__nv_fp8x4_e4m3": ("float8_e4m3fn", 4),
    "__nv_fp8x2_e5m2": ("float8_e5m2", 2), "__nv_fp8x4_e5m2": ("float8_e5m2", 4),
}  # fmt: skip
"""CUDA's vector types (`vector_types.h`): element type and number of lanes."""

RANK = {"bool": 0, "integer": 1, "floating": 2}


def named(name: str, language: str) -> DType | None:
    """Return the type that a name means in an expression of this language."""
    dtype = CPP.get(name) if language == "cuda" else None
    return DTYPES.get(dtype or _TORCH.get(name, name))


def cpp(name: str) -> tuple[DType, int] | None:
    """Return the element type and the lanes of a C++ type."""
    if name in CPP:
        return DTYPES[CPP[name]], 1
    if name in VECTORS:
        return DTYPES[VECTORS[name][0]], VECTORS[name][1]
    return None


def spelled(dtype: DType) -> str:
    """Return a C++ type of these elements."""
    return _SPELLED[dtype.name]


def promote(left: DType, right: DType) -> DType:
    """Return the common type by torch's rule for two tensors with dimensions. fp8 and the wide unsigned types are no
    operands there.
    """
    if left is right:
        return left
    if left.kind != right.kind:
        return max(left, right, key=lambda dtype: RANK[dtype.kind])
    if left.size != right.size:
        wide, narrow = (left, right) if left.size > right.size else (right, left)
        if wide.signed or not narrow.signed:
            return wide
    if left.kind == "floating":
        return DTYPES["float32"]  # float16 and bfloat16
    return DTYPES[f"int{16 * max(left.size, right.size)}"]  # uint8 and int8


_LONGEST_CHAIN = 4096
_FACTOR = 8.0


@dataclass(frozen=True, slots=True)
class Tolerance:
    """A tolerance. An element passes if |actual - expected| <= atol + rtol * |expected| + chain * rms.

    `rms` is the root mean square of all expected values. `chain` allows for what long sums lose.
    """

    rtol: float
    atol: float
    chain: float = 0.0


def tolerance(output: DType, terms: int) -> Tolerance:
    """Return what `expect` allows if the author gives no `within`.

    Rounding errors of a sum of k terms grow as sqrt(k) u (Higham and Mary, "A new approach to probabilistic rounding
    error analysis", 2019), relative to the size of the sums, not of the one result, which may cancel to nothing. u is
    that of float32 for all narrower types, because kernels accumulate in float32. With normally distributed inputs
    the largest of 10^7 errors of a serial sum is near 2.2 sqrt(k) u rms; the factor of 8 leaves room for other data.
    Any kernel with more than one thread adds sums longer than 4096 in parts, so k stops there: a sum of 2^26 numbers
    that leaves out one of them is still found.
    """
    if output.kind != "floating":
        return Tolerance(0.0, 0.0)
    if terms <= 1:
        return Tolerance(output.rtol, output.atol)
    unit = min(output.unit, DTYPES["float32"].unit)
    return Tolerance(output.rtol, output.atol, _FACTOR * unit * math.sqrt(min(terms, _LONGEST_CHAIN)))


def told(tree: ast.AST) -> str:
    """Return the type of floats of the tensors that a Python file fills: `torch.randn(…, dtype=torch.float16)`,
    `.half()`, `.to(…)`. Return "" if it fills none, or fills several types. A tensor that is made `empty` is an
    output, which says nothing about inputs.
    """
    names: set[str] = set()
    converted: set[int] = set()
    for node in ast.walk(tree):  # what converts stands around what it converts
        match node:
            case ast.Call(
                func=ast.Attribute(value=made, attr="to"),
                args=[*_, ast.Attribute(value=ast.Name(id="torch"), attr=name)],
            ):
                names.add(name)
                converted.add(id(made))
            case ast.Call(func=ast.Attribute(value=made, attr="half" | "bfloat16" as name), args=[]):
                names.add(name)
                converted.add(id(made))
            case ast.Call(func=ast.Attribute(value=made, attr="cuda")) if id(node) in converted:
                converted.add(id(made))
            case ast.Call(
                func=ast.Attribute(
                    value=ast.Name(id="torch"), attr="rand" | "randn" | "ones" | "full" as maker
                ),
                keywords=keywords,
            ) if id(node) not in converted:
                given = {each.arg: each.value for each in keywords}
                match given.get("dtype"):
                    case ast.Attribute(value=ast.Name(id="torch"), attr=name):
                        names.add(name)
                    case None if maker in ("rand", "randn"):
                        names.add("float32")
                    case _:
                        pass
            case _:
                pass
    known = {dtype.name for name in names if (dtype := named(name, "triton")) and dtype.kind == "floating"}
    return known.pop() if len(known) == 1 else ""
