"""What a run on Modal costs besides Modal: on the offline control plane (tests/modal_loopback), beside bare calls.

    python -P bench/modal_runs.py [--quick] [--out docs/dev/results/latency-modal.md]

Modal's own client and container entrypoint on both sides, so no network, no scheduling, no GPU: figures of
kernels are recorded (tests/e2e/recorded_worker.py). Linux; needs nvcc for the row that cancels a program.
"""

from __future__ import annotations

import argparse
import asyncio
import datetime as dt
import os
import platform
import stat
import statistics
import sys
import tempfile
import time
import uuid
from contextlib import aclosing
from importlib.metadata import version
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "remote"))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import psutil

from orbit_lsp.runners.modal import call as modal_call
from orbit_lsp.runners.modal.pool import ModalOptions
from orbit_lsp.runners.modal.runner import ModalRunner
from orbit_remote.common import messages as c
from orbit_remote.common.requests import ExecStart, Job
from orbit_remote.modal_app.image_spec import ImageSpec
from tests.modal_loopback.loopback import Loopback

HERE = Path(__file__).parent
ROOT = HERE.parent

RECORDED = ROOT / "tests/e2e/recorded_worker.py"
TOLD_OF_A_GPU = ROOT / "tests/modal/worker_told_of_a_gpu.py"
SAXPY = """\
__global__ void saxpy(int n, float a, const float* x, float* y) { y[n] = a * x[n]; }
int main() { saxpy<<<1, 256>>>(0, 1, 0, 0); }
"""
WARM_UP = 5
HANGS = """\
#include <stdio.h>
#include <unistd.h>
int main() { printf("%d\\n", getpid()); fflush(stdout); for (;;) pause(); }
"""


