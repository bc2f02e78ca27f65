"""From a CUDA launch that was taken out of a program to a launch spec: its kernel, compiled from the file's text, is launched on the
memory that was taken
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from orbit_remote.child.capture import capturing, cuda_arguments, cuda_extents, written_outputs
from orbit_remote.child.capture.capturing import Capturing
from orbit_remote.child.capture.cuda_spec_text import CudaForm, CudaSpecText
from orbit_remote.child.capture.launch_watch import Block, Copies, NotCapturedError, Taken
from orbit_remote.child.capture.values import Made
from orbit_remote.child.spec.cuda_backend import Cuda
from orbit_remote.child.spec.launches import Bound
from orbit_remote.child.spec.trial import Backend, Gpu
from orbit_remote.common import messages as c
from orbit_remote.common.requests import Job, SpecStart
from orbit_remote.recording import taken_launch
from orbit_remote.recording.taken_launch import NotTakenError, TakenLaunch
from orbit_remote.spec import launch_spec
from orbit_remote.spec.launch_spec import Checked, Point
from orbit_remote.spec.values import Tensor, World


class CudaKernel:
    """Launches the compiled kernel on any memory, as the program launched it."""

    def __init__(self, bound: Bound, names: Sequence[str]) -> None:
        self.arg_names = list(names)
        self._bound = bound

    def run(self, *, grid: Any, warmup: bool, **given: Any) -> None:  # noqa: ARG002 - as of Triton's kernels
        def memory(tensor: Tensor) -> Any:
            return given[tensor.storage]

        self._bound.ready(memory).launch()


class _OfCuda:
    remarks: Sequence[str] = ()

    def __init__(self, taken: Taken, form: CudaForm, backend: Backend, remarks: Sequence[str]) -> None:
        self._taken, self._form, self._backend = taken, form, backend
        self.remarks = remarks

    def backend(self, checked: Checked) -> Backend:  # noqa: ARG002 - the compiled kernel is the same
        return self._backend

    def statements(self, made: Mapping[str, Made], same: Mapping[str, str]) -> list[str]:
        return CudaSpecText(self._taken, made, same, self._form).statements()


def of_record(torch: Any, job: Job, backend: Cuda, checked: Checked, gpu: Gpu) -> c.Captured:
    """The launch in the folder that a job names, or why there is no launch spec for it. Never raises."""
    assert isinstance(job.start, SpecStart)

    def made() -> c.Captured:
        try:
            launch = taken_launch.read(job.start.record) if isinstance(job.start, SpecStart) else None
        except NotTakenError as why:
            raise NotCapturedError(str(why), why.remedy) from None
        assert launch
        return _captured(torch, job, backend, checked, gpu, launch)

    return capturing.without_failing(job, made)


def _captured(
    torch: Any, job: Job, backend: Cuda, checked: Checked, gpu: Gpu, launch: TakenLaunch
) -> c.Captured:
    """Raises NotCapturedError, SpecError, and what launches raise."""
    spec = checked.spec.launches[0]
    header = cuda_arguments.signature_of(backend.signature(spec, {}), "")
    arguments = cuda_arguments.read(launch, header.parameters)
    values, _ = launch_spec.compute(checked.spec, header, Point(), World("cuda"))
    kernel = CudaKernel(backend.bind(spec, values, World("cuda")), [each.name for each in header.parameters])
    taken = Taken(
        kernel, launch.grid, None, dict(arguments.values), {}, _blocks(torch, launch), launch.number,
        torch.device("cuda", torch.cuda.current_device()), tuple((each.base, each.end) for each in launch.ranges),
    )  # fmt: skip
    after = Copies(torch, taken)
    after.launch()
    gpu.synchronize()
    _alike(torch, taken, launch, after)
    bounded, cut = cuda_extents.bounded(torch, taken, launch.block, after, gpu.synchronize)
    name = spec.kernel.name + (
        f"<{', '.join(each.text for each in spec.templates)}>" if spec.templates else ""
    )
    form = CudaForm(name, launch.block, launch.shared, launch.cluster, launch.cooperative, header.parameters)
    told = _remarks(launch, cut)
    captured = Capturing(torch, job, bounded, _OfCuda(bounded, form, backend, told), gpu).captured()
    return replace(captured, launch=launch.number)


def _blocks(torch: Any, launch: TakenLaunch, *, after: bool = False) -> tuple[Block, ...]:
    """Raises NotCapturedError."""
    blocks: list[Block] = []
    for at, known in enumerate(launch.ranges):
        if known.kind == "variable":
            continue
        try:
            content = bytearray(launch.memory(at, after=after))
        except NotTakenError as why:
            raise NotCapturedError(str(why)) from None
        blocks.append(Block(known.begin, torch.frombuffer(content, dtype=torch.uint8).to("cuda")))
    return tuple(blocks)


def _alike(torch: Any, taken: Taken, launch: TakenLaunch, after: Copies) -> None:
    """Raises NotCapturedError where the kernel gives something else than it gave in the program."""
    then = Copies(torch, replace(taken, blocks=_blocks(torch, launch, after=True)))
    for name, form in taken.forms.items():
        if not written_outputs.are_alike(torch, after.of(form), then.of(form)):
            raise NotCapturedError(
                f"launched again by itself it writes something else to {name}: it depends on more than its arguments, such as variables of the "
                "program, or on kernels that run beside it"
            )


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
