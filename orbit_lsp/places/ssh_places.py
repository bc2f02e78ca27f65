"""The hosts to which runs go by ssh. Each has a runner for the present settings."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from orbit_lsp.state.session import Session

if TYPE_CHECKING:
    from orbit_lsp.runners.ssh.runner import SshRunner
    from orbit_remote.common.requests import Job


class SshPlaces:
    """Keeps a runner for each host. `reads` returns the files that the last build of a job's file read; `retire`
    closes a runner once its jobs are over.
    """

    def __init__(
        self, session: Session, reads: Callable[[Job], Sequence[str]], retire: Callable[[SshRunner], None]
    ) -> None:
        self._session, self._reads, self._retire = session, reads, retire
        self._runners: dict[str, SshRunner] = {}

    def runner(self, host: str) -> SshRunner:
        """Return the runner of a host. It is a new one if the settings changed. Nothing is asked of the host yet."""
        from orbit_lsp.runners.ssh.connection import SshPlace
        from orbit_lsp.runners.ssh.runner import SshOptions, SshRunner, laptop

        setup, settings = self._session.setup, self._session.setup.settings
        place = SshPlace(
            host,
            settings.ssh.python,
            laptop(),
            self._session.client.name,
            tuple(settings.environment),
            int(min(settings.cache_gib, 1 << 20) * (1 << 30)),  # JSON may say infinity
            settings.spare_idle_s,
        )
        options = SshOptions(
            place,
            settings.ssh.nvcc,
            tuple(setup.folders),
            tuple(settings.ssh.data),
            settings.ssh.files_mib << 20,
        )
        runner = self._runners.get(host)
        if runner is None or runner.options != options:
            if runner is not None:
                self._retire(runner)
            runner = self._runners[host] = SshRunner(options, self._reads)
        return runner

    async def close(self) -> None:
        """End what runs there on behalf of this program."""
        await asyncio.gather(*(runner.close() for runner in self._runners.values()))
