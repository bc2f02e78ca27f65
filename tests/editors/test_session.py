"""A session of hundreds of actions in Neovim: no prompts, nothing told twice, no warning of what is no problem.

One round in the tests; ORBIT_ROUNDS=12 is a session of some hundreds of actions (docs/dev/screen.md has its figures).
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable

from tests.editors import session
from tests.editors.conftest import EDITORS, program
from tests.editors.home import ROOT, SERVER
from tests.editors.neovim import Neovim
from tests.editors.terminal import Terminal
from tests.editors.test_beside import BIN, CLANGD, PYTHON

ROUNDS = int(os.environ.get("ORBIT_ROUNDS", "1"))
TOLD = shlex.join([sys.executable, str(ROOT / "tests" / "editors" / "told.py")])
TELLING = f'exec {TOLD} "$HOME/told" ' + SERVER.removeprefix("exec ")
BESIDE = tuple(BIN / name for name in ("clangd", "basedpyright-langserver", "ruff"))


def work(screen: session.Screen, title: str, *, python: bool) -> None:
    whole = session.Session(screen)
    for number in range(ROUNDS):
        session.work(whole, number, python=python)
    text = f"{title}: {ROUNDS} rounds, {whole.figures()}"
    (EDITORS / "seen" / "sheets").mkdir(parents=True, exist_ok=True)
    (EDITORS / "seen" / "sheets" / f"session-{title}.txt").write_text(text + "\n", encoding="utf-8")
    print(text)
    assert [*whole.prompts, *whole.doubled, *whole.popups] == [], text


class NeovimScreen:
    def __init__(self, terminal: Terminal, neovim: Neovim) -> None:
        self.terminal, self.home = terminal, neovim.home
        self.told = self.home.folder / "told"
        self.opened = self.home.opened

    def command(self, text: str) -> None:
        self.terminal.type(f":{text}")
        self.terminal.keys("Enter")

    def open(self, name: str, line: int) -> None:
        del line
        self.command(f"edit {name}")
        self.terminal.until(
            lambda shown: session.asks(shown) or any(word in shown for word in ("▶ Run", "✎ Draft", "⏳")),
            "lenses",
        )

    def look(self, line: int) -> None:
        self.command(f"call cursor({line}, 18)")

    def orbit(self, command: str) -> None:
        names = {"openReport": "report", "showOutput": "output", "compareWith": "compare last"}
        self.command(f"Orbit {names.get(command, command)}")

    def replace(self, old: str, new: str) -> None:
        self.command(f"%s/{old.replace('*', chr(92) + '*')}/{new}/")

    def undo(self) -> None:
        self.command("undo")

    def save(self) -> None:
        self.command("write")

    def hover(self) -> None:
        self.terminal.type("K")

    def leave(self) -> None:
        """The float, or the window with the output."""
        self.terminal.type("h")  # a float goes when the cursor moves
        self.command("silent! only")

    def rename(self, new: str) -> None:
        self.command(f"saveas {new} | call delete(expand('#'))")


def test_neovim(neovim: Callable[..., Neovim], nvim: str, terminal: Callable[..., Terminal]) -> None:
    opener = "vim.ui.open = function(url) vim.fn.writefile({ url }, vim.env.HOME .. '/opened', 'a') end\n"
    editor = neovim(config=opener + CLANGD + PYTHON, server=TELLING, beside=BESIDE)
    session.write_files(editor.home.write)
    shown = terminal(editor.home, program(nvim), columns=80, rows=40)
    work(NeovimScreen(shown, editor), nvim, python=True)
