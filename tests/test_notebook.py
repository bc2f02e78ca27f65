"""`orbit-lsp kernel`: real ipykernels behind the real command, driven as Jupyter's front ends drive them."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import nbclient
import nbformat
import psutil
import pytest
from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.connect import write_connection_file
from jupyter_client.manager import KernelManager
from jupyter_client.session import Session

from orbit_lsp.notebook.wire import OutputLimit, Wire
from tests import kernel_ports
from tests.cli_check import orbit
from tests.processes_check import is_alive, wait_until_ended
from tests.remote.nvcc_check import needs_nvcc
from tests.schema_check import valid

kernel_ports.use()
LIMIT_S = 120
EXAMPLE = Path(__file__).parent.parent / "examples" / "notebook.ipynb"
HANGS = """
import ctypes, signal
signal.signal(signal.SIGINT, signal.SIG_IGN)  # before it prints: the interrupt comes as soon as it has
print('here', flush=True)
ctypes.CDLL(None).pause()
"""
"""No interrupt is looked at: as in a CUDA call that never returns. It gives up the interpreter's lock as such calls do,
else what it printed may stay in ipykernel's other thread: `flush` waits until that has it, not until it is sent."""


class Kernel:
    """One kernel, and a front end for it."""

    def __init__(self, folder: Path, *options: str, name: str = "orbit-local") -> None:
        self.install(folder, options)
        self.manager = KernelManager(kernel_name=name)
        self.manager.start_kernel(
            cwd=str(folder), env=os.environ | {"XDG_CACHE_HOME": str(folder / ".cache")}
        )
        self.client: BlockingKernelClient = self.manager.client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=LIMIT_S)

    def install(self, folder: Path, options: tuple[str, ...]) -> None:
        orbit(folder, "kernel", "install", *options)

    def send(self, code: str) -> str:
        return self.client.execute(code, allow_stdin=True)

    def outputs(self, cell: str, meanwhile: Callable[[str], None] = lambda _: None) -> str:
        """What a cell shows, line by line; `meanwhile` is called with each text that it prints."""
        lines: list[str] = []
        printed: list[str] = []
        while True:
            message: Any = self.client.get_iopub_msg(timeout=LIMIT_S)
            kind, content = message["msg_type"], message["content"]
            if message["parent_header"].get("msg_id") != cell:
                continue
            if kind != "stream":  # a line that is printed may come in several messages
                lines += "".join(printed).splitlines()
                printed = []
            if kind == "stream":
                printed.append(content["text"])
                meanwhile(content["text"])
            elif kind == "error":
                lines.append(f"{content['ename']}: {content['evalue']}")
            elif kind in ("display_data", "execute_result"):
                lines += [
                    f"[{', '.join(sorted(content['data']))}]",
                    *content["data"]["text/plain"].splitlines(),
                ]
            elif kind == "status" and content["execution_state"] == "idle":
                return "\n".join(lines)

    def run(self, code: str, meanwhile: Callable[[str], None] = lambda _: None) -> str:
        return self.outputs(self.send(code), meanwhile)

    def pid(self) -> int:
        return int(self.run("import os; print(os.getpid())"))

    def relay(self) -> psutil.Process:
        provisioner: Any = self.manager.provisioner
        return psutil.Process(provisioner.pid)

    def close(self) -> None:
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Jupyter's and our own folders are below it."""
    place = tmp_path_factory.mktemp("notebook")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JUPYTER_DATA_DIR", str(place / "jupyter"))
        patch.setenv("XDG_STATE_HOME", str(place / ".state"))
        patch.setenv("IPYTHONDIR", str(place / ".ipython"))
        yield place


@pytest.fixture(scope="module")
def shared(folder: Path) -> Iterator[Kernel]:
    """For cells that leave a kernel that answers; variables may stay."""
    kernel = Kernel(folder)
    yield kernel
    kernel.close()


@pytest.fixture
def own(folder: Path) -> Iterator[Kernel]:
    kernel = Kernel(folder)
    yield kernel
    kernel.close()


