"""Turns IOContracts of the evaluation server's requests into launch specs, which the engine runs.

Both a contract and a launch spec name a kernel's arguments with their shapes and contents, and its launch. The spec
stands in lines of its own above the kernel. Places in the text that is run become those of the text that was handed
in.
"""

from __future__ import annotations

import keyword
import math
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from orbit_lsp import kernels
from orbit_lsp.api import tensors
from orbit_lsp.kernels import Language
from orbit_lsp.queue.request import RequestRefusedError
from orbit_lsp.queue.slot_engine import PACKED
from orbit_remote.common import messages as c
from orbit_remote.common.lazy_dataclass import dataclass

_NAME = re.compile(r"[A-Za-z_]\w*")
_WORD = re.compile(r"[\w.+-]*")
_ABOVE = "lines are the io contract of the request"
_INSERTED = re.compile(rf"^(?://|#) the next (\d+) {_ABOVE}$", re.MULTILINE)


class Init(BaseModel):
    """How a tensor is filled: `randn` (mean, std), `uniform` (low, high), `zeros`, `ones`, `full` (fill_value), `arange` (start,
    step).
    """

    kind: str = "randn"
    seed: int | None = None
    mean: float | None = None
    std: float | None = None
    low: float | None = None
    high: float | None = None
    fill_value: float | None = None
    start: float | None = None
    step: float | None = None


class TensorData(BaseModel):
    """The elements themselves in base64, bit for bit: their bytes in C order (`data_b64`, with `compress` zlib or none), or a
    safetensors file (`safetensors_b64`) with the `key` of its tensor.
    """

    data_b64: str = ""
    compress: Literal["none", "zlib"] = "none"
    dtype: str | None = None
    shape: list[int] | None = None
    safetensors_b64: str = ""
    key: str = ""


class TensorSpec(BaseModel):
    """`init` or `data`. Without a `dtype` a tensor has the element type of a CUDA kernel's parameter, else float32."""

    shape: list[int] = Field(default_factory=list[int])
    dtype: str | None = None
    init: Init | None = None
    data: TensorData | None = None


class Argument(BaseModel):
    """`role` is input, output or inout; `is_meta` is a constant of a Triton kernel."""

    name: str
    type: str
    value: int | float | str | bool | None = None
    tensor_spec: TensorSpec | None = None
    role: str = "input"
    is_meta: bool = False


class Dimensions(BaseModel):
    x: int = 1
    y: int = 1
    z: int = 1


class Launch(BaseModel):
    grid: Dimensions | None = None
    block: Dimensions | None = None
    shared_mem_bytes: int | None = None
    num_warps: int | None = None
    num_stages: int | None = None

    @property
    def options(self) -> list[tuple[str, int]]:
        """Return the options of Triton that are given."""
        both = (("num_warps", self.num_warps), ("num_stages", self.num_stages))
        return [(name, value) for name, value in both if value is not None]


class IOContract(BaseModel):
    """The arguments of a kernel in their order, and how it is launched."""

    model_config = ConfigDict(json_schema_extra={"additionalProperties": True})

    args: list[Argument] = Field(max_length=1_000)
    launch: Launch | None = None


