"""Evaluations on this machine's NVIDIA GPU: how many a minute, where their time goes, and what a failing candidate leaves to the next.

    python -P bench/evaluation_gpu.py [--clients 8] [--seconds 24]

Every figure is of this run: the engine and the routes of `orbit-lsp api` in this process, with a worker of its own. Beside them an
emulation of harnesses that start a process for each evaluation. Needs torch and Triton, and nvcc for the candidates with `load_inline`.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from pathlib import Path
from typing import Any, Self

sys.path.insert(0, str(Path(__file__).parents[1] / "remote"))
sys.path.insert(0, str(Path(__file__).parents[1]))

import httpx2
import psutil

from orbit_lsp.api import http_app
from orbit_lsp.api.guard import RequestLimits
from orbit_lsp.queue import gpu_check, pool
from orbit_lsp.queue.job_queue import JobQueue
from orbit_lsp.queue.job_store import JobStore, Result
from orbit_lsp.queue.pool import Slot
from orbit_lsp.queue.request import Request
from orbit_lsp.queue.slot_engine import EngineOptions, SlotEngine, Stage
from tests.cheats import KERNELS, MODEL

NEW = "import torch\nfrom torch import nn\n{top}\nclass ModelNew(nn.Module):\n    def forward(self, x):\n        return {call}\n"
TRITON = """
import triton
import triton.language as tl

@triton.jit
def scaled(out, x, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, mask=at < n) * {factor}
    tl.store(out + at, value / {factor} * 2 + 1, mask=at < n)

def run(x):
    out = torch.empty_like(x)
    scaled[(triton.cdiv(x.numel(), 1024),)](out, x, x.numel(), BLOCK=1024)
    return out
"""
INLINE = '''
from torch.utils.cpp_extension import load_inline
SOURCE = """
__global__ void scaled(float* out, const float* x, long n) {{
  long at = blockIdx.x * 256L + threadIdx.x;
  if (at < n) out[at] = x[at] * 2 + 1 + 0 * {factor};
}}
torch::Tensor run(torch::Tensor x) {{
  auto out = torch::empty_like(x);
  scaled<<<(x.numel() + 255) / 256, 256>>>(out.data_ptr<float>(), x.data_ptr<float>(), x.numel());
  return out;
}}
"""
run = load_inline("scaled_{factor}", "torch::Tensor run(torch::Tensor x);", SOURCE, functions=["run"]).run
'''
AFFINE = MODEL.format(expression="x * 2 + 1", shape="4096, 4096", dtype="")
EMULATED = """
import sys, importlib.util, torch
def module(path):
    spec = importlib.util.spec_from_file_location(path.rpartition("/")[2][:-3], path)
    made = importlib.util.module_from_spec(spec); spec.loader.exec_module(made)
    return made
reference, candidate = map(module, sys.argv[1:])
old, new = reference.Model().cuda(), candidate.ModelNew().cuda()
for seed in range(5):
    torch.manual_seed(seed)
    inputs = [value.cuda() for value in reference.get_inputs()]
    assert torch.allclose(old(*inputs), new(*inputs), 1e-4, 1e-4)
for model in (old, new):
    for _ in range(3): model(*inputs)
    times = []
    for _ in range(100):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record(); model(*inputs); end.record(); torch.cuda.synchronize()
        times.append(begin.elapsed_time(end))
"""
PHASE_S = 300.0
"""A phase that takes longer is given up."""
CONTEXTS = """
import os, torch
print(flush=True)
while True:
    pid = os.fork()
    if pid == 0:
        torch.empty(1, device="cuda"); torch.cuda.synchronize(); os._exit(0)
    os.waitpid(pid, 0)
