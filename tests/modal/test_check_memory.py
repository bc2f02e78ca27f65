"""A memory check on a rented GPU: the worker of the container is the real one, its compute-sanitizer writes what the real
one wrote on an H100; and what is said where it does not work, as others saw it on Modal.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from orbit_remote.common import messages as c
from tests.modal.conftest import Author, container, script, told_of_a_gpu
from tests.modal_loopback.fixture import started
from tests.recordings import planted
from tests.remote.nvcc_check import needs_nvcc

pytestmark = needs_nvcc
REPLAY = planted.PROGRAMS.parent / "replay_sanitizer.py"
REFUSING = 'for one in "$@"; do [ "$last" = --log-file ] && echo "========= Device not supported" > "$one"; last=$one; done'
"""A made-up log with the words that were reported of Modal's B200 (unsupported device); nobody here has seen its own."""


async def checked(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, author, line: str
) -> tuple[Author, c.Finished]:
    tools = tmp_path / "bin"
    tools.mkdir()
    script(tools / "compute-sanitizer", f'[ "$1" = --version ] && echo Version 2025.3.1.0 && exit\n{line}')
    monkeypatch.setenv("PATH", f"{tools}{os.pathsep}{os.environ['PATH']}")
    here = container(tmp_path, recorded=False) | {"ORBIT_PYTHON": str(told_of_a_gpu(tmp_path))}
    with started(monkeypatch, tmp_path, here, kept=True):
        item: Author = author()
        text = (planted.PROGRAMS / "race.cu").read_text()
        job = item.job("sanitize", text, path="race.cu", kernel="reverse", tools=("memcheck", "racecheck"))
        return item, await item.finished(job)


@pytest.mark.slow
async def test_the_lines_are_those_of_the_authors_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, author
) -> None:
    item, finished = await checked(monkeypatch, tmp_path, author, f'exec "{sys.executable}" "{REPLAY}" "$@"')
    places = [(problem.tool, problem.place) for problem in finished.problems if problem.severity == "error"]
    path = str(item.folder / "race.cu")
    assert places == [("racecheck", c.Place(path, 5)), ("racecheck", c.Place(path, 6))]
    notes = [note.place for problem in finished.problems for note in problem.notes]
    assert notes == [c.Place(path, 6), c.Place(path, 5)]
    assert finished.toolchain["compute-sanitizer"] == "2025.3.1.0"


@pytest.mark.slow
async def test_where_the_gpu_is_not_supported_it_is_said(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, author
) -> None:
    _, finished = await checked(monkeypatch, tmp_path, author, REFUSING)
    assert finished.outcome == "infrastructure"
    assert finished.failure
    assert finished.failure.message.startswith("compute-sanitizer does not support this GPU here")
    assert "use a machine of your own" in finished.failure.remedy
