"""Helix in a terminal, with the configuration of editors/helix: no lenses, so everything by code action and command.

The server is the real one. Its GPU side is a recorded H100: these machines have no GPU.
"""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.editors.conftest import CAPTURES, Captures, Seen, program, version
from tests.editors.home import ALONE, PROFILED, ROOT, RUN_TIME, SAXPY, SERVER, TIME, Home
from tests.editors.signatures import NAMES
from tests.editors.terminal import Terminal


class Helix:
    """The first file is opened by the command line, others by `:open`."""

    def __init__(
        self,
        start: Callable[..., Terminal],
        folder: Path,
        *,
        server: str = SERVER,
        beside: tuple[Path, ...] = (),
        **size: int,
    ) -> None:
        self.home = Home(folder, server=server, beside=beside)
        self.home.program("xdg-open", 'echo "$1" >> "$HOME/opened"')
        for name in ("config.toml", "languages.toml"):
            text = (ROOT / "editors" / "helix" / name).read_text()
            ours = f"config = {{ python = '{self.home.python}', gpu = 'H100' }}"
            text = text.replace("config = {}", ours)
            # as those have it who want them of other servers
            text = text.replace("[editor.lsp]", "[editor.lsp]\ndisplay-inlay-hints = true")
            if name == "config.toml":
                text = f'theme = "term16_dark"\n{text}'
            self.home.configure(f"helix/{name}", text)
        self._start, self._size = start, size
        self.terminal: Terminal

    def open(self, name: str, text: str) -> None:
        path = self.home.write(name, text)
        if hasattr(self, "terminal"):
            self.command(f"open {path}")
        else:
            self.terminal = self._start(self.home, program("hx"), str(path), **self._size)
        self.terminal.until_shown(f"   {name} ")

    def command(self, text: str) -> None:
        self.terminal.type(f":{text}")
        self.terminal.until_shown(f":{text}")
        self.terminal.keys("Enter")

    def actions(self, *wanted: str) -> str:
        """The menu of code actions once it offers what is `wanted`: asked again while a server is still starting."""
        items = (*wanted, "(saxpy)", "(scale)", "(k0)", f"({NAMES[0]})", "Expand macro")
        while True:
            self.terminal.keys("Space")
            self.terminal.until_shown("Perform code action")
            self.terminal.keys("a")
            shown = self.terminal.until(
                lambda shown: any(each in shown for each in items) or "code action" in last_row(shown),
                str(wanted),
            )
            if all(each in shown for each in wanted):
                return shown
            # without a menu, Escape and the Space of the next turn would be read as Alt and Space
            if any(each in shown for each in items):
                self.terminal.keys("Escape")
                self.terminal.until(lambda shown: not any(each in shown for each in items), "no menu")

    def replace_a(self, text: str) -> None:
        """In `a * x[n]`."""
        self.terminal.type("2ggfa;c")
        self.terminal.until_shown(" INS ")
        self.terminal.type(text)
        self.terminal.until_shown(f"= {text} *")
        self.terminal.keys("Escape")
        self.terminal.until_shown(" NOR ")

    def screen(self) -> str:
        """Without the spinner, and with seconds that pass written as N."""
        rows = [row for row in self.terminal.screen().split("\n") if row.strip() not in ("", "~")]
        text = re.sub(r"(⏳ \w+) \d+ s", r"\1 N s", "\n".join(rows))
        return re.sub(r"[⠀-⣿]", " ", text)


def last_row(shown: str) -> str:
    return shown.rstrip("\n").rpartition("\n")[2]


@pytest.fixture
def helix(terminal: Callable[..., Terminal], tmp_path: Path) -> Callable[..., Helix]:
    program("hx")
    return lambda **how: Helix(terminal, tmp_path / "home", **how)


