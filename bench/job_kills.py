"""Jobs of `orbit-lsp api` from many clients, with candidates, workers and the server killed in between: lost, doubled, wrong, left.

    python -P bench/job_kills.py [--jobs 10000] [--clients 8] [--kills 200] [--gpu | --recorded [--ray]] [--seed 1] [--within SECONDS]

Clients hand in their jobs over HTTP with a key each, and follow them by long polls. A client whose server is gone asks again until the
next one is there; a job that ended as infrastructure is handed in again with its key. Without --gpu a job compiles one of a few kernels,
each with an amount of shared memory of its own, so that the answer to another job is noticed; a candidate is then a process of the
compiler. With --gpu a job runs a launch spec whose kernel spins for a time of its own by the GPU's clock; a candidate is the process
that runs it. With --recorded the tests' stand-in for the worker answers at once, so that there are many jobs: what is tried then
is the server and its record; there are no candidates. With --ray the places are those of a Ray cluster of two nodes on this machine,
whose GPUs are declared, and its actors are killed too. After --within seconds no job is begun any more. Ends with status 1 where
anything is lost, doubled, wrong or left.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "remote"))
sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parent))

import httpx2
import psutil
from soak import COMPILED, SPUN

from orbit_lsp.queue.job_store import JobStore

KERNELS, RENEWED = 8, 400
"""So many kernels, and new ones after so many jobs: the other jobs find theirs built."""
GONE_S = 30.0
"""How long everything has to end after the server was told to."""
FEW = "// orbit: iterations 20\n"
"""What is tried is not how long a kernel takes."""
MARK = "ORBIT_JOB_KILLS"
RECORDED = """\
// orbit: n = 1 << 20; x = randn(n); y = empty(n)
// orbit: launch copies<<<(n + 255) / 256, 256>>>(y, x, n)
// orbit: expect y == x
__global__ void copies(float* y, const float* x, int n) {{ // {word}
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i];
}}
"""
WORDS = {"PLAIN": 1.0, "NOISE": 0.996, "FAST": 0.93}
"""What a text says, and the share of the recorded time that the stand-in answers."""
STAND_IN = Path(__file__).parents[1] / "tests" / "e2e" / "recorded_worker.py"


def sizes(number: int) -> tuple[int, int]:
    """Bytes of shared memory, and nanoseconds, of a job's kernel."""
    kernel = number % KERNELS + KERNELS * (number // RENEWED)
    return 256 + 16 * kernel, 50_000 + 10_000 * (kernel % 40)


def word_of(number: int) -> str:
    return list(WORDS)[number % len(WORDS)]


class Kills:
    def __init__(self, folder: Path, options: argparse.Namespace) -> None:
        self.options = options
        self.folder = folder
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        own = {MARK: str(folder), "ORBIT_SHARED_WORKER": "no" if options.recorded else "yes"}
        self.medians: dict[str, float] = {}
        if options.ray:
            own |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0"}
        own |= {name: str(folder / name.lower()) for name in ("XDG_CACHE_HOME", "XDG_STATE_HOME")}
        own["XDG_RUNTIME_DIR"] = str(folder)
        self.environment = os.environ | own
        self.server: subprocess.Popen[bytes] | None = None
        self.did: Counter[str] = Counter()
        self.outcomes: Counter[str] = Counter()
        self.wrong: list[str] = []
        self.missing: list[int] = []
        self._random = random.Random(options.seed)
        self._numbers = iter(range(options.jobs))
        self._ends = time.monotonic() + options.within
        self.begun = 0
        self._ray: Any = None
        self._of_ray: set[int] = set()
        """The daemons of the cluster, which are not the server's."""

    # -- the server -------------------------------------------------------------------------------

    def start(self) -> None:
        command = [
            sys.executable,
            "-P",
            "-m",
            "orbit_lsp",
            "api",
            "--port",
            str(self.port),
            "--pool",
            "ray*2" if self.options.ray else "local:0",
        ]
        if self.options.recorded:
            python = self.folder / "python"
            python.write_text(f'#!/bin/sh\nexec "{sys.executable}" -P "{STAND_IN}" "$@"\n')
            python.chmod(0o755)
            command += ["--python", str(python)]
        self.server = subprocess.Popen(
            command, cwd=self.folder, env=self.environment, stderr=(self.folder / "server.log").open("ab")
        )

    def processes(self) -> list[psutil.Process]:
        """All that came of the server, orphans too. A worker gets few variables, and has its folder on its command line."""
        known: list[psutil.Process] = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                own = process.environ().get(MARK) == str(self.folder)
                own = own or any(word.startswith(str(self.folder)) for word in process.cmdline())
                if process.pid != os.getpid() and own:
                    known.append(process)
        return known

    def kill(self) -> None:
        weights = (0, 3, 1, 3 * self.options.ray) if self.options.recorded else (6, 3, 1, 0)
        what = self._random.choices(("candidate", "worker", "server", "actor"), weights)[0]
        if what == "server":
            assert self.server
            self.server.kill()
            self.server.wait()
            self.did[what] += 1
            self.start()
            return
        workers, candidates, actors = self._sorted()
        chosen = {"worker": workers, "candidate": candidates, "actor": actors}[what]
        if chosen:
            with contextlib.suppress(psutil.Error):
                self._random.choice(chosen).kill()
                self.did[what] += 1

    def _sorted(self) -> tuple[list[psutil.Process], list[psutil.Process], list[psutil.Process]]:
        """Workers, what they have started for jobs, and the actors of Ray that have workers. A Python that runs a kernel, or waits for
        one, is forked from a template, whose command line it has.
        """
        actors: list[psutil.Process] = []
        workers: list[psutil.Process] = []
        candidates: list[psutil.Process] = []
        for process in self.processes():
            with contextlib.suppress(psutil.Error):
                words = process.cmdline()
                if not words:  # it has ended
                    continue
                if words[0].startswith("ray::") and "IDLE" not in words[0]:
                    actors.append(process)
                elif str(STAND_IN) in words or (
                    any(word.endswith("orbit_remote/__main__.py") for word in words) and "worker" in words
                ):
                    workers.append(process)
                elif "template" in words:
                    parent = process.parent()
                    if parent and "template" in parent.cmdline():
                        candidates.append(process)
                elif "orbit_lsp" not in words:
                    candidates.append(process)
        return workers, candidates, actors

    # -- clients ----------------------------------------------------------------------------------

    async def client(self) -> None:
        async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{self.port}", timeout=60) as http:
            for number in self._numbers:
                if time.monotonic() > self._ends:
                    return
                self.begun += 1
                if not await self._job(http, number):
                    self.missing.append(number)

    async def _job(self, http: httpx2.AsyncClient, number: int) -> bool:
        """Whether it ended."""
        shared, ns = sizes(number)
        if self.options.recorded:
            text = RECORDED.format(word=word_of(number))
        else:
            text = FEW + SPUN.format(ns=ns) if self.options.gpu else COMPILED.format(size=shared)
        ran = self.options.gpu or self.options.recorded
        body = {
            "action": "run" if ran else "compile", "name": "k.cu", "text": text, "timeout_s": 60,
        }  # fmt: skip
        until = time.monotonic() + 600
        job = ""
        while time.monotonic() < until:
            try:
                if not job:
                    answer = await http.post(
                        "/v1/jobs", json=body, headers={"Idempotency-Key": f"key-{number}"}
                    )
                else:
                    answer = await http.get(f"/v1/jobs/{job}?wait_s=20")
            except httpx2.TransportError:  # the server was killed
                await asyncio.sleep(0.2)
                continue
            if answer.status_code >= 400:
                self.outcomes[f"HTTP {answer.status_code}"] += 1
                await asyncio.sleep(0.5)
                continue
            record = answer.json()
            if not job:
                job = record["id"]
            if (outcome := record["outcome"]) is None:
                continue
            if "result" not in record:
                continue
            self.outcomes[outcome] += 1
            if outcome == "infrastructure" or (outcome == "runtime error" and self.options.gpu):
                if (
                    outcome == "runtime error"
                ):  # its process was killed, which the server cannot know from a crash
                    return True
                job = ""
                continue
            self._check(number, record)
            return True
        return False

    def _check(self, number: int, record: dict[str, Any]) -> None:
        shared, ns = sizes(number)
        finished = record["result"]["finished"]
        if record["outcome"] != "ok":
            problems = [problem["message"] for problem in record["result"]["problems"]]
            if not self.did["candidate"]:
                self.wrong.append(f"job {number}: {record['summary']}; {problems[:2]}")
            return
        if self.options.recorded:
            word = word_of(number)
            median = finished["launches"][0]["timing"]["median"]
            if abs(median / WORDS[word] - self.medians.setdefault("PLAIN", median / WORDS[word])) > 50:
                self.wrong.append(f"job {number}: {median} ns for {word}")
            return
        if self.options.gpu:
            median = finished["launches"][0]["timing"]["median"]
            if abs(median - ns) > 5_000:
                self.wrong.append(f"job {number}: {median} ns, not {ns}")
            return
        seen = {resources["static_shared"] for resources in finished["resources"]}
        if seen != {shared}:
            self.wrong.append(f"job {number}: {seen} bytes of shared memory, not {shared}")

    # -- all of it --------------------------------------------------------------------------------

    async def killing(self, clients: asyncio.Future[Any]) -> None:
        """Spread over the jobs that have begun, so that each kill has some between it and the next."""
        step = self.options.jobs / (self.options.kills + 1)
        for number in range(1, self.options.kills + 1):
            while self.begun < number * step:
                if clients.done():
                    return
                await asyncio.sleep(0.02)
            await asyncio.sleep(self._random.uniform(0, 0.2))
            await asyncio.to_thread(self.kill)

    async def run(self) -> int:
        before = memory()
        if self.options.ray:
            os.environ.update(self.environment)  # the cluster's daemons are told apart by it, too
            self._ray = two_nodes()  # it sets handlers of signals, for which it wants the main thread
            self.environment["RAY_ADDRESS"] = self._ray.address
            self._of_ray = {process.pid for process in self.processes()}
        self.start()
        began = time.monotonic()
        clients = asyncio.gather(*(self.client() for _ in range(self.options.clients)))
        await self.killing(clients)
        await clients
        took = time.monotonic() - began
        doubled = await asyncio.to_thread(self.doubled)
        assert self.server
        self.server.send_signal(signal.SIGINT)
        status = self.server.wait(60)
        stop = [sys.executable, "-P", "-m", "orbit_lsp", "stop"]
        await asyncio.to_thread(subprocess.run, stop, env=self.environment, capture_output=True, check=False)
        left = await self.left()
        kept = after - before if (after := memory()) is not None and before is not None else None
        print(
            f"{self.begun} jobs in {took:.0f} s from {self.options.clients} clients; killed: {dict(self.did)}; ended as "
            f"{dict(self.outcomes)}; load {os.getloadavg()[0]:.1f}\n"
            f"lost {len(self.missing)} {self.missing[:5]}, doubled {len(doubled)} {doubled[:5]}, wrong {len(self.wrong)} "
            f"{self.wrong[:3]}, processes left {len(left)} {left[:5]}, GPU memory left "
            f"{'not asked' if kept is None else f'{kept} MiB'}; the server ended with {status}"
        )
        bad = self.missing or doubled or self.wrong or left or (kept or 0) > 16
        return 1 if bad else 0

    def doubled(self) -> list[str]:
        """More jobs that ended well than were handed in, or those whose record still waits."""
        store = JobStore(Path(self.environment["XDG_STATE_HOME"]) / "orbit-lsp" / "jobs.sqlite")
        every = store.jobs(door="api", most=10 * self.options.jobs)
        ended = sum(job.outcome == "ok" for job in every)
        more = [f"{ended} ended well"] if ended > self.outcomes["ok"] else []
        return more + [f"{job.id} is {job.state}" for job in every if not job.over]

    async def left(self) -> list[str]:
        await asyncio.to_thread(psutil.wait_procs, self._servers(), GONE_S)
        names: list[str] = []
        for process in self._servers():
            with contextlib.suppress(psutil.Error):
                names.append(f"{process.pid} {' '.join(process.cmdline())[:100]}")
                process.kill()
        if self._ray:
            self._ray.shutdown()
        return names

    def _servers(self) -> list[psutil.Process]:
        """Without what Ray keeps: its daemons, and Pythons that wait for work."""
        own: list[psutil.Process] = []
        for process in self.processes():
            with contextlib.suppress(psutil.Error):
                if process.pid not in self._of_ray and not "".join(process.cmdline()[:1]).startswith(
                    "ray::IDLE"
                ):
                    own.append(process)
        return own


def two_nodes() -> Any:
    from ray.cluster_utils import Cluster  # pyright: ignore[reportMissingImports]

    made = Cluster(
        initialize_head=True, head_node_args={"num_cpus": 1, "num_gpus": 1, "include_dashboard": False}
    )
    made.add_node(num_cpus=1, num_gpus=1)
    return made


def memory() -> int | None:
    """MiB of the first GPU in use; None without one."""
    command = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits", "--id=0"]
    try:
        return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    except (OSError, ValueError, subprocess.CalledProcessError):
        return None


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--gpu", action="store_true")
    parser.add_argument("--recorded", action="store_true")
    parser.add_argument("--ray", action="store_true")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--within", type=float, default=3600.0)
    options = parser.parse_args()
    if options.ray and not options.recorded:
        parser.error("--ray declares GPUs that are not there: it needs --recorded")
    # a shell ignores it for what it starts in the background, and so would the server, which is ended by it
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with tempfile.TemporaryDirectory(prefix="orbit-kills-") as folder:
        kills = Kills(Path(folder), options)
        try:
            return asyncio.run(kills.run())
        finally:
            for process in kills.processes():
                process.kill()


if __name__ == "__main__":
    sys.exit(main())
