"""From a click on a kernel without host code to its numbers, sweeps on the command line.

The GPU side is recorded (recorded_worker.py): these machines have none.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.e2e.conftest import EDITORS, Editor, own_cache
from tests.e2e.forks import command
from tests.e2e.test_run import named_gpu
from tests.first_cases import first_of

SPEC = """\
// orbit: n = 1 << 26
// orbit: x = randn(n); y = randn(n)
// orbit: launch saxpy<<<(n + 255) / 256, 256>>>(n, 2.0f, x, y)
// orbit: expect y == 2 * x + y
// orbit: bytes 3 * 4 * n; flops 2 * n
"""
KERNEL = "__global__ void saxpy(int n, float a, const float* x, float* y) {\n}\n"
SWEPT = SPEC.replace("n = 1 << 26", "n = sweep(1 << 20, 1 << 24, 1 << 26)  // SWEEP")
RUN = "▶ Run on H100 80GB HBM3"
MEASURED = "⏱ 288 µs · 2.80 TB/s (83%) · occ ≤100%"
STALE = "⏱ 288 µs · edited since · occ ≤100%"


@pytest.mark.parametrize("name", first_of(EDITORS))
async def test_a_click_puts_time_rate_and_verdict_on_the_line(start, recorded_python, name: str) -> None:
    editor: Editor = await start(name, python=recorded_python)
    editor.open("saxpy.cu", SPEC + KERNEL)
    assert await named_gpu(editor) == [(5, RUN)]
    await editor.click()
    message = "288 µs, 1 check passed"
    assert await editor.until(editor.ended) == [message]
    mark = "✓" if name in ("helix", "emacs") else "⏱"  # the others have it on the lens
    line = 5  # the signature's, and not the launch spec's above it
    measured, stale = MEASURED.replace("⏱", mark), STALE.replace("⏱", mark)
    assert await editor.hints() == [(line, measured)]
    assert await editor.titles() == [(5, "✓ 288 µs ±0.2%"), (5, RUN)]
    editor.edit(0, 19, 21, "20")
    assert await editor.hints() == [(line, stale)]
    editor.edit(0, 19, 21, "26")
    assert await editor.hints() == [(line, measured)]


async def test_a_wrong_answer_stands_on_the_expect_line(start, recorded_python) -> None:
    editor: Editor = await start("vscode", python=recorded_python)
    editor.open("saxpy.cu", SPEC + KERNEL.replace("{", "{  // WRONG"))
    await named_gpu(editor)
    await editor.click()
    message = "y[7] is 0.5 and not 2.5; 12 of 67,108,864 elements differ"
    assert await editor.until(editor.ended) == [f"wrong answer: {message}"]
    assert [(line, text) for _, line, *_, text in await editor.until(editor.diagnostics)] == [(3, message)]
    assert await editor.hints() == [(5, "✗ 12 of 67,108,864 differ")]
    assert await editor.titles() == [(5, "✗ 12 of 67,108,864 differ"), (5, "▶ Run")]
    assert message not in editor.messages()


async def test_an_error_elsewhere_in_the_file_is_no_longer_a_kernels_failure_once_it_is_mended(
    start, recorded_python
) -> None:
    editor: Editor = await start("vscode", python=recorded_python)
    editor.open("saxpy.cu", SPEC + KERNEL + "// BUG\n")
    await named_gpu(editor)
    await editor.click()
    await editor.until(editor.ended)
    titles = [title for _, title in await editor.titles()]
    assert titles[0].startswith("✗ compile error · ")
    editor.edit(7, 3, 6, "")
    editor.save(SPEC + KERNEL + "// \n")
    await editor.asked_until(editor.titles, lambda titles: titles == [(5, RUN)])


async def test_a_spec_with_a_mistake_is_not_run(start, recorded_python) -> None:
    editor: Editor = await start("vscode", python=recorded_python)
    editor.open("saxpy.cu", SPEC.replace("(n, 2.0f, x, y)", "(n, 2.0f, z, y)") + KERNEL)
    await named_gpu(editor)
    await editor.click()
    (message,) = await editor.until(editor.messages)
    assert message.startswith("line 3, in the launch spec: ")
    assert message.endswith(". nothing was run")
    assert not editor.ended()


async def test_the_program_of_a_file_is_a_code_action_away(start, recorded_python) -> None:
    editor: Editor = await start("vscode", python=recorded_python)
    editor.open("saxpy.cu", SPEC + KERNEL + "int main() {}\n")
    await named_gpu(editor)
    action = next(action for action in await editor.actions(5) if action.title == "▶ Run main (saxpy)")
    await editor.command(action.command, *action.arguments)
    await editor.until(editor.ended)
    assert await editor.hints() == [(5, "⏱ 288 µs ±0.2% · n=19 · occ ≤100%")]
    await editor.click()
    await editor.until(lambda: len(editor.ended()) == 2)
    assert await editor.hints() == [(5, MEASURED)]


@pytest.mark.parametrize(("text", "prepared"), [(SPEC + KERNEL, ["cuda", "triton"]), (KERNEL, ["cuda"])])
async def test_opening_a_file_prepares_what_its_click_will_need(
    start, recorded_python, tmp_path, monkeypatch, text: str, prepared: list[str]
) -> None:
    own_cache(monkeypatch, tmp_path)
    editor: Editor = await start("vscode", python=recorded_python)
    editor.open("saxpy.cu", text + "int main() {}\n")
    await named_gpu(editor)
    await editor.command("orbit.run", {"uri": editor.uri, "kernel": "saxpy"})
    await editor.until(editor.ended)
    asked = tmp_path / "cache" / "orbit-lsp" / "prepared"
    await editor.seen(lambda: asked.exists() and asked.read_text().split() == prepared)


async def test_two_kernels_of_one_file_wait_for_each_other(start, recorded_python) -> None:
    editor: Editor = await start("vscode", python=recorded_python, compile_on_save=False)
    names = ("one", "two", "three")
    editor.open("k.cu", "".join((SPEC + KERNEL).replace("saxpy", name) for name in names) + "// SLOW\n")
    await named_gpu(editor)
    runs = [await editor.command("orbit.run", {"uri": editor.uri, "kernel": name}) for name in names]
    assert [run["run"].partition("-")[0] for run in runs] == ["r1", "r2", "r3"]
    assert await editor.command("orbit.run", {"uri": editor.uri, "kernel": "one"}) == runs[0]
    for count, name in enumerate(names, 1):
        await editor.until(
            lambda count=count: len(editor.progress()) == count and states(editor)[-1] == "running"
        )
        await editor.command("orbit.cancel", {"uri": editor.uri, "kernel": name})
        await editor.until(lambda count=count: len(editor.ended()) == count)
    assert editor.ended() == ["cancelled"] * 3


def states(editor: Editor) -> list[str]:
    """The last state of every progress bar."""
    return [str(steps[-1].message).partition(":")[0] if steps else "" for steps in editor.progress()]


def orbit(tmp_path: Path, python: str | None, *words: str) -> tuple[int, str, str]:
    """`orbit-lsp WORDS` in a folder: (exit code, stdout, stderr)."""
    places = {"XDG_CACHE_HOME": str(tmp_path / ".cache"), "XDG_STATE_HOME": str(tmp_path / ".state")}
    done = command(tmp_path, *words, *(("--python", python) if python else ()), environment=places)
    return done.returncode, done.stdout, done.stderr


def test_a_sweep_on_the_command_line(tmp_path: Path, recorded_python: str) -> None:
    (tmp_path / "saxpy.cu").write_text(SWEPT + KERNEL)
    code, out, _ = orbit(tmp_path, recorded_python, "run", "saxpy.cu", "--sweep")
    assert code == 0
    assert (
        out
        == """\
