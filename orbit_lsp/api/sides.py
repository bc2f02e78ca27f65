"""Turns the sides of an evaluation into KernelBench's `Model` and `ModelNew`. A side may be a Python class or
function with its inputs in an IOContract, or a Triton or CUDA kernel with its contract.

Both sides get the same arguments: those of the reference's contract, with new random values in each call, or those of
its `get_inputs`. A kernel gets the tensors among them as its own inputs, and returns its outputs. NVRTC compiles a
CUDA kernel, in the process of its side.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from orbit_lsp.api import io_contract
from orbit_lsp.api.io_contract import Argument, IOContract, Kernel
from orbit_lsp.api.submitted_sources import BROUGHT, SOURCES
from orbit_lsp.queue.request import Request, RequestRefusedError
from orbit_lsp.specs import spec_blocks
from orbit_remote.common import limits, nvcc_flags
from orbit_remote.common import messages as c
from orbit_remote.common.contracts import harness_files
from orbit_remote.common.lazy_dataclass import dataclass
from orbit_remote.spec import rules
from orbit_remote.spec.dtypes import DTYPES
from orbit_remote.spec.scalars import misfit
from orbit_remote.spec.signature import Parameter, Signature, signature
from orbit_remote.spec.values import Scalar

_ALONE = "# by itself: the candidate is the same source\n"
"""How a reference ends that nothing is compared with."""
FILES = "candidate_new.py", "candidate.py"
"""The candidate's and the reference's, as they are run."""
_Role = Literal["Model", "ModelNew"]
_SIDE = BROUGHT + textwrap.dedent("""
    import inspect

    def _takes(called, values):
        try:
            inspect.signature(called).bind(*values)
        except TypeError:
            return False
        except ValueError:  # a built-in function tells nothing
            pass
        return True

    def _tensors(given):
        return [value for value in given if isinstance(value, torch.Tensor)]

    def _device(given):
        return next((tensor.device for tensor in _tensors(given)), torch.device("cuda"))

    def _passed(given, own):
        # `own` has None for each tensor that the contract names, and its scalars
        tensors = _tensors(given)
        if own is None or (len(given) == len(own) and len(tensors) != own.count(None)):
            return list(given)
        if len(tensors) != own.count(None):
            raise TypeError(
                f"{len(tensors)} tensors come from the reference's inputs, and the io contract of this side has {own.count(None)}"
            )
        tensors = iter(tensors)
        return [next(tensors) if value is None else value for value in own]
""")
_PYTHON = textwrap.dedent("""
    class {role}(nn.Module):
        def __init__(self, *arguments, **named):
            super().__init__()
            self.inner = {made}
            self.scalars = None

        def forward(self, *given):
            values = _passed({given}, {own!r})
            if self.scalars is None:  # a contract may be that of a kernel, which needs sizes
                self.scalars = _takes({signed}, values)
            return {called}(*(values if self.scalars else _tensors(values)))
""")
_KERNEL = textwrap.dedent("""
    class {role}(nn.Module):
        def __init__(self, *_, **__):  # what get_init_inputs returns is for a class
            super().__init__()
            {ready}

        def forward(self, *given):
            values = iter(_passed(given, {own!r}))
            {lines}
            return {outputs}
""")
_COMPILED = textwrap.dedent("""
    import functools
    from orbit_remote.child.harness import cuda_source

    @functools.cache
    def _kernel():
        parameters = [cuda_source.SourceParameter(*parameter) for parameter in {parameters!r}]
        return cuda_source.SourceKernel({file!r}, {source!r}, {name!r}, {flags!r}, parameters)
""")
_READY = "_kernel()  # before any call is timed"
_INPUTS = textwrap.dedent("""
    def get_init_inputs():
        return _source.get_init_inputs() if hasattr(_source, "get_init_inputs") else []

    def get_inputs():
        return {inputs}
