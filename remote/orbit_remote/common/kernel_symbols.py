"""Kernels of Python's other kernel languages: how each names a kernel's machine code, and whose a launch is by that name."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from orbit_remote.common.messages import OtherKernel

_CPP = "(^|[^0-9]){size}{name}|^{name}$"
_RULES: Final = {
    "numba": "{sized}(B|E|I)",  # _ZN8__main__5saxpyB2v1B92cw51cXTLSUwv1s…E5ArrayIfLi1E1A7mutable7alignedE
    "warp": "^{path}(_[0-9a-f]+)?_cuda_kernel_(forward|backward)$",  # saxpy_4a1f9f21_cuda_kernel_forward
    "cute": "^kernel_cutlass_{name}_",  # kernel_cutlass_saxpy_tensorptrf32gmemo1281__0
    "cutile": "^{name}(_K.*)?$",  # saxpy_Kt1_A1f32_1t1_A1f32_1t1_I1024
    "helion": "^_helion_{name}(_[0-9]+)?$",
    "tilelang": "^{name}_kernel(_[0-9]+)?$",
    "cupy": _CPP,
    "embedded": _CPP,  # CUDA C++ in a string: RawKernel, RawModule, load_inline, NVRTC
}
"""Language -> a regular expression of mangled names. `size` is the name's length, which C++'s mangling puts before it;
`path` and `sized` have the names of the functions and classes around it too, as Python's `__qualname__`.
"""

LANGUAGES: Final = frozenset(_RULES)


def pattern(kernel: OtherKernel) -> str:
    """Of the mangled names of a kernel's instances."""
    parts = kernel.qualified.split(".")
    return _RULES[kernel.language].format(
        name=re.escape(kernel.name),
        size=len(kernel.name),
        path="__(locals__)?".join(map(re.escape, parts)),
        sized="(12_3clocals_3e)?".join(f"{len(part)}{re.escape(part)}" for part in parts),
    )


def candidates(symbol: str, kernels: Sequence[OtherKernel]) -> list[OtherKernel]:
    """The kernels that a mangled name may be an instance of, those with the longest name: `k_tail`, and not `k`. Two of one
    name cannot be told apart.
    """
    fitting = [kernel for kernel in kernels if re.search(pattern(kernel), symbol)]
    longest = max((_length(kernel) for kernel in fitting), default=None)
    fitting = [kernel for kernel in fitting if _length(kernel) == longest]
    return [kernel for kernel in fitting if _is_of_class(kernel, symbol)] or fitting


def find(symbol: str, kernels: Sequence[OtherKernel]) -> OtherKernel | None:
    """The one kernel that a mangled name is an instance of."""
    fitting = candidates(symbol, kernels)
    return fitting[0] if len(fitting) == 1 else None


def _length(kernel: OtherKernel) -> tuple[int, int]:
    """Of the name; of the names around it where the language's mangling has them."""
    around = len(kernel.qualified) if "{name}" not in _RULES[kernel.language] else 0
    return len(kernel.name), around


def _is_of_class(kernel: OtherKernel, symbol: str) -> bool:
    """CuTe DSL names the class of a method's object: kernel_cutlass_kernel_k_pyGemm_object_at__…"""
    return f"{kernel.qualified.rpartition('.')[0].rpartition('.')[2] or '.'}_object_at_" in symbol
