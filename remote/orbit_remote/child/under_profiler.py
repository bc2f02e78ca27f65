"""Works in a job's own process under Nsight Compute: which launches it profiles, and to which line each instruction
belongs.

Nsight Compute is started with `--profile-from-start off`, so that loading, compiling, checking and tuning are not
profiled, and listens to the driver's own two calls. Without a profiler they do nothing.

Line information changes no instruction, but most languages of Python's kernels leave it out unless they are asked.
Triton, cuTile and Helion write it by themselves.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import inspect
import os
import sys
from collections.abc import Callable, Container, Generator, Sequence
from pathlib import Path
from typing import Any

from orbit_remote.common import python_errors

_FLAG = "-lineinfo"
"""nvcc's and NVRTC's."""
_TELLING = 8
"""Characters of a line that can say where in the file it stands: a brace stands everywhere."""


def start() -> None:
    """Start profiling. There has to be a CUDA context. Raises OSError if there is no driver."""
    _driver().cuProfilerStart()


def stop() -> None:
    _driver().cuProfilerStop()


@contextlib.contextmanager
def profiled(torch: Any = None) -> Generator[None]:
    """Profile what is launched within the block. With a torch, wait before it for what is still under way, and at its
    end for its launches.
    """
    synchronize = torch.cuda.synchronize if torch else lambda: None
    synchronize()
    start()
    try:
        yield
        synchronize()
    finally:
        stop()


def _driver() -> ctypes.CDLL:
    return ctypes.CDLL("libcuda.so.1")


# -- lines ------------------------------------------------------------------------------------------


@contextlib.contextmanager
def with_lines(languages: Container[str], path: str, text: str) -> Generator[None]:
    """Let what the program compiles within the block have line information. `languages` are those of the kernels in
    the file at `path` with this `text`.
    """
    lines = [line.rstrip() for line in text.split("\n")]

    def placed(source: Any) -> Any:
        return with_places(source, path, lines) if isinstance(source, str) else source

    with contextlib.ExitStack() as undo:
        for language, word, ask in _LIBRARIES:
            if language in languages and word in text:
                with contextlib.suppress(
                    ImportError, AttributeError
                ):  # another version: profiled without lines
                    ask(undo, placed)
        yield


def with_places(source: str, path: str, lines: Sequence[str]) -> str:
    """Return CUDA C++ whose parts stand in `lines` of the file at `path`, with directives that tell the preprocessor
    which lines these are.
    """
    of_source = [line.rstrip() for line in source.split("\n")]
    made: list[str] = []
    offset: int | None = None
    for number, line in enumerate(source.split("\n"), 1):
        at = python_errors.same_line(of_source, number, lines)
        # a directive within a macro of several lines would end it
        continued = number > 1 and of_source[number - 2].endswith("\\")
        if at is not None and at - number != offset and not continued and len(line.strip()) >= _TELLING:
            offset = at - number
            name = path.replace("\\", "\\\\").replace('"', '\\"')
            made.append(f'#line {at} "{name}"')
        made.append(line)
    return "\n".join(made)


Placed = Callable[[Any], Any]


def replaced(undo: contextlib.ExitStack, of: Any, name: str, wrap: Callable[[Any], Any]) -> None:
    """Replace an attribute by what `wrap` makes of it, until `undo` is closed."""
    original = getattr(of, name)
    setattr(of, name, wrap(original))
    undo.callback(setattr, of, name, original)


def _set(undo: contextlib.ExitStack, name: str, value: str) -> None:
    before = os.environ.get(name)
    os.environ[name] = value
    undo.callback(os.environ.pop, name, None) if before is None else undo.callback(
        os.environ.update, {name: before}
    )


def _cute(undo: contextlib.ExitStack, _: Placed) -> None:
    _set(undo, "CUTE_DSL_LINEINFO", "1")


def _warp(undo: contextlib.ExitStack, _: Placed) -> None:
    config: Any = importlib.import_module("warp.config")
    replaced(undo, config, "lineinfo", lambda _: True)


def _numba(undo: contextlib.ExitStack, _: Placed) -> None:
    dispatcher: Any = importlib.import_module("numba.cuda.dispatcher").CUDADispatcher

    def asking(original: Any) -> Any:
        def init(self: Any, function: Any, targetoptions: dict[str, Any], *args: Any, **kwargs: Any) -> None:
            if not targetoptions.get("debug"):
                targetoptions = targetoptions | {"lineinfo": True}
            original(self, function, targetoptions, *args, **kwargs)

        return init

    replaced(undo, dispatcher, "__init__", asking)

    # kernels of an earlier run are kept by their types alone, with or without lines
    def nothing(dispatcher: Any) -> None:
        """Do nothing: nothing is kept."""

    replaced(undo, dispatcher, "enable_caching", lambda _: nothing)


def _cupy(undo: contextlib.ExitStack, placed: Placed) -> None:
    compiler: Any = importlib.import_module("cupy.cuda.compiler")

    def asking(original: Any) -> Any:
        def compiled(source: Any, options: tuple[str, ...] = (), *args: Any, **kwargs: Any) -> Any:
            return original(placed(source), (*options, _FLAG), *args, **kwargs)

        return compiled

    replaced(undo, compiler, "_compile_with_cache_cuda", asking)


def _tilelang(undo: contextlib.ExitStack, _: Placed) -> None:
    """Make TileLang write the author's lines. It always writes line information, but for its own CUDA C++, unless
    that names the author's lines.
    """
    key: Any = importlib.import_module("tilelang.transform").PassConfigKey.TL_EMIT_LINE_DIRECTIVES
    cache: Any = importlib.import_module("tilelang.cache.kernel_cache")

    def asking(original: Any) -> Any:
        def configured(given: Any) -> dict[Any, Any]:
            named: dict[Any, Any] = original(given) or {}
            return {key: True} | named

        return configured

    replaced(undo, cache, "normalize_pass_configs", asking)


def _cpp_extension(undo: contextlib.ExitStack, placed: Placed) -> None:
    extension: Any = importlib.import_module("torch.utils.cpp_extension")

    def asking(original: Any) -> Any:
        signature = inspect.signature(original)

        def load(*args: Any, **kwargs: Any) -> Any:
            given = signature.bind(*args, **kwargs)
            sources = given.arguments.get("cuda_sources")
            if sources is not None:
                given.arguments["cuda_sources"] = (
                    placed(sources) if isinstance(sources, str) else [placed(source) for source in sources]
                )
            given.arguments["extra_cuda_cflags"] = [*(given.arguments.get("extra_cuda_cflags") or ()), _FLAG]
            return original(*given.args, **given.kwargs)

        return load

    for name in ("load", "load_inline"):
        replaced(undo, extension, name, asking)
    # in a folder of its own: else a run after a profile, and a profile after a run, would build it anew each time
    root = os.environ.get("TORCH_EXTENSIONS_DIR") or extension.get_default_build_root()
    version = f"py{sys.version_info[0]}{sys.version_info[1]}_{extension.torch.__version__}"
    _set(undo, "TORCH_EXTENSIONS_DIR", str(Path(root) / "lineinfo" / version))


_LIBRARIES = (
    ("cute", "cutlass", _cute),
    ("warp", "warp", _warp),
    ("numba", "numba", _numba),
    ("tilelang", "tilelang", _tilelang),
    ("embedded", "cupy", _cupy),
    ("embedded", "cpp_extension", _cpp_extension),
)
"""(language, a word of each file that uses the library, how it is asked). CuPy's own Python kernels are not here: it writes
CUDA C++ of them, in which no line is the author's.
"""
