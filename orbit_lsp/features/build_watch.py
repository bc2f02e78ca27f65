"""Notices that a project was configured, a submodule checked out or a package installed, and has open files compiled again

A client that watches files tells of it. Not every client does, and none watches where packages are installed. So while an open
file shows that a header is missing, or is compiled with one that was made up from a template, the few places that can answer
are looked at every two seconds.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from orbit_lsp.features import Feature, FeatureContext
from orbit_lsp.features.quiet_compile import QuietCompile
from orbit_lsp.places.places import Places
from orbit_lsp.runs.scheduler import Run
from orbit_lsp.state.debounce import Debounce
from orbit_lsp.state.session import Session, path_of

_EVERY_S = 2.0
_SHARE = 20
"""Looking has at most this part of the time, in a workspace where it takes long."""
_PAUSE_S = 0.2
"""A build changes many files, and each of a client's messages tells of some."""


class BuildWatch(Feature):
    def __init__(
        self,
        session: Session,
        places: Places,
        compile_if_news: Callable[[str], Awaitable[None]],
        *,
        client_watches: bool,
    ) -> None:
        """`compile_if_news` finds out how a file is compiled, and compiles it if that has changed."""
        self._session = session
        self._places = places
        self._compile_if_news = compile_if_news
        self._client_watches = client_watches
        self._known: dict[str, frozenset[object]] = {}
        """What was on disk when it was last found out how a file is compiled."""
        self._stirred: set[str] = set()
        """Files of which something had come at the last look."""
        self._looking: asyncio.Task[None] | None = None
        self._pauses = Debounce(self._again, "build watch")

    async def finding(self, uri: str) -> None:
        known = await self._places.compilations.on_disk(uri)  # read first: what comes later is news
        if uri in self._session.files:
            self._known[uri] = known

    def changed_on_disk(self, uris: set[str], came: set[str]) -> None:
        from orbit_lsp.compilation import arrivals

        every = any(arrivals.is_of_build(path_of(uri)) for uri in uris)
        for uri, file in self._session.files.items():
            compilation = file.compilation
            if uri in self._known and (every or (came and (compilation.missing or compilation.made))):
                self._pauses.edited(uri, _PAUSE_S)

    def closed(self, uri: str) -> None:
        self._known.pop(uri, None)
        self._stirred.discard(uri)
        self._pauses.forget(uri)

    def shutdown(self) -> None:
        self._pauses.close()
        if self._looking:
            self._looking.cancel()

    def run_ended(self, run: Run) -> None:
        if run.action == "compile" and self._looking is None and self._waits(run.frozen.uri):
            self._looking = asyncio.create_task(self._look_on(), name="build watch")

    def _waits(self, uri: str) -> bool:
        """Return whether a file is shown differently once something that is missing has come."""
        file = self._session.files.get(uri)
        if file is None or uri not in self._known or not self._places.settings.now.compile_on_save:
            return False
        compilation = file.compilation
        if compilation.made or (compilation.database_command and not self._client_watches):
            return True
        return any(
            problem.message.startswith(f"{name} is not found")
            for (source, _), problems in self._session.results.problems.items()
            if source == f"build {uri}"
            for problem in problems.items
            for name in compilation.missing
        )

    async def _look_on(self) -> None:
        try:
            pause = _EVERY_S
            while waiting := list(filter(self._waits, self._known)):
                await asyncio.sleep(pause)
                began = time.monotonic()
                for uri in waiting:
                    await self._look(uri)
                pause = max(_EVERY_S, (time.monotonic() - began) * _SHARE)
        finally:
            self._looking = None

    async def _look(self, uri: str) -> None:
        came = await self._places.compilations.on_disk(uri) != self._known.get(uri)
        if uri not in self._known or not (came or uri in self._stirred):
            return
        # once more when it has come to rest: the last files of a build may lie deeper than is looked
        (self._stirred.add if came else self._stirred.discard)(uri)
        await self._again(uri)

    async def _again(self, uri: str) -> None:
        self._places.compilations.forget_folders(uri)
        await self._compile_if_news(uri)


def feature(context: FeatureContext) -> Feature:
    async def compile_if_news(uri: str) -> None:
        await context.features.of(QuietCompile).compile_if_news(uri)

    return BuildWatch(context.session, context.places, compile_if_news, client_watches=context.client_watches)
