"""One set of a spec's values with the memory that its launches get, ready to be launched."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from orbit_remote.child.spec import device_memory
from orbit_remote.child.spec.device_memory import POISONS, Memory
from orbit_remote.child.spec.launches import BoundLaunch, Ready
from orbit_remote.child.spec.shared_memory import SharedMemory
from orbit_remote.common import codec, limits
from orbit_remote.common import messages as c
from orbit_remote.common.lazy_dataclass import dataclass
from orbit_remote.common.requests import Job, SpecStart
from orbit_remote.spec import launch_spec
from orbit_remote.spec.interpreter import SpecScope, evaluate
from orbit_remote.spec.launch_spec import EvaluatedSpec, SpecPoint
from orbit_remote.spec.signature import Signature
from orbit_remote.spec.syntax_tree import Assignment, Reference, SpecError, SpecLaunch
from orbit_remote.spec.values import Scalar, Tensor, Value, World, amount


class Backend(Protocol):
    """The differences between CUDA and Triton."""

    def signature(self, launch: SpecLaunch, values: Mapping[str, Value]) -> Signature | None: ...

    def bind(self, launch: SpecLaunch, values: Mapping[str, Value], world: World) -> BoundLaunch: ...

    def set_symbol(self, assignment: Assignment, values: Mapping[str, Value], world: World) -> None: ...

    def tunes(self, launch: SpecLaunch) -> bool:
        """Say whether a first launch tries configurations, on the very buffers that it is given."""
        ...

    def results(self, reference: Reference, values: Mapping[str, Value], world: World) -> tuple[Any, ...]:
        """Return what the function of a `reference` returns, as torch's tensors. Raises SpecError."""
        ...


class MissingPackageError(Exception):
    """This Python lacks what a job needs."""

    def __init__(self, text: str, remedy: str) -> None:
        super().__init__(text)
        self.failure = c.Failure("infrastructure", text, remedy)


def load_torch(job: Job, what: str, device: str = "cuda") -> Any:
    """Return torch, with the job's GPU as its current one. Raises MissingPackageError; `what` begins the sentence
    that says who needs torch.
    """
    try:
        torch: Any = importlib.import_module("torch")
    except ImportError:
        text = f"{what} torch, which {sys.executable} lacks"
        raise MissingPackageError(text, "install torch there, or name another `orbit.python`") from None
    if device == "cuda":
        if not torch.cuda.is_available():
            text = f"the torch {torch.__version__} of {sys.executable} finds no GPU"
            raise MissingPackageError(
                text, "install a build of torch for CUDA, or look at the driver: `orbit-lsp doctor`"
            )
        if job.device:
            torch.cuda.set_device(job.device)
    return torch


class Gpu:
    """torch's current device, as far as trials need one."""

    device = "cuda"

    def __init__(self, torch: Any, shared: SharedMemory | None = None) -> None:
        self.torch = torch
        self._shared = shared

    def free(self) -> int:
        """Return the bytes that new tensors may take: what the driver has free, and what torch holds unused."""
        cuda = self.torch.cuda
        held = int(cuda.memory_reserved()) - int(cuda.memory_allocated())
        return int(cuda.mem_get_info()[0]) + held

    def synchronize(self) -> None:
        self.torch.cuda.synchronize()

    def fill_shared(self, turn: int) -> None:
        """Leave nothing in shared memory that a launch could take for its own."""
        if self._shared:
            self._shared.fill(turn)


@dataclass(frozen=True, slots=True)
class Trial:
    """A trial. `ready` are the launches in order, on `memory`. What is expected is computed from `values`."""

    values: Mapping[str, Value]
    world: World
    bound: tuple[BoundLaunch, ...]
    memory: Memory
    ready: tuple[Ready, ...]

    def launch(self, before: Callable[[], None] = lambda: None) -> None:
        for ready in self.ready:
            before()
            ready.launch()

    @property
    def written(self) -> list[str]:
        """Return the tensors that the launches changed. Those that were empty before count as changed."""
        changed = self.memory.changed()
        names = [name for each in self.bound for name in each.outputs if name in changed]
        return list(dict.fromkeys(names))


