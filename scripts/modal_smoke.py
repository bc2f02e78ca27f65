"""Everything that orbit-lsp does on Modal, once, on a real account, with a report: what works, what not, how long.

    python -P scripts/modal_smoke.py --gpu H100 [--other T4] [--yes] [--out FILE] [--keep]

Says what it will cost at most and asks, unless --yes. Rents one GPU at a time, for minutes; at its end, also after
Ctrl-C, it stops the app that it has put there, and with it every container (--keep leaves it). Needs a token
(`python -m modal token new`). Exit code: how many steps failed.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import datetime as dt
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "remote"))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from orbit_lsp.runners.modal import errors as modal_errors
from orbit_lsp.runners.modal.rates import Rates
from orbit_lsp.runs import run_environment, summary
from orbit_lsp.state import modal_gpus
from orbit_lsp.state.placement import Setup
from orbit_lsp.state.session import Session
from orbit_remote.common import messages as c

ROOT = Path(__file__).resolve().parent.parent

MINUTES = 15
"""Of one GPU: more than the steps have ever needed; what they cost at most is said for so long."""
LIMIT_S = 900.0  # of a step; a first image takes minutes

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
NETWORK = "timeout 5 bash -c '</dev/tcp/1.1.1.1/443' 2>/dev/null && echo network || echo no network"


class Failed(Exception):  # noqa: N818 - of a step, not of this script
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
        self._steps = 0
        self.environment = run_environment.Environment(
            Session(setup=Setup(folders=[str(folder)])), print, lambda _: None
        )
        asked = {"runner": "modal", "gpu": options.gpu, "trusted": True, "modal": {"idle_s": 120}}
        self.environment.options = asked
        if complaints := self.environment.configure(None):
            raise SystemExit("\n".join(complaints))

    async def step(self, name: str, work: Callable[[], Awaitable[str]]) -> None:
        began = time.perf_counter()
        try:
            async with asyncio.timeout(LIMIT_S):
                good, message = True, await work()
        except Failed as error:
            good, message = False, str(error)
        except Exception as error:  # noqa: BLE001 - whatever happens there is what the report is for
            good, message = False, f"{type(error).__name__}: {modal_errors.trouble(error).message}"
        self.failed += not good
        first, *rest = message.splitlines() or [""]
        line = f"{'✓' if good else '✗'} {name:<34}{time.perf_counter() - began:7.1f} s  {first}"
        self.lines += [line, *(f"{'':46}{more}" for more in rest)]
        print("\n".join(self.lines[-1 - len(rest) :]), flush=True)

    # -- what the steps are made of -----------------------------------------------------------

    def job(self, text: str, name: str = "smoke.cu", **fields: object) -> c.Job:
        path = self.folder / name
        path.write_text(text)
        self._steps += 1
        given = {"gpu": self.options.gpu, "directory": str(self.folder)} | fields
        language = "triton" if name.endswith(".py") else "cuda"
        return c.Job(f"s{self._steps}", "run", language, str(path), text, **given)  # type: ignore[arg-type]

    async def run(self, job: c.Job) -> Seen:
        seen, began = Seen(), time.perf_counter()
        async with aclosing(self.environment.modal().run(job)) as events:
            async for event in events:
                seen.events.append((time.perf_counter() - began, event))
        return seen

    async def good(self, job: c.Job) -> Seen:
        seen = await self.run(job)
        finished = seen.finished
        if finished.outcome != "ok":
            raise Failed(
                f"{finished.outcome}: {finished.failure.message if finished.failure else ''}\n{finished.stderr}"
            )
        if finished.device is None or not modal_gpus.answers(self.options.gpu, finished.device.name):
            raise Failed(f"asked for {self.options.gpu}, got {finished.device and finished.device.name}")
        return seen

    async def cancel(self, job: c.Job, state: str) -> str:
        """Cancel when a state is shown; returns how long it took."""
        events: AsyncGenerator[c.Event, None] = self.environment.modal().run(job)
        async for event in events:
            if isinstance(event, c.Finished):
                raise Failed(
                    f"it ended before it was {state}: {summary.one_line(event, compiled_only=False)}"
                )
            if isinstance(event, c.Stage) and state in f"{event.state}: {event.why}":
                break
        began = time.perf_counter()
        await events.aclose()
        took = time.perf_counter() - began
        if took > 2:
            raise Failed(f"cancelled only after {took:.1f} s")
        return f"cancelled in {took:.2f} s"

    # -- the steps ----------------------------------------------------------------------------

    async def reach(self) -> str:
        await self.environment.look_around()  # the image has the versions of this machine's torch and Triton
        await self.environment.modal().pool.account.client()
        return "the token is accepted"

    async def deploy(self) -> str:
        account = self.environment.modal().pool.account
        await account.deploy()
        apps = [app.name for app in await account.apps() if app.present]
        if apps != [await account.name()]:
            raise Failed(f"{await account.name()} is not among the apps")
        return f"{apps[0]} is there"

    async def cold(self) -> str:
        seen = await self.good(self.job(LIVE))
        early = seen.first(c.Output)
        ended = seen.events[-1][0]
        device = seen.finished.device
        assert device is not None
        if early is None:
            raise Failed("what the program printed did not come as an event")
        return (
            f"asked for {self.options.gpu}, NVML says {device.name}, driver {device.driver}\n"
            f"first output {ended - early:.1f} s before the end (the program waits 2 s)\n"
            f"{summary.one_line(seen.finished, compiled_only=False)}"
        )

    async def warm(self) -> str:
        seen = await self.good(self.job(LIVE + "// again\n"))
        if "waiting" in seen.whys():
            raise Failed("it waited for a GPU that should have been warm")
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
            raise Failed(f"outcome {finished.outcome}")
        return finished.failure.message if finished.failure else ""

    async def cancel_running(self) -> str:
        message = await self.cancel(self.job(SLOW), "running")
        if not self.environment.sessions():
            raise Failed(f"{message}, but the container is gone")
        return f"{message}, the container is still warm"

    async def cancel_queued(self) -> str:
        return await self.cancel(self.job(SLOW, gpu=self.options.other), "on Modal since")

    async def tools(self) -> str:
        return (await self.good(self.job(LOOK.format(command=_c(TOOLS))))).finished.stdout.strip()

    async def counters(self) -> str:
        """Whatever it says: not every workspace may read counters."""
        finished = (await self.run(self.job(LOOK.format(command=_c(COUNTERS))))).finished
        return finished.stdout.strip() or finished.outcome

    async def stranger(self) -> str:
        job = self.job(LOOK.format(command=_c(NETWORK)), restricted=True)
        seen = await self.good(job)
        if seen.finished.stdout.strip() == "network":
            raise Failed("it reached the network")
        return f"ran in a container of its own: {seen.finished.stdout.strip()}"

    async def released(self) -> str:
        if not await self.environment.modal().release(self.options.gpu):
            raise Failed("Modal rejected the request, so it stops after its idle time")
        if self.environment.sessions():
            raise Failed("a container is still reported as warm")
        return "nothing is rented"

    async def kept(self) -> str:
        """The program of the cold run, in a new container: its build is on the volume."""
        seen = await self.good(self.job(LIVE))
        return f"a new container; building took {seen.finished.build_s or 0:.1f} s{_cost(seen.finished)}"

    async def month(self) -> str:
        sessions = [self.environment.session_text(session) for session in self.environment.sessions()]
        return "\n".join(sessions) or "no GPU is warm"

    async def stop(self) -> str:
        account = self.environment.modal().pool.account
        for app in await account.apps():
            if app.present:
                await account.stop(app)
        if any(app.present for app in await account.apps()):
            raise Failed("it is still listed")
        return "the app and its containers are gone"


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
        ("the app is put there", run.deploy),
        ("CUDA, cold; live output; the GPU", run.cold),
        ("CUDA, warm", run.warm),
        ("Triton, cold and warm", run.triton),
        ("a compile error", run.mistake),
        ("cancelled while it runs", run.cancel_running),
        ("cancelled while it waits for a GPU", run.cancel_queued),
        ("what the image has", run.tools),
        ("hardware counters (may be refused)", run.counters),
        ("code that is not mine", run.stranger),
        ("what is warm and what it cost", run.month),
        ("released", run.released),
        ("builds outlive their container", run.kept),
    ]
    try:
        for name, work in steps:
            await run.step(name, work)
            if work == run.deploy and run.failed:
                break  # nothing below can work
    finally:
        await run.environment.close()
        if not run.options.keep:
            await asyncio.shield(run.step("stopped", run.stop))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--gpu", default="H100", help="as in the setting orbit.gpu")
    parser.add_argument("--other", default="B200", help="another, asked for and cancelled before it is there")
    parser.add_argument("--yes", action="store_true", help="do not ask")
    parser.add_argument("--keep", action="store_true", help="leave the app there")
    parser.add_argument("--out", type=Path, help="a file for the report")
    options = parser.parse_args()
    price = Rates().of(options.gpu)
    costs = f"about ${price.usd_per_s * 60 * MINUTES:.2f} ({price.rates})" if price else "an unknown amount"
    print(f"This rents one {options.gpu} on your Modal account for some minutes: at most {MINUTES}, {costs}.")
    if not options.yes and input("Go on? [y/N] ").strip().lower() not in ("y", "yes"):
        sys.exit(0)
    with tempfile.TemporaryDirectory(prefix="orbit-smoke-") as name:
        run = Smoke(Path(name), options)
        asyncio.run(smoke(run))
    print(f"{run.failed} failed" if run.failed else "all of it works")
    if options.out:
        head = f"scripts/modal_smoke.py, {dt.datetime.now(dt.UTC):%Y-%m-%d %H:%M} UTC, {options.gpu}"
        options.out.write_text("\n".join([head, "", *run.lines, ""]), encoding="utf-8")
    sys.exit(run.failed)


if __name__ == "__main__":
    main()
