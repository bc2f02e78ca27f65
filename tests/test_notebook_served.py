"""`orbit-lsp kernel install --on api:URL`: real ipykernels on the machine of a real `orbit-lsp api`, over the loopback."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Self

import httpx2
import nbclient
import nbformat
import psutil
import pytest
from fastapi import FastAPI

from orbit_lsp.api import notebook_routes
from orbit_remote.common import limits
from tests.cli_check import orbit
from tests.processes_check import wait_until_ended
from tests.remote.nvcc_check import needs_nvcc
from tests.test_notebook import EXAMPLE, HANGS, LIMIT_S, Kernel, press_once, press_until_over

AGAIN = "its variables are gone, so run the notebook from its first cell"
TOKEN = "a token of this test"
GONE_S = 6
ENDLESS = "print('on')\nimport threading\nthreading.Event().wait()"


class Server:
    """`orbit-lsp api`, whose folders are not those of the notebook's side."""

    def __init__(self, folder: Path, port: int = 0) -> None:
        folder.mkdir(exist_ok=True)
        environment = os.environ | {
            "XDG_STATE_HOME": str(folder / "state"), "XDG_CACHE_HOME": str(folder / "cache"), "ORBIT_API_TOKEN": TOKEN,
        }  # fmt: skip
        self.folder = folder
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", "orbit_lsp", "api", "--pool", "local:0", "--port", str(port)],
            cwd=folder, env=environment, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert self.process.stderr
        line = next(line for line in self.process.stderr if "listening" in line)
        self.port = int(line.partition(";")[0].rpartition(":")[2])
        self.url = f"http://127.0.0.1:{self.port}"

    def sessions(self, *what: str) -> list[str]:
        """What `orbit-lsp sessions` prints there."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("XDG_STATE_HOME", str(self.folder / "state"))
            return orbit(self.folder, "sessions", *what)[1].splitlines()

    def hosts(self) -> list[psutil.Process]:
        """The processes of its notebooks, and theirs."""
        made = psutil.Process(self.process.pid).children()
        processes: list[psutil.Process] = []
        for each in made:
            with suppress(psutil.Error):  # it ends
                if "kernel" in each.cmdline():
                    processes += [each, *each.children(recursive=True)]
        return processes

    def end(self, how: signal.Signals = signal.SIGINT) -> None:
        self.process.send_signal(how)
        self.process.wait(60)
        assert self.process.stderr
        self.process.stderr.close()


class Served(Kernel):
    def __init__(self, folder: Path, url: str, *options: str) -> None:
        name = f"orbit-api-{re.sub('[^a-z0-9]+', '-', url.removeprefix('http://'))}"
        super().__init__(folder, "--on", f"api:{url}", *options, name=name)

    def close(self) -> None:
        self.client.stop_channels()
        self.manager.shutdown_kernel()


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Both sides' folders are below it."""
    made = tmp_path_factory.mktemp("served")
    with pytest.MonkeyPatch.context() as patch:
        for name, folder in {
            "JUPYTER_DATA_DIR": "jupyter",
            "XDG_STATE_HOME": "state",
            "IPYTHONDIR": "ipython",
        }.items():
            patch.setenv(name, str(made / folder))
        patch.setenv("ORBIT_API_TOKEN", TOKEN)
        patch.setenv("ORBIT_NOTEBOOK_GONE_S", str(GONE_S))
        yield made


@pytest.fixture(scope="module")
def shared(place: Path) -> Iterator[Server]:
    server = Server(place / "server")
    yield server
    for each in server.hosts():
        wait_until_ended(each.pid)
    server.end()


@pytest.fixture
def folder(place: Path) -> Iterator[Path]:
    made = place / "work"
    made.mkdir()
    yield made
    shutil.rmtree(made)


@pytest.fixture
def kernels(folder: Path) -> Iterator[Callable[..., Served]]:
    made: list[Served] = []

    def make(url: str, *options: str) -> Served:
        made.append(Served(folder, url, *options))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.fixture
def served(shared: Server, kernels: Callable[..., Served]) -> Served:
    for each in shared.hosts():  # of the test before
        wait_until_ended(each.pid)
    return kernels(shared.url)


