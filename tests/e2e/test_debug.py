"""*Debug* in an editor: the real worker, Triton's interpreter and debugpy, without a GPU."""

from __future__ import annotations

import asyncio
import re
from textwrap import dedent
from typing import Any

import pytest

from tests.debugger_client import DebuggerClient
from tests.e2e.conftest import Editor

TEXT = dedent("""
    import triton
    import triton.language as tl

    # orbit: n = 100; x = ones(n); out = empty(n)
    # orbit: launch double[(2,)](x, out, n, BLOCK=64)
    # orbit: expect out == x + x
    @triton.jit
    def double(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(out_ptr + at, 2 * tl.load(x_ptr + at, mask=at < n), mask=at < n)
    """)
STORE = 11
ADDRESS = re.compile(
    r"orbit: attach a debugger for Python to ([\d.]+):(\d+), within a minute: double, program \(0, 0, 0\)"
)


async def _started(start) -> tuple[Editor, DebuggerClient]:
    editor: Editor = await start("vscode")
    editor.open("k.py", TEXT)

    async def offered() -> list[Any]:
        commands = [lens.command for lens in await editor.lenses() if lens.command]
        return [command for command in commands if command.title == "Debug"]

    [debug] = await editor.asked_until(offered, bool)  # once the machine is known
    assert "Debug (double)" in [action.title for action in await editor.actions(STORE - 1)]
    await editor.command(debug.command, *debug.arguments)
    [address] = await editor.until(
        lambda: [match for text in editor.messages() if (match := ADDRESS.match(text))]
    )
    return editor, await asyncio.to_thread(DebuggerClient, address[1], int(address[2]))


async def test_the_lens_starts_a_debugger_and_says_where_it_is(start) -> None:
    editor, debugger = await _started(start)
    await asyncio.to_thread(debugger.attach, str(editor.folder / "k.py"), STORE)
    frame = await asyncio.to_thread(debugger.stopped)
    assert (frame["line"], frame["name"]) == (STORE, "double")
    debugger.request("disconnect")
    debugger.close()
    assert await editor.until(editor.ended) == ["the debugger has ended"]


@pytest.mark.slow
async def test_at_the_first_wrong_element_it_stops_in_the_instance_that_wrote_it(start) -> None:
    editor: Editor = await start("vscode")
    editor.open("k.py", TEXT.replace("2 * tl", "(2 + (at == 70).to(tl.int32)) * tl"))
    argument = {"uri": editor.uri, "kernel": "double", "what": "wrong"}
    await editor.command("orbit.debug", argument)
    pattern = (
        r"orbit: attach a debugger for Python to ([\d.]+):(\d+), within a minute: double, program \(1, 0, 0\)"
    )
    [address] = await editor.until(
        lambda: [match for text in editor.messages() if (match := re.match(pattern, text))]
    )
    debugger = await asyncio.to_thread(DebuggerClient, address[1], int(address[2]))
    await asyncio.to_thread(debugger.attach, str(editor.folder / "k.py"), STORE)
    frame = await asyncio.to_thread(debugger.stopped)
    assert (await asyncio.to_thread(debugger.variables, frame))["at"].startswith("array([ 64")
    debugger.request("disconnect")
    debugger.close()


@pytest.mark.slow
async def test_a_kernel_that_crashes_says_so_in_a_message(start) -> None:
    editor: Editor = await start("vscode")
    (editor.folder / "k.py").write_text(TEXT)
    editor.open("k.py", "import os; os._exit(7)\n" + TEXT)
    await editor.command("orbit.debug", {"uri": editor.uri, "kernel": "double"})
    await editor.until(lambda: [text for text in editor.messages() if "exit code 7" in text])
    assert editor.diagnostics() == []


@pytest.mark.slow
async def test_cancelling_ends_a_debugger_that_has_stopped(start) -> None:
    editor, debugger = await _started(start)
    await asyncio.to_thread(debugger.attach, str(editor.folder / "k.py"), STORE)
    await asyncio.to_thread(debugger.stopped)
    assert await editor.command("orbit.cancel", {"uri": editor.uri, "kernel": "double"})
    await asyncio.to_thread(debugger.ended)
