"""A kernel that fails or hangs, in every editor: diagnostics on its lines, and what a click on *Where is it?* does.

The GPU side is recorded (recorded_worker.py): GPU core dumps of an H200.
"""

from __future__ import annotations

import pytest

from tests.e2e.conftest import EDITORS, Editor
from tests.e2e.test_run import named_gpu
from tests.first_cases import first_of
from tests.recordings import crashed


async def run(editor: Editor, kernel: str) -> list[tuple[int, str]]:
    """Line and text of what the run shows, by line."""
    editor.open("hang.cu" if kernel in crashed.HANGS else "crash.cu", crashed.source(kernel))
    await named_gpu(editor)
    await editor.command("orbit.run", {"uri": editor.uri, "kernel": kernel})
    await editor.until(editor.ended)

    def shown() -> list[tuple[int, str]]:
        return [(line + 1, text) for source, line, *_, text in editor.diagnostics() if source == "cuda"]

    return sorted(await editor.until(shown))


@pytest.mark.parametrize("name", first_of(EDITORS))
async def test_a_crash_stands_on_its_line(start, recorded_python, name: str) -> None:
    editor: Editor = await start(name, python=recorded_python)
    ((line, text),) = await run(editor, "scale")
    assert (line, crashed.source("scale").splitlines()[line - 1].strip()) == (
        10,
        "x[idx[i]] = 2.0f * x[idx[i]];",
    )
    assert text.endswith("in block (15,0,0), threads (160,0,0) to (191,0,0) of scale")


@pytest.mark.parametrize("name", first_of(EDITORS))
async def test_a_hang_stands_on_the_lines_of_its_warps(start, recorded_python, name: str) -> None:
    editor: Editor = await start(name, python=recorded_python)
    (barrier, waits), (spin, stood) = await run(editor, "halfcluster")
    lines = [crashed.source("halfcluster").splitlines()[line - 1].strip() for line in (barrier, spin)]
    assert lines == ["if (c.block_rank() == 0) c.sync();", "else while (*f == 0) { }"]
    assert waits.startswith("4 of 8 warps waited here for their cluster")
    assert stood.startswith("4 of 8 warps stood here")
    table = await editor.hover(26, 46)
    assert "where its warps stood" in table
    assert "line 29" in table


async def test_where_is_it_is_refused_where_nothing_runs(start, recorded_python) -> None:
    editor: Editor = await start("vscode", python=recorded_python)
    editor.open("crash.cu", crashed.source("scale"))
    await named_gpu(editor)
    assert await editor.command("orbit.locate", {"uri": editor.uri, "kernel": "scale"}) is False