class Bench:
    def __init__(self, folder: Path, modal: Loopback, *, quick: bool) -> None:
        self.folder, self.modal, self.quick = folder, modal, quick
        self.rows: list[str] = []
        self.missed: list[str] = []

    def row(self, what: str, value: float, unit: str, target: float | None = None) -> None:
        message = f"{value:8.1f} {unit}"
        if target is not None:
            met = value <= target
            message += f"   (target: <= {target:g} {unit}{'' if met else ', MISSED'})"
            if not met:
                self.missed.append(what)
        self.rows.append(f"  {what:<62}{message}")
        print(self.rows[-1], flush=True)

    def times(self, whole: int) -> int:
        return max(3, whole // 10) if self.quick else whole

    def python(self, name: str, command: str) -> None:
        """What the worker's Python is in containers from now on."""
        script = self.folder / name
        script.write_text(f'#!/bin/sh\nexec "{sys.executable}" {command}\n')
        script.chmod(script.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
        self.modal.do(lambda world: world.container_env.update({"ORBIT_PYTHON": str(script)}))


def job(folder: Path, text: str = SAXPY, **fields: Any) -> Job:
    given = {"directory": str(folder), "gpu": "H100", "architecture": "sm_90a"} | fields
    return Job("r1", "run", "cuda", str(folder / "saxpy.cu"), text, **given)


def snippet(folder: Path, number: int) -> Job:
    """As `orbit-lsp exec -c 'print(1)'` makes it."""
    path = str(folder / "_orbit_exec.py")
    return Job(
        "r1", "run", "triton", path, f"print(1)  # {number}\n", directory=str(folder), gpu="H100",
        start=ExecStart(str(folder)),
    )  # fmt: skip


def middle(seconds: list[float]) -> float:
    return 1e3 * statistics.median(seconds)


async def once(runner: ModalRunner, what: Job) -> tuple[float, float]:
    """Seconds to the first event that the container has sent, and to the result."""
    result, began = float("nan"), time.perf_counter()
    async with aclosing(runner.run(what)) as events:
        async for event in events:
            if isinstance(event, c.Stage) and event.why == "the container is there":
                result = time.perf_counter() - began  # of a cold click the last: that of the GPU
            if isinstance(event, c.Finished):
                if event.outcome != "ok":
                    raise SystemExit(f"the run failed: {event.failure}")
                return result, time.perf_counter() - began
    raise SystemExit("the run ended without an answer")


async def bare_call(queue: Any, handle: Any) -> tuple[float, float]:
    """Seconds to the first event and to the answer of the least app that does what ours does (modal_bare.py)."""
    key = uuid.uuid4().hex
    began = time.perf_counter()
    call = await handle.run.spawn.aio(b"x" * 600, {}, queue, key)
    await queue.get_many.aio(200, timeout=10, partition=key)
    heard = time.perf_counter() - began
    await call.get.aio()
    return heard, time.perf_counter() - began


async def warm_click(bench: Bench, runner: ModalRunner, folder: Path) -> None:
    """In turn with bare calls, so that both meet the same machine."""
    import modal
    import modal_bare

    await modal_bare.app.deploy.aio(name="bare")
    handle = modal.Cls.from_name("bare", "Bare")()
    bare, ours, snippets = (list[tuple[float, float]]() for _ in range(3))
    async with modal.Queue.ephemeral() as queue:
        for number in range(bench.times(200) + WARM_UP):
            bare.append(await bare_call(queue, handle))
            ours.append(await once(runner, job(folder, SAXPY + f"// {number}\n")))
            snippets.append(await once(runner, snippet(folder, number)))
    of = [
        [middle([item[which] for item in all_of[WARM_UP:]]) for which in (0, 1)]
        for all_of in (bare, ours, snippets)
    ]
    (bare_first, bare_whole), (first, whole), (_, executed) = of
    bench.row("a bare call: spawn to first event, p50", bare_first, "ms")
    bench.row("a warm click: to the container's first event, p50", first, "ms")
    bench.row("… on top of the bare call", first - bare_first, "ms", 10)
    bench.row("a bare call: spawn to answer, p50", bare_whole, "ms")
    bench.row("a warm click: to the result, p50", whole, "ms")
    bench.row("exec -c 'print(1)', warm: to the result, p50", executed, "ms")
    bench.row("… on top of the bare call", executed - bare_whole, "ms", 15)


async def bundle(bench: Bench, runner: ModalRunner, folder: Path) -> None:
    """The edit of one header among 199 others; everything up to the submission, and what is sent."""
    from bundle import project

    what = project(folder, "cuda", 200)
    what = Job(
        "r1", "run", "cuda", what.path, what.text, directory=what.directory, flags=what.flags, gpu="H100"
    )
    before, sent = list[float](), list[tuple[int, int]]()
    began = 0.0
    submit = modal_call.ModalCall._submit

    async def submitting(self: modal_call.ModalCall, method: str, arguments: list[Any]) -> None:
        request, blobs = arguments
        before.append(time.perf_counter() - began)
        sent.append((len(blobs), len(request) + sum(map(len, blobs.values()))))
        await submit(self, method, arguments)

    modal_call.ModalCall._submit = submitting
    try:
        await once(runner, what)
        await asyncio.sleep(2.5)  # files at rest, as those of a person who edits one of them
        before.clear()
        sent.clear()
        edited = next(folder.rglob("h13.cuh"))  # noqa: ASYNC240 - before the clock runs
        for number in range(bench.times(30)):
            edited.write_text(f"{edited.read_text()}// {number}\n")
            began = time.perf_counter()
            await once(runner, what)
    finally:
        modal_call.ModalCall._submit = submit
    bench.row("200 files, one changed: before the call, p50", middle(before), "ms", 50)
    bench.row("… slowest", 1e3 * max(before), "ms")
    bench.row("… files sent with a click, most", max(files for files, _ in sent), "files", 1)
    bench.row("… bytes sent, manifest included, most", max(size for _, size in sent) / 1024, "KiB")


async def cancel(bench: Bench, folder: Path) -> None:
    cache = bench.folder / "builds"
    bench.python("told-of-a-gpu", f'"{TOLD_OF_A_GPU}" "$1" "$2" "$3" --cache "{cache}"')
    runner = ModalRunner(ModalOptions(ImageSpec("0.2.0"), (str(folder),)))
    gone: list[float] = []
    try:
        for _ in range(bench.times(30)):
            events = runner.run(job(folder, HANGS))
            async for event in events:
                if isinstance(event, c.Finished):
                    raise SystemExit(f"the run failed: {event.failure}")
                if isinstance(event, c.Output):
                    program = Path(f"/proc/{int(event.text)}")
                    break
            began = time.perf_counter()
            ending = asyncio.ensure_future(events.aclose())
            while program.exists():  # noqa: ASYNC110, ASYNC240 - processes tell nobody when they end
                await asyncio.sleep(0.001)
            gone.append(time.perf_counter() - began)
            await ending
            await asyncio.sleep(1.2)  # Modal's entrypoint lets a second pass between two cancellings
    finally:
        await runner.close()
    bench.row("cancel to the remote program gone, p50", middle(gone), "ms", 1000)
    bench.row("… slowest", 1e3 * max(gone), "ms", 1000)


async def memory(bench: Bench, folder: Path) -> None:
    """The process of a whole server, over LSP."""
    from client import Client, Json

    file = folder / "saxpy.cu"
    file.write_text(SAXPY)
    options = {"runner": "modal", "gpu": "H100", "compile_on_save": False}
    environment = os.environ | {"PYTHONPATH": f"{ROOT}:{ROOT / 'remote'}"}
    client = await Client.start([sys.executable, "-P", "-m", "orbit_lsp"], folder, options, environment)
    client.notify("initialized", {})
    client.open(file, "cuda-cpp")
    uri = file.as_uri()
    lenses = "textDocument/codeLens", {"textDocument": {"uri": uri}}
    while "H100" not in str(await client.request(*lenses)):  # noqa: ASYNC110 - its settings are on their way
        await asyncio.sleep(0.05)

    async def click() -> None:
        began = time.perf_counter()
        where = {"uri": uri, "kernel": "saxpy"}
        await client.request("workspace/executeCommand", {"command": "orbit.run", "arguments": [where]})

        def ended(message: Json) -> bool:
            value = message["params"].get("value", {}) if message["method"] == "$/progress" else {}
            return value.get("kind") == "end"

        _, message = await client.until(ended, began)
        if "µs" not in message["params"]["value"].get("message", ""):
            raise SystemExit(f"the click failed: {message}")
        client.heard.clear()

    def pss() -> float:
        return psutil.Process(client.process.pid).memory_full_info().pss / 2**20

    try:
        bench.row("the server before the first run on Modal (PSS)", pss(), "MiB")
        for _ in range(10):
            await click()
        settled = pss()
        bench.row("… after 10 runs, Modal's client loaded", settled, "MiB")
        for _ in range(bench.times(200)):
            await click()
        bench.row(f"… grown by {bench.times(200)} more runs", pss() - settled, "MiB", 5)
    finally:
        await client.stop()


async def measure(bench: Bench) -> None:
    bench.python("recorded", f'"{RECORDED}"')
    folders = {name: bench.folder / name for name in ("small", "project", "cancel", "editor")}
    for folder in folders.values():
        folder.mkdir()
    for name, work in (("small", warm_click), ("project", bundle)):
        runner = ModalRunner(ModalOptions(ImageSpec("0.1.0"), (str(folders[name]),)))
        try:
            await work(bench, runner, folders[name])
        finally:
            await runner.close()
    await memory(bench, folders["editor"])
    await cancel(bench, folders["cancel"])


def head() -> str:
    return (
        f"`python -P bench/modal_runs.py` on {dt.datetime.now(dt.UTC):%Y-%m-%d}: {os.cpu_count()} shared cores, "
        f"Python {platform.python_version()}, modal {version('modal')}, no GPU. Modal's own client and container\n"
        "entrypoint around the control plane of the tests on one machine: no network, no waiting for a GPU."
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="a tenth of the repeats")
    parser.add_argument("--out", type=Path, help="a page that gets the figures")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="orbit-bench-") as name, Loopback() as modal:
        folder = Path(name)
        for variable in [variable for variable in os.environ if variable.startswith("MODAL_")]:
            del os.environ[variable]
        # prices and ledgers of the one who runs this stay out of it
        os.environ |= modal.env() | {"HOME": name, "XDG_STATE_HOME": f"{name}/state"}
        modal.do(lambda world: world.container_env.update({"ORBIT_HOME": f"{name}/disk-{{container}}"}))
        bench = Bench(folder, modal, quick=options.quick)
        try:
            asyncio.run(measure(bench))
        except BaseException:
            print(modal.state(), file=sys.stderr)
            raise
    if options.out:
        options.out.write_text(
            "\n".join(
                ["# What a run on Modal costs besides Modal", "", head(), "", "```", *bench.rows, "```", ""]
            )
        )
    sys.exit(bool(bench.missed))


if __name__ == "__main__":
    main()
