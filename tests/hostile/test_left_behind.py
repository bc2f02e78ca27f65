"""What lies in folders and records that commands read and write: rows of the record of jobs, links, connection files."""

from __future__ import annotations

import json
import os
import re
import sqlite3
import zlib
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from orbit_lsp.history.history_store import HistoryStore
from orbit_lsp.profile import report_folder
from orbit_lsp.queue import job_store
from orbit_lsp.queue.job_store import JobStore, StoreError
from orbit_lsp.runners.modal.ledger import Ledger
from tests.cli_check import orbit

JOB = "abcd1234abcd1234"
ROW: dict[str, Any] = {
    "id": JOB, "door": "api", "state": "queued", "action": "run", "file": "k.cu", "gpu": "", "priority": "normal", "key": "",
    "submitted": 1.0, "owner": "1-0123456789ab", "request": zlib.compress(b"{}"),
}  # fmt: skip
ENDED: dict[str, Any] = {"state": "done", "outcome": "ok", "ended": 2.0}
ROWS: dict[str, dict[str, Any]] = {
    "types": {"state": 5, "summary": b"\xfe", "file": b"\xff", "submitted": "x", "started": b"y", "owner": b"q", "kernel": 7},
    "an owner that is a path": {"owner": "../../../../etc/passwd"},
    "an owner of bytes": {"owner": b"1-0123456789ab"},
    "times without end": ENDED | {"submitted": 1e300, "started": 1e300, "ended": 1e400},
    "control characters": ENDED | {"summary": "a\x1b[2Jb", "file": "\x1b[31m", "outcome": "weird"},
    "a result that is none": ENDED | {"result": b"garbage"},
    "a number for a result": ENDED | {"result": 7},
    "a result of 300 MB": ENDED | {"result": lambda: zlib.compress(bytes(300_000_000), 1)},
    "a result that is nested": ENDED | {"result": zlib.compress(b"[" * 200_000)},
    "a list for a result": ENDED | {"result": zlib.compress(b"[]")},
    "a result of wrong types": ENDED | {"result": zlib.compress(b'{"finished": {"run": 5, "outcome": []}, "problems": 7}')},
}  # fmt: skip


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if "300 MB" in name else name for name in ROWS]
)
def test_a_row_that_another_program_wrote_stops_no_command(home: Path, name: str) -> None:
    assert orbit(home, "jobs", "list") == (0, "no jobs\n", "")
    values = {column: value() if callable(value) else value for column, value in (ROW | ROWS[name]).items()}
    with sqlite3.connect(home / "state" / "orbit-lsp" / "jobs.sqlite") as file:
        marks = ", ".join("?" * len(values))
        file.execute(f"insert into jobs ({', '.join(values)}) values ({marks})", list(values.values()))
    file.close()
    for words in (
        ["list"],
        ["list", "--json"],
        ["show", JOB],
        ["show", JOB, "--json"],
        ["cancel", JOB],
        ["prune", "--older", "0s"],
    ):
        code, out, error = orbit(home, "jobs", *words)
        assert (code in (0, 64), "Traceback" in error, "\x1b" in out) == (True, False, False), (words, error)


def test_a_record_that_is_damaged_is_set_aside_with_a_sentence(home: Path) -> None:
    orbit(home, "jobs", "list")
    path = home / "state" / "orbit-lsp" / "jobs.sqlite"
    with closing(sqlite3.connect(path)) as file:
        file.execute("drop table jobs")
    contents = [path.read_bytes()]
    path.unlink()
    orbit(home, "jobs", "list")
    contents += [b"this is no database, and long enough to be taken for one" * 99, path.read_bytes()[:5_000]]
    for content in contents:
        path.write_bytes(content)
        code, out, error = orbit(home, "jobs", "list")
        assert (code, out) == (0, "no jobs\n"), error
        assert re.fullmatch(
            r"orbit-lsp: error: the record of jobs was damaged \(.*\); it is now .*, and a new one begins\n",
            error,
        )
        assert orbit(home, "jobs", "prune", "--older", "0s") == (0, "0 jobs removed\n", "")
    asides = path.parent.glob("jobs.damaged-*.sqlite")
    assert sorted(aside.read_bytes() for aside in asides) == sorted(contents)


def _newer(path: Path) -> None:
    with closing(sqlite3.connect(path)) as file:
        file.execute("pragma user_version = 9")


DOORS = {
    "list": ["jobs", "list"], "submit": ["jobs", "submit", "k.cu"], "mcp": ["mcp"], "api": ["api", "--port", "0"],
    "watch": ["watch", ".", "--results", "out"], "loop": ["loop", "k.cu"],
}  # fmt: skip
UNUSABLE: dict[str, tuple[Callable[[Path], object], str]] = {
    "newer": (
        _newer, "it was written by a newer orbit-lsp (format 9, this one knows 1) ({}); update this orbit-lsp, or move the file away"
    ),
    "a folder": (
        Path.mkdir, "unable to open database file ({}); it must be a file that you may read and write: move away what is there"
    ),
}  # fmt: skip


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("name", UNUSABLE)
def test_a_record_that_cannot_be_used_is_a_sentence_in_every_door(home: Path, name: str, door: str) -> None:
    path = home / "state" / "orbit-lsp" / "jobs.sqlite"
    path.parent.mkdir(parents=True)
    make, why = UNUSABLE[name]
    make(path)
    (home / "k.cu").write_text(
        "// orbit: n = 8; x = zeros(n)\n// orbit: launch k<<<1, 8>>>(x)\n// orbit: expect x == 0\n"
        "__global__ void k(float* x) {}\n"
    )
    message = f"orbit-lsp: error: the record of jobs cannot be used: {why.format(path)}\n"
    assert orbit(home, *DOORS[door], "--pool", "local:0") == (5, "", message)


