"""Answers which tests, scripts and programs launch a kernel of a project.

docs/dev/drivers.md describes how they are found.
"""

from __future__ import annotations

import posixpath
import threading
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

from orbit_lsp.drivers import editable, extension, pytest_files
from orbit_lsp.drivers.declared import BuildFiles
from orbit_lsp.drivers.index import WordIndex
from orbit_lsp.drivers.programs import Programs
from orbit_lsp.drivers.project import Project
from orbit_lsp.drivers.pytest_files import Pytest
from orbit_lsp.drivers.search import Search
from orbit_lsp.state.results import Routes


class DriverFinder:
    """The drivers of the kernels of one folder. Every method takes time and may be called from any thread, off the event loop."""

    def __init__(
        self, root: str, cache: Callable[[], Path] | None = None, build_files: BuildFiles | None = None
    ) -> None:
        """Make a finder. `cache` names the SQLite file of the index; None keeps none. `build_files` reads build
        files; None reads none.
        """
        self.index = WordIndex(root, cache)
        self._project = Project(self.index, lambda place: self._pytest(posixpath.dirname(place)).is_class)
        self._build_files = build_files or BuildFiles()
        self._lock = threading.RLock()
        self._known: dict[tuple[str, str], Routes] = {}
        self._pytests: dict[str, Pytest] = {}
        self._texts = extension.TextCache()

    @property
    def complete(self) -> bool:
        """Say whether all files have been read once. Before that, a driver may be missing."""
        return self.index.complete

    def refresh(self, near: str = "", within: float | None = None) -> bool:
        """Read what is new or has changed, the folders nearest to the path `near` first, for at most `within`
        seconds. Return whether all has been read.
        """
        with self._lock:
            done = self.index.read((self.index.place(near) or "") if near else "", within)
            self._pytests.clear()
            return done

    def edit(self, path: str, text: str | None) -> None:
        """Use `text` as the text of a file, until a call with None. The editor shows it and has not saved it."""
        with self._lock:
            self.index.edit(path, text)

    def changed(self, path: str) -> None:
        """Read one file again, which was written, made or removed."""
        with self._lock:
            self.index.changed(path)

    def routes_of(self, path: str, kernels: Iterable[str]) -> dict[str, Routes]:
        """Return the routes of several kernels of a file, by their keys. C++ texts that they need are read once."""
        with self._lock:
            place = self.index.place(path)
            near = self._near(place) if place and not place.endswith(".py") else None
            return {kernel: self.routes(path, kernel, near) for kernel in kernels}

    def _near(self, place: str) -> tuple[extension.NearTexts, Programs]:
        near = extension.NearTexts(self.index, place, self._texts)
        return near, Programs(self.index, near, place, self._build_files)

    def routes(
        self, path: str, kernel: str, near: tuple[extension.NearTexts, Programs] | None = None
    ) -> Routes:
        """Return the routes of a kernel from what has been read so far. `kernel` is the key of its `KernelId`.
        Kernels with the same name have the same routes.
        """
        kernel = kernel.partition("#")[0]
        with self._lock:
            place = self.index.place(path)
            if place is None:
                return Routes(reason=f"{path} is outside of the folder {self.index.root}")
            if place not in self.index.files:
                self.index.changed(path, wanted=True)
            if self._project.forget() or not self._pytests:
                self._known.clear()
                self._configure()
            if not place.endswith(".py"):  # the index does not notice changes of C++ texts
                return Search(self._project, self._pytest, place, kernel, near or self._near(place)).run()
            key = (place, kernel)
            if key not in self._known:
                routes = Search(self._project, self._pytest, place, kernel).run()
                self._known[key] = replace(routes, caller=self._caller(place, routes))
            return self._known[key]

    def _caller(self, place: str, routes: Routes) -> tuple[str, str] | None:
        files = (route.driver.file for route in routes.routes if route.driver.kind != "program")
        other = next((file for file in files if file != place), None)
        return (self.index.path(other), self.index.text(other)) if other else None

    def _configure(self) -> None:
        self._pytests.clear()
        installed = editable.installed(self.index)
        self._project.renamed = installed.packages
        self._project.roots = ("", "src", *self._pytest("").pythonpath, *installed.folders)

    def _pytest(self, folder: str) -> Pytest:
        if folder not in self._pytests:
            self._pytests[folder] = pytest_files.configuration(self.index, folder)
        return self._pytests[folder]
