"""Many jobs from many clients of one shared worker, with clients and worker killed in between: what is lost, double, wrong or left.

    python -P bench/soak.py [--jobs 2000] [--clients 8] [--kills 40] [--gpu] [--seed 1] [--within SECONDS]
    python -P bench/soak.py --gpu --kills 0 --clients 8 --jobs 200       what clients do to each other's medians

Each client is a process that hands its jobs to the worker one after another and says of each how it ended. Without --gpu
a job compiles one of 40 kernels, each of which has an amount of shared memory of its own: an answer to another job is noticed.
With --gpu it runs a launch spec whose kernel spins for a length of the client's own, by the GPU's clock; each length is first
measured by a client alone. A client that is killed is started again and goes on with its next job; a job whose worker was
killed has to say so ("infrastructure"), and is handed in again.

After --within seconds no job is begun any more. Ends with status 1 where a job is missing, double or wrong, or anything is left running.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import dataclasses
import json
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import aclosing
from pathlib import Path
from typing import Any

import psutil

sys.path.insert(0, str(Path(__file__).parent))
import spec_job

from orbit_lsp.runners.local import LocalOptions, LocalRunner
from orbit_remote.common import messages as c
from orbit_remote.common.requests import Job
from orbit_remote.worker.lease import EVERYBODYS

LIMIT_S = 180.0
"""A job that has not ended by then is missing."""
KERNELS = 40
SPUN_US = (50, 400)
"""The shortest and the longest of the clients' kernels."""
COMPILED = (
    "__global__ void k(float* x) {{ __shared__ char s[{size}]; s[threadIdx.x] = x[0]; x[1] = s[0]; }}\n"
)
SPUN = """\
// orbit: ns = {ns}; spun = empty(1)
// orbit: launch spin<<<1, 1>>>(spun, ns)
__global__ void spin(float* spun, int ns) {{
  unsigned long long begin, now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(begin));
  do asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now)); while (now - begin < ns);
  spun[0] = now - begin;
}}
"""


def length_ns(client: int, clients: int) -> int:
    low, high = SPUN_US
    return round(1000 * (low + (high - low) * client / max(1, clients - 1)))


# -- a client ---------------------------------------------------------------------------------------


async def one(runner: LocalRunner, job: Job) -> dict[str, Any]:
    """How a job ended, and when it waited for the GPU and had it (Unix time)."""
    stages: list[tuple[str, float]] = []
    finished: list[c.Finished] = []
    began = time.time()
    try:
        async with asyncio.timeout(LIMIT_S), aclosing(runner.run(job)) as events:
            async for event in events:
                if isinstance(event, c.Stage):
                    stages.append((event.state, event.at))
                elif isinstance(event, c.Finished):
                    finished.append(event)
    except TimeoutError:
        return {"outcome": "missing"}
    last = finished[-1] if finished else None
    waits = [at for state, at in stages if state == "queued"]
    has = [at for state, at in stages if state in ("starting", "running")]
    return {
        "outcome": last.outcome if last else "missing",
        "ends": len(finished),
        "message": last.failure.message if last and last.failure else "",
        "shared": [resources.static_shared for resources in last.resources] if last else [],
        "median": last.launches[0].timing.median if last and last.launches else None,
        "began": began,
        "waited": waits[-1] if waits else None,
        "had": has[0] if has else None,
    }


async def client(options: argparse.Namespace) -> None:
    """The jobs whose numbers are given, one after another; a line of JSON for each."""
    runner = LocalRunner(LocalOptions(cache=str(options.folder / "cache"), client=f"client {options.client}"))
    try:
        for number in options.numbers:
            if (options.folder / "over").exists():
                return
            print(json.dumps({"begins": number}), flush=True)
            if options.gpu:
                path = options.folder / f"spin{options.client}.cu"
                job = dataclasses.replace(spec_job.job(path, "spin"), run=f"job {number}")
            else:
                size = 32 * (number % KERNELS + 1)
                path = options.folder / f"k{number % KERNELS}.cu"
                job = Job(
                    f"job {number}",
                    "compile",
                    "cuda",
                    str(path),
                    COMPILED.format(size=size),
                    architecture="sm_90",
                )
            answer = await one(runner, job)
            print(json.dumps({"number": number} | answer), flush=True)
    finally:
        await runner.close()


