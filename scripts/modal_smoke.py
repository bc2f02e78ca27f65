"""Everything that orbit-lsp does on Modal, once, on a real account, with a report: what works, what not, how long.

    python -P scripts/modal_smoke.py --gpu H100 [--other T4] [--gpus T4,L4] [--yes] [--out FILE] [--keep]

Says what it will cost at most and asks, unless --yes. The first steps rent no GPU. Then it rents one at a time, for minutes. Each
step but the building of the image ends after 2 minutes, and all of it after 15; nothing is tried any more once containers
fail as they start. At its end, also after Ctrl-C, it stops the app that it has put there, and with it every container (--keep
leaves it). Needs a token (`python -m modal token new`). The report is a file without tokens and names of this machine, to
be attached to an issue. Exit code: how many steps failed.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import datetime as dt
import importlib.metadata
import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "remote"))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from orbit_lsp.notebook.rented import Rented
from orbit_lsp.places.places import Places
from orbit_lsp.runners.modal import errors as modal_errors
from orbit_lsp.runners.modal.rates import Rates
from orbit_lsp.runs import summary
from orbit_lsp.state import modal_gpus
from orbit_lsp.state.placement import RunSetup
from orbit_lsp.state.session import Session
from orbit_remote.common import messages as c
from orbit_remote.common.requests import Job
from orbit_remote.modal_app.image_spec import ImageSpec, unpack

ROOT = Path(__file__).resolve().parent.parent

MINUTES = 15
"""Of all steps, and what they cost at most is said for so long."""
LIMIT_S = 120.0  # of a step
IMAGE_S = 840.0  # of the building of the image
EXPIRY_S = 60.0  # between two looks at the queue that gives no signs
SPACED = 46

LIVE = """\
#include <stdio.h>
#include <unistd.h>
__global__ void k(float* x) { x[threadIdx.x] += 1; }
int main() {
  float* x;
  cudaMalloc(&x, 1024);
  for (int i = 0; i < 10; i++) k<<<1, 256>>>(x);
  puts("early"); fflush(stdout); cudaDeviceSynchronize(); sleep(2);
  return cudaGetLastError();
}
"""
SLOW = """\
__global__ void spin() { for (;;) __nanosleep(1000); }
int main() { spin<<<1, 1>>>(); return cudaDeviceSynchronize(); }  // SLOW: it ends when it is cancelled
"""
WRONG = "__global__ void k(float* x) { x[0] = BUG; }\nint main() { k<<<1, 1>>>(0); }\n"
# shell commands in a program of our own: what the image has, and what its containers may do
LOOK = """\
#include <stdlib.h>
int main() {{ return system({command}); }}
"""
TOOLS = (
    "nvidia-smi --query-gpu=name,driver_version --format=csv,noheader; nvcc --version | tail -2 | head -1; "
    "ncu --version | tail -1; compute-sanitizer --version | head -1; "
    "python3 -c 'import sys, torch, triton; print(sys.version.split()[0], torch.__version__, triton.__version__)'"
)
COUNTERS = (
    "printf '__global__ void k() {}\\nint main() { k<<<1, 1>>>(); return cudaDeviceSynchronize(); }\\n' > probe.cu "
    "&& nvcc -o probe probe.cu && env -u CUDA_INJECTION64_PATH timeout 60 ncu --metrics sm__cycles_active.avg ./probe 2>&1 | tail -6"
)
PROFILED = """\
__global__ void k(float* x) { for (int i = 0; i < 64; i++) x[blockIdx.x * blockDim.x + threadIdx.x] += i; }
int main() {  // SHEET k
  float* x;
  cudaMalloc(&x, 1 << 22);
  k<<<4096, 256>>>(x);
  return cudaDeviceSynchronize();
}
"""
OUTSIDE = """\
__global__ void k(float* x) { x[1024 + threadIdx.x] = 1; }
int main() {
  float* x;
  cudaMalloc(&x, 1024);
  k<<<1, 32>>>(x);
  return cudaDeviceSynchronize();
}
"""
NETWORK = "timeout 5 bash -c '</dev/tcp/1.1.1.1/443' 2>/dev/null && echo network || echo no network"


class CheckFailedError(Exception):
    """The sentence that stands in the report."""


@dataclasses.dataclass
class Seen:
    """One run: its events with the seconds since its start."""

    events: list[tuple[float, c.Event]] = dataclasses.field(default_factory=list[tuple[float, c.Event]])

    @property
    def finished(self) -> c.Finished:
        last = self.events[-1][1]
        assert isinstance(last, c.Finished)
        return last

    def whys(self) -> str:
        return "\n".join(event.why for _, event in self.events if isinstance(event, c.Stage))

    def first(self, kind: type) -> float | None:
        return next((at for at, event in self.events if isinstance(event, kind)), None)


class Smoke:
    def __init__(self, folder: Path, options: argparse.Namespace) -> None:
        self.folder, self.options = folder, options
        self.lines: list[str] = []
        self.failed = 0
        self.began = time.monotonic()
        self.over = ""
        """Why nothing more is tried."""
        self._queue = "not asked"
        self.looking: asyncio.Task[None] | None = None
        self._steps = 0
        self.places = Places(Session(setup=RunSetup(folders=[str(folder)])), print, lambda _: None)
        asked = {"runner": "modal", "gpu": options.gpu, "trusted": True, "modal": {"idle_s": 120}}
        self.places.settings.options = asked
        if complaints := self.places.settings.configure(None):
            raise SystemExit("\n".join(complaints))

    async def step(self, name: str, work: Callable[[], Awaitable[str]], limit_s: float = LIMIT_S) -> None:
        began = time.perf_counter()
        try:
            async with asyncio.timeout(limit_s):
                good, message = True, await work()
        except CheckFailedError as error:
            good, message = False, str(error)
        except Exception as error:  # noqa: BLE001 - whatever happens there is what the report is for
            good, message = False, f"{type(error).__name__}: {modal_errors.trouble(error).message}"
        self.failed += not good
        message = message.replace(str(self.folder), "FOLDER").replace(str(Path.home()), "~")
        if "failed as they started" in message or "could not start its worker" in message:
            self.over = "containers do not start, and each is billed"
        elif time.monotonic() - self.began > 60 * MINUTES:
            self.over = f"the {MINUTES} minutes are over"
        first, *rest = message.splitlines() or [""]
        line = f"{'✓' if good else '✗'} {name:<34}{time.perf_counter() - began:7.1f} s  {first}"
        self.lines += [line, *(f"{'':{SPACED}}{more}" for more in rest)]
        print("\n".join(self.lines[-1 - len(rest) :]), flush=True)

    # -- what the steps are made of -----------------------------------------------------------

    def job(self, text: str, name: str = "smoke.cu", **fields: object) -> Job:
        path = self.folder / name
        path.write_text(text)
        self._steps += 1
        given = {"gpu": self.options.gpu, "directory": str(self.folder)} | fields
        language = "triton" if name.endswith(".py") else "cuda"
        action = given.pop("action", "run")
        return Job(f"s{self._steps}", action, language, str(path), text, **given)  # type: ignore[arg-type]

    async def run(self, job: Job) -> Seen:
        seen, began = Seen(), time.perf_counter()
        async with aclosing(self.places.rental.runner().run(job)) as events:
            async for event in events:
                seen.events.append((time.perf_counter() - began, event))
        return seen

    async def good(self, job: Job) -> Seen:
        seen = await self.run(job)
        finished = seen.finished
        if finished.outcome != "ok":
            raise CheckFailedError(
                f"{finished.outcome}: {finished.failure.message if finished.failure else ''}\n{finished.stderr}"
            )
        if finished.device is None or not modal_gpus.answers(self.options.gpu, finished.device.name):
            raise CheckFailedError(
                f"asked for {self.options.gpu}, got {finished.device and finished.device.name}"
            )
        return seen

    async def cancel(self, job: Job, state: str) -> str:
        """Cancel when a state is shown; returns how long it took."""
        events: AsyncGenerator[c.Event, None] = self.places.rental.runner().run(job)
        async for event in events:
            if isinstance(event, c.Finished):
                raise CheckFailedError(
                    f"it ended before it was {state}: {summary.one_line(event, compiled_only=False)}"
                )
            if isinstance(event, c.Stage) and state in f"{event.state}: {event.why}":
                break
        began = time.perf_counter()
        await events.aclose()
        took = time.perf_counter() - began
        if took > 2:
            raise CheckFailedError(f"cancelled only after {took:.1f} s")
        return f"cancelled in {took:.2f} s"

    # -- the steps ----------------------------------------------------------------------------

    async def reach(self) -> str:
        await self.places.look_around()  # the image has the versions of this machine's torch and Triton
        await self.places.rental.runner().pool.account.client()
        return "the token is accepted"

    async def deploy(self) -> str:
        account = self.places.rental.runner().pool.account
        await account.deploy()
        apps = [app.name for app in await account.apps() if app.present]
        if apps != [await account.name()]:
            raise CheckFailedError(f"{await account.name()} is not among the apps")
        return f"{apps[0]} is there"

    async def rates(self) -> str:
        import modal

        client = await self.places.rental.runner().pool.account.client()
        workspace = modal.Workspace.from_context(client=client)
        settings = await workspace.settings.list.aio()
        rates = await workspace.billing.rates.aio()
        charged = "\n".join(f"{name}: {dollars}" for name, dollars in sorted(rates.items()))
        return f"image builder {settings.image_builder_version}\n{charged or 'no rates'}"

    async def facts(self) -> str:
        """What a container without a GPU is like."""
        handle = await self.places.rental.runner().pool.handle(None)
        began = time.perf_counter()
        call = await handle.hello.spawn.aio(True)
        try:
            answer = unpack(await call.get.aio())
        finally:
            await call.cancel.aio()
        if "broken" in answer:
            raise CheckFailedError(f"{answer['broken']}\n{answer.get('trace', '')}")
        told = "\n".join(f"{name}: {value}" for name, value in answer["facts"].items())
        return f"answered after {time.perf_counter() - began:.1f} s, {answer['age_s'] or 0:.1f} s old\n{told}"

    async def round_trips(self) -> str:
        client = await self.places.rental.runner().pool.account.client()
        queue = await self.places.rental.runner().pool.queue()

        async def through() -> None:
            await queue.put.aio(1, partition="smoke", partition_ttl=60)
            await queue.get.aio(partition="smoke")

        return "\n".join(
            [
                await self.spread("a greeting", client.hello.aio),
                await self.spread("through the queue", through),
            ]
        )

    async def spread(self, what: str, work: Callable[[], Awaitable[object]]) -> str:
        took: list[float] = []
        for _ in range(20):
            began = time.perf_counter()
            await work()
            took.append(1e3 * (time.perf_counter() - began))
        return f"{what}: p50 {statistics.median(took):.0f} ms, p95 {sorted(took)[18]:.0f} ms"

    async def compiled(self) -> str:
        finished = (await self.run(self.job(LIVE, action="compile"))).finished
        if finished.outcome != "ok":
            raise CheckFailedError(finished.failure.message if finished.failure else finished.outcome)
        return f"nvcc {finished.toolchain.get('nvcc', 'not named')}, without a GPU"

    async def cold(self) -> str:
        seen = await self.good(self.job(LIVE))
        early = seen.first(c.Output)
        ended = seen.events[-1][0]
        device = seen.finished.device
        assert device is not None
        if early is None:
            raise CheckFailedError("what the program printed did not come as an event")
        launches = seen.finished.launches
        if not launches:
            raise CheckFailedError("no launch was recorded: CUPTI's records are missing")
        return (
            f"asked for {self.options.gpu}, NVML says {device.name}, driver {device.driver}\n"
            f"{sum(each.count for each in launches)} launches recorded, by {launches[0].timing.clock}\n"
            f"NVML: {seen.finished.telemetry}\n"
            f"first output {ended - early:.1f} s before the end (the program waits 2 s)\n"
            f"{summary.one_line(seen.finished, compiled_only=False)}"
        )

    async def warm(self) -> str:
        seen = await self.good(self.job(LIVE + "// again\n"))
        if "waiting" in seen.whys():
            raise CheckFailedError("it waited for a GPU that should have been warm")
        there = next(
            at
            for at, event in seen.events
            if isinstance(event, c.Stage) and "container is there" in event.why
        )
        return f"the container answered after {1e3 * there:.0f} ms{_cost(seen.finished)}"

    async def triton(self) -> str:
        text = (ROOT / "examples" / "softmax.py").read_text()
        took = [(await self.good(self.job(text, "softmax.py"))).events[-1][0] for _ in range(2)]
        seen = await self.good(self.job(text, "softmax.py"))
        return (
            f"{took[0]:.1f} s, then {took[1]:.1f} s; {summary.one_line(seen.finished, compiled_only=False)}"
        )

    async def mistake(self) -> str:
        finished = (await self.run(self.job(WRONG))).finished
        if finished.outcome != "compile error":
            raise CheckFailedError(f"outcome {finished.outcome}")
        return finished.failure.message if finished.failure else ""

    async def profiled(self) -> str:
        """Whatever it says: not every workspace may read counters."""
        finished = (await self.good(self.job(PROFILED, "profiled.cu", action="profile"))).finished
        if not finished.profiles:
            raise CheckFailedError("it has no profile")
        profile = finished.profiles[0]
        if profile.tier == "times":
            return f"times only: {profile.why}"
        whole = {
            name: metric.value for name, metric in profile.metrics.items() if metric.value == metric.value
        }
        if not whole:
            raise CheckFailedError("every counter is missing or not a number")
        name = next(iter(whole))
        return (
            f"by {profile.tool or 'a tool that is not named'}: {len(whole)} counters, {name} {whole[name]:g}"
        )

    async def sanitized(self) -> str:
        job = self.job(OUTSIDE, "out_of_bounds_write.cu", action="sanitize", tools=("memcheck",))
        finished = (await self.run(job)).finished
        if finished.outcome != "runtime error" or not finished.problems:
            raise CheckFailedError(
                f"it did not find a write out of bounds: {finished.outcome} {finished.failure}"
            )
        return f"compute-sanitizer {finished.toolchain.get('compute-sanitizer', '')}: {finished.problems[0].message}"

    async def cancel_running(self) -> str:
        """Three times: Modal tells a container of a cancelling at its heartbeat."""
        told: list[str] = []
        for _ in range(3):
            told.append(await self.cancel(self.job(SLOW), "running"))
            if not self.places.rental.sessions():
                raise CheckFailedError(f"{told[-1]}, but the container is gone")
        return "\n".join(f"{each}, the container is still warm" for each in told)

    async def preempted(self) -> str:
        """The container is stopped in mid-run, as Modal stops one that it preempts; then the run is cancelled."""
        events = self.places.rental.runner().run(self.job(SLOW))
        stopped = ""
        try:
            async for event in events:
                if isinstance(event, c.Finished):
                    raise CheckFailedError(f"it ended: {summary.one_line(event, compiled_only=False)}")
                if not isinstance(event, c.Stage):
                    continue
                if "was lost" in event.why:
                    return f"{stopped} was stopped, and the run began again"
                if event.state == "running" and not stopped:
                    stopped = next(iter(session.container for session in self.places.rental.sessions()))
                    await self.modal("container", "stop", "--yes", stopped)
            raise CheckFailedError("its events ended")
        finally:
            await events.aclose()

    async def notebook(self) -> str:
        rented = Rented(self.options.gpu, 5.0, self.folder, None, print)
        try:
            began = time.perf_counter()
            kernel = await rented.start("0" * 32, "hmac-sha256")
            async with aclosing(kernel.records()) as records:
                told: list[str] = []
                async for name, parts in records:
                    if kernel.pid is not None:
                        break
                    told.append(parts[0].decode(errors="replace") if name == "notice" else name)
                else:
                    raise CheckFailedError(f"its kernel was not started: {told} {await kernel.ended}")
            return f"a kernel was there after {time.perf_counter() - began:.1f} s\n{await rented.cost()}"
        finally:
            await rented.close(keep=False)

    async def containers(self) -> list[str]:
        """Those of our app that run, by Modal's own list."""
        name = await self.places.rental.runner().pool.account.name()
        rows = json.loads(await self.modal("container", "list", "--json"))
        mine = [row for row in rows if name in map(str, row.values())]
        return [next(str(value) for value in row.values() if str(value).startswith("ta-")) for row in mine]

    async def modal(self, *arguments: str) -> str:
        """Modal's own command line."""
        done = await asyncio.to_thread(
            subprocess.run,
            [sys.executable, "-m", "modal", *arguments],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise CheckFailedError(
                f"modal {' '.join(arguments)}: {done.stderr.strip() or done.stdout.strip()}"
            )
        return done.stdout

    async def expiring(self) -> str:
        """Make a queue without a name, of which Modal hears nothing more, and look for it each minute, beside all else."""
        import modal

        client = await self.places.rental.runner().pool.account.client()
        context = modal.Queue.ephemeral(client=client, _heartbeat_sleep=86_400)
        queue = await context.__aenter__()
        began = time.monotonic()

        async def look() -> None:
            try:
                while True:
                    await asyncio.sleep(EXPIRY_S)
                    await queue.len.aio()
                    self._queue = f"still there after {time.monotonic() - began:.0f} s"
            except Exception as error:  # noqa: BLE001 - that it is gone is what is looked for
                self._queue = f"gone after {time.monotonic() - began:.0f} s: {error}"

        self._queue = f"not looked at within {EXPIRY_S:g} s"
        self.looking = asyncio.create_task(look())
        return "made"

    async def expired(self) -> str:
        if self.looking:
            self.looking.cancel()
        return self._queue

    async def names(self) -> str:
        """What NVML calls each of the GPUs."""
        lines: list[str] = []
        for gpu in filter(None, self.options.gpus.split(",")):
            finished = (await self.run(self.job(LIVE, gpu=gpu))).finished
            lines.append(
                f"{gpu}: {finished.device.name if finished.device else finished.failure and finished.failure.message}"
            )
            await self.places.rental.runner().release(gpu)
        return "\n".join(lines) or "none asked for (--gpus)"

    async def cancel_queued(self) -> str:
        return await self.cancel(self.job(SLOW, gpu=self.options.other), "on Modal since")

    async def tools(self) -> str:
        """Against the versions that the image is made of."""
        told = (await self.good(self.job(LOOK.format(command=_c(TOOLS))))).finished.stdout.strip()
        spec: ImageSpec = self.places.rental.runner().options.spec
        wanted = (spec.nsight_compute, f"{spec.python}.", spec.torch, spec.triton)
        if lacking := [each for each in wanted if each not in told]:
            raise CheckFailedError(f"it does not have {', '.join(lacking)}\n{told}")
        return told

    async def counters(self) -> str:
        """Whatever it says: not every workspace may read counters."""
        finished = (await self.run(self.job(LOOK.format(command=_c(COUNTERS))))).finished
        return finished.stdout.strip() or finished.outcome

    async def stranger(self) -> str:
        job = self.job(LOOK.format(command=_c(NETWORK)), restricted=True)
        seen = await self.good(job)
        if seen.finished.stdout.strip() == "network":
            raise CheckFailedError("it reached the network")
        return f"ran in a container of its own: {seen.finished.stdout.strip()}"

    async def stranger_larger(self) -> str:
        """Send a text of more than 8 KiB. Modal's client would put it in the blob store, which a container without network cannot
        reach.
        """
        letters = "".join(random.choices("abcdefghijklmnopqrstuvwxyz0123456789", k=40_000))
        text = LOOK.format(command=_c(NETWORK)) + f"// {letters}\n"
        seen = await self.good(self.job(text, restricted=True))
        return f"{len(text) / 1024:.0f} KiB came in and went out: {seen.finished.stdout.strip()}"

    async def stranger_too_large(self) -> str:
        letters = "".join(random.choices("abcdefghijklmnopqrstuvwxyz0123456789", k=3_000_000))
        finished = (await self.run(self.job(LIVE + f"// {letters}\n", restricted=True))).finished
        if not finished.failure or "a restricted run may send" not in finished.failure.message:
            raise CheckFailedError(f"it was not refused: {finished.outcome}")
        return f"refused: {finished.failure.message}"

    async def large(self) -> str:
        """Above 2 MiB, where Modal's client uses the blob store for every call."""
        letters = "".join(random.choices("abcdefghijklmnopqrstuvwxyz0123456789", k=3_000_000))
        seen = await self.good(self.job(LIVE + f"// {letters}\n"))
        return f"3 MB came in after {seen.first(c.Built) or 0:.1f} s{_cost(seen.finished)}"

    async def released(self) -> str:
        """By our books and by Modal's own list. What else runs has compiled, or was asked for and cancelled."""
        mine = {session.container for session in self.places.rental.sessions()}
        if not await self.places.rental.runner().release(self.options.gpu):
            raise CheckFailedError("Modal rejected the request, so it stops after its idle time")
        if self.places.rental.sessions():
            raise CheckFailedError("a container is still reported as warm")
        left = await self.containers()
        for _ in range(10):
            if not mine & set(left):
                break
            await asyncio.sleep(1)
            left = await self.containers()
        if mine & set(left):
            raise CheckFailedError(
                f"by Modal's own list it still runs after 10 s: {', '.join(mine & set(left))}"
            )
        for each in left:
            await self.modal("container", "stop", "--yes", each)
        others = f"; {len(left)} others, which ran no job, were stopped" if left else ""
        return f"no {self.options.gpu} is rented, by Modal's own list too{others}"

    async def kept(self) -> str:
        """The program of the cold run, in a new container: its build is on the volume."""
        seen = await self.good(self.job(LIVE))
        return f"a new container; building took {seen.finished.build_s or 0:.1f} s{_cost(seen.finished)}"

    async def month(self) -> str:
        sessions = [self.places.rental.session_text(session) for session in self.places.rental.sessions()]
        return "\n".join(sessions) or "no GPU is warm"

    async def stop(self) -> str:
        account = self.places.rental.runner().pool.account
        for app in await account.apps():
            if app.present:
                await account.stop(app)
        if any(app.present for app in await account.apps()):
            raise CheckFailedError("it is still listed")
        if left := await self.containers():
            raise CheckFailedError(f"by Modal's own list these still run: {', '.join(left)}")
        return "the app and its containers are gone, by Modal's own list too"


def _c(text: str) -> str:
    """As a string of C's."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _cost(finished: c.Finished) -> str:
    cost = finished.cost
    if cost is None or cost.usd is None:
        return "; its cost is not known"
    return f"; {cost.seconds:.1f} s, ${cost.usd:.4f} ({cost.rates})"


async def smoke(run: Smoke) -> None:
    steps: list[tuple[str, Callable[[], Awaitable[str]]]] = [
        ("the account", run.reach),
        ("image builder and rates, as Modal names them", run.rates),
        ("a queue without a name is made", run.expiring),
        ("round trips", run.round_trips),
        ("the app is put there", run.deploy),
        ("a container without a GPU", run.facts),
        ("compiled without a GPU", run.compiled),
        ("CUDA, cold; live output; the GPU", run.cold),
        ("CUDA, warm", run.warm),
        ("Triton, cold and warm", run.triton),
        ("a compile error", run.mistake),
        ("what the image has", run.tools),
        ("a profile", run.profiled),
        ("hardware counters (may be refused)", run.counters),
        ("compute-sanitizer", run.sanitized),
        ("cancelled while it runs, three times", run.cancel_running),
        ("its container is taken away", run.preempted),
        ("cancelled while it waits for a GPU", run.cancel_queued),
        ("3 MB sent", run.large),
        ("code that is not mine", run.stranger),
        ("… of 40 KB", run.stranger_larger),
        ("… of 3 MB", run.stranger_too_large),
        ("what is warm and what it cost", run.month),
        ("released", run.released),
        ("builds outlive their container", run.kept),
        ("a notebook's kernel", run.notebook),
        ("NVML's names", run.names),
        ("the queue without a name", run.expired),
    ]
    try:
        for name, work in steps:
            if run.over:
                run.lines.append(f"· {name:<34}{'':12}not tried: {run.over}")
                continue
            await run.step(name, work, IMAGE_S if work == run.deploy else LIMIT_S)
            if work in (run.reach, run.deploy) and run.failed:
                run.over = "nothing can work without it"
    finally:
        if run.looking:
            run.looking.cancel()
        await run.places.close()
        if not run.options.keep and run.over != "nothing can work without it":
            await asyncio.shield(run.step("stopped", run.stop))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--gpu", default="H100", help="as in the setting orbit.gpu")
    parser.add_argument("--other", default="B200", help="another, asked for and cancelled before it is there")
    parser.add_argument("--yes", action="store_true", help="do not ask")
    parser.add_argument("--keep", action="store_true", help="leave the app there")
    parser.add_argument(
        "--gpus", default="", help="GPUs whose names by NVML are asked too, about a cent each: T4,L4"
    )
    parser.add_argument("--out", type=Path, default=Path("modal-smoke.txt"), help="the file of the report")
    options = parser.parse_args()
    price = Rates().of(options.gpu)
    costs = f"about ${price.usd_per_s * 60 * MINUTES:.2f} ({price.rates})" if price else "an unknown amount"
    print(f"This rents one {options.gpu} on your Modal account for some minutes: at most {MINUTES}, {costs}.")
    if not options.yes and input("Go on? [y/N] ").strip().lower() not in ("y", "yes"):
        sys.exit(0)
    with tempfile.TemporaryDirectory(prefix="orbit-smoke-") as name:
        run = Smoke(Path(name), options)
        try:
            asyncio.run(smoke(run))
        finally:
            versions = ", ".join(
                f"{each} {importlib.metadata.version(each)}" for each in ("modal", "grpclib")
            )
            head = f"scripts/modal_smoke.py, {dt.datetime.now(dt.UTC):%Y-%m-%d %H:%M} UTC, {options.gpu}; {versions}"
            options.out.write_text("\n".join([head, "", *run.lines, ""]), encoding="utf-8")
    print(f"{run.failed} failed" if run.failed else "all of it works")
    print(f"the report is {options.out}")
    sys.exit(run.failed)


if __name__ == "__main__":
    main()
