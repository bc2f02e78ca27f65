"""A program in a real terminal (tmux), as a person sees it and types into it."""

from __future__ import annotations

import os
import select
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.editors.home import Home

LIMIT_S = 300
"""The end of what hangs; ten times what a busy machine needs."""


class Terminal:
    """The screen of `command`, started in the home's workspace."""

    def __init__(
        self, tmux: str, home: Home, command: Sequence[str], *, columns: int = 160, rows: int = 24
    ) -> None:
        self._tmux = tmux
        self._folder = Path(tempfile.mkdtemp(prefix="orbit-tmux-"))  # a socket's path has at most 107 bytes
        self._environment = home.environment | {"TERM": "xterm-256color", "COLORTERM": "truecolor"}
        settings = self._folder / "tmux.conf"
        settings.write_text(
            "set -g default-terminal xterm-256color\nset -ga terminal-features ',*:RGB'\nset -g status off\n"
            "set -g remain-on-exit on\nset -s escape-time 0\nset -g history-limit 0\n"
        )
        self.began = time.monotonic()
        size = ("-x", str(columns), "-y", str(rows))
        self._ask("-f", str(settings), "new-session", "-d", *size, "-c", str(home.workspace), "--", *command)
        written = self._folder / "written"
        os.mkfifo(written)
        self._written = os.open(written, os.O_RDWR | os.O_NONBLOCK)  # for writing too: so it never ends
        self._ask("pipe-pane", "-O", f"exec cat > '{written}'")

    def _ask(self, *words: str) -> str:
        return subprocess.run(
            [self._tmux, "-u", "-S", str(self._folder / "socket"), *words],
            env=self._environment, capture_output=True, text=True, encoding="utf-8", check=True, timeout=LIMIT_S,
        ).stdout  # fmt: skip

    def keys(self, *names: str) -> None:
        """Press keys as tmux names them: "Space", "C-x", "Enter"."""
        self._ask("send-keys", *names)

    def type(self, text: str) -> None:
        self._ask("send-keys", "-l", "--", text)

    def resize(self, columns: int, rows: int) -> None:
        self._ask("resize-window", "-x", str(columns), "-y", str(rows))

    def screen(self) -> str:
        rows = self._ask("capture-pane", "-p").split("\n")
        return "\n".join(row.rstrip() for row in rows)

    def coloured(self) -> str:
        """The screen with its colours as escape sequences."""
        return self._ask("capture-pane", "-p", "-e", "-N")

    def until(self, condition: Callable[[str], object], what: str) -> str:
        """The screen once a condition holds of it. Raises AssertionError with the screen after LIMIT_S."""
        end = time.monotonic() + LIMIT_S
        while not condition(shown := self.screen()):
            left = end - time.monotonic()
            assert left > 0, f"not within {LIMIT_S} s: {what}\n{shown}"
            self.wait_for_output(left)
        return shown

    def wait_for_output(self, seconds: float) -> None:
        """Return when the program has written to the terminal since this was last called, or after so many seconds."""
        if select.select([self._written], [], [], seconds)[0]:
            os.read(self._written, 1 << 20)

    def until_shown(self, *texts: str) -> str:
        return self.until(lambda shown: all(text in shown for text in texts), " and ".join(texts))

    def until_gone(self, text: str) -> str:
        return self.until(lambda shown: text not in shown, f"without {text}")

    def close(self) -> None:
        subprocess.run(
            [self._tmux, "-S", str(self._folder / "socket"), "kill-server"],
            env=self._environment, capture_output=True, check=False, timeout=LIMIT_S,
        )  # fmt: skip
        os.close(self._written)
        shutil.rmtree(self._folder)
