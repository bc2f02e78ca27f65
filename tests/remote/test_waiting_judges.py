"""Judges whose sides wait for a job, with the real torch and without a GPU: what they are given, and when they end."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import resource
import socket
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import psutil
import pytest
import pytest_asyncio

from orbit_remote.child import child_main
from orbit_remote.common import messages as c
from orbit_remote.common.requests import Job
from orbit_remote.judge import judge_main, locks
from orbit_remote.process import program
from orbit_remote.worker import children, context, prefork
from tests import cheats
from tests.processes_check import is_alive

pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="no torch here"),
    pytest.mark.skipif(sys.platform != "linux", reason="the judge is for Linux"),
    pytest.mark.asyncio(loop_scope="module"),
]

ENV = program.environment(os.environ)
HONEST = cheats.HONEST.text("cpu")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def pool(tmp_path_factory):
    cache = tmp_path_factory.mktemp("cache")
    pool = prefork.PreforkPool(cache=cache, scratches=cache, device="cpu")
    yield pool
    await pool.close()


async def finish(child: children.Child) -> c.Finished:
    events = [event async for event in child.events()]
    await child.wait()
    await child.close()
    assert isinstance(events[-1], c.Finished), events
    return events[-1]


async def waiting(pool: prefork.PreforkPool, folder: Path) -> int:
    """The process of a judge that waits, because one has timed its candidate."""
    before = await pool.take(cheats.job_of(folder, HONEST), ENV)
    pool.judge_follows(before, 0, lambda: True)
    await asyncio.gather(*pool._renewing)
    await before.close()
    assert pool._judge
    await pool._judge[0].ready()
    assert pool.waiting_judge
    return pool.waiting_judge


LOOKS = """
import os, tempfile
assert (os.environ["OURS"], os.environ.get("PWD")) == ("1", None), os.environ
assert tempfile.gettempdir().startswith(os.getcwd()), tempfile.gettempdir()
"""


async def test_a_judge_that_waits_gets_the_next_job_its_environment_and_no_other(pool, tmp_path):
    pid = await waiting(pool, tmp_path)
    sides = psutil.Process(pid).children()
    assert len(sides) == 2
    own = {name: value for name, value in ENV.items() if name != "PWD"} | {"OURS": "1"}
    child = await pool.take(cheats.job_of(tmp_path, LOOKS + HONEST), own)
    assert child.pid == pid
    finished = await finish(child)
    assert (finished.outcome, finished.judged and finished.judged.grade) == ("ok", "referee"), finished
    assert not any(is_alive(side.pid) for side in sides)
    assert pool.waiting_judge is None
    assert not child.folder.exists()


async def test_what_triton_builds_of_its_own_is_there_and_nothing_that_a_candidate_leaves(pool, tmp_path):
    kept = pool._cache / "judge-triton"
    (kept / "a digest").mkdir(parents=True)
    (kept / "a digest" / "cuda_utils.so").write_bytes(b"\x7fELF")
    await waiting(pool, tmp_path)
    seen = pool._judge[0].folder / "waiting"
    assert (seen / "candidate" / "triton" / "a digest" / "cuda_utils.so").read_bytes() == b"\x7fELF"
    assert not list((seen / "reference" / "triton").iterdir())
    leaves = "import os\nos.makedirs(os.path.join(os.environ['TRITON_CACHE_DIR'], 'left', 'here'))\n"
    finished = await finish(await pool.take(cheats.job_of(tmp_path, leaves + HONEST), ENV))
    assert finished.outcome == "ok", finished
    await waiting(pool, tmp_path)
    assert [path.name for path in kept.iterdir()] == ["a digest"]
    assert not (pool._judge[0].folder / "waiting" / "candidate" / "triton" / "left").exists()


async def test_no_code_of_an_author_runs_beside_it(pool, tmp_path):
    pid = await waiting(pool, tmp_path)
    processes = [pid, *(side.pid for side in psutil.Process(pid).children())]
    job = Job("1", "run", "triton", "/no/such/folder/kernels.py", "import time\ndef main(): time.sleep(600)")
    child = await pool.take(job, ENV)
    assert not any(is_alive(process) for process in processes)
    assert pool.waiting_judge is None
    pool.judge_follows(child, 0, lambda: True)  # whatever it says: it is none
    await asyncio.gather(*pool._renewing)
    assert pool.waiting_judge is None
    judged = await pool.take(cheats.job_of(tmp_path, HONEST), ENV)
    pool.judge_follows(judged, 0, lambda: True)  # beside the author's job
    await asyncio.gather(*pool._renewing)
    assert pool.waiting_judge is None
    for each in (child, judged):
        await each.close()


async def test_another_job_of_the_worker_ends_it_and_has_none_beside_it(pool, tmp_path):
    """A program of CUDA, say, which has no process of the pool."""
    pid = await waiting(pool, tmp_path)
    shared = context.Shared(tmp_path)
    shared._spares = pool
    client = context.WorkerContext(shared, context.WorkerClient(lambda _: None, ENV), asyncio.sleep)
    judged = cheats.job_of(tmp_path, HONEST)
    async with client.beside_judges(judged):
        assert pool.waiting_judge == pid
    async with client.beside_judges(Job("1", "run", "cuda", str(tmp_path / "k.cu"), "")):
        assert not psutil.pid_exists(pid)
        child = await pool.take(judged, ENV)
        client.judge_follows(child, judged)
        await asyncio.gather(*pool._renewing)
        assert pool.waiting_judge is None
    await child.close()


async def test_a_job_for_another_gpu_or_with_another_path_gets_a_judge_of_its_own(pool, tmp_path):
    job = cheats.job_of(tmp_path, HONEST)
    for other, env in ((replace(job, device=1), ENV), (job, ENV | {"PATH": "/usr/bin:/bin"})):
        pid = await waiting(pool, tmp_path)
        child = await pool.take(other, env)
        assert child.pid != pid
        assert not psutil.pid_exists(pid)
        await child.close()


async def test_where_none_can_wait_the_next_job_has_one_that_did_not(tmp_path):
    """No judge can wait where there is no GPU, or where its memory is full. The test hides the GPU."""
    pool = prefork.PreforkPool(cache=tmp_path, scratches=tmp_path)
    none = ENV | {"CUDA_VISIBLE_DEVICES": ""}
    try:
        before = await pool.take(cheats.job_of(tmp_path, HONEST), none)
        pool.judge_follows(before, 0, lambda: True)
        await asyncio.gather(*pool._renewing)
        await before.close()
        failed = pool._judge[0] if pool._judge else None
        child = await pool.take(cheats.job_of(tmp_path, HONEST), none)
        assert child is not failed
        assert child.prepared
        await child.close()
        assert not [path for path in (child.folder, failed and failed.folder) if path and path.exists()]
    finally:
        await pool.close()


REACHES = """
import ctypes, glob, os, signal
library = ctypes.CDLL(None, use_errno=True)
def tried(what):
    try:
        return what()
    except (OSError, PermissionError):
        return None
