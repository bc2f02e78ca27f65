"""Jobs without an editor: order, places, limits, cancelling, and what is left of a process that was killed.

The engine here is made up: it runs nothing, and each job ends when the test says so. `e2e/test_jobs.py` has the real one.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import re
import sqlite3
import subprocess
import sys
import zlib
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from orbit_lsp.queue import gpu_check, job_queue, job_store, pool, request, result_text
from orbit_lsp.queue.job_queue import JobQueue
from orbit_lsp.queue.job_store import JobStore, Result, StoredJob
from orbit_lsp.queue.owners import Owner
from orbit_lsp.queue.pool import Slot
from orbit_lsp.queue.request import Request, RequestRefusedError
from orbit_lsp.queue.slot_engine import Stage
from orbit_remote.common import messages as c
from orbit_remote.common.measurements import Telemetry, Timing

WAIT_S = 150
KERNEL = "__global__ void k() {}\n"


class Stand:
    """Stands in for GPUs: says which jobs begin where, and ends them when `go` does."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.ended: list[str] = []
        self.most = 0
        self.gates: dict[str, asyncio.Event] = {}
        self.checks: list[str] = []
        """What checks of a GPU answer, one after the other: `50 µs, 1 GiB`, or how the check fails; `sound` when none is left."""

    def gate(self, name: str) -> asyncio.Event:
        return self.gates.setdefault(name, asyncio.Event())

    def beginning(self, name: str) -> asyncio.Event:
        return self.gate(f"{name} begins")

    def engine(self, slot: Slot) -> _Engine:
        return _Engine(self, slot)

    async def until_begun(self, name: str) -> None:
        async with asyncio.timeout(WAIT_S):
            await self.beginning(name).wait()


class _Engine:
    def __init__(self, stage: Stand, slot: Slot) -> None:
        self._stage, self._slot = stage, slot

    async def ready(self) -> str:
        return ""

    async def prepare(self, job: str, request: Request) -> None:
        del job
        name = request.name.partition(".")[0]
        if request.name.endswith(".cu") and "built" not in name:
            return
        self._stage.beginning(f"build of {name}").set()
        try:
            await self._stage.gate(f"build of {name}").wait()
        finally:
            self._stage.ended.append(f"build of {name}")
        if "broken" in name:
            raise RuntimeError("a fault of ours")

    async def perform(self, job: str, request: Request, stage: Stage) -> Result:
        shown, name = self._stage, request.name.removesuffix(".cu")
        if request == gpu_check.KNOWN:
            return _checked(job, shown.checks.pop(0) if shown.checks else "50 µs, 1 GiB")
        shown.begun.append(f"{self._slot.name} {name}")
        shown.beginning(name).set()
        stage("running", "")
        try:
            if "waits" in name:
                await shown.gate(name).wait()
            if "fault" in name:
                raise RuntimeError("a fault of ours")
            if "crash" in name:
                return Result(c.failed(job, c.Failure("runtime error", "illegal address")))
        finally:
            shown.ended.append(name)
        return Result(c.ok(job))

    async def close(self) -> None: ...


def _checked(job: str, text: str) -> Result:
    if not (match := re.fullmatch(r"(\d+) µs, (\d+) GiB", text)):
        return Result(c.failed(job, c.Failure("timed out", text)))
    timing = Timing(100, 1000.0 * int(match[1]), "")
    launches = c.Launches("copies", "copies", (1, 1, 1), (1, 1, 1), timing, 100)
    return Result(c.ok(job, launches=(launches,), telemetry=Telemetry(1, memory_used=int(match[2]) << 30)))


def asks(name: str, **more: object) -> Request:
    return Request(name=f"{name}.cu", text=KERNEL, **more)  # type: ignore[arg-type]


