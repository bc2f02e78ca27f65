"""Runs a notebook's kernels on a host that is reached by ssh, one session after another."""

from __future__ import annotations

from pathlib import Path

from orbit_lsp.queue.request import RequestRefusedError
from orbit_lsp.runners.kernel_process import Lease
from orbit_lsp.runners.modal.far_session import FarKernel
from orbit_lsp.runners.ssh.connection import SshPlace
from orbit_lsp.runners.ssh.notebook_session import SshSession
from orbit_lsp.runners.ssh.runner import SshOptions, SshRunner, laptop
from orbit_lsp.runners.ssh.trouble import SshError
from orbit_lsp.state import config


class OnHost:
    """Kernels on a host. It asks the host for nothing before `start`. `python` is the host's; "" for the one that is
    found there.
    """

    def __init__(self, host: str, python: str, folder: Path, lease: Lease) -> None:
        self._place = SshPlace(host, python, laptop())
        self._folder = str(folder)
        self._lease: Lease = lease
        self._session: SshSession | None = None

    async def start(self, key: str, scheme: str, *, locate: bool = False) -> FarKernel:
        """Return a kernel. Cells wait until it has started."""
        if self._session is None or not self._session.usable:
            limit = config.Settings().ssh.files_mib << 20
            self._session = SshSession(self._place, self._folder, limit, self._lease)
        return self._session.start_kernel(key, scheme, locate=locate)

    async def cost(self) -> str:
        return f"cells run on {self._place.host}, and cost nothing here"

    async def bring(self, pattern: str) -> str:
        return await self._session.bring(pattern) if self._session and self._session.usable else ""

    async def places(self) -> list[str]:
        """Return the host's GPUs, a line each. Raises RequestRefusedError."""
        runner = SshRunner(SshOptions(self._place))
        try:
            machine = await runner.reached()
        except SshError as error:
            raise RequestRefusedError(str(error)) from None
        finally:
            await runner.close()
        host = self._place.host
        devices = machine.devices if machine else ()
        return [f"{host}:{each.index}  {each.name}" for each in devices] or [f"{host} has no NVIDIA GPU"]

    async def close(self, *, keep: bool) -> None:
        """End the session. `keep`: another process restarts the kernel, and wants its files."""
        if self._session:
            await self._session.finish("", keep=keep)
