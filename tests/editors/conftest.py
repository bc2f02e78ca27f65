"""scripts/editors installs the editors into .editors/ and sets ORBIT_EDITORS: then one that is missing is a failure.

ORBIT_CAPTURES=write writes the captures anew, for a person to read.
"""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.editors.home import ROOT, Home
from tests.editors.neovim import Neovim
from tests.editors.terminal import LIMIT_S, Terminal

EDITORS = Path(os.environ.get("ORBIT_EDITORS", ROOT / ".editors"))
CAPTURES = Path(__file__).parent / "captures"
WRITE = "ORBIT_CAPTURES" in os.environ


def program(name: str) -> str:
    path = EDITORS / "bin" / name
    if not path.exists():
        if "ORBIT_EDITORS" in os.environ:
            pytest.fail(f"there is no {path}: scripts/editors install")
        pytest.skip(f"drives the real {name}: scripts/editors install")
    return str(path)


def version(name: str) -> str:
    """`0.12.4` of `NVIM v0.12.4`."""
    message = subprocess.run([program(name), "--version"], capture_output=True, text=True, check=True).stdout
    return message.split("\n")[0].split()[-1].lstrip("v")


Saw = Callable[..., None]


class Seen:
    """What the editors showed, by feature of docs/editors/features.json; written for the table of docs/guide/editors.md."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.features: list[str] = list(json.loads((ROOT / "docs/editors/features.json").read_text()))
        self.editors: dict[str, dict[str, Any]] = {}

    def of(self, name: str, editor: str, release: str) -> Saw:
        """saw(feature, how) for one editor; `how` where it is not as in the others."""
        answer = self.editors.setdefault(name, {"editor": editor, "version": release, "features": {}})

        def saw(feature: str, how: str = "") -> None:
            assert feature in self.features, feature
            answer["features"][feature] = how

        return saw

    def first_lens(self, name: str, seconds: float) -> None:
        (self.folder / f"{name}.seconds").write_text(f"{seconds:.2f}\n")

    def close(self) -> None:
        """One editor's tests may have run in several processes: what each saw is added up."""
        with (self.folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            for name, editor in self.editors.items():
                path = self.folder / f"{name}.json"
                before = json.loads(path.read_text(encoding="utf-8"))["features"] if path.exists() else {}
                features = before | editor["features"]
                editor["features"] = {
                    feature: features[feature] for feature in self.features if feature in features
                }
                text = json.dumps(editor, indent=2, ensure_ascii=False)
                path.write_text(text + "\n", encoding="utf-8")


@pytest.fixture(scope="session")
def seen() -> Iterator[Seen]:
    folder = Path(os.environ.get("ORBIT_SEEN", EDITORS / "seen"))
    folder.mkdir(parents=True, exist_ok=True)
    item = Seen(folder)
    yield item
    item.close()


class Captures:
    """What an editor showed, step by step, against the file that says what it should show."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.seen: list[str] = []
        self.expected = path.read_text(encoding="utf-8").split("\n\n") if path.exists() else []

    def check(self, step: str, shown: str | Callable[[], str]) -> None:
        """Raises AssertionError where a text is not as it should be, or what is called does not come to it."""
        steps = (name.strip("\n").partition("\n") for name in self.expected)
        expected = {name: text for name, _, text in steps}.get(f"== {step}")
        look = shown if callable(shown) else lambda: shown
        if WRITE:
            text = _settled(look)
            self.seen.append(f"== {step}\n{text}\n")
            self.path.write_text("\n".join(self.seen), encoding="utf-8")
            return
        end = time.monotonic() + (LIMIT_S if callable(shown) else 0)
        while (text := _rows(look())) != expected and time.monotonic() < end:
            time.sleep(0.02)
        assert text == expected, f"{self.path.name}: {step}"


def _rows(shown: str) -> str:
    return "\n".join(row for row in shown.split("\n") if row.strip())


def _settled(look: Callable[[], str]) -> str:
    """What is shown once it has been the same for a second, as it is written down."""
    text, since = _rows(look()), time.monotonic()
    while time.monotonic() < since + 1:
        time.sleep(0.05)
        if (now := _rows(look())) != text:
            text, since = now, time.monotonic()
    return text


@pytest.fixture
def picture(tmux: str) -> Callable[[str, Terminal], None]:
    """Keep a terminal's screen with its colours; scripts/picture draws it."""
    folder = EDITORS / "pictures"
    folder.mkdir(exist_ok=True)
    return lambda name, terminal: (
        (folder / f"{name}.ansi").write_text(terminal.coloured(), encoding="utf-8") and None
    )


@pytest.fixture
def tmux() -> str:
    return program("tmux")


@pytest.fixture
def terminal(tmux: str) -> Iterator[Callable[..., Terminal]]:
    """terminal(home, *command) -> Terminal, closed at the end."""
    made: list[Terminal] = []

    def make(home: Home, *command: str, **size: int) -> Terminal:
        made.append(Terminal(tmux, home, command, **size))
        return made[-1]

    yield make
    for item in made:
        item.close()


@pytest.fixture(params=["nvim-0.11", "nvim-0.12"])
def nvim(request: pytest.FixtureRequest) -> str:
    """The name of a Neovim."""
    program(request.param)
    return request.param


@pytest.fixture
def neovim(nvim: str, tmp_path: Path) -> Iterator[Callable[..., Neovim]]:
    """neovim(**how) -> Neovim, closed at the end."""
    made: list[Neovim] = []

    def make(**how: Any) -> Neovim:
        made.append(Neovim(program(nvim), tmp_path / f"home{len(made)}", **how))
        return made[-1]

    yield make
    for item in made:
        item.close()


@pytest.fixture
def saw(nvim: str, seen: Seen) -> Saw:
    release = version(nvim)
    return seen.of(nvim.replace("nvim", "neovim"), "Neovim", release)


@pytest.fixture
def captures(nvim: str) -> Captures:
    return Captures(CAPTURES / f"{nvim.replace('nvim', 'neovim')}.txt")
