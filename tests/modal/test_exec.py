"""`orbit-lsp exec --on H100`: the command, the runner and the container are whole; there is no GPU in the container."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.forks import Ended, command
from tests.modal.conftest import container, told_of_a_gpu
from tests.modal_loopback.fixture import started
from tests.modal_loopback.loopback import Loopback

PLAIN = os.path.realpath(sys.executable)
"""That of the machine, which has no torch to import."""


@pytest.fixture
def modal(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Loopback]:
    (tmp_path / "work").mkdir()
    here = container(tmp_path, recorded=False) | {"ORBIT_PYTHON": str(told_of_a_gpu(tmp_path, PLAIN))}
    with started(monkeypatch, tmp_path, here, kept=True) as loopback:
        yield loopback


def run(tmp_path: Path, *words: str, **environment: str) -> Ended:
    return command(
        tmp_path / "work",
        "exec",
        "--on",
        "H100",
        "--budget",
        "20",
        "--python",
        PLAIN,
        *words,
        environment=environment,
    )


def test_a_file_runs_there_and_what_it_made_comes_back(modal: Loopback, tmp_path: Path) -> None:
    work = tmp_path / "work"
    (work / "part.py").write_text("NAME = 'a module'\n")
    (work / "data.txt").write_text("data")
    (work / ".env").write_text("secret")
    (work / "job.py").write_text(
        "import os, sys; sys.dont_write_bytecode = True; import part\n"
        "print(part.NAME, open('data.txt').read(), sys.argv[1:], os.environ.get('MY_KEY'), sorted(os.listdir()))\n"
        "os.makedirs('out/deep'); open('out/deep/x', 'w').write('made there'); open('left', 'w')\n"
        "os.symlink('/etc/passwd', 'out/link')\n"
        "sys.exit(7)\n"
    )
    done = run(tmp_path, "job.py", "--bring", "out/**", "--env", "MY_KEY=mine", "--", "-n", "4")
    assert done.returncode == 7, done.stderr
    assert done.stdout == "a module data ['-n', '4'] mine ['data.txt', 'job.py', 'part.py']\n"
    assert "brought back out/deep/x, 10 B\nexit code 7 after " in done.stderr
    assert re.search(r"[\d.]+ s of H100, \$[\d.]+ at rates of", done.stderr)
    assert (work / "out" / "deep" / "x").read_text() == "made there"
    assert sorted(path.name for path in work.rglob("*")) == [
        ".env", "data.txt", "deep", "job.py", "out", "part.py", "x",
    ]  # fmt: skip
    modal.until(lambda world: not world.alive())


@pytest.mark.slow
def test_a_program_runs_there_and_is_ended_at_its_limit(modal: Loopback, tmp_path: Path) -> None:
    program = tmp_path / "work" / "tool"
    program.write_text('#!/bin/sh\necho "$1"; rm -rf ./*; sleep 1000 & wait\n')
    program.chmod(0o755)
    done = run(tmp_path, "tool", "--limit", "2", "--json", "--bring", "**", "--", "begun")
    assert done.returncode == 124, done.stderr
    finished = json.loads(done.stdout)
    assert (finished["outcome"], finished["exit_code"], finished["stdout"]) == ("timed out", None, "begun\n")
    assert finished["remarks"] == ["no file matches --bring **"]
    assert program.exists()


@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        pytest.param(
            ("-c", "print(1", "--on", "H100"), 1, "SyntaxError: '(' was never closed", marks=pytest.mark.slow
        ),
        (("-c", "print(1)", "--on", "H99"), 64, "--on: 'H99' is not one of the GPUs on Modal: T4, L4"),
        (("-c", "print(1)", "--in-place"), 64, "--in-place is for this machine's own GPU; a rented one gets a copy"),
        pytest.param(
            ("-c", "print(1)", "--on", "L4"), 5, "L4 was asked for, and Modal gave a container with NVIDIA H100 80GB HBM3",
            marks=pytest.mark.slow,
        ),
    ],
)  # fmt: skip
def test_what_cannot_run_there(
    modal: Loopback, tmp_path: Path, words: tuple[str, ...], status: int, message: str
) -> None:
    done = run(tmp_path, *words)
    assert (done.returncode, message in done.stderr) == (status, True), done.stderr
