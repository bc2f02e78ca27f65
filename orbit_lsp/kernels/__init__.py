"""Source text -> kernels. Pure: no editor; files only through a callback; never raises."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Protocol

from orbit_lsp.kernels.model import Kernel, Language, Launch, Scan, Span

__all__ = ["Kernel", "Language", "Launch", "Scan", "Span", "Tracker", "language_of", "tracker"]

SOURCE_SUFFIXES = (".cu", ".cu.cc", ".cu.cpp", ".cu.cxx")
"""`.cu.cc` is what TensorFlow and JAX call them: nvcc is told that they are CUDA."""
CUDA_SUFFIXES = (*SOURCE_SUFFIXES, ".cuh")
HEADER_SUFFIXES = (".h", ".hh", ".hpp", ".hxx", ".inl", ".inc")
"""Of C++ headers: CUDA where their text has a kernel."""


class Tracker(Protocol):
    """Scans a text again and again as it changes, sooner than afresh."""

    def scan(self, text: str) -> Scan: ...


def language_of(path: str, text: str = "") -> Language | None:
    """By suffix only: editors call the same file cuda, cuda-cpp, cpp or c. A header is CUDA if its text may have a kernel."""
    lowered = path.lower()
    if text and lowered.endswith(HEADER_SUFFIXES):
        from orbit_lsp.kernels.cuda.macros import WELL_KNOWN, may_name_kernels, with_keyword

        readable = with_keyword(text)
        named = any(name in readable for name in ("__global__", *WELL_KNOWN))
        return "cuda" if named or may_name_kernels(text) else None
    if lowered.endswith(CUDA_SUFFIXES):
        return "cuda"
    return "triton" if lowered.endswith(".py") else None


def tracker(
    language: Language,
    *,
    macros: Collection[str] = (),
    headers: Callable[[str], str | None] | None = None,
) -> Tracker:
    """`macros` are further names that stand for `__global__`. Parsers load on first use."""
    if language == "cuda":
        from orbit_lsp.kernels.cuda.cuda_kernels import CudaTracker

        return CudaTracker(macros=macros, headers=headers)
    from orbit_lsp.kernels.python.triton_kernels import TritonTracker

    return TritonTracker()
