"""Demangled names of functions."""

from __future__ import annotations

import ctypes
import re
import sys
from functools import lru_cache
from typing import Any

_IDENTIFIER = re.compile(r"K?L?(\d{1,6})")


@lru_cache(maxsize=1)
def _library() -> Any:
    """The C++ run time that knows `__cxa_demangle`, or None."""
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
    """`_Z5tiledILi32EEvPf` -> `void tiled<32>(float*)`; the symbol itself where it is no C++ name."""
    if not symbol.startswith("_Z") or (tools := _library()) is None:
        return symbol
    function, free = tools
    status = ctypes.c_int()
    address = function(symbol.encode(), None, None, ctypes.byref(status))
    if not address:
        return symbol
    try:
        return ctypes.string_at(address).decode(errors="replace")
    finally:
        free(address)


def short_name(symbol: str) -> str:
    """The name without result and parameters: `ns::tiled<32>`."""
    name = demangle(symbol)
    return _own_guess(symbol) if name == symbol and symbol.startswith("_Z") else without_parameters(name)


def without_parameters(name: str) -> str:
    """`void ns::tiled<32>(float*)` -> `ns::tiled<32>`."""
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
    """Of a mangled or a demangled name: `void ns::tiled<32>(float*)` -> `ns::tiled`."""
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
    """The bare identifier a source file spells, of a mangled or a demangled name: `tiled`."""
    return qualified_name(symbol).rpartition("::")[2]


def opening(text: str, bracket: str) -> int:
    """The index of the bracket that the last character closes; 0 for none."""
    close, depth = text[-1], 0
    for index in range(len(text) - 1, -1, -1):
        depth += (text[index] == close) - (text[index] == bracket)
        if depth == 0:
            return index
    return 0


def _own_guess(symbol: str) -> str:
    """Without a demangler (Windows): the identifiers of a plain Itanium name, `_ZN2ns5tiledILi32EE…` -> `ns::tiled`."""
    at = 3 if symbol.startswith("_ZN") else 2
    names: list[str] = []
    while length := _IDENTIFIER.match(symbol, at):
        end = length.end() + int(length[1])
        names.append(symbol[length.end() : end])
        at = end
        if not symbol.startswith("_ZN"):
            break
    return "::".join(name for name in names if not name.startswith("_GLOBAL__N")) or symbol