def test_cells_run_at_the_server_and_keep_their_state(shared: Server, served: Served, folder: Path) -> None:
    (folder / "tool.py").write_text("answer = 42")
    assert served.run("x = 20; print('é')") == "é"
    assert served.run("x + 1") == "[text/plain]\n21"
    assert served.run("import tool; tool.answer") == "[text/plain]\n42"
    assert served.run("1 / 0") == "ZeroDivisionError: division by zero"
    shown = served.run("display({'text/plain': 'p', 'image/png': 'iVBO'}, raw=True)")
    assert shown == "[image/png, text/plain]\np"
    assert served.run("import os; 'ORBIT_API_TOKEN' in os.environ") == "[text/plain]\nFalse"
    assert served.run("os.environ['CUDA_VISIBLE_DEVICES']") == "[text/plain]\n'0'"
    assert str(shared.folder / "cache") in served.run("print(os.getcwd())")
    cell = served.send("print(input('name? ') * 2)")
    served.client.get_stdin_msg(timeout=LIMIT_S)
    served.client.input("ab")
    assert served.outputs(cell) == "abab"
    interrupt = served.manager.interrupt_kernel
    assert served.run("print('on')\nwhile True: pass", press_once(interrupt)).split() == [
        "on",
        "KeyboardInterrupt:",
    ]
    assert served.run("x") == "[text/plain]\n20"
    assert shared.url in served.run("%orbit status")
    assert re.fullmatch(
        r"\[text/html, text/plain\]\nlocal:0  (this machine has no NVIDIA GPU|NVIDIA .+)",
        served.run("%orbit gpu"),
    )
    assert "cost nothing here" in served.run("%orbit cost")


@pytest.mark.slow
def test_the_sessions_of_both_sides_list_it_and_the_server_ends_it(
    shared: Server, served: Served, folder: Path
) -> None:
    served.run("x = 1")
    while "idle for 0 min, 1 cell" not in (there := shared.sessions("list")[0]):
        assert "busy" in there
    identifier = there.partition(" ")[0]
    assert "  local:0, for 127.0.0.1  " in there
    assert there.endswith(identifier)  # its folder's name
    assert f"  {shared.url}  " in orbit(folder, "sessions", "list")[1]

    def end(_: str) -> None:
        assert "busy, 2 cells" in shared.sessions("list")[0]
        assert shared.sessions("end", identifier) == [f"ended {identifier}"]

    assert served.run(ENDLESS, end) == f"on\nKernelEnded: it was ended on the server; {AGAIN}"
    assert shared.sessions("list") == ["no notebook kernel runs, and no GPU is rented"]
    assert served.run("'x' in globals()") == "[text/plain]\nFalse"


@pytest.mark.slow
def test_files_are_the_same_before_each_cell_and_stay_where_a_kernel_is_started_again(
    served: Served, folder: Path
) -> None:
    (folder / "pack").mkdir()
    (folder / "pack" / "tool.py").write_text("answer = 1")
    (folder / "secret.key").write_text("x")
    (folder / ".gitignore").write_text("*.key\n")
    os.mkfifo(folder / "pipe")
    (folder / "out").symlink_to("/etc")
    listed = "import os; print(*sorted(os.path.join(f, n) for f, _, names in os.walk('.') for n in names))"
    assert served.run(listed).splitlines()[-1] == "./pack/tool.py"
    served.run("open('made.txt', 'w').write('by a cell')")
    (folder / "new.txt").write_text("new")
    assert served.run(listed) == "./made.txt ./new.txt ./pack/tool.py"
    (folder / "pack" / "tool.py").unlink()
    assert served.run(listed) == "./made.txt ./new.txt"
    assert served.run("%orbit bring made*").splitlines()[1:] == ["made.txt: 9 B"]
    assert (folder / "made.txt").read_text() == "by a cell"
    served.run("open('kept.txt', 'w').close()")
    served.manager.restart_kernel()
    served.client.wait_for_ready(timeout=LIMIT_S)
    assert served.run(listed).splitlines()[-1] == "./kept.txt ./made.txt ./new.txt"
    with (folder / "large.bin").open("wb") as file:
        file.truncate(300 << 20)
    assert served.run("1").startswith(f"FilesNotSent: the cell was not run: {folder} holds 300 MiB")