@asynccontextmanager
async def queue(
    folder: Path,
    slots: str = "local:0",
    door: str = "test",
    shown: Stand | None = None,
    *,
    guarded: bool = False,
) -> AsyncGenerator[tuple[JobQueue, Stand]]:
    shown = shown or Stand()
    jobs = JobQueue(JobStore(folder / "jobs.sqlite"), pool.parse(slots), shown.engine, door, guarded=guarded)
    await jobs.start()
    try:
        yield jobs, shown
    finally:
        await jobs.close()


async def over(jobs: JobQueue, *known: StoredJob) -> list[str]:
    """`name: outcome` of each."""
    async with asyncio.timeout(WAIT_S):
        ended = [await jobs.wait(job.id) for job in known]
    return [f"{job.file.removesuffix('.cu')}: {job.outcome}" for job in ended if job]


async def test_the_urgent_goes_first_then_the_older(tmp_path: Path) -> None:
    async with queue(tmp_path) as (jobs, shown):
        first = await jobs.submit(asks("waits"))
        await shown.until_begun("waits")
        rest = [
            await jobs.submit(asks(name, priority=priority))
            for name, priority in [
                ("a", "low"),
                ("b", "normal"),
                ("d", "high"),
                ("c", "normal"),
                ("e", "high"),
            ]
        ]
        assert [jobs.position(job.id) for job in (first, *rest)] == [None, 4, 2, 0, 3, 1]
        shown.gate("waits").set()
        await over(jobs, first, *rest)
    assert shown.begun == [f"local:0 {name}" for name in ("waits", "d", "e", "b", "c", "a")]


def builds(name: str, **more: object) -> Request:
    """A candidate that builds an extension when it is imported."""
    text = "from torch.utils.cpp_extension import load_inline\nclass ModelNew: ...\n"
    return Request(name=f"{name}.py", text=text, **more)  # type: ignore[arg-type]


async def test_what_builds_an_extension_keeps_no_other_from_the_gpu(tmp_path: Path) -> None:
    async with queue(tmp_path) as (jobs, shown):
        slow, broken = [await jobs.submit(builds(name)) for name in ("slow", "broken")]
        for name in ("slow", "broken"):
            await shown.until_begun(f"build of {name}")
        assert await over(jobs, await jobs.submit(asks("next"))) == ["next: ok"]
        shown.gate("build of broken").set()  # its run builds what is missing
        assert await over(jobs, broken) == ["broken.py: ok"]
        shown.gate("build of slow").set()
        assert await over(jobs, slow) == ["slow.py: ok"]
    assert shown.begun == ["local:0 next", "local:0 broken.py", "local:0 slow.py"]


@pytest.mark.parametrize("how", ["built", "cancelled"])
async def test_kernels_of_jobs_that_wait_are_built_beside_the_one_that_runs(tmp_path: Path, how: str) -> None:
    """No job overtakes another because of it."""
    async with queue(tmp_path) as (jobs, shown):
        await jobs.submit(asks("waits"))
        await shown.until_begun("waits")
        built, following = [await jobs.submit(asks(name)) for name in ("built", "next")]
        await shown.until_begun("build of built")
        shown.gate("waits").set()
        async for followed in jobs.follow(built.id):
            if followed.job.state == "starting":
                break
        if how == "cancelled":
            await jobs.cancel(built.id)
        shown.gate("build of built").set()
        assert await over(jobs, built, following) == [f"built: {'ok' if how == 'built' else how}", "next: ok"]
    assert shown.ended == ["waits", "build of built", *(["built"] if how == "built" else []), "next"]


async def test_the_next_kernel_is_built_when_another_has_been(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_queue, "BUILDS_AT_ONCE", 1)
    async with queue(tmp_path) as (jobs, shown):
        await jobs.submit(asks("waits"))
        await shown.until_begun("waits")
        await jobs.submit(asks("built-first"))
        await shown.until_begun("build of built-first")
        await jobs.submit(asks("built-second"))
        shown.gate("build of built-first").set()
        await shown.until_begun("build of built-second")
        assert shown.ended == ["build of built-first"]


