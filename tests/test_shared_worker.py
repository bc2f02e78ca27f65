"""One worker for all clients of a user: started once, each client with jobs and variables of its own, ended with care.

The workers are real processes; what they compile with is a script, which waits where a test wants a job under way.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, suppress
from pathlib import Path

import psutil
import pytest

from orbit_lsp.runners import local, shared_worker
from orbit_lsp.runners.local import LocalOptions, LocalRunner
from orbit_remote.common import messages as c
from orbit_remote.common import requests
from orbit_remote.common.requests import Job
from orbit_remote.process import file_lock, runtime_folder, worker_socket
from orbit_remote.worker.shared_worker import _SendToSocket
from tests import processes_check
from tests.cli_check import orbit

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="workers are shared on Linux")

COMPILER = """#!/bin/sh
case "$*" in
*--version) echo release 13.0, V13.0.1;;
*--dryrun*) ;;
*) echo $$ >> "{log}"; exec sleep 600;;
esac
"""


class Clients:
    """Runners as editors and commands have them, each a client of its own; `hangs` is a compiler that never ends."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        started = folder / "compilers"
        self.hangs = self.compiler(folder, COMPILER.format(log=started))
        os.mkfifo(started)
        self._started = os.open(
            started, os.O_RDWR | os.O_NONBLOCK
        )  # open for writing too, so that it never ends
        self._pids: list[int] = []
        self._made: list[LocalRunner] = []

    def compiler(self, folder: Path, script: str) -> str:
        folder.mkdir(exist_ok=True)
        (folder / "nvcc").write_text(script)
        (folder / "nvcc").chmod(0o755)
        return str(folder / "nvcc")

    def client(self, name: str = "Neovim") -> LocalRunner:
        self._made.append(LocalRunner(LocalOptions(cache=str(self.folder / "cache"), client=name)))
        return self._made[-1]

    async def compile(self, runner: LocalRunner, run: str = "r", text: str = "") -> list[c.Event]:
        job = Job(
            run, "compile", "cuda", str(self.folder / "k.cu"), text, nvcc=self.hangs, build_timeout_s=600
        )
        async with aclosing(runner.run(job)) as events:
            return [event async for event in events]

    async def compilers(self, count: int) -> list[int]:
        """The process ids of compilers, once so many have been started."""
        loop, readable = asyncio.get_running_loop(), asyncio.Event()
        loop.add_reader(self._started, readable.set)
        try:
            async with asyncio.timeout(processes_check.LIMIT_S):
                while len(self._pids) < count:
                    await readable.wait()
                    readable.clear()
                    with suppress(BlockingIOError):
                        self._pids += map(int, os.read(self._started, 1 << 16).split())
        finally:
            loop.remove_reader(self._started)
        return list(self._pids)

    async def close(self) -> None:
        for runner in self._made:
            await runner.close()
        os.close(self._started)


@pytest.fixture
async def clients(shared_workers: Path, tmp_path: Path) -> AsyncIterator[Clients]:
    del shared_workers
    clients = Clients(tmp_path)
    yield clients
    await clients.close()


async def workers() -> list[str]:
    """Each running worker by the names of its clients."""
    return [" + ".join(sorted(worker.clients)) for worker in await shared_worker.running()]


async def pid() -> int:
    (worker,) = await shared_worker.running()
    return worker.pid


def last(events: list[c.Event]) -> c.Finished:
    finished = [event for event in events if isinstance(event, c.Finished)]
    assert events[-1:] == finished
    return finished[0]


async def test_clients_that_come_at_once_start_one_worker(clients: Clients) -> None:
    await asyncio.gather(*(clients.client(f"client {number}").machine() for number in range(6)))
    assert await workers() == [" + ".join(f"client {number}" for number in range(6))]


async def test_a_worker_is_nobodys_child_and_of_no_terminal(clients: Clients) -> None:
    await clients.client().machine()
    worker = psutil.Process(await pid())
    assert worker not in psutil.Process().children(recursive=True)
    assert os.getsid(worker.pid) == os.getpgid(worker.pid) == worker.pid
    assert worker.terminal() is None


