"""Links that break and processes that are killed: a job goes on, or its end is said; nothing is done twice, and nothing is left."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from contextlib import suppress
from pathlib import Path

import pytest

from orbit_lsp.runners.ssh import connection
from orbit_lsp.runners.ssh.runner import SshRunner
from orbit_remote.common import messages as c
from orbit_remote.common.requests import ExecStart, Job
from orbit_remote.ssh_host.numbered_lines import LineInbox, LineOutbox
from tests.processes_check import is_alive
from tests.ssh.host import Host, until
from tests.ssh.test_host import KERNEL, Make, finished, job

pytestmark = pytest.mark.slow


@pytest.fixture
def waits(tmp_path: Path) -> tuple[Path, Path]:
    """Where a program writes its process id when it begins, and the file that it waits for."""
    return tmp_path / "began", tmp_path / "go"


def waiting(folder: Path, waits: tuple[Path, Path], run: str = "r1") -> Job:
    """A script that runs until the second file is there."""
    began, go = waits
    folder.mkdir(exist_ok=True)
    text = (
        f"import os, time\nprint(os.getpid(), file=open({str(began)!r}, 'a'), flush=True)\nprint('one', flush=True)\n"
        f"while not os.path.exists({str(go)!r}): time.sleep(0.01)\nprint('two')\n"
    )
    path = folder / "waits.py"
    path.write_text(text)
    return Job(run, "run", "triton", str(path), text, directory=str(folder), start=ExecStart(str(folder)))


async def begun(runner: SshRunner, wanted: Job, began: Path) -> asyncio.Task[c.Finished]:
    task = asyncio.create_task(finished(runner, wanted))
    await asyncio.to_thread(
        until, lambda: (began.exists() and began.read_text()) or task.done(), "the program begins"
    )
    assert not task.done(), task.result()
    return task


def runs(waits: tuple[Path, Path]) -> bool:
    """Whether the program still runs that began last."""
    return is_alive(int(waits[0].read_text().splitlines()[-1]))


async def test_a_run_outlasts_its_link(
    runner: Make, host: Host, tmp_path: Path, waits: tuple[Path, Path]
) -> None:
    task = await begun(runner(), waiting(tmp_path / "p", waits), waits[0])
    host.drop_links()
    waits[1].touch()
    last = await task
    assert (last.outcome, last.stdout) == ("ok", "one\ntwo\n")
    assert len(waits[0].read_text().splitlines()) == 1, "it ran once"


async def test_a_link_that_stays_down(
    runner: Make, host: Host, tmp_path: Path, waits: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "KEEP_S", 3.0)
    monkeypatch.setattr(connection, "SIGN_S", 0.1)
    task = await begun(runner(), waiting(tmp_path / "p", waits), waits[0])
    host.drop_links()
    host.stop()
    last = await task
    assert last.failure
    assert (last.outcome, last.failure.message) == ("infrastructure", "gpu1 takes no ssh connections")
    assert last.failure.retryable
    await asyncio.to_thread(until, lambda: not host.processes(" proxy "), "the proxy ends")
    await asyncio.to_thread(until, lambda: not runs(waits), "the program ends")


async def test_a_link_that_comes_back_too_late(
    runner: Make, host: Host, tmp_path: Path, waits: tuple[Path, Path]
) -> None:
    task = await begun(runner(), waiting(tmp_path / "p", waits), waits[0])
    for number in host.processes(" proxy "):
        os.kill(number, signal.SIGTERM)  # as it ends itself after 45 s
    last = await task
    assert last.failure
    assert last.failure.message.startswith(
        "the run on gpu1 was ended: its link to this machine was down for more than 45 s"
    )
    await asyncio.to_thread(until, lambda: not runs(waits), "the program ends")
    waits[1].touch()
    again = await finished(runner(), waiting(tmp_path / "p", waits, "r2"))
    assert again.outcome == "ok"


async def test_a_worker_that_is_killed(
    runner: Make, host: Host, tmp_path: Path, waits: tuple[Path, Path]
) -> None:
    one = runner()
    task = await begun(one, waiting(tmp_path / "p", waits), waits[0])
    for number in host.processes(" worker "):
        with suppress(ProcessLookupError):
            os.kill(number, signal.SIGKILL)
    last = await task
    assert last.failure
    assert last.failure.message.startswith("the worker process there ended unexpectedly")
    await asyncio.to_thread(until, lambda: not runs(waits), "the program ends")
    assert (await finished(one, job(tmp_path / "q"))).outcome == "ok"


async def test_a_cancelled_run_is_over_there(
    runner: Make, host: Host, tmp_path: Path, waits: tuple[Path, Path]
) -> None:
    task = await begun(runner(), waiting(tmp_path / "p", waits), waits[0])
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    assert not runs(waits)


async def test_a_run_is_cancelled_while_the_link_is_down(
    runner: Make, host: Host, tmp_path: Path, waits: tuple[Path, Path]
) -> None:
    task = await begun(runner(), waiting(tmp_path / "p", waits), waits[0])
    host.drop_links()
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    await asyncio.to_thread(until, lambda: not runs(waits), "the program ends")


async def test_the_next_run_after_a_lost_link(runner: Make, host: Host, tmp_path: Path) -> None:
    one = runner()
    assert (await finished(one, job(tmp_path / "p"))).outcome == "ok"
    host.drop_links()
    assert (await finished(one, job(tmp_path / "p", KERNEL, "r2"))).outcome == "ok"


async def test_kills_at_random(runner: Make, host: Host, tmp_path: Path) -> None:
    """Each job ends once, with a result or a sentence, whatever is killed meanwhile."""
    chance = random.Random(56)
    one = runner()
    outcomes: list[str] = []
    # each in each third of the time that a run takes here
    moments = [(victim, third) for victim in ("proxy", "relay", "worker", "link") for third in (0, 1, 2)]
    chance.shuffle(moments)
    for number, (victim, third) in enumerate(moments):
        text = KERNEL.replace("x[0]", f"x[{number}]")
        task = asyncio.create_task(finished(one, job(tmp_path / "p", text, f"r{number}")))
        await asyncio.sleep(chance.uniform(0.2 * third, 0.2 * third + 0.2))
        if victim == "link":
            host.drop_links()
        for process in host.processes(f" {victim} "):
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        last = await task
        outcomes.append(last.outcome)
        assert last.outcome == "ok" or (last.failure and last.failure.category == "infrastructure"), last
    assert "ok" in outcomes
    await one.close()
    await asyncio.to_thread(
        until, lambda: not host.processes(" relay ") and not host.processes(" proxy "), "all end"
    )


def test_lines_that_come_twice_and_out_of_turn() -> None:
    sender, receiver = LineOutbox(), LineInbox()
    lines = [sender.add(word) for word in (b"a", b"b", b"c")]
    assert [receiver.take(line) for line in (lines[0], lines[0], lines[1])] == [b"a", None, b"b"]
    sender.has_come(receiver.last)
    assert sender.waiting() == [lines[2]]
    for wrong in (b"5 x\n", b"x\n", b"-1 x\n", b""):
        with pytest.raises(ValueError, match="line"):
            receiver.take(wrong)
