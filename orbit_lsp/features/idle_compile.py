"""Errors while typing: a file is compiled once typing in it has paused. A newer edit ends the older compile.

Compiling a Triton file imports it. Typing may run only what a command of the author has run. So a Triton file is
compiled while only the bodies of its kernels have changed since that command: the import does not run them.
"""

from __future__ import annotations

import ast
from collections.abc import Callable

from orbit_lsp.features import Feature, FeatureContext
from orbit_lsp.kernels import SOURCE_SUFFIXES, Kernel, language_of
from orbit_lsp.runs.scheduler import Run, Scheduler
from orbit_lsp.state.debounce import Debounce
from orbit_lsp.state.session import OpenFile, Session

_SHORTEST_S, _LONGEST_S = 0.05, 0.5
_SHARE = 4
"""The pause is this part of what the last compile of the file took."""
_LONGEST_PYTHON = 100_000
"""Characters of a Python file that is compiled on idle: reading as many takes some 60 ms on the event loop."""


def pause_s(compile_s: float | None) -> float:
    """Return how long typing must pause before a file is compiled, in seconds. A file whose last compile took long
    waits longer.
    """
    return _LONGEST_S if compile_s is None else min(_LONGEST_S, max(_SHORTEST_S, compile_s / _SHARE))


def imported(text: str, kernels: tuple[Kernel, ...]) -> str | None:
    """Return the code that importing a Triton file runs: everything but the bodies of its kernels. Return None if the
    text is not Python.
    """
    if len(text) > _LONGEST_PYTHON:
        return None
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    names = {kernel.name for kernel in kernels if kernel.dsl == "triton"}
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name in names and node.decorator_list:
            node.body = []
    return ast.dump(tree)


class IdleCompile(Feature):
    """Compiles the text in the editor as a save would.

    This happens only where this machine has the compiler, because typing should not keep a rented one busy. Triton
    files are compiled only on a machine without a GPU: each compile takes a prepared process, and a click on a GPU
    would wait for that process.
    """

    def __init__(
        self, session: Session, runs: Scheduler, changed: Callable[[set[str]], None] = lambda _: None
    ) -> None:
        """`changed` gets the files whose lenses have changed."""
        self._session = session
        self._runs = runs
        self._changed = changed
        self._pauses = Debounce(self._paused, "compile on idle")
        self._started: dict[str, str] = {}
        """The run that this began last, by file."""
        self._imported: dict[str, str] = {}
        """What the last import of a Triton file ran, by file."""

    def edited(self, uri: str) -> None:
        self._forget(uri)
        file = self._session.files.get(uri)
        if file is not None and self._compiles(uri, file):
            self._pauses.edited(uri, pause_s(file.compile_s))

    def saved(self, uri: str) -> None:
        """A CUDA file is compiled by its save."""
        self._forget_importers(uri)
        self._forget(uri)
        if uri in self._imported:
            self.edited(uri)

    def closed(self, uri: str) -> None:
        self._forget(uri)

    def changed_on_disk(self, uris: set[str], came: set[str]) -> None:
        del came
        for uri in uris:
            self._forget_importers(uri)

    def _forget_importers(self, uri: str) -> None:
        """Forget what importers of this file ran: they may import it, and so run something new."""
        if uri.endswith(".py"):
            self._imported = {file: known for file, known in self._imported.items() if file == uri}

    def _forget(self, uri: str) -> None:
        """Forget a file, and cancel the compile that is under way: its answer would be about an older text."""
        self._pauses.forget(uri)
        if run := self._started.pop(uri, None):
            self._runs.cancel_run(run)

    def shutdown(self) -> None:
        self._pauses.close()

    def run_ended(self, run: Run) -> None:
        """Remember the text of a file that a command imported: the author asked for that."""
        uri, file = run.frozen.uri, self._session.files.get(run.frozen.uri)
        if file is None or run.job.language != "triton" or run.finished is None:
            return
        if run.finished.outcome not in ("ok", "compile error", "wrong answer"):
            return
        if (known := imported(run.frozen.text, run.frozen.scan.kernels)) is not None:
            self._imported[uri] = known
            file.runs_otherwise = False
        if run.action == "compile":
            file.compile_s = run.finished.build_s
        if file.document.text != run.frozen.text and uri not in self._pauses:
            self.edited(uri)  # typed while the command ran

    def _paused(self, uri: str) -> None:
        file = self._session.files.get(uri)
        if file is None or not file.scanned:
            return
        known = self._imported.get(uri)
        if known is not None and imported(file.document.text, file.scan.kernels) != known:
            file.runs_otherwise = True  # its author may ask for that
            self._changed({uri})
            return
        if run := self._runs.start("compile", uri):
            self._started[uri] = run.id

    def _compiles(self, uri: str, file: OpenFile) -> bool:
        setup = self._session.setup
        if not (setup.settings.compile_on_idle and setup.settings.compile_on_save):
            return False
        if setup.machine is None or any(target.uri == uri for target in self._session.live):
            return False  # Live builds what is typed by itself
        if uri in self._imported:
            triton = setup.machine.packages.get("triton")
            return bool(setup.settings.trusted and triton and not setup.machine.devices)
        if not setup.machine.nvcc:
            return False
        if file.source is not None or not file.document.path.lower().endswith(SOURCE_SUFFIXES):
            return False  # a header is compiled through a file that includes it as it is saved
        return language_of(file.document.path, file.document.text) == "cuda"


def feature(context: FeatureContext) -> Feature:
    return IdleCompile(context.session, context.runs, context.changed)
