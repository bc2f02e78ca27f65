"""Where a job runs. There is one small interface: a job in, events out.

The last event of a job is always `Finished`. To close the generator (by cancelling the task that reads it) ends the
work where it runs, children included, before the close returns.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Protocol, runtime_checkable

from orbit_remote.common.messages import Event, Machine
from orbit_remote.common.requests import Job


class Runner(Protocol):
    name: str

    def run(self, job: Job) -> AsyncGenerator[Event, None]:
        """Yield the job's events up to its `Finished`."""
        ...

    async def machine(self) -> Machine | None:
        """Return what the machine has. Return None if it cannot be asked."""
        ...

    async def warm(self, language: str) -> None:
        """Prepare for a first job of `language`; nothing of the user's runs."""
        ...

    async def close(self) -> None:
        """End everything this runner started."""
        ...


@runtime_checkable
class Locates(Protocol):
    """A runner that can end a run to see where its kernel stands."""

    def locate(self, run: str) -> None:
        """Make the run end now, as if it had reached its limit."""
        ...
