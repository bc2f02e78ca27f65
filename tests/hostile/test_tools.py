"""Tools that lie, and what is kept in databases that somebody changed."""

from __future__ import annotations

import logging
import resource
import sqlite3
import subprocess
import sys
import zlib
from contextlib import closing
from pathlib import Path

import pytest

from orbit_lsp.history.history_store import HistoryStore
from orbit_remote.common import limits
from orbit_remote.common.messages import Failure
from orbit_remote.common.plain_text import plain, visible
from orbit_remote.process import tool_output
from orbit_remote.toolchain import nvcc
from tests.cli_check import orbit
from tests.remote import nvcc_check
from tests.test_history import TEXT, entry


def script(path: Path, text: str) -> Path:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def test_of_a_tool_that_prints_without_end_the_first_part_is_kept() -> None:
    program = "import sys\nfor _ in range(200): sys.stdout.write('x' * (1 << 20)); sys.stderr.write('y' * (1 << 20))"
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    answer = tool_output.ask([sys.executable, "-c", program], timeout_s=150)
    assert answer.status == 0
    assert [len(answer.stdout), len(answer.stderr)] == [limits.TOOL_OUTPUT.most] * 2
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100 << 10  # KiB, of the 400 MiB


def test_a_tool_gets_its_input_and_ends_in_time() -> None:
    assert tool_output.ask(["cat"], timeout_s=150, stdin="x" * 300_000).stdout == "x" * 300_000
    with pytest.raises(subprocess.TimeoutExpired):
        tool_output.ask(["sh", "-c", "sleep 600 & sleep 600"], timeout_s=0.1)


def test_what_nvcc_says_of_itself_reaches_no_terminal(tmp_path: Path) -> None:
    answer = nvcc.examine(script(tmp_path / "nvcc", r"printf '\033]0;owned\007\033[31mno\n'; exit 3"))
    assert isinstance(answer, Failure)
    assert answer.message.endswith("failed with status 3: no")


@nvcc_check.needs_nvcc
@pytest.mark.parametrize("action", ["compile", "run"])
async def test_an_nvcc_that_ends_well_and_writes_nothing_is_no_success(tmp_path: Path, action: str) -> None:
    assert isinstance(nvcc_check.COMPILER, nvcc.Nvcc)
    real = nvcc_check.COMPILER.path
    lies = script(tmp_path / "nvcc", f'case "$1" in --version | --dryrun) exec {real} "$@" ;; esac')
    made = await nvcc_check.built(tmp_path, "__global__ void k() {}\n", action=action, compiler=str(lies))
    assert made.failure
    assert made.failure.category == "infrastructure"
    assert "nvcc ended with status 0 and wrote no k." in made.failure.message


@nvcc_check.needs_nvcc
def test_show_says_why_nothing_was_compiled(tmp_path: Path) -> None:
    assert isinstance(nvcc_check.COMPILER, nvcc.Nvcc)
    real = nvcc_check.COMPILER.path
    lies = script(tmp_path / "nvcc", f'case "$1" in --version | --dryrun) exec {real} "$@" ;; esac')
    (tmp_path / "k.cu").write_text("__global__ void k() {}\n")
    code, out, error = orbit(tmp_path, "show", "--nvcc", str(lies), "k.cu")
    assert (code, "__global__ void k() {}" in out) == (0, True)
    assert "nvcc ended with status 0 and wrote no k.cubin [infrastructure]" in error


@pytest.mark.parametrize(
    ("text", "without"),
    [
        ("a\x1b[01;31mb\x1b[0m\r\nc", "ab\nc"),
        ("\x1b]0;title\x07a\x1b]8;;x\x1b\\b", "ab"),
        ("\x1b\x9b\x00\x7fa\tb", "a\tb"),
        ("\x1b]" * 50_000, ""),
    ],
)
def test_plain_text(text: str, without: str) -> None:
    assert plain(text) == without
    assert visible(plain(text)) == plain(text)


# -- the history ------------------------------------------------------------------------------------


def bomb() -> bytes:
    """300 MiB of zeros, packed."""
    return zlib.compress(bytes(300 << 20), 1)


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("said", 3), ("said", "text"), ("said", b"\xff"), ("said", zlib.compress(b"[" * 100_000)), ("said", bomb),
        ("at", "soon"), ("at", 1e300), ("kernel", b"\x00"), ("digest", b"x"), ("action", "rm"), ("text", b"x"),
    ],
    ids=lambda value: str(value)[:12],
)  # fmt: skip
def test_a_row_that_cannot_be_read_is_left_out_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, column: str, value: object
) -> None:
    store = HistoryStore(lambda: tmp_path / "history.sqlite")
    for number in range(3):
        store.keep(entry(number), TEXT)
    with closing(sqlite3.connect(tmp_path / "history.sqlite")) as file, file:
        file.execute(f"update runs set {column} = ? where id = 2", (value() if callable(value) else value,))
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            assert [item.digest for item in store.entries("/src/saxpy.cu")] == ["d0", "d2"]
    assert len(caplog.records) == 1
    assert "1 of them for good" in caplog.text
    assert "Traceback" not in caplog.text


def test_a_text_that_unpacks_to_more_than_a_text_is_gone(tmp_path: Path) -> None:
    store = HistoryStore(lambda: tmp_path / "history.sqlite")
    store.keep(entry(1), TEXT)
    (result,) = store.entries("/src/saxpy.cu")
    for body in (bomb(), 3, "x"):
        with closing(sqlite3.connect(tmp_path / "history.sqlite")) as file, file:
            file.execute("update texts set body = ?", (body,))
        assert store.text(result.text or "") is None
