"""Whatever dies, and at whatever byte of a message: the other side has one answer, and the next job is served.

The workers are real but for one, a script that says a part of an answer and ends.
"""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import socket
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from orbit_lsp.cli.machine import doctor
from orbit_lsp.runners import local
from orbit_lsp.runners.local import LocalOptions, LocalRunner
from orbit_lsp.state import user_folders
from orbit_remote.common import handshake
from orbit_remote.common import messages as c
from orbit_remote.common.requests import Cancel, Job
from orbit_remote.process import program
from tests import processes_check
from tests.test_shared_worker import Clients, clients, last, socket_in, workers

__all__ = ["clients"]
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="workers are shared on Linux")

ANSWER = c.encode(c.Finished("r", "ok", stdout="é" * 9)).encode() + b"\n"


async def test_a_client_may_vanish_at_any_byte(clients: Clients, shared_workers: Path) -> None:
    runner = clients.client()
    await runner.machine()
    path = socket_in(shared_workers)
    hello = handshake.encode(
        "hello", handshake.Hello(path.stem, "vanishes", {}, (), sys.executable, 1 << 20, 0.0)
    )
    job = Job("r", "compile", "cuda", "/k.cu", "", nvcc=str(clients.folder / "no" / "nvcc"))
    words = hello + c.encode(job).encode() + b"\n" + c.encode(Cancel("r")).encode() + b"\n"
    for cut in range(0, len(words), 7):
        _, writer = await asyncio.open_unix_connection(path)
        writer.write(words[:cut])
        writer.transport.abort() if cut % 2 else writer.close()
    assert await runner.machine()
    async with asyncio.timeout(processes_check.LIMIT_S):
        while await workers() != ["Neovim"]:  # those that said hello are still being left
            await runner.machine()


@pytest.mark.parametrize("sent", range(0, len(ANSWER.rstrip()), 20))
async def test_a_worker_may_die_at_any_byte_of_its_answer(tmp_path: Path, sent: int) -> None:
    (tmp_path / "part").write_bytes(ANSWER[:sent])
    script = tmp_path / "python"
    script.write_text(f"#!/bin/sh\nread job\ncat '{tmp_path}/part'\nkill -9 $$\n")
    script.chmod(0o755)
    runner = LocalRunner(LocalOptions(python=str(script), cache=str(tmp_path / "cache"), shared=False))
    async with asyncio.timeout(processes_check.LIMIT_S):
        (finished,) = [event async for event in runner.run(Job("r", "compile", "cuda", "/k.cu", ""))]
    await runner.close()
    assert isinstance(finished, c.Finished)
    assert finished.outcome == "infrastructure"


async def test_a_compiler_that_kills_its_parent_ends_its_job_alone(clients: Clients) -> None:
    runner = clients.client()
    harmless = clients.hangs
    clients.hangs = clients.compiler(
        clients.folder / "angry",
        '#!/bin/sh\ncase "$*" in *--version) echo V13.0.1;; *) kill -9 $PPID;; esac\n',
    )
    failure = last(await clients.compile(runner)).failure
    assert failure
    assert (failure.category, failure.retryable) == ("infrastructure", True)
    clients.hangs = harmless
    job = asyncio.create_task(clients.compile(runner, "next"))
    await clients.compilers(1)
    job.cancel()
    await asyncio.wait([job])


@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("os.closerange(0, 256); os._exit(3)", 3),
        ("os.closerange(0, 256); time.sleep(0.05); os.abort()", -signal.SIGABRT),
    ],
    ids=["closes everything", "closes everything and aborts"],
)
async def test_what_a_program_does_to_its_process_is_its_own_end(
    tmp_path: Path, code: str, status: int
) -> None:
    command = [sys.executable, "-c", f"import os, time; {code}"]
    async with asyncio.timeout(processes_check.LIMIT_S):
        ended = await program.run(
            command, cwd=str(tmp_path), env=dict(os.environ), stdin="", timeout_s=processes_check.LIMIT_S,
            started=lambda pgid, alive: None, output=lambda stream, text: None,
        )  # fmt: skip
    assert ended.status == status


async def test_a_full_runtime_folder_leaves_a_worker_of_ones_own(
    clients: Clients, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted: list[str] = []

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    async def own(options: LocalOptions, _: Path) -> None:
        wanted.append(options.client)
        raise local.WorkerError("it is not started here")

    monkeypatch.setattr(socket.socket, "bind", full)
    monkeypatch.setattr(local._Pipes, "start", own)
    assert await clients.client().machine() is None
    assert wanted == ["Neovim"]


def test_a_worker_of_another_cache_folder_is_said_to_be_one(tmp_path: Path) -> None:
    own = handshake.Status(7, "python", "3.12.3", "0.1.0", 0.0, cache=str(user_folders.cache_folder()))
    assert "another installation" not in doctor.worker_text(own, "", 0.0)
    other = replace(own, cache=str(tmp_path))
    assert f"of another installation, with the cache {tmp_path}" in doctor.worker_text(other, "", 0.0)


def test_the_doctor_names_the_projects_worker_first_and_others_in_one_line(tmp_path: Path) -> None:
    own = handshake.Status(7, "/venv/python", "3.12.3", "0.1.0", 0.0, cache=str(user_folders.cache_folder()))
    elsewhere = replace(own, cache=str(tmp_path))
    workers = [
        replace(elsewhere, pid=3),
        replace(own, pid=5, python="/other/python"),
        own,
        replace(elsewhere, pid=9),
    ]
    lines = doctor.worker_lines(workers, "/venv/python", "", 0.0)
    assert [line.partition(",")[0] for line in lines] == [
        "worker    process 7", "worker    process 5", "workers   of other installations: processes 3",
    ]  # fmt: skip
    assert lines[2].endswith(": processes 3, 9")


def test_a_clock_that_was_set_back_makes_no_age_negative() -> None:
    worker = handshake.Status(7, "python", "3.12.3", "0.1.0", time.time() + 3600, ("Neovim",), 1, 0, False)
    assert doctor.worker_text(worker, "", time.time()).startswith("process 7, for 0 min, ")
    assert "for 60 min" in doctor.worker_text(replace(worker, since=time.time() - 3600), "", time.time())