class Trials:
    """Makes trials for one spec."""

    def __init__(self, checked: EvaluatedSpec, job: Job, backend: Backend, gpu: Gpu) -> None:
        assert job.definition is not None
        self.gpu = gpu
        self._checked = checked
        self._spec = checked.spec
        self._kernel = job.definition.name
        self._folder = str(Path(job.path).parent)
        stored = job.start.stored if isinstance(job.start, SpecStart) else {}
        self._stored = {name: codec.unpacked(content, limits.STORED) for name, content in stored.items()}
        self._backend = backend
        self._seed = int(self.amount("seed", {}) or 0)

    def make(self, point: SpecPoint, turn: int) -> Trial:
        """Make a trial. Another `turn` has other random inputs. If outputs are expected as captured, the inputs stay
        and the outputs get another poison. Raises SpecError, at its place, for what is impossible.
        """
        header = self._header(point)
        free = self.gpu.free()
        self._room(point, header, free)
        captured = launch_spec.is_captured(self._spec)
        world = World(
            self._spec.language, self.gpu.torch, self.gpu.device, seed=self._seed, turn=0 if captured else turn, memory=free,
            folder=self._folder, stored=self._stored, portable=captured,
        )  # fmt: skip
        values, faults = launch_spec.compute(self._spec, header, point, world)
        if faults:
            raise SpecError(faults[0].span, faults[0].message)
        for symbol in self._spec.symbols:
            self._backend.set_symbol(symbol, values, world)
        bound = tuple(self._backend.bind(launch, values, world) for launch in self._spec.launches)
        memory = Memory(self.gpu.torch, tensors(bound), POISONS[turn], self.gpu.free() // 4)
        return Trial(
            values, world, bound, memory, tuple(bound_launch.ready(memory.of) for bound_launch in bound)
        )

    def tune(self, point: SpecPoint) -> None:
        """Let autotuning run on memory of its own: it launches as often as it likes."""
        if any(self._backend.tunes(launch) for launch in self._spec.launches):
            self.make(point, 0).launch()
            self.gpu.synchronize()

    def amount(self, word: str, values: Mapping[str, Value]) -> float | None:
        """Return what `bytes`, `flops`, `seed`, `iterations` or `warmup` says. Return None if the spec does not say
        it.
        """
        counted = self._spec.amounts.get(word)
        if counted is None:
            return None
        world = World(self._spec.language, wide=word in ("bytes", "flops"))
        value = evaluate(counted.value, world, SpecScope(values))
        return float(value.value) if isinstance(value, Scalar) else None

    def _described(self, point: SpecPoint, header: Signature | None) -> dict[str, Value]:
        return launch_spec.compute(self._spec, header, point, World(self._spec.language))[0]

    def _header(self, point: SpecPoint) -> Signature | None:
        """Return the kernel's parameters, as the compiler gave them if there is one."""
        known = self._checked.signature
        for launch in self._spec.launches:
            if launch.kernel.name == self._kernel:
                return self._backend.signature(launch, self._described(point, known)) or known
        return known

    def _room(self, point: SpecPoint, header: Signature | None, free: int) -> None:
        """Refuse what cannot fit before anything is allocated."""
        described = self._described(point, header)
        known = {name: value for name, value in described.items() if isinstance(value, Tensor)}
        wanted = device_memory.needed((value, value.storage == name) for name, value in known.items())
        if wanted <= free or not known:
            return
        largest = max(known, key=lambda name: known[name].bytes)
        span = next(
            assignment.span for assignment in self._spec.assignments if assignment.name.name == largest
        )
        message = (
            f"The inputs and the copies that kernels get take {amount(wanted)} ({largest} alone "
            f"{amount(known[largest].bytes)}), and the GPU has {amount(free)} free."
        )
        raise SpecError(span, message)


def tensors(bound: Sequence[BoundLaunch]) -> list[tuple[Tensor, bool]]:
    """Return what the launches are given, each with whether they may write it."""
    return [each for bound_launch in bound for each in bound_launch.tensors]