@needs_nvcc
@pytest.mark.slow
def test_a_cuda_cell_is_a_job_of_the_server(served: Served) -> None:
    shown = served.run("%%cuda --compile\n__global__ void fill(float* x) {\n  y = 1;\n}")
    assert 'cell.cu:3:3: error: identifier "y" is undefined' in shown
    assert "UsageError: orbit: compile error" in shown
    assert " registers" in served.run("%%cuda --compile\n__global__ void fill(float* x) { x[0] = 1; }")
    assert "infrastructure: there is no NVIDIA GPU" in served.run(
        "%%cuda\n// orbit: launch k<<<1, 1>>>()\n__global__ void k() {}"
    )


@pytest.mark.slow
def test_how_kernels_end_there(served: Served) -> None:
    served.run("x = 1")
    assert served.run(HANGS, press_until_over(served)) == (
        f"here\nKernelEnded: the cell did not stop at the first Interrupt, so the second ended its kernel; {AGAIN}"
    )
    assert served.run("import os; os._exit(3)") == f"KernelEnded: the kernel ended with exit code 3; {AGAIN}"
    served.run("%orbit end")
    assert served.run("'x' in globals()") == "[text/plain]\nFalse"


@pytest.mark.slow
def test_an_idle_kernel_ends_there(shared: Server, kernels: Callable[..., Served]) -> None:
    kernel = kernels(shared.url, "--idle-minutes", "0.02")
    kernel.run("import os; pid = os.getpid(); print(pid)")
    for each in shared.hosts():
        wait_until_ended(each.pid)
    assert kernel.run("1") == f"KernelEnded: this kernel was ended after 0.02 minutes without a cell; {AGAIN}"


@pytest.mark.slow
def test_what_a_cell_prints_without_end_is_bounded(served: Served) -> None:
    before = served.relay().memory_info().rss
    shown = served.run("print('x' * 100_000_000)")
    assert shown.endswith("what follows is not shown. Write it to a file instead.")
    assert served.relay().memory_info().rss - before < 100 << 20
    assert served.run("print('alive')") == "alive"


@pytest.mark.slow
def test_a_connection_that_is_lost_is_taken_up_again(shared: Server, kernels: Callable[..., Served]) -> None:
    with Passage(shared.port) as passage:
        kernel = kernels(passage.url)
        kernel.run("x = 1")
        cuts: list[str] = []

        def cut(text: str) -> None:
            """While the cell waits for its input, which comes over the new connection."""
            if not cuts:
                cuts.append(text)
                passage.cut()
                kernel.client.get_stdin_msg(timeout=LIMIT_S)
                kernel.client.input("")

        shown = kernel.run("print(0)\ninput()\nfor i in range(1, 40): print(i, flush=True)", cut)
        assert shown.split() == [str(i) for i in range(40)]
        assert kernel.run("x") == "[text/plain]\n1"


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_a_server_that_ends_leaves_nothing_and_the_cell_says_so(
    place: Path, kernels: Callable[..., Served], how: signal.Signals
) -> None:
    server = Server(place / f"other-{how}")
    kernel = kernels(server.url)
    kernel.run("x = 1")
    started: list[psutil.Process] = []

    def end(_: str) -> None:
        started.extend(server.hosts())
        server.end(how)

    shown = kernel.run(ENDLESS, end)
    assert started
    for each in started:
        wait_until_ended(each.pid)
    assert shown in (
        f"on\nKernelEnded: it was ended on the server; {AGAIN}",
        f"on\nKernelEnded: the server {server.url} has not answered for {GONE_S} s, and the kernel ends there by itself; {AGAIN}",
    )
    assert list((server.folder / "cache" / "orbit-lsp" / "notebooks").iterdir()) == []
    gone = f"KernelEnded: the server {server.url} cannot be reached: Connection refused; see whether `orbit-lsp api` runs there"
    assert kernel.run("1") == gone
    again = Server(place / f"other-{how}", server.port)
    assert kernel.run("1") == "[text/plain]\n1"
    again.end()


@pytest.mark.slow
def test_nothing_is_left_of_a_relay_that_is_killed(shared: Server, served: Served) -> None:
    served.run("x = 1")
    there = shared.hosts()
    served.relay().kill()
    assert there
    for each in there:
        wait_until_ended(each.pid)


