"""The server of an editor is killed while it uses a host: what it had begun there ends, and nothing of it is left."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from pathlib import Path
from typing import Any

import pytest

from orbit_remote.process import file_lock
from tests.e2e.conftest import Editor, display, start
from tests.e2e.test_driver_lenses import FIRST, KERNELS
from tests.processes_check import is_alive
from tests.ssh.host import Host, until

pytestmark = pytest.mark.slow
__all__ = ["display", "start"]
QUICKLY = {"orbit_lsp.runners.ssh.connection.KEEP_S": 5.0, "orbit_lsp.runners.ssh.connection.SIGN_S": 0.2}
KILLS = int(os.environ.get("ORBIT_TEST_KILLS", "4"))
ENDLESS = """import os, time


def test_softmax():
    with open({began!r}, "a") as file:
        print(os.getpid(), file=file)
    while True:
        time.sleep(0.05)
    softmax(1)


from pkg.softmax import softmax
"""


async def clicked(start: Any, host: Host, began: Path) -> Editor:
    """An editor that has asked for a run of a test without an end."""
    editor: Editor = await start(
        "vscode", runner="ssh:gpu1", ssh={"python": str(host.python)}, trusted=True,
        constants=QUICKLY,
    )  # fmt: skip
    for name, text in {
        "pkg/__init__.py": "",
        "tests/test_softmax.py": ENDLESS.format(began=str(began)),
    }.items():
        path = editor.folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    editor.open("pkg/softmax.py", KERNELS)
    await editor.asked_until(editor.titles, lambda titles: any("softmax" in title for _, title in titles))
    await editor.command("orbit.run", {"uri": editor.uri, "kernel": "softmax_kernel", "through": FIRST})
    return editor


async def killed(editor: Editor) -> None:
    editor.over = True
    server = editor.client._server
    os.kill(server.pid, signal.SIGKILL)
    await server.wait()


def left(host: Host, began: Path) -> list[str]:
    """What is left of a client that has ended: its processes, its sockets, folders that nobody gives back."""
    programs = [int(pid) for pid in began.read_text().split()] if began.exists() else []
    locks = list((host.cache / "orbit-lsp" / "ssh" / "trees").glob("*.lock"))
    taken = [lock for lock in locks if (free := file_lock.taken_at(lock)) is None or os.close(free)]
    scratch = (host.cache / "orbit-lsp" / "ssh" / "cache" / "scratch").glob("*")
    return [
        *(f"program {pid}" for pid in programs if is_alive(pid)),
        *(f"process {pid}" for role in (" relay ", " proxy ") for pid in host.processes(role)),
        *map(str, (host.run / "orbit-lsp").glob("*.proxy*")),
        *map(str, taken),
        *(str(path) for path in scratch if "-launches-" not in path.name),  # those are of prepared processes
    ]


@pytest.mark.timeout(600 + 20 * KILLS)
async def test_an_editor_that_is_killed_leaves_nothing(start: Any, host: Host, tmp_path: Path) -> None:
    chance = random.Random(56)
    began = tmp_path / "began"
    for number in range(KILLS):
        editor = await clicked(start, host, began)
        if number == 0:  # for once the program surely runs
            await asyncio.to_thread(until, began.exists, "the program begins")
        await asyncio.sleep(chance.uniform(0, 5))
        await killed(editor)
        await asyncio.to_thread(until, lambda: not left(host, began), "all of it ends")