CELLS: list[tuple[list[str], str]] = [
    (["x = 20", "x + 1"], "[text/plain]\n21"),
    (["print('a'); print('b')"], "a\nb"),
    (["1 / 0"], "ZeroDivisionError: division by zero"),
    (["display({'text/plain': 'p', 'image/png': 'iVBO'}, raw=True)"], "[image/png, text/plain]\np"),
    (["!echo from a child"], "from a child"),
    (["%%time\ny = 6", "y"], "[text/plain]\n6"),
    (["!test -t 1; exit 3", "_exit_code"], "[text/plain]\n3"),
    (["!kill -9 $$", "_exit_code"], "[text/plain]\n-9"),
    (["word = 'é'\n!printf {word}"], "é"),
    (["with open('beside.py', 'w') as file: print('v = 7', file=file)", "import beside; beside.v"], "[text/plain]\n7"),
    (["%orbit spend"], "UsageError: orbit: write %orbit status, %orbit gpu, %orbit cost, %orbit bring PATTERN, %orbit measure on|off, %orbit locate and %orbit end"),
    (["%%cuda --fast\nint x;"], "UsageError: orbit: '--fast' is no option; write %%cuda [--compile] [--kernel K]"),
]  # fmt: skip
"""What the last of some cells shows."""


@pytest.mark.parametrize(
    ("cells", "shown"),
    CELLS,
    ids=lambda value: value[-1].partition("\n")[0] if isinstance(value, list) else "",
)
def test_cells(shared: Kernel, cells: list[str], shown: str) -> None:
    assert [shared.run(cell) for cell in cells][-1] == shown


def test_a_cell_is_timed_and_its_traceback_has_its_lines(shared: Kernel) -> None:
    assert "Wall time: " in shared.run("%%time\nx = 1")
    cell = shared.client.execute("def divide(by):\n    return 1 / by\ndivide(0)", stop_on_error=False)
    answer: Any = {}
    while answer.get("msg_type") != "error":
        answer = shared.client.get_iopub_msg(timeout=LIMIT_S)
    assert shared.outputs(cell) == ""
    traceback = re.sub("\x1b\\[[\\d;]*m", "", "\n".join(answer["content"]["traceback"]))
    assert "----> 3 divide(0)" in traceback
    assert "----> 2     return 1 / by" in traceback


def test_status_names_the_place_and_the_python(shared: Kernel) -> None:
    lines = dict(line.split(maxsplit=1) for line in shared.run("%orbit status").splitlines()[1:])
    assert lines["place"] == "this machine"
    assert sys.executable in lines["python"]
    assert str(shared.pid()) in lines["kernel"]


def test_input_is_asked_of_the_front_end(shared: Kernel) -> None:
    cell = shared.send("print(input('name? ') * 2)")
    asked: Any = shared.client.get_stdin_msg(timeout=LIMIT_S)
    assert asked["content"]["prompt"] == "name? "
    shared.client.input("ab")
    assert shared.outputs(cell) == "abab"


@pytest.mark.slow
def test_completion_and_inspection(shared: Kernel) -> None:
    check_completion(shared)


def check_completion(kernel: Kernel) -> None:
    kernel.run("longvariable = 1")
    completed: Any = kernel.client.complete("longvar", reply=True, timeout=LIMIT_S)
    assert completed["content"]["matches"] == ["longvariable"]
    inspected: Any = kernel.client.inspect("longvariable", reply=True, timeout=LIMIT_S)
    assert "int" in inspected["content"]["data"]["text/plain"]


def test_an_interrupt_ends_a_loop_and_keeps_the_variables(shared: Kernel) -> None:
    interrupt = shared.manager.interrupt_kernel
    assert (
        shared.run("kept = 5\nprint('on')\nwhile True: pass", press_once(interrupt))
        == "on\nKeyboardInterrupt: "
    )
    assert shared.run("kept") == "[text/plain]\n5"


def test_an_interrupt_ends_a_command_that_is_deaf_to_it(shared: Kernel) -> None:
    interrupt = shared.manager.interrupt_kernel
    assert shared.run("!trap '' INT; echo on; cat", press_once(interrupt)) == "on"
    assert shared.run("print('alive')") == "alive"


@pytest.mark.parametrize(
    "cell",
    [
        pytest.param("print('x' * 100_000_000)", marks=pytest.mark.slow),
        pytest.param("!head -c 100000000 /dev/zero | tr '\\0' x", marks=pytest.mark.slow),
        pytest.param("for i in range(100_000): print('x' * 999)", marks=pytest.mark.slow),
    ],
    ids=["print", "command", "lines"],
)
def test_what_a_cell_prints_without_end_is_bounded(shared: Kernel, cell: str) -> None:
    before = shared.relay().memory_info().rss
    shown = shared.run(cell)
    assert len(shown) < 17 << 20
    assert shown.endswith(
        "orbit: this cell's output exceeds 16 MiB; what follows is not shown. Write it to a file instead."
    )
    assert shared.relay().memory_info().rss - before < 100 << 20
    assert shared.run("print('alive')") == "alive"