saxpy: every run
  n         time     spread  samples  memory     of peak  arithmetic   of peak  occupancy  check
  1048576   8.44 µs  ±0.2%   50       1.49 TB/s  44%      249 GFLOP/s  <0.1%    ≤100%      ✓
  16777216  75.0 µs  ±0.2%   50       2.68 TB/s  80%      447 GFLOP/s  0.1%     ≤100%      ✓
  67108864  288 µs   ±0.2%   50       2.80 TB/s  83%      466 GFLOP/s  0.1%     ≤100%      ✓

"""
    )


def test_a_wrong_answer_on_the_command_line_is_exit_code_3(tmp_path: Path, recorded_python: str) -> None:
    (tmp_path / "saxpy.cu").write_text(SPEC + KERNEL + "// WRONG\n")
    code, out, message = orbit(tmp_path, recorded_python, "run", "saxpy.cu", "--kernel", "saxpy")
    assert code == 3
    assert "saxpy.cu:4: error: y[7] is 0.5 and not 2.5; 12 of 67,108,864 elements differ" in out
    assert "first at [7]: 0.5 instead of 2.5" in out
    assert "orbit-lsp: error: y[7] is 0.5 and not 2.5" in message


def test_a_program_is_run_as_the_spec_without_a_launch_says(tmp_path: Path, recorded_python: str) -> None:
    (tmp_path / "saxpy.cu").write_text("// orbit: args 'never closed\n" + KERNEL + "int main() {}\n")
    code, out, message = orbit(tmp_path, recorded_python, "run", "saxpy.cu")
    assert (code, "saxpy.cu:1:" in out) == (1, True)
    assert "orbit-lsp: error: line 1, in the launch spec: A quotation mark is never closed." in message
    (tmp_path / "saxpy.cu").write_text("// orbit: args closed\n" + KERNEL + "int main() {}\n")
    code, out, message = orbit(tmp_path, recorded_python, "run", "saxpy.cu")
    assert (code, "288 µs ±0.2% (in program, n=19)" in out) == (0, True)


@pytest.mark.parametrize(
    ("text", "words", "code", "message"),
    [
        (SPEC.replace("x, y)", "z, y)"), (), 1, "orbit-lsp: error: line 3, in the launch spec: "),
        (SPEC, ("--sweep",), 64, "orbit-lsp: error: no launch spec of this file has a sweep, as in `n = sweep("),
        ((SPEC + KERNEL).replace("saxpy", "other") + SPEC, ("--json",), 64, "orbit-lsp: error: --json prints one run"),
    ],
)  # fmt: skip
def test_what_is_not_run(
    tmp_path: Path, recorded_python: str, text: str, words: tuple[str, ...], code: int, message: str
) -> None:
    (tmp_path / "saxpy.cu").write_text(text + KERNEL)
    result, out, err = orbit(tmp_path, recorded_python, "run", "saxpy.cu", *words)
    assert result == code
    assert message in err
    assert ("saxpy.cu:3:" in out) is (code == 1)


def test_compiling_says_what_is_wrong_with_launch_specs_too(recorded_python, tmp_path) -> None:
    """Also one that is so wrong that its launch cannot be read; such a file is not run as a program either."""
    (tmp_path / "saxpy.cu").write_text(SPEC.replace(">>>(", ">>(") + KERNEL)
    code, out, err = orbit(tmp_path, recorded_python, "compile", "saxpy.cu", "--json")
    finished = json.loads(out)
    assert (code, finished["outcome"]) == (1, "compile error")
    assert {item["tool"] for item in finished["problems"]} == {"launch spec"}
    assert finished["problems"][0]["place"]["line"] == 3
    assert finished["failure"]["message"].startswith("line 3, in the launch spec: ")
    code, _, err = orbit(tmp_path, recorded_python, "run", "saxpy.cu")
    assert (code, "nothing was run" in err) == (1, True)
