"""What happens to notebook kernels: cells that take their own process apart, clocks that are set, machines that sleep, large messages."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli_check import orbit
from tests.processes_check import is_alive, wait_until_ended
from tests.test_notebook import LIMIT_S, Kernel

SOON = """
import sys
from orbit_lsp.notebook import relay
relay._WARN_S, relay._LOOK_S = 0.6, 0.05
"""
"""Seconds in place of a minute."""
CLOCK = """
import sys, time
set_by, real = open({file!r}), time.time
time.time = lambda: real() + float((set_by.seek(0), set_by.read())[1] or 0)
"""
"""The wall clock as somebody sets it: forward by what the file says."""
LATE = """
import asyncio, sys
from orbit_lsp.notebook.relay import Relay
from_kernel, received, next_request = Relay._from_kernel, Relay._received, asyncio.Event()

async def hold(self, kernel, channel, frames):
    async def pass_on(request):
        await request.wait()
        await from_kernel(self, kernel, channel, frames)
    message = self._wire.read(frames, check=False) if channel == "shell" else None
    if message and message.kind == "execute_reply":
        self._spawn(pass_on(next_request))
    else:
        await from_kernel(self, kernel, channel, frames)

async def release(self, channel):
    global next_request
    request = await received(self, channel)
    if channel == "shell":
        next_request.set()
        next_request = asyncio.Event()
    return request