def test_a_failure_with_a_long_text_is_cut(shared: Kernel) -> None:
    before = shared.relay().memory_info().rss
    cell = shared.send("raise ValueError('x' * 30_000_000)")
    assert shared.outputs(cell) == "ValueError: the text of this error exceeds 16 MiB and is not shown"
    answer: Any = shared.client.get_shell_msg(timeout=LIMIT_S)
    while answer["parent_header"]["msg_id"] != cell:
        answer = shared.client.get_shell_msg(timeout=LIMIT_S)
    assert (answer["content"]["status"], answer["content"]["ename"]) == ("error", "ValueError")
    assert answer["content"]["execution_count"] > 0
    assert len(str(answer["content"])) < 1000
    assert shared.relay().memory_info().rss - before < 100 << 20


@needs_nvcc
def test_errors_of_a_cuda_cell_have_the_lines_of_the_cell(shared: Kernel) -> None:
    shown = shared.run("%%cuda --compile\n__global__ void fill(float* x) {\n  y = 1;\n}")
    assert 'cell.cu:3:3: error: identifier "y" is undefined' in shown
    assert "UsageError: orbit: compile error" in shown


RECORDED = """
import sys
from array import array
house = {name.rpartition('.')[2]: module for name, module in sys.modules.items() if name.startswith('orbit_remote.')}
class Native:
    def timestamp(self): return 0
    def record(self, how): return True
    def forget(self): pass
    def recorded(self):
        records, made = house['launch_records'], add.device_caches[0][0]['one']
        launch = records.LaunchRecord(made.name, 0, 0, (4096, 1, 1), (128, 1, 1), registers=24, static_shared=0, dynamic_shared=0)
        starts = array('q', range(0, 200_000, 10_000))
        return house['injection'].RecordedRun((records.LaunchSeries(launch, starts, array('q', [5000 for _ in starts])),))
house['child_main'].has_gpu = lambda: True
house['recorder'].begin_native = lambda cache, folder: Native()
house['measured_cells']._device = lambda: house['messages'].Device('NVIDIA H100', capability='9.0')
"""
"""Stands in for CUPTI: it has recorded 20 launches of 5 µs each time that it is asked, of what Triton compiled for `add`."""
ADD = """
import triton, triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
@triton.jit
def add(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at, mask=at < n) + 1, mask=at < n)
types = {'x': '*fp32', 'y': '*fp32', 'n': 'i32', 'BLOCK': 'constexpr'}
add.device_caches[0] = ({'one': triton.compile(ASTSource(add, types, {'BLOCK': 1024}), target=GPUTarget('cuda', 90, 32))},)
print('launched')
"""


@pytest.mark.slow
def test_the_triton_kernels_of_a_cell_are_measured(own: Kernel, folder: Path) -> None:
    """Triton compiles the kernel of the cell; its launches are made up, since there is no GPU. No front end names the notebook."""
    assert own.run(RECORDED) == ""
    assert own.run(ADD) == (
        "launched\n[text/html, text/plain]\nmeasured on NVIDIA H100\n"
        "  kernel  time                            configuration    occupancy\n"
        "  add     5.00 µs ±0% (in program, n=19)  <<<4096, 128>>>  ≤100%"
    )
    history = json.loads(orbit(folder, "history", "unnamed.ipynb", "--json")[1])["kernels"]
    assert [(each["kernel"], len(each["runs"])) for each in history] == [("add", 1)]
    assert orbit(folder, "history", "unnamed.ipynb", "--kernel", "add", "--text", "1")[1] == ADD.lstrip()


def until_listed(folder: Path, words: str) -> None:
    """`orbit-lsp sessions list` shows the words."""
    until = time.monotonic() + LIMIT_S
    while words not in (listed := orbit(folder, "sessions", "list")[1]):
        assert time.monotonic() < until, f"{words!r} is not in {listed!r}"


def press_once(interrupt: Callable[[], object]) -> Callable[[str], None]:
    """At the first text: a line may come in several messages, and a second interrupt hits what handles the first."""
    presses = [interrupt]

    def press(_: str) -> None:
        if presses:
            presses.pop()()

    return press