""")


def is_pair(reference: Kernel, candidate: Kernel) -> bool:
    """Say whether the sources are KernelBench's own files, and can be judged as they are."""
    own = not any(side.contract or side.target for side in (reference, candidate))
    kept = harness_files.kept(candidate.source_code)
    return (
        own
        and kept is not None
        and kept.kind == "kernelbench"
        and harness_files.has_model(reference.source_code)
    )


def pair(reference: Kernel, candidate: Kernel) -> tuple[str, str]:
    """Return the texts of `Model`, with its `get_inputs` and the tolerance that its source states, and of `ModelNew`.
    Raises RequestRefusedError.
    """
    model, made = _pair(reference, candidate)
    within = harness_files.within(reference.source_code)
    try:
        domain = harness_files.domain_line(harness_files.domain(reference.source_code))
    except ValueError as why:
        raise RequestRefusedError(str(why)) from None
    stated = [within.line if within else "", domain]
    return model + "".join(f"\n{line}\n" for line in stated if line), made


def _pair(reference: Kernel, candidate: Kernel) -> tuple[str, str]:
    for side in (reference, candidate):
        if len(side.source_code) > limits.CONTRACT.most:
            raise RequestRefusedError(f"a {side.kernel_type} source is too large: {limits.CONTRACT.exceeded}")
    reference, candidate = _typed(reference), _typed(candidate)
    model = _text(reference, "Model", tensors_alone=False) + _inputs(reference, candidate)
    return model, _text(
        candidate, "ModelNew", tensors_alone=_is_python(candidate) and not _is_python(reference)
    )


def alone(kernel: Kernel) -> tuple[str, str] | None:
    """Return the same for a single source, which is its own reference. Return None for a source that is run as a
    program or by its launch spec. Raises RequestRefusedError.
    """
    if not _is_called(kernel):
        return None
    model, candidate = _pair(kernel, kernel)
    return f"{model}\n{harness_files.ANYTHING.line}\n{_ALONE}", candidate


def is_alone(request: Request) -> bool:
    """Say whether a request is of a single source. The reference says so: a candidate that is compared may end as it
    likes.
    """
    return request.files.get(FILES[1], "").endswith(_ALONE)


def as_handed_in(problems: Sequence[c.Problem], text: str) -> tuple[c.Problem, ...]:
    """Return the problems of a candidate's text without lines. The text was made here and not handed in."""
    if not text.startswith(SOURCES.partition("{")[0]):
        return tuple(problems)
    return tuple(
        replace(problem, place=None) if problem.place and problem.place.file in FILES else problem
        for problem in problems
    )


def _is_called(kernel: Kernel) -> bool:
    source = kernel.source_code
    match kernel.kernel_type:
        case "cuda":
            return kernel.backend == "nvrtc"
        case "triton":
            return False
        case "multi_kernel":
            return bool(kernel.contract or kernel.function)
        case _:
            named = bool(kernel.contract or kernel.target) or harness_files.binds(source, "get_inputs")
            called = named or (harness_files.binds(source, "Model") and "main" not in source)
            return called and not harness_files.kept(source)


def _is_python(kernel: Kernel) -> bool:
    if kernel.kernel_type == "cuda":
        return False
    return kernel.kernel_type != "triton" or kernel.contract is None


def _text(kernel: Kernel, role: _Role, *, tensors_alone: bool) -> str:
    if kernel.kernel_type == "multi_kernel" and not kernel.function:
        raise RequestRefusedError(
            "a multi_kernel source that is compared, or has an io contract, needs metadata.entry_point: the name of its Python function "
            "that takes the inputs and returns the outputs"
        )
    side = "reference" if role == "Model" else "candidate"
    cuda = kernel.kernel_type == "cuda"
    files = {} if cuda else {f"orbit_{side}.py": kernel.source_code}
    top = SOURCES.format(files=files, known="torch=torch, nn=nn") + _SIDE
    top += "_source = None\n" if cuda else f"import orbit_{side} as _source\n"
    own = _own(kernel.contract) if kernel.contract else None
    if _is_python(kernel):
        text = top + _python(kernel, role, own, tensors_alone)
    elif cuda:
        text = top + _cuda(kernel, role, side, own or [])
    else:
        text = top + _triton(kernel, role, own or [])
    if len(text) > limits.CONTRACT.most:
        raise RequestRefusedError(f"the source with its io contract is too large: {limits.CONTRACT.exceeded}")
    return text


