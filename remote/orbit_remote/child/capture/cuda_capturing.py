"""Makes a launch spec from a CUDA launch that was taken from a program. Its kernel, compiled from the file's text, is
launched on the memory that was taken.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from orbit_remote.child.capture import (
    capturing,
    cuda_arguments,
    cuda_extents,
    cuda_variables,
    written_outputs,
)
from orbit_remote.child.capture.capturing import Capturing
from orbit_remote.child.capture.cuda_spec_text import CudaForm, CudaSpecText
from orbit_remote.child.capture.cuda_variables import SymbolStatements
from orbit_remote.child.capture.launch_watch import Block, Copies, NotCapturedError, WatchedLaunch
from orbit_remote.child.capture.values import TensorRecipe
from orbit_remote.child.spec.cuda_backend import Cuda
from orbit_remote.child.spec.launches import BoundLaunch
from orbit_remote.child.spec.trial import Backend, Gpu
from orbit_remote.common import messages as c
from orbit_remote.common.requests import Job, SpecStart
from orbit_remote.recording import taken_launch
from orbit_remote.recording.taken_launch import NotTakenError, TakenLaunch
from orbit_remote.spec import launch_spec, stored_tensors
from orbit_remote.spec.launch_spec import EvaluatedSpec, SpecPoint
from orbit_remote.spec.stored_tensors import StoredTensor
from orbit_remote.spec.values import Tensor, World


class CudaKernel:
    """Launches the compiled kernel on any memory, as the program launched it."""

    def __init__(self, bound: BoundLaunch, names: Sequence[str]) -> None:
        self.arg_names = list(names)
        self.params = ()  # as of a Triton kernel; a CUDA kernel has no constants
        self._bound = bound

    def run(self, *, grid: Any, warmup: bool, **given: Any) -> None:  # noqa: ARG002 - as of Triton's kernels
        def memory(tensor: Tensor) -> Any:
            return given[tensor.storage]

        self._bound.ready(memory).launch()


class CompiledFile(Backend, Protocol):
    """The kernels of a file and its variables."""

    def variables(self) -> list[str]: ...


class _OfCuda:
    bounded = True

    def __init__(
        self,
        taken: WatchedLaunch,
        form: CudaForm,
        backend: Backend,
        symbols: SymbolStatements,
        remarks: Sequence[str],
    ) -> None:
        self._taken, self._form, self._backend, self._symbols = taken, form, backend, symbols
        self.remarks = remarks
        self.stored: Mapping[str, StoredTensor] = dict(symbols.stored)

    def backend(self, checked: EvaluatedSpec) -> Backend:  # noqa: ARG002 - the compiled kernel is the same
        return self._backend

    def statements(self, made: Mapping[str, TensorRecipe], same: Mapping[str, str]) -> list[str]:
        return [*self._symbols.statements, *CudaSpecText(self._taken, made, same, self._form).statements()]


def captured(job: Job, torch: Any, checked: EvaluatedSpec, backend: Backend) -> c.Finished:
    """Return what is captured of the launch in the folder that a job names, or why there is no launch spec for it.
    Never raises.
    """
    assert isinstance(job.start, SpecStart)
    assert isinstance(backend, Cuda)
    record = job.start.record

    def made() -> c.Captured:
        try:
            launch = taken_launch.read(Path(record))
        except NotTakenError as why:
            raise NotCapturedError(str(why), why.remedy) from None
        assert launch
        return of_launch(torch, job, backend, checked, Gpu(torch), launch)

    return replace(c.ok(job.run), captured=capturing.without_failing(job, made))


def of_launch(
    torch: Any, job: Job, backend: CompiledFile, checked: EvaluatedSpec, gpu: Gpu, launch: TakenLaunch
) -> c.Captured:
    """Raises NotCapturedError, SpecError, and what launches raise."""
    spec = checked.spec.launches[0]
    compiled = backend.signature(spec, {})
    assert compiled  # of a CUDA kernel it is always known
    header = cuda_arguments.signature_of(compiled, "")
    arguments = cuda_arguments.read(launch, header.parameters)
    values, _ = launch_spec.compute(checked.spec, header, SpecPoint(), World("cuda"))
    kernel = CudaKernel(backend.bind(spec, values, World("cuda")), [each.name for each in header.parameters])
    taken = WatchedLaunch(
        kernel, launch.grid, None, dict(arguments.values), {}, _blocks(torch, launch, gpu), launch.number,
        torch.device(gpu.device, torch.cuda.current_device() if gpu.device == "cuda" else None), tuple((each.base, each.end) for each in launch.ranges),
    )  # fmt: skip
    _no_addresses(torch, taken, launch, arguments.typed)
    after = _launched(torch, taken, gpu)
    symbols = SymbolStatements()
    if _differs(torch, taken, launch, after, gpu):
        file = capturing.file_name(job.path)
        symbols = cuda_variables.of_launch(
            torch, job.text, launch, backend.variables(), file, spec.kernel.name
        )
        _set(torch, job, backend, symbols, gpu)
        after = _launched(torch, taken, gpu)
        if name := _differs(torch, taken, launch, after, gpu):
            raise NotCapturedError(
                f"launched again by itself it writes something else to {name}: it depends on more than its arguments, such as variables of "
                "the program, or on kernels that run beside it"
            )
    bounded, cut = cuda_extents.bounded(torch, taken, launch.block, after, gpu.synchronize)
    name = spec.kernel.name + (
        f"<{', '.join(each.text for each in spec.templates)}>" if spec.templates else ""
    )
    form = CudaForm(name, launch.block, launch.shared, launch.cluster, launch.cooperative, header.parameters)
    told = _remarks(launch, cut)
    made = Capturing(torch, job, bounded, _OfCuda(bounded, form, backend, symbols, told), gpu).captured()
    return replace(made, launch=launch.number)


def _blocks(torch: Any, launch: TakenLaunch, gpu: Gpu, *, after: bool = False) -> tuple[Block, ...]:
    """Raises NotCapturedError."""
    blocks: list[Block] = []
    for at, known in enumerate(launch.ranges):
        if known.kind == "variable":
            continue
        try:
            content = bytearray(launch.memory(at, after=after))
        except NotTakenError as why:
            raise NotCapturedError(str(why)) from None
        blocks.append(Block(known.begin, torch.frombuffer(content, dtype=torch.uint8).to(gpu.device)))
    return tuple(blocks)


def _launched(torch: Any, taken: WatchedLaunch, gpu: Gpu) -> Copies:
    copies = Copies(torch, taken)
    copies.launch()
    gpu.synchronize()
    return copies


def _differs(torch: Any, taken: WatchedLaunch, launch: TakenLaunch, after: Copies, gpu: Gpu) -> str:
    """Return the first tensor to which the kernel wrote something else in the program, or "" if there is none. Raises
    NotCapturedError.
    """
    then = Copies(torch, replace(taken, blocks=_blocks(torch, launch, gpu, after=True)))
    same = (
        name
        for name, form in taken.forms.items()
        if not written_outputs.are_alike(torch, after.of(form), then.of(form))
    )
    return next(same, "")


def _set(torch: Any, job: Job, backend: Backend, symbols: SymbolStatements, gpu: Gpu) -> None:
    """Give the variables of the compiled file their values. Raises SpecError."""
    text, definition = capturing.above(job, symbols.statements)
    spec = launch_spec.check(text, launch_spec.target_of(definition, "cuda")).spec
    content = {capturing.file_name(job.path): stored_tensors.written(dict(symbols.stored), {})}
    world = World("cuda", torch, gpu.device, memory=1 << 40, stored=content)
    for each in spec.symbols:
        backend.set_symbol(each, {}, world)


def _no_addresses(torch: Any, taken: WatchedLaunch, launch: TakenLaunch, typed: frozenset[str]) -> None:
    """Check that no memory of a type that launch specs do not have holds an address of the launch's memory. Raises
    NotCapturedError if it does.
    """
    copies = Copies(torch, taken)
    for name, form in taken.forms.items():
        whole = form.shape[0] // 8 * 8
        if name in typed or not whole or form.address % 8:
            continue
        words = copies.of(form)[:whole].view(torch.int64)
        if any(bool(((words >= each.base) & (words < each.end)).any()) for each in launch.ranges):
            raise NotCapturedError(f"{name} holds addresses of memory, which a launch spec cannot describe")


def _remarks(launch: TakenLaunch, cut: Sequence[str]) -> list[str]:
    remarks: list[str] = []
    if cut:
        are = "lies" if len(cut) == 1 else "lie"
        remarks.append(
            f"{', '.join(cut)} {are} in longer allocations, and {'is' if len(cut) == 1 else 'are'} as long as the results depend on"
        )
    kinds = {each.kind for each in launch.ranges}
    if "managed" in kinds:
        remarks.append("the program's memory is managed, and the launch spec's is not")
    if "host" in kinds:
        remarks.append("a part of the program's memory is the host's, and the launch spec's is the GPU's")
    return remarks
