"""Kernels of Python's other kernel languages: how each names a kernel's machine code, and whose a launch is by that name."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from orbit_remote.common.messages import OtherKernel

_CPP = "(^|[^0-9]){size}{name}|^{name}$"
_RULES: Final = {
    "numba": "{size}{name}(B|E|I)",  # _ZN8__main__5saxpyB2v1B38c8tJTIe…Ef5ArrayIfLi1E1C7mutable7alignedE
    "warp": "^{path}(_[0-9a-f]+)?_cuda_kernel_(forward|backward)$",  # saxpy_4a1f9f21_cuda_kernel_forward
    "cute": "^kernel_cutlass_{name}_",  # kernel_cutlass_saxpy_tensorptrf32gmemalign4o1024_…_0
    "cutile": "^{name}(_K.*)?$",  # saxpy_K1_…
    "helion": "^_helion_{name}(_[0-9]+)?$",
    "tilelang": "^{name}_kernel(_[0-9]+)?$",
    "cupy": _CPP,
    "embedded": _CPP,  # CUDA C++ in a string: RawKernel, RawModule, load_inline, NVRTC
}
"""Language -> a regular expression of mangled names. `size` is the name's length, which C++'s mangling puts before it;
`path` the names of the functions and classes around it too, as Python's `__qualname__` has them.
"""

LANGUAGES: Final = frozenset(_RULES)


def pattern(kernel: OtherKernel) -> str:
    """Of the mangled names of a kernel's instances."""
    path = "__(locals__)?".join(map(re.escape, kernel.qualified.split(".")))
    return _RULES[kernel.language].format(name=re.escape(kernel.name), size=len(kernel.name), path=path)


def find(symbol: str, kernels: Sequence[OtherKernel]) -> OtherKernel | None:
    """The kernel that a mangled name is an instance of; of several the one with the longest name, as `k_tail` of `k`."""
    candidates = [kernel for kernel in kernels if re.search(pattern(kernel), symbol)]
    return max(candidates, key=lambda kernel: len(kernel.name), default=None)