# -- all of them ------------------------------------------------------------------------------------


class Soak:
    def __init__(self, options: argparse.Namespace, folder: Path) -> None:
        self.options = options
        self.folder = folder
        self.random = random.Random(options.seed)
        self.left = {at: list(range(at, options.jobs, options.clients)) for at in range(options.clients)}
        self.done: dict[int, dict[str, Any]] = {}
        self.processes: dict[int, asyncio.subprocess.Process] = {}
        self.answers = 0
        self.more = asyncio.Event()
        self.begun: set[int] = set()
        self.wrong: list[str] = []
        self.missing: list[int] = []
        self.double: list[int] = []
        self.said: dict[str, int] = {}
        self.killed = {"clients": 0, "workers": 0}

    async def run(self) -> None:
        killing = asyncio.create_task(self.kill())
        over = asyncio.get_running_loop().call_later(self.options.within, (self.folder / "over").touch)
        await asyncio.gather(*map(self.follow, self.left))
        killing.cancel()
        over.cancel()

    async def follow(self, at: int) -> None:
        """One client, started again for as long as it has jobs."""
        while self.left[at] and not (self.folder / "over").exists():
            process = await started(self.options, self.folder, at, self.left[at])
            self.processes[at] = process
            assert process.stdout
            async for line in process.stdout:
                answer = json.loads(line)
                if "begins" in answer:
                    self.begun.add(answer["begins"])
                else:
                    self.take(at, answer)
            await process.wait()

    def take(self, at: int, answer: dict[str, Any]) -> None:
        self.answers += 1
        self.more.set()
        if self.answers % 50 == 0:
            print(f"  {self.answers} answers", flush=True)
        number, outcome = answer["number"], answer["outcome"]
        if outcome == "infrastructure":  # its worker was killed: it says so, and is handed in again
            self.said[answer["message"]] = self.said.get(answer["message"], 0) + 1
            return
        if number in self.done:
            self.double.append(number)
            return
        if number in self.left[at]:
            self.left[at].remove(number)
        self.done[number] = answer
        if outcome == "missing":
            self.missing.append(number)
        elif answer["ends"] != 1:
            self.double.append(number)
        elif outcome != "ok" or (not self.options.gpu and answer["shared"] != [32 * (number % KERNELS + 1)]):
            self.wrong.append(f"job {number}: {outcome}, {answer['message'] or answer['shared']}")

    async def kill(self) -> None:
        """A client or the worker, each time that so many more jobs have been answered."""
        kills = self.options.kills
        for number in range(1, kills + 1):
            while self.answers < number * self.options.jobs / (kills + 1):
                self.more.clear()
                await self.more.wait()
            await asyncio.sleep(self.random.uniform(0, 0.05))  # anywhere in a job
            if self.random.random() < 0.3:
                for worker in ours(self.folder):
                    if "--listen" in worker.info["cmdline"]:
                        with contextlib.suppress(psutil.NoSuchProcess):
                            worker.send_signal(signal.SIGKILL)
                            self.killed["workers"] += 1
            else:
                process = self.random.choice(list(self.processes.values()))
                if process.returncode is None:
                    process.kill()
                    self.killed["clients"] += 1


async def started(
    options: argparse.Namespace, folder: Path, at: int, numbers: list[int]
) -> asyncio.subprocess.Process:
    command = [
        sys.executable,
        "-P",
        __file__,
        "--client",
        str(at),
        "--folder",
        str(folder),
        "--clients",
        str(options.clients),
    ]
    command += ["--gpu"] if options.gpu else []
    return await asyncio.create_subprocess_exec(
        *command,
        "--numbers",
        *map(str, numbers),
        stdout=subprocess.PIPE,
        env=variables(folder),
        limit=1 << 24,
    )


def variables(folder: Path) -> dict[str, str]:
    return os.environ | {
        "XDG_RUNTIME_DIR": str(folder / "run"),
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
    }


