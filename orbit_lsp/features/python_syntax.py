"""Syntax errors of a Python file that has kernels, shown once typing in it has paused. Its text is parsed; nothing of it runs."""

from __future__ import annotations

from orbit_lsp.features import Feature, FeatureContext
from orbit_lsp.runners import refusals
from orbit_lsp.runs import result_filing
from orbit_lsp.runs.scheduler import Run
from orbit_lsp.state.debounce import Debounce
from orbit_lsp.state.session import path_of

_PAUSE_S = 0.2


class PythonSyntax(Feature):
    def __init__(self, context: FeatureContext) -> None:
        self._context = context
        self._pauses = Debounce(self._check, "syntax of Python")
        self._told: set[str] = set()
        """Files that have a syntax error: its kernels may not be found then."""

    def opened(self, uri: str) -> None:
        self._pauses.edited(uri, 0.0)

    def edited(self, uri: str) -> None:
        self._pauses.edited(uri, _PAUSE_S)

    def closed(self, uri: str) -> None:
        self._pauses.forget(uri)
        self._told.discard(uri)

    def run_ended(self, run: Run) -> None:
        """Check the file again: the run may have told the same error."""
        if run.frozen.uri in self._told:
            self._pauses.edited(run.frozen.uri, 0.0)

    def shutdown(self) -> None:
        self._pauses.close()

    async def _check(self, uri: str) -> None:
        """Check the syntax of a file. This waits for the Python that will run the file, because it decides which
        syntax is valid.
        """
        session = self._context.session
        await self._context.places.looked()
        frozen, machine = session.freeze(uri), session.setup.machine
        if frozen is None or machine is None or not session.setup.settings.compile_on_idle:
            return
        with_kernels = frozen.scan.language == "triton" and (frozen.scan.kernels or uri in self._told)
        if not with_kernels or session.is_cell(uri) or not machine.python_version:
            return
        explained = refusals.explained_syntax(frozen.text, path_of(uri), machine.python_version)
        if explained or uri in self._told:
            self._context.changed(
                result_filing.syntax(session, frozen, explained.problems if explained else ())
            )
        (self._told.add if explained else self._told.discard)(uri)


def feature(context: FeatureContext) -> Feature:
    return PythonSyntax(context)