@pytest.mark.parametrize(
    ("asked", "ahead"),
    [
        (asks("k"), True),
        (asks("k", action="profile"), True),
        (asks("k", action="compile"), False),
        (asks("k", path="/k.cu"), False),
        (asks("k", files={"x.tensor": "0" * (1 << 20)}), False),
        (Request(name="k.py", text=KERNEL), False),
    ],
    ids=["run", "profile", "compile", "file of the user's", "large", "Python"],
)
def test_what_is_built_ahead(asked: Request, ahead: bool) -> None:
    assert request.builds_ahead(asked) is ahead


@pytest.mark.parametrize("how", ["cancelled", "closed"])
async def test_a_build_ends_with_its_job(tmp_path: Path, how: str) -> None:
    async with queue(tmp_path) as (jobs, shown):
        job = await jobs.submit(builds("slow"))
        await shown.until_begun("build of slow")
        if how == "cancelled":
            await jobs.cancel(job.id)
            assert await over(jobs, job) == ["slow.py: cancelled"]
    assert (shown.begun, shown.ended) == ([], ["build of slow"])


async def test_the_limit_of_waiting_begins_when_the_build_has_ended(tmp_path: Path) -> None:
    async with queue(tmp_path) as (jobs, shown):
        first = await jobs.submit(asks("waits"))
        job = await jobs.submit(builds("slow", wait_limit_s=0.01))
        late = await jobs.submit(asks("late", wait_limit_s=0.01))
        assert await over(jobs, late) == ["late: timed out"]
        assert jobs.position(job.id) == 0
        shown.gate("build of slow").set()
        assert await over(jobs, job) == ["slow.py: timed out"]
        shown.gate("waits").set()
        await over(jobs, first)


@pytest.mark.parametrize(
    ("after", "why"),
    [
        ("50 µs, 1 GiB", None),
        ("52 µs, 1 GiB", None),
        ("80 µs, 1 GiB", "a copy of 64 MiB takes 80.0 µs, and took 50.0 µs when the server started"),
        ("50 µs, 9 GiB", "9.0 GiB of its memory are in use, and 1.0 GiB were when the server started"),
        ("it never ends", "a copy of 64 MiB ends as timed out: it never ends"),
    ],
)
async def test_a_gpu_that_a_job_left_in_another_state_takes_no_other(
    tmp_path: Path, after: str, why: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu_check, "AGAIN_S", 1e9)
    shown = Stand()
    shown.checks = ["50 µs, 1 GiB", "50 µs, 1 GiB", after]
    async with queue(tmp_path, "local:0,local:1", shown=shown, guarded=True) as (jobs, _):
        assert await over(jobs, await jobs.submit(asks("crash", gpu="local:0"))) == ["crash: runtime error"]
        behind = await jobs.submit(asks("next", gpu="local:0"))
        elsewhere = await jobs.submit(asks("free"))
        ended = await over(jobs, behind, elsewhere)
        assert ended == [f"next: {'infrastructure' if why else 'ok'}", "free: ok"]
        assert [place["aside"] for place in jobs.places()] == [why, None]
        if why:
            known = await jobs.wait(behind.id)
            assert known
            assert known.summary == f"infrastructure: the GPU local:0 is set aside: {why}"


async def test_a_gpu_takes_jobs_again_when_it_is_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu_check, "AGAIN_S", 0.0)
    shown = Stand()
    shown.checks = ["50 µs, 1 GiB", *["50 µs, 9 GiB"] * 5]
    async with queue(tmp_path, shown=shown, guarded=True) as (jobs, _):
        assert await over(jobs, await jobs.submit(asks("crash"))) == ["crash: runtime error"]
        async with asyncio.timeout(WAIT_S):
            while shown.checks or jobs.places()[0]["aside"]:
                await jobs.change().wait()
        assert await over(jobs, await jobs.submit(asks("next"))) == ["next: ok"]


