"""What users' code says may be no text: it is passed on as far as it can be, and ends nothing."""

from __future__ import annotations

import asyncio
import io
import os
import sys
from pathlib import Path
from typing import Any, cast

import pytest

from orbit_lsp.cli.terminal_watcher import TerminalWatcher
from orbit_lsp.compilation import finder
from orbit_lsp.places.places import Places
from orbit_lsp.runners.local import LocalOptions, LocalRunner
from orbit_lsp.state.session import Session
from orbit_remote.common import messages as c
from orbit_remote.common import python_errors
from orbit_remote.common.requests import Job


@pytest.mark.skipif(os.name != "posix", reason="a script in the place of Python")
async def test_half_a_surrogate_pair_in_a_message(tmp_path: Path) -> None:
    event = b'{"kind":"finished","run":"r","outcome":"runtime error","stdout":"a\xed\xa0\x80b"}\n'
    (tmp_path / "event").write_bytes(event)
    script = tmp_path / "python"
    script.write_text(f"#!/bin/sh\nread job\ncat '{tmp_path}/event'\ncat >/dev/null\n")
    script.chmod(0o755)
    runner = LocalRunner(LocalOptions(python=str(script), cache=str(tmp_path / "cache")))
    events = [event async for event in runner.run(Job("r", "compile", "cuda", "/k.cu", ""))]
    await runner.close()
    (finished,) = events
    assert isinstance(finished, c.Finished)
    assert (finished.outcome, finished.stdout) == ("runtime error", "a?b")


@pytest.mark.skipif(os.name != "posix", reason="a script in the place of Python")
@pytest.mark.parametrize(
    "line",
    [
        '{"kind":"finished","run":"r","outcome":"ok","stdout":"a"b"}',
        '{"kind":"finished","run":"r","outc',
        '{"kind":"finished","run":"r"}',
        '{"kind":"finished","run":"r","outcome":"ok","run_s":1' + "0" * 400 + "}",
        '{"kind":"stage","run":["r"]}\n{"kind":"finished","run": "r",}',
    ],
)
async def test_an_answer_that_is_none_ends_the_run(tmp_path: Path, line: str) -> None:
    (tmp_path / "event").write_text(f"hello from sitecustomize\n{line}\n")
    script = tmp_path / "python"
    script.write_text(f"#!/bin/sh\nread job\ncat '{tmp_path}/event'\ncat >/dev/null\n")
    script.chmod(0o755)
    runner = LocalRunner(LocalOptions(python=str(script), cache=str(tmp_path / "cache")))
    async with asyncio.timeout(20):
        (finished,) = [event async for event in runner.run(Job("r", "compile", "cuda", "/k.cu", ""))]
    await runner.close()
    assert isinstance(finished, c.Finished)
    assert finished.failure
    assert "not understood" in finished.failure.message


@pytest.mark.parametrize(
    ("path", "directory", "message"),
    [
        ("/a\0b.cu", "/", r"the file name /a\x00b.cu"),
        ("/a\ud800.cu", "/", r"the file name /a\ud800.cu"),
        ("/a.py", "/b\0", r"the folder name /b\x00"),
    ],
)
async def test_a_path_that_no_file_has(path: str, directory: str, message: str) -> None:
    job = Job("r", "compile", "cuda", path, "", directory=directory)
    (finished,) = [event async for event in LocalRunner(LocalOptions()).run(job)]
    assert isinstance(finished, c.Finished)
    assert finished.failure
    assert finished.failure.message == f"{message} holds a NUL character or half a surrogate pair"


@pytest.mark.parametrize("path", ["/a\0/k.cu", "/a\ud800/k.cu"])
def test_how_a_file_is_compiled_whose_folder_cannot_be(path: str) -> None:
    question = finder.CompilationQuestion(
        path, '#include "a\0.h"\n#include <b.h>\n', (path.removesuffix("/k.cu"),)
    )
    assert finder.CompilationFinder().find(question).flags == ()


def test_an_exception_that_cannot_be_written() -> None:
    class MuteError(Exception):
        def __str__(self) -> str:
            raise ZeroDivisionError

    assert python_errors.explain(MuteError(), "/k.py").failure.message == "MuteError"


def test_a_reader_that_leaves_while_the_program_prints(monkeypatch: pytest.MonkeyPatch) -> None:
    class Left(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    monkeypatch.setattr(sys, "stdout", Left())
    TerminalWatcher(quiet=False).output(cast("Any", None), "stdout", "text")


def test_a_cache_without_bound() -> None:
    places = Places(Session(), print, lambda uris: None)
    places.settings.options = {"cache_gib": 1e300}
    assert places.settings.configure(None) == ()
    assert cast("LocalRunner", places.runner()).options.cache_bytes == 1 << 50
