"""Launches of a spec's CUDA kernels, through cuda.core: what the driver is given for each argument."""

from __future__ import annotations

import ctypes
import importlib
from collections.abc import Callable, Mapping
from typing import Any

from orbit_remote.child.spec.helper_kernels import Stream, opt_in
from orbit_remote.child.spec.launches import BoundLaunch, LaunchFacts, Memory, Ready
from orbit_remote.common import limits, regular_files, symbols
from orbit_remote.common.lazy_dataclass import dataclass
from orbit_remote.counters.profiles import LaunchedCode
from orbit_remote.spec import rules as spec_rules
from orbit_remote.spec import signature as spec_signature
from orbit_remote.spec.dtypes import DTYPES, DType
from orbit_remote.spec.interpreter import SpecScope, evaluate
from orbit_remote.spec.signature import Parameter, Signature
from orbit_remote.spec.syntax_tree import Assignment, Reference, SpecError, SpecLaunch, SpecSpan
from orbit_remote.spec.values import Scalar, Tensor, TensorMap, Value, World, amount, shown
from orbit_remote.toolchain import spec_instances
from orbit_remote.toolchain.elf import Cubin
from orbit_remote.toolchain.spec_instances import Image

_INTEGERS: dict[str, Any] = {
    "int8": ctypes.c_int8, "int16": ctypes.c_int16, "int32": ctypes.c_int32, "int64": ctypes.c_int64,
    "uint8": ctypes.c_uint8, "uint16": ctypes.c_uint16, "uint32": ctypes.c_uint32, "uint64": ctypes.c_uint64,
    "bool": ctypes.c_bool, "float32": ctypes.c_float, "float64": ctypes.c_double,
}  # fmt: skip
_STATIC_LIMIT = 48 << 10
"""Dynamic shared memory beyond this has to be opted into (CUDA C++ Programming Guide, "Shared Memory")."""


@dataclass(frozen=True, slots=True)
class PassedArgument:
    """A value as it is passed, before there is memory for kernels. `tensor` is set for pointers."""

    value: Value
    parameter: Parameter
    span: SpecSpan

    @property
    def tensor(self) -> Tensor | None:
        if isinstance(self.value, TensorMap):
            return self.value.tensor
        return self.value if isinstance(self.value, Tensor) else None


@dataclass(frozen=True, slots=True)
class _CudaLaunch:
    run: Callable[[], None]
    known: LaunchFacts
    cubin: bytes

    def launch(self) -> None:
        self.run()

    def facts(self) -> LaunchFacts:
        return self.known

    def code(self) -> LaunchedCode:
        return LaunchedCode(self.cubin)


