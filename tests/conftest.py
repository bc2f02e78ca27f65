"""Tests marked `gpu` need an NVIDIA GPU: without one they are skipped, and the summary says so."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def state_of_its_own(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test reads the history of whoever runs it, or writes to it."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if Path("/dev/nvidiactl").exists() or Path("/dev/dxg").exists():
        return
    skip = pytest.mark.skip(reason="needs an NVIDIA GPU; scripts/gpu_check runs it where there is one")
    for item in items:
        if item.get_closest_marker("gpu"):
            item.add_marker(skip)