def _own(io: IOContract) -> list[object]:
    """Return None for each tensor that goes in, and the value of each scalar."""
    return [
        None if argument.type == "tensor" else io_contract.scalar(argument)
        for argument in io.args
        if _goes_in(argument)
    ]


def _goes_in(argument: Argument) -> bool:
    """Say whether an argument goes in. A tensor is no constant, whatever its contract calls it."""
    return argument.role != "output" if argument.type == "tensor" else not argument.is_meta


def _python(kernel: Kernel, role: _Role, own: list[object] | None, tensors_alone: bool) -> str:
    source = kernel.source_code
    function, method = kernel.function, kernel.word("method_name") or "forward"
    default = "ModelNew" if role == "ModelNew" and harness_files.binds(source, "ModelNew") else "Model"
    name = function or kernel.word("class_name") or default
    if not harness_files.binds(source, name):
        raise RequestRefusedError(
            f"the {kernel.kernel_type} source has no {'function' if function else 'class'} {name}; metadata may name another "
            "function_name or class_name"
        )
    return _PYTHON.format(
        role=role,
        made=f"_source.{name}" if function else f"_source.{name}(*arguments, **named)",
        called="self.inner" if function or method == "forward" else f"self.inner.{method}",
        signed="self.inner" if function else f"self.inner.{method}",
        given="_tensors(given)" if tensors_alone and own is None else "given",
        own=own,
    )


def _triton(kernel: Kernel, role: _Role, own: list[object]) -> str:
    io = kernel.contract
    assert io
    name = io_contract.kernel_of(kernel.source_code, "triton", kernel.kernel_name).name
    launch, grid = _launch(io)
    passed: list[str] = []
    by_name = False
    for at, argument in enumerate(io.args):
        constant = argument.is_meta and argument.type != "tensor"
        by_name = by_name or constant  # as Python has it, all that follow go by name too
        value = repr(io_contract.scalar(argument)) if constant else f"value_{at}"
        passed.append(f"{io_contract.named(argument, 'triton')}={value}" if by_name else value)
    passed += [f"{name}={value}" for name, value in launch.options]
    call = f"_source.{name}[{grid}]({', '.join(passed)})"
    return _kernel(io, role, own, call, "")


def _cuda(kernel: Kernel, role: _Role, side: str, own: list[object]) -> str:
    if kernel.backend == "nvcc":
        raise RequestRefusedError(
            "NVRTC compiles a CUDA source that is compared; leave metadata.backend out, or let POST /evaluate run it by itself"
        )
    io, known, source = kernel.contract, _header(kernel), kernel.source_code
    assert io
    launch, grid = _launch(io)
    if launch.block is None:
        raise RequestRefusedError("io.launch needs a block")
    block = launch.block
    parameters = [_parameter(*pair) for pair in zip(io.args, known.header.parameters, strict=True)]
    flags, refused = nvcc_flags.allowed_flags(kernel.flags, trusted=False)
    if refused:
        raise RequestRefusedError(f"a compiler flag is not permitted: {refused[0]}")
    values = ", ".join(f"value_{at}" for at in range(len(io.args)))
    call = f"_kernel().launch({grid}, ({block.x}, {block.y}, {block.z}), {launch.shared_mem_bytes or 0}, [{values}])"
    compiled = _COMPILED.format(
        parameters=parameters, file=f"{side}.cu", source=source, name=known.name, flags=flags
    )
    return compiled + _kernel(io, role, own, call, _READY)


@dataclass(frozen=True, slots=True)
class _NamedKernel:
    """A kernel by its qualified name."""

    name: str
    header: Signature