async def test_runs_of_two_clients_with_one_id_are_two(clients: Clients) -> None:
    local_runner, other = clients.client("one"), clients.client("other")
    first = asyncio.create_task(clients.compile(local_runner, "r", "// 1"))
    (compiler,) = await clients.compilers(1)
    second = asyncio.create_task(clients.compile(other, "r", "// 2"))
    pids = await clients.compilers(2)
    second.cancel()
    await asyncio.wait([second])
    await processes_check.ended(*(pid for pid in pids if pid != compiler))
    assert processes_check.is_alive(compiler)
    first.cancel()
    await asyncio.wait([first])


@pytest.mark.parametrize("leaving", ["closes", "vanishes"])
async def test_the_jobs_of_a_client_that_goes_are_ended(clients: Clients, leaving: str) -> None:
    goes, stays = clients.client("goes"), clients.client("stays")
    await stays.machine()
    job = asyncio.create_task(clients.compile(goes))
    (compiler,) = await clients.compilers(1)
    if leaving == "closes":
        await goes.close()
    else:
        assert goes._worker
        goes._worker._link.writer.transport.abort()
    await processes_check.ended(compiler)
    await asyncio.wait([job])
    assert await workers() == ["stays"]


async def test_a_killed_worker_is_one_outcome_for_each_job_and_the_next_job_has_another(
    clients: Clients,
) -> None:
    local_runner, other = clients.client("one"), clients.client("other")
    jobs = [asyncio.create_task(clients.compile(local_runner, text="// 1"))]
    jobs.append(asyncio.create_task(clients.compile(other, text="// 2")))
    compilers = await clients.compilers(2)
    killed = await pid()
    os.kill(killed, signal.SIGKILL)
    for job in jobs:
        failure = last(await job).failure
        assert failure
        assert (failure.category, failure.retryable) == ("infrastructure", True)
        assert failure.message.startswith("the worker process ended unexpectedly; its log is ")
    await processes_check.ended(*compilers)
    assert await local_runner.machine()
    assert await pid() != killed


async def test_stop_cancels_what_runs_and_ends_the_worker(clients: Clients) -> None:
    runner = clients.client()
    job = asyncio.create_task(clients.compile(runner))
    (compiler,) = await clients.compilers(1)
    worker = await pid()
    assert await shared_worker.stop() == [worker]
    assert last(await job).outcome == "cancelled"
    await processes_check.ended(worker, compiler)
    assert await workers() == []
    assert await shared_worker.stop() == []


async def test_a_worker_that_could_not_write_its_number_is_stopped_and_named(
    clients: Clients, shared_workers: Path
) -> None:
    """A worker cannot write its number on a full disk. The test removes the file with the number."""
    await clients.client().machine()
    number = await pid()
    socket_in(shared_workers).with_suffix(".pid").unlink()
    assert await shared_worker.stop() == [number]
    assert await workers() == []


async def test_a_worker_leaves_when_its_last_client_has(
    clients: Clients, shared_workers: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_socket, "LEAVE_S", 0.0)
    first, second = clients.client(), clients.client()
    await first.machine()
    await second.machine()
    worker = await pid()
    await first.close()
    assert await second.machine()
    await second.close()
    await processes_check.ended(worker)
    assert files(shared_workers) == []


