"""A session of hundreds of actions in Neovim, Helix and Emacs: no prompts, nothing told twice, no warning of what is no problem.

One round in the tests; ORBIT_ROUNDS=12 is a session of some hundreds of actions (docs/dev/results/screen.md has its figures).
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable
from pathlib import Path

from tests.editors import session
from tests.editors.conftest import EDITORS, program
from tests.editors.home import ROOT, SAXPY, SERVER
from tests.editors.neovim import Neovim
from tests.editors.terminal import Terminal
from tests.editors.test_beside import BIN, CLANGD, PYTHON
from tests.editors.test_emacs import Emacs
from tests.editors.test_helix import Helix, last_row

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
        names = {
            "openReport": "report",
            "showOutput": "output",
            "compareWith": "compare last",
            "chooseGpu": "gpu L4",
        }
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


class HelixScreen:
    """In the menu of code actions and by `:lsp-workspace-command`, which is about the kernel that was looked at."""

    def __init__(self, editor: Helix) -> None:
        self.editor, self.terminal, self.home = editor, editor.terminal, editor.home
        self.told = self.home.folder / "told"
        self.opened = self.home.opened

    def open(self, name: str, line: int) -> None:
        self.editor.command(f"open {name}")
        self.terminal.until_shown(f" {name} ")

    def look(self, line: int) -> None:
        def ready(shown: str) -> bool:
            return " NOR " in shown and "(" not in last_row(shown)

        if not ready(self.terminal.screen()):  # with what is typed next, Escape may be read as Alt
            self.terminal.keys("Escape")
            self.terminal.until(ready, "the text")
        self.editor.command(str(line))
        self.editor.actions("Show PTX")
        self.leave()
        self.terminal.until_gone("Show PTX")

    def orbit(self, command: str) -> None:
        self.editor.command(f"lsp-workspace-command orbit.{command}")
        if command == "compareWith":
            self.terminal.until_shown("the version before")
            self.terminal.keys("Enter")
        if command == "chooseGpu":
            self.terminal.until_shown("which GPU")
            self.terminal.keys("Down", "Enter")

    def replace(self, old: str, new: str) -> None:
        pattern = old.replace("*", r"\*")
        self.terminal.type(f"/{pattern}")
        self.terminal.until_shown(f"search:{pattern}")
        self.terminal.keys("Enter")
        self.terminal.type("c")
        self.terminal.until_shown(" INS ")
        self.terminal.type(new)
        self.terminal.until_shown(new)
        self.terminal.keys("Escape")

    def undo(self) -> None:
        self.terminal.type("u")

    def save(self) -> None:
        self.editor.command("write")

    def hover(self) -> None:
        """The page of clangd's that may stand before ours is turned."""
        self.terminal.keys("Space", "k")
        if "[1/2] clangd" in self.terminal.until(lambda shown: "/2] " in shown, "two pages"):
            self.terminal.keys("M-n")

    def leave(self) -> None:
        self.terminal.keys("Escape")
        if "/reports/output-" in self.terminal.screen():
            self.editor.command("buffer-close")

    def rename(self, new: str) -> None:
        self.editor.command(f"move ./{new}")


class EmacsScreen:
    """By `M-x orbit`, which is about the kernel at point."""

    def __init__(self, editor: Emacs) -> None:
        self.editor, self.terminal, self.home = editor, editor.terminal, editor.home
        self.told = self.home.folder / "told"
        self.opened = self.home.opened

    def open(self, name: str, line: int) -> None:
        self.terminal.keys("C-x", "C-f")
        self.terminal.until_shown("Find file:")
        self.editor.answer(name)
        self.terminal.until_shown(f"  {name} ")

    def look(self, line: int) -> None:
        self.terminal.keys("M-g", "g")
        self.terminal.until_shown("Goto line")
        self.editor.answer(str(line))

    def orbit(self, command: str) -> None:
        self.editor.orbit(command)
        if command == "compareWith":
            self.terminal.until_shown("the version before")
            self.terminal.keys("Enter")
        if command == "chooseGpu":
            self.terminal.until_shown("Choose an option:")
            self.terminal.keys("C-a", "C-k")
            self.terminal.type("L4,")
            self.terminal.keys("Tab", "Enter")

    def replace(self, old: str, new: str) -> None:
        self.terminal.keys("M-<")
        self.editor.command("replace-string")
        self.terminal.until_shown("Replace string")
        self.editor.answer(old)
        self.terminal.until_shown("with")
        self.editor.answer(new)
        self.terminal.until_shown("Replaced 1")

    def undo(self) -> None:
        self.editor.command("undo")
        self.terminal.until_shown("Undo")

    def save(self) -> None:
        self.terminal.keys("C-x", "C-s")

    def hover(self) -> None:
        self.editor.command("eldoc")

    def leave(self) -> None:
        self.terminal.keys("C-x", "1")

    def rename(self, new: str) -> None:
        self.editor.command("rename-visited-file")
        self.terminal.until_shown("Rename visited file to")
        self.editor.answer(new)


def test_neovim(neovim: Callable[..., Neovim], nvim: str, terminal: Callable[..., Terminal]) -> None:
    opener = "vim.ui.open = function(url) vim.fn.writefile({ url }, vim.env.HOME .. '/opened', 'a') end\n"
    editor = neovim(config=opener + CLANGD + PYTHON, server=TELLING, beside=BESIDE)
    session.write_files(editor.home.write)
    shown = terminal(editor.home, program(nvim), columns=80, rows=40)
    work(NeovimScreen(shown, editor), nvim, python=True)


def test_helix(terminal: Callable[..., Terminal], tmp_path: Path) -> None:
    # wide enough for a hint behind the signature in the first line, above which there is no other
    editor = Helix(terminal, tmp_path / "home", server=TELLING, beside=BESIDE, columns=120, rows=40)
    session.write_files(editor.home.write)
    editor.open("saxpy.cu", SAXPY)
    work(HelixScreen(editor), "helix", python=True)


def test_emacs(terminal: Callable[..., Terminal], tmp_path: Path) -> None:
    editor = Emacs(terminal, tmp_path / "home", server=TELLING, columns=80, rows=40)
    session.write_files(editor.home.write)
    editor.open("saxpy.cu", SAXPY)
    editor.actions("▶ Run on H100 80GB HBM3 (saxpy)")
    editor.terminal.keys("C-g")
    editor.terminal.until_gone("Pick an action")
    work(EmacsScreen(editor), "emacs", python=False)
