"""Finds kernels in source text. Pure: it needs no editor, reads files only through a callback, and never raises."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Protocol

from orbit_lsp.kernels.model import Kernel, Language, Scan, Span, WrittenLaunch

__all__ = [
    "Kernel",
    "Language",
    "Scan",
    "Span",
    "Tracker",
    "WrittenLaunch",
    "language_of",
    "says_language",
    "tracker",
]

SOURCE_SUFFIXES = (".cu", ".cu.cc", ".cu.cpp", ".cu.cxx")
"""`.cu.cc` is what TensorFlow and JAX call them: nvcc gets `-x cu` for them."""
CUDA_SUFFIXES = (*SOURCE_SUFFIXES, ".cuh")
HEADER_SUFFIXES = (".h", ".hh", ".hpp", ".hxx", ".inl", ".inc")
"""Of C++ headers: CUDA where their text has a kernel."""
HOST_SUFFIXES = (".cc", ".cpp", ".cxx", ".c++")
"""Of C++ sources, which a build may give nvcc with `-x cu`: CUDA where they define a kernel, unless it is one of HIP."""
BY_TEXT_SUFFIXES = (*HEADER_SUFFIXES, *HOST_SUFFIXES)
_BY_LANGUAGE_ID: dict[str, Language] = {"cuda": "cuda", "cuda-cpp": "cuda", "python": "triton"}
"""The language ids of editors."""


class Tracker(Protocol):
    """Scans a text again and again as it changes, faster than a fresh scan."""

    def scan(self, text: str) -> Scan: ...


def language_of(path: str, text: str = "", language_id: str = "") -> Language | None:
    """Return the language of a file by its suffix, since editors call the same file cuda, cuda-cpp, cpp or c. A
    header is CUDA if its text may have a kernel, a C++ source if it defines one. The editor's `language_id` decides
    if the name says nothing, as for a text that was never saved.
    """
    lowered = path.lower()
    if text and lowered.endswith(HEADER_SUFFIXES):
        from orbit_lsp.kernels.cuda.macros import WELL_KNOWN, may_name_kernels, with_keyword

        readable = with_keyword(text)
        named = any(name in readable for name in ("__global__", *WELL_KNOWN))
        return "cuda" if named or may_name_kernels(text) else None
    if lowered.endswith(CUDA_SUFFIXES):
        return "cuda"
    if lowered.endswith(HOST_SUFFIXES):
        return "cuda" if _defines_kernels(text) else None
    if says_language(path):
        return "triton" if lowered.endswith(".py") else None
    return _BY_LANGUAGE_ID.get(language_id)


def says_language(path: str) -> bool:
    """Return whether the name of a file is enough to compile it: whether its suffix is known here."""
    return path.lower().endswith((*CUDA_SUFFIXES, *BY_TEXT_SUFFIXES, ".py"))


def _defines_kernels(text: str) -> bool:
    """Say whether a C++ source is CUDA. One that only holds a kernel in a string is compiled by the host's compiler."""
    if "__global__" not in text or "hip/hip_runtime" in text or "hipLaunchKernelGGL" in text:
        return False
    from orbit_lsp.kernels.cuda.cuda_kernels import scan

    return bool(scan(text).kernels)


def tracker(
    language: Language,
    *,
    macros: Collection[str] = (),
    headers: Callable[[str], str | None] | None = None,
) -> Tracker:
    """Return a tracker. `macros` are further names that stand for `__global__`. Parsers are loaded on first use."""
    if language == "cuda":
        from orbit_lsp.kernels.cuda.cuda_kernels import CudaTracker

        return CudaTracker(macros=macros, headers=headers)
    from orbit_lsp.kernels.python.triton_kernels import TritonTracker

    return TritonTracker()
