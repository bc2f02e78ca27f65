"""Compiles files when they are opened or saved, for their figures and errors. Files that were built from a saved file
are compiled again too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orbit_lsp.features import Feature, FeatureContext, Tasks
from orbit_lsp.kernels import HEADER_SUFFIXES, language_of
from orbit_lsp.kernels.python import inline
from orbit_lsp.specs import job_builder, spec_cache
from orbit_lsp.state.compilation import Compilation
from orbit_lsp.state.session import path_of

if TYPE_CHECKING:
    from orbit_lsp.runs.scheduler import Run


class QuietCompile(Feature):
    """Compiles files quietly where that is possible and the setting `compile_on_save` asks for it."""

    def __init__(self, context: FeatureContext) -> None:
        self._context = context
        self._session = context.session
        self._tasks = Tasks("compile")
        context.places.compiler_moved = self._compile_all

    def opened(self, uri: str) -> None:
        self.compile(uri)

    def saved(self, uri: str) -> None:
        self._tasks.spawn(self._compile_dependents(uri))
        if not any(target.uri == uri for target in self._session.live):  # Live does what such a file needs
            self.compile(uri)

    def changed_on_disk(self, uris: set[str], came: set[str]) -> None:
        del came
        for uri in uris:
            self._tasks.spawn(self._compile_dependents(uri))

    def run_ended(self, run: Run) -> None:
        if run.action != "compile":
            self._context.places.ran(run.finished.failure if run.finished else None)

    def shutdown(self) -> None:
        self._tasks.cancel()

    def _compile_all(self) -> None:
        for uri in list(self._session.files):
            self.compile(uri)

    def compile(self, uri: str) -> None:
        """Compile an open file in a task."""
        file = self._session.files.get(uri)
        if file is None or not file.builds:
            return
        if language_of(file.document.path, file.document.text) != "cuda" and not inline.may_have(
            file.document.text
        ):
            return
        self._tasks.spawn(self._compile(uri))

    async def compile_if_news(self, uri: str) -> None:
        """Compile an open file again if it is compiled in another way now."""
        if file := self._session.files.get(uri):
            await self._find_and_compile(uri, news_of=file.compilation)

    async def _compile_dependents(self, uri: str) -> None:
        """Compile again what is open and was built from this file."""
        for dependent in await self._context.places.compilations.changed_on_disk(path_of(uri)):
            if dependent != uri:
                self.compile(dependent)
            self._context.changed({dependent})

    async def _compile(self, uri: str) -> None:
        """Compile a file. If that takes long, its kernels show that it is compiled, already while the way to compile
        it is looked for.
        """
        if self._session.setup.settings.compile_on_save:
            self._context.compiles(uri)
        begun = False
        try:
            begun = await self._find_and_compile(uri)
        finally:
            if not begun:
                self._context.compiled(uri)

    async def _find_and_compile(self, uri: str, news_of: Compilation | None = None) -> bool:
        """Compile the file if it is compiled differently than before. Return whether a compilation has begun."""
        file = self._session.files.get(uri)
        tracker = file.tracker if file else None
        for feature in self._context.features:
            await feature.finding(uri)
        refused = await self._context.places.compilations.find(uri)
        if file and file.source is None and file.document.path.lower().endswith(HEADER_SUFFIXES):
            return False  # by itself it need not compile, and what the compiler would say of it is nobody's mistake
        for sentence in refused:
            self._context.warn_once(sentence)
        if news_of and file and file.compilation == news_of:
            return False
        await spec_cache.settle(self._session, uri)
        if (
            file and file.tracker is not tracker
        ):  # headers along the include path may define what names kernels
            self._context.changed({uri})
        if uri not in self._session.files or not self._session.setup.settings.compile_on_save:
            return False
        frozen = self._session.freeze(uri)
        if frozen and frozen.scan.language == "triton" and job_builder.inline_of(frozen) is None:
            return False  # compiling it would import it
        levels = self._session.results.levels(uri)
        return self._context.runs.start("compile", uri, levels=levels) is not None


def feature(context: FeatureContext) -> Feature:
    return QuietCompile(context)
