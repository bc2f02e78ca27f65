"""Takes one launch of a Triton kernel while its driver runs: its arguments and memory before the launch.

The launch is seen where Python makes it, at the kernel's `run`. The copies are made on the launch's own stream and
before it, so the driver waits for nothing.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import sys
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any, Final, cast

from orbit_remote.child import triton_instances, under_profiler
from orbit_remote.common.launch_records import LaunchSeries
from orbit_remote.common.lazy_dataclass import dataclass
from orbit_remote.common.limits import CAPTURED
from orbit_remote.common.requests import Capture
from orbit_remote.spec.dtypes import DTYPES
from orbit_remote.spec.values import amount

_RELAUNCHES: Final = 20
_ALIGNMENT: Final = 512  # what torch aligns to


class NotCapturedError(Exception):
    """No launch spec describes the launch. The text is a sentence, `remedy` is what to do."""

    def __init__(self, why: str, remedy: str = "") -> None:
        super().__init__(why)
        self.remedy = remedy


@dataclass(frozen=True, slots=True)
class Form:
    """A tensor without its elements. `strides` count elements. `address` is where its first element was, in bytes."""

    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    address: int

    @property
    def size(self) -> int:
        """Return the bytes of an element."""
        return DTYPES[self.dtype].size

    @property
    def end(self) -> int:
        """Return the address behind its last element."""
        if 0 in self.shape:
            return self.address
        last = sum((extent - 1) * step for extent, step in zip(self.shape, self.strides, strict=True))
        return self.address + (last + 1) * self.size


@dataclass(frozen=True, slots=True)
class Descriptor:
    """A TensorDescriptor of the host: blocks of a whole tensor."""

    base: Form
    block: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Block:
    """Memory in which tensors of the launch lie, from an address on: its bytes before the launch."""

    begin: int
    data: Any


@dataclass(frozen=True, slots=True)
class WatchedLaunch:
    """A launch that was taken. `arguments` are by parameter: a `Form`, a `Descriptor`, a number, a text, None, or a
    tuple of such; those with a default that were not given are absent. `grid_of` is the driver's own function, if it
    gave one. `segments` is the memory that torch had then.
    """

    function: Any
    grid: tuple[int, ...]
    grid_of: Callable[[Mapping[str, Any]], Any] | None
    arguments: dict[str, Any]
    options: dict[str, Any]
    blocks: tuple[Block, ...]
    number: int
    device: Any
    segments: tuple[tuple[int, int], ...] = ()

    @property
    def forms(self) -> dict[str, Form]:
        """Return the tensors, by parameter."""
        found: dict[str, Form] = {}
        for name, value in self.arguments.items():
            if isinstance(value, Form | Descriptor):
                found[name] = value if isinstance(value, Form) else value.base
        return found


class Copies:
    """A copy of a launch's memory as it was before it. Each block lies as far from a multiple of 512 as it did."""

    def __init__(self, torch: Any, taken: WatchedLaunch) -> None:
        self._torch = torch
        self._taken = taken
        self._bodies: list[tuple[Block, Any, int]] = []
        for block in taken.blocks:
            size = int(block.data.numel())
            whole = torch.empty(size + 2 * _ALIGNMENT, dtype=torch.uint8, device=block.data.device)
            start = (block.begin - int(whole.data_ptr())) % _ALIGNMENT
            whole[start : start + size].copy_(block.data)
            self._bodies.append((block, whole, start))

    def of(self, form: Form) -> Any:
        """Return torch's tensor of this form."""
        kind = getattr(self._torch, form.dtype)
        for block, whole, start in self._bodies:
            if (
                block.begin <= form.address < block.begin + int(block.data.numel())
                and form.end > form.address
            ):
                offset = (start + form.address - block.begin) // form.size
                made = self._torch.empty(0, dtype=kind, device=whole.device)
                return made.set_(whole.untyped_storage(), offset, form.shape, form.strides)
        return self._torch.empty(form.shape, dtype=kind, device=self._taken.device)

    def launch(self) -> Any:
        """Launch the kernel on this memory in the same way as it was launched before. Return Triton's compiled
        kernel.
        """
        taken = self._taken
        given = {name: self._passed(value) for name, value in taken.arguments.items()}
        return taken.function.run(grid=taken.grid, warmup=False, **given, **taken.options)

    def restore(self) -> None:
        """Restore the memory to its state before the launch."""
        for block, whole, start in self._bodies:
            whole[start : start + int(block.data.numel())].copy_(block.data)

    def _passed(self, value: Any) -> Any:
        if isinstance(value, Form):
            return self.of(value)
        if isinstance(value, Descriptor):
            descriptors: Any = importlib.import_module("triton.tools.tensor_descriptor")
            return descriptors.TensorDescriptor.from_tensor(self.of(value.base), list(value.block))
        if isinstance(value, tuple):
            return tuple(self._passed(each) for each in cast("tuple[Any, ...]", value))
        return value


