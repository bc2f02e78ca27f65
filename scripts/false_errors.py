"""Errors that are shown at a keystroke, beside those of nvcc, in real files: none may be another.

    python scripts/false_errors.py [--most 150] [--versions 2] FOLDER …

Takes `.cu` files of the folders that nvcc accepts, at most `--most` of each folder, and only those of which the waiting front
end says what nvcc does, as the server does. Then it makes versions of each: harmless statements at the start of functions,
misspelt names, missing semicolons and braces. Each version is typed after the one before, and compiled with nvcc.
An error of the front end that nvcc does not report, at the same line in the same words, is printed and counted as false.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import re
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from orbit_lsp.compilation.finder import CompilationFinder, CompilationQuestion
from orbit_remote.common.messages import Built
from orbit_remote.common.requests import Job
from orbit_remote.toolchain import build
from orbit_remote.toolchain.build_cache import Cache
from orbit_remote.toolchain.front_end import FrontEnds

HARMLESS = (
    "std::size_t count_ = sizeof(int);", "double largest_ = INFINITY;", "int limit_ = INT_MAX;", "float root_ = sqrtf(2.0f);",
    "for (int step_ = 0; step_ < 2; ++step_) {}", "auto sum_ = [](int a, int b) { return a + b; };", "(void)std::abs(-1);",
    'const char* name_ = "a // b";', "int mask_ = 0xFF'FF;", 'static_assert(sizeof(int) == 4, "");',
)  # fmt: skip
FLAGS: list[str] = []
ARCHITECTURE = "sm_90a"
WORD = re.compile(r"\b[a-z_]\w{3,}\b")
BODY = re.compile(r"(?:__global__|__device__)[^;{}]*\)\s*\{\n")


@dataclass
class Count:
    files: int = 0
    refused: int = 0
    disagreed: int = 0
    versions: int = 0
    unknown: int = 0
    of_nvcc: int = 0
    shown: int = 0
    false: int = 0
    check_s: list[float] = field(default_factory=list[float])


def version(text: str, rng: random.Random) -> str:
    """The text with one to three changes in device code."""
    bodies = [match.end() for match in BODY.finditer(text)]
    for _ in range(rng.randint(1, 3)):
        at = rng.choice(bodies)
        if rng.random() < 0.3:
            text = f"{text[:at]}  {rng.choice(HARMLESS)}\n{text[at:]}"
            continue
        end = text.find("\n}", at)
        part = text[at : end if end > 0 else len(text)]
        semicolon = rng.random() < 0.3
        places = list(re.finditer(r"[;{}]", part)) if semicolon else list(WORD.finditer(part))
        if not places:
            continue
        place = rng.choice(places)
        new = "" if semicolon else place[0][:-1] + "_q"
        text = text[: at + place.start()] + new + text[at + place.end() :]
        bodies = [match.end() for match in BODY.finditer(text)] or [at]
    return text


def ignored(group: int, alive: bool) -> None:
    """What a worker is told of the processes that it starts."""
    del group, alive


def errors(built: Built) -> Counter[tuple[str, int, str]]:
    """By file, line and words: behind a system header's macro nvcc's columns are not known, and the front end's are."""
    problems = [each for each in built.problems if (each.severity, each.tool) == ("error", "nvcc")]
    return Counter(
        (each.place.file if each.place else "", each.place.line if each.place else 0, each.message)
        for each in problems
    )


async def compiled(job: Job, folder: Path) -> build.BuildResult:
    return await build.build(
        job, architecture=ARCHITECTURE, started=ignored, cache=Cache(folder / "builds", limit=1 << 28), scratch=folder
    )  # fmt: skip


async def examine(
    path: Path,
    root: Path,
    finder: CompilationFinder,
    front_ends: FrontEnds,
    folder: Path,
    versions: int,
    count: Count,
) -> None:
    text = await asyncio.to_thread(path.read_text, errors="replace")
    question = CompilationQuestion(
        str(path), text, (str(root),), tuple(FLAGS), flags_trusted=True, python=sys.executable
    )
    flags = (await asyncio.to_thread(finder.find, question)).flags
    job = Job("r", "compile", "cuda", str(path), text, flags=flags, build_timeout_s=90)
    count.files += 1
    if not BODY.search(text) or (await compiled(job, folder)).failure:
        count.refused += 1
        return
    typed = await front_ends.check(job, ARCHITECTURE, ignored, start=True)
    if not typed.complete or errors(typed):
        count.disagreed += 1
        print(f"{path}: left to nvcc", flush=True)
        return
    rng = random.Random(path.name)
    for _ in range(versions):
        edited = version(text, rng)
        job = Job("r", "compile", "cuda", str(path), edited, flags=flags, build_timeout_s=90)
        began = time.perf_counter()
        typed = await front_ends.check(job, ARCHITECTURE, ignored, start=False)
        took = time.perf_counter() - began
        nvcc = await compiled(job, folder)
        count.versions += 1
        if not typed.complete:
            count.unknown += 1
            continue
        count.check_s.append(took)
        false = errors(typed) - errors(nvcc.built)
        count.of_nvcc += errors(nvcc.built).total()
        count.shown += errors(typed).total()
        count.false += false.total()
        for error in false:
            print(f"FALSE {error}\n  nvcc: {nvcc.failure} {list(errors(nvcc.built))[:5]}", flush=True)


async def examine_all(folders: list[Path], most: int, versions: int) -> None:
    with tempfile.TemporaryDirectory(prefix="orbit-") as name:
        work = Path(name)
        front_ends = FrontEnds(work / "front-end", work)
        for folder in folders:
            count, finder = Count(), CompilationFinder()
            files = sorted(folder.rglob("*.cu"))
            random.Random(0).shuffle(files)
            for path in files[:most]:
                await examine(path, folder, finder, front_ends, work, versions, count)
            checks = sorted(count.check_s)
            median = checks[len(checks) // 2] * 1e3 if checks else 0
            used = count.files - count.refused - count.disagreed
            print(
                f"{folder}: {count.files} files, {count.refused} not compiled by nvcc or without device code, {count.disagreed} left to "
                f"nvcc, {used} typed in; {count.versions} versions, {count.unknown} without an answer, {count.of_nvcc} errors of nvcc, "
                f"{count.shown} shown at the keystroke, {count.false} false; median {median:.0f} ms",
                flush=True,
            )  # fmt: skip
        await front_ends.close()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--most", type=int, default=150)
    parser.add_argument("--versions", type=int, default=2)
    parser.add_argument("--flag", action="append", default=[], help="of nvcc, for every file")
    parser.add_argument("folders", nargs="+", type=Path)
    options = parser.parse_args()
    FLAGS.extend(options.flag)
    asyncio.run(examine_all([folder.resolve() for folder in options.folders], options.most, options.versions))


if __name__ == "__main__":
    main()
