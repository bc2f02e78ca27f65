"""From *Check memory* to diagnostics on the lines, in every editor; the same from the command line.

The GPU side is recorded (recorded_worker.py): what compute-sanitizer said on an H100.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pydantic import TypeAdapter

from orbit_lsp.cli.reference import schema
from orbit_remote.common import messages as c
from tests.e2e.conftest import EDITORS, Editor
from tests.e2e.forks import Ended, command
from tests.e2e.test_run import named_gpu
from tests.first_cases import first_of
from tests.recordings import planted

RACE = (planted.PROGRAMS / "race.cu").read_text()
RIGHT = (planted.PROGRAMS / "race_right.cu").read_text()
WRITE = "race: this write is not ordered against the read in line 6 (1,024 hazards)"
READ = "race: this read is not ordered against the write in line 5 (1,024 hazards)"


async def check(editor: Editor, name: str, text: str) -> None:
    editor.open(name, text)
    await named_gpu(editor)
    await editor.command("orbit.checkMemory", {"uri": editor.uri, "kernel": "reverse"})
    await editor.until(editor.ended)


def racing(editor: Editor) -> list[tuple[int, str]]:
    return [(line, text) for source, line, *_, text in editor.diagnostics() if source == "racecheck"]


@pytest.mark.parametrize("name", first_of(EDITORS))
async def test_a_race_stands_on_both_its_lines(start, recorded_python, name: str) -> None:
    editor: Editor = await start(name, python=recorded_python)
    await check(editor, "race.cu", RACE)
    assert await editor.until(lambda: racing(editor)) == [(4, WRITE), (5, READ)]
    related = [
        diagnostic.related_information[0].location.range.start.line
        for diagnostic in editor.client.diagnostics[editor.uri]
        if diagnostic.related_information
    ]
    assert related == [5, 4]
    line = 1  # the signature's
    assert await editor.hints() == [(line, "✗ 2 faults of memory")]
    assert "racecheck" in await editor.hover(1, 18)
    # the line that was wrong is edited: what was said of it goes, the other stays where it is now
    editor.edit(4, 0, 0, "  __syncthreads();\n")
    assert await editor.hints() == [(line, "✗ 2 faults of memory · edited since")]


async def test_the_correct_program_is_said_to_be_clean(start, recorded_python) -> None:
    editor: Editor = await start("vscode", python=recorded_python)
    await check(editor, "race_right.cu", RIGHT)
    assert editor.ended() == ["no memory fault was found"]
    assert not racing(editor)
    assert await editor.hints() == [(1, "✓ memory checked")]
    assert "Check memory (reverse)" in [action.title for action in await editor.actions(1)]


async def test_while_it_checks_it_can_be_cancelled(start, recorded_python) -> None:
    editor: Editor = await start("vscode", python=recorded_python)
    editor.open("race.cu", RACE.replace("// a block", "// SLOW block"))
    await named_gpu(editor)
    here = {"uri": editor.uri, "kernel": "reverse"}
    await editor.command("orbit.checkMemory", here)
    await editor.asked_until(
        editor.lenses, lambda all_: any("running" in lens.command.title for lens in all_ if lens.command)
    )
    assert await editor.command("orbit.cancel", here) is True
    assert await editor.until(editor.ended) == ["cancelled"]


def orbit(folder: Path, *arguments: str) -> Ended:
    return command(folder, *arguments, "--runner", "local")


def test_the_command_line_names_the_lines_and_exits_with_2(recorded_python, tmp_path: Path) -> None:
    (tmp_path / "race.cu").write_text(RACE)
    ran = orbit(tmp_path, "check", "race.cu", "--kernel", "reverse", "--python", recorded_python)
    assert ran.returncode == 2
    assert f"race.cu:5: error: {WRITE} [racecheck]" in ran.stdout
    assert "racecheck  2 in lines 5, 6" in ran.stdout
    assert "orbit-lsp: error: 2 faults were found" in ran.stderr


def test_a_clean_program_exits_with_0_and_one_tool_can_be_asked_for(recorded_python, tmp_path: Path) -> None:
    (tmp_path / "race_right.cu").write_text(RIGHT)
    ran = orbit(tmp_path, "check", "race_right.cu", "--tool", "racecheck", "--python", recorded_python)
    assert ran.returncode == 0, ran.stderr
    assert "ok: no memory fault was found" in ran.stderr
    (tmp_path / "race.cu").write_text(RACE)
    other = orbit(tmp_path, "check", "race.cu", "--tool", "memcheck", "--python", recorded_python)
    assert other.returncode == 0  # memcheck sees no race


def test_the_json_is_what_the_schema_says(recorded_python, tmp_path: Path) -> None:
    (tmp_path / "race.cu").write_text(RACE)
    ran = orbit(tmp_path, "check", "race.cu", "--json", "--python", recorded_python)
    answer = json.loads(ran.stdout)
    assert set(answer) == set(json.loads(schema.text())["properties"])
    finished = TypeAdapter(c.Finished).validate_python(answer)
    assert [problem.place.line for problem in finished.problems if problem.place] == [5, 6]