class Kernel(BaseModel):
    """A source with its type. `io` (or `io_contract`) says what a kernel's arguments are. `metadata` may have `kernel_name` and
    `compiler_options` (CUDA, Triton), `backend` (CUDA: nvcc or nvrtc), `function_name`, `class_name` and `method_name` (Python), or `entry_point` (multi_kernel: a
    Python function).
    """

    source_code: str
    kernel_type: Literal["torch", "torch_cuda", "triton", "cuda", "multi_kernel"]
    io: IOContract | None = None
    io_contract: IOContract | None = None
    metadata: dict[str, Any] = Field(default_factory=dict[str, Any])

    @property
    def contract(self) -> IOContract | None:
        return self.io or self.io_contract

    @property
    def function(self) -> str:
        """Return the function of a Python source that `metadata` names, or ""."""
        entry = self.word("entry_point") if self.kernel_type == "multi_kernel" else ""
        return self.word("function_name") or entry

    @property
    def target(self) -> str:
        """Return the function or the class that `metadata` names."""
        return self.function or self.word("class_name")

    def word(self, key: str) -> str:
        """Return a name of `metadata`, or "" if it is missing. Raises RequestRefusedError."""
        name = str(self.metadata.get(key) or "")
        if name and not _is_name(name):
            raise RequestRefusedError(f"metadata.{key} is {name!r:.60}; it must be a name")
        return name

    @property
    def kernel_name(self) -> str:
        """Return the name of the kernel in a CUDA or Triton source, with its name spaces or classes if the request
        has them (`a::k`, `A.k`). Return "" if it is missing. Raises RequestRefusedError.
        """
        name = str(self.metadata.get("kernel_name") or "").removeprefix("::")
        if name and not all(map(_is_name, re.split(r"::|\.", name))):
            raise RequestRefusedError(
                f"metadata.kernel_name is {name!r:.60}; it must be a name, as k, a::k or A.k"
            )
        return name

    @property
    def flags(self) -> tuple[str, ...]:
        """Return the compiler's flags. Raises RequestRefusedError."""
        options = self.metadata.get("compiler_options")
        if options is None:
            return ()
        if not isinstance(options, list) or not all(isinstance(option, str) for option in options):  # pyright: ignore[reportUnknownVariableType]
            raise RequestRefusedError("metadata.compiler_options is a list of flags")
        return tuple(str(option) for option in options)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]

    @property
    def backend(self) -> str:
        """Return the compiler of a CUDA source that `metadata` names, or "". Raises RequestRefusedError."""
        backend = str(self.metadata.get("backend") or "")
        if self.kernel_type == "cuda" and backend not in ("", "nvcc", "nvrtc"):
            raise RequestRefusedError(f"metadata.backend is {backend!r:.40}; it must be nvcc or nvrtc")
        return backend


@dataclass(frozen=True, slots=True)
class ContractSpec:
    """A text with the contract as a launch spec above its kernel, that kernel's name, and the files that the spec
    reads.
    """

    text: str
    kernel: str
    files: dict[str, str]


def _is_name(text: str) -> bool:
    return _NAME.fullmatch(text) is not None and not keyword.iskeyword(text)


def with_spec(
    text: str, language: Language, name: str, io: IOContract, iterations: int | None = None
) -> ContractSpec:
    """Write a contract as a launch spec. `iterations` is the largest number of timed launches. Raises
    RequestRefusedError.
    """
    kernel = kernel_of(text, language, name)
    mark = "//" if language == "cuda" else "#"
    lines = text.split("\n")
    at = kernel.whole.line
    files: dict[str, str] = {}
    spec = _lines(kernel.name, language, io, files)
    spec[-1:-1] = [f"iterations {iterations}"] if iterations else []
    lines[at:at] = [f"{mark} the next {len(spec)} {_ABOVE}", *(f"{mark} orbit: {line}" for line in spec)]
    return ContractSpec("\n".join(lines), kernel.qualified, files)


def as_handed_in(problems: Sequence[c.Problem], name: str, text: str) -> tuple[c.Problem, ...]:
    """Return the problems of `text` (the file `name` that was run) at the lines of the text without its contract. A
    problem of the contract itself has no line there.
    """
    inserted = _INSERTED.search(text)
    if inserted is None:
        return tuple(problems)
    first = text.count("\n", 0, inserted.start()) + 1
    last = first + int(inserted[1])

    def moved(place: c.Place | None) -> c.Place | None:
        if place is None or place.file != name or place.line < first:
            return place
        return replace(place, line=place.line - last + first - 1) if place.line > last else None

    def shown(problem: c.Problem) -> c.Problem:
        notes = tuple(replace(note, place=moved(note.place)) for note in problem.notes)
        place = moved(problem.place)
        about = "the io contract: " if problem.place and place is None else ""
        return replace(problem, place=place, notes=notes, message=about + problem.message)

    return tuple(map(shown, problems))


def kernel_of(text: str, language: Language, name: str) -> kernels.Kernel:
    """Return the kernel `name`, with or without its name spaces, or the only kernel. Raises RequestRefusedError."""
    known = [kernel for kernel in kernels.tracker(language).scan(text).kernels if kernel.launchable]
    have = ", ".join(kernel.qualified for kernel in known) or "none"
    if name:
        known = [kernel for kernel in known if name in (kernel.name, kernel.qualified)]
    if len(known) > 1 and len({kernel.qualified for kernel in known}) == 1:
        raise RequestRefusedError(
            f"the source has {len(known)} kernels with the name {known[0].name}; give the one that is launched a name of its own"
        )
    if len(known) != 1:
        what = "metadata.kernel_name has to name the kernel"
        if name:
            what = (
                f"metadata.kernel_name has to be a whole name, as {name} is not the only one"
                if known
                else f"there is no kernel {name}"
            )
        raise RequestRefusedError(f"{what}; the source has: {have}")
    return known[0]