"""
HOLDS = "import torch, time; kept = torch.zeros(3 << 30, dtype=torch.uint8, device='cuda'); print(flush=True); time.sleep(600)"


def candidates() -> dict[str, list[str]]:
    """Texts by kind; all compute x * 2 + 1."""
    torch = [
        NEW.format(top=f"# {number}", call=call)
        for number, call in enumerate(["x * 2 + 1", "torch.add(x + x, 1)", "x.mul(2).add_(1)"] * 4)
    ]
    triton = [
        NEW.format(top=TRITON.format(factor=float(2**number)), call="run(x)") for number in range(1, 11)
    ]
    inline = [NEW.format(top=INLINE.format(factor=number), call="run(x)") for number in range(64)]
    return {"torch": torch, "triton": triton, "load_inline": inline}


class Watched:
    """The engine of a place, which also notes when each job entered a stage."""

    def __init__(self, engine: SlotEngine, seen: dict[str, list[tuple[float, str]]]) -> None:
        self._engine = engine
        self._seen = seen

    async def prepare(self, job: str, request: Request) -> None:
        await self._engine.prepare(job, request)

    async def perform(self, job: str, request: Request, stage: Stage) -> Result:
        stages = self._seen[job] = [(time.perf_counter(), "begin")]

        def noted(state: Any, why: str) -> None:
            stages.append((time.perf_counter(), f"{state} {why}"))
            stage(state, why)

        try:
            return await self._engine.perform(job, request, noted)
        finally:
            stages.append((time.perf_counter(), "end"))

    async def ready(self) -> str:
        return ""

    async def close(self) -> None:
        await self._engine.close()


class Server:
    def __init__(self, client: httpx2.AsyncClient, jobs: JobQueue) -> None:
        self.client = client
        self.jobs = jobs
        self.seen: dict[str, list[tuple[float, str]]] = {}

    async def evaluate(self, reference: str, candidate: str, **more: Any) -> dict[str, Any]:
        body = {"ref_code": reference, "custom_code": candidate, "timeout": 180, **more}
        return (await self.client.post("/", json=body)).json()

    def parts(self, job: str) -> dict[str, float]:
        """Seconds of a job that was timed: until the GPU is its own, until its process has begun, for checks, times, the rest."""
        stages = self.seen[job]
        begin, end = stages[0][0], stages[-1][0]
        started = next((at for at, name in stages if name.startswith("starting")), begin)
        checking = next((at for at, name in stages if name.startswith("running checking")), end)
        timing = next((at for at, name in stages if name.startswith("running timing")), end)
        result: dict[str, Any] = self.jobs.store.result(job) or {"finished": {}}
        inside = float(result["finished"].get("run_s") or 0.0)
        return {
            "before the GPU": started - begin,
            "until its process begins": checking - started,
            "import, build and checks": timing - checking,
            "timing and last check": max(0.0, checking + inside - timing),
            "its end": max(0.0, end - checking - inside),
        }


@contextlib.asynccontextmanager
async def server(folder: Path, *, guarded: bool = False) -> AsyncGenerator[Server]:
    options = EngineOptions({"python": sys.executable, "shared_worker": False})
    seen: dict[str, list[tuple[float, str]]] = {}

    def engine(slot: Slot) -> Watched:
        return Watched(SlotEngine(slot, options), seen)

    jobs = JobQueue(
        JobStore(folder / f"{time.time_ns()}.sqlite"), pool.parse("local:0"), engine, "bench", guarded=guarded
    )
    await jobs.start()
    app = http_app.app(jobs, RequestLimits(rate=1e9, burst=1e9), ["127.0.0.1"])
    try:
        transport = httpx2.ASGITransport(app=app)
        async with httpx2.AsyncClient(
            transport=transport, base_url="http://127.0.0.1", timeout=600
        ) as client:
            made = Server(client, jobs)
            made.seen = seen
            yield made
    finally:
        await jobs.close()


class Leased:
    """How long the GPU's lease was held, looked up in /proc/locks every few milliseconds."""

    def __init__(self) -> None:
        self.held = self.looks = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def _look(self) -> None:
        while not self._over.wait(0.004):
            numbers = {str(path.stat().st_ino) for path in Path("/tmp/orbit-lsp-gpu").glob("*.lock")}
            held = {line.split()[5].rpartition(":")[2] for line in _locks() if "->" not in line}
            self.looks += 1
            self.held += bool(numbers & held)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    @property
    def share(self) -> str:
        return (
            f"{100 * self.held / self.looks:.0f} % of {self.looks} looks" if self.looks else "not looked at"
        )