@pytest.mark.slow
def test_a_laptop_that_sleeps_longer_than_its_kernel_waits(
    shared: Server, kernels: Callable[..., Served]
) -> None:
    """The server's side is over then, and the cell that runs says so."""
    kernel = kernels(shared.url)
    kernel.run("x = 1")

    def sleep(_: str) -> None:
        there, relay = shared.hosts(), kernel.relay()
        relay.suspend()
        for each in there:
            wait_until_ended(each.pid)
        relay.resume()

    shown = kernel.run(ENDLESS, sleep)
    assert shown.startswith("on\nKernelEnded: ")
    assert shown.endswith(AGAIN)
    assert kernel.run("'x' in globals()") == "[text/plain]\nFalse"


@pytest.mark.slow
def test_a_message_that_is_too_large_for_another_machine(served: Served) -> None:
    served.run("x = 1")
    shown = served.run("#" * (65 << 20))
    assert shown == "MessageTooLarge: a message to a kernel on another machine may have 64 MiB at most"
    assert served.run("x") == "[text/plain]\n1"


@pytest.mark.parametrize(
    ("token", "said"),
    [
        ("", "needs its token: set ORBIT_API_TOKEN where Jupyter is started"),
        ("another", "refuses the token in ORBIT_API_TOKEN"),
    ],
)
def test_without_the_token_a_cell_says_so(
    shared: Server, kernels: Callable[..., Served], monkeypatch: pytest.MonkeyPatch, token: str, said: str
) -> None:
    monkeypatch.setenv("ORBIT_API_TOKEN", token)
    assert kernels(shared.url).run("1") == f"KernelEnded: the server {shared.url} {said}"


@pytest.mark.slow
def test_a_server_of_another_name_or_none_at_all(shared: Server, kernels: Callable[..., Served]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    shown = kernels(f"http://127.0.0.1:{port}").run("1")
    assert shown == (
        f"KernelEnded: the server http://127.0.0.1:{port} cannot be reached: Connection refused; see whether `orbit-lsp api` runs there"
    )
    shown = kernels(f"http://127.0.0.2:{shared.port}").run("1")
    assert shown.startswith(f"KernelEnded: the server http://127.0.0.2:{shared.port} cannot be reached")


@pytest.mark.parametrize(
    "on", ["api:", "api:gpu7", "api:ftp://gpu7", "api:http://gpu7:none", "api:http://u:p@gpu7"]
)
def test_an_address_that_is_none_is_refused_when_the_kernel_is_installed(tmp_path: Path, on: str) -> None:
    code, _, error = orbit(tmp_path, "kernel", "install", "--on", on)
    assert code == 64
    assert f"--on {on!r}" in error


async def test_kernels_beyond_the_limit_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "NOTEBOOKS", replace(limits.NOTEBOOKS, most=0))
    made = FastAPI()
    notebook_routes.routes(made, notebook_routes.Notebooks([]))
    asked = {"root": "r", "name": "n", "secret": "s" * 64, "contract": 1}
    async with httpx2.AsyncClient(
        transport=httpx2.ASGITransport(app=made), base_url="http://127.0.0.1"
    ) as client:
        answer = await client.post("/v1/notebooks", json=asked)
    assert answer.status_code == 503
    assert answer.json()["error"] == "it keeps 0 notebook kernels, the limit; end one of them first"


@needs_nvcc
@pytest.mark.slow
def test_the_example_runs_there(shared: Server, folder: Path) -> None:
    orbit(folder, "kernel", "install", "--on", f"api:{shared.url}", "--name", "there")
    notebook = nbformat.read(EXAMPLE, as_version=4)
    client = nbclient.NotebookClient(
        notebook, kernel_name="orbit-there", timeout=LIMIT_S, resources={"metadata": {"path": str(folder)}}
    )
    client.execute()
    assert (folder / "sizes.py").is_file()


class Passage:
    """A port that leads to the server's, and can be cut."""

    def __init__(self, port: int) -> None:
        self._to = port
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._open: list[socket.socket] = []
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listening.close()
        self.cut()

    def cut(self) -> None:
        for each in self._open:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        self._open.clear()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near = self._listening.accept()[0]
                far = socket.create_connection(("127.0.0.1", self._to))
                self._open += [near, far]
                for source, sink in ((near, far), (far, near)):
                    threading.Thread(target=_carry, args=(source, sink), daemon=True).start()


def _carry(source: socket.socket, sink: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(1 << 16):
            sink.sendall(data)
    with suppress(OSError):
        sink.shutdown(socket.SHUT_RDWR)
