"""The lease of a driver, from its first CUDA context on: its processes ask, wait, and go on; the time counts for no limit.

No context is opened here: the driver asks in Python where a GPU's recorder would. tests/gpu/test_drivers_gpu.py has the real one.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from orbit_remote.common import messages as c
from orbit_remote.common.requests import Driver, DriverStart, Job
from orbit_remote.process import program
from orbit_remote.recording import first_context, injection
from orbit_remote.recording.first_context import FirstContext
from orbit_remote.worker import prefork, probe
from orbit_remote.worker.actions import builds, python_action
from orbit_remote.worker.context import Shared, WorkerClient, WorkerContext
from orbit_remote.worker.overhead_store import OverheadStore
from tests import processes_check
from tests.remote.test_injection import find_or_skip

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="locks and pipes of Linux")


def asks(first: FirstContext) -> bool:
    return bool(select.select([first], [], [], processes_check.LIMIT_S)[0])


def test_a_process_waits_until_it_is_allowed(tmp_path: Path) -> None:
    first = FirstContext(tmp_path)
    waiting = threading.Thread(target=first_context.wait, args=[tmp_path])
    waiting.start()
    assert asks(first)
    assert waiting.is_alive()
    first.allow()
    waiting.join()
    first_context.wait(tmp_path)  # a second process finds it open
    first.close()
    first.close()


def test_nobody_waits_where_nothing_is_held_back(tmp_path: Path) -> None:
    first_context.wait(tmp_path)
    first = FirstContext(tmp_path)
    first.close()  # the worker has died
    first_context.wait(tmp_path)


YIELDS = """
import ctypes, sys
library = ctypes.CDLL(sys.argv[1])
library.orbit_waited.restype = ctypes.c_longlong
assert library.orbit_waited() == 0
library.orbit_end(sys.argv[2].encode())
print(library.orbit_waited() > 0)
"""


def recorder(kept: Path) -> str:
    return str(injection.build(kept / "cupti", find_or_skip()))


def test_the_recorder_waits_too(kept: Path, tmp_path: Path) -> None:
    """Where it gives CUPTI to a profiler it waits at once, because nobody would tell it of the first context."""
    first = FirstContext(tmp_path)
    command = [sys.executable, "-c", YIELDS, recorder(kept)]
    variables = {**os.environ, "ORBIT_LAUNCHES": str(tmp_path)}
    done = subprocess.run([*command, ""], env=variables, capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"  # its end is no reason to ask
    process = subprocess.Popen([*command, "a profiler"], env=variables, stdout=subprocess.PIPE, text=True)
    assert asks(first)
    assert process.poll() is None
    first.allow()
    assert process.communicate()[0] == "True\n"
    first.close()
    assert injection.read(tmp_path).remarks == ("a profiler",)


GPU = "GPU-1"
ASKS = """
import os
from pathlib import Path
from orbit_remote.recording import first_context
links = [os.readlink(f"/proc/self/fd/{name}") for name in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{name}")]
[stack] = [Path(link) for link in links if Path(link).name == "stack"]
print("asks", os.getpid(), flush=True)
first_context.wait(stack.parent)
print("went on", flush=True)
"""


class Worker:
    """The worker's part of one job, with a GPU that is a name."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in (
            "torch.py",
            "triton.py",
            "pytest.py",
        ):  # a template without them starts ten times as fast
            (folder / name).write_text("raise ImportError\n")
        device = c.Device("NVIDIA H200", 0, uuid=GPU)
        monkeypatch.setattr(probe, "all_devices", lambda: (device,))
        monkeypatch.setattr(OverheadStore, "settled", settled)
        monkeypatch.setattr(OverheadStore, "overhead", nothing_measured)
        self.events: asyncio.Queue[c.Event] = asyncio.Queue()
        self.shared = Shared(folder / "home")
        environment = {**program.environment(os.environ), "PYTHONPATH": str(folder)}
        client = WorkerClient(self.events.put_nowait, environment, ("PYTHONPATH",))
        self.context = WorkerContext(self.shared, client, builds.build_ahead)
        script = folder / "bench.py"
        script.write_text(ASKS)
        start = DriverStart(Driver("script", "bench.py"))
        kernel = str(folder / "k.py")
        self.job = Job("r1", "run", "triton", kernel, "", directory=str(folder), start=start)

    def start(self) -> asyncio.Task[c.Finished]:
        return asyncio.create_task(python_action.run_python(self.job, self.context))

    async def until_it_waits(self) -> tuple[int, str]:
        """Until the driver's process has begun and waits: its number, and for what."""
        pid, why = 0, ""
        async with asyncio.timeout(processes_check.LIMIT_S):
            while not (pid and why):
                event = await self.events.get()
                if isinstance(event, c.Output):
                    pid = int(event.text.split()[1])
                elif isinstance(event, c.Stage) and event.state == "queued":
                    why = event.why
        return pid, why

    async def close(self) -> None:
        await self.context.close()
        await self.shared.close()


def settled(*_: object) -> bool:
    return True


async def nothing_measured(*_: object) -> injection.Overhead:
    return injection.UNKNOWN


@pytest.mark.skipif(not prefork.FORKS, reason="drivers are forked on Linux only")
async def test_a_driver_takes_the_lease_when_it_asks_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = Worker(tmp_path, monkeypatch)
    leases = worker.shared.leases
    async with leases.hold(GPU, "softmax.cu in Neovim", batch=False, waits=print):
        running = worker.start()
        # it runs while somebody else has the GPU, and says for whom it waits
        assert (await worker.until_it_waits())[1] == "waits for the GPU: softmax.cu in Neovim"
    finished = await running
    assert finished.outcome == "ok", finished
    assert finished.stdout.endswith("went on\n")
    async with asyncio.timeout(processes_check.LIMIT_S), leases.hold(GPU, "next", batch=False, waits=print):
        pass
    await worker.close()


@pytest.mark.skipif(not prefork.FORKS, reason="drivers are forked on Linux only")
async def test_a_wait_for_the_lease_can_be_cancelled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    worker = Worker(tmp_path, monkeypatch)
    leases = worker.shared.leases
    async with leases.hold(GPU, "another", batch=False, waits=print):
        running = worker.start()
        pid, _ = await worker.until_it_waits()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        await processes_check.ended(pid)
    async with asyncio.timeout(processes_check.LIMIT_S), leases.hold(GPU, "next", batch=False, waits=print):
        pass
    await worker.close()


@pytest.mark.parametrize("most_s", [None, 5.0])
async def test_what_does_not_count_moves_the_limit(most_s: float | None, tmp_path: Path) -> None:
    job = Job("r1", "run", "triton", "k.py", "")
    context = WorkerContext(Shared(tmp_path), WorkerClient(print, {}), builds.build_ahead)
    with contextlib.suppress(TimeoutError):  # it ends early
        async with context.limit(job, 60) as limit:
            check(context, job, limit, most_s)


def check(context: WorkerContext, job: Job, limit: asyncio.Timeout, most_s: float | None) -> None:
    before = limit.when()
    assert before
    with context.uncounted(job, most_s):
        assert limit.when() == (before + most_s if most_s else None)
        with context.uncounted(job):  # as a rank that waits while another process compiles
            pass
    after = limit.when()
    assert after
    assert before <= after
    assert most_s is None or after < before + most_s
    with context.uncounted(job, most_s):
        context.end_early("r1")
    assert limit.when() != after  # it stays at its end
    assert context.ended_early(job)