def test_an_author_at_work(
    helix: Callable[..., Helix], seen: Seen, picture: Callable[[str, Terminal], None]
) -> None:
    saw = seen.of("helix", "Helix", version("hx"))
    captures = Captures(CAPTURES / "helix.txt")
    editor = helix()
    editor.open("saxpy.cu", SAXPY)
    terminal = editor.terminal
    editor.actions("▶ Run on H100 80GB HBM3 (saxpy)")
    seen.first_lens("helix", time.monotonic() - terminal.began)
    captures.check("code actions", editor.screen)
    terminal.keys("Enter")
    terminal.until_shown(TIME, "Run saxpy ⋅ 288 µs")
    captures.check("Run was chosen", editor.screen)
    saw("action", "`Space a`")
    saw("result", "as a diagnostic")
    saw("end", "status line")

    terminal.keys("Space", "k")
    terminal.until_shown("→ Profile says what limits it")
    captures.check("hover", editor.screen)
    saw("hover")
    terminal.keys("Escape")
    terminal.until_gone("→ Profile says what limits it")

    editor.replace_a("b")
    terminal.until_shown("edited since")
    captures.check("edited", editor.screen)
    terminal.keys("u")
    terminal.until_gone("edited since")
    captures.check("the edit was undone", editor.screen)
    saw("stale")

    editor.replace_a("BUG")
    editor.command("write")
    terminal.until_shown("is undefined")
    captures.check("a compile error", editor.screen)
    terminal.keys("u")
    editor.command("write")
    terminal.until_gone("is undefined")
    terminal.until_shown(TIME)
    captures.check("and its fix", editor.screen)
    saw("error")

    editor.open("slow.cu", SAXPY + "// SLOW\n")
    editor.actions("▶ Run on H100 80GB HBM3 (saxpy)")
    terminal.keys("Escape")
    terminal.until_gone("▶ Run")
    editor.command("lsp-workspace-command orbit.run")
    terminal.until_shown("Run saxpy ⋅ running")
    captures.check("run by name, without a code action", editor.screen)
    saw("command", "`:lsp-workspace-command`")
    saw("progress", "status line")
    editor.actions("(cancel) (saxpy)")
    captures.check("code actions of a kernel that runs", editor.screen)
    terminal.keys("Enter")
    terminal.until_shown("cancelled")
    captures.check("cancelled", editor.screen)
    saw("cancel", "`Space a`")

    editor.open("alone.cu", ALONE)
    editor.actions("Write a launch spec from the signature (scale)")
    captures.check("code actions of a kernel that nothing launches", editor.screen)
    terminal.keys("Down", "Down", "Down", "Enter")
    terminal.until_shown("orbit: launch scale<<<")
    captures.check("a launch spec drafted", editor.screen)
    saw("draft")

    editor.actions("▶ Run on H100 80GB HBM3 (scale)")
    terminal.keys("Enter")
    terminal.until_shown(TIME)
    captures.check("and carried out", editor.screen)

    editor.open("memory_bound.cu", PROFILED)
    terminal.keys("4", "g", "g")
    editor.actions("Profile (saxpy)")
    terminal.keys("Down", "Enter")
    terminal.until_shown("long scoreboard", "memory 79% of peak")
    captures.check("a profile", editor.screen)
    saw("profile")
    editor.command("lsp-workspace-command orbit.run")
    terminal.until_shown(RUN_TIME)
    picture("helix", terminal)
    editor.command("lsp-workspace-command orbit.openReport")
    terminal.until(lambda _: "/memory_bound-saxpy-" in editor.home.opened(), "the report opened")
    terminal.until_shown("orbit: the report is")
    saw("report", "browser")
    editor.command("lsp-workspace-command orbit.chooseGpu")
    terminal.until_shown("which GPU")
    captures.check("a choice of GPUs", editor.screen)
    terminal.keys("Down", "Down", "Enter")
    terminal.until_shown("on Modal they would get")
    saw("choose", "a menu")
    editor.command("lsp-workspace-command orbit.showOutput")
    terminal.until_shown(f"■ Run saxpy: {RUN_TIME}")
    saw("output", "`orbit.showOutput`")


def test_run_comes_before_what_clangd_offers(helix: Callable[..., Helix]) -> None:
    """Of which the first, *Expand macro*, rewrites the source for who presses Enter."""
    editor = helix(beside=(Path(sys.executable).parent / "clangd",))
    macro = "#define __global__ __attribute__((global))\n"
    editor.open("saxpy.cu", macro + SAXPY)
    editor.terminal.keys("2", "g", "g")
    shown = editor.actions("Expand macro", "▶ Run on H100 80GB HBM3 (saxpy)")
    assert shown.index("▶ Run on") < shown.index("Expand macro")
    editor.terminal.keys("Escape")
    editor.terminal.until_gone("Expand macro")
    editor.open("alone.cu", macro + ALONE)
    editor.terminal.keys("2", "g", "g")
    shown = editor.actions("Expand macro", "✎ Draft")
    assert shown.index("✎ Draft") < shown.index("Expand macro")
    editor.terminal.keys("Escape")
    editor.terminal.until_gone("Expand macro")
    editor.open("slow.cu", macro + SAXPY + "// SLOW\n")
    editor.terminal.keys("2", "g", "g")
    editor.actions("Expand macro", "▶ Run on H100 80GB HBM3 (saxpy)")
    editor.terminal.keys("Enter")
    shown = editor.actions("Expand macro", "(cancel)")
    assert shown.index("(cancel)") < shown.index("Expand macro")


def test_a_server_that_ends_is_said_and_started_again_by_hand(
    helix: Callable[..., Helix], seen: Seen
) -> None:
    saw = seen.of("helix", "Helix", version("hx"))
    editor = helix(server='echo "no such module" >&2; exit 3')
    editor.open("saxpy.cu", SAXPY)
    editor.terminal.until_shown("Language server exited: orbit-lsp")
    saw("ended", "message; `:lsp-restart` starts it again")
    editor.home.program("orbit-lsp", SERVER)
    editor.command("lsp-restart orbit-lsp")
    editor.actions("▶ Run on H100 80GB HBM3 (saxpy)")


def test_a_server_that_is_not_there_is_said_by_its_health_check(
    helix: Callable[..., Helix], seen: Seen
) -> None:
    saw = seen.of("helix", "Helix", version("hx"))
    home = helix().home
    (home.folder / "bin" / "orbit-lsp").unlink()
    paths = [part for part in home.environment["PATH"].split(":") if not (Path(part) / "orbit-lsp").exists()]
    asked = subprocess.run(
        [program("hx"), "--health", "cpp"], env=home.environment | {"PATH": ":".join(paths)},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert "orbit-lsp: 'orbit-lsp' not found in $PATH" in re.sub(r"\x1b\[[\d;]*m", "", asked.stdout)
    saw("missing", "`hx --health cpp`")