def press_until_over(kernel: Kernel) -> Callable[[str], None]:
    """Interrupt, once a second, until the cell is over: as a person does who waits."""

    def press(_: str) -> None:
        socket: Any = kernel.client.iopub_channel.socket
        kernel.manager.interrupt_kernel()
        while not socket.poll(1100):
            kernel.manager.interrupt_kernel()

    return press


@pytest.mark.slow
def test_how_kernels_end_and_what_the_next_cell_says(shared: Kernel) -> None:
    first = shared.pid()
    again = "its variables are gone, so run the notebook from its first cell"
    assert shared.run(HANGS, press_until_over(shared)) == (
        f"here\nKernelEnded: the cell did not stop at the first Interrupt, so the second ended its kernel; {again}"
    )
    assert not is_alive(first)
    assert shared.run("import os; os.kill(os.getpid(), 11)") == (
        f"KernelEnded: the kernel was ended by signal 11 (SIGSEGV); {again}"
    )
    assert shared.run("import os; os._exit(3)") == f"KernelEnded: the kernel ended with exit code 3; {again}"
    cells = [shared.send(code) for code in ("import os; os._exit(3)", "print('not run')")]
    assert [shared.outputs(cell) for cell in cells] == [
        f"KernelEnded: the kernel ended with exit code 3; {again}",
        "",
    ]
    before = shared.pid()
    shared.run("%orbit end")
    wait_until_ended(before)
    cell, states = shared.send("1"), [""]
    while states[-1] != "idle":
        message: Any = shared.client.get_iopub_msg(timeout=LIMIT_S)
        assert message["parent_header"].get("msg_id") == cell, message["content"]
        states.append(message["content"].get("execution_state", states[-1]))
    assert set(states[1:]) == {"busy", "idle"}


def test_a_second_front_end_and_messages_of_none(shared: Kernel) -> None:
    """Both get their own answers; what is signed with another key is not run, another protocol's version is."""
    second = BlockingKernelClient(connection_file=shared.manager.connection_file)
    second.load_connection_file()
    second.start_channels()
    second.wait_for_ready(timeout=LIMIT_S)
    shared.run("both = 1")
    cells = [shared.send("both += 1; print('first')"), second.execute("both += 1")]  # in either order
    assert shared.outputs(cells[0]) == "first"
    answered: Any = second.get_shell_msg(timeout=LIMIT_S)
    assert (answered["parent_header"]["msg_id"], answered["content"]["status"]) == (cells[1], "ok")
    second.stop_channels()
    socket: Any = shared.client.shell_channel.socket
    forger = Session(key=b"another")
    forger.send(socket, forger.msg("execute_request", {"code": "both = 0", "silent": False}))
    session: Any = shared.client.session
    newer = session.msg("execute_request", {"code": "print(both)", "silent": False})
    newer["header"]["version"] = "9.9"
    session.send(socket, newer)
    assert shared.outputs(newer["header"]["msg_id"]) == "3"


def test_restart_clears_the_variables(shared: Kernel) -> None:
    shared.run("x = 1")
    before = shared.pid()
    shared.manager.restart_kernel()
    shared.client.wait_for_ready(timeout=LIMIT_S)
    assert not is_alive(before)
    assert shared.run("x") == "NameError: name 'x' is not defined"


@pytest.mark.parametrize(
    "who",
    [
        "the relay",
        pytest.param("the keeper", marks=pytest.mark.slow),
        pytest.param("shutdown", marks=pytest.mark.slow),
    ],
)
def test_nothing_is_left_of_a_kernel(own: Kernel, who: str) -> None:
    code = """
import os, subprocess, sys
deaf = "import os, signal; os.setsid(); print(flush=True); signal.pause()"
child = subprocess.Popen([sys.executable, "-c", deaf], stdout=subprocess.PIPE)
child.stdout.readline()
print(os.getpid(), child.pid)
"""
    pids = [int(pid) for pid in own.run(code).split()]
    relay = own.relay()
    keeper = relay.children()[0]
    place = Path(own.run("import os; print(os.environ['ORBIT_NOTEBOOK'])")).parent
    assert (place / "connection.json").is_file()
    assert all(is_alive(pid) for pid in (*pids, keeper.pid))
    if who == "the relay":
        os.kill(relay.pid, signal.SIGKILL)
    elif who == "the keeper":
        os.kill(keeper.pid, signal.SIGKILL)
    else:
        own.manager.shutdown_kernel()
    wait_until_ended(keeper.pid, *pids)
    assert not place.exists() or who == "the keeper"


