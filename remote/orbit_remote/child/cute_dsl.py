"""CuTe DSL, whose compiler runs within the user's program. Variables tell it what to compile for and what to keep."""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import re
from collections.abc import Generator
from pathlib import Path

DEFAULT = "sm_90a"
_IMPORTED = re.compile(r"^[ \t]*(?:import|from)[ \t]+cutlass\b", re.MULTILINE)
_KEPT = ("*.mlir", "*.ptx", "*.cubin", "*.sass", "*.ll", "*")


def is_used(text: str) -> bool:
    """Say whether a Python file imports it."""
    return _IMPORTED.search(text) is not None


def version() -> dict[str, str]:
    """Return the package's version by its name. Return none if it is not installed."""
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        return {"nvidia-cutlass-dsl": importlib.metadata.version("nvidia-cutlass-dsl")}
    return {}


@contextlib.contextmanager
def keeping(folder: Path, architecture: str | None) -> Generator[None]:
    """Let the program that runs in the block write its kernels' IR, PTX and machine code to `folder`. Compiling needs
    no GPU if the architecture is named.
    """
    variables = {f"CUTE_DSL_KEEP_{what}": "1" for what in ("IR", "PTX", "CUBIN")} | {
        "CUTE_DSL_DUMP_DIR": str(folder)
    }
    if architecture:
        variables["CUTE_DSL_ARCH"] = architecture
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


def files(folder: Path) -> list[Path]:
    """Return what was written there, the IR first."""
    return list(dict.fromkeys(path for pattern in _KEPT for path in sorted(folder.rglob(pattern))))