Relay._from_kernel, Relay._received = hold, release
"""
"""The answer of a cell comes with the next request alone: long after the kernel is idle."""
MAIN = "from orbit_lsp.cli import main\nsys.exit(main.main())\n"


class Changed(Kernel):
    """A kernel whose relay runs `script` before it begins."""

    def __init__(self, folder: Path, script: str, *options: str) -> None:
        self._script = script
        super().__init__(folder, *options)

    def install(self, folder: Path, options: tuple[str, ...]) -> None:
        super().install(folder, options)
        file = Path(os.environ["JUPYTER_DATA_DIR"]) / "kernels" / "orbit-local" / "kernel.json"
        spec = json.loads(file.read_text())
        at = spec["argv"].index("-m")
        spec["argv"][at : at + 2] = ["-c", self._script + MAIN]
        file.write_text(json.dumps(spec))

    def printed_until(self, beginning: str) -> str:
        """The next text, of whatever cell, that begins so."""
        while True:
            message: Any = self.client.get_iopub_msg(timeout=LIMIT_S)
            if message["msg_type"] == "stream" and message["content"]["text"].startswith(beginning):
                return message["content"]["text"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("JUPYTER_DATA_DIR", "XDG_STATE_HOME", "IPYTHONDIR"):
        monkeypatch.setenv(name, str(tmp_path / name))
    made = tmp_path / "work"
    made.mkdir()
    return made


@pytest.fixture
def start(folder: Path) -> Iterator[Callable[..., Changed]]:
    made: list[Changed] = []

    def make(script: str = "import sys\n", *options: str) -> Changed:
        made.append(Changed(folder, script, *options))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.mark.slow
def test_cells_that_take_their_process_apart(start: Callable[..., Changed], folder: Path) -> None:
    """The kernel answers after each, with its variables."""
    kernel = start()
    kernel.run("import os, shutil, sys; x = 7")
    cells = {
        "pid = os.fork()\nif not pid: os._exit(0)\nprint(os.waitpid(pid, 0)[1])": "0",
        "os.chdir('/')": "",
        f"shutil.rmtree({str(folder)!r})": "",
        f"os.mkdir({str(folder)!r}); os.chdir({str(folder)!r}); shutil.rmtree({str(folder)!r})": "",
        "signal = __import__('signal'); signal.signal(signal.SIGTERM, signal.SIG_IGN);": "",
        "os.close(0); os.close(1)": "",
        "sys.stdin = None; sys.stdout.close()": "",
    }
    for cell, shown in cells.items():
        assert kernel.run(cell) == shown, cell
        assert kernel.run("x") == "[text/plain]\n7", cell
        assert "this machine" in kernel.run("%orbit status"), cell
    gone = f"KernelEnded: the kernel's Python cannot be started: the notebook's folder {folder} is gone; make it again"
    kernel.run("os._exit(3)")
    assert kernel.run("1") == gone
    folder.mkdir()
    assert kernel.run("import os, sys; os.getcwd()") == f"[text/plain]\n{str(folder)!r}"
    ours = kernel.run("print(os.getpid(), file=sys.stderr)")
    kernel.manager.shutdown_kernel()
    wait_until_ended(int(ours))


def test_a_cell_after_the_end_is_not_lost_where_answers_come_late(start: Callable[..., Changed]) -> None:
    kernel = start(LATE)
    assert kernel.run("x = 1; x") == "[text/plain]\n1"
    assert "the kernel ends with this cell" in kernel.run("%orbit end")
    assert kernel.run("'x' in globals()") == "[text/plain]\nFalse"


def test_a_process_that_a_cell_forks_ends_with_the_kernel(start: Callable[..., Changed]) -> None:
    kernel = start()
    shown = kernel.run(
        "import os, signal\npid = os.fork()\nif not pid:\n    os.setsid()\n    signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "    while True: signal.pause()\nprint(pid)"
    )
    pid = int(shown)
    assert is_alive(pid)
    assert kernel.run("2 * 2") == "[text/plain]\n4"
    kernel.manager.shutdown_kernel()
    wait_until_ended(pid)


def test_a_kernel_warns_before_it_ends(start: Callable[..., Changed]) -> None:
    kernel = start(SOON, "--idle-minutes", "0.02")
    pid = kernel.pid()
    warning = kernel.printed_until("orbit:")
    assert warning == "orbit: no cell has run for 0 minutes; this kernel ends in 0.6 s\n"
    wait_until_ended(pid)
    assert kernel.run("1").startswith("KernelEnded: this kernel was ended after 0.02 minutes without a cell")


@pytest.mark.parametrize(
    "kind", ["execute_request", pytest.param("unheard_of_request", marks=pytest.mark.slow)]
)
def test_a_request_that_ipykernel_does_not_answer_keeps_no_kernel(
    start: Callable[..., Changed], kind: str
) -> None:
    kernel = start(SOON, "--idle-minutes", "0.02")
    session: Any = kernel.client.session
    pid = kernel.pid()
    session.send(kernel.client.shell_channel.socket, session.msg(kind, {"silent": False}))
    wait_until_ended(pid)
    assert kernel.run("1").startswith("KernelEnded: this kernel was ended after 0.02 minutes without a cell")


@pytest.mark.parametrize("seconds", [86_400, -86_400])
@pytest.mark.slow
def test_a_clock_that_is_set_by_a_day(start: Callable[..., Changed], folder: Path, seconds: int) -> None:
    """Neither forward, when a day without a cell seems to have passed, nor back."""
    clock = folder / "clock"
    clock.write_text("0")
    kernel = start(CLOCK.format(file=str(clock)), "--idle-minutes", "15")
    kernel.run("x = 7")
    clock.write_text(str(seconds))
    assert kernel.run("x") == "[text/plain]\n7"
    while ", 2 cells" not in (
        listed := orbit(folder, "sessions", "list")[1]
    ):  # the relay has looked at its kernel
        assert "this machine" in listed
    assert "since 0 min, 2 cells" in kernel.run("%orbit status")
    assert kernel.run("x") == "[text/plain]\n7"


UNREAD = """
import os, signal, subprocess
keeper = os.getppid()
subprocess.Popen(['sh', '-c', f'sleep 1; kill -CONT {keeper}'])
os.kill(keeper, signal.SIGSTOP)
for i in range(5000): print(i, flush=True)
"""
"""Prints more messages than ZeroMQ keeps for a reader, while nobody reads."""


@pytest.mark.slow
def test_what_a_cell_prints_while_nobody_reads_is_not_lost(start: Callable[..., Changed]) -> None:
    """As on a machine that sleeps, or has too much to do."""
    assert start().run(UNREAD).split() == [str(i) for i in range(5000)]


COMM = """
from comm import create_comm
c = create_comm(target_name='test')
def got(message):
    print(message['content']['data']['size'])
    c.send({'size': sum(map(len, message['buffers']))}, buffers=message['buffers'])
c.on_msg(got)
print(c.comm_id)
"""


@pytest.mark.parametrize("size", [1000, pytest.param(100_000_000, marks=pytest.mark.slow)])
def test_a_widgets_message_comes_and_goes_with_its_bytes(start: Callable[..., Changed], size: int) -> None:
    check_widget(start(), size)


def check_widget(kernel: Kernel, size: int) -> None:
    comm = kernel.run(COMM)
    session: Any = kernel.client.session
    message = session.msg("comm_msg", {"comm_id": comm, "data": {"size": size}})
    content = os.urandom(1000) * (size // 1000)
    session.send(kernel.client.shell_channel.socket, message, buffers=[content])
    answers: list[Any] = []
    while not answers or answers[-1]["content"].get("execution_state") != "idle":
        answer: Any = kernel.client.get_iopub_msg(timeout=LIMIT_S)
        if answer["parent_header"].get("msg_id") == message["header"]["msg_id"]:
            answers.append(answer)
    back = next(answer for answer in answers if answer["msg_type"] == "comm_msg")
    assert back["content"]["data"] == {"size": size}
    assert bytes(back["buffers"][0]) == content
    assert [each["content"]["text"] for each in answers if each["msg_type"] == "stream"] == [f"{size}\n"]
    assert kernel.run("1") == "[text/plain]\n1"