class Cuda:
    """The kernels of one image on the current device."""

    def __init__(self, torch: Any, image: Image, header: Signature | None) -> None:
        """Load the code. Raises what cuda.core raises if the driver rejects the code."""
        self._torch = torch
        self._image = image
        self._core: Any = importlib.import_module("cuda.core")
        self._driver: Any = importlib.import_module("cuda.bindings.driver")
        self._device = self._core.Device(torch.cuda.current_device())
        self._device.set_current()
        self._content = regular_files.read(image.cubin, limits.BUILD)
        self._code = self._core.ObjectCode.from_cubin(self._content)
        self._stream = self._device.create_stream(Stream(torch))
        self._kernels: dict[str, Any] = {}
        self._header = header
        self._resources = {resource.symbol: resource for resource in image.resources}

    def signature(self, launch: SpecLaunch, values: Mapping[str, Value]) -> Signature:
        """Return the parameters as the compiler gave them."""
        compiled = self._compiled(launch, values)
        own = self._header if self._header and self._header.name == launch.kernel.name else None
        return spec_signature.compiled(own or Signature("cuda", launch.kernel.name, ()), compiled.parameters)

    def _compiled(self, launch: SpecLaunch, values: Mapping[str, Value]) -> spec_instances.CompiledInstance:
        return self._image.kernels[spec_instances.instance(launch, values)]

    def bind(self, launch: SpecLaunch, values: Mapping[str, Value], world: World) -> BoundLaunch:
        """Raises SpecError, at its place, for what only the compiled kernel or the device can refuse."""
        compiled = self._compiled(launch, values)
        signature = self.signature(launch, values)
        scope = SpecScope(values)
        if len(launch.arguments) != len(signature.parameters):
            count = len(signature.parameters)
            message = f"{launch.kernel.name} takes {count} argument{'s' * (count != 1)}, not {len(launch.arguments)}."
            raise SpecError(launch.kernel.span, message)
        arguments: list[PassedArgument] = []
        for node, parameter in zip(launch.arguments, signature.parameters, strict=True):
            value = evaluate(node, world, scope)
            spec_rules.passed(parameter, value, node.span, {})
            arguments.append(PassedArgument(value, parameter, node.span))
        grid = self._extents(launch.grid, world, scope, "grid", spec_rules.MOST_GRID)
        block = self._extents(launch.block, world, scope, "block", spec_rules.MOST_BLOCK)
        cluster = (
            self._extents(launch.cluster, world, scope, "cluster", (16, 16, 16)) if launch.cluster else None
        )
        shared = 0
        if launch.shared is not None:
            shared = spec_rules.whole(
                evaluate(launch.shared, world, scope), launch.shared.span, "Shared memory"
            )
        kernel = self._kernel(compiled.symbol, launch, block, shared)
        config = self._config(launch, grid, block, cluster, shared)
        core, stream = self._core, self._stream

        resources = self._resources.get(compiled.symbol)
        name = resources.name if resources else symbols.short_name(compiled.symbol)
        facts = LaunchFacts(compiled.symbol, name, grid, block, cluster, shared, resources)

        def ready(memory: Memory) -> Ready:
            kept: list[Any] = []  # tensors whose addresses are passed must live as long as the launches
            given = [self._passed(argument, memory, kept) for argument in arguments]
            self._fits(kernel, given, launch)

            def run(_keep: object = kept) -> None:
                core.launch(stream, config, kernel, *given)

            return _CudaLaunch(run, facts, self._content)

        tensors = tuple(
            (argument.tensor, argument.parameter.writable)
            for argument in arguments
            if argument.tensor is not None
        )
        return BoundLaunch(launch.span, tensors, ready)

    def tunes(self, launch: SpecLaunch) -> bool:  # noqa: ARG002
        return False

    def results(self, reference: Reference, values: Mapping[str, Value], world: World) -> tuple[Any, ...]:  # noqa: ARG002
        """Refuse a function as a reference: a CUDA reference is a launch. Always raises SpecError."""
        raise SpecError(reference.span, "The reference of a CUDA kernel is a launch of another kernel.")

    # -- arguments ----------------------------------------------------------------------------------

    def _passed(self, argument: PassedArgument, memory: Memory, kept: list[Any]) -> Any:
        """Return an argument for cuda.core: an address as an int, a number as the C type of its parameter."""
        match argument.value:
            case None:
                return 0
            case Tensor():
                kept.append(memory(argument.value))
                return int(kept[-1].data_ptr())
            case TensorMap():
                kept.append(memory(argument.value.tensor))
                kept.append(self._tensor_map(argument.value, kept[-1], argument.span))
                return kept[-1]
            case Scalar():
                return number(self._torch, argument.value, DTYPES[argument.parameter.element])
            case _:
                raise SpecError(argument.span, "This cannot be passed to a kernel.")

    def _tensor_map(self, value: TensorMap, tensor: Any, span: SpecSpan) -> Any:
        utils: Any = importlib.import_module("cuda.core.utils")
        # the enumeration is public only as the type of an option's value
        none: Any = self._core.TensorMapDescriptorOptions(box_dim=value.box).swizzle
        name = f"SWIZZLE_{value.swizzle}B" if value.swizzle else "NONE"
        try:
            view = utils.StridedMemoryView.from_any_interface(tensor, stream_ptr=-1)
            return view.as_tensor_map(box_dim=value.box, swizzle=none.__class__[name])
        except Exception as error:  # noqa: BLE001 - the driver's refusal becomes a sentence
            message = (str(error).strip() or type(error).__name__).splitlines()[0]
            raise SpecError(span, f"CUDA rejects this tensor map: {message[:200]}") from None

    def _fits(self, kernel: Any, given: list[Any], launch: SpecLaunch) -> None:
        """Check that arguments have the sizes that the code reads: otherwise it would read something else."""
        for argument, wanted in zip(given, kernel.arguments_info, strict=True):
            size = (
                ctypes.sizeof(argument)
                if not isinstance(argument, int) and hasattr(argument, "_type_")
                else (8 if isinstance(argument, int) else wanted.size)
            )
            if size != wanted.size:
                message = (
                    f"An argument has {size} bytes and the kernel reads {wanted.size}; please report this."
                )
                raise SpecError(launch.span, message)

    # -- the launch ---------------------------------------------------------------------------------

    def _extents(
        self, node: Any, world: World, scope: SpecScope, what: str, most: tuple[int, ...]
    ) -> tuple[int, int, int]:
        sizes = spec_rules.extents(evaluate(node, world, scope), node.span, what, most)
        x, y, z = (*sizes, 1, 1)[:3]
        return x, y, z

    def _kernel(self, symbol: str, launch: SpecLaunch, block: tuple[int, int, int], shared: int) -> Any:
        if symbol not in self._kernels:
            self._kernels[symbol] = self._code.get_kernel(symbol)
        kernel = self._kernels[symbol]
        threads = block[0] * block[1] * block[2]
        most = int(kernel.attributes.max_threads_per_block)
        assert launch.block is not None
        if threads > most:
            registers = int(kernel.attributes.num_regs)
            why = f"its {registers} registers a thread, or its __launch_bounds__, allow {most}"
            raise SpecError(launch.block.span, f"A block of {threads} threads cannot be launched: {why}.")
        static = int(kernel.attributes.shared_size_bytes)
        limit = int(self._device.properties.max_shared_memory_per_block_optin)
        if static + shared > limit:
            where = launch.shared.span if launch.shared else launch.span
            own = f" beside the kernel's own {amount(static)}" if static else ""
            message = (
                f"A block gets at most {limit} bytes of shared memory here; this asks for {shared}{own}."
            )
            raise SpecError(where, message)
        if static + shared > _STATIC_LIMIT:
            opt_in(kernel, self._device, shared)
        return kernel

    def _config(
        self,
        launch: SpecLaunch,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        cluster: tuple[int, int, int] | None,
        shared: int,
    ) -> Any:
        options: dict[str, Any] = {"block": block, "shmem_size": shared}
        if cluster:
            if any(extent % each for extent, each in zip(grid, cluster, strict=True)):
                assert launch.grid is not None
                raise SpecError(launch.grid.span, "Every extent of the grid is a multiple of the cluster's.")
            # cuda.core counts the grid in clusters
            options["cluster"] = cluster
            grid = (grid[0] // cluster[0], grid[1] // cluster[1], grid[2] // cluster[2])
        if launch.cooperative:
            options["is_cooperative"] = True
        return self._core.LaunchConfig(grid=grid, **options)

    # -- variables ----------------------------------------------------------------------------------

    def variables(self) -> list[str]:
        """Return the mangled names of the code's variables."""
        return [each.symbol for each in Cubin(self._content).variables()]

    def set_symbol(self, assignment: Assignment, values: Mapping[str, Value], world: World) -> None:
        """Give a `__device__` or `__constant__` variable its value. Raises SpecError."""
        name = assignment.name.name
        variables = [each for each in Cubin(self._content).variables() if _is_named(each.symbol, name)]
        if len(variables) != 1:
            many = "no" if not variables else "more than one"
            raise SpecError(assignment.name.span, f"The compiled code uses {many} variable '{name}'.")
        status, address, size = self._driver.cuLibraryGetGlobal(
            self._driver.CUlibrary(int(self._code.handle)), variables[0].symbol.encode()
        )
        if int(status) != 0:
            raise SpecError(
                assignment.name.span, f"The driver does not give the address of '{name}': {status.name}."
            )
        value = evaluate(assignment.value, world, SpecScope(values))
        if isinstance(value, Scalar):
            dtype = DTYPES[{4: "float32", 8: "float64"}.get(int(size), value.type)] if value.dtype.kind == "floating" else value.dtype  # fmt: skip
            data = self._torch.tensor(value.value, dtype=getattr(self._torch, dtype.name), device="cuda")
        elif isinstance(value, Tensor):
            data = value.data.contiguous()
        else:
            raise SpecError(
                assignment.value.span, f"A variable gets a number or a tensor, not {shown(value)}."
            )
        if data.nbytes != int(size):
            message = f"'{name}' has {int(size)} bytes and this value {data.nbytes}."
            raise SpecError(assignment.value.span, message)
        (status,) = self._driver.cuMemcpyDtoD(address, int(data.data_ptr()), data.nbytes)
        if int(status) != 0:
            raise RuntimeError(f"copying to '{name}' failed: {status.name}")
        self._torch.cuda.synchronize()


def number(torch: Any, value: Scalar, dtype: DType) -> Any:
    """Return a scalar argument for cuda.core, in the C type of its size."""
    plain = int(value.value) if dtype.kind == "integer" else value.value
    if dtype.name in _INTEGERS:
        return _INTEGERS[dtype.name](plain)
    bits = torch.tensor(plain, dtype=getattr(torch, dtype.name))  # rounds as torch does
    raw = torch.uint8 if dtype.size == 1 else torch.int16
    kind = ctypes.c_uint8 if dtype.size == 1 else ctypes.c_uint16
    return kind(int(bits.view(raw).item()) & (0xFF if dtype.size == 1 else 0xFFFF))


def _is_named(symbol: str, name: str) -> bool:
    """Say whether a mangled variable is `name`, whatever name space or linkage it has."""
    whole = symbols.demangle(symbol)
    return whole.rpartition("::")[2] == name.rpartition("::")[2] and (
        "::" not in name or whole.endswith(name)
    )