async def test_a_pool_runs_a_job_in_each_place_and_a_job_may_ask_for_one(tmp_path: Path) -> None:
    async with queue(tmp_path, "local:0,modal:H100*2") as (jobs, shown):
        known = [
            await jobs.submit(asks(name, gpu=gpu))
            for name, gpu in [("waits1", "local:0"), ("waits2", "h100"), ("waits3", ""), ("waits4", "H100")]
        ]
        for name in ("waits1", "waits2", "waits3"):
            await shown.until_begun(name)
        assert sorted(shown.begun) == ["local:0 waits1", "modal:H100#1 waits2", "modal:H100#2 waits3"]
        assert [jobs.position(job.id) for job in known] == [None, None, None, 0]
        compiled = await jobs.submit(asks("compiled", action="compile"))  # no GPU is free, and none is needed
        assert await over(jobs, compiled) == ["compiled: ok"]
        for name in ("waits2", "waits4", "waits1", "waits3"):
            shown.gate(name).set()
        assert await over(jobs, *known) == [f"waits{number}: ok" for number in (1, 2, 3, 4)]


@pytest.mark.parametrize(
    ("gpu", "compiled_for"),
    [("modal:L4", "L4"), ("modal:L4#1", "L4"), ("A10G", "A10G"), ("", "")],
)
async def test_a_compile_is_for_the_gpu_of_the_place_that_it_names(
    tmp_path: Path, gpu: str, compiled_for: str
) -> None:
    async with queue(tmp_path, "local:0,modal:L4*1") as (jobs, _):
        job = await jobs.submit(asks("compiled", action="compile", gpu=gpu))
        assert job.gpu == compiled_for
        with pytest.raises(RequestRefusedError, match="'local:0' is not a GPU that code can be compiled for"):
            await jobs.submit(asks("compiled", action="compile", gpu="local:0"))  # its GPU is not known


async def test_what_is_cancelled_ends_before_the_answer(tmp_path: Path) -> None:
    async with queue(tmp_path) as (jobs, shown):
        running, waiting = await jobs.submit(asks("waits")), await jobs.submit(asks("second"))
        await shown.until_begun("waits")
        assert (await jobs.cancel(waiting.id) or waiting).outcome == "cancelled"
        assert (await jobs.cancel(running.id[:8]) or running).outcome == "cancelled"
        assert shown.ended == ["waits"]
        assert await jobs.cancel("0" * 16) is None
        assert (await jobs.cancel(running.id) or running).outcome == "cancelled"  # again
        assert await over(jobs, await jobs.submit(asks("next"))) == ["next: ok"]


async def test_another_process_cancels(tmp_path: Path) -> None:
    async with queue(tmp_path) as (jobs, shown):
        job = await jobs.submit(asks("waits"))
        await shown.until_begun("waits")
        JobStore(tmp_path / "jobs.sqlite").cancel(job.id)
        assert await over(jobs, job) == ["waits: cancelled"]


async def test_waiting_has_a_limit_and_a_fault_of_ours_takes_no_place_away(tmp_path: Path) -> None:
    async with queue(tmp_path) as (jobs, shown):
        first = await jobs.submit(asks("waits"))
        await shown.until_begun("waits")
        impatient = await jobs.submit(asks("impatient", wait_limit_s=0.01))
        assert await over(jobs, impatient) == ["impatient: timed out"]
        result = jobs.store.result(impatient.id)
        assert result
        assert result["finished"]["failure"]["message"] == (
            "it waited 0.01 s for local:0, the limit of waiting, and was not started"
        )
        shown.gate("waits").set()
        known = [first, await jobs.submit(asks("fault")), await jobs.submit(asks("after"))]
        assert await over(jobs, *known) == ["waits: ok", "fault: infrastructure", "after: ok"]