def _locks() -> list[str]:
    with contextlib.suppress(OSError):
        return Path("/proc/locks").read_text().splitlines()
    return []


def say(*lines: str) -> None:
    print(*lines, sep="\n", flush=True)


async def clients(
    known: Server, count: int, texts: Callable[[], str | None], **more: Any
) -> list[dict[str, Any]]:
    """`count` clients, each of which hands in the next text when its last was answered."""
    answers: list[dict[str, Any]] = []

    async def client() -> None:
        while text := texts():
            answers.append(await known.evaluate(AFFINE, text, **more))

    await asyncio.gather(*(client() for _ in range(count)))
    return answers


def succeeded(answer: dict[str, Any]) -> bool:
    return answer.get("kernel_exec_result", {}).get("correctness") is True


def each(texts: Sequence[str]) -> Callable[[], str | None]:
    iterator = iter(texts)
    return lambda: next(iterator, None)


def again(texts: Sequence[str], seconds: float) -> Callable[[], str | None]:
    iterator, until = itertools.cycle(texts), time.monotonic() + seconds
    return lambda: next(iterator) if time.monotonic() < until else None


async def throughput(folder: Path, count: int, seconds: float) -> float:
    """Returns evaluations a minute with everything built."""
    texts = candidates()
    rate = 0.0
    async with server(folder, guarded=True) as known:
        for kind, own in texts.items():
            most = (
                2 * count if kind == "load_inline" else 8
            )  # so that the builds of one round wait for those of another
            await phase(known, f"{kind}, new", count, each(own[:most]))
        built = {kind: own[:6] for kind, own in texts.items()}
        every = [text for group in itertools.zip_longest(*built.values()) for text in group if text]
        rate = await phase(known, "all kinds, built before", count, again(every, seconds))
        honest = [*built["torch"], *built["triton"], *built["load_inline"][:2]]
        await phase(known, "referee, built before", count, again(honest, seconds), grade="referee")
        for kind, own in built.items():
            await phase(known, f"{kind}, built before", count, again(own, seconds / 3))
    return rate


async def refereed(folder: Path, count: int, seconds: float) -> None:
    """Evaluations a minute at grade referee alone: torch's and Triton's candidates, after each was judged once."""
    texts = candidates()
    honest = [*texts["torch"][:6], *texts["triton"][:6]]
    async with server(folder, guarded=True) as known:
        await phase(known, "referee, new", count, each(honest), grade="referee")
        await phase(known, "referee, built before", count, again(honest, seconds), grade="referee")


def stuck(known: Server, name: str) -> None:
    """What the jobs that have not ended wait for."""
    say(f"{name}: not over after {PHASE_S} s; leaves these jobs, and these processes:")
    for job, stages in known.seen.items():
        if stages[-1][1] != "end":
            say(
                f"    {job}: "
                + ", ".join(f"{time.perf_counter() - at:.1f} s ago {what}" for at, what in stages)
            )
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            say(
                f"    {child.pid} {child.status()} {time.time() - child.create_time():.0f} s {' '.join(child.cmdline())[-160:]}"
            )


