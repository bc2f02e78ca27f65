"""`orbit-lsp submit`: the command line of popcorn-cli, and the record. A script stands in for popcorn-cli, which needs an
account and the network.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from pydantic import TypeAdapter

from orbit_lsp.cli.submit_command import Submission
from tests import processes_check
from tests.cli_check import orbit

FILE = "#!POPCORN leaderboard vectoradd_v2\n#!POPCORN gpu H100\nprint(1)\n"


def submit(folder: Path, *words: str, script: str = "", text: str = FILE) -> tuple[int, str, str]:
    (folder / "s.py").write_text(text)
    tools = folder / "tools"
    tools.mkdir(exist_ok=True)
    if script:
        (tools / "popcorn-cli").write_text(f"#!/bin/sh\n{script}\n")
        (tools / "popcorn-cli").chmod(0o755)
    path = f"{tools}:/usr/bin:/bin"
    return orbit(
        folder, "submit", "s.py", *words, environment={"PATH": path, "XDG_STATE_HOME": str(folder / "state")}
    )


def record(folder: Path) -> Path:
    (path,) = (folder / "state" / "orbit-lsp" / "submissions").iterdir()
    return path


def test_the_command_and_the_record(tmp_path: Path) -> None:
    for words in (
        ["init", "-q"],
        ["add", "s.py"],
        ["-c", "user.name=n", "-c", "user.email=e", "commit", "-qm", "m"],
    ):
        (tmp_path / "s.py").write_text(FILE.replace("1", "0"))
        subprocess.run(["git", *words], cwd=tmp_path, check=True)
    code, out, message = submit(tmp_path, "--mode", "test", script='echo "got $@"; echo oops >&2; exit 3')
    words = f"submit --no-tui --leaderboard vectoradd_v2 --gpu H100 --mode test {tmp_path}/s.py"
    assert (code, out) == (3, f"got {words}\noops\n")
    folder = record(tmp_path)
    assert f"the record is in {folder}\n" in message
    answer = json.loads((folder / "submission.json").read_text())
    TypeAdapter(Submission).validate_python(answer)
    assert answer["command"] == [str(tmp_path / "tools" / "popcorn-cli"), *words.split()]
    head = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=tmp_path, check=True, capture_output=True, text=True
    )
    assert (answer["commit"], answer["changed"], answer["exit_code"]) == (head.stdout.strip(), True, 3)
    assert "+print(1)" in (folder / "diff.patch").read_text()
    assert (folder / "output.txt").read_text() == f"got {words}\noops\n"
    assert (folder / "s.py").read_text() == FILE


def test_a_question_has_no_answer_and_ends(tmp_path: Path) -> None:
    code, out, _ = submit(
        tmp_path, "--mode", "test", script='read -r answer || echo "no input"; test -t 0 || exit 7'
    )
    assert (code, out) == (7, "no input\n")


def test_what_hangs_is_ended_with_all_it_started(tmp_path: Path) -> None:
    script = f"sleep 1000 & echo $! > {tmp_path}/pid; wait"
    code, _, message = submit(tmp_path, "--mode", "test", "--timeout", "2", script=script)
    assert code == 4
    assert "popcorn-cli was ended at the limit of 2 s; raise it with --timeout [timed out]" in message
    pid = int((tmp_path / "pid").read_text())
    processes_check.wait_until_ended(pid)
    assert json.loads((record(tmp_path) / "submission.json").read_text())["exit_code"] is None


@pytest.mark.parametrize(
    ("words", "text", "code", "message"),
    [
        (["--mode", "test"], "x = 1\n", 64, "which leaderboard? Add --leaderboard, or a line `#!POPCORN leaderboard NAME` to the file"),
        (["--mode", "test", "--leaderboard", "a"], "x = 1\n", 64, "which GPU? Add --gpu, or a line `#!POPCORN gpu NAME` to the file"),
        (["--mode", "test"], "//!POPCORN leaderboard a\n//!POPCORN gpus A100 H100\n", 64, "the file names several GPUs; add --gpu with one of A100, H100"),
        (["--mode", "test", "--leaderboard=-o"], FILE, 64, "'-o' is not the name of a leaderboard or a GPU"),
        (["--mode", "leaderboard"], FILE, 64, "--mode leaderboard is a ranked submission; add --yes where nobody can be asked"),
    ],
)  # fmt: skip
def test_what_is_not_submitted(tmp_path: Path, words: list[str], text: str, code: int, message: str) -> None:
    result, _, errors = submit(tmp_path, *words, text=text, script="echo submitted")
    assert (result, errors.splitlines()[-1]) == (code, f"orbit-lsp: error: {message}")
    assert not (tmp_path / "state").exists()


def test_without_popcorn_cli(tmp_path: Path) -> None:
    code, _, message = submit(tmp_path, "--mode", "test")
    assert (code, message[:45]) == (5, "orbit-lsp: error: popcorn-cli is not on PATH;")


def test_a_dry_run_prints_the_command(tmp_path: Path) -> None:
    line = f"popcorn-cli submit --no-tui --leaderboard b --gpu T4 --mode leaderboard {tmp_path}/s.py\n"
    assert submit(tmp_path, "--mode=leaderboard", "--leaderboard=b", "--gpu=T4", "--dry-run")[:2] == (0, line)


def test_a_file_that_fails_its_check_is_not_submitted(tmp_path: Path) -> None:
    """On a machine without a GPU the check cannot be made, which is no success either."""
    text = FILE + "def custom_kernel(data):\n    return data\n"
    code, out, message = submit(tmp_path, "--mode", "test", script="echo submitted", text=text)
    assert code != 0
    assert "nothing was submitted, because the check failed; --no-check submits without one" in message
    assert submit(tmp_path, "--mode", "test", "--no-check", script="echo submitted", text=text)[:2] == (
        0,
        "submitted\n",
    )
    assert out == ""
