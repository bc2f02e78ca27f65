"""The sides of an evaluation -> KernelBench's `Model` and `ModelNew`, where a side is not written so: a Python class or function whose
inputs an IOContract says, or a Triton kernel with its contract.

Both sides get the same arguments: those of the reference's contract, with new random values in each call, or of its `get_inputs`. A
Triton kernel gets the tensors among them for its own inputs, and returns its outputs.
"""

from __future__ import annotations

import textwrap
from typing import Literal

from orbit_lsp.api import io_contract
from orbit_lsp.api.io_contract import Argument, IOContract, Kernel
from orbit_lsp.api.submitted_sources import BROUGHT, SOURCES
from orbit_lsp.queue.request import Refused
from orbit_remote.common import harness_files, limits

ALONE = "\n# by itself: the reference is the same source\n"
"""How a text ends that has nothing to be compared with."""
_ANYTHING = harness_files.Within(1e30, 1e30)
"""For a source by itself: it need not compute the same twice."""
_Role = Literal["Model", "ModelNew"]
_SIDE = BROUGHT + textwrap.dedent("""
    import {module} as _source

    def _tensors(given):
        return [value for value in given if isinstance(value, torch.Tensor)]

    def _device(given):
        return next((tensor.device for tensor in _tensors(given)), torch.device("cuda"))

    def _passed(given, own):
        # `own` has None for each tensor that the contract names, and its scalars
        if own is None or len(given) == len(own):
            return list(given)
        tensors = _tensors(given)
        if len(tensors) != own.count(None):
            raise TypeError(
                f"{{len(tensors)}} tensors come from the reference's inputs, and the io contract of this side has {{own.count(None)}}"
            )
        tensors = iter(tensors)
        return [next(tensors) if value is None else value for value in own]
""")
_PYTHON = textwrap.dedent("""
    class {role}(nn.Module):
        def __init__(self, *arguments):
            super().__init__()
            self.inner = {made}

        def forward(self, *given):
            return {called}(*_passed({given}, {own!r}))
""")
_TRITON = textwrap.dedent("""
    class {role}(nn.Module):
        def forward(self, *given):
            values = iter(_passed(given, {own!r}))
            {lines}
            return {outputs}
""")
_INPUTS = textwrap.dedent("""
    def get_init_inputs():
        return _source.get_init_inputs() if hasattr(_source, "get_init_inputs") else []

    def get_inputs():
        return {inputs}
""")


def is_pair(reference: Kernel, candidate: Kernel) -> bool:
    """Whether the sources are KernelBench's own files, and can be judged as they are."""
    own = not any(side.contract or side.target for side in (reference, candidate))
    kept = harness_files.kept(candidate.source_code)
    return (
        own
        and kept is not None
        and kept.kind == "kernelbench"
        and harness_files.has_model(reference.source_code)
    )


def pair(reference: Kernel, candidate: Kernel) -> tuple[str, str]:
    """The texts of `Model` with its `get_inputs`, and of `ModelNew`. Raises Refused."""
    for side in (reference, candidate):
        if len(side.source_code) > limits.CONTRACT.most:
            raise Refused(f"a {side.kernel_type} source is too large: {limits.CONTRACT.exceeded}")
    model = _text(reference, "Model", tensors_alone=False) + _inputs(reference, candidate)
    return model, _text(
        candidate, "ModelNew", tensors_alone=_is_python(candidate) and not _is_python(reference)
    )


def alone(kernel: Kernel) -> tuple[str, str] | None:
    """The same for a Python source by itself; None for one that is run as a program. Raises Refused."""
    source = kernel.source_code
    named = bool(kernel.contract or kernel.target) or harness_files.binds(source, "get_inputs")
    called = named or (harness_files.binds(source, "Model") and "main" not in source)
    if kernel.kernel_type not in ("torch", "torch_cuda") or not called or harness_files.kept(source):
        return None
    model, candidate = pair(kernel, kernel)
    return f"{model}\n{_ANYTHING.line}\n", candidate + ALONE


def _is_python(kernel: Kernel) -> bool:
    return kernel.kernel_type in ("torch", "torch_cuda") or kernel.contract is None


