"""Runs a notebook's kernels on a rented GPU: the account, the budget, one session after another."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

from orbit_lsp.engine.engine import Engine, Unwatched
from orbit_lsp.runners.modal import spending
from orbit_lsp.runners.modal.far_session import FarKernel
from orbit_lsp.runners.modal.notebook_session import LONGEST_S, RESTART_S, NotebookSession
from orbit_lsp.runners.modal.pool import ContainerPool
from orbit_lsp.state.placement import RunSetup
from orbit_lsp.state.session import Session


class Rented:
    """Kernels on a rented GPU. `budget` is in dollars a month. It rents nothing before `start`."""

    def __init__(
        self, gpu: str, budget: float, folder: Path, python: str | None, complain: Callable[[str], None]
    ) -> None:
        """Make the kernels' place. `python` is the user's own; the image gets its versions of torch and triton."""
        self._gpu = gpu
        self._folder = str(folder)
        setup = RunSetup(folders=[self._folder])
        remedy = "raise the kernel's budget: `orbit-lsp kernel install --budget`"
        self._places = Engine(Session(setup=setup), Unwatched(), complain, remedy=remedy).places
        self._places.settings.options = {"runner": "modal", "gpu": gpu, "modal": {"budget_usd": budget}} | (
            {"python": python} if python else {}
        )
        for complaint in self._places.settings.configure(None):
            complain(complaint)
        self._pool: ContainerPool | None = None
        self._session: NotebookSession | None = None

    async def start(self, key: str, scheme: str, *, locate: bool = False) -> FarKernel:
        """Start a kernel. Its container may take minutes to start, and cells wait for it."""
        if self._pool is None:
            await self._places.look_around()  # the image has the author's own versions
            options = self._places.rental.runner().options
            spec = dataclasses.replace(options.spec, idle_s=RESTART_S, timeout_s=LONGEST_S)
            self._pool = ContainerPool(dataclasses.replace(options, spec=spec))
        if self._session is None or not self._session.usable:
            limit = self._places.settings.now.modal.budget_usd
            self._session = NotebookSession(
                self._gpu, self._pool, self._folder,
                self._places.rental.costs, lambda wanted: self._places.rental.rent([wanted]), limit,
            )  # fmt: skip
        return self._session.start_kernel(key, scheme, locate=locate)

    async def cost(self) -> str:
        lines = [self._session.cost_text() if self._session else f"{self._gpu}: not rented yet"]
        if month := await self._places.rental.costs.month():
            lines.append(spending.month_text(month, self._places.settings.now.modal.budget_usd))
        return "\n".join(lines)

    async def bring(self, pattern: str) -> str:
        return await self._session.bring(pattern) if self._session and self._session.usable else ""

    async def close(self, *, keep: bool) -> None:
        """End the session and close the places. `keep`: another process restarts the kernel, and wants its container."""
        if self._session:
            await self._session.finish("", keep=keep)
        await self._places.close()