async def test_a_job_without_a_limit_waits_and_is_told_for_how_long(tmp_path: Path) -> None:
    async with queue(tmp_path) as (jobs, shown):
        await over(jobs, await jobs.submit(asks("known")))
        first = await jobs.submit(asks("waits"))
        await shown.until_begun("waits")
        job = await jobs.submit(asks("patient"))
        (entry,) = jobs._waiting
        assert (entry.limit_s, entry.expiry) == (None, None)
        followed = jobs.followed(job.id)
        assert followed
        assert followed.predicted
        assert (followed.predicted.good, followed.predicted.of) == (1.0, 2)
        told = result_text.as_json(jobs.store, followed, whole=False)
        assert (told["waited_s"], told["predictions_good"], told["predictions"]) == (None, 1.0, 2)
        assert told["predicted_wait_s"] >= 0
        shown.gate("waits").set()
        assert await over(jobs, first, job) == ["waits: ok", "patient: ok"]
        ended = jobs.followed(job.id)
        assert ended
        assert ended.predicted is None
        assert ended.job.waited_s is not None
        assert ended.job.waited_s >= 0
        waited, took = jobs.forecast.figures()["author"]
        assert waited
        assert took
        assert (waited.n, took.n) == (3, 3)


async def test_a_clock_that_is_set_back_changes_no_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = itertools.count(2e9, -3600)
    async with queue(tmp_path) as (jobs, shown):
        monkeypatch.setattr(job_store, "time", SimpleNamespace(time=lambda: next(now)))
        known = [await jobs.submit(asks(name, wait_limit_s=60)) for name in ("waits", "second", "third")]
        shown.gate("waits").set()
        assert await over(jobs, *known) == ["waits: ok", "second: ok", "third: ok"]
        assert [job.id for job in jobs.store.jobs()] == [job.id for job in reversed(known)]
        assert shown.ended == ["waits", "second", "third"]


async def test_a_key_names_one_job(tmp_path: Path) -> None:
    async with queue(tmp_path) as (jobs, shown):
        first = await jobs.submit(asks("once", key="k1"))
        await over(jobs, first)
        assert (await jobs.submit(asks("once", key="k1"))).id == first.id
        with pytest.raises(
            RequestRefusedError, match=f"the key k1 was used for another request, job {first.id}"
        ):
            await jobs.submit(asks("twice", key="k1"))
        assert shown.begun == ["local:0 once"]


