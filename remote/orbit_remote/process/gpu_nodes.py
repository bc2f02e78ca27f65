"""Finds out whether this machine has an NVIDIA GPU, without asking CUDA."""

from __future__ import annotations

from pathlib import Path


def has_gpu() -> bool:
    """Return whether the driver's device is there. A process that will fork must not start CUDA to find out."""
    return any(Path(node).exists() for node in ("/dev/nvidiactl", "/dev/dxg"))
