"""Names of kernels that hold across edits."""

from __future__ import annotations

from typing import NamedTuple

from orbit_lsp.kernels import Kernel, Scan


class KernelId(NamedTuple):
    """The name of a kernel across edits. Its place is always looked up in the present text."""

    uri: str
    key: str


def identify(uri: str, scan: Scan) -> list[tuple[KernelId, Kernel, str]]:
    """Return every kernel of a scan with its id and digest. Kernels with the same name are numbered."""
    seen: dict[str, int] = {}
    identified: list[tuple[KernelId, Kernel, str]] = []
    for kernel, digest in zip(scan.kernels, scan.digests, strict=True):
        count = seen[kernel.qualified] = seen.get(kernel.qualified, 0) + 1
        name = kernel.qualified if count == 1 else f"{kernel.qualified}#{count}"
        identified.append((KernelId(uri, name), kernel, digest))
    return identified
