"""Kernels of a Python file as text: a line for each, with what is special about it."""

from __future__ import annotations

from textwrap import dedent

from orbit_lsp.kernels.model import Scan
from orbit_lsp.kernels.python.triton_kernels import scan


def described(scanned: Scan) -> list[str]:
    return [
        f"{kernel.line + 1} {kernel.qualified}"
        + ("" if kernel.dsl == "triton" else f" {kernel.dsl}")
        + ("" if kernel.launchable else " helper")
        + (f" of {kernel.generator}" if kernel.generator else "")
        + (f" of {', '.join(kernel.callers)}" if kernel.callers else "")
        for kernel in scanned.kernels
    ]


def check(text: str, expected: str) -> None:
    assert described(scan(dedent(text))) == [line.strip() for line in expected.splitlines() if line.strip()]


IMPORT = "import triton\nimport triton.language as tl\n"
