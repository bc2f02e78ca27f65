"""Looks for what launches the kernels of open files, beside the event loop. Lenses name it once it is known."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from orbit_lsp.features import Feature, FeatureContext
from orbit_lsp.kernels import CUDA_SUFFIXES, HEADER_SUFFIXES, HOST_SUFFIXES
from orbit_lsp.runs import driver_search
from orbit_lsp.state import daemon_thread, user_folders
from orbit_lsp.state.debounce import Debounce
from orbit_lsp.state.kernel_ids import KernelId
from orbit_lsp.state.results import Routes
from orbit_lsp.state.session import Session, path_of

if TYPE_CHECKING:
    from orbit_lsp.drivers.finder import DriverFinder

log = logging.getLogger("orbit.drivers")

_PAUSE_S = 1.0
"""After typing has paused for so long, a file's kernels are looked for again."""
_SOURCES = (*CUDA_SUFFIXES, *HEADER_SUFFIXES, *HOST_SUFFIXES, ".c")
"""Of what build files make programs."""
_STEP_S = 0.5
"""How long a large project is read before what has been found so far is shown."""


class DriverWatch(Feature):
    """Watches the drivers of kernels in open files. It reads nothing of a project in which no kernel is open."""

    def __init__(
        self, session: Session, changed: Callable[[set[str]], None], cache: Callable[[], Path]
    ) -> None:
        """Make the watch. `changed` gets the files whose lenses have changed, and `cache` names the file that keeps
        what was read.
        """
        self._session = session
        self._changed = changed
        self._cache = cache
        self._finders: dict[str, DriverFinder] = {}
        self._pauses = Debounce(self._edited, "drivers")
        self._looking: dict[str, asyncio.Task[None]] = {}
        """By what they are about: a newer one takes the place of an older one."""

    def opened(self, uri: str) -> None:
        """Read the file's project, and then find what launches its kernels."""
        self._begin(uri, refresh=True)

    def edited(self, uri: str) -> None:
        """Look again once typing in a Python file has paused: what is typed into C++ texts is not built yet."""
        file = self._session.files.get(uri)
        if file and not file.cell and uri.endswith(".py") and self._root(uri) in self._finders:
            self._pauses.edited(uri, _PAUSE_S)

    def closed(self, uri: str) -> None:
        self._pauses.forget(uri)
        if task := self._looking.pop(uri, None):
            task.cancel()
        for target in [target for target in self._session.routes if target.uri == uri]:
            del self._session.routes[target]
        if finder := self._finders.get(self._root(uri)):
            self._spawn(f"closed {uri}", self._forget(finder, path_of(uri)))

    def saved(self, uri: str) -> None:
        self._read_again(uri)

    def changed_on_disk(self, uris: set[str], came: set[str]) -> None:
        del came
        for uri in uris:
            self._read_again(uri)

    def _read_again(self, uri: str) -> None:
        """Read one file again that was saved, made or removed, and look again for all kernels of its project."""
        path, root = path_of(uri), self._root(uri)
        finder = self._finders.get(root)
        if finder is None:
            return
        from orbit_lsp.compilation.build_systems import elsewhere, registry  # the finder has imported them

        name = Path(path).name
        of_build = registry.system_of(name) is not None or elsewhere.may_compile(name)
        if not of_build and not name.endswith(_SOURCES):
            return
        self._spawn(f"saved {uri}", self._reread(finder, root, path))

    def shutdown(self) -> None:
        self._pauses.close()
        for task in self._looking.values():
            task.cancel()

    def _root(self, uri: str) -> str:
        """Return the folder in which a file's drivers are looked for, and in which they run."""
        return self._session.setup.directory(path_of(uri))

    def _spawn(self, about: str, work: Coroutine[None, None, None]) -> None:
        if older := self._looking.pop(about, None):
            older.cancel()
        self._looking[about] = asyncio.get_running_loop().create_task(work, name="drivers")

    def _begin(self, uri: str, *, refresh: bool) -> None:
        if root := driver_search.folder_of(self._session, uri):
            self._spawn(uri, self._look(uri, root, refresh=refresh))

    async def _edited(self, uri: str) -> None:
        self._begin(uri, refresh=False)

    async def _look(self, uri: str, root: str, *, refresh: bool) -> None:
        """Find the drivers of a file's kernels, again after each half second of reading, until all has been read."""
        finder = self._finders.get(root) or await daemon_thread.call(
            partial(driver_search.finder_of, root, self._cache)
        )
        finder = self._finders.setdefault(root, finder)
        done = finder.complete and not refresh
        while True:
            if (file := self._session.files.get(uri)) is None:
                return
            await file.scan_aside()
            targets = [target for target, kernel, _ in self._session.kernels(uri) if kernel.launchable]
            work = partial(_find, finder, path_of(uri), file.document.text, targets, done)
            try:
                done, found = await daemon_thread.call(work)
            except Exception:
                log.exception("the drivers of %s were not found", path_of(uri))
                return
            self._keep(uri, found)
            if done:
                return

    def _keep(self, uri: str, found: dict[KernelId, Routes]) -> None:
        before = {target: known for target, known in self._session.routes.items() if target.uri == uri}
        if uri not in self._session.files or found == before:
            return
        for target in before.keys() - found.keys():
            del self._session.routes[target]
        self._session.routes |= found
        if any(known.routes for known in (*before.values(), *found.values())):
            self._changed({uri})

    async def _reread(self, finder: DriverFinder, root: str, path: str) -> None:
        await daemon_thread.call(lambda: finder.changed(path))
        for uri in list(self._session.files):
            if self._root(uri) == root:
                self._begin(uri, refresh=False)

    async def _forget(self, finder: DriverFinder, path: str) -> None:
        await daemon_thread.call(lambda: finder.edit(path, None))


def _find(
    finder: DriverFinder, path: str, text: str, targets: Sequence[KernelId], read: bool
) -> tuple[bool, dict[KernelId, Routes]]:
    """Read on, unless everything has been `read`, and find the drivers of a file's kernels. Say also whether
    everything has been read now.
    """
    finder.edit(path, text)
    read = read or finder.refresh(path, _STEP_S)
    found = finder.routes_of(path, [target.key for target in targets])
    return read, {target: found[target.key] for target in targets}


def feature(context: FeatureContext) -> Feature:
    return DriverWatch(context.session, context.changed, user_folders.driver_index)