async def test_what_a_killed_worker_left_goes_when_another_one_starts(
    clients: Clients, shared_workers: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await clients.client().machine()
    os.kill(killed := await pid(), signal.SIGKILL)
    await processes_check.ended(killed)
    monkeypatch.setenv("CUDA_LAUNCH_BLOCKING", "1")  # which makes another key
    await clients.client().machine()
    assert files(shared_workers) == [".lock", ".log", ".pid", ".sock"]


async def test_of_two_clients_that_start_one_the_second_waits_and_may_give_up(
    clients: Clients,
) -> None:
    path = runtime_folder.folder() / "k.lock"
    held = file_lock.taken_at(path)
    assert held is not None
    waits, gives_up = (asyncio.create_task(entered(path)) for _ in range(2))
    await asyncio.sleep(0)
    gives_up.cancel()
    path.unlink()  # by its owner, as a worker that leaves does
    os.close(held)
    await waits
    assert (await asyncio.gather(gives_up, return_exceptions=True))[0].__class__ is asyncio.CancelledError
    await entered(path)  # the lock is free
    del clients


async def entered(path: Path) -> None:
    async with asyncio.timeout(processes_check.LIMIT_S), worker_socket._locked(path):
        pass


async def test_each_client_has_its_own_variables(clients: Clients, monkeypatch: pytest.MonkeyPatch) -> None:
    """PATH says where tools are; what counts when a process starts makes another worker."""
    results: list[str | None] = []
    for name in ("one", "other"):
        compiler = clients.compiler(clients.folder / name, COMPILER)
        monkeypatch.setenv("PATH", f"{Path(compiler).parent}:{os.environ['PATH']}")
        machine = await clients.client(name).machine()
        results.append(machine and machine.nvcc)
    assert results == [str(clients.folder / name / "nvcc") for name in ("one", "other")]
    assert await workers() == ["one + other"]
    monkeypatch.setenv("CUDA_LAUNCH_BLOCKING", "1")
    await clients.client("a third").machine()
    assert await workers() == ["one + other", "a third"]


async def test_a_socket_that_a_dead_worker_left_is_replaced(clients: Clients) -> None:
    runner = clients.client()
    await runner.machine()
    os.kill(killed := await pid(), signal.SIGKILL)
    await processes_check.ended(killed)
    assert await clients.client().machine()
    assert await pid() != killed


# -- the runtime folder -------------------------------------------------------------------------------


def link(folder: Path) -> None:
    folder.parent.joinpath("elsewhere").mkdir()
    folder.symlink_to("elsewhere")


def open_to_others(folder: Path) -> None:
    folder.mkdir()
    folder.chmod(0o755)


def of_another_user(folder: Path) -> None:
    if os.getuid():
        pytest.skip("only root gives a folder away")
    folder.mkdir(mode=0o700)
    os.chown(folder, 65534, 65534)


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (link, "is a link"),
        (lambda folder: folder.write_text(""), "is not a folder"),
        (open_to_others, "is open to other users (its permissions are 755, and not 700)"),
        (of_another_user, "belongs to another user (uid 65534)"),
    ],
)
async def test_a_folder_that_others_could_use_is_refused(
    clients: Clients, shared_workers: Path, make: Callable[[Path], object], reason: str
) -> None:
    make(shared_workers)
    finished = last(await clients.compile(clients.client()))
    assert finished.failure
    assert finished.failure.message == (
        f"the runtime folder {shared_workers} {reason}; remove it, or set XDG_RUNTIME_DIR to a folder of your own"
    )