class LaunchWatch:
    """Counts the launches of one kernel, and takes one of them."""

    def __init__(self, kernel: str, path: str, wanted: Capture) -> None:
        self._kernel = kernel
        self._path = _real(path)
        self._wanted = wanted
        self._tuning = 0
        self.seen = 0
        self.taken: WatchedLaunch | None = None
        self.why: NotCapturedError | None = None
        self.interpreted = False
        self.relaunched: tuple[LaunchSeries, ...] = ()
        """The records of the launches that `relaunch` made."""
        self.fell_back = False
        """The wanted configuration was not launched again, so the first launch of all was taken."""
        self._first: WatchedLaunch | None = None
        self.over = False
        """The driver has ended: what is launched now is ours."""

    def relaunch(self, clock: Callable[[], int], synchronise: Callable[[], None]) -> int | None:
        """Launch what was taken some times, one launch after the other. Return when that began, on the clock of the
        records. Return None if it fails; the later examination of the launch finds that out too.
        """
        self.settle()
        self.over = True
        if self.taken is None:
            return None
        try:
            copies = Copies(sys.modules["torch"], self.taken)
            synchronise()
            began = clock()
            for _ in range(_RELAUNCHES + 1):  # the first one finds cold caches
                copies.launch()
            synchronise()
        except Exception:  # noqa: BLE001 - of CUDA or the kernel
            return None
        return began

    @property
    def relaunched_ns(self) -> float | None:
        """Return the median time of these launches, in nanoseconds."""
        times = sorted(each for series in self.relaunched for each in series.durations)
        return float(times[len(times) // 2]) if times else None

    @contextlib.contextmanager
    def watching(self) -> Generator[None]:
        """Watch launches in this block. Those that autotuning makes are not counted."""
        with contextlib.ExitStack() as undo:
            jit: Any = importlib.import_module("triton.runtime.jit").JITFunction
            under_profiler.replaced(undo, jit, "run", self._seeing)
            with contextlib.suppress(ImportError, AttributeError):
                tuner: Any = importlib.import_module("triton.runtime.autotuner").Autotuner
                under_profiler.replaced(undo, tuner, "_bench", self._tuned)
            with contextlib.suppress(ImportError, AttributeError):
                host: Any = importlib.import_module("triton.runtime.interpreter").InterpretedFunction
                under_profiler.replaced(undo, host, "run", self._noticing)
            yield

    def _tuned(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def bench(*args: Any, **kwargs: Any) -> Any:
            self._tuning += 1
            try:
                return original(*args, **kwargs)
            finally:
                self._tuning -= 1

        return bench

    def _noticing(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def run(function: Any, *args: Any, **kwargs: Any) -> Any:
            self.interpreted = self.interpreted or self._is_ours(function)
            return original(function, *args, **kwargs)

        return run

    def _seeing(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def run(function: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
            if not (warmup or self._tuning or self.over) and self._is_ours(function):
                self.see(function, args, grid, kwargs)
            return original(function, *args, grid=grid, warmup=warmup, **kwargs)

        return run

    def _is_ours(self, function: Any) -> bool:
        code = getattr(getattr(function, "fn", None), "__code__", None)
        return code is not None and code.co_name == self._kernel and _real(code.co_filename) == self._path

    def see(self, function: Any, args: Sequence[Any], grid: Any, kwargs: Mapping[str, Any]) -> None:
        """Count a launch that is about to be made, and take it if it is the wanted one. Never raises."""
        self.seen += 1
        if self.is_done:
            return
        try:
            names = list(function.arg_names)
            given = dict(zip(names, args, strict=False)) | {k: v for k, v in kwargs.items() if k in names}
            options = {name: value for name, value in kwargs.items() if name not in names}
            asked: Any = grid(given | options) if callable(grid) else grid
            extents = tuple(int(each) for each in asked)
            is_wanted = self.is_wanted(function, extents, given | options)
            if is_wanted or (self.seen == 1 and self._wanted.launch is None):
                self.keep(_taken(function, names, given, options, extents, grid, self.seen), wanted=is_wanted)
        except NotCapturedError as why:
            self.why = why
        except Exception as error:  # noqa: BLE001 - the driver goes on as if nothing had been wanted of it
            self.why = NotCapturedError(f"launch {self.seen} of {self._kernel} could not be copied: {error}")

    @property
    def is_done(self) -> bool:
        """Say whether no later launch is looked at."""
        return self.taken is not None or self.why is not None

    def keep(self, taken: WatchedLaunch, *, wanted: bool) -> None:
        """Keep a launch: the wanted one, or the first of all in case that one is never made."""
        self.taken = taken if wanted else None
        self._first = None if wanted else taken

    def is_wanted(self, function: Any, grid: tuple[int, ...], given: Mapping[str, Any]) -> bool:  # noqa: ARG002 - others ask it
        """Return whether a launch is to be taken. `given` has its arguments and options by name."""
        wanted = self._wanted
        if wanted.launch is not None:
            return self.seen == wanted.launch
        same = (*grid, 1, 1)[:3] == (*wanted.grid, 1, 1)[:3] if wanted.grid else True
        return same and all(
            triton_instances.show(plain(given[name])) == text
            for name, text in wanted.constants.items()
            if name in given
        )

    def settle(self) -> None:
        """Settle, once the driver has ended. If it never made the wanted launch again, the first of all is taken."""
        if self.taken is None and self.why is None:
            self.taken, self._first = self._first, None
            self.fell_back = self.taken is not None

    def refusal(self) -> NotCapturedError | None:
        """Return why nothing was taken, once the driver has ended. Return None if something was."""
        if self.taken or self.why:
            return self.why
        if self.interpreted:
            return NotCapturedError(
                f"{self._kernel} ran in Triton's interpreter, on the CPU",
                "run the driver without TRITON_INTERPRET",
            )
        if not self.seen:
            return NotCapturedError(
                f"{self._kernel} was not launched by the process of the driver",
                "name another driver with --through: `orbit-lsp drivers` lists them",
            )
        times = "once" if self.seen == 1 else f"{self.seen:,} times"
        return NotCapturedError(
            f"{self._kernel} was launched {times}: there is no launch {self._wanted.launch}",
            f"name one from 1 to {self.seen:,}",
        )


def _taken(
    function: Any,
    names: Sequence[str],
    given: Mapping[str, Any],
    options: Mapping[str, Any],
    grid: tuple[int, ...],
    driver_grid: Any,
    number: int,
) -> WatchedLaunch:
    """Raises NotCapturedError."""
    torch = sys.modules["torch"]
    cuda: Any = torch.cuda
    if cuda.is_initialized() and cuda.is_current_stream_capturing():
        raise NotCapturedError(
            "it is launched inside a CUDA graph, which is recorded then and runs later",
            "capture a driver that launches it without a graph",
        )
    tensors: list[tuple[Form, Any]] = []
    arguments = {name: _argument(torch, name, given[name], tensors) for name in names if name in given}
    total = sum(end - begin for begin, end, _ in _spans(tensors))
    if total > CAPTURED.most:
        raise NotCapturedError(
            f"its arguments are {amount(total)}, more than {CAPTURED.size}",
            "name a smaller launch with --launch",
        )
    blocks = [Block(begin, _bytes(torch, tensor, begin, end)) for begin, end, tensor in _spans(tensors)]
    device = tensors[0][1].device if tensors else None
    segments: tuple[tuple[int, int], ...] = ()
    if cuda.is_initialized():
        segments = tuple(
            (int(each["address"]), int(each["address"]) + int(each["total_size"]))
            for each in cuda.memory_snapshot()
        )
    fixed = {name: plain(value) for name, value in options.items()}
    kept = driver_grid if callable(driver_grid) else None
    return WatchedLaunch(function, grid, kept, arguments, fixed, tuple(blocks), number, device, segments)


def _argument(torch: Any, name: str, value: Any, tensors: list[tuple[Form, Any]]) -> Any:
    """Raises NotCapturedError for what a launch spec cannot pass."""
    value = plain(value)
    if isinstance(value, torch.Tensor):
        dtype = str(value.dtype).removeprefix("torch.")
        if dtype not in DTYPES or value.layout != torch.strided:
            raise NotCapturedError(f"{name} is a tensor of {dtype}, which launch specs do not have")
        form = Form(dtype, tuple(value.shape), tuple(value.stride()), int(value.data_ptr()))
        tensors.append((form, value))
        return form
    if type(value).__name__ == "TensorDescriptor" and hasattr(value, "block_shape"):
        base = _argument(torch, name, value.base, tensors)
        whole = list(value.shape) == list(base.shape) and list(value.strides) == list(base.strides)
        if not whole or getattr(value, "padding", "zero") != "zero":
            raise NotCapturedError(
                f"{name} is a descriptor of a part of a tensor, which a launch spec cannot describe"
            )
        return Descriptor(base, tuple(value.block_shape))
    if _are_numbers(value):
        return value
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if type(value).__module__.startswith("triton.language") and type(value).__name__ == "dtype":
        return value
    raise NotCapturedError(f"{name} is {_kind(value)}, which a launch spec cannot pass")


def _are_numbers(value: object) -> bool:
    """Say whether a value is a plain tuple of numbers, no named one."""
    items = cast("tuple[Any, ...]", value) if type(value) is tuple else None
    return items is not None and all(each is None or isinstance(each, int | float) for each in items)


def _kind(value: Any) -> str:
    if callable(value):
        return f"the function {getattr(value, '__name__', '')}".rstrip()
    return f"a {type(value).__name__}"


def plain(value: Any) -> Any:
    """The value of a `tl.constexpr`."""
    return value.value if type(value).__name__ == "constexpr" else value


def _spans(tensors: Sequence[tuple[Form, Any]]) -> list[tuple[int, int, Any]]:
    """Return the stretches of memory in which tensors lie, as (begin, end, a tensor of that storage). Overlapping
    ones are merged.
    """
    merged: list[tuple[int, int, Any]] = []
    for form, tensor in sorted(tensors, key=lambda pair: pair[0].address):
        if form.end == form.address:
            continue
        if merged and form.address < merged[-1][1]:
            begin, end, first = merged.pop()
            merged.append((begin, max(end, form.end), first))
        else:
            merged.append((form.address, form.end, tensor))
    return merged


def _bytes(torch: Any, tensor: Any, begin: int, end: int) -> Any:
    """Return a copy of a stretch of the memory in which a tensor lies."""
    storage = tensor.untyped_storage()
    view = torch.empty(0, dtype=torch.uint8, device=tensor.device)
    return view.set_(storage, begin - int(storage.data_ptr()), (end - begin,), (1,)).clone()


def _real(path: str) -> str:
    with contextlib.suppress(OSError, ValueError):
        return str(Path(path).resolve())
    return path


def defaults(function: Any) -> dict[str, Any]:
    """Return the parameters of a kernel that have a default, with the default."""
    parameters = inspect.signature(function.fn).parameters.values()
    return {each.name: each.default for each in parameters if each.default is not each.empty}


@dataclass(slots=True)
class Tuned:
    """What the decorators of a kernel decide and a launch must not give: by `configurations` of `autotune`, and
    `heuristics`.
    """

    names: set[str] = field(default_factory=set[str])
    configurations: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])


def tuned(function: Any) -> Tuned:
    """Return what the decorators decide, from the object that the kernel's file has under its name."""
    found = Tuned()
    layer = function.fn.__globals__.get(function.fn.__name__)
    while layer is not None and layer is not function:
        for each in getattr(layer, "configs", ()):
            constants = dict(each.all_kwargs())
            found.configurations.append(constants)
            found.names |= constants.keys()
        found.names |= set(
            getattr(layer, "values", ()) if isinstance(getattr(layer, "values", None), dict) else ()
        )
        layer = getattr(layer, "fn", None)
        if not hasattr(layer, "run"):
            break
    return found