def ours(folder: Path) -> list[psutil.Process]:
    """Every process that was started by a client or a worker of this soak, by its environment."""
    processes: list[psutil.Process] = []
    for process in psutil.process_iter(["cmdline"]):
        with contextlib.suppress(psutil.Error):
            if process.pid != os.getpid() and process.environ().get("XDG_RUNTIME_DIR") == str(folder / "run"):
                processes.append(process)
    return processes


async def alone(options: argparse.Namespace, folder: Path) -> dict[int, float]:
    """The median of each client's kernel where nobody else runs: of three jobs each."""
    medians: dict[int, float] = {}
    for at in range(options.clients):
        process = await started(options, folder, at, [-1, -2, -3])
        out, _ = await process.communicate()
        answers = [answer for answer in map(json.loads, out.splitlines()) if "median" in answer]
        medians[at] = statistics.median(answer["median"] for answer in answers)
    return medians


def overtaken(answers: list[dict[str, Any]]) -> int:
    """Jobs that began to wait clearly before another one, and had the GPU after it."""
    known = [
        (answer["waited"], answer["had"])
        for answer in answers
        if answer["waited"] and answer["had"] and answer["waited"] < answer["had"]
    ]
    clearly = 0.1
    return sum(a[0] + clearly < b[0] and a[1] > b[1] for a in known for b in known)


async def main(options: argparse.Namespace) -> int:
    with tempfile.TemporaryDirectory(prefix="orbit-soak-") as name:
        folder = Path(name)
        (folder / "run").mkdir(mode=0o700)
        for at in range(options.clients):
            (folder / f"spin{at}.cu").write_text(SPUN.format(ns=length_ns(at, options.clients)))
        by_itself = await alone(options, folder) if options.gpu else {}
        soak, began = Soak(options, folder), time.monotonic()
        await soak.run()
        seconds = time.monotonic() - began
        stopped = await asyncio.create_subprocess_exec(
            sys.executable,
            "-P",
            "-m",
            "orbit_lsp",
            "stop",
            "--yes",
            stdout=subprocess.DEVNULL,
            env=variables(folder),
        )
        await stopped.wait()
        _, running = psutil.wait_procs(ours(folder), timeout=10)
        left = [" ".join(process.info["cmdline"] or ["?"]) for process in running]
        tickets = (
            [path.name for path in EVERYBODYS.glob("*.[01].*")] if EVERYBODYS.is_dir() and options.gpu else []
        )
        # the last job of a client that was killed when the time was over is not handed in again
        lost = len(soak.begun - set(soak.done)) if not (folder / "over").exists() else len(soak.missing)
        print(
            f"{len(soak.done)} of {options.jobs} jobs of {options.clients} clients in {seconds:.0f} s; killed: {soak.killed['clients']} clients, {soak.killed['workers']} workers"
        )
        print(
            f"lost {lost}, missing {len(soak.missing)}, double {len(soak.double)}, wrong {len(soak.wrong)}, left running {len(left)}, left tickets {len(tickets)}"
        )
        for message, count in sorted(soak.said.items()):
            print(f"  {count} x said: {message}")
        for line in [*soak.wrong[:5], *left[:5], *tickets[:5]]:
            print(f"  {line}")
        far = 0.0
        for at, median in by_itself.items():
            together = statistics.median(
                soak.done[n]["median"] for n in range(at, options.jobs, options.clients) if n in soak.done
            )
            far = max(far, abs(together / median - 1))
            print(
                f"  client {at}: {length_ns(at, options.clients) / 1000:.0f} us spun; alone {median / 1000:.2f} us, with the others {together / 1000:.2f} us, {together / median - 1:+.2%}"
            )
        if options.gpu:
            print(f"farthest from alone {far:.2%}; overtaken {overtaken(list(soak.done.values()))}")
        return int(bool(lost or soak.missing or soak.double or soak.wrong or left))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--jobs", type=int, default=2000)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--kills", type=int, default=40)
    parser.add_argument("--gpu", action="store_true")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--within", type=float, default=1e6, help="seconds in which jobs are begun")
    parser.add_argument("--client", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--numbers", type=int, nargs="*", default=[], help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.client is not None:
        asyncio.run(client(given))
    else:
        if not given.gpu and shutil.which("nvcc") is None:
            sys.exit("nvcc is not on PATH")
        sys.exit(asyncio.run(main(given)))
