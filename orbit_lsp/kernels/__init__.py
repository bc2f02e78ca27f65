"""Source text -> kernels. Pure: no editor; files only through a callback; never raises."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Protocol

from orbit_lsp.kernels.model import Edit, Kernel, Language, Launch, Scan, Span

__all__ = ["Edit", "Kernel", "Language", "Launch", "Scan", "Span", "Tracker", "language_of", "track"]

CUDA_SUFFIXES = (".cu", ".cuh")


class Tracker(Protocol):
    """A scan that follows edits: always what a fresh scan of the present text would say."""

    @property
    def scan(self) -> Scan: ...

    def update(self, edits: list[Edit], text: str) -> Scan: ...


def language_of(path: str) -> Language | None:
    """By suffix only: editors call the same file cuda, cuda-cpp, cpp or c."""
    lowered = path.lower()
    if lowered.endswith(CUDA_SUFFIXES):
        return "cuda"
    return "triton" if lowered.endswith(".py") else None


def track(
    language: Language,
    text: str,
    *,
    macros: Collection[str] = (),
    headers: Callable[[str], str | None] | None = None,
) -> Tracker:
    """Scan `text` and keep what is needed to follow its edits; parsers load on first use."""
    if language == "cuda":
        from orbit_lsp.kernels.cuda.cuda_kernels import CudaTracker

        return CudaTracker(text, macros=macros, headers=headers)
    from orbit_lsp.kernels.python.triton_kernels import TritonTracker

    return TritonTracker(text)
