"""Runs Triton's interpreter in this process: NumPy runs the kernels, and it is known which program instance does
what.
"""

from __future__ import annotations

import importlib
import inspect
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any

from orbit_remote.common.lazy_dataclass import dataclass

Grid = tuple[int, int, int]
_MASK = "orbit mask"


@dataclass(frozen=True, slots=True)
class ProgramInstance:
    """A program instance: which launch of its kernel, from 0, and its place in the grid."""

    launch: int
    program: Grid


class InstanceEndedError(BaseException):
    """The chosen instance is over, and nothing after it matters. No `except Exception` of the user's stops it."""


def forget() -> None:
    """Forget Triton, so that the next import loads it again, except for its compiled part, which can only be loaded
    once.
    """
    for name in [name for name in sys.modules if name.partition(".")[0] == "triton"]:
        if not name.startswith("triton._C"):
            del sys.modules[name]


class TritonInterpreter:
    """Triton, imported again. Whether kernels are compiled or interpreted is decided when their functions are made,
    also those of triton.language.
    """

    def __init__(self, kernel: str) -> None:
        """Make an interpreter. Only instances of `kernel` are distinguished; other kernels run whole."""
        os.environ["TRITON_INTERPRET"] = "1"
        forget()
        self._module: Any = importlib.import_module("triton.runtime.interpreter")
        self._kernel = kernel
        self._launch = -1
        self._writes: list[tuple[ProgramInstance, Any]] | None = None
        self.enter: Callable[[Any, ProgramInstance, Callable[[], None]], None] | None = None
        """Given each instance's function, its number, and what runs it."""
        self._patch_executor()
        self._patch_builder()
        _take_first_configuration()

    def record_writes(self, on: bool) -> None:
        self._writes = [] if on else None
        self._launch = -1

    def writer(self, address: int) -> ProgramInstance | None:
        """Return the instance that wrote there last, of those that ran while writes were recorded."""
        for instance, addresses in reversed(self._writes or []):
            if (addresses == address).any():
                return instance
        return None

    def _patch_executor(self) -> None:
        executor = self._module.GridExecutor
        call = executor.__call__

        def launch(self_: Any, *arguments: Any, **keywords: Any) -> Any:
            if self_.fn.__name__ == self._kernel:
                self._launch += 1
                self_.fn = _Programs(self_.fn, self._run)
            return call(self_, *arguments, **keywords)

        executor.__call__ = launch

    def _run(self, function: Any, arguments: Mapping[str, Any]) -> None:
        instance = ProgramInstance(self._launch, tuple(self._module.interpreter_builder.grid_idx))
        if self.enter is None:
            function(**arguments)
        else:
            self.enter(function, instance, lambda: function(**arguments))

    def _patch_builder(self) -> None:
        """Patch the builder: writes are noted, and what was loaded under a mask is shown with it."""
        builder: Any = self._module.InterpreterBuilder
        store, load = builder.create_masked_store, builder.create_masked_load
        show = self._module._patch_lang_tensor  # noqa: SLF001

        def noted_store(self_: Any, ptrs: Any, value: Any, mask: Any, *more: Any, **named: Any) -> Any:
            if self._writes is not None:
                instance = ProgramInstance(self._launch, tuple(self_.grid_idx))
                self._writes.append((instance, ptrs.data[mask.data]))
            return store(self_, ptrs, value, mask, *more, **named)

        def noted_load(self_: Any, ptrs: Any, mask: Any, *more: Any, **named: Any) -> Any:
            loaded = load(self_, ptrs, mask, *more, **named)
            loaded.set_attr(_MASK, mask.data)
            return loaded

        def shown_tensor(tensor: Any, *scope: Any) -> None:
            show(tensor, *scope)
            tensor.__repr__ = _shown

        builder.create_masked_store, builder.create_masked_load = noted_store, noted_load
        self._module._patch_lang_tensor = shown_tensor  # noqa: SLF001


class _Programs:
    """A kernel's function as the interpreter calls it, once for each program instance."""

    def __init__(self, function: Any, run: Callable[[Any, Mapping[str, Any]], None]) -> None:
        self._function = function
        self._run = run
        self.__signature__ = inspect.signature(function)
        self.__annotations__ = function.__annotations__
        self.__globals__ = function.__globals__
        self.__name__ = function.__name__

    def __call__(self, **arguments: Any) -> None:
        self._run(self._function, arguments)


def _shown(tensor: Any) -> str:
    """Return what a debugger shows: NumPy's values, with `--` for those that no thread loaded."""
    handle = tensor.handle
    mask = getattr(handle, "attr", {}).get(_MASK)
    if mask is None or mask.all():
        return repr(handle.data)
    numpy: Any = sys.modules["numpy"]
    return repr(numpy.ma.masked_array(handle.data, ~mask))


def _take_first_configuration() -> None:
    """Take the first configuration: autotuning times configurations on a GPU, which an interpreted kernel does not
    have.
    """
    tuner: Any = importlib.import_module("triton.runtime.autotuner").Autotuner

    def run(self: Any, *arguments: Any, **keywords: Any) -> Any:
        config = self.configs[0]
        if config.pre_hook is not None:
            config.pre_hook(
                {**dict(zip(self.arg_names, arguments, strict=False)), **keywords, **config.all_kwargs()}
            )
        return self.fn.run(*arguments, **keywords, **config.all_kwargs())

    tuner.run = run