async def phase(known: Server, name: str, count: int, texts: Callable[[], str | None], **more: Any) -> float:
    before = set(known.seen)
    with Leased() as leased:
        began = time.perf_counter()
        try:
            async with asyncio.timeout(PHASE_S):
                answers = await clients(known, count, texts, **more)
        except TimeoutError:
            stuck(known, name)
            raise
        took = time.perf_counter() - began
    bad = [answer for answer in answers if not succeeded(answer)]
    rate = 60 * len(answers) / took
    grades = sorted({str(answer.get("grade")) for answer in answers})
    say(
        f"{name}: {len(answers)} in {took:.1f} s = {rate:.0f} a minute; leased {leased.share}; {', '.join(grades)}; {len(bad)} not ok"
    )
    for answer in bad[:2]:
        say(f"    {answer.get('error') or answer['kernel_exec_result']}"[:600])
    parts = [known.parts(job) for job in known.seen if job not in before and not job.startswith("check-")]
    if parts:
        medians = (f"{part} {statistics.median(own[part] for own in parts):.3f}" for part in parts[0])
        say("    s in the median: " + ", ".join(medians))
    return rate


def emulated(folder: Path, rate: float) -> None:
    """A process for each evaluation, one after the other, as the GPU is exclusive."""
    script, reference = folder / "emulated.py", folder / "reference.py"
    script.write_text(EMULATED)
    reference.write_text(AFFINE)
    texts = [text for group in zip(*list(candidates().values())[:2], strict=False) for text in group][:6]
    began = time.perf_counter()
    for number, text in enumerate(texts):
        candidate = folder / f"candidate_{number}.py"
        candidate.write_text(text)
        subprocess.run([sys.executable, script, reference, candidate], check=True)
    own = 60 * len(texts) / (time.perf_counter() - began)
    say(
        f"a process for each evaluation (emulated; Triton's builds cached): {own:.1f} a minute; ours {rate / own:.1f} x"
    )


async def clocks(folder: Path) -> None:
    """The judge's score beside the author's click."""
    async with server(folder) as known:
        for name, (expression, shape, dtype) in KERNELS.items():
            reference = MODEL.format(expression=expression, shape=shape, dtype=dtype)
            times: dict[str, float] = {}
            for grade in ("author", "referee"):
                answer = await known.evaluate(reference, NEW.format(top="", call=expression), grade=grade)
                if not succeeded(answer):
                    say(f"{name}, {grade}: {answer}"[:700])
                    break
                times[answer["grade"]] = 1e3 * answer["kernel_exec_result"]["runtime_stats"]["median"]
            if len(times) == 2:
                click, judge = times["author"], times["referee"]
                say(f"{name}: click {click:.2f} µs, judge {judge:.2f} µs, {100 * (judge / click - 1):+.1f} %")


async def process(code: str) -> asyncio.subprocess.Process:
    """Python code in a process of its own, once it has printed its first line."""
    started = await asyncio.create_subprocess_exec(sys.executable, "-c", code, stdout=asyncio.subprocess.PIPE)
    assert started.stdout
    await started.stdout.readline()
    return started


async def beside_contexts(folder: Path) -> None:
    """Whether opening CUDA contexts in other processes changes what is measured."""
    async with server(folder) as known:
        expression = KERNELS["relu, 64 MiB"][0]
        for name in ("alone", "beside contexts that are opened", "alone again"):
            async with contextlib.AsyncExitStack() as ends:
                if "beside" in name:
                    beside = await process(CONTEXTS)
                    ends.push_async_callback(beside.wait)
                    ends.callback(beside.kill)
                times: list[str] = []
                for label, shape in (("64 MiB", "4096, 4096"), ("1 MiB", "512, 512")):
                    reference = MODEL.format(expression=expression, shape=shape, dtype="")
                    medians: list[float] = []
                    late: list[float] = []
                    for _ in range(8):
                        answer = await known.evaluate(reference, NEW.format(top="", call=expression))
                        stats = answer["kernel_exec_result"]["runtime_stats"]
                        medians.append(1e3 * (stats["median"] or 0.0))
                        late.append(1e3 * (stats["percentile_95"] or 0.0))
                    times.append(
                        f"{label} {statistics.median(medians):.2f} ({min(medians):.2f} to {max(medians):.2f}) / {statistics.median(late):.2f}"
                    )
            say(f"relu {name}, median (least to most of 8) / p95 in µs: {', '.join(times)}")