def test_a_front_end_that_ended_while_its_kernel_began(folder: Path) -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    connection = folder / "connection.json"
    write_connection_file(str(connection), ip="127.0.0.1")
    relay = subprocess.Popen(
        [sys.executable, "-P", "-m", "orbit_lsp", "kernel", "run", "--connection-file", str(connection)],
        env=os.environ | {"JPY_PARENT_PID": str(gone.pid)},
        cwd=folder,
    )
    assert relay.wait(LIMIT_S) == 0


def test_sessions_lists_a_kernel_and_ends_it(own: Kernel, folder: Path) -> None:
    until_listed(folder, "  ready, 0 cells, ")
    own.run("x = 1")
    until_listed(folder, "  idle for 0 min, 1 cell, ")
    pid = own.relay().pid
    listed = valid("sessions", orbit(folder, "sessions", "list", "--json")[1])["kernels"]
    (known,) = [each for each in listed if each["id"].startswith(f"{pid}-")]
    assert (known["place"], known["folder"], known["state"]) == ("this machine", str(folder), "idle")
    assert known["id"] in orbit(folder, "sessions", "list")[1]
    assert orbit(folder, "sessions", "end", known["id"]) == (0, f"ended {known['id']}\n", "")
    wait_until_ended(pid)
    assert known["id"] not in orbit(folder, "sessions", "list")[1]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("end", "orbit-lsp sessions end needs the id of a kernel, or all"),
        ("end ta-1", "there is no notebook kernel 'ta-1'; `orbit-lsp sessions list` has them. A container ends with its kernel or its editor, and `orbit-lsp modal stop` ends them all"),
    ],
)  # fmt: skip
def test_sessions_that_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str, message: str
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert orbit(tmp_path, "sessions", *words.split()) == (64, "", f"orbit-lsp: error: {message}\n")
    assert orbit(tmp_path, "sessions", "list")[1] == "no notebook kernel runs, and no GPU is rented\n"


@pytest.mark.slow
def test_an_idle_kernel_ends_and_the_next_cell_says_so(folder: Path) -> None:
    kernel = Kernel(folder, "--idle-minutes", "0.02")
    try:
        wait_until_ended(kernel.pid())
        assert kernel.run("1").startswith(
            "KernelEnded: this kernel was ended after 0.02 minutes without a cell; its"
        )
        assert kernel.run("2") == "[text/plain]\n2"
    finally:
        kernel.close()


@pytest.mark.slow
def test_a_python_without_ipykernel(folder: Path) -> None:
    """Each cell that is sent after an answer is answered; of those sent together only the first."""
    bare = folder / "bare" / "bin" / "python"
    bare.parent.mkdir(parents=True)
    (folder / "bare" / "pyvenv.cfg").write_text(f"home = {Path(sys.base_prefix) / 'bin'}\n")
    bare.symlink_to(Path(sys.executable).resolve())
    kernel = Kernel(folder, "--python", str(bare))
    sentence = f"KernelEnded: {bare} has no ipykernel: run `{bare} -m pip install ipykernel`, then run the cell again"
    try:
        assert [kernel.run("1") for _ in range(10)] == 10 * [sentence]
        together = [kernel.send(code) for code in "12"]
        assert [kernel.outputs(cell) for cell in together] == [sentence, ""]
    finally:
        kernel.close()


@pytest.mark.slow
def test_the_example_notebook_runs_from_top_to_bottom(folder: Path) -> None:
    orbit(folder, "kernel", "install")
    notebook = nbformat.read(EXAMPLE, as_version=4)
    nbclient.NotebookClient(
        notebook, timeout=LIMIT_S, kernel_name="orbit-local", resources={"metadata": {"path": str(folder)}}
    ).execute()
    shown = json.dumps([cell.get("outputs", []) for cell in notebook.cells])
    assert shown.count("registers per thread") == 2 + 2  # as text and as HTML, of CUDA and of Triton


# -- the command ------------------------------------------------------------------------------------


