"""Where a job runs. One small interface: a job in, events out.

The last event of a job is always `Finished`. Closing the generator - cancelling the task that reads
it - ends the work where it runs, children included, before the close returns.
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
        """What the machine has; None where it cannot be asked."""
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
        """Have the run end now, as if it had reached its limit."""
        ...
