"""The command line in this process: what a command says, and its exit code."""

from __future__ import annotations

import io
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from orbit_lsp.cli import main as cli_main


def orbit(
    folder: Path, *words: str, encoding: str = "utf-8", environment: Mapping[str, str] | None = None
) -> tuple[int, str, str]:
    """`orbit-lsp WORDS` in `folder`, on streams of this encoding: (exit code, stdout, stderr)."""
    streams = [io.TextIOWrapper(io.BytesIO(), encoding=encoding) for _ in range(2)]
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("XDG_CACHE_HOME", str(folder / ".cache"))
        for name, value in (environment or {}).items():
            patch.setenv(name, value)
        patch.setattr(sys, "stdin", io.StringIO())
        for name, stream in zip(("stdout", "stderr"), streams, strict=True):
            patch.setattr(sys, name, stream)
        try:
            code = cli_main.main(list(words))
        except SystemExit as left:  # of the parser of arguments
            code = left.code if isinstance(left.code, int) else 1
    return code, *(_text(stream) for stream in streams)


def _text(stream: io.TextIOWrapper) -> str:
    stream.flush()
    buffer = stream.buffer
    assert isinstance(buffer, io.BytesIO)
    return buffer.getvalue().decode(stream.encoding)
