"""A notebook's cells and the other jobs of a machine take turns on its GPU, which is a file here that a cell opens."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from orbit_remote.worker import lease
from orbit_remote.worker.lease import Leases
from tests.processes_check import LIMIT_S
from tests.test_notebook import Kernel

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="GPUs are leased over processes on Linux")
GPU = "GPU-2f3c"
KEEPER = """
import runpy, sys
from pathlib import Path
sys.argv = sys.argv[1:]
main = runpy.run_path(sys.argv[0])
main["register"]()
from orbit_remote.worker import cell_lease, lease
lease.EVERYBODYS = Path({folder!r})
cell_lease.NODES = ({node!r},)
cell_lease.visible = lambda: [{gpu!r}]
sys.exit(main["main"]())
"""


OPENS = """
import os
gpu = open({node!r})
while not (os.path.isdir({folder!r}) and any('.held.' in name for name in os.listdir({folder!r}))): pass
input()
print('over')
"""
"""A cell that goes on once it has the GPU it opened for itself."""


class Machine:
    """Its GPU is the file `node`; `kernel(*options)` starts a notebook kernel whose cells open it."""

    def __init__(self, folder: Path) -> None:
        self.node = folder / "nvidia0"
        self.node.write_text("")
        self.folder = folder
        self.waits: list[str] = []
        script = folder / "keeper.py"
        script.write_text(KEEPER.format(folder=str(lease.EVERYBODYS), node=str(self.node), gpu=GPU))
        self.python = folder / "python"
        self.python.write_text(f'#!/bin/sh\nshift\nexec "{sys.executable}" -P "{script}" "$@"\n')
        self.python.chmod(0o755)
        self.made: list[Kernel] = []

    def kernel(self, *options: str) -> Kernel:
        self.made.append(Kernel(self.folder, "--python", str(self.python), *options))
        return self.made[-1]

    @asynccontextmanager
    async def job(self, told: Callable[[str], None] = lambda _: None) -> AsyncGenerator[None]:
        """A job of another process that has the GPU for itself; `told` for whom it waits."""
        async with Leases(self.folder / "own").hold(GPU, "softmax.cu in Neovim", batch=False, waits=told):
            yield


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    for name in ("JUPYTER_DATA_DIR", "XDG_STATE_HOME", "IPYTHONDIR", "XDG_RUNTIME_DIR"):
        (tmp_path / name).mkdir(mode=0o700)
        monkeypatch.setenv(name, str(tmp_path / name))
    made = Machine(tmp_path)
    yield made
    for each in made.made:
        each.close()


async def test_a_cell_waits_for_the_job_that_has_the_gpu(machine: Machine) -> None:
    kernel = machine.kernel()
    assert await asyncio.to_thread(kernel.run, f"gpu = open({str(machine.node)!r}); print(1)") == "1"
    loop, shown = asyncio.get_running_loop(), asyncio.Queue[str]()
    async with machine.job():
        running = asyncio.create_task(
            asyncio.to_thread(
                kernel.run, "print(2)", lambda text: loop.call_soon_threadsafe(shown.put_nowait, text)
            )
        )
        waits = await asyncio.wait_for(shown.get(), LIMIT_S)
        assert waits == "orbit: the cell waits for the GPU: softmax.cu in Neovim\n"
        assert not running.done()
    assert (await running).splitlines()[-1] == "2"


async def test_an_interrupt_ends_the_wait_and_keeps_the_variables(machine: Machine) -> None:
    kernel = machine.kernel()
    await asyncio.to_thread(kernel.run, f"gpu = open({str(machine.node)!r})")
    async with machine.job():
        interrupted: list[str] = []

        def interrupt(text: str) -> None:
            if not interrupted:
                interrupted.append(text)
                kernel.manager.interrupt_kernel()

        shown = await asyncio.to_thread(kernel.run, "print(2)", interrupt)
    assert shown.splitlines()[1:] == [
        "Interrupted: the cell was not run: it was interrupted while it waited for the GPU"
    ]
    assert await asyncio.to_thread(kernel.run, "gpu.closed") == "[text/plain]\nFalse"


@pytest.mark.parametrize("when", ["cell", "session"])
async def test_a_job_waits_for_the_cell_that_uses_the_gpu(machine: Machine, when: str) -> None:
    """In a `session` it waits for the kernel's end."""
    kernel = machine.kernel("--lease", when)
    cell = kernel.send(OPENS.format(node=str(machine.node), folder=str(lease.EVERYBODYS)))
    await asyncio.to_thread(kernel.client.get_stdin_msg, timeout=LIMIT_S)
    told: asyncio.Queue[str] = asyncio.Queue()

    async def job() -> None:
        async with machine.job(told.put_nowait):
            pass

    working = asyncio.create_task(job())
    assert await asyncio.wait_for(told.get(), LIMIT_S) == f"a notebook's cell in {machine.folder.name}"
    kernel.client.input("")
    assert await asyncio.to_thread(kernel.outputs, cell) == "over"
    if when == "session":
        assert await asyncio.to_thread(kernel.run, "1") == "[text/plain]\n1"
        assert not working.done()
        kernel.manager.shutdown_kernel(now=True)
    await asyncio.wait_for(working, LIMIT_S)


async def test_a_cell_that_opens_no_gpu_keeps_nobody_waiting(machine: Machine) -> None:
    kernel = machine.kernel()
    cell = kernel.send("input()")
    await asyncio.to_thread(kernel.client.get_stdin_msg, timeout=LIMIT_S)
    async with asyncio.timeout(LIMIT_S), machine.job():
        kernel.client.input("x")
        assert await asyncio.to_thread(kernel.outputs, cell) == "[text/plain]\n'x'"


async def test_while_a_cell_waits_for_a_job_of_its_own_others_have_the_gpu(machine: Machine) -> None:
    """Else the cell would wait for the job and the job for the cell."""
    kernel = machine.kernel()
    opens = OPENS.format(node=str(machine.node), folder=str(lease.EVERYBODYS))
    asks = "try:\n    get_ipython().run_cell_magic('orbit', 'fly', 'x')\nexcept Exception as error: print(error)\ninput()"
    cell = kernel.send(f"{opens}{asks}")
    await asyncio.to_thread(kernel.client.get_stdin_msg, timeout=LIMIT_S)
    waits: asyncio.Queue[str] = asyncio.Queue()

    async def job() -> None:
        async with machine.job(waits.put_nowait):
            pass

    working = asyncio.create_task(job())
    await asyncio.wait_for(waits.get(), LIMIT_S)
    kernel.client.input("")
    await asyncio.wait_for(working, LIMIT_S)
    await asyncio.to_thread(kernel.client.get_stdin_msg, timeout=LIMIT_S)
    kernel.client.input("end")
    assert "orbit: write %%orbit run" in await asyncio.to_thread(kernel.outputs, cell)
