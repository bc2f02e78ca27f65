"""The values of a spec: numbers with their C++ or Python type, and tensors as shape, strides and dtype.

One interpreter serves both sides. On the author's side a tensor is a description. With a `torch` it also carries real
data.
"""

from __future__ import annotations

import functools
import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from typing import Any, Final

from orbit_remote.common.lazy_dataclass import dataclass
from orbit_remote.spec import dtypes
from orbit_remote.spec.dtypes import DTYPES, DType
from orbit_remote.spec.syntax_tree import Lambda, Language, SpecError, SpecSpan

_UNSIGNED: Final = frozenset(("uint16", "uint32", "uint64"))
LARGEST: Final = 1 << 63
MOST_DIMENSIONS: Final = 8
MOST_BYTES: Final = 1 << 40
"""The largest tensor of any size that a spec describes: 1 TiB, more than a GPU holds."""


@dataclass(frozen=True, slots=True)
class Scalar:
    """A number. `type` is a dtype's name in CUDA files; in Python files it is `int`, `float` or `bool`."""

    value: int | float | bool
    type: str

    @property
    def integral(self) -> bool:
        return self.type == "int" or (self.type in DTYPES and DTYPES[self.type].kind == "integer")

    @property
    def dtype(self) -> DType:
        """Return the dtype that torch gives a tensor filled with this number."""
        return DTYPES[{"int": "int64", "float": "float32"}.get(self.type, self.type)]


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor. `strides` count elements. `data` is torch's tensor, if there is one.

    `terms` is the length of the longest sum that an element went through, for the tolerance. `unset` says that it is
    `empty(…)`; nothing may be expected of it before the launch. `storage` names the assignment whose memory it lies
    in, which views share.
    """

    shape: tuple[int, ...]
    dtype: DType
    strides: tuple[int, ...]
    data: Any = field(default=None, compare=False)
    terms: int = 1
    unset: bool = False
    storage: str = ""

    @property
    def numel(self) -> int:
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        return self.numel * self.dtype.size


@dataclass(frozen=True, slots=True)
class TensorMap:
    """A tensor map of the Tensor Memory Accelerator (or Triton's host-side descriptor): blocks of a tensor."""

    tensor: Tensor
    box: tuple[int, ...]
    swizzle: int = 0


@dataclass(frozen=True, slots=True)
class Dim3:
    x: int
    y: int = 1
    z: int = 1


Value = Scalar | Tensor | TensorMap | Dim3 | DType | str | Lambda | tuple[Any, ...] | None


def contiguous(shape: Sequence[int]) -> tuple[int, ...]:
    """Return the strides of a tensor whose last dimension is dense, as torch computes them."""
    strides: list[int] = []
    step = 1
    for extent in reversed(shape):
        strides.append(step)
        step *= max(extent, 1)
    return tuple(reversed(strides))


def shown(value: Value) -> str:
    """Return what an author calls a value, in a few words."""
    match value:
        case Scalar():
            return f"the {value.type} {value.value}"
        case Tensor():
            return f"a tensor {text_of(value.shape)} of {value.dtype.name}"
        case TensorMap():
            return "a tensor map"
        case Dim3():
            return "a dim3"
        case DType():
            return "a type"
        case str():
            return "a text"
        case Lambda():
            return "a function"
        case None:
            return "None"
        case _:
            return "a list"


def sentence(value: Value, rest: str) -> str:
    """Return a sentence: `A tensor (4,) of float32 takes no index.`"""
    text = shown(value)
    return f"{text[0].upper()}{text[1:]} {rest}"


def text_of(shape: Sequence[int]) -> str:
    return f"({', '.join(map(str, shape))}{',' if len(shape) == 1 else ''})"


def amount(size: float) -> str:
    """Write a number of bytes: `1.5 GB`, in decimal units."""
    for unit in ("B", "KB", "MB", "GB", "TB"):
        if size < 1000 or unit == "TB":
            return f"{size:.4g} {unit}"
        size /= 1000
    raise AssertionError


@dataclass
class NodeBudget:
    """How many nodes may still be evaluated, counted over all worlds that share it."""

    left: int = 400_000


@dataclass
class World:
    """Where an expression is evaluated.

    `torch` is the module, or None to describe only; `device` is torch's. `seed` and `turn` choose the random numbers:
    another turn has other data. `exact` is set for `expect`: there floating tensors are float64, and a cast to a
    narrower type rounds to it and goes on in float64. `wide` is set for `bytes` and `flops`: every integer has 64
    bits. `hint` is the type for a maker without one. `memory` is the most that one tensor may take. `folder` is that
    of the file with the spec; files in `stored` replace those in it. With `portable` random numbers are the same on
    GPUs of any size, which takes more launches.
    """

    language: Language
    torch: Any = None
    device: str = "cpu"
    seed: int = 0
    turn: int = 0
    memory: int = MOST_BYTES
    exact: bool = False
    wide: bool = False
    hint: DType | None = None
    owner: str = ""
    folder: str = ""
    stored: Mapping[str, bytes] = field(default_factory=dict[str, bytes])
    portable: bool = False
    made: int = 0
    work: NodeBudget = field(default_factory=NodeBudget)

    # -- making tensors ------------------------------------------------------------------------------

    def make(
        self,
        span: SpecSpan,
        shape: Sequence[int],
        dtype: DType,
        run: Callable[[], Any],
        terms: int = 1,
        *,
        unset: bool = False,
    ) -> Tensor:
        """Make a tensor with its last dimension dense. `run` makes it with torch."""
        shape = tuple(shape)
        self.bound(span, shape, dtype)
        data = None
        if self.torch is not None:
            wanted = self.type(dtype)
            data = self.ran(span, lambda: run().to(wanted).contiguous())
        return Tensor(shape, dtype, contiguous(shape), data, terms, unset)

    def view(
        self, span: SpecSpan, of: Tensor, shape: Sequence[int], strides: Sequence[int], run: Callable[[], Any]
    ) -> Tensor:
        """Return a tensor with other indices into the same memory."""
        self.bound(span, shape, of.dtype)
        data = self.ran(span, run) if self.torch is not None else None
        return replace(of, shape=tuple(shape), strides=tuple(strides), data=data)

    def ran(self, span: SpecSpan, run: Callable[[], Any]) -> Any:
        """Run a function of torch. Its refusals become faults; running out of memory does not. Raises SpecError and
        torch.OutOfMemoryError.
        """
        try:
            return run()
        except self.torch.OutOfMemoryError:
            raise
        except (RuntimeError, TypeError, ValueError, IndexError, NotImplementedError) as error:
            message = (str(error).strip() or type(error).__name__).splitlines()[0]
            raise SpecError(span, f"torch refuses this: {message[:200]}") from None

    def bound(self, span: SpecSpan, shape: Sequence[int], dtype: DType) -> None:
        """Raises SpecError for too many dimensions, a negative extent or more bytes than a spec may have."""
        if len(shape) > MOST_DIMENSIONS:
            raise SpecError(span, f"A tensor has at most {MOST_DIMENSIONS} dimensions.")
        if any(extent < 0 for extent in shape):
            raise SpecError(span, f"A tensor cannot have the shape {text_of(shape)}.")
        size = math.prod(shape) * dtype.size
        if size > self.memory:
            raise SpecError(span, f"This takes {amount(size)}; there is room for {amount(self.memory)}.")

    def type(self, dtype: DType) -> Any:
        return getattr(self.torch, dtype.name)

    def generator(self) -> Any:
        """Return torch's source of random numbers for the next random tensor. It is the same for the same text and
        seed.
        """
        self.made += 1
        name = f"{self.seed}/{self.turn}/{self.owner}/{self.made}"
        digest = hashlib.blake2b(name.encode(), digest_size=8).digest()
        made = self.torch.Generator(device=self.device)
        made.manual_seed(int.from_bytes(digest, "little") >> 1)
        return made

    # -- converting tensors --------------------------------------------------------------------------

    def cast(self, span: SpecSpan, tensor: Tensor, dtype: DType) -> Tensor:
        """Return the same values in another type. In exact worlds floating values are rounded to it and stay float64."""
        if tensor.dtype is dtype:
            return tensor
        final = DTYPES["float64"] if self.exact and dtype.kind == "floating" else dtype

        def run() -> Any:
            return tensor.data.to(self.type(dtype)).to(self.type(final))

        return self.make(span, tensor.shape, final, run, tensor.terms, unset=tensor.unset)

    def precise(self, tensor: Tensor) -> Tensor:
        """Return a tensor for `expect`: floating values are float64, and nothing is lost."""
        return self._widened(tensor, "float64") if tensor.dtype.kind == "floating" else tensor

    def operand(self, span: SpecSpan, tensor: Tensor) -> Tensor:
        """Return what torch can calculate with: it has no arithmetic for fp8 and for unsigned types beyond 8 bits.
        Raises SpecError.
        """
        if tensor.dtype.name.startswith("float8"):
            raise SpecError(
                span, f"{tensor.dtype.name} has no arithmetic; convert it first, as in x.float()."
            )
        return self._widened(tensor, "int64") if tensor.dtype.name in _UNSIGNED else tensor

    def floating(self, span: SpecSpan, tensor: Tensor) -> Tensor:
        """Return a floating tensor: integers become float32 as in torch, in exact worlds float64."""
        tensor = self.operand(span, tensor)
        return tensor if tensor.dtype.kind == "floating" else self._widened(tensor, self.floats.name)

    def _widened(self, tensor: Tensor, name: str) -> Tensor:
        dtype = DTYPES[name]
        data = tensor.data.to(self.type(dtype)) if tensor.data is not None else None
        return replace(tensor, dtype=dtype, data=data)

    @property
    def floats(self) -> DType:
        """Return the type of floating makers if nothing else is said."""
        return DTYPES["float64" if self.exact else "float32"]


def broadcast(span: SpecSpan, left: Sequence[int], right: Sequence[int]) -> tuple[int, ...]:
    """Return the common shape by torch's rule. Raises SpecError if the shapes do not fit."""
    size = max(len(left), len(right))
    first = (1,) * (size - len(left)) + tuple(left)
    second = (1,) * (size - len(right)) + tuple(right)
    for a, b in zip(first, second, strict=True):
        if a != b and 1 not in (a, b):
            raise SpecError(span, f"The shapes {text_of(left)} and {text_of(right)} do not go together.")
    return tuple(b if a == 1 else a for a, b in zip(first, second, strict=True))


def result_type(world: World, values: Sequence[Tensor | Scalar]) -> DType:
    """Return the common type by torch's rule: a number, or a tensor without dimensions, only decides if its kind is
    higher.
    """
    tensors = [value for value in values if isinstance(value, Tensor)]
    numbers = [value for value in values if isinstance(value, Scalar)]
    groups = (
        [tensor.dtype for tensor in tensors if tensor.shape],
        [tensor.dtype for tensor in tensors if not tensor.shape],
        [DTYPES["int64"] if n.integral else world.floats if n.type != "bool" else n.dtype for n in numbers],
    )
    result = DTYPES["bool"]
    for group in groups:
        own = functools.reduce(dtypes.promote, group, DTYPES["bool"])
        if dtypes.RANK[own.kind] > dtypes.RANK[result.kind]:
            result = own
    return world.floats if world.exact and result.kind == "floating" else result
