"""A server and a command as they are really started, and that what is forked for the other tests is no other."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from orbit_lsp.server import language_server
from tests.e2e.conftest import SERVER, Editor
from tests.e2e.forks import LIMIT_S, command
from tests.e2e.test_run import MEASURED, SOURCE, named_gpu
from tests.remote.nvcc_check import needs_nvcc


async def test_a_server_started_as_an_editor_starts_it_and_a_forked_one_are_the_same(
    start, recorded_python
) -> None:
    async def what_it_is(*, forked: bool) -> tuple[Any, ...]:
        editor: Editor = await start("vscode", forked=forked, python=recorded_python)
        editor.open("saxpy.cu", SOURCE)
        await named_gpu(editor)
        await editor.click()
        ended = await editor.until(editor.ended)
        hints, info = await editor.hints(), str(await editor.command("orbit.info"))
        await editor.close()
        return ended, hints, info, editor.client._server.returncode

    real = await what_it_is(forked=False)
    ended, hints, _, status = real
    assert (ended, hints) == (["288 µs"], [(0, MEASURED)])
    assert status == 0
    assert await what_it_is(forked=True) == real


async def test_a_server_whose_editor_is_gone_ends(start) -> None:
    editor: Editor = await start("vscode", python="/nowhere/python")
    editor.over = True
    editor.client.protocol.writer.close()
    assert await editor.client._server.wait() is not None
    await editor.client.stop()


@pytest.mark.parametrize(
    "words",
    [
        ("run", "saxpy.cu", "--kernel", "saxpy"),
        ("run", "saxpy.cu", "--json", "--absent"),
        ("compile", "absent.cu"),
    ],
)
def test_a_forked_command_says_the_same_and_ends_the_same(
    recorded_python, tmp_path: Path, words: tuple[str, ...]
) -> None:
    (tmp_path / "saxpy.cu").write_text(SOURCE)
    words = (*words, "--python", recorded_python, "--runner", "local")
    real = subprocess.run(
        [*SERVER, *words], cwd=tmp_path, stdin=subprocess.DEVNULL, capture_output=True, encoding="utf-8",
        timeout=LIMIT_S, check=False,
    )  # fmt: skip
    forked = command(tmp_path, *words)
    assert (forked.returncode, forked.stdout, forked.stderr) == (real.returncode, real.stdout, real.stderr)


def test_a_forked_command_has_its_own_environment_and_folder(tmp_path: Path) -> None:
    (tmp_path / "k.py").write_text("pass\n")
    assert command(tmp_path, "show", "k.py").stdout == "1 pass\n"
    limit = command(tmp_path, "show", "k.py", environment={"ORBIT_BUDGET_USD": "much"})
    assert (limit.returncode, "ORBIT_BUDGET_USD" in limit.stderr) == (64, True)
    assert "ORBIT_BUDGET_USD" not in os.environ
    assert command(tmp_path, "show", "k.py").returncode == 0
    assert Path.cwd() != tmp_path
    assert sys.argv[1:] != ["show", "k.py"]


@needs_nvcc
async def test_an_editor_and_a_command_share_one_worker(start, shared_workers: Path) -> None:
    del shared_workers
    editor = await start("neovim-0.12")
    editor.open("k.cu", "__global__ void k(float* x) { x[0] = y; }\n")
    await editor.until(editor.diagnostics)
    ended = await asyncio.to_thread(command, editor.folder, "doctor", "--json")
    (worker,) = json.loads(ended.stdout)["workers"]
    assert sorted(worker["clients"]) == ["neovim-0.12", "orbit-lsp doctor"]
    await editor.close()
    ended = await asyncio.to_thread(command, editor.folder, "stop")
    assert ended.stdout.endswith(f"stopped 1 worker: process {worker['pid']}\n")


@pytest.mark.parametrize("turns", range(1, 9))
async def test_a_process_that_is_being_started_does_not_keep_a_server_that_ends(turns: int) -> None:
    """Each number of turns of the event loop is another place at which the start is given up."""
    words = [sys.executable, "-c", "input()"]
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), asyncio.subprocess.PIPE)
    starting = asyncio.create_task(asyncio.create_subprocess_exec(*words, **pipes))
    for _ in range(turns):
        await asyncio.sleep(0)
    await language_server.end_tasks()
    assert starting.done()
