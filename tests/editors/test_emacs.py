"""Emacs in a terminal with editors/emacs/orbit.el: eglot has no lenses, so everything by code action and command.

The server is the real one. Its GPU side is a recorded H100: these machines have no GPU.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.editors.conftest import CAPTURES, Captures, Seen, program, version
from tests.editors.home import ALONE, HEADER, PROFILED, ROOT, RUN_TIME, SAXPY, SERVER, TIME, Home
from tests.editors.terminal import Terminal

INIT = """\
(setq suggest-key-bindings nil inhibit-startup-screen t save-silently t make-backup-files nil auto-save-default nil create-lockfiles nil)
(menu-bar-mode -1)
(setq frame-background-mode 'dark)
(mapc #'frame-set-background-mode (frame-list))
(setq browse-url-browser-function (lambda (url &rest _) (write-region url nil "~/opened")))
(defun look-at (name)
  (interactive "sLook at: ")
  (goto-char 1)
  (re-search-forward (concat "\\\\_<" name "("))
  (forward-line 0)
  (recenter))
(load "{snippet}" nil t)
(setq orbit-settings '(:python "{python}" :gpu "H100"))
"""


class Emacs:
    def __init__(
        self,
        start: Callable[..., Terminal],
        folder: Path,
        *,
        server: str = SERVER,
        init: str = INIT,
        **size: int,
    ) -> None:
        self.home = Home(folder, server=server)
        snippet = ROOT / "editors" / "emacs" / "orbit.el"
        text = init.replace("{snippet}", str(snippet)).replace("{python}", str(self.home.python))
        init_file = self.home.configure("emacs/init.el", text)
        self._start = lambda path: start(
            self.home, program("emacs"), "-nw", "-Q", "-l", str(init_file), str(path), **size
        )
        self.terminal: Terminal

    def open(self, name: str, text: str) -> None:
        path = self.home.write(name, text)
        if hasattr(self, "terminal"):
            self.terminal.keys("C-x", "C-f", "C-a", "C-k")
            self.answer(str(path))
        else:
            self.terminal = self._start(path)
        self.terminal.until_shown(f"  {name} ")

    def answer(self, text: str) -> None:
        """In the minibuffer."""
        self.terminal.type(text)
        self.terminal.until_shown(text)
        self.terminal.keys("Enter")

    def command(self, name: str) -> None:
        self.terminal.keys("M-x")
        self.terminal.until_shown("M-x")
        self.answer(name)

    def orbit(self, command: str) -> None:
        self.command("orbit")
        self.terminal.until_shown("Orbit:")
        self.answer(command)

    def actions(self, wanted: str) -> None:
        """Ask for code actions until `wanted` is the first: while the server starts there are none."""
        while True:
            self.terminal.keys("M-x")
            # an answer to what was asked for before may come first, and takes the keys that follow
            shown = self.terminal.until(lambda shown: "M-x" in shown or "Pick an action" in shown, "M-x")
            if "Pick an action" not in shown:
                self.terminal.type("eglot-code-actions")
                self.terminal.keys("Enter")
            shown = self.terminal.until(
                # "Connected!" comes only to what was asked for too early, and hides that answer
                lambda shown: any(
                    text in shown
                    for text in ("Pick an action", "[eglot] No ", "No current", "[eglot] Connected!")
                ),
                wanted,
            )
            if any(f"(default {wanted}" in row and row.endswith("):") for row in shown.split("\n")):
                return
            if "Pick an action" in shown:
                self.terminal.keys("C-g")
                self.terminal.until_shown("Quit")

    def replace_a(self, text: str) -> None:
        """In `a * x[n]`."""
        self.terminal.keys("M-<")
        self.command("replace-string")
        self.terminal.until_shown("Replace string")
        self.answer("a * x")
        self.terminal.until_shown("with")
        self.answer(f"{text} * x")
        self.terminal.until_shown("Replaced 1")

    def undo(self, until: str) -> None:
        self.command("undo")
        self.terminal.until_shown(until)

    def screen(self) -> str:
        """Without the fill of the mode line and the share of a progress that is shown for a moment."""
        rows = [re.sub(r" -+$", "", row) for row in self.terminal.screen().split("\n")]
        return re.sub(r"\[eglot:workspace[^]]*\]", "[eglot:workspace]", "\n".join(rows))


@pytest.fixture
def emacs(terminal: Callable[..., Terminal], tmp_path: Path) -> Callable[..., Emacs]:
    program("emacs")
    return lambda **how: Emacs(terminal, tmp_path / "home", **how)


def test_an_author_at_work(
    emacs: Callable[..., Emacs], seen: Seen, picture: Callable[[str, Terminal], None]
) -> None:
    saw = seen.of("emacs", "Emacs (eglot)", version("emacs"))
    captures = Captures(CAPTURES / "emacs.txt")
    editor = emacs()
    editor.open("saxpy.cu", SAXPY)
    terminal = editor.terminal
    terminal.until_shown("[eglot:workspace]")
    editor.actions("▶ Run on H100 80GB HBM3 (saxpy)")
    seen.first_lens("emacs", time.monotonic() - terminal.began)
    captures.check("code actions", editor.screen)
    terminal.keys("Enter")
    terminal.until_shown(TIME)
    captures.check("Run was chosen", editor.screen)
    saw("action", "`eglot-code-actions`")
    saw("result", "as a note")
    terminal.until_shown("orbit: Run saxpy: 288 µs")
    saw("end", "echo area")

    editor.command("eldoc")
    terminal.until_shown("time, median")
    captures.check("hover", editor.screen)
    saw("hover", "`eldoc`")
    terminal.keys("C-x", "1")
    terminal.until_gone("time, median")

    editor.replace_a("b")
    terminal.until_shown("edited since")
    captures.check("edited", editor.screen)
    editor.undo("= a *")
    terminal.until_gone("edited since")
    captures.check("the edit was undone", editor.screen)
    saw("stale")

    editor.replace_a("BUG")
    terminal.keys("C-x", "C-s")
    terminal.until_shown("is undefined")
    captures.check("a compile error", editor.screen)
    editor.undo("= a *")
    terminal.keys("C-x", "C-s")
    terminal.until_gone("is undefined")
    terminal.until_gone("edited since")
    captures.check("and its fix", editor.screen)
    saw("error")

    editor.open("slow.cu", SAXPY + "// SLOW\n")
    editor.actions("▶ Run on H100 80GB HBM3 (saxpy)")
    terminal.keys("C-g")
    editor.orbit("run")
    terminal.until_shown("[eglot:workspace/?%]")
    saw("progress", "mode line")
    editor.actions("⏳ running")
    saw("command", "`M-x orbit`")
    terminal.keys("Enter")
    editor.actions("▶ Run on H100 80GB HBM3 (saxpy)")
    saw("cancel", "`eglot-code-actions`")
    terminal.keys("C-g")
    captures.check("run by name, then cancelled", editor.screen)

    editor.open("alone.cu", ALONE)
    editor.actions("✎ Draft a launch spec: this file has no main (scale)")
    terminal.keys("Enter")
    terminal.until_shown("orbit: launch scale<<<")
    captures.check("a launch spec drafted", editor.screen)
    saw("draft")
    editor.actions("▶ Run on H100 80GB HBM3 (scale)")
    terminal.keys("Enter")
    terminal.until_shown(TIME)

    editor.open("memory_bound.cu", PROFILED)
    terminal.keys("M-g", "g")
    terminal.until_shown("Goto line")
    editor.answer("4")
    editor.orbit("profile")
    terminal.until_shown("long scoreboard")
    captures.check("a profile", editor.screen)
    saw("profile")
    editor.orbit("run")
    terminal.until_shown(RUN_TIME)
    picture("emacs", terminal)
    editor.orbit("openReport")
    terminal.until(lambda _: "/memory_bound-saxpy-" in editor.home.opened(), "the report opened")
    terminal.until_shown("orbit: the report is")
    saw("report", "browser")
    editor.orbit("chooseGpu")
    terminal.until_shown("Choose an option:")
    terminal.keys("C-a", "C-k")
    terminal.type("L4,")
    terminal.keys("Tab", "Enter")
    terminal.until_shown("on Modal they would get L4")
    saw("choose", "in the minibuffer")
    editor.orbit("showOutput")
    terminal.until_shown(f"■ Run saxpy: {RUN_TIME}")
    saw("output", "`M-x orbit-output`")


def test_a_server_that_is_not_there_or_ends_is_said(emacs: Callable[..., Emacs], seen: Seen) -> None:
    saw = seen.of("emacs", "Emacs (eglot)", version("emacs"))
    editor = emacs(server='echo "no such module" >&2; exit 3')
    editor.open("saxpy.cu", SAXPY)
    editor.terminal.until(
        lambda shown: "Server died" in shown or "Server exited with status 3" in shown, "the end"
    )
    saw("ended", "message; `M-x eglot` starts it again")
    (editor.home.folder / "bin" / "orbit-lsp").rename(editor.home.folder / "bin" / "elsewhere")
    editor.open("another.cu", SAXPY)
    editor.terminal.until_shown("No such file or directory, orbit-lsp")
    saw("missing")


def test_a_header_with_a_kernel(emacs: Callable[..., Emacs]) -> None:
    editor = emacs()
    editor.open("scale.hpp", HEADER)
    editor.terminal.until_shown("[eglot:workspace]")
    editor.actions("✎ Draft")