def test_kernels_are_installed_listed_and_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUPYTER_DATA_DIR", str(tmp_path))
    assert orbit(tmp_path, "kernel", "list")[1] == "no kernels; `orbit-lsp kernel install` makes one\n"
    orbit(tmp_path, "kernel", "install")
    orbit(tmp_path, "kernel", "install", "--name", "Torch 2.13", "--python", sys.executable)
    code, out, _ = orbit(tmp_path, "kernel", "list", "--json")
    named = [(each["name"], each["title"]) for each in valid("kernels", out)]
    assert (code, named) == (
        0,
        [("orbit-local", "Orbit: this GPU"), ("orbit-torch-2.13", "Orbit: Torch 2.13")],
    )
    spec = json.loads((tmp_path / "kernels" / "orbit-torch-2.13" / "kernel.json").read_text())
    assert spec["argv"][-2:] == ["--python", sys.executable]
    assert spec["interrupt_mode"] == "message"
    assert orbit(tmp_path, "kernel", "remove", "orbit-torch-2.13")[1] == "Orbit: Torch 2.13: removed\n"
    assert not (tmp_path / "kernels" / "orbit-torch-2.13").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("install --on modal:H100", "--on modal:H100 rents a GPU: add what it may cost in a month, as in --budget 20 (dollars)"),
        ("install --on modal:H300", "--on 'modal:H300' is no place: write local, ssh:HOST, api: and a server's address, as in api:http://gpu7:8421, or modal: and one of T4, L4, A10, A100-40GB, A100-80GB, L40S, RTX PRO 6000, H100, H200, B200"),
        ("install --python /nowhere/python", "--python /nowhere/python: there is no such file"),
        ("install --idle-minutes soon", "--idle-minutes is 'soon'; write a number of minutes, as in 15; 0 is never"),
        ("install --name ☃", "'☃' has no letter or digit that a kernel's name can have; give another --name"),
        ("remove", "orbit-lsp kernel remove needs the name of a kernel; `orbit-lsp kernel list` has them"),
        ("remove python3", "there is no kernel 'python3' of orbit-lsp; installed: none"),
        ("run", "orbit-lsp kernel run is started by Jupyter, with --connection-file"),
        ("run --connection-file /dev/null", "/dev/null is no connection file of Jupyter"),
    ],
)  # fmt: skip
def test_command_lines_that_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str, message: str
) -> None:
    monkeypatch.setenv("JUPYTER_DATA_DIR", str(tmp_path))
    assert orbit(tmp_path, "kernel", *words.split()) == (64, "", f"orbit-lsp: error: {message}\n")


# -- messages ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "frames",
    [[], [b"<IDS|MSG>"], [b"id", b"<IDS|MSG>", b"forged", b"{}", b"{}", b"{}", b"{}"], [b"{}"] * 9],
)
def test_what_is_no_signed_message_is_dropped(frames: list[bytes]) -> None:
    assert Wire("key", "hmac-sha256").read(frames) is None


FRAME = 1 << 20
"""Bytes of a plot."""


@pytest.mark.parametrize(
    ("kinds", "pause", "shown"),
    [
        (["display_data"], 0.2, "first"),
        pytest.param(["clear_output", "display_data"], 0.2, "all", marks=pytest.mark.slow),
        pytest.param(["update_display_data"], 0.2, "all", marks=pytest.mark.slow),
        pytest.param(["clear_output", "display_data"], 0.001, "first", marks=pytest.mark.slow),
        pytest.param(["update_display_data"], 0.001, "first", marks=pytest.mark.slow),
    ],
    ids=["added", "cleared", "updated", "cleared without a pause", "updated without a pause"],
)
def test_plots_that_replace_each_other_are_shown_for_as_long_as_they_come(
    kinds: list[str], pause: float, shown: str
) -> None:
    wire, now = Wire("key", "hmac-sha256"), [0.0]
    limit = OutputLimit(wire, clock=lambda: now[0])
    plots, notices = 0, 0
    for _ in range(100):
        now[0] += pause
        for kind in kinds:
            frames: list[Any] = wire.make(kind, {"data": {"image/png": "A" * FRAME}}, {"msg_id": "1"})
            message = wire.read(frames)
            assert message
            sent = [each for each in map(wire.read, limit.passed(message, frames)) if each]
            plots += sum(each.kind == kinds[-1] for each in sent)
            notices += sum(each.kind == "stream" for each in sent)
    assert plots == 100 if shown == "all" else 15 <= plots < 20
    assert bool(notices) == (shown != "all")


def test_a_cut_text_ends_before_an_escape() -> None:
    wire = Wire("key", "hmac-sha256")
    frames: list[Any] = wire.make(
        "stream", {"name": "stdout", "text": "é" * 30}, {"msg_id": "1"}, [b"stream"]
    )
    message = wire.read(frames)
    assert message
    sent = [wire.read(each) for each in OutputLimit(wire, most=60).passed(message, frames)]
    texts = [each.value()["text"] for each in sent if each]
    assert set(texts[0]) == {"é"}
    assert "exceeds" in texts[1]