@pytest.mark.parametrize("words", [["list"], ["submit", "k.cu"], ["prune"], ["cancel", JOB]])
def test_a_record_that_another_process_holds_is_a_sentence(
    home: Path, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    monkeypatch.setattr(job_store, "_BUSY_S", 0.1)
    assert orbit(home, "jobs", "list") == (0, "no jobs\n", "")
    (home / "k.cu").write_text("__global__ void k() {}\n")
    path = home / "state" / "orbit-lsp" / "jobs.sqlite"
    with closing(sqlite3.connect(path, isolation_level=None)) as file:
        file.execute("begin exclusive")
        code, out, error = orbit(home, "jobs", *words, "--pool", "local:0")
    assert (code, out, error) == (
        5,
        "",
        (
            f"orbit-lsp: error: the record of jobs cannot be used: database is locked ({path}); another process holds it: wait for "
            "that process, or end it\n"
        ),
    )


NO_DATABASES: dict[str, Callable[[Path], object]] = {
    "a FIFO": os.mkfifo,
    "a folder": Path.mkdir,
    "a link to a device": lambda path: path.symlink_to("/dev/zero"),
    "a link to itself": lambda path: path.symlink_to(path),
    "a link into no folder": lambda path: path.symlink_to("gone/away"),
}


@pytest.mark.parametrize("name", NO_DATABASES)
def test_a_database_that_is_no_file_is_a_sentence(tmp_path: Path, name: str) -> None:
    path = tmp_path / "state" / "x.sqlite"
    path.parent.mkdir()
    NO_DATABASES[name](path)
    history, ledger = HistoryStore(lambda: path), Ledger(lambda: path)
    assert history.entries("/src/k.cu") == []
    assert not (spent := ledger.month(1.0)) or not spent.spent_usd
    for complaints in (history.complaints(), ledger.complaints()):
        assert not any("Traceback" in complaint or "\n" in complaint for complaint in complaints)
    with pytest.raises(StoreError, match=r"the record of jobs cannot be (used|opened)"):
        JobStore(path).jobs()


# -- files that commands write ----------------------------------------------------------------------


def _link(path: Path) -> None:
    path.symlink_to(path.parents[1] / "victim")


def _fifo(path: Path) -> None:
    os.mkfifo(path)


@pytest.mark.parametrize("make", [_link, _fifo])
def test_a_report_is_written_where_it_belongs(tmp_path: Path, make: Callable[[Path], None]) -> None:
    (tmp_path / "victim").write_text("thesis")
    (tmp_path / "here").mkdir()
    for name in ("report.html", f".report.html.{os.getpid()}"):
        make(tmp_path / "here" / name)
    report_folder.write(tmp_path / "here" / "report.html", b"report")
    assert (tmp_path / "here" / "report.html").read_bytes() == b"report"
    assert (tmp_path / "victim").read_text() == "thesis"


def test_skills_are_written_into_no_folder_behind_a_link(home: Path) -> None:
    (home / "victim").mkdir()
    (home / "here").mkdir()
    (home / "here" / "skills").symlink_to(home / "victim")
    code, _, error = orbit(home / "here", "skills", "install", "--to", "skills")
    assert (code, "a link leads from skills out of this folder" in error) == (64, True)
    (home / "here" / "own").mkdir()
    (home / "here" / "own" / "orbit-run").symlink_to(home / "victim")
    code, _, error = orbit(home / "here", "skills", "install", "--to", "own")
    assert (code, error) == (64, "orbit-lsp: error: own/orbit-run is a link; remove it\n")
    assert list((home / "victim").iterdir()) == []


def test_what_a_file_says_of_its_leaderboard_reaches_no_terminal_raw(home: Path) -> None:
    (home / "s.py").write_text("#!POPCORN leaderboard a\x1b]0;b\x07\n#!POPCORN gpu H100\n")
    code, out, _ = orbit(home, "submit", "s.py", "--mode", "test", "--dry-run")
    assert (code, "\x1b" in out, "\x07" in out) == (0, False, False)


# -- connection files of notebook kernels ------------------------------------------------------------

CHANNELS = ("shell", "iopub", "stdin", "control", "hb")
CONNECTION: dict[str, Any] = {f"{name}_port": 49_000 + at for at, name in enumerate(CHANNELS)} | {
    "ip": "127.0.0.1", "key": "k", "transport": "tcp", "signature_scheme": "hmac-sha256"
}  # fmt: skip
CONNECTIONS: dict[str, Any] = {
    "nested": "[" * 200_000,
    "a list": [],
    "no port": {"shell_port": None},
    "a port below": {"shell_port": -1},
    "a port above": {"shell_port": 1 << 16},
    "a port without end": {"shell_port": 1e999},
    "a port of words": {"shell_port": "1"},
    "a transport of another kind": {"transport": "pgm"},
    "an address of lines": {"ip": "127.0.0.1\0"},
    "an address that is a list": {"ip": ["127.0.0.1"]},
    "a key that is no text": {"key": {"a": 1}},
    "a key of half a character": {"key": "\ud800"},
    "a signature of nobody": {"signature_scheme": "rot13"},
    "a hash of nobody": {"signature_scheme": "hmac-foo"},
}


@pytest.mark.parametrize("name", CONNECTIONS)
def test_a_connection_file_that_is_none_is_a_sentence(home: Path, name: str) -> None:
    content = CONNECTIONS[name]
    text = content if isinstance(content, str) else json.dumps(CONNECTION | content if content else content)
    (home / "c.json").write_text(text)
    code, _, error = orbit(home, "kernel", "run", "--connection-file", "c.json")
    assert (code, error) == (64, "orbit-lsp: error: c.json is no connection file of Jupyter\n")