def _lines(kernel: str, language: Language, io: IOContract, files: dict[str, str]) -> list[str]:
    """Return the statements of the launch spec. The files that they read are added to `files`."""
    comments: list[str] = []
    values: list[str] = []
    by_name = False
    for argument in io.args:
        name = named(argument, language)
        if argument.type == "tensor":
            comments.append(f"{name} = {_tensor(argument, files)}")
            values.append(name)
        else:
            values.append(_scalar(argument, language))
        by_name = by_name or (language == "triton" and (argument.is_meta or isinstance(argument.value, str)))
        if by_name:  # as Python has it, all that follow go by name too
            values[-1] = f"{name}={values[-1]}"
    seeds = [
        argument.tensor_spec.init.seed
        for argument in io.args
        if argument.tensor_spec and argument.tensor_spec.init and argument.tensor_spec.init.seed is not None
    ]
    comments += [f"seed {seeds[0]}"] if seeds else []
    return [*comments, f"launch {_launch(kernel, language, io.launch or Launch(), values)}"]


def named(argument: Argument, language: Language = "cuda") -> str:
    """Return the name of an argument. In CUDA a word of Python may be one, such as a kernel's `in`. Raises
    RequestRefusedError.
    """
    if not _NAME.fullmatch(argument.name) or (language == "triton" and keyword.iskeyword(argument.name)):
        raise RequestRefusedError(f"io.args: {argument.name!r:.40} is not a valid name of an argument")
    return argument.name


def tensor_spec(argument: Argument) -> TensorSpec:
    """Return what a tensor is made of: either data or a shape. Raises RequestRefusedError."""
    spec = argument.tensor_spec
    if spec is None:
        raise RequestRefusedError(f"io.args: the tensor {argument.name} needs a tensor_spec with its shape")
    if argument.role not in ("input", "output", "inout"):
        raise RequestRefusedError(
            f"io.args: the role of {argument.name} is {argument.role!r:.20}; it must be input, output or inout"
        )
    if spec.dtype is not None and spec.dtype not in tensors.SIZES:
        raise RequestRefusedError(
            f"io.args: {argument.name} has the element type {spec.dtype!r:.30}; use one of {', '.join(tensors.SIZES)}"
        )
    if spec.data is None and (not spec.shape or not all(0 < size <= 1 << 40 for size in spec.shape)):
        raise RequestRefusedError(
            f"io.args: the shape of {argument.name} is {spec.shape!r:.60}; it must be a list of sizes of at least 1"
        )
    return spec


def _tensor(argument: Argument, files: dict[str, str]) -> str:
    spec = tensor_spec(argument)
    if spec.data is not None:
        tensor = brought(argument.name, spec, spec.data)
        files[f"{argument.name}{PACKED}"] = tensor.packed()
        return (
            f'from_file("{argument.name}{PACKED}", {", ".join(map(str, tensor.shape))}{_typed(tensor.dtype)})'
        )
    size = ", ".join(map(str, spec.shape))
    if argument.role == "output" and spec.init is None:
        return f"empty({size}{_typed(spec.dtype)})"
    filled = _filled(argument.name, spec.init or Init(), size, spec.shape)
    return f"to({filled}, {spec.dtype})" if spec.dtype else filled


def _typed(dtype: str | None) -> str:
    return f", dtype={dtype}" if dtype else ""


def brought(name: str, spec: TensorSpec, data: TensorData) -> tensors.PackedTensor:
    """Return the elements that came with the request. Raises RequestRefusedError."""
    if spec.init is not None:
        raise RequestRefusedError(f"io.args: {name} has both init and data; give one of them")
    if data.safetensors_b64:
        tensor = tensors.from_safetensors(data.safetensors_b64, data.key, name)
        wanted = spec.dtype or tensor.dtype, tuple(spec.shape) or tensor.shape
    else:
        dtype, shape = data.dtype or spec.dtype or "float32", data.shape or spec.shape
        tensor = tensors.from_bytes(data.data_b64, dtype, shape, name, compressed=data.compress == "zlib")
        wanted = spec.dtype or dtype, tuple(spec.shape or shape)
    if wanted != (tensor.dtype, tensor.shape) or not tensor.shape or 0 in tensor.shape:
        raise RequestRefusedError(
            f"io.args: {name} is {wanted[0]} {list(wanted[1])}, and its data is {tensor.dtype} {list(tensor.shape)}; both must be the "
            "same, with at least one dimension and one element"
        )
    return tensor