for pid in {pids}:
    assert tried(lambda: os.kill(pid, 0) or True) is None, "a signal"
    assert library.ptrace(16, pid, 0, 0) == -1, "traced"
    assert tried(lambda: os.pidfd_open(pid)) is None, "a descriptor of a process"
    for name in ("mem", "environ", "maps", "fd", "cwd", "root"):
        assert tried(lambda: os.listdir(f"/proc/{{pid}}/{{name}}") if name in ("fd", "cwd", "root") else open(f"/proc/{{pid}}/{{name}}", "rb").read(1)) is None, name
assert tried(lambda: os.listdir({folder!r})) is None, "its folder"
assert tried(lambda: open({folder!r} + "/waiting/candidate/triton/planted", "w")) is None, "its cache"
"""


async def test_a_candidate_beside_it_reaches_nothing_of_it(pool, tmp_path):
    pid = await waiting(pool, tmp_path)
    pids = [pid, *(side.pid for side in psutil.Process(pid).children())]
    folder = pool._judge[0].folder
    text = REACHES.format(pids=pids, folder=str(folder)) + HONEST
    finished = await asyncio.to_thread(
        cheats.judge_in_a_fork,
        lambda: judge_main.judge(
            cheats.job_of(tmp_path, text), lambda _: None, tmp_path / "cache", "cpu", most_s=0.0
        ),
    )
    assert finished.outcome == "ok", finished
    assert pool.waiting_judge == pid


def held_by(pid: int) -> set[str]:
    return {str(path.readlink()) for path in Path(f"/proc/{pid}/fd").iterdir()}


async def test_what_waits_holds_no_file_and_no_connection_of_others(pool, tmp_path):
    pid = await waiting(pool, tmp_path)
    for side in psutil.Process(pid).children():
        held = held_by(side.pid)
        sockets = [name for name in held if name.startswith("socket:")]
        assert len(sockets) == 1, held
        assert not [name for name in held if str(tmp_path) in name or "memfd" in name], held


async def test_sides_that_were_lost_while_they_waited_are_nobodys_failure(tmp_path, monkeypatch):
    ours, theirs = socket.socketpair()
    lost: Any = SimpleNamespace(device="cpu")
    monkeypatch.setattr(judge_main, "judge", mock.Mock(side_effect=OSError("the context is gone")))
    with ours, theirs:
        ours.sendall(child_main.order(cheats.job_of(tmp_path, HONEST), environment=ENV))
        pid = os.fork()
        if pid == 0:
            os._exit(judge_main.serve(theirs, tmp_path, lost))
        theirs.close()
        lines = await asyncio.to_thread(lambda: list(ours.makefile()))
    await asyncio.to_thread(os.waitpid, pid, 0)
    finished = child_main.decode_event(lines[-1])
    assert isinstance(finished, c.Finished)
    assert finished.failure
    assert (finished.outcome, finished.failure.retryable) == ("infrastructure", True)
    assert finished.failure.message.endswith("cannot be used any more: the context is gone")


async def test_processes_are_counted_anew_when_the_job_comes():
    """Those of the candidate before, beside which the sides began, are no longer there."""
    pid = os.fork()
    if pid == 0:
        locks.limit_processes(500)
        locks.limit_processes(5_000)
        os._exit(resource.getrlimit(resource.RLIMIT_NPROC) != (500, 500))
    assert (await asyncio.to_thread(os.waitpid, pid, 0))[1] == 0
