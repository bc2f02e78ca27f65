"""Paths that a user gives: relative ones, `~`, and names that mean something in a URI, in a shell or to SQLite."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from orbit_lsp.agents.drop_folder import TAKEN
from orbit_lsp.places.places import Places
from orbit_lsp.queue import request
from orbit_lsp.state.placement import RunSetup
from orbit_lsp.state.session import Session
from tests.cli_check import orbit

NO_UTF8 = os.fsdecode(b"n\xff\xfe")
NAMES = ["a b", "100%41", "a#b", "a?mode=ro", "ü 日本", "~", NO_UTF8]
KERNEL = """\
// orbit: n = 8; x = zeros(n)
// orbit: launch k<<<1, 8>>>(x)
// orbit: expect x == 0
__global__ void k(float* x) {}
"""
DEAD = "1-0123456789ab"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "home").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "home" / "state"))
    monkeypatch.setenv("ORBIT_SHARED_WORKER", "no")
    return tmp_path / "home"


def made(folder: Path, name: str) -> Path:
    try:
        (folder / name).mkdir()
    except (OSError, UnicodeEncodeError):
        pytest.skip("not on this file system")
    return folder / name


@pytest.mark.parametrize("name", NAMES)
def test_a_folder_of_an_option_may_be_relative_and_have_any_name(
    home: Path, tmp_path: Path, name: str
) -> None:
    folder, given = made(tmp_path, name), f"./{name}"
    assert orbit(tmp_path, "skills", "install", "--to", f"{given}/skills")[0] == 0
    assert (folder / "skills" / "orbit-submit" / "SKILL.md").is_file()
    if name != NO_UTF8:
        (folder / "k.cu").write_text(KERNEL)
        words = [
            "loop",
            f"{given}/k.cu",
            "--mode",
            "dry-run",
            "--max-iterations",
            "1",
            "--state",
            f"{given}/state",
        ]
        assert orbit(tmp_path, *words)[0] == 0
        assert (folder / "state" / "journal.jsonl").is_file()
    watched = folder / "in"
    taken = watched / TAKEN / DEAD
    taken.mkdir(parents=True)
    (taken / "k.cu").write_text(KERNEL)
    (watched / TAKEN / "owners").mkdir()
    (watched / TAKEN / "owners" / DEAD).touch()
    words = ["watch", f"{given}/in", "--results", f"{given}/out", "--once", "--pool", "local:0"]
    assert orbit(tmp_path, *words)[0] == 0
    result = json.loads((folder / "out" / "k_result.json").read_text())
    assert result["message"] == "orbit-lsp was killed or crashed while this job ran"
    assert not list(taken.parent.glob("*-*"))
    assert sorted(path.name for path in tmp_path.iterdir() if path.name not in (name, "home", ".cache")) == []


@pytest.mark.parametrize(
    "words",
    [
        ["skills", "install", "--to=~/made"],
        ["loop", "k.cu", "--mode", "dry-run", "--max-iterations", "1", "--state=~/made"],
        ["watch", "in", "--results=~/made", "--once", "--pool", "local:0"],
    ],
    ids=lambda words: words[0],
)
def test_a_tilde_that_the_shell_left_alone_is_the_users_folder(
    home: Path, tmp_path: Path, words: list[str]
) -> None:
    (tmp_path / "k.cu").write_text(KERNEL)
    (tmp_path / "in").mkdir()
    assert orbit(tmp_path, *words)[0] == 0
    assert ((home / "made").is_dir(), (tmp_path / "~").exists()) == (True, False)


@pytest.mark.parametrize("words", [["run"], ["run", "--json"], ["jobs", "submit"], ["loop"]], ids=" ".join)
def test_a_file_whose_path_is_no_text_is_refused_in_a_sentence(
    home: Path, tmp_path: Path, words: list[str]
) -> None:
    (made(tmp_path, NO_UTF8) / "k.cu").write_text(KERNEL)
    code, out, error = orbit(tmp_path, *words, f"{NO_UTF8}/k.cu")
    assert (code, error.startswith("orbit-lsp: error: "), error.count("\n")) == (64, True, 1)
    if "--json" in words:
        assert "the path is not valid UTF-8" in json.loads(out)["failure"]["message"]


def test_a_users_own_file_may_have_any_name_that_can_be_printed(tmp_path: Path) -> None:
    (tmp_path / "a b#%ü.cu").write_text(KERNEL)
    (tmp_path / "a\nb.cu").write_text(KERNEL)
    request.check(request.decoded({"file": str(tmp_path / "a b#%ü.cu")}), trusted=True)
    with pytest.raises(request.RequestRefusedError, match="has a control character; rename it"):
        request.check(request.decoded({"file": str(tmp_path / "a\nb.cu")}), trusted=True)


@pytest.mark.parametrize("name", ["python", "nvcc"])
@pytest.mark.parametrize("trusted", [True, False])
def test_a_relative_program_of_the_settings_is_one_of_the_open_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, trusted: bool
) -> None:
    """Not of the folder that the server was started in."""
    monkeypatch.chdir("/")
    (tmp_path / "one").mkdir()
    program = tmp_path / "two" / "bin" / name
    program.parent.mkdir(parents=True)
    program.touch()
    session = Session(setup=RunSetup(folders=[str(tmp_path / "one"), str(tmp_path / "two")]))
    places = Places(session, print, lambda _: None)
    places.settings.options = {name: f"bin/{name}", "trusted": trusted}
    complaints = places.settings.configure(None)
    chosen = getattr(session.setup.settings, name)
    assert chosen == (str(program) if trusted else "")
    assert [complaint.partition(": it is")[0] for complaint in complaints] == (
        [] if trusted else [f"orbit: the setting `{name}`, bin/{name}, is not used"]
    )
    places.settings.options = {name: name}
    places.settings.configure(None)
    assert getattr(session.setup.settings, name) == name  # for PATH to find
