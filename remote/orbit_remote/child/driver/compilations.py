"""Reports what Triton compiles while a driver runs, kernels and the C of its launchers: when it begins and when it is
over. It takes seconds once, and counts for no limit of a run.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Generator
from typing import Any

from orbit_remote.child.under_profiler import replaced
from orbit_remote.common.messages import Event, Stage


@contextlib.contextmanager
def told(send: Callable[[Event], None], run: str) -> Generator[None]:
    """Send, within the block, the stage `building` with the kernel's name while a kernel is compiled, and then
    `running`. What Triton's cache has is not compiled.
    """
    compiler: Any = sys.modules.get("triton.compiler.compiler")
    if compiler is None:
        yield
        return
    lock, here, compiling = threading.Lock(), threading.local(), 0

    def change(by: int, name: str = "") -> None:
        nonlocal compiling
        with lock:  # autotuning can compile in several threads
            compiling += by
            if by > 0:
                send(Stage(run, "building", time.time(), f"compiling {name}"))
            elif not compiling:
                send(Stage(run, "running", time.time()))

    def making(original: Callable[..., Any]) -> Callable[..., Any]:
        def make_ir(source: Any, *arguments: Any, **options: Any) -> Any:
            if not getattr(here, "compiles", False):
                here.compiles = True
                change(1, str(source.name))
            return original(source, *arguments, **options)

        return make_ir

    def whole(original: Callable[..., Any]) -> Callable[..., Any]:
        def compiled(*arguments: Any, **options: Any) -> Any:
            try:
                return original(*arguments, **options)
            finally:
                if getattr(here, "compiles", False):
                    here.compiles = False
                    change(-1)

        return compiled

    def building(original: Callable[..., Any]) -> Callable[..., Any]:
        def build(name: str, *arguments: Any, **options: Any) -> Any:
            change(1, f"Triton's {name.strip('_').removeprefix('triton_')}")
            try:
                return original(name, *arguments, **options)
            finally:
                change(-1)

        return build

    with contextlib.ExitStack() as undo:
        with contextlib.suppress(AttributeError, KeyError):  # another Triton: then nothing is told
            replaced(undo, sys.modules["triton.runtime.build"], "_build", building)
            replaced(undo, compiler.ASTSource, "make_ir", making)  # only where the cache has nothing
            replaced(undo, compiler, "compile", whole)
            replaced(undo, sys.modules["triton.compiler"], "compile", whole)
        yield