def _header(kernel: Kernel) -> _NamedKernel:
    """Return the kernel of a CUDA source with its parameters, as many as the contract has arguments. Raises
    RequestRefusedError.
    """
    if kernel.contract is None:
        raise RequestRefusedError("a CUDA source that is compared needs an io contract")
    known = io_contract.kernel_of(kernel.source_code, "cuda", kernel.kernel_name)
    header = signature(kernel.source_code.split("\n"), spec_blocks.target(known))
    if header is None or known.template:
        raise RequestRefusedError(
            f"the parameters of {known.name} cannot be read from the source; write the kernel out without a macro or a template"
        )
    have, wanted = len(kernel.contract.args), len(header.parameters)
    if have != wanted:
        raise RequestRefusedError(f"io.args: {known.name} takes {wanted} arguments, not {have}")
    return _NamedKernel(known.qualified, header)


def _parameter(argument: Argument, parameter: Parameter) -> tuple[str, str, bool]:
    """Return the fields of the argument's `cuda_source.SourceParameter`. Raises RequestRefusedError."""
    name, pointer = io_contract.named(argument), parameter.kind == "pointer"
    if parameter.kind not in ("pointer", "scalar") or not parameter.element:
        raise RequestRefusedError(
            f"io.args: the type of {name}, {parameter.type}, is not known here; spell it out"
        )
    if pointer != (argument.type == "tensor"):
        kind = "a tensor" if pointer else "a number"
        raise RequestRefusedError(f"io.args: {name} is {argument.type!r:.20}; {parameter.type} takes {kind}")
    if not pointer:
        value = io_contract.scalar(argument)
        if isinstance(value, str) or misfit(Scalar(value, type(value).__name__), DTYPES[parameter.element]):
            raise RequestRefusedError(f"io.args: {name} is {value!r:.40}, which is no {parameter.type}")
        return name, parameter.element, False
    dtype = io_contract.tensor_spec(argument).dtype
    if dtype is not None and dtype != parameter.element:
        raise RequestRefusedError(f"io.args: {name} is {dtype}, and the kernel takes {parameter.type}")
    return name, parameter.element, True


def _typed(kernel: Kernel) -> Kernel:
    """Return the same kernel with an element type for each tensor: that of the CUDA kernel's parameter if the
    contract has none. Raises RequestRefusedError.
    """
    if kernel.kernel_type != "cuda":
        return kernel
    io, header = kernel.contract, _header(kernel).header
    assert io
    args = [
        argument.model_copy(
            update={
                "tensor_spec": argument.tensor_spec.model_copy(
                    update={"dtype": _parameter(argument, parameter)[1]}
                )
            }
        )
        if argument.tensor_spec and argument.type == "tensor"
        else argument
        for argument, parameter in zip(io.args, header.parameters, strict=True)
    ]
    return kernel.model_copy(update={"io": io.model_copy(update={"args": args}), "io_contract": None})


def _launch(io: IOContract) -> tuple[io_contract.Launch, str]:
    """Return the launch, and its grid in Python. Raises RequestRefusedError."""
    launch = io.launch or io_contract.Launch()
    if launch.grid is None:
        raise RequestRefusedError("io.launch needs a grid")
    _within(launch.grid, "grid", rules.MOST_GRID)
    if launch.block:
        threads = math.prod(_within(launch.block, "block", rules.MOST_BLOCK))
        if threads > rules.MOST_THREADS:
            raise RequestRefusedError(
                f"io.launch: the block has {threads} threads; a block has at most {rules.MOST_THREADS}"
            )
    if not 0 <= (launch.shared_mem_bytes or 0) < 1 << 31:
        raise RequestRefusedError(
            f"io.launch: shared_mem_bytes is {launch.shared_mem_bytes!r:.40}, not a number of bytes"
        )
    return launch, f"({launch.grid.x}, {launch.grid.y}, {launch.grid.z})"


def _within(size: io_contract.Dimensions, what: str, most: tuple[int, int, int]) -> tuple[int, int, int]:
    """Raises RequestRefusedError."""
    extents = size.x, size.y, size.z
    for extent, name, limit in zip(extents, "xyz", most, strict=True):
        if not 1 <= extent <= limit:
            raise RequestRefusedError(
                f"io.launch: the {what} is {extent!s:.40} in {name}; CUDA takes 1 to {limit}"
            )
    return extents


