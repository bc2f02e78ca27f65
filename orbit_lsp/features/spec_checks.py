"""The launch specs of a file are checked once typing in it has paused, and their mistakes shown."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from orbit_lsp.features import Feature, FeatureContext
from orbit_lsp.specs import spec_cache
from orbit_lsp.state.debounce import Debounce
from orbit_lsp.state.session import Session

_PAUSE_S = 0.3


class SpecChecks(Feature):
    """Checks the specs of a file off the loop once typing has paused, and reports when that is done."""

    def __init__(self, session: Session, changed: Callable[[set[str]], None]) -> None:
        self._session = session
        self._changed = changed
        self._pauses = Debounce(self._begin, "launch specs")
        self._published: set[str] = set()

    def opened(self, uri: str) -> None:
        self._check_after(uri, 0)

    def edited(self, uri: str) -> None:
        self._check_after(uri, _PAUSE_S)

    def closed(self, uri: str) -> None:
        self._pauses.forget(uri)

    def shutdown(self) -> None:
        self._pauses.close()

    def _check_after(self, uri: str, pause_s: float) -> None:
        if uri in self._session.files:
            self._pauses.edited(uri, pause_s)

    def _begin(self, uri: str) -> Coroutine[Any, Any, None] | None:
        return self.check(uri) if spec_cache.speaks(self._session, uri) or uri in self._published else None

    async def check(self, uri: str) -> None:
        session = self._session
        if file := session.files.get(uri):
            await file.scan_aside()
            await spec_cache.check_aside(session, uri)
        if uri not in session.files:
            return
        if uri in self._pauses:
            return  # typed on: what is known now is old already
        self._published.add(uri)
        self._changed({uri})


def feature(context: FeatureContext) -> Feature:
    return SpecChecks(context.session, context.changed)
