"""A pool on a real Ray cluster of two nodes on this machine. Its GPUs are declared and not there: the engine on a node is a
stand-in that starts a process, but for one test, where the real one says that there is no GPU.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import signal
import sys
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import psutil
import pytest

from orbit_lsp.queue import cluster, pool
from orbit_lsp.queue.cluster import ClusterEngine
from orbit_lsp.queue.job_queue import JobQueue
from orbit_lsp.queue.job_store import JobStore, Result
from orbit_lsp.queue.pool import Slot
from orbit_lsp.queue.request import Request, RequestRefusedError
from orbit_lsp.queue.slot_engine import EngineOptions, SlotEngine, Stage
from orbit_remote.common import messages as c
from tests.later import Later

ray: Any = Later("ray")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="Ray is for Linux here"),
    pytest.mark.skipif(
        not importlib.util.find_spec("ray"), reason="Ray is not installed: pip install 'orbit-lsp[cluster]'"
    ),
]

WAIT_S = 480  # beside eight busy loops on two cores, a node that joins takes 108 s to begin its job
KERNEL = "__global__ void k() {}\n"


class OfANode:
    """Runs `sleep`, notes its number beside the request's text, and leaves a report."""

    def __init__(self, slot: Slot, options: EngineOptions) -> None:
        del options
        self._slot = slot

    async def machine(self) -> c.Machine | None:
        device = c.Device("NVIDIA H100 80GB HBM3", self._slot.options[-1][1])
        return c.Machine("1", 1, sys.executable, "3", devices=(device,))

    async def perform(self, job: str, request: Request, stage: Stage) -> Result:
        folder = Path(request.files["folder"])
        stage("running", "")
        process = await asyncio.create_subprocess_exec("sleep", "0" if "quick" in request.name else "600")
        try:
            (folder / request.name).write_text(f"{process.pid} {os.getpid()}")
            (folder / f"{request.name}.begun").touch()
            await process.wait()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        report = folder / "page.html"
        report.write_text(f"on {self._slot.name}")
        return Result(c.ok(job), text=self._slot.name, report=str(report))

    async def close(self) -> None: ...


@pytest.fixture(scope="module")
def two_nodes() -> Iterator[Any]:
    cluster_utils: Any = importlib.import_module("ray.cluster_utils")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_DISABLE_IMPORT_WARNING", "1")
        patch.setenv("RAY_ENABLE_UV_RUN_RUNTIME_ENV", "0")
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        made = cluster_utils.Cluster(
            initialize_head=True, head_node_args={"num_cpus": 1, "num_gpus": 1, "include_dashboard": False}
        )
        made.add_node(num_cpus=1, num_gpus=1)
        patch.setenv("RAY_ADDRESS", made.address)
        cluster.connect()
        yield made
        ray.shutdown()
        made.shutdown()


def text_of(path: str) -> str:
    return Path(path).read_text(encoding="utf-8")


@asynccontextmanager
async def queue(folder: Path, places: str, make: cluster.Make = OfANode) -> AsyncGenerator[JobQueue]:
    options = EngineOptions()
    jobs = JobQueue(
        JobStore(folder / "jobs.sqlite"),
        pool.parse(places),
        # the place of the compiler takes no GPU, as in `job_queue.engines`: else it may get that of a node that joins
        lambda slot: ClusterEngine(slot, options, make) if slot.clustered else SlotEngine(slot, options),
        "test",
    )
    await jobs.start()
    try:
        async with asyncio.timeout(WAIT_S):
            yield jobs
    finally:
        await jobs.close()


def asks(folder: Path, name: str, **more: Any) -> Request:
    return Request(name=f"{name}.cu", text=KERNEL, files={"folder": str(folder)}, **more)


async def process_of(folder: Path, name: str) -> tuple[psutil.Process, int]:
    """The process that a job has started on its node, and that of the actor."""
    while not (folder / f"{name}.cu.begun").exists():  # noqa: ASYNC110 - a process of another node sets no event here
        await asyncio.sleep(0.05)
    child, actor = (folder / f"{name}.cu").read_text().split()
    return psutil.Process(int(child)), int(actor)


async def test_a_node_that_joins_is_a_place_more_and_one_that_leaves_costs_its_job(
    two_nodes: Any, tmp_path: Path
) -> None:
    async with queue(tmp_path, "ray*3") as jobs:
        known = [await jobs.submit(asks(tmp_path, f"long{at}")) for at in range(3)]
        for job in known[:2]:
            await process_of(tmp_path, job.file.removesuffix(".cu"))
        assert jobs.position(known[2].id) == 0  # two nodes have two GPUs
        joined = two_nodes.add_node(num_cpus=1, num_gpus=1)
        process, _ = await process_of(tmp_path, "long2")
        two_nodes.remove_node(joined)
        with suppress(psutil.NoSuchProcess):  # Ray may have been quicker
            process.kill()
        ended = await jobs.wait(known[2].id)
        assert ended
        assert ended.outcome == "infrastructure"