def _kernel(io: IOContract, role: _Role, own: list[object], call: str, ready: str) -> str:
    """Write a class whose `forward` makes the outputs, launches the kernel by `call` with `value_0`, `value_1`, …,
    and returns the outputs. Raises RequestRefusedError.
    """
    lines: list[str] = []
    outputs: list[str] = []
    for at, argument in enumerate(io.args):
        if argument.is_meta and argument.type != "tensor":
            lines.append(f"value_{at} = {io_contract.scalar(argument)!r}")
            continue
        made = "next(values)"
        if argument.type == "tensor" and argument.role == "output":
            made = _tensor(argument, "_device(given)")
        elif argument.type == "tensor":
            made += ".clone()" if argument.role == "inout" else ""
            made += ".contiguous()"
        if argument.type == "tensor" and argument.role != "input":
            outputs.append(f"value_{at}")
        lines.append(f"value_{at} = {made}")
    if not outputs:
        raise RequestRefusedError(
            "io.args: a kernel that is compared needs a tensor with the role output or inout"
        )
    return _KERNEL.format(
        role=role,
        own=own,
        ready=ready,
        lines=textwrap.indent("\n".join([*lines, call]), " " * 8).strip(),
        outputs=outputs[0] if len(outputs) == 1 else f"({', '.join(outputs)})",
    )


def _inputs(reference: Kernel, candidate: Kernel) -> str:
    if harness_files.binds(reference.source_code, "get_inputs") and not reference.contract:
        return _INPUTS.format(inputs="_source.get_inputs()")
    io = reference.contract or candidate.contract
    if io is None:
        raise RequestRefusedError(
            "say what the inputs are: by an io contract, or by a function get_inputs in the source of the reference"
        )
    values = [
        _tensor(argument, "'cpu'") if argument.type == "tensor" else repr(io_contract.scalar(argument))
        for argument in io.args
        if _goes_in(argument)
    ]
    if not values:
        raise RequestRefusedError("io.args: there is no input")
    return _INPUTS.format(inputs=f"[{', '.join(values)}]")


def _tensor(argument: Argument, device: str) -> str:
    """Return an expression that makes the tensor."""
    io_contract.named(argument)
    spec = io_contract.tensor_spec(argument)
    if spec.data is not None:
        tensor = io_contract.brought(argument.name, spec, spec.data)
        return f"_brought({tensor.packed()!r}, {tensor.shape!r}, torch.{tensor.dtype}).to({device})"
    shape, dtype = tuple(spec.shape), f"torch.{spec.dtype or 'float32'}"
    if argument.role == "output" and spec.init is None:
        return f"torch.empty({shape!r}, dtype={dtype}, device={device})"
    init = spec.init or io_contract.Init()
    number = io_contract.number
    match init.kind:
        case "randn":
            made = f"torch.randn({shape!r}, device={device})"
            factor, offset = init.std, init.mean
        case "uniform":
            low, high = init.low or 0.0, 1.0 if init.high is None else init.high
            made, factor, offset = f"torch.rand({shape!r}, device={device})", high - low, low
        case "zeros" | "ones":
            return f"torch.{init.kind}({shape!r}, dtype={dtype}, device={device})"
        case "full" if init.fill_value is not None:
            exact = f"torch.ones({shape!r}, dtype=torch.float64, device={device})"
            made, factor, offset = exact, init.fill_value, None
        case "arange":
            count = f"torch.arange({'*'.join(map(str, shape))}, dtype=torch.float64, device={device})"
            made, factor, offset = (
                f"{count}.reshape({shape!r})",
                1.0 if init.step is None else init.step,
                init.start,
            )
        case _:
            raise io_contract.not_filled(argument.name, init)
    made += f" * {number(factor)}" if factor not in (None, 1.0) else ""
    made += f" + {number(offset)}" if offset else ""
    return f"({made}).to({dtype})"
