"""What the tests of one run share, whichever process runs them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of this run of pytest: the same one for every process of xdist, and another for every run."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if os.environ.get("PYTEST_XDIST_WORKER") else base) / "shared"
    folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture(scope="session")
def kept(shared: Path) -> Path:
    """A worker's cache that has what earlier tests built: for tests that are not about building."""
    for name in ("builds", "cupti"):
        (shared / "cache" / name).mkdir(parents=True, exist_ok=True)
    return shared / "cache"
