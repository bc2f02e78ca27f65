"""Twenty real signatures in windows of 80, 120 and 200 columns: is the answer in view without scrolling?

Time, outcome and verdict are to be seen on the kernel's own screen rows, and so are the commands where an editor draws
lenses; Helix and Emacs have them in their menus of code actions.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

from tests.editors.conftest import EDITORS, program
from tests.editors.neovim import Neovim
from tests.editors.signatures import IN_VIEW, NAMES, SHEET
from tests.editors.terminal import Terminal
from tests.editors.test_emacs import Emacs
from tests.editors.test_helix import Helix

WIDTHS = (80, 120, 200)
ENOUGH = 0.95


def rows_of(screen: str, name: str) -> str:
    """A kernel's own rows: from the empty line above it to the second line of its body."""
    rows = screen.split("\n")
    at = next((index for index, row in enumerate(rows) if f"{name}(" in row), None)
    if at is None:
        return ""
    first = next((index for index in range(at, 0, -1) if re.fullmatch(r"[^\w(){}%]*\d*\s*", rows[index])), 0)
    end = next((index for index, row in enumerate(rows[at:], at) if "use(i)" in row), len(rows))
    return "\n".join(rows[first : end + 1])


def missing(shown: str, wanted: tuple[str, ...]) -> list[str]:
    return [what for what in wanted if not any(text in shown for text in IN_VIEW[what])]


def report(title: str, absent: dict[str, list[str]], shots: list[str]) -> None:
    """Kept for a person to read, and printed; fails under the target."""
    share = sum(not what for what in absent.values()) / len(absent)
    lines = [f"{title}: all in view for {share:.0%} of {len(absent)} kernels and windows"]
    lines += [f"  {where}: not in view: {', '.join(what)}" for where, what in absent.items() if what]
    folder = EDITORS / "seen" / "sheets"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{title}.txt").write_text("\n".join([*lines, "", *shots]) + "\n", encoding="utf-8")
    print("\n".join(lines))
    assert share >= ENOUGH, "\n".join(lines)


def test_neovim(neovim: Callable[..., Neovim], nvim: str) -> None:
    editor = neovim(config="vim.o.number = true\n")
    editor.open("sheet.cu", SHEET)
    editor.command("set lines=40")
    editor.until_shown("▶ Run on H100")
    editor.lua(f"vim.fn.search('{NAMES[0]}(', 'w'); vim.cmd('Orbit run')")
    editor.until_shown("⏱ 288 µs")
    editor.command("Orbit profile")
    editor.until_shown("memory 79%")
    for wrap in ("wrap", "nowrap"):
        editor.command(f"set {wrap}")
        absent: dict[str, list[str]] = {}
        shots: list[str] = []
        for width in WIDTHS:
            editor.command(f"set columns={width}")
            for name in NAMES:
                find = json.dumps(f"\\<{name}(")
                editor.lua(f"vim.fn.cursor(1, 1); vim.fn.search({find}, 'w'); vim.cmd('normal! 0zz')")
                shown = rows_of(editor.screen(), name)
                absent[f"{name} at {width}"] = missing(shown, tuple(IN_VIEW))
                shots.append(f"== {name} at {width}\n{shown}")
        report(f"{nvim}-{wrap}", absent, shots)


def sheet(screen: Terminal, title: str, look_at: Callable[[str], None]) -> None:
    """In an editor without lenses, whose commands are in a menu."""
    absent: dict[str, list[str]] = {}
    shots: list[str] = []
    for width in WIDTHS:
        screen.resize(width, 40)
        for name in NAMES:
            look_at(name)
            shown = rows_of(screen.until_shown(f"{name}(", "use(i)"), name)
            absent[f"{name} at {width}"] = missing(shown, ("time", "outcome", "verdict"))
            shots.append(f"== {name} at {width}\n{shown}")
    report(title, absent, shots)


def test_helix(terminal: Callable[..., Terminal], tmp_path: Path) -> None:
    program("hx")
    editor = Helix(terminal, tmp_path / "home", rows=40)
    editor.open("sheet.cu", SHEET)
    screen = editor.terminal
    screen.type(f"/{NAMES[0]}")
    screen.keys("Enter")
    editor.actions(f"▶ Run on H100 80GB HBM3 ({NAMES[0]})")
    screen.keys("Enter")
    screen.until_shown("288 µs")
    editor.command("lsp-workspace-command orbit.profile")
    screen.until_shown("memory 79%")

    def look_at(name: str) -> None:
        editor.command("goto 1")
        screen.type(f"/\\b{name}\\(")
        screen.keys("Enter")
        screen.type("ghzz")

    sheet(screen, "helix", look_at)


def test_emacs(terminal: Callable[..., Terminal], tmp_path: Path) -> None:
    program("emacs")
    editor = Emacs(terminal, tmp_path / "home", columns=120, rows=40)
    editor.open("sheet.cu", SHEET)
    screen = editor.terminal
    screen.until_shown("[eglot:workspace]")

    def look_at(name: str) -> None:
        editor.command("look-at")
        screen.until_shown("Look at:")
        editor.answer(name)
        screen.until_gone("Look at:")

    look_at(NAMES[0])
    editor.actions(f"▶ Run on H100 80GB HBM3 ({NAMES[0]})")
    screen.keys("Enter")
    screen.until_shown("288 µs")
    editor.orbit("profile")
    screen.until_shown("memory 79%")
    sheet(screen, "emacs", look_at)
