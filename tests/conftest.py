"""What every test has: a state folder of its own, and a reason where it is skipped or left out."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import random_cases


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--slow",
        action="store_true",
        help="also run the tests marked slow, and random tests with all their inputs",
    )


def pytest_configure(config: pytest.Config) -> None:
    random_cases.in_full = config.getoption("--slow")


@pytest.fixture(autouse=True)
def state_of_its_own(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test reads the history of whoever runs it, or writes to it."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("--slow"):
        slow = [item for item in items if item.get_closest_marker("slow")]
        items[:] = [item for item in items if item not in slow]
        config.hook.pytest_deselected(items=slow)
    if Path("/dev/nvidiactl").exists() or Path("/dev/dxg").exists():
        return
    skip = pytest.mark.skip(reason="needs an NVIDIA GPU; scripts/gpu_check runs it where there is one")
    for item in items:
        if item.get_closest_marker("gpu"):
            item.add_marker(skip)
