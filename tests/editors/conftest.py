"""ORBIT_NVIM names the Neovims to drive (several with the path separator between); without it they are skipped."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.editors.neovim import Neovim

NVIMS = [binary for binary in os.environ.get("ORBIT_NVIM", "").split(os.pathsep) if binary]
CAPTURES = Path(__file__).parent / "captures"


@pytest.fixture(params=NVIMS or [None])
def binary(request: pytest.FixtureRequest) -> str:
    if request.param is None:
        pytest.skip("drives a real Neovim: ORBIT_NVIM names none")
    return request.param


@pytest.fixture
def neovim(binary: str, tmp_path: Path) -> Iterator[Callable[..., Neovim]]:
    """neovim(**how) -> Neovim, closed at the end."""
    made: list[Neovim] = []

    def make(**how: Any) -> Neovim:
        made.append(Neovim(binary, tmp_path / f"home{len(made)}", **how))
        return made[-1]

    yield make
    for one in made:
        one.close()


class Captures:
    """What an editor showed, step by step, against the file that says what it should show."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.seen: list[str] = []
        self.expected = path.read_text(encoding="utf-8").split("\n\n") if path.exists() else []

    def check(self, step: str, shown: str) -> None:
        self.seen.append(f"== {step}\n{shown.rstrip()}\n".replace("\n\n", "\n"))
        if "ORBIT_CAPTURES" in os.environ:
            self.path.write_text("\n".join(self.seen), encoding="utf-8")
            return
        steps = [one.strip().partition("\n") for one in self.expected]
        said = {name: text for name, _, text in steps}
        assert self.seen[-1].strip().partition("\n")[2] == said.get(f"== {step}"), f"{self.path.name}: {step}"


@pytest.fixture
def captures(binary: str) -> Captures:
    """Those of this version of Neovim; ORBIT_CAPTURES=write writes them anew, for a person to read."""
    said = subprocess.run([binary, "--version"], capture_output=True, text=True, check=True).stdout
    minor = ".".join(said.split()[1].lstrip("v").split(".")[:2])
    return Captures(CAPTURES / f"neovim-{minor}.txt")
