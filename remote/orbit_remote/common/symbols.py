"""Reads mangled names of functions: what they name in C++, and which kernel of Python's other kernel languages."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from orbit_remote.common.requests import OtherKernel

_IDENTIFIER = re.compile(r"K?L?(\d{1,6})")


@lru_cache(maxsize=1)
def _library() -> Any:
    """Return the C++ run time that knows `__cxa_demangle`, or None."""
    import ctypes  # 5 ms, of every command

    names = (
        ("libc++.1.dylib",)
        if sys.platform == "darwin"
        else ("libstdc++.so.6", "libc++.so.1", "libc++abi.so.1")
    )
    for name in names:
        try:
            library = ctypes.CDLL(name)
            function = library["__cxa_demangle"]
        except (OSError, AttributeError):
            continue
        function.argtypes = [ctypes.c_char_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.POINTER(ctypes.c_int)]
        function.restype = ctypes.c_void_p
        free = ctypes.CDLL(None).free
        free.argtypes = [ctypes.c_void_p]
        return function, free
    return None


@lru_cache(maxsize=4096)
def demangle(symbol: str) -> str:
    """Demangle a symbol: `_Z5tiledILi32EEvPf` -> `void tiled<32>(float*)`. Return the symbol itself if it is no C++
    name.
    """
    if not symbol.startswith("_Z") or (tools := _library()) is None:
        return symbol
    function, free = tools
    import ctypes

    status = ctypes.c_int()
    address = function(symbol.encode(), None, None, ctypes.byref(status))
    if not address:
        return symbol
    try:
        return ctypes.string_at(address).decode(errors="replace")
    finally:
        free(address)


def short_name(symbol: str) -> str:
    """Return the name without result and parameters: `ns::tiled<32>`."""
    name = demangle(symbol)
    return _own_guess(symbol) if name == symbol and symbol.startswith("_Z") else without_parameters(name)


def without_parameters(name: str) -> str:
    """Return a name without result and parameters: `void ns::tiled<32>(float*)` -> `ns::tiled<32>`."""
    name = re.sub(r" \[clone [^\]]*\]$", "", name)
    if name.endswith(")") and (start := opening(name, "(")) > 0:
        name = name[:start]
    depth = 0
    for index in range(len(name) - 1, -1, -1):
        if name[index] in ">)}]":
            depth += 1
        elif name[index] in "<({[":
            depth -= 1
        elif name[index] == " " and depth == 0:
            return name[index + 1 :]
    return name


def qualified_name(symbol: str) -> str:
    """Return the qualified name of a mangled or a demangled name: `void ns::tiled<32>(float*)` -> `ns::tiled`."""
    name, depth = "", 0
    for character in short_name(symbol).replace("(anonymous namespace)::", ""):
        if character == "<":
            depth += 1
        elif character == ">":
            depth -= 1
        elif depth == 0:
            name += character
    return name


def base_name(symbol: str) -> str:
    """Return the bare identifier that a source file spells, from a mangled or a demangled name: `tiled`."""
    return qualified_name(symbol).rpartition("::")[2]


def opening(text: str, bracket: str) -> int:
    """Return the index of the bracket that the last character closes, or 0 for none."""
    close, depth = text[-1], 0
    for index in range(len(text) - 1, -1, -1):
        depth += (text[index] == close) - (text[index] == bracket)
        if depth == 0:
            return index
    return 0


def _own_guess(symbol: str) -> str:
    """Return a name without a demangler (Windows): the identifiers of a plain Itanium name, `_ZN2ns5tiledILi32EE…` ->
    `ns::tiled`.
    """
    at = 3 if symbol.startswith("_ZN") else 2
    names: list[str] = []
    while length := _IDENTIFIER.match(symbol, at):
        end = length.end() + int(length[1])
        names.append(symbol[length.end() : end])
        at = end
        if not symbol.startswith("_ZN"):
            break
    return "::".join(name for name in names if not name.startswith("_GLOBAL__N")) or symbol


# -- Python's other kernel languages -----------------------------------------------------------------

_CPP = "(^|[^0-9]){size}{name}|^{name}$"
_RULES: Final = {
    "numba": "{sized}(B|E|I)",  # _ZN8__main__5saxpyB2v1B92cw51cXTLSUwv1s…E5ArrayIfLi1E1A7mutable7alignedE
    "warp": "^{path}(_[0-9a-f]+)?_cuda_kernel_(forward|backward)$",  # saxpy_4a1f9f21_cuda_kernel_forward
    # kernel_cutlass_saxpy_tensorptrf32gmemo1281__0; `set_name_prefix` puts words before it
    "cute": "(^|_)kernel_cutlass_{name}_",
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
    """Return a pattern for the mangled names of a kernel's instances."""
    parts = kernel.qualified.split(".")
    return _RULES[kernel.language].format(
        name=re.escape(kernel.name),
        size=len(kernel.name),
        path="__(locals__)?".join(map(re.escape, parts)),
        sized="(12_3clocals_3e)?".join(f"{len(part)}{re.escape(part)}" for part in parts),
    )


def candidates(symbol: str, kernels: Sequence[OtherKernel]) -> list[OtherKernel]:
    """Return the kernels that a mangled name may be an instance of, those with the longest name: `k_tail`, and not
    `k`. Two kernels of one name cannot be distinguished.
    """
    fitting = [kernel for kernel in kernels if re.search(pattern(kernel), symbol)]
    longest = max((_length(kernel) for kernel in fitting), default=None)
    fitting = [kernel for kernel in fitting if _length(kernel) == longest]
    return [kernel for kernel in fitting if _is_of_class(kernel, symbol)] or fitting


def find(symbol: str, kernels: Sequence[OtherKernel]) -> OtherKernel | None:
    """Return the one kernel that a mangled name is an instance of."""
    fitting = candidates(symbol, kernels)
    return fitting[0] if len(fitting) == 1 else None


def _length(kernel: OtherKernel) -> tuple[int, int]:
    """Return the length of the name, and of the names around it if the language's mangling has them."""
    around = len(kernel.qualified) if "{name}" not in _RULES[kernel.language] else 0
    return len(kernel.name), around


def _is_of_class(kernel: OtherKernel, symbol: str) -> bool:
    """Say whether a symbol is of the kernel's class. CuTe DSL names the class of a method's object:
    kernel_cutlass_kernel_k_pyGemm_object_at__…
    """
    return f"{kernel.qualified.rpartition('.')[0].rpartition('.')[2] or '.'}_object_at_" in symbol