FAILING = {
    "an illegal address": "torch.zeros(4, device='cuda')[torch.full((1 << 20,), 1 << 40, device='cuda')] + x",
    "a kernel that never ends": "torch.cuda._sleep(1 << 50) or x * 2 + 1",
    "a crash": "__import__('os').kill(__import__('os').getpid(), 11)",
    "a process of its own that keeps 3 GiB": (
        f"__import__('subprocess').Popen([{sys.executable!r}, '-c', {HOLDS!r}], start_new_session=True, "
        "stdout=-1).stdout.readline() and 1 / 0"
    ),
}


async def quarantine(folder: Path) -> None:
    gpu_check.AGAIN_S = 2.0
    good = NEW.format(top="", call="x * 2 + 1")
    async with server(folder, guarded=True) as known:
        before = (await known.evaluate(AFFINE, good))["kernel_exec_result"]["runtime_stats"]["median"]
        for name, call in FAILING.items():
            answer = await known.evaluate(AFFINE, NEW.format(top="", call=call), timeout=10)
            outcome: object = answer.get("kernel_exec_result", {}).get("metadata", answer).get("outcome")
            began = time.perf_counter()
            after = await known.evaluate(AFFINE, good)
            took = time.perf_counter() - began
            runtime: dict[str, Any] = after.get("kernel_exec_result", {}).get("runtime_stats", {})
            change = (
                f"{100 * (runtime['median'] / before - 1):+.1f} %"
                if runtime.get("median")
                else str(after)[:300]
            )
            say(f"{name}: {outcome}; the next job, {took:.1f} s later: {change}; {used()} MiB in use")
        holder = await process(HOLDS)
        crash = await known.evaluate(AFFINE, NEW.format(top="", call=FAILING["a crash"]))
        refused = await known.evaluate(AFFINE, good)
        say(
            f"3 GiB that nobody gives back, then a crash ({crash.get('status')}): {known.jobs.places()[0]['aside']}"
        )
        say(f"    a job meanwhile: {refused.get('outcome')}: {refused.get('error')}")
        holder.kill()
        await holder.wait()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(30):
                while known.jobs.places()[0]["aside"]:
                    await known.jobs.change().wait()
        say(f"    given back: {(await known.evaluate(AFFINE, good)).get('status')}")
    say(f"at the end {used()} MiB in use")


def used() -> str:
    command = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits", "--id=0"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip() or "unknown"


async def measure(options: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for variable in ("XDG_CACHE_HOME", "XDG_STATE_HOME", "TORCH_EXTENSIONS_DIR"):
            os.environ[variable] = str(folder / variable.lower())
        began = time.perf_counter()
        wanted = options.parts.split(",")
        rate = 0.0
        for part in wanted:
            say("", f"== {part} (after {time.perf_counter() - began:.0f} s)")
            try:
                if part == "throughput":
                    rate = await throughput(folder, options.clients, options.seconds)
                elif part == "referee":
                    await refereed(folder, options.clients, options.seconds)
                elif part == "emulated":
                    emulated(folder, rate)
                elif part == "quarantine":
                    await quarantine(folder)
                elif part == "contexts":
                    await beside_contexts(folder)
                elif part == "clocks":
                    await clocks(folder)
            except Exception as error:  # noqa: BLE001 - the other parts have figures of their own
                say(f"not measured: {type(error).__name__}: {error}")
        say("", f"{time.perf_counter() - began:.0f} s in all, {os.cpu_count()} cores")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=24.0)
    parser.add_argument("--parts", default="throughput,clocks,quarantine,contexts,emulated")
    asyncio.run(measure(parser.parse_args()))


if __name__ == "__main__":
    main()