def not_filled(name: str, init: Init) -> RequestRefusedError:
    return RequestRefusedError(
        f"io.args: {name} cannot be filled by {init.kind!r:.20}; use randn, uniform, zeros, ones, full with its fill_value, or arange"
    )


def _filled(name: str, init: Init, size: str, shape: Sequence[int]) -> str:
    match init.kind:
        case "randn":
            return _scaled(f"randn({size})", init.std, init.mean)
        case "uniform":
            low, high = init.low or 0.0, 1.0 if init.high is None else init.high
            return _scaled(f"rand({size})", high - low, low)
        case "zeros" | "ones":
            return f"{init.kind}({size})"
        case "full" if init.fill_value is not None:
            return _scaled(f"ones({size})", init.fill_value, None)
        case "arange":
            start, step = init.start or 0.0, 1.0 if init.step is None else init.step
            count = f"arange({math.prod(shape)})"
            return _scaled(count if len(shape) == 1 else f"reshape({count}, {size})", step, start)
        case _:
            raise not_filled(name, init)


def _scaled(tensor: str, factor: float | None, offset: float | None) -> str:
    if factor not in (None, 1.0):
        tensor = f"{tensor} * {number(factor)}"
    return f"{tensor} + {number(offset)}" if offset else tensor


def number(value: float | None) -> str:
    """Write a number for an expression. Raises RequestRefusedError."""
    if value is None or not math.isfinite(value):
        raise RequestRefusedError(f"io.args: {value} is not a number that a tensor can be filled with")
    text = str(int(value)) if value == int(value) and abs(value) < 1 << 53 else repr(value)
    return f"({text})" if value < 0 else text


def scalar(argument: Argument) -> bool | int | float | str:
    """Return the value of an argument that is no tensor. A text is an argument of a Python function, or a constant of
    Triton. Raises RequestRefusedError.
    """
    value = argument.value
    if argument.type == "str":
        if not isinstance(value, str):
            raise RequestRefusedError(
                f"io.args: {argument.name} is {value!r:.40}, and its type is str; give a text"
            )
        return value
    if isinstance(value, (bool, int)) or (isinstance(value, float) and math.isfinite(value)):
        return value
    if isinstance(value, str) and argument.is_meta and _WORD.fullmatch(value):
        return value
    raise RequestRefusedError(
        f"io.args: {argument.name} is {value!r:.40}; a scalar needs a number or a truth value"
    )


def _scalar(argument: Argument, language: Language) -> str:
    value = scalar(argument)
    if isinstance(value, str):
        if language == "cuda":
            raise RequestRefusedError(
                f"io.args: {argument.name} is a text, which no CUDA kernel takes; give a number, a truth value or a tensor"
            )
        if not _WORD.fullmatch(value):
            raise RequestRefusedError(
                f"io.args: {argument.name} is {value!r:.40}; a text that a Triton kernel is given may have letters, digits and "
                "the signs _ . + - only"
            )
        return f'"{value}"'
    return str(value).lower() if isinstance(value, bool) and language == "cuda" else repr(value)


def _launch(kernel: str, language: Language, launch: Launch, values: Sequence[str]) -> str:
    if launch.grid is None:
        raise RequestRefusedError("io.launch needs a grid")
    grid = launch.grid
    if language == "cuda":
        if launch.block is None:
            raise RequestRefusedError("io.launch needs a block")
        block = launch.block
        shared = f", {launch.shared_mem_bytes}" if launch.shared_mem_bytes else ""
        shape = f"dim3({grid.x}, {grid.y}, {grid.z}), dim3({block.x}, {block.y}, {block.z}){shared}"
        return f"{kernel}<<<{shape}>>>({', '.join(values)})"
    options = [f"{name}={value}" for name, value in launch.options]
    return f"{kernel}[({grid.x}, {grid.y}, {grid.z})]({', '.join([*values, *options])})"