def _text(kernel: Kernel, role: _Role, *, tensors_alone: bool) -> str:
    if kernel.kernel_type in ("cuda", "multi_kernel"):
        raise Refused(
            f"a {kernel.kernel_type} source cannot be compared; launch its kernel in a Python class (load_inline), or let POST /evaluate run it "
            "by itself"
        )
    module = f"orbit_{'reference' if role == 'Model' else 'candidate'}"
    top = SOURCES.format(files={f"{module}.py": kernel.source_code}, known="torch=torch, nn=nn")
    own = _own(kernel.contract) if kernel.contract else None
    side = (
        _python(kernel, role, own, tensors_alone) if _is_python(kernel) else _triton(kernel, role, own or [])
    )
    text = top + _SIDE.format(module=module) + side
    if len(text) > limits.CONTRACT.most:
        raise Refused(f"the source with its io contract is too large: {limits.CONTRACT.exceeded}")
    return text


def _own(io: IOContract) -> list[object]:
    """None for each tensor that goes in, and the value of each scalar."""
    return [
        None if argument.type == "tensor" else io_contract.scalar(argument)
        for argument in io.args
        if not argument.is_meta and (argument.type != "tensor" or argument.role != "output")
    ]


def _python(kernel: Kernel, role: _Role, own: list[object] | None, tensors_alone: bool) -> str:
    source = kernel.source_code
    function, method = kernel.word("function_name"), kernel.word("method_name") or "forward"
    default = "ModelNew" if role == "ModelNew" and harness_files.binds(source, "ModelNew") else "Model"
    name = function or kernel.word("class_name") or default
    if not harness_files.binds(source, name):
        raise Refused(
            f"the {kernel.kernel_type} source has no {'function' if function else 'class'} {name}; metadata may name another "
            "function_name or class_name"
        )
    return _PYTHON.format(
        role=role,
        made=f"_source.{name}" if function else f"_source.{name}(*arguments)",
        called="self.inner" if function or method == "forward" else f"self.inner.{method}",
        given="_tensors(given)" if tensors_alone and own is None else "given",
        own=own,
    )


def _triton(kernel: Kernel, role: _Role, own: list[object]) -> str:
    io = kernel.contract
    assert io
    name = io_contract.kernel_of(kernel.source_code, "triton", kernel.word("kernel_name")).name
    lines: list[str] = []
    passed: list[str] = []
    outputs: list[str] = []
    for at, argument in enumerate(io.args):
        value = f"value_{at}"
        if argument.is_meta:
            passed.append(f"{io_contract.named(argument)}={io_contract.scalar(argument)!r}")
            continue
        made = "next(values)"
        if argument.type == "tensor" and argument.role == "output":
            made = _tensor(argument, "_device(given)")
        elif argument.type == "tensor" and argument.role == "inout":
            made += ".clone()"
        if argument.type == "tensor" and argument.role != "input":
            outputs.append(value)
        lines.append(f"{value} = {made}")
        passed.append(value)
    if not outputs:
        raise Refused("io.args: a kernel that is compared needs a tensor with the role output or inout")
    launch = io.launch or io_contract.Launch()
    if launch.grid is None:
        raise Refused("io.launch needs a grid")
    passed += [f"{name}={value}" for name, value in launch.options]
    grid = launch.grid
    lines.append(f"_source.{name}[({grid.x}, {grid.y}, {grid.z})]({', '.join(passed)})")
    return _TRITON.format(
        role=role,
        own=own,
        lines=textwrap.indent("\n".join(lines), " " * 8).strip(),
        outputs=outputs[0] if len(outputs) == 1 else f"({', '.join(outputs)})",
    )


def _inputs(reference: Kernel, candidate: Kernel) -> str:
    if harness_files.binds(reference.source_code, "get_inputs") and not reference.contract:
        return _INPUTS.format(inputs="_source.get_inputs()")
    io = reference.contract or candidate.contract
    if io is None:
        raise Refused(
            "say what the inputs are: by an io contract, or by a function get_inputs in the source of the reference"
        )
    values = [
        _tensor(argument, "'cpu'") if argument.type == "tensor" else repr(io_contract.scalar(argument))
        for argument in io.args
        if not argument.is_meta and (argument.type != "tensor" or argument.role != "output")
    ]
    if not values:
        raise Refused("io.args: there is no input")
    return _INPUTS.format(inputs=f"[{', '.join(values)}]")


def _tensor(argument: Argument, device: str) -> str:
    """An expression that makes the tensor."""
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
            made, factor, offset = f"torch.ones({shape!r}, device={device})", init.fill_value, None
        case "arange":
            count = f"torch.arange({'*'.join(map(str, shape))}, device={device})"
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
