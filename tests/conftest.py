"""Tests marked `gpu` need an NVIDIA GPU: without one they are skipped, and the summary says so."""

from __future__ import annotations

from pathlib import Path

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if Path("/dev/nvidiactl").exists() or Path("/dev/dxg").exists():
        return
    skip = pytest.mark.skip(reason="needs an NVIDIA GPU; scripts/gpu_check runs it where there is one")
    for item in items:
        if item.get_closest_marker("gpu"):
            item.add_marker(skip)
