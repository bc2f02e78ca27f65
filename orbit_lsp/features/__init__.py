"""What the editor's server does unasked, while its author types, saves and runs. Each module here is one feature.

A module has a function `feature(context)` that makes its feature. The handlers of messages pass every event to every feature, and
name no feature, so a new feature is one new file. No feature may depend on the order of the features.
"""

from __future__ import annotations

import asyncio
import importlib
import pkgutil
from collections.abc import Callable, Coroutine, Iterator
from typing import TYPE_CHECKING, Any, TypeVar, cast

from orbit_remote.common.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from orbit_lsp.places.places import Places
    from orbit_lsp.runs.scheduler import Run, Scheduler
    from orbit_lsp.state.session import Session


class Feature:
    """Events do nothing here: a feature overrides those that it needs. Each is called on the event loop and must not block it."""

    def opened(self, uri: str) -> None:
        """A file was opened: the settings are known, and its text is scanned."""

    def edited(self, uri: str) -> None:
        """The text of an open file is new."""

    def saved(self, uri: str) -> None:
        """An open file was saved."""

    def closed(self, uri: str) -> None:
        """A file is about to be closed."""

    def hovered(self, uri: str) -> None:
        """Take note that somebody asks about a kernel of an open file."""

    def changed_on_disk(self, uris: set[str], came: set[str]) -> None:
        """Take note that files changed outside the editor. `came` are those that were made or removed."""

    async def finding(self, uri: str) -> None:
        """Take note that the server is about to find out how an open file is compiled."""

    def run_ended(self, run: Run) -> None:
        """A run has ended, and its results are filed."""

    def shutdown(self) -> None:
        """End all work, as the server is about to end."""


F = TypeVar("F", bound=Feature)


@dataclass(slots=True)
class FeatureContext:
    """What a feature works with."""

    session: Session
    places: Places
    runs: Scheduler
    message: Callable[[str], None]
    warn_once: Callable[[str], None]
    """A warning that would be said again at every save."""
    changed: Callable[[set[str]], None]
    """The views of these files changed."""
    compiles: Callable[[str], None]
    """A compilation of a file begins, or the search for how it is compiled."""
    compiled: Callable[[str], None]
    """It has ended, however it did."""
    client_watches: bool = False
    """Whether the client tells of files that change on disk."""
    features: Features = cast("Features", None)
    """All of them, the one that asks included. `Features` sets it."""


class Features:
    """All features of one editor, made on first use."""

    def __init__(self, context: FeatureContext) -> None:
        context.features = self
        modules = [
            importlib.import_module(f"{__name__}.{each.name}") for each in pkgutil.iter_modules(__path__)
        ]
        self._all: list[Feature] = [module.feature(context) for module in modules]
        context.runs.when_ended(self._run_ended)

    def __iter__(self) -> Iterator[Feature]:
        return iter(self._all)

    def of(self, kind: type[F]) -> F:
        """Return the feature of a class. It is for the command that turns a feature on and off, and for a feature
        that builds on another.
        """
        return next(feature for feature in self._all if isinstance(feature, kind))

    def _run_ended(self, run: Run) -> None:
        for feature in self._all:
            feature.run_ended(run)


class Tasks:
    """Tasks of a feature, kept until they end."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._tasks: set[asyncio.Task[None]] = set()

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work, name=self._name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def cancel(self) -> None:
        for task in self._tasks:
            task.cancel()
