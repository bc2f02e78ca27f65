"""`modal_loopback`: a control plane of its own for each test that asks for it. A folder's conftest.py gets it by

from tests.modal_loopback.fixture import modal_loopback
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Generator, Mapping
from pathlib import Path

import pytest

from tests.modal_loopback.loopback import Loopback


@contextlib.contextmanager
def started(
    monkeypatch: pytest.MonkeyPatch,
    home: Path,
    container_env: Mapping[str, str] | None = None,
    *,
    kept: bool = False,
) -> Generator[Loopback]:
    """A control plane that this process's `modal` finds, with a home folder without a ~/.modal.toml. At the
    end it fails the test where the client asked for an RPC that it has not, or where it broke itself; and no
    process of a container is left."""
    for name in [name for name in os.environ if name.startswith("MODAL_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(home))
    # the client that a test before made speaks to a port that is closed
    monkeypatch.setattr("modal.client._Client._client_from_env", None)
    # what it knows of environments, such as their image builder, is of another world
    monkeypatch.setattr("modal._environments.ENVIRONMENT_CACHE", {})
    with Loopback(container_env=container_env, kept=kept) as loopback:
        for name, value in loopback.env().items():
            monkeypatch.setenv(name, value)
        yield loopback
    alive = [container.id for container in loopback.world.containers.values() if not container.gone]
    assert not alive, f"containers outlived the test: {alive}"
    assert not loopback.world.missing, f"the loopback control plane lacks {sorted(loopback.world.missing)}"
    assert not loopback.world.errors, "\n".join(loopback.world.errors)


@pytest.fixture
def modal_loopback(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Generator[Loopback]:
    with started(monkeypatch, tmp_path) as loopback:
        yield loopback
