"""One build of a small source, and its problems written as lines that a test can spell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from orbit_remote.common import messages as c
from orbit_remote.common.requests import Job
from orbit_remote.toolchain import build, nvcc
from orbit_remote.toolchain.build_cache import Cache

COMPILER = nvcc.find()
needs_nvcc = pytest.mark.skipif(
    isinstance(COMPILER, c.Failure), reason=getattr(COMPILER, "message", "nvcc is there")
)


def ignore(_pgid: int, _alive: bool) -> None:
    """For builds whose process groups nobody follows."""


def lines_of(problems: Sequence[c.Problem], folder: Path | str = "") -> list[str]:
    """`k.cu:7:13-20 error nvcc #20-D words`, further lines and notes indented."""

    inside = f"{folder}/" if folder else ""

    def place(of: c.Place | None) -> str:
        if of is None:
            return ""
        text = f"{of.file.removeprefix(inside)}:{of.line}"
        if of.column is not None:
            text += f":{of.column}" + (f"-{of.end_column}" if of.end_column is not None else "")
        return text + " "

    lines: list[str] = []
    for problem in problems:
        words = (problem.message.replace(inside, "") if inside else problem.message).split("\n")
        kind = " ".join(filter(None, (problem.severity, problem.tool, problem.code)))
        lines.append(f"{place(problem.place)}{kind} {words[0]}")
        lines += [f"    {more}" for more in words[1:]]
        lines += [f"  {place(note.place)}{note.message}" for note in problem.notes]
    return lines


async def built(
    folder: Path,
    source: str,
    *,
    files: Mapping[str, str] | None = None,
    action: str = "compile",
    flags: Sequence[str] = (),
    architecture: str = "sm_90a",
    name: str = "k.cu",
    cache: Cache | None = None,
    saved: bool = True,
    timeout_s: float = 120.0,
    compiler: str | None = None,
    scratch: Path | None = None,
) -> build.BuildResult:
    """Build `source` as `folder/name`; unless `saved`, only the editor has it."""
    scratch = scratch or folder / ".scratch"
    scratch.mkdir(exist_ok=True)
    if saved:
        (folder / name).write_bytes(source.encode())
    for header, text in (files or {}).items():
        (folder / header).write_bytes(text.encode())
    job = Job(
        "1", action, "cuda", str(folder / name), source,
        flags=tuple(flags), nvcc=compiler, build_timeout_s=timeout_s,
    )  # fmt: skip
    return await build.build(
        job,
        architecture=architecture,
        started=ignore,
        cache=cache or Cache(folder / ".cache"),
        scratch=scratch,
    )


async def check(folder: Path, source: str, expected: str, **how: Any) -> build.BuildResult:
    """Build and compare every problem, in order, with `expected`; nothing but the result may remain."""
    result = await built(folder, source, **how)
    results = lines_of(result.built.problems, folder)
    assert results == [line for line in expected.split("\n") if line.strip()], "\n".join(results)
    left = {path for path in (how.get("scratch") or folder / ".scratch").rglob("*") if path.is_file()}
    assert left == {path for path in (result.executable, result.cubin) if path}
    return result


@dataclass(frozen=True)
class Case:
    """A source and the problems it has; `how` goes to `built`."""

    name: str
    source: str
    expected: str
    files: Mapping[str, str] | None = None
    action: str = "compile"
    flags: tuple[str, ...] = ()
    architecture: str = "sm_90a"
    saved: bool = True

    async def check(self, folder: Path) -> build.BuildResult:
        return await check(
            folder, self.source, self.expected, files=self.files, action=self.action,
            flags=self.flags, architecture=self.architecture, saved=self.saved,
        )  # fmt: skip