async def test_a_key_of_an_earlier_version_whose_requests_had_fewer_fields(tmp_path: Path) -> None:
    async with queue(tmp_path) as (jobs, shown):
        first = await jobs.submit(asks("once", key="k1"))
        await over(jobs, first)
        with contextlib.closing(sqlite3.connect(jobs.store.path)) as file, file:
            (packed,) = file.execute("select request from jobs").fetchone()
            kept = json.loads(zlib.decompress(packed))
            del kept["wait_limit_s"]
            file.execute("update jobs set request = ?", (zlib.compress(json.dumps(kept).encode()),))
        assert (await jobs.submit(asks("once", key="k1"))).id == first.id
        assert shown.begun == ["local:0 once"]


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        (
            asks("../k"),
            "'../k.cu' is not a valid file name: use letters, digits and . + - _, without folders",
        ),
        (Request(name="k.txt", text="x"), "k.txt is not a .cu, .cuh or .py file"),
        (Request(name="k.cu", text=" \n"), "k.cu is empty"),
        (asks("k", files={"../up.h": ""}), "'../up.h' is not a path below the job's folder"),
        (asks("k", files={"/etc/up.h": ""}), "'/etc/up.h' is not a path below the job's folder"),
        (asks("k", files={"k.cu": ""}), "k.cu is both the file of the job and one of the files beside it"),
        (
            asks("k", action="dance"),
            "'dance' is not an action; use one of run, profile, check, compile, compare",
        ),
        (
            asks("k", action="compare"),
            "compare needs `against`: the other file, or the name of the other text",
        ),
        (asks("k", flags=("-ccbin", "/tmp/x")), "a compiler flag is not permitted: -ccbin is left out"),
        (asks("k", tools=("magic",), action="check"), "'magic' is not a tool of a check; use"),
        (asks("k", timeout_s=0.0), "timeout_s is 0; it must be more than 0 and at most 3600 seconds"),
        (asks("k", wait_limit_s=float("nan")), "wait_limit_s is nan; it must be more than 0"),
        (asks("k", key="a b"), "the key must be up to 200 printable ASCII characters without spaces"),
        (asks("k", version=2), "the request has version 2, this orbit-lsp knows 1"),
    ],
)
def test_a_request_that_cannot_be_a_job(wanted: Request, message: str) -> None:
    with pytest.raises(RequestRefusedError) as why:
        request.check(wanted, trusted=False)
    assert str(why.value).startswith(message)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("local:0,local:1", "local:0 local:1"),
        ("modal:h100*2, local:3", "modal:H100#1 modal:H100#2 local:3"),
        ("local:0-1,local:2", "local:0-1 local:2"),
        ("ray*2,ray:A100*1", "ray#1 ray#2 ray:A100#1"),
        ("local:3-1", "local:3-1 is no place of 2 to 8 GPUs; write local:0-1"),
        ("modal:rtx-pro-6000", "modal:RTX PRO 6000#1"),
        (
            "gpu7",
            "'gpu7' is not a place of a pool; write local:0, ssh:HOST:0, modal:H100*4 or ray*8, with commas between",
        ),
        ("modal:H900", "'H900' is not one of the GPUs on Modal: T4, L4"),
        ("local:0,local:0", "local:0 is in the pool twice"),
        (
            " , ",
            "the pool names no GPU; write local:0, ssh:HOST:0, modal:H100*4 or ray*8, with commas between",
        ),
    ],
)
def test_pools(text: str, names: str) -> None:
    try:
        result = " ".join(slot.name for slot in pool.parse(text))
    except RequestRefusedError as why:
        result = str(why)
    assert result.startswith(names)


def test_the_pool_of_a_machine_is_all_of_its_gpus() -> None:
    devices = tuple(c.Device(f"NVIDIA H{index}00", index) for index in (1, 2))
    machine = c.Machine("m", c.RESULT_VERSION, "python", "3.11", devices=devices)
    assert [(slot.name, slot.gpu) for slot in pool.of_machine(machine, rented="L4")] == [
        ("local:1", "NVIDIA H100"),
        ("local:2", "NVIDIA H200"),
    ]
    assert [slot.name for slot in pool.of_machine(None, rented="L4")] == ["modal:L4#1"]
    assert [slot.name for slot in pool.of_machine(None, rented="")] == ["local:0"]


@pytest.mark.parametrize(
    ("places", "indices", "shown"),
    [
        ("local:1,modal:L4", (0, 1), ["local:1 NVIDIA H100", "modal:L4#1 L4"]),
        ("local:0-1,local:0-2", (0, 1), ["local:0-1", "local:0-2 this machine has no GPU 2: it has 0, 1"]),
        ("local:7,ray:H100*1", (0,), ["local:7 this machine has no GPU 7: it has 0", "ray:H100#1 H100"]),
        ("local:0", (), ["local:0 this machine has no NVIDIA GPU"]),
    ],
)
async def test_a_place_without_a_gpu_says_so(
    tmp_path: Path, places: str, indices: tuple[int, ...], shown: list[str]
) -> None:
    devices = tuple(c.Device("NVIDIA H100", index) for index in indices)
    machine = c.Machine("m", c.RESULT_VERSION, "python", "3.11", devices=devices)
    slots = pool.named(pool.parse(places), machine)
    jobs = JobQueue(JobStore(tmp_path / "jobs.sqlite"), slots, Stand().engine, "api")
    lines = [
        f"{place['name']} {place['gpu'] or place.get('absent') or ''}".strip() for place in jobs.places()
    ]
    assert lines == shown
    if not devices:
        assert pool.of_machine(machine, rented="") == slots


