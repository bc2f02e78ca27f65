"""Finds out how the files of a session are compiled. It asks the finder with the settings, the trust and the
project's Python.
"""

from __future__ import annotations

import asyncio
import dataclasses
import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from orbit_lsp import kernels
from orbit_lsp.places import trust
from orbit_lsp.places.client_settings import ClientSettings
from orbit_lsp.places.project_python import ProjectPython
from orbit_lsp.specs import job_builder
from orbit_lsp.state.compilation import Compilation
from orbit_lsp.state.session import OpenFile, Session, path_of
from orbit_remote.common import nvcc_flags

if TYPE_CHECKING:
    from orbit_lsp.compilation.finder import CompilationFinder, CompilationQuestion
    from orbit_lsp.kernels.python.inline import Inline


class Compilations:
    def __init__(self, session: Session, settings: ClientSettings, python: ProjectPython) -> None:
        self._session = session
        self._settings = settings
        self._python = python
        self._finder: CompilationFinder | None = None
        self.finding = asyncio.Lock()
        """Held while it is found out how a file is compiled: what runs meanwhile would run with other flags."""

    async def find(self, uri: str) -> tuple[str, ...]:
        """Find out how a CUDA file is compiled. Return a sentence for each flag and compiler of the project that is
        not used.
        """
        file = self._session.files.get(uri)
        if file is None:
            return ()
        inline = None
        if kernels.language_of(file.document.path) == "triton":  # a scan may take long
            from orbit_lsp.kernels.python import inline as in_strings

            text = file.document.text
            if not in_strings.may_have(text):
                return ()
            inline = await asyncio.to_thread(in_strings.of, text, path_of(uri))
            if inline is None:
                file.compilation = Compilation()
                return ()
        from orbit_lsp.compilation import finder

        await self._python.look()
        async with self.finding:
            self._finder = self._finder or finder.CompilationFinder()
            if inline is None:
                file.source = await self._including(file)
            question = self._question(file, inline)
            file.compilation = await asyncio.to_thread(self._finder.find, question)
        if inline is None:
            await self._session.look_for_headers(uri, finder.project_folders(file.compilation, question.path))
        folders = dataclasses.replace(
            self._settings.trust, folders=question.folders or self._settings.trust.folders
        )
        sentences = [f"nvcc flag {refused}" for refused in self._folded(file.compilation.refused, folders)]
        if nvcc := file.compilation.nvcc_not_started:
            sentences.append(
                f"{nvcc}, which the project compiles with, is not started, because the workspace is not trusted; figures are "
                f"another compiler's: {folders.remedy(self._settings.trust_once)}"
            )
        return tuple(sentences)

    async def on_disk(self, uri: str) -> frozenset[object]:
        """Return the present state of everything on disk that may tell how a CUDA file is compiled. It stays equal
        while nothing has come or changed.
        """
        from orbit_lsp.compilation import arrivals

        if (file := self._session.files.get(uri)) is None:
            return frozenset()
        await self._python.look()
        question, compilation = self._question(file), file.compilation
        return await asyncio.to_thread(arrivals.on_disk, question, compilation)

    def forget_folders(self, uri: str) -> None:
        """Forget the folders of headers: those of the file's workspace are looked for anew."""
        if self._finder is not None:
            self._finder.forget(self._session.path(uri))

    async def changed_on_disk(self, path: str) -> list[str]:
        """Note a file's new content. Return the open files that were built from it."""
        await self._session.disk.note(path)
        if self._finder is not None:
            self._finder.forget(path)
        return [uri for uri, file in self._session.files.items() if path in file.reads]

    async def _including(self, file: OpenFile) -> tuple[str, str] | None:
        """Return path and text of the source through which a CUDA file is compiled. Return None if it is compiled
        itself.
        """
        from orbit_lsp.closure import includers
        from orbit_lsp.compilation import finder

        assert self._finder
        path, text = file.document.path, file.document.text
        templates = file.scanned and job_builder.only_templates(self._session, file.document.uri)
        runs = file.scanned and "main" in file.scan.entries
        question = self._question_of(path, text)
        root = await asyncio.to_thread(finder.root_of, path, question.folders)
        of_host = await asyncio.to_thread(self._finder.compiles_host_sources, path, root)
        source = await asyncio.to_thread(
            includers.read, path, text, (root,), templates=templates, runs=runs, of_host=of_host
        )
        if source and path.lower().endswith(kernels.SOURCE_SUFFIXES):
            alone = await asyncio.to_thread(self._finder.find, question)
            return None if alone.is_source else source
        return source

    def _question(self, file: OpenFile, inline: Inline | None = None) -> CompilationQuestion:
        """Make the question for the finder, about the source through which an open file is compiled."""
        if inline:
            of_call, _ = nvcc_flags.allowed_flags(inline.flags, trusted=False)
            return self._question_of(f"{path_of(file.document.uri)}.cu", inline.text, of_call)
        return self._question_of(*(file.source or (path_of(file.document.uri), file.document.text)))

    def _question_of(self, path: str, text: str, of_call: tuple[str, ...] = ()) -> CompilationQuestion:
        from orbit_lsp.compilation import finder, projects

        setup, choice = self._session.setup, self._python.choice()
        settings = setup.settings
        return finder.CompilationQuestion(
            path,
            text,
            self._searched(projects.project_of),
            standing=setup.standing or setup.directory(path),
            flags=(*settings.nvcc_flags, *of_call),
            flags_trusted=self._settings.users_flags,
            trusted=settings.trusted,
            python=choice.python,
            not_started=choice.ignored,
            nvcc=settings.nvcc or (setup.machine.nvcc if setup.machine else None),
            nvcc_chosen=bool(settings.nvcc),
            database=settings.compile_commands,
        )

    def _searched(self, project_of: Callable[[str], str]) -> tuple[str, ...]:
        """Return the folders in which build files and headers are looked for.

        A command may start anywhere in a project, so it gets the whole project, unless `orbit-lsp trust` covers the
        folder that it starts in. The root of the disk, where containers and services start, is no project: a file
        there stands alone.
        """
        folders = tuple(
            folder for folder in self._session.setup.folders if os.path.normpath(folder).strip("/")
        )
        projects = tuple(map(project_of, folders)) if self._settings.of_command else folders
        fewer_trusted = self._session.setup.settings.trusted and not self._settings.trust.word
        return folders if fewer_trusted and not all(map(self._settings.trust.covers, projects)) else projects

    def _folded(self, refused: Sequence[str], of: trust.Trust) -> list[str]:
        """Put all flags that trust would permit into one sentence, with what to do. Other sentences stay."""
        flags = [
            refusal.partition(" is left out: ")[0] for refusal in refused if nvcc_flags.NOT_TRUSTED in refusal
        ]
        rest = [refusal for refusal in refused if nvcc_flags.NOT_TRUSTED not in refusal]
        if not flags:
            return rest
        are = "is" if len(flags) == 1 else "are"
        left_out = (
            f"{', '.join(flags)} {are} left out, because the workspace is not trusted and only flags that cannot run a "
            f"program are used: {of.remedy(self._settings.trust_once)}"
        )
        return [*rest, left_out]