@pytest.mark.parametrize("value", ["relative", "/no/such/folder", f"/tmp/{'x' * 80}"])
def test_a_runtime_folder_that_cannot_hold_sockets_is_passed_over(
    monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    from orbit_remote.process import runtime_folder

    monkeypatch.setenv("XDG_RUNTIME_DIR", value)
    assert runtime_folder._place() == Path(f"/tmp/orbit-lsp-{os.getuid()}")


# -- other clients ------------------------------------------------------------------------------------


def socket_in(folder: Path) -> Path:
    (path,) = folder.glob("*.sock")
    return path


def permit(*opened: tuple[Path, int]) -> None:
    for path, mode in opened:
        path.chmod(mode)


async def test_another_user_is_not_answered(clients: Clients, shared_workers: Path) -> None:
    if os.getuid():
        pytest.skip("only root becomes another user")
    await clients.client().machine()
    path = socket_in(shared_workers)
    permit((shared_workers.parent, 0o755), (shared_workers, 0o755), (path, 0o777))
    script = (
        "import socket, sys; s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); "
        's.sendall(b\'{"kind": "stop"}\\n\'); print(s.recv(99))'
    )
    answer = await asyncio.to_thread(
        subprocess.run,
        ["/usr/bin/env", "python3", "-c", script, path],
        user=65534,
        capture_output=True,
        text=True,
    )
    assert answer.stdout in ("b''\n", "")
    permit((shared_workers, 0o700))
    assert await workers() == ["Neovim"]


async def test_a_socket_that_another_user_serves_is_not_talked_to(
    clients: Clients, shared_workers: Path, tmp_path: Path
) -> None:
    if os.getuid():
        pytest.skip("only root becomes another user")
    runner = clients.client()
    await runner.machine()
    path = socket_in(shared_workers)
    place = Path(tempfile.mkdtemp(dir="/tmp"))
    os.chown(place, 65534, 65534)
    script = (
        "import socket, sys; s = socket.socket(socket.AF_UNIX); s.bind(sys.argv[1]); s.listen(); print('listens', flush=True); "
        "c, _ = s.accept(); print('heard', c.recv(99), flush=True); s.accept()"
    )
    thief = await asyncio.create_subprocess_exec(
        *["/usr/bin/env", "python3", "-c", script, str(place / "s")], user=65534, stdout=subprocess.PIPE
    )
    try:
        assert thief.stdout
        assert await thief.stdout.readline() == b"listens\n"
        (place / "s").rename(path)
        finished = last(await clients.compile(clients.client("Helix")))
        assert finished.failure
        assert (
            finished.failure.message == f"the socket {path} is served by another user (uid 65534); remove it"
        )
        assert await thief.stdout.readline() == b"heard b''\n"
    finally:
        thief.kill()
        await thief.communicate()
        shutil.rmtree(place)


async def test_workers_of_two_versions_live_beside_each_other(
    clients: Clients, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert await clients.client("Neovim").machine()
    older = await pid()
    monkeypatch.setattr(local, "__version__", "99.0")
    assert await clients.client("Helix").machine()
    assert sorted(await workers()) == ["Helix", "Neovim"]
    pids = {worker.release: worker.pid for worker in await shared_worker.running()}
    assert len(pids) == 2
    assert set(await shared_worker.stop()) == {older, pids["99.0"]} == set(pids.values())
    assert await workers() == []


@pytest.mark.parametrize(
    "words",
    [
        b"",
        b"\n",
        b"{\n",
        b"[]\n",
        b'{"kind": 1}\n',
        b'{"kind": "hello"}\n',
        b"\xff" * 9,
        b'{"kind": "hello", ',
        b"[" * 100_000 + b"\n",
        b'{"kind": "hello", "version": "x", "key": []}\n',
        b'{"kind": "stop", "kind": "none"}\n',
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\0" * 100_000 + b"\n",
        b'{"kind": "\\ud800"}\n',
        b"1" * 10_000 + b"\n",
    ],
    ids=lambda words: str(words[:24]),
)
async def test_a_client_that_is_none_disturbs_nobody(
    clients: Clients, shared_workers: Path, words: bytes
) -> None:
    await clients.client().machine()
    path = socket_in(shared_workers)
    reader, writer = await asyncio.open_unix_connection(path)
    writer.write(words)
    writer.write_eof()
    assert await reader.read() == b""
    writer.close()
    assert await workers() == ["Neovim"]


async def test_a_client_of_another_version_is_refused(clients: Clients, shared_workers: Path) -> None:
    await clients.client().machine()
    path = socket_in(shared_workers)
    reader, writer = await asyncio.open_unix_connection(path)
    hello = {
        "kind": "hello",
        "key": path.stem,
        "client": "x",
        "environment": {},
        "version": requests.VERSION + 1,
    }
    writer.write(json.dumps(hello).encode() + b"\n")
    answer = json.loads(await reader.readline())
    writer.close()
    assert (answer["kind"], f"speaks version {requests.VERSION}" in answer["why"]) == ("refused", True)


async def test_a_client_that_never_reads_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orbit_remote.worker.shared_worker._BEHIND", 1 << 20)
    ours, theirs = socket.socketpair()
    with theirs:
        reader, writer = await asyncio.open_connection(sock=ours)
        send = _SendToSocket(writer, "sleepy")
        for _ in range(64):
            send(c.Output("r", "stdout", "x" * (1 << 16)))
        assert await reader.read() == b""
        assert writer.is_closing()


# -- the commands -------------------------------------------------------------------------------------


def test_doctor_names_the_worker_and_stop_ends_it(shared_workers: Path, tmp_path: Path) -> None:
    _, text, _ = orbit(tmp_path, "doctor", "--json")
    (worker,) = json.loads(text)["workers"]
    assert (worker["clients"], worker["warm"]) == (["orbit-lsp doctor"], False)
    _, text, _ = orbit(tmp_path, "doctor")
    assert f"process {worker['pid']}, for 0 min, Python " in text
    status, text, _ = orbit(tmp_path, "stop")
    named, stopped = text.splitlines()
    assert (status, stopped) == (0, f"stopped 1 worker: process {worker['pid']}")
    assert named.startswith(f"process {worker['pid']}, for 0 min, Python ")
    assert orbit(tmp_path, "stop")[:2] == (0, "no worker runs\n")
    processes_check.wait_until_ended(worker["pid"])
    assert files(shared_workers) == []


@pytest.mark.slow
def test_stop_spares_the_workers_of_other_installations(shared_workers: Path, tmp_path: Path) -> None:
    del shared_workers
    folders = [tmp_path / "one", tmp_path / "other"]  # each with a cache of its own
    pids: list[int] = []
    for folder in folders:
        folder.mkdir()
        listed = json.loads(orbit(folder, "doctor", "--json")[1])["workers"]
        pids += [worker["pid"] for worker in listed if worker["pid"] not in pids]
    first, second = pids
    assert orbit(folders[1], "stop")[1].splitlines()[1:] == [f"stopped 1 worker: process {second}"]
    assert orbit(folders[1], "stop")[1] == "no worker runs; 1 of other installations: --all ends these too\n"
    assert orbit(folders[1], "stop", "--all")[1].splitlines()[1:] == [f"stopped 1 worker: process {first}"]


def files(runtime: Path) -> list[str]:
    """What lies in the runtime folder, by kind."""
    return sorted(path.suffix for path in runtime.rglob("*") if path.is_file() or path.is_socket())


@pytest.mark.slow
@pytest.mark.parametrize(("answer", "status"), [("y", 0), ("", 130), ("no", 130)])
def test_at_a_terminal_stop_asks(
    shared_workers: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: str, status: int
) -> None:
    (worker,) = json.loads(orbit(tmp_path, "doctor", "--json")[1])["workers"]
    terminal, other_end = os.openpty()
    try:
        os.write(terminal, answer.encode() + b"\n")
        command = [sys.executable, "-P", "-m", "orbit_lsp", "stop"]
        own = {
            **os.environ,
            "XDG_CACHE_HOME": str(tmp_path / ".cache"),
        }  # that of the worker, as `orbit` has it
        done = subprocess.run(command, cwd=tmp_path, env=own, stdin=other_end, stdout=other_end, check=False)
        os.set_blocking(terminal, False)
        text = ""
        with suppress(BlockingIOError):  # the echo of the answer comes first, and may come alone
            while True:
                text += os.read(terminal, 1 << 16).decode()
    finally:
        os.close(terminal)
        os.close(other_end)
    assert done.returncode == status
    assert f"process {worker['pid']}, for 0 min" in text
    assert "end it? [y/N]" in text
    del shared_workers, monkeypatch
    if status == 0:
        processes_check.wait_until_ended(worker["pid"])
    else:
        assert processes_check.is_alive(worker["pid"])


@pytest.mark.slow
def test_the_setting_turns_sharing_off(shared_workers: Path, tmp_path: Path) -> None:
    del shared_workers
    settings = json.dumps({"shared_worker": False})
    assert json.loads(orbit(tmp_path, "doctor", "--json", "--settings", settings)[1])["workers"] == []


async def test_interrupting_a_command_ends_its_job_and_not_the_worker(clients: Clients) -> None:
    """As Ctrl-C does."""
    (clients.folder / "k.cu").write_text("__global__ void k() {}\n")
    words = ["compile", "k.cu", "--nvcc", clients.hangs]
    command = await asyncio.create_subprocess_exec(
        *[sys.executable, "-P", "-m", "orbit_lsp", *words],
        cwd=clients.folder,
        stderr=subprocess.PIPE,
        # a shell that runs the tests in the background has taken its meaning
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    (compiler,) = await clients.compilers(1)
    command.send_signal(signal.SIGINT)
    _, message = await command.communicate()
    assert (command.returncode, message.decode().splitlines()[-1]) == (130, "orbit-lsp: cancelled")
    await processes_check.ended(compiler)
    assert await workers() == [""]


@pytest.mark.skipif(os.name != "posix" or os.getuid() != 0, reason="only root can give a folder away")
def test_a_cache_of_another_user_is_refused(tmp_path: Path) -> None:
    """As after `sudo -E`: what is in it is run."""
    cache = tmp_path / "cache"
    cache.mkdir()
    os.chown(cache, 12345, 12345)
    with pytest.raises(
        shared_worker.WorkerError, match=r"cache belongs to another user \(uid 12345\); set XDG_CACHE_HOME to"
    ):
        local._writable(cache)  # pyright: ignore[reportPrivateUsage]


def test_a_cache_that_everybody_writes_is_refused(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    cache.mkdir()
    cache.chmod(0o777)
    with pytest.raises(
        shared_worker.WorkerError, match=r"cache can be written by every user \(its permissions are 777\)"
    ):
        local._writable(cache)  # pyright: ignore[reportPrivateUsage]
    cache.chmod(0o775)
    assert local._writable(cache) == cache  # pyright: ignore[reportPrivateUsage]
