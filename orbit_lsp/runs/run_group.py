"""Several jobs that stand as one run to those who watch and cancel it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Generic, Protocol, TypeVar

from orbit_lsp.runs.scheduler import Run
from orbit_lsp.state.session import KernelId


class _Work(Protocol):
    @property
    def run(self) -> Run: ...


Work = TypeVar("Work", bound=_Work)


class Joint(Generic[Work]):
    """Those that are under way, by the names of their runs. Cancelling the task of a run ends all of its jobs."""

    def __init__(self) -> None:
        self._active: dict[str, Work] = {}

    def cancel(self, target: KernelId) -> bool:
        """Cancel what a kernel waits for; False where there is nothing."""
        return self._cancel([name for name, one in self._active.items() if target in one.run.targets])

    def cancel_run(self, name: str) -> bool:
        one = self._active.get(name)
        return bool(one and one.run.task and not one.run.task.cancelling() and one.run.task.cancel())

    def cancel_all(self) -> bool:
        return self._cancel(list(self._active))

    def _cancel(self, names: Iterable[str]) -> bool:
        return sum(map(self.cancel_run, names)) > 0

    async def close(self) -> None:
        tasks = [one.run.task for one in self._active.values() if one.run.task]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
