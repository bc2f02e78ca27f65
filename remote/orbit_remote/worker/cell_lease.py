"""The GPU lease of a notebook's kernel. It is held after a cell has opened a GPU, until the cell or the kernel ends.

A kernel that has opened no GPU holds none, so that a cell that waits or computes on the CPU keeps nobody from
measuring.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Literal

from orbit_remote.common.messages import Device
from orbit_remote.process import runtime_folder
from orbit_remote.worker import probe
from orbit_remote.worker.lease import Leases

When = Literal["cell", "session", "never"]
NODES = ("/dev/nvidia", "/dev/dxg")
"""What the names begin with of the files that a process with a CUDA context has open."""
_LOOK_S = 0.1
"""From one look at a cell that has opened no GPU yet to the next: opening one takes longer."""


class CellLease:
    """A kernel's lease. `what` names the notebook for those who wait; `waits` is called with the holder for whom a
    cell waits.
    """

    def __init__(self, when: When, what: str, waits: Callable[[str], None]) -> None:
        self._when = when
        self._what = what
        self._waits = waits
        self._leases: Leases | None = None
        self._held: AsyncExitStack | None = None
        self._taking: asyncio.Task[None] | None = None
        self._busy = False

    @property
    def holds(self) -> bool:
        return self._held is not None

    async def begin(self, pid: int) -> bool:
        """Wait until a cell of the kernel `pid` may run. Return False if `interrupt` ended the wait."""
        self._busy = True
        if self._when == "never" or self._held:
            return True
        if not _opened(pid):
            self._watch(pid)
            return True
        await self._stop()
        self._taking = taking = asyncio.create_task(self._take())
        await asyncio.wait([taking])
        if not taking.cancelled() and (error := taking.exception()):  # then the cell runs without it
            self._waits(f"no lease of it can be taken: {error}")
        return not taking.cancelled()

    def interrupt(self) -> None:
        """End a wait of `begin`."""
        if self._taking and not self._held:
            self._taking.cancel()

    async def end(self) -> None:
        """Take note that no cell runs any more."""
        self._busy = False
        if self._when == "cell":
            await self.lend()

    async def lend(self) -> None:
        """Give the GPU back for a job that this cell has asked for."""
        await self._stop()
        if held := self._held:
            self._held = None
            await held.aclose()

    def resume(self, pid: int) -> None:
        """Watch again for the cell's use of the GPU, after the job is over. The cell has gone on running."""
        if self._busy and self._when != "never":
            self._watch(pid)

    def _watch(self, pid: int) -> None:
        async def look() -> None:
            while not _opened(pid):  # noqa: ASYNC110 - nothing announces it
                await asyncio.sleep(_LOOK_S)
            await self._take()

        if self._taking is None or self._taking.done():
            self._taking = asyncio.create_task(look())

    async def _stop(self) -> None:
        if taking := self._taking:
            self._taking = None
            taking.cancel()
            await asyncio.gather(taking, return_exceptions=True)

    async def _take(self) -> None:
        if self._leases is None:
            self._leases = Leases(runtime_folder.folder() / "leases")
        async with AsyncExitStack() as stack:
            for gpu in await asyncio.to_thread(visible):  # in the order in which jobs take several
                lease = self._leases.hold(gpu, self._what, batch=False, waits=self._waits)
                await stack.enter_async_context(lease)
            self._held = stack.pop_all()


def visible() -> Sequence[str]:
    """Return the leases of the GPUs that a process with this environment sees."""
    return [device.uuid or f"gpu-{device.index}" for device in visible_devices()]


def visible_devices() -> Sequence[Device]:
    devices = probe.all_devices()
    shown = os.environ.get("CUDA_VISIBLE_DEVICES")
    words = shown.split(",") if shown is not None else [str(device.index) for device in devices]
    return [
        device
        for device in devices
        if any(
            word.strip() == str(device.index)
            or (len(word) > 4 and (device.uuid or "").startswith(word.strip()))
            for word in words
        )
    ]


def _opened(pid: int) -> bool:
    """Say whether the process has opened a GPU."""
    with suppress(OSError):
        for file in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):  # closed meanwhile
                if str(file.readlink()).startswith(NODES):
                    return True
    return False


def of_notebook(folder: Path) -> str:
    return f"a notebook's cell in {folder.name or folder}"