async def test_each_gpu_of_the_cluster_is_a_place(two_nodes: Any, tmp_path: Path) -> None:
    assert cluster.gpus() == 2
    async with queue(tmp_path, "ray*2") as jobs:
        known = [await jobs.submit(asks(tmp_path, f"quick{at}")) for at in range(6)]
        ended = [await jobs.wait(job.id) for job in known]
        assert [job and job.outcome for job in ended] == ["ok"] * 6
        assert {job.slot for job in ended if job} <= {"ray#1", "ray#2"}
        ran = {job.slot for job in ended if job}
        assert {place["gpu"] for place in jobs.places() if place["name"] in ran} == {"NVIDIA H100 80GB HBM3"}
        result = jobs.store.result(known[0].id)
        assert result
        # what lay on the node has come
        assert text_of(result["report"]) == f"on {result['text']}"
        assert result["report"] != str(tmp_path / "page.html")


async def test_a_cancelled_job_leaves_no_process(two_nodes: Any, tmp_path: Path) -> None:
    async with queue(tmp_path, "ray*1") as jobs:
        job = await jobs.submit(asks(tmp_path, "long"))
        process, _ = await process_of(tmp_path, "long")
        ended = await jobs.cancel(job.id)
        assert ended
        assert ended.outcome == "cancelled"
        assert not process.is_running()
        # and its place takes the next
        again = await jobs.submit(asks(tmp_path, "quick"))
        assert (await jobs.wait(again.id) or again).outcome == "ok"


async def test_a_killed_actor_loses_its_job_and_nothing_else(two_nodes: Any, tmp_path: Path) -> None:
    async with queue(tmp_path, "ray*1") as jobs:
        job = await jobs.submit(asks(tmp_path, "long"))
        process, actor = await process_of(tmp_path, "long")
        behind = [await jobs.submit(asks(tmp_path, f"quick{at}")) for at in range(3)]
        os.kill(actor, signal.SIGKILL)
        with suppress(psutil.NoSuchProcess):  # the stand-in's; a worker's would end with its pipe
            process.kill()
        ended = await jobs.wait(job.id)
        assert ended
        assert ended.outcome == "infrastructure"
        result = jobs.store.result(job.id)
        assert result
        assert result["finished"]["failure"]["remedy"] == "submit it again: a job is measured at most once"
        assert [(await jobs.wait(job.id) or job).outcome for job in behind] == ["ok"] * 3


@pytest.mark.skipif(os.path.exists("/dev/nvidiactl"), reason="this machine has a GPU")  # noqa: PTH110 - read at import
async def test_the_real_engine_answers_from_a_node(two_nodes: Any, tmp_path: Path) -> None:
    async with queue(tmp_path, "ray*1", SlotEngine) as jobs:
        text = "// orbit: x = zeros(32)\n// orbit: launch k<<<1, 32>>>(x)\n__global__ void k(float* x) { x[threadIdx.x] = 1; }\n"
        job = await jobs.submit(Request(name="k.cu", text=text))
        ended = await jobs.wait(job.id)
        assert ended
        assert (ended.outcome, "no NVIDIA GPU" in ended.summary) == ("infrastructure", True)
        elsewhere = await jobs.submit(Request(name="k.cu", text=text, path=str(tmp_path / "k.cu")))
        assert "is not there, on the node" in (await jobs.wait(elsewhere.id) or elsewhere).summary
        actors = [
            process
            for process in psutil.process_iter(["cmdline"])
            if "ray::Node" in " ".join(process.info["cmdline"] or ())
        ]
        workers = [child for actor in actors for child in actor.children(recursive=True)]
        assert workers
    gone, left = psutil.wait_procs(workers, timeout=WAIT_S)
    assert (len(gone), left) == (len(workers), [])


@pytest.mark.parametrize(
    ("address", "text"),
    [
        ("127.0.0.1:1", "there is no Ray cluster at 127.0.0.1:1 (Connection refused): start one with `ray start --head`, or name one in RAY_ADDRESS"),
        ("", "there is no Ray cluster on this machine (none was started): start one with `ray start --head`, or name one in RAY_ADDRESS"),
    ],
    ids=["nobody answers", "none was started"],
)  # fmt: skip
def test_a_cluster_that_is_not_there(
    address: str, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ray.is_initialized", lambda: False)
    monkeypatch.setattr(cluster, "_CURRENT", str(tmp_path / "none"))
    monkeypatch.setenv("RAY_ADDRESS", address)
    with pytest.raises(RequestRefusedError) as refused:
        cluster.connect()
    assert str(refused.value) == text


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a file away")
def test_a_note_of_another_user_is_not_followed(tmp_path: Path) -> None:
    note = tmp_path / "ray_current_cluster"
    note.write_text("127.0.0.1:6379")
    assert cluster._current(note) == "127.0.0.1:6379"  # pyright: ignore[reportPrivateUsage]
    os.chown(note, 4321, 4321)
    with pytest.raises(PermissionError, match="belongs to another user"):
        cluster._current(note)  # pyright: ignore[reportPrivateUsage]


async def test_a_node_says_when_the_program_has_ended_and_files_come_back(tmp_path: Path) -> None:
    node = cluster.Node(EngineOptions(), OfANode)
    node._engine = OfANode(Slot("local:0", (("device", 0),)), EngineOptions())  # what Ray would tell it
    request = Request(name="quick", text=KERNEL, files={"folder": str(tmp_path)})
    said = [each async for each in node.perform("j", json.dumps(asdict(request)), "")]
    assert [kind for kind, _ in said] == ["begun", "stage", "stage", "result"]
    assert [known for kind, known in said if kind == "stage"] == [("running", ""), ("finishing", "")]
