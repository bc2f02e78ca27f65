"""Shows in a terminal, while a command waits, the state of its run and the program's output."""

from __future__ import annotations

import asyncio
import shutil
import sys
import time
from collections.abc import Callable
from contextlib import suppress

from orbit_lsp.cli import terminal_text
from orbit_lsp.runs.scheduler import Run
from orbit_remote.common import codec
from orbit_remote.common import messages as c
from orbit_remote.common.plain_text import visible

_REDRAW_S = 0.1


class TerminalWatcher:
    """Writes states to standard error, and the program's output to its own streams. On a terminal the state is one
    line with the seconds that it has taken; when piped there is a line for each state.
    """

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._live = terminal_text.escapes(sys.stderr)
        self._shown = False
        self._text = ""
        self._since = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self.when_begun: Callable[[Run], object] | None = None
        """Called once, when a worker has a first run."""
        self._within_a_line = False
        """The program has printed a part of a line, which a line of ours would overwrite."""

    def begin(self, run: Run, cancel: Callable[[], object]) -> None:
        pass

    def stage(self, run: Run, state: c.State, why: str) -> None:
        self.show(run.title, state, why)
        if self.when_begun and state != "queued":
            begun, self.when_begun = self.when_begun, None
            begun(run)
        if state == "running":
            codec.prepare(c.Finished)  # its result is read sooner by as long as this takes, some 10 ms

    def hears(self, title: str) -> Callable[[c.Event], None]:
        """Return a function for the events of a job that is no `Run`."""

        def heard(event: c.Event) -> None:
            match event:
                case c.Stage(state=state, why=why):
                    self.show(title, state, why)
                case c.Output(stream=stream, text=text):
                    self.pass_on(stream, text)
                case c.Finished():
                    self.clear()
                case _:
                    pass

        return heard

    def show(self, title: str, state: c.State, why: str) -> None:
        text = visible(f"{title}: {state}: {why}" if why else f"{title}: {state}")
        if self._live:
            self._text, self._since = text, time.monotonic()
            self._draw()
        elif not self._quiet:
            print(text, file=sys.stderr, flush=True)

    def output(self, run: Run, stream: str, text: str) -> None:
        del run
        self.pass_on(stream, text)

    def pass_on(self, stream: str, text: str) -> None:
        if self._quiet:
            return
        self._clear()
        self._within_a_line = not text.endswith("\n")
        with suppress(BrokenPipeError):  # the run goes on; what is printed last says it again
            print(text, end="", file=sys.stderr if stream == "stderr" else sys.stdout, flush=True)

    def debugger(self, run: Run, debugger: c.Debugger) -> None:
        pass

    def end(self, run: Run, finished: c.Finished) -> None:
        del run, finished
        self.clear()

    def clear(self) -> None:
        """Clear the line: nothing is under way."""
        self._text = ""
        self._clear()

    def changed(self, uris: set[str]) -> None:
        pass

    def _draw(self) -> None:
        """The line, and again in a moment."""
        if self._timer:
            self._timer.cancel()
            self._timer = None
        if not self._text:
            return
        if not self._within_a_line:
            line = f"{self._text} · {time.monotonic() - self._since:.1f} s"
            cut = line[: shutil.get_terminal_size().columns - 1]
            print(f"\r\x1b[2K{cut}", end="", file=sys.stderr, flush=True)
            self._shown = True
        self._timer = asyncio.get_running_loop().call_later(_REDRAW_S, self._draw)

    def _clear(self) -> None:
        if self._shown:
            print("\r\x1b[2K", end="", file=sys.stderr, flush=True)
            self._shown = False
