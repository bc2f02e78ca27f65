"""`orbit-lsp kernel install --on modal:H100`: real ipykernels in containers of the loopback control plane, through the real client."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import nbclient
import nbformat
import pytest
from grpclib.const import Status
from grpclib.exceptions import StreamTerminatedError

from orbit_lsp.notebook import rented as rented_kernels
from orbit_lsp.runners.modal import errors
from orbit_lsp.runners.modal.ledger import Ledger, RentedTime, clock
from tests.cli_check import orbit
from tests.modal.conftest import working
from tests.modal_loopback.loopback import Loopback
from tests.processes_check import wait_until_ended
from tests.test_notebook import (
    CELLS,
    EXAMPLE,
    HANGS,
    LIMIT_S,
    Kernel,
    check_completion,
    press_once,
    press_until_over,
    until_listed,
)
from tests.test_notebook_mishaps import check_widget

OPTIONS = ("--on", "modal:H100", "--budget", "50")
AGAIN = "its variables are gone, so run the notebook from its first cell"
THERE = "orbit: the H100 is there, $4.08/h at rates of 2026-09-20 while this kernel lives"
GONE_S = 6
ENDLESS = "print('on')\nimport threading\nthreading.Event().wait()"


class Rented(Kernel):
    def __init__(self, folder: Path, *options: str) -> None:
        super().__init__(folder, *OPTIONS, *options, name="orbit-modal-h100")

    def first(self, code: str) -> list[str]:
        """What a cell shows that waits for its container, without the lines of the wait."""
        lines = self.run(code).splitlines()
        return [line for line in lines if not line.startswith(("orbit: waiting", "orbit: building"))]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    names = {"JUPYTER_DATA_DIR": "jupyter", "XDG_STATE_HOME": "state", "IPYTHONDIR": "ipython"}
    for name, place in names.items():
        monkeypatch.setenv(name, str(tmp_path / place))
    monkeypatch.setenv("ORBIT_NOTEBOOK_GONE_S", str(GONE_S))
    made = tmp_path / "work"
    made.mkdir()
    return made


@pytest.fixture
def kernels(modal: Loopback, folder: Path) -> Iterator[Callable[..., Rented]]:
    modal.do(lambda world: world.container_env.update({"ORBIT_NOTEBOOK_GONE_S": str(GONE_S)}))
    made: list[Rented] = []

    def make(*options: str) -> Rented:
        made.append(Rented(folder, *options))
        return made[-1]

    yield make
    began = time.monotonic()
    for each in made:
        each.close()
    modal.until(lambda world: not world.alive())
    ending_s = time.monotonic() - began  # the ledger ends with the order to end, and the container after it
    assert billed(modal) - ending_s <= recorded(folder)


def billed(modal: Loopback) -> float:
    """Seconds of containers."""
    return modal.do(
        lambda world: sum(
            (each.finished or world.now()) - each.started
            for each in world.containers.values()
            if each.started
        )
    )


def recorded(folder: Path) -> float:
    """Seconds in the ledger, as if now."""
    with closing(sqlite3.connect(folder.parent / "state" / "orbit-lsp" / "rented.sqlite")) as file:
        rows = file.execute(
            "select id, min(began), max(ends) from spans where not waits group by id"
        ).fetchall()
    return sum(min(ends, time.time()) - began for _, began, ends in rows)


def containers(modal: Loopback) -> int:
    return len(working(modal))


def test_cells_keep_their_state_in_one_container(
    modal: Loopback, kernels: Callable[..., Rented], folder: Path
) -> None:
    kernel = kernels()
    assert containers(modal) == 0  # nothing is rented before a cell asks
    until_listed(folder, "  not started, ")
    assert kernel.first("x = 20; print('é')") == [THERE, "é"]
    assert kernel.run("x + 1") == "[text/plain]\n21"
    assert kernel.run("1 / 0") == "ZeroDivisionError: division by zero"
    assert (
        kernel.run("display({'text/plain': 'p', 'image/png': 'iVBO'}, raw=True)")
        == "[image/png, text/plain]\np"
    )
    assert (
        kernel.run("import os; [name for name in os.environ if name.startswith('MODAL')]")
        == "[text/plain]\n[]"
    )
    cost = kernel.run("%orbit cost").splitlines()
    assert cost[1].startswith("H100: rented for 0 min, $0.0")
    assert "the budget is $50.00" in cost[2]
    assert "H100 on Modal" in kernel.run("%orbit status")
    listed = orbit(folder, "sessions", "list")[1].splitlines()
    assert "  H100 on Modal  " in listed[0]
    assert "H100 on Modal  rented for 0 min, $0.0" in listed[1]
    cell = kernel.send("print(input('name? ') * 2)")
    kernel.client.get_stdin_msg(timeout=60)
    kernel.client.input("ab")
    assert kernel.outputs(cell) == "abab"
    interrupt = kernel.manager.interrupt_kernel
    assert kernel.run("print('on')\nwhile True: pass", press_once(interrupt)) == "on\nKeyboardInterrupt: "
    assert kernel.run("x") == "[text/plain]\n20"
    assert containers(modal) == 1
    kernel.run("%orbit end")
    modal.until(lambda world: not world.alive())
    assert kernel.first("'x' in globals()") == [THERE, "[text/plain]", "False"]


@pytest.mark.slow
def test_cells_show_there_what_they_show_here(kernels: Callable[..., Rented]) -> None:
    kernel = kernels()
    kernel.run("pass")
    for cells, shown in CELLS:
        assert [kernel.run(cell) for cell in cells][-1] == shown, cells
    assert "Wall time: " in kernel.run("%%time\nx = 1")
    check_completion(kernel)
    check_widget(kernel, 1000)
    shown = kernel.run("print('x' * 100_000_000)")
    assert shown.endswith("what follows is not shown. Write it to a file instead.")
    assert kernel.run("x") == "[text/plain]\n1"


@pytest.mark.slow
def test_how_kernels_end_there_and_what_the_next_cell_says(
    modal: Loopback, kernels: Callable[..., Rented]
) -> None:
    kernel = kernels()
    kernel.run("x = 1")
    assert kernel.run(HANGS, press_until_over(kernel)) == (
        f"here\nKernelEnded: the cell did not stop at the first Interrupt, so the second ended its kernel; {AGAIN}"
    )
    assert kernel.run("import os; os._exit(3)") == f"KernelEnded: the kernel ended with exit code 3; {AGAIN}"
    assert kernel.run("x") == "NameError: name 'x' is not defined"
    kernel.manager.restart_kernel()
    kernel.client.wait_for_ready(timeout=60)
    assert kernel.first("x") == [THERE, "NameError: name 'x' is not defined"]
    assert len(modal.do(lambda world: world.but_for("hello"))) == 1  # all in the one container


@pytest.mark.slow
def test_a_container_that_is_lost_ends_the_kernel_and_says_so(
    modal: Loopback, kernels: Callable[..., Rented]
) -> None:
    kernel = kernels()
    kernel.run("x = 1")

    def lose(_: str) -> None:
        modal.do(lambda world: [each.kill() for each in world.alive()])

    lost = f"KernelEnded: its container was lost: Modal took it away, or it ran out of memory; {AGAIN}"
    assert kernel.run(ENDLESS, lose) == f"on\n{lost}"
    assert kernel.first("1") == [THERE, "[text/plain]", "1"]


@pytest.mark.slow
def test_a_lost_connection_is_taken_up_again(modal: Loopback, kernels: Callable[..., Rented]) -> None:
    kernel = kernels()
    kernel.run("x = 1")

    cuts: list[str] = []

    def cut(text: str) -> None:
        """While the cell waits for its input, which comes over the new connection."""
        if not cuts:
            cuts.append(text)
            modal.refuse_connections()
            modal.accept_connections()
            kernel.client.get_stdin_msg(timeout=LIMIT_S)
            kernel.client.input("")

    shown = kernel.run("print(0)\ninput()\nfor i in range(1, 40): print(i, flush=True)", cut)
    assert cuts == ["0\n"]
    assert shown.split() == [str(i) for i in range(40)]


@pytest.mark.slow
def test_much_output_that_is_on_the_way_when_the_connection_is_lost_is_not(
    modal: Loopback, kernels: Callable[..., Rented]
) -> None:
    kernel = kernels()
    kernel.run("x = 1")
    texts: list[str] = []

    def cut(text: str) -> None:
        texts.append(text)
        if len(texts) in (3, 20):
            modal.refuse_connections()
            modal.accept_connections()

    shown = kernel.run("for i in range(40): print(f'{i:0400000}', flush=True)", cut)
    assert [line.lstrip("0") or "0" for line in shown.split()] == [str(i) for i in range(40)]
    assert kernel.run("x") == "[text/plain]\n1"


def test_a_connection_that_is_cut_is_one_that_can_be_taken_up_again() -> None:
    assert errors.unreachable(StreamTerminatedError("Connection lost"))


@pytest.mark.slow
def test_a_message_that_modal_does_not_take(
    modal: Loopback, kernels: Callable[..., Rented], folder: Path
) -> None:
    """The container's is sent again; the author's ends the kernel, as a cell that was not sent never ends."""
    kernel = kernels()
    kernel.run("import os; x = 1")
    gate = folder.parent / "gate"

    def fail(text: str) -> None:
        if text == "0\n":
            modal.fail("QueuePut", Status.DATA_LOSS, times=2)
            gate.touch()

    shown = kernel.run(
        f"print(0, flush=True)\nwhile not os.path.exists({str(gate)!r}): pass\nfor i in range(1, 40): print(i, flush=True)",
        fail,
    )
    assert shown.split() == [str(i) for i in range(40)]
    modal.fail("QueuePut", Status.DATA_LOSS, "a disk", times=None)
    assert (
        kernel.run("x")
        == f"KernelEnded: Modal failed: a disk (run it again; see also status.modal.com); {AGAIN}"
    )
    modal.do(lambda world: world.faults.clear())
    assert kernel.first("'x' in globals()") == [THERE, "[text/plain]", "False"]


@pytest.mark.slow
def test_who_is_away_too_long_finds_the_kernel_ended(modal: Loopback, kernels: Callable[..., Rented]) -> None:
    kernel = kernels()
    kernel.run("x = 1")
    shown = kernel.run(ENDLESS, lambda _: modal.refuse_connections())
    assert (
        shown
        == f"on\nKernelEnded: Modal has not answered for {GONE_S} s, and the container ends by itself; {AGAIN}"
    )
    modal.until(lambda world: not world.alive())
    modal.accept_connections()


@pytest.mark.slow
def test_a_laptop_that_sleeps_longer_than_its_container_waits(
    modal: Loopback, kernels: Callable[..., Rented]
) -> None:
    kernel = kernels()
    kernel.run("x = 1")

    def sleep(_: str) -> None:
        relay = kernel.relay()
        relay.suspend()
        modal.until(lambda world: not world.alive())
        relay.resume()

    gone = f"the author's side has given no sign for {GONE_S} s"
    assert kernel.run(ENDLESS, sleep) == f"on\nKernelEnded: {gone}; {AGAIN}"
    assert kernel.first("'x' in globals()") == [THERE, "[text/plain]", "False"]


@pytest.mark.slow
def test_a_message_that_is_lost_on_the_way_is_sent_again(
    modal: Loopback, kernels: Callable[..., Rented]
) -> None:
    kernel = kernels()
    kernel.run("x = 1")
    seen: dict[bytes, int] = {}

    def drop(partition: bytes, items: list[bytes]) -> list[bytes]:
        seen[partition] = seen.get(partition, 0) + 1
        return [] if seen[partition] == 3 else items

    modal.tamper(drop)
    shown = kernel.run("for i in range(20): print(i, flush=True)")
    assert shown.split() == [str(i) for i in range(20)]
    assert kernel.run("x") == "[text/plain]\n1"


@pytest.mark.slow
def test_files_are_the_same_before_each_cell_and_what_cells_wrote_stays(
    modal: Loopback, kernels: Callable[..., Rented], folder: Path
) -> None:
    (folder / "pack").mkdir()
    (folder / "pack" / "tool.py").write_text("answer = 1")
    (folder / "data.txt").write_text("here")
    (folder / "secret.key").write_text("x")
    (folder / ".env").write_text("x")
    (folder / ".gitignore").write_text("*.key\n")
    os.mkfifo(folder / "pipe")
    (folder / "out").symlink_to("/etc")
    kernel = kernels()
    listed = "import os; print(*sorted(os.path.join(f, n) for f, _, names in os.walk('.') for n in names))"
    assert kernel.first(listed)[-1] == "./data.txt ./pack/tool.py"
    imported = "import sys; sys.dont_write_bytecode = True; from pack import tool; print(tool.answer)"
    assert kernel.run(imported) == "1"
    kernel.run("open('made.txt', 'w').write('by a cell'); open('data.txt', 'w').write('by a cell, too')")
    assert kernel.run("print(open('data.txt').read())") == "by a cell, too"
    (folder / "pack" / "tool.py").write_text("answer = 22")
    (folder / "new.txt").write_text("new")
    assert kernel.run("print(open('pack/tool.py').read(), open('new.txt').read())") == "answer = 22 new"
    shutil.rmtree(folder / "pack")
    (folder / "data.txt").unlink()  # a cell has written to it
    (folder / "new.txt").unlink()
    assert kernel.run(listed) == "./data.txt ./made.txt"
    assert kernel.run("%orbit bring *.txt").splitlines()[1:] == ["data.txt: 14 B", "made.txt: 9 B"]
    assert (folder / "made.txt").read_text() == "by a cell"
    (folder / "made.txt").write_text("changed here")
    kernel.run("open('made.txt', 'w').write('again')")
    assert kernel.run("%orbit bring made*").splitlines()[1:] == ["made.txt: 5 B"]
    assert kernel.run("%orbit bring *.bin").splitlines()[1:] == ["no file matches --bring *.bin"]


@pytest.mark.slow
def test_what_cannot_be_sent_or_written_is_said_and_counts_as_not_sent(
    modal: Loopback, kernels: Callable[..., Rented], folder: Path
) -> None:
    kernel = kernels()
    kernel.run("import os; os.mkdir('taken'); open('taken/x', 'w').close()")
    (folder / "taken").write_text("a file")
    shown = kernel.run("1")
    assert (
        shown
        == "FilesNotSent: the cell was not run: taken could not be written in the container: Is a directory"
    )
    assert kernel.run("1") == shown
    (folder / "taken").unlink()
    assert kernel.run("1") == "[text/plain]\n1"
    with (folder / "large.bin").open("wb") as file:
        file.truncate(300 << 20)
    assert kernel.run("1") == (
        f"FilesNotSent: the cell was not run: {folder} holds 300 MiB in 1 files and perhaps more, and the setting "
        "`modal.files_mib` allows 256 MiB; the largest are large.bin (300 MiB). Move the notebook into a folder of its own, "
        "or name files in .orbitignore."
    )
    (folder / ".orbitignore").write_text("*.bin\n")
    assert kernel.run("1") == "[text/plain]\n1"


@pytest.mark.slow
def test_a_cell_cannot_lead_files_out_of_their_folder(
    modal: Loopback, kernels: Callable[..., Rented], folder: Path
) -> None:
    (folder / "sub").mkdir()
    (folder / "sub" / "a.txt").write_text("1")
    elsewhere = folder.parent / "elsewhere"
    elsewhere.mkdir()
    kernel = kernels()
    kernel.run(f"import os, shutil; shutil.rmtree('sub'); os.symlink({str(elsewhere)!r}, 'sub')")
    (folder / "sub" / "a.txt").write_text("2")
    shown = kernel.run("1")
    assert (
        shown
        == "FilesNotSent: the cell was not run: sub/a.txt could not be written in the container: Not a directory"
    )
    assert list(elsewhere.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "when", [pytest.param("while it waits for a GPU", marks=pytest.mark.slow), "while a cell runs"]
)
def test_nothing_is_left_of_a_relay_that_is_killed(
    modal: Loopback, kernels: Callable[..., Rented], folder: Path, when: str
) -> None:
    if when == "while it waits for a GPU":
        modal.limit_capacity(0)
    kernel = kernels()
    cell = kernel.send("import signal\nprint('on')\nwhile True: signal.pause()")
    if when == "while it waits for a GPU":
        modal.until(lambda world: any(function.pending for function in world.functions.values()))
        until_listed(folder, "  queued, ")
        while kernel.client.get_iopub_msg(timeout=60)["content"].get("execution_state") != "busy":
            pass
    else:
        while kernel.client.get_iopub_msg(timeout=60)["content"].get("name") != "stdout":
            pass
        until_listed(folder, "  busy, ")
    assert cell
    relay = kernel.relay().pid
    os.kill(relay, signal.SIGKILL)
    wait_until_ended(relay)
    modal.grant_capacity()
    modal.until(lambda world: world.containers and not world.alive())


@pytest.mark.slow
def test_an_idle_kernel_gives_its_gpu_back(
    modal: Loopback, kernels: Callable[..., Rented], folder: Path
) -> None:
    kernel = kernels("--idle-minutes", "0.02")
    kernel.run("x = 1")
    modal.until(lambda world: world.containers and not world.alive())
    until_listed(folder, "  ended, ")
    assert kernel.run("x") == f"KernelEnded: this kernel was ended after 0.02 minutes without a cell; {AGAIN}"


def test_a_budget_that_is_too_small_rents_nothing(modal: Loopback, kernels: Callable[..., Rented]) -> None:
    kernel = kernels("--budget", "0.01")
    shown = kernel.run("1")
    assert shown.startswith("KernelEnded: this may take the month's spending on Modal to $0.")
    assert "raise the kernel's budget" in shown
    assert not modal.world.containers


@pytest.mark.slow
def test_a_budget_that_is_used_up_ends_the_kernel(
    modal: Loopback, kernels: Callable[..., Rented], folder: Path
) -> None:
    kernel = kernels()
    kernel.run("x = 1")
    other = Ledger(lambda: folder.parent / "state" / "orbit-lsp" / "rented.sqlite")
    other.put(RentedTime("ta-other", "H100", clock() - 100, clock(), 1.0))
    modal.until(lambda world: not world.alive())
    shown = kernel.run("x")
    assert shown.startswith("KernelEnded: the month's budget of $50.00 is used up ($100.0")
    assert shown.endswith(f"so the rented GPU was ended; {AGAIN}")


@pytest.mark.slow
def test_a_cell_that_deletes_its_folder(
    modal: Loopback, kernels: Callable[..., Rented], folder: Path
) -> None:
    (folder / "data.txt").write_text("here")
    (folder / "aux.txt").write_text("a name that Windows does not have")
    kernel = kernels()
    kernel.first(
        "import os, shutil; home = os.getcwd(); os.chdir('/'); shutil.rmtree(home, ignore_errors=True)"
    )
    (folder / "new.txt").write_text("new")
    assert kernel.run("os.chdir(home); print(*sorted(os.listdir()))") == "new.txt"
    kernel.manager.restart_kernel()
    kernel.client.wait_for_ready(timeout=60)
    assert kernel.first("import os; print(*sorted(os.listdir()))")[-1] == "aux.txt data.txt new.txt"


@pytest.mark.slow
def test_the_example_runs_there(modal: Loopback, folder: Path) -> None:
    orbit(folder, "kernel", "install", *OPTIONS)
    notebook: Any = nbformat.read(EXAMPLE, as_version=4)
    nbclient.NotebookClient(
        notebook,
        kernel_name="orbit-modal-h100",
        timeout=LIMIT_S,
        resources={"metadata": {"path": str(folder)}},
    ).execute()
    assert (folder / "sizes.py").is_file()  # a cell wrote it there, and `%orbit bring` fetched it
    modal.until(lambda world: world.containers and not world.alive())


@pytest.mark.slow
def test_without_a_token_the_first_cell_says_so(
    kernels: Callable[..., Rented], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("MODAL_TOKEN_ID", "MODAL_TOKEN_SECRET"):
        monkeypatch.setenv(name, "")
    shown = kernels().run("1")
    assert "there is no Modal token on this machine" in shown
    assert "there is no Modal token on this machine (" in shown


@pytest.mark.slow
async def test_containers_that_fail_as_they_start_end_the_session(
    modal: Loopback, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In this process; the kernel's front end would show why."""
    rented = rented_kernels.Rented("H100", 5.0, tmp_path, None, print)
    places = rented._places
    await places.look_around()
    await places.rental.runner().pool.account.deploy()
    modal.do(lambda world: world.container_env.update({"ORBIT_GONE_S": "not a number"}))  # read at import
    try:
        kernel = await rented.start("0" * 32, "hmac-sha256")
        async with asyncio.timeout(LIMIT_S):
            _ = [record async for record in kernel.records()]
        ended = await kernel.ended
        assert ended.failure.startswith("3 containers on Modal failed as they started, so no more are rented")
        assert sum(bool(each.function.gpu) for each in modal.world.containers.values()) <= 4
    finally:
        await rented.close(keep=False)
