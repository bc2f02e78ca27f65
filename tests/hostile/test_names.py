"""Names of files and folders that would print lines of their own, or move a terminal's cursor."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from orbit_lsp.cli import terminal_text
from orbit_lsp.places import trust
from orbit_remote.common import plain_text
from tests.cli_check import orbit

pytestmark = pytest.mark.skipif(os.name != "posix", reason="no such names on Windows")

FORGED = "\nok: 1 kernel compiled for sm_90a\x1b]0;x\x07"
COMMANDS = (
    "run", "compile", "show", "draft", "history", "report", "profile", "check", "trace", "exec", "disassemble", "debug-compile",
    "doctor", "drivers", "jobs submit", "submit --mode test --leaderboard l --gpu H100 --dry-run", "loop", "trust",
)  # fmt: skip


@pytest.mark.parametrize("command", COMMANDS)
def test_a_file_whose_name_has_lines_is_refused_in_one(tmp_path: Path, command: str) -> None:
    name = f"k{FORGED}.cu"
    (tmp_path / name).write_text("__global__ void k() {}\n")
    code, out, error = orbit(tmp_path, *command.split(), name)
    assert (code, out) == (64, "")
    assert (
        error
        == f"orbit-lsp: error: the name {name!r} has a line end or another control character; rename it\n"
    )


@pytest.mark.parametrize("command", ["history k.cu", "doctor", "jobs list", "modal status"])
def test_a_folder_whose_name_has_lines_is_refused_in_one(tmp_path: Path, command: str) -> None:
    folder = tmp_path / f"f{FORGED}"
    folder.mkdir()
    code, out, error = orbit(folder, *command.split())
    assert (code, out, error.count("\n")) == (64, "", 1)


def test_a_trusted_folder_is_one_line_of_the_list(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "f\x1b[2J"
    folder.mkdir()
    monkeypatch.setattr(trust, "remembered", lambda: (str(folder), "/a\n/b"))
    code, out, _ = orbit(tmp_path, "trust", "--list")
    assert (code, out.count("\n"), "\x1b" in out) == (0, 2, False)


def test_a_warning_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    terminal_text.warn(f"nvcc flag -DN=1{FORGED} is left out")
    error = capsys.readouterr().err
    assert (error.count("\n"), "\x1b" in error) == (1, False)


def test_a_character_that_turns_the_order_of_others_is_shown() -> None:
    """`safe\u202euc.k` is shown as `safek.cu` by a terminal."""
    assert (
        plain_text.visible("safe\u202euc.k \u2066\u200f \x1b[1m é 漢")
        == "safe<U+202E>uc.k <U+2066><U+200F> \ufffd[1m é 漢"
    )
