"""Clients that have a snippet in docs/dev/clients.md and no plug-in here: each runs, shows, edits, breaks and corrects a kernel."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.editors import session
from tests.editors.conftest import EDITORS, program
from tests.editors.home import ROOT, SAXPY, TIME, Home
from tests.editors.terminal import LIMIT_S, Terminal
from tests.editors.test_emacs import Emacs
from tests.editors.test_session import TELLING, EmacsScreen

AGAIN_S = 0.2
"""How soon it is looked again at what no output tells of."""
PRESS_S = 5.0
"""After which keys are pressed again that had no effect."""


def snippet(client: str) -> str:
    """The configuration that the documentation gives for a client."""
    text = (ROOT / "docs" / "dev" / "clients.md").read_text(encoding="utf-8")
    return text.split(f"**{client}**", 1)[1].split("```", 2)[1].partition("\n")[2]


class ClientSession(session.Session):
    """A run has ended when its time is shown: lsp-mode 10.0.0 drops messages that come together with the answer that it waits for, so that
    it may never show progress.
    """

    def run(self, command: str = "run") -> None:
        self.act(command, lambda: self.screen.orbit(command), lambda shown: TIME in shown)


def work(screen: session.Screen) -> None:
    whole = ClientSession(screen)
    session.one_kernel(whole)
    assert [*whole.prompts, *whole.doubled, *whole.popups] == [], whole.figures()


LSP_MODE = """\
(setq native-comp-enable-subr-trampolines nil native-comp-jit-compilation nil)
(setq inhibit-startup-screen t save-silently t make-backup-files nil auto-save-default nil create-lockfiles nil)
(menu-bar-mode -1)
(column-number-mode 1)
(keymap-unset minibuffer-local-completion-map "SPC" t)
(let ((default-directory "{packages}")) (normal-top-level-add-subdirs-to-load-path))
(load "lsp-mode-autoloads" nil t)
(setq lsp-auto-guess-root t flymake-show-diagnostics-at-end-of-line t)
(add-hook 'c++-mode-hook (lambda () (remove-hook 'flymake-diagnostic-functions 'flymake-cc t)) 90)
"""


class LspModeScreen(EmacsScreen):
    """Its commands are code actions."""

    def orbit(self, command: str) -> None:
        assert command == "run"
        self.editor.command("lsp-execute-code-action")
        self.terminal.until_shown("Select code action:")
        self.editor.answer("▶ Run on H100 80GB HBM3 (saxpy)")

    def hover(self) -> None:
        self.editor.command("lsp-describe-thing-at-point")


def test_lsp_mode(terminal: Callable[..., Terminal], tmp_path: Path) -> None:
    packages = EDITORS / "debian" / "usr" / "share" / "emacs" / "site-lisp" / "elpa-src"
    settings = snippet("Emacs with lsp-mode").replace('(:gpu "H100")', '(:gpu "H100" :python "{python}")')
    init = LSP_MODE.replace("{packages}", str(packages)) + settings
    editor = Emacs(terminal, tmp_path / "home", server=TELLING, init=init, columns=120, rows=40)
    editor.open("saxpy.cu", SAXPY)
    editor.terminal.until_shown("▶ Run on H100")
    screen = LspModeScreen(editor)
    work(screen)
    # the place of a mistake, of which an emoji before it takes two units of the protocol
    screen.replace("y[n] = a", "/* 😀 */ y[n] = BUG")
    screen.save()
    editor.terminal.until_shown("undefined")
    screen.look(2)
    editor.command("flymake-goto-next-error")
    editor.terminal.until_shown("(2,18)")  # it is two columns wide too


class Kate:
    """On a screen that nobody sees, driven by keys. What is shown is read from what the server told it, and where, from what is typed there."""

    def __init__(self, folder: Path) -> None:
        self.home = Home(folder, server=TELLING)
        self.environment = self.home.environment | {"XDG_RUNTIME_DIR": str(folder / "run")}
        (folder / "run").mkdir(mode=0o700)
        settings = snippet("Kate").replace('"gpu": "H100"', f'"gpu": "H100", "python": "{self.home.python}"')
        self.home.configure("kate/lspclient/settings.json", settings)
        # it asks before it starts a server that was not allowed before
        allowed = f"[lspclient]\nAllowedServerCommandLines={self.home.folder / 'bin' / 'orbit-lsp'}\n"
        self.home.configure("katerc", f"[Kate Plugins]\nlspclientplugin=true\n{allowed}")
        told, tell = os.pipe()
        self._started = [
            subprocess.Popen([program("Xvfb"), "-displayfd", str(tell), "-nolisten", "tcp"], pass_fds=[tell], stderr=subprocess.DEVNULL)
        ]  # fmt: skip
        os.close(tell)
        with os.fdopen(told) as display:
            self.environment["DISPLAY"] = f":{display.readline().strip()}"

    def open(self, name: str, text: str) -> Path:
        path = self.home.write(name, text)
        command = [program("kate"), "--new", "--block", str(path)]
        editor = subprocess.Popen(
            command, env=self.environment, cwd=self.home.workspace, stderr=subprocess.DEVNULL
        )
        self._started.insert(0, editor)
        self._xdotool("search", "--sync", "--onlyvisible", "--name", name)
        return path

    def _xdotool(self, *words: str) -> str:
        asked = [program("xdotool"), *words]
        return subprocess.run(
            asked, env=self.environment, capture_output=True, text=True, timeout=LIMIT_S, check=False
        ).stdout

    def keys(self, *names: str) -> None:
        self._xdotool("key", *names)

    def type(self, text: str) -> None:
        self._xdotool("type", text)

    def windows(self) -> int:
        return len(self._xdotool("search", "--onlyvisible", "--pid", str(self._started[0].pid)).split())

    def told(self) -> list[str]:
        """The texts of messages, ends of progress and diagnostics, the last of each kind at the end."""
        path = self.home.folder / "told"
        return [json.loads(line)["text"] for line in path.read_text().splitlines()] if path.exists() else []

    def until(self, condition: Callable[[], object], press: Callable[[], object] = lambda: None) -> None:
        """`press` is done at first and again after a while, since keys are lost until the server has answered."""
        end, pressed = time.monotonic() + LIMIT_S, 0.0
        while not condition():
            assert time.monotonic() < end, "\n".join(self.told())
            if time.monotonic() > pressed + PRESS_S:
                press()
                pressed = time.monotonic()
            time.sleep(AGAIN_S)

    def close(self) -> None:
        for process in self._started:
            process.kill()  # Kate would ask about what is not saved
            process.wait(LIMIT_S)


@pytest.fixture
def kate(tmp_path: Path) -> Iterator[Kate]:
    program("kate")
    item = Kate(tmp_path / "home")
    yield item
    item.close()


def test_kate(kate: Kate) -> None:
    line = "  /* 😀 */ y[n] = a * x[n]; "
    path = kate.open("saxpy.cu", SAXPY.replace("  y[n] = a * x[n];", f"{line}BUG;"))
    kate.until(lambda: kate.told()[-1:] == ['identifier "BUG" is undefined'])
    kate.until(  # the place of a mistake is where what is deleted stands
        lambda: path.read_text().split("\n")[1] == f"{line};",
        lambda: kate.keys("alt+shift+Right", "Delete", "Delete", "Delete", "ctrl+s"),
    )
    kate.until(lambda: kate.told()[-1] == "")
    before = kate.windows()
    kate.until(lambda: kate.windows() > before, lambda: kate.keys("alt+Return"))  # the menu of code actions
    # the menu takes no keys before it has been drawn
    kate.until(lambda: kate.windows() == before, lambda: kate.keys("Home", "Return"))
    kate.until(lambda: kate.told()[-1].startswith(f"⏱ {TIME}"))
    kate.until(lambda: "edited since" in kate.told()[-1], lambda: kate.type("1;"))
