"""What a terminal shows while a command waits: one line with its seconds, which never overwrites what the program prints."""

from __future__ import annotations

import io
import os
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from orbit_lsp.cli import terminal_text, terminal_watcher
from orbit_lsp.cli.terminal_watcher import TerminalWatcher
from tests.cli_check import orbit

RUN: Any = SimpleNamespace(title="saxpy.cu")
ENDED: Any = None


class Terminal(io.StringIO):
    """Standard error of a terminal, 40 columns wide; keeps what each line was drawn as."""

    def isatty(self) -> bool:
        return True

    def drawn(self) -> list[str]:
        """Since the last call; a line that was taken away is empty."""
        parts = self.getvalue().split("\r\x1b[2K")[1:]
        self.seek(0)
        self.truncate()
        return parts


def of_a_terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """From here on: pytest's own capture takes standard error when a test begins."""
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    monkeypatch.setattr(
        terminal_watcher.shutil, "get_terminal_size", lambda *_, **__: os.terminal_size((40, 24))
    )
    return terminal


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr(terminal_watcher, "time", SimpleNamespace(monotonic=lambda: now[0], time=time.time))
    return now


async def test_a_state_counts_its_seconds(monkeypatch: pytest.MonkeyPatch, clock: list[float]) -> None:
    terminal = of_a_terminal(monkeypatch)
    watcher = TerminalWatcher(quiet=False)
    watcher.stage(RUN, "building", "")
    clock[0] += 1.25
    watcher._draw()
    clock[0] += 1
    watcher.stage(RUN, "queued", "waits for the GPU: softmax.cu in Neovim")
    assert terminal.drawn() == [
        "saxpy.cu: building · 0.0 s",
        "saxpy.cu: building · 1.2 s",
        "saxpy.cu: queued: waits for the GPU: so",
    ]
    watcher.end(RUN, ENDED)
    watcher._draw()  # as one that was due already
    assert terminal.drawn() == [""]


async def test_a_line_that_the_program_has_begun_is_left_alone(
    monkeypatch: pytest.MonkeyPatch, clock: list[float], capsys: pytest.CaptureFixture[str]
) -> None:
    terminal = of_a_terminal(monkeypatch)
    watcher = TerminalWatcher(quiet=False)
    watcher.stage(RUN, "running", "")
    watcher.output(RUN, "stdout", "epoch 1: ")
    watcher._draw()
    assert terminal.drawn() == ["saxpy.cu: running · 0.0 s", ""]
    watcher.output(RUN, "stdout", "done\n")
    clock[0] += 2
    watcher._draw()
    assert terminal.drawn() == ["saxpy.cu: running · 2.0 s"]
    assert capsys.readouterr().out == "epoch 1: done\n"


async def test_a_pipe_has_a_line_for_each_state(capsys: pytest.CaptureFixture[str]) -> None:
    watcher = TerminalWatcher(quiet=False)
    watcher.stage(RUN, "building", "")
    watcher.stage(RUN, "running", "")
    watcher.end(RUN, ENDED)
    assert capsys.readouterr().err == "saxpy.cu: building\nsaxpy.cu: running\n"


@pytest.mark.parametrize("variable", [("NO_COLOR", "1"), ("TERM", "dumb")])
async def test_a_terminal_without_escapes_is_as_a_pipe(
    monkeypatch: pytest.MonkeyPatch, variable: tuple[str, str]
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    terminal = of_a_terminal(monkeypatch)
    assert terminal_text.escapes(terminal)
    monkeypatch.setenv(*variable)
    watcher = TerminalWatcher(quiet=False)
    watcher.stage(RUN, "building", "")
    watcher.end(RUN, ENDED)
    assert (terminal.getvalue(), terminal_text.escapes(terminal)) == ("saxpy.cu: building\n", False)


def test_colors_can_be_unwanted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "k.cu").write_text("__global__ void k() {}\n")
    monkeypatch.setattr(terminal_text, "escapes", lambda stream: stream is sys.stdout)
    assert "\x1b[" in orbit(tmp_path, "show", "k.cu")[1]
    monkeypatch.undo()
    assert "\x1b[" not in orbit(tmp_path, "show", "k.cu")[1]
