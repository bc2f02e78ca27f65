"""What runs have printed and how they ended, since the server started. Editors show it in buffers, files and lists."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping
from dataclasses import field, replace

from orbit_lsp.runs.scheduler import Run
from orbit_lsp.state.kernel_ids import KernelId
from orbit_lsp.state.results import renamed
from orbit_remote.common.lazy_dataclass import dataclass
from orbit_remote.common.plain_text import plain

_RUNS = 50
_CHARACTERS = 1 << 18
"""How much of one run's output is kept; older output is dropped, with a note in the text."""


@dataclass(slots=True, eq=False)
class LoggedRun:
    """One run of the log. `began` is on the wall clock. `outcome` is empty while the run is under way. `ending` is
    its end in one line.
    """

    id: str
    run: Run
    began: float
    outcome: str = ""
    ending: str = ""
    ended: float = 0.0
    pieces: deque[str] = field(default_factory=deque[str])
    size: int = 0
    dropped: bool = False

    @property
    def title(self) -> str:
        return self.run.title

    @property
    def uri(self) -> str:
        return self.run.frozen.uri

    @property
    def targets(self) -> set[KernelId]:
        return self.run.targets

    @property
    def heading(self) -> str:
        """Return the first line of a run's part of a log: `▶ 14:05:12 Run saxpy`."""
        return f"▶ {time.strftime('%H:%M:%S', time.localtime(self.began))} {self.title}\n"

    @property
    def last_line(self) -> str:
        return f"■ {self.title}: {self.ending}\n" if self.outcome else ""

    def printed(self) -> str:
        text = "".join(self.pieces)
        return text + "\n" if text and not text.endswith("\n") else text

    def text(self) -> str:
        head = f"… only the last {_CHARACTERS:,} characters are kept\n" if self.dropped else ""
        return self.heading + head + self.printed() + self.last_line


class RunLog:
    """The last runs, the newest last."""

    def __init__(self) -> None:
        self._runs: dict[str, LoggedRun] = {}
        self._speaker = ""
        """The run whose words a log ends with."""
        self._open_line = False

    def all(self) -> list[LoggedRun]:
        return list(self._runs.values())

    def of(self, target: KernelId | None) -> list[LoggedRun]:
        """Return the runs of a kernel, or all runs if it has none."""
        return [each for each in self.all() if target in each.targets] or self.all()

    def renamed(self, names: Mapping[str, str]) -> None:
        """Take note that files have other names, both URIs and paths. Runs that have ended follow too."""
        for run in (each.run for each in self.all() if each.outcome):
            if (uri := names.get(run.frozen.uri)) is not None:
                run.frozen, run.targets = replace(run.frozen, uri=uri), renamed(run.targets, names)

    def begin(self, run: Run) -> str:
        """Begin the log of a run. What this and the other methods return is written to the log."""
        self._runs[run.id] = LoggedRun(run.id, run, time.time())
        while len(self._runs) > _RUNS:
            del self._runs[next(iter(self._runs))]
        return self._as_spoken(run.id, "", again=True)

    def output(self, run: Run, text: str) -> str:
        text = plain(text)
        if logged := self._runs.get(run.id):
            logged.pieces.append(text)
            logged.size += len(text)
            while logged.size > _CHARACTERS:
                logged.dropped = True
                logged.size -= len(logged.pieces.popleft())
        return self._as_spoken(run.id, text)

    def end(self, run: Run, outcome: str, ending: str) -> str:
        logged = self._runs.get(run.id)
        head = "" if logged else self.begin(run)  # it was refused before it began
        logged = self._runs[run.id]
        logged.outcome, logged.ending, logged.ended = outcome, ending, time.time()
        return head + self._as_spoken(run.id, logged.last_line, own_line=True)

    def _as_spoken(self, name: str, text: str, *, again: bool = False, own_line: bool = False) -> str:
        """Return the text, under a heading if the words before it were of another run."""
        logged, head = self._runs.get(name), ""
        if (again or self._speaker != name) and logged:
            head = ("\n" if self._open_line else "") + logged.heading
        elif own_line and self._open_line:
            head = "\n"
        self._speaker = name
        if head + text:
            self._open_line = not (head + text).endswith("\n")
        return head + text
