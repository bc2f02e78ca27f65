"""The result of scanning a source file. All positions count from 0; columns count Unicode code points."""

from __future__ import annotations

from dataclasses import field, replace
from typing import Literal

from orbit_remote.common.lazy_dataclass import dataclass
from orbit_remote.common.limits import KERNELS

Language = Literal["cuda", "triton"]


SPECIFIED = frozenset(("cuda", "triton", "gluon"))
"""The kernel languages that have launch specs."""
RUNNABLE = SPECIFIED | {"cupy", "embedded", "numba", "warp", "cute", "cutile", "helion", "tilelang"}
"""The kernel languages that get run lenses: those whose runs were seen on a GPU (docs/dev/languages.md). `orbit-lsp run` files
the launches of all that `symbols.LANGUAGES` has.
"""


@dataclass(frozen=True, slots=True)
class Span:
    """A range from (line, column) to (end_line, end_column), the end exclusive."""

    line: int
    column: int
    end_line: int
    end_column: int


@dataclass(frozen=True, slots=True)
class Kernel:
    """One kernel definition.

    `line` is where lenses stand: the line of `__global__` (or of the macro that expands to it), of `def` in Python,
    of the assignment in `k = triton.jit(f)`; `f = triton.jit(f)` is the `def`. `whole` runs from the template header
    or the first decorator to the end of the body. `launchable` is False for a Triton function that only other kernels
    can call. `callers` then names the kernels of this file that reach it, those that call it first. `generator` is
    the library's decorator that makes kernels from a function: the function is launched through what that makes.
    `bounds` are the arguments of `__launch_bounds__` as written. `dsl` is the kernel language itself: Python has
    several (triton, gluon, numba, …). `embedded` is CUDA C++ in a string of a Python file. `renamed`: a macro gives
    the kernel its name, and the text does not say which: compilers may use another name than `name`.
    """

    name: str
    qualified: str
    language: Language
    line: int
    name_span: Span
    whole: Span
    launchable: bool = True
    callers: tuple[str, ...] = ()
    bounds: tuple[str, ...] = ()
    template: bool = False
    dsl: str = "cuda"
    generator: str = ""
    renamed: bool = False


@dataclass(frozen=True, slots=True)
class WrittenLaunch:
    """A `kernel<<<grid, block, …>>>` or `kernel[grid](…)` in host code. `block` is its size and `shared` the bytes of
    dynamic shared memory of each block; None if they are not constant.

    `grid` is kept only for Python, as written between the brackets.
    """

    kernel: str
    line: int
    arguments: tuple[str, ...]
    block: tuple[int, int, int] | None = None
    grid: str = ""
    shared: int | None = 0


@dataclass(frozen=True, slots=True)
class Scan:
    """Everything a file's text says without running it.

    `entries` are the ways to run the file: `main` for CUDA; for Python those of benchmark, benchmark_kernel, main,
    run and test, in this order, that take no argument, and `__main__` for the guarded part. `includes` are the quoted
    and angled names as written. `digests` has, for each kernel's index in `kernels`, the digest of all tokens it
    depends on in this file. Comments and white space do not count (`orbit:` comments above the kernel do), nor do
    other kernels' bodies.
    """

    language: Language
    kernels: tuple[Kernel, ...] = ()
    launches: tuple[WrittenLaunch, ...] = ()
    entries: tuple[str, ...] = ()
    includes: tuple[str, ...] = ()
    digests: tuple[str, ...] = ()
    problems: tuple[str, ...] = field(default=())
    left_out: Kernel | None = None
    """The first kernel behind `limits.KERNELS`: it and those after it are not in `kernels`."""
    unread: int | None = None
    """The line from which on kernels are not looked for, behind one of the limits of statements and declarations."""


def within_limit(scan: Scan) -> Scan:
    """Return the scan with as many kernels as a file may have."""
    most = KERNELS.most
    if len(scan.kernels) <= most:
        return scan
    return replace(
        scan, kernels=scan.kernels[:most], digests=scan.digests[:most], left_out=scan.kernels[most]
    )
