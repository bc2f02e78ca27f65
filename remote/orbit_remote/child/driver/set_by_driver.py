"""Handles variables that a driver's files set when they are imported. A process that has imported Triton before would
read them too late.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Generator
from typing import Any

from orbit_remote.child import triton_interpreter

_INTERPRET, _VISIBLE = "TRITON_INTERPRET", "CUDA_VISIBLE_DEVICES"


class SetByDriver:
    """What the driver has made of the variables. Within `heeded`, Triton is imported again when it has to interpret
    kernels.
    """

    def __init__(self, driver: str, device: int) -> None:
        """Make the observer. `driver` is the driver's name in messages, `device` is its own GPU."""
        self._driver = driver
        self._given = os.environ.get(_VISIBLE)
        self._own = {self._given, str(device) if self._given is None else None}

    @contextlib.contextmanager
    def heeded(self) -> Generator[None]:
        original = os.putenv

        def putenv(name: Any, value: Any) -> None:  # os.environ calls it
            before = os.environ.get(_INTERPRET)
            original(name, value)
            if os.fsdecode(name) == _INTERPRET and os.fsdecode(value) == "1" != before:
                triton_interpreter.forget()

        os.putenv = putenv
        try:
            yield
        finally:
            os.putenv = original

    @property
    def hidden(self) -> str:
        """Return a sentence if the driver hides all GPUs from itself, else ""."""
        value = os.environ.get(_VISIBLE)
        if value is None or value == self._given or (value[:1].isalnum() and not value.startswith("NoDev")):
            return ""
        return f'{self._driver} sets {_VISIBLE} to "{value}", so it sees no GPU'

    def remarks(self, *, launched: bool) -> Generator[str]:
        value = os.environ.get(_VISIBLE)
        if self.hidden:
            yield self.hidden
        elif value not in self._own and value is not None:
            yield (
                f"{self._driver} sets {_VISIBLE} to {value}: the GPU that was kept free of other jobs for it may be another one"
            )
        if not launched and os.environ.get(_INTERPRET) == "1":
            yield f"{self._driver} sets {_INTERPRET}=1, so Triton's kernels ran on the CPU"