# -- a process that is killed -----------------------------------------------------------------------

KILLED = """
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from orbit_lsp.queue.job_store import JobStore
from orbit_lsp.queue.owners import Owner
from orbit_lsp.queue.request import Request
store = JobStore(Path(sys.argv[1]))
owner = Owner(store.owners)
for name in ("running", "waiting"):
    job, _ = store.add(Request(name=name + ".cu", text="x", key=name), owner.id, sys.argv[2])
    if name == "running":
        store.phase(job.id, "running")
print("ready", flush=True)
sys.stdin.read()
"""


def killed(path: Path, door: str) -> list[list[str]]:
    """What is said of the jobs of a process while it lives, and once it was killed."""
    command = [sys.executable, "-c", KILLED, str(path), door]
    seen: list[list[str]] = []
    store = JobStore(path)
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout
        assert process.stdout.readline() == b"ready\n"
        seen.append([f"{job.file} {job.outcome or job.state}" for job in store.jobs()])
        process.kill()
        process.wait(WAIT_S)
    seen.append([f"{job.file} {job.summary or job.state}" for job in store.jobs()])
    return seen


def test_jobs_of_a_process_that_was_killed_say_so(tmp_path: Path) -> None:
    path = tmp_path / "jobs.sqlite"
    assert killed(path, "mcp") == [
        ["waiting.cu queued", "running.cu running"],
        [
            "waiting.cu infrastructure: orbit-lsp was killed or crashed while this job waited",
            "running.cu infrastructure: orbit-lsp was killed or crashed while this job ran",
        ],
    ]
    store = JobStore(path)
    again, fresh = store.add(Request(name="running.cu", text="x", key="running"), "somebody", "mcp")
    assert (fresh, again.state) == (True, "queued")  # nothing was measured: the same key runs it again
    assert store.prune(0) == 3  # nobody has that job either


async def test_the_next_server_takes_what_waited_for_a_killed_one(tmp_path: Path) -> None:
    assert [message.partition(": orbit")[0] for message in killed(tmp_path / "jobs.sqlite", "api")[1]] == [
        "waiting.cu queued",
        "running.cu infrastructure",
    ]
    async with queue(tmp_path, door="api") as (jobs, shown):
        await shown.until_begun("waiting")
        [job] = [job for job in jobs.store.jobs() if job.file == "waiting.cu"]
        assert await over(jobs, job) == ["waiting: ok"]


def test_who_is_alive(tmp_path: Path) -> None:
    from orbit_lsp.queue import owners

    owner = Owner(tmp_path)
    assert owners.alive(tmp_path, owner.id)
    owner.close()
    assert not owners.alive(tmp_path, owner.id)
    assert not owners.alive(tmp_path, "")
    assert not list(tmp_path.iterdir())


def test_of_many_jobs_those_that_are_asked_for_are_read_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = JobStore(tmp_path / "jobs.sqlite")
    own = Owner(store.owners)
    known = [store.add(asks(f"{number}"), own.id, "api")[0].id for number in range(300)]
    for job in known[:-1]:
        store.end(job, Result(c.ok(job)), "ok")
    steps: list[None] = []
    connect = sqlite3.connect

    def counted(*words: Any, **named: Any) -> sqlite3.Connection:
        file = connect(*words, **named)
        file.set_progress_handler(lambda: steps.append(None), 100)
        return file

    monkeypatch.setattr(sqlite3, "connect", counted)
    assert store.job(known[0])
    assert store.job(known[0][:10].upper())
    assert store.cancelling(own.id) == []
    store.sweep()
    assert len(steps) < 10  # 54 where every row is read
    assert [job.id for job in store.jobs(under_way=True)] == [known[-1]]
    own.close()
