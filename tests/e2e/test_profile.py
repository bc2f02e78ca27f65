"""From a click on Profile to what stands on the lines, in every editor; the same from the command line.

The GPU side is recorded (recorded_worker.py): its reports are those of Nsight Compute on an H100.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
from pydantic import TypeAdapter

from orbit_lsp.cli.reference import schema
from orbit_remote.common import messages as c
from tests.e2e.conftest import EDITORS, Editor
from tests.e2e.forks import Ended, command
from tests.e2e.test_run import named_gpu
from tests.first_cases import first_of

SOURCE = (Path(__file__).parents[1] / "recordings" / "profiles" / "memory_bound.cu").read_text()
SIGNATURE = "◔ 70.7 µs · occ 76% of 100% · 16 regs"
WITHOUT_LENSES = "saxpy: ◔ 70.7 µs · memory 79% · occ 76%"
HOT = "◂ 93% · long scoreboard"
SAID = "70.7 µs, memory 79% of peak"


RECORDED = (
    Path(__file__).parents[1] / "recordings" / "profiles" / "memory_bound.with_run.ncu-rep"
).read_bytes()


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where reports are kept."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "orbit-lsp" / "profiles"


def kept(printed: str) -> tuple[Path, bytes]:
    """Where the report lies that a message names, and what is in it."""
    path = Path(printed.partition("ncu-ui ")[2])
    return path.parent, path.read_bytes()


async def ended(editor: Editor, count: int = 1) -> list[str]:
    """What was said at the end of so many profiles."""
    await editor.until(lambda: len(editor.ended()) == count)
    return editor.ended()


def make_a_file(folder: Path) -> None:
    folder.parent.mkdir(parents=True)
    folder.write_text("no folder")


def page(uri: str) -> str:
    return Path(unquote(urlsplit(uri).path)).read_text()


async def profile(editor: Editor, text: str = SOURCE) -> None:
    editor.open("memory_bound.cu", text)
    await named_gpu(editor)
    kernel = {"uri": editor.uri, "kernel": "saxpy"}
    await editor.command("orbit.profile", kernel)


@pytest.mark.parametrize("name", first_of(EDITORS))
async def test_a_click_puts_the_findings_on_the_lines(start, recorded_python, name: str) -> None:
    editor: Editor = await start(name, python=recorded_python)
    await profile(editor)
    assert await ended(editor) == [SAID]
    line = 2 if name in ("helix", "emacs") else 3
    signature = WITHOUT_LENSES if name in ("helix", "emacs") else SIGNATURE
    assert await editor.hints() == [(line, signature), (6, HOT)]
    hover = await editor.hover(3, 18)
    assert "roofline: FP32 475 GFLOP/s" in hover
    assert "gpu" in hover
    assert "long scoreboard" in await editor.hover(6, 8)
    if name == "helix":  # which asks for hints again only after an edit
        messages = [(line, text) for source, line, *_, text in editor.diagnostics() if source == "orbit"]
        assert messages == [(line, signature), (6, HOT)]
    editor.edit(6, 15, 16, "b")
    stale = signature.replace(" of 100% · 16 regs", " · edited since").replace(
        "% · occ", "% · edited since · occ"
    )
    assert await editor.hints() == [(line, stale.removesuffix(" · occ 76%"))]
    editor.edit(6, 15, 16, "a")
    assert await editor.hints() == [(line, signature), (6, HOT)]


async def test_lenses_actions_and_the_report(start, recorded_python, cache: Path) -> None:
    editor: Editor = await start("vscode", python=recorded_python)
    await profile(editor)
    await ended(editor)
    lenses = [lens.command for lens in await editor.lenses() if lens.command]
    assert [lens.command for lens in lenses] == ["orbit.openReport", "orbit.run", "orbit.profile"]
    titles = [action.title for action in await editor.actions(6)]
    for title in (
        "Profile",
        "Profile in full (saxpy)",
        "Open the profile's report (saxpy)",
        "Open in Nsight Compute (saxpy)",
    ):
        assert title in titles
    here = {"uri": editor.uri, "kernel": "saxpy"}
    await editor.command("orbit.openReport", here | {"what": "nsight"})
    (answer,) = await editor.until(lambda: [message for message in editor.messages() if "ncu-ui" in message])
    assert kept(answer) == (cache, RECORDED)
    await editor.command("orbit.openReport", here)
    shown = await editor.until(lambda: editor.client.shown_documents)
    assert "memory 79% of peak" in page(shown[0].uri)


async def test_a_profile_is_back_after_a_restart_with_its_report(start, recorded_python, cache: Path) -> None:
    editor: Editor = await start("vscode", python=recorded_python)
    await profile(editor)
    await ended(editor)
    await editor.close()
    editor = await start("vscode", python=recorded_python)
    editor.open("memory_bound.cu", SOURCE)
    await editor.asked_until(editor.hints, lambda hints: hints == [(3, SIGNATURE), (6, HOT)])
    await editor.command("orbit.openReport", {"uri": editor.uri, "kernel": "saxpy", "what": "nsight"})
    (answer,) = await editor.until(lambda: [message for message in editor.messages() if "ncu-ui" in message])
    assert kept(answer) == (cache, RECORDED)


async def test_where_nothing_can_be_kept_the_findings_stand_and_a_remark_says_so(
    start, recorded_python, cache: Path
) -> None:
    make_a_file(cache)
    editor: Editor = await start("vscode", python=recorded_python)
    await profile(editor)
    await ended(editor)
    assert await editor.hints() == [(3, SIGNATURE), (6, HOT)]
    assert "the profiler's report cannot be kept in" in await editor.hover(3, 18)
    await editor.command("orbit.openReport", {"uri": editor.uri, "kernel": "saxpy", "what": "nsight"})
    await editor.until(
        lambda: [message for message in editor.messages() if "no longer kept; profile it again" in message]
    )


async def test_the_full_profile_is_asked_for_and_compared_with_the_one_before(start, recorded_python) -> None:
    editor: Editor = await start("neovim-0.12", python=recorded_python)
    await profile(editor)
    await ended(editor)
    await editor.command("orbit.profile", {"uri": editor.uri, "kernel": "saxpy", "detail": "full"})
    await ended(editor, 2)
    assert (await editor.hints())[0] == (3, SIGNATURE.replace("70.7", "70.1"))


async def test_while_it_profiles_the_lens_counts_and_cancels(start, recorded_python) -> None:
    editor: Editor = await start("vscode", python=recorded_python)
    await profile(editor, SOURCE.replace("// DRAM", "// SLOW DRAM"))

    async def profiling() -> Any:
        commands = [lens.command for lens in await editor.lenses()]
        return next((item for item in commands if item and "profiling" in item.title), None)

    lens = await editor.asked_until(profiling, bool)
    assert lens.command == "orbit.cancel"
    assert await editor.command(lens.command, *(lens.arguments or [])) is True
    assert await ended(editor) == ["cancelled"]
    assert await editor.hints() == []


async def test_refused_counters_and_a_kernel_that_is_never_launched(start, recorded_python) -> None:
    editor: Editor = await start("vscode", python=recorded_python)
    await profile(editor, SOURCE.replace("// DRAM", "// DENIED DRAM"))
    (message,) = await ended(editor)
    assert "times only, no counters: this machine does not permit its counters" in message
    assert await editor.hints() == [(3, "◔ 288 µs ±0.2% · 16 regs · no counters")]
    assert "its administrator can permit them" in await editor.hover(3, 18)
    editor.edit(0, 3, 9, "NEVER")
    await editor.command("orbit.profile", {"uri": editor.uri, "kernel": "saxpy"})
    await ended(editor, 2)
    assert await editor.hints() == [(3, "◔ the program did not launch it")]


# -- the command line -------------------------------------------------------------------------------


def orbit(folder: Path, *arguments: str) -> Ended:
    places = {"XDG_CACHE_HOME": str(folder / "cache"), "XDG_STATE_HOME": str(folder / "state")}
    return command(folder, *arguments, environment=places)


def test_profile_and_report_from_the_command_line(recorded_python, tmp_path: Path) -> None:
    (tmp_path / "memory_bound.cu").write_text(SOURCE)
    ran = orbit(tmp_path, "profile", "memory_bound.cu", "--python", recorded_python, "--runner", "local")
    assert ran.returncode == 0, ran.stderr
    assert "bottleneck                   memory 79% of peak" in ran.stdout
    assert f"ok: saxpy {SAID}" in ran.stderr
    assert "Nsight Compute opens it: ncu-ui " in ran.stderr
    page = orbit(tmp_path, "report", "memory_bound.cu", "--kernel", "saxpy", "--output", "page.html")
    assert page.returncode == 0, page.stderr
    assert "memory 79% of peak" in (tmp_path / "page.html").read_text()
    answer = orbit(tmp_path, "report", "memory_bound.cu", "--json")
    finished = TypeAdapter(c.Finished).validate_json(answer.stdout)
    assert finished.profiles[0].lines
    assert finished.report == ""
    # one that this version cannot read, of another kernel, lends neither its name nor its numbers
    (kept_json,) = (tmp_path / "cache" / "orbit-lsp" / "profiles").glob("*.json")
    broken = json.loads(kept_json.read_text()) | {"kernel": "other"}
    broken["finished"]["profiles"][0]["metrics"] = "none"
    kept_json.with_stem("zzz").write_text(json.dumps(broken))
    again = orbit(tmp_path, "report", "memory_bound.cu", "--output", "page.html")
    assert again.returncode == 0, again.stderr
    assert "<h1>saxpy: 70.7 µs" in (tmp_path / "page.html").read_text()
    assert orbit(tmp_path, "report", "memory_bound.cu", "--json").stdout == answer.stdout


def test_the_json_is_what_the_schema_says(recorded_python, tmp_path: Path) -> None:
    (tmp_path / "memory_bound.cu").write_text(SOURCE)
    ran = orbit(
        tmp_path, "profile", "memory_bound.cu", "--json", "--python", recorded_python, "--runner", "local"
    )
    answer = json.loads(ran.stdout)
    assert set(answer) == set(json.loads(schema.text())["properties"])
    assert answer["profiles"][0]["metrics"]["gpu__time_duration.sum"] == {
        "name": "gpu__time_duration.sum",
        "value": 70656.0,
        "unit": "ns",
    }
    TypeAdapter(c.Finished).validate_python(answer)


@pytest.mark.parametrize(
    ("text", "arguments", "printed"),
    [
        (SOURCE + "__global__ void k() {}\n", ["profile"], "which kernel? Add --kernel; this file has: saxpy, k"),
        ("int main() {}\n", ["profile"], "no kernel in this file can be launched"),
        (SOURCE, ["profile", "--kernel", "x"], "there is no kernel x in this file; it has: saxpy"),
        (SOURCE, ["report"], "no profile of k.cu is kept; `orbit-lsp profile k.cu --kernel K` makes one"),
        (SOURCE, ["report", "--kernel", "a b"], "no profile of a b of k.cu is kept; `orbit-lsp profile k.cu --kernel 'a b'` makes"),
        (SOURCE, ["report", "absent.cu"], "there is no file absent.cu, and no profile of it is kept"),
    ],
)  # fmt: skip
def test_what_is_not_asked_for_rightly(tmp_path: Path, text: str, arguments: list[str], printed: str) -> None:
    (tmp_path / "k.cu").write_text(text)
    verb, *rest = arguments
    ran = orbit(tmp_path, verb, *(rest if "absent.cu" in rest else ["k.cu", *rest]))
    assert ran.returncode == 64
    assert printed in ran.stderr


@pytest.mark.parametrize(("wanted", "opened"), [("never", []), ("profile", ["p"]), ("run", ["p", "r"])])
async def test_reports_that_open_by_themselves(
    start, recorded_python, tmp_path, monkeypatch, wanted: str, opened: list[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    editor: Editor = await start("vscode", python=recorded_python, report={"open": wanted})
    await profile(editor)
    await ended(editor)
    await editor.until(lambda: len(editor.client.shown_documents) == min(1, len(opened)))
    await editor.command("orbit.run", {"uri": editor.uri, "kernel": "saxpy"})
    await editor.until(lambda: len(editor.ended()) == 2)
    await editor.until(lambda: len(editor.client.shown_documents) == len(opened))
