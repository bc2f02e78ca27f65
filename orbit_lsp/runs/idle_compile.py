"""Errors while typing: a CUDA file is compiled once typing in it has paused, and a newer edit ends the older compile."""

from __future__ import annotations

from orbit_lsp.kernels import language_of
from orbit_lsp.runs.scheduler import Scheduler
from orbit_lsp.state.debounce import Debounce
from orbit_lsp.state.session import OpenFile, Session

_SHORTEST_S, _LONGEST_S = 0.05, 0.5
_SHARE = 4
"""The pause is this part of what the last compile of the file took."""


def pause_s(compile_s: float | None) -> float:
    """How long typing in a file pauses before it is compiled, in seconds, by what its last compile took."""
    return _LONGEST_S if compile_s is None else min(_LONGEST_S, max(_SHORTEST_S, compile_s / _SHARE))


class IdleCompile:
    """The same compile as on save, of the text in the editor. Only where this machine has the compiler: a rented one
    is not kept busy by typing.
    """

    def __init__(self, session: Session, runs: Scheduler) -> None:
        self._session = session
        self._runs = runs
        self._pauses = Debounce(self._paused, "compile on idle")
        self._started: dict[str, str] = {}
        """The run that this began last, by file."""

    def edited(self, uri: str) -> None:
        self.forget(uri)
        file = self._session.files.get(uri)
        if file is not None and self._compiles(uri, file):
            self._pauses.edited(uri, pause_s(file.compile_s))

    def forget(self, uri: str) -> None:
        """Also the compile that is under way: its answer would be of an older text."""
        self._pauses.forget(uri)
        if run := self._started.pop(uri, None):
            self._runs.cancel_run(run)

    def close(self) -> None:
        self._pauses.close()

    def _paused(self, uri: str) -> None:
        file = self._session.files.get(uri)
        if file is not None and file.scanned and (run := self._runs.start("compile", uri)):
            self._started[uri] = run.id

    def _compiles(self, uri: str, file: OpenFile) -> bool:
        setup = self._session.setup
        if not (setup.settings.compile_on_idle and setup.settings.compile_on_save):
            return False
        if not (setup.machine and setup.machine.nvcc) or any(
            target.uri == uri for target in self._session.live
        ):
            return False  # Live builds what is typed by itself
        if file.source is not None or not file.document.path.lower().endswith(".cu"):
            return False  # a header is compiled through a file that includes it as it is saved
        return language_of(file.document.path, file.document.text) == "cuda"
