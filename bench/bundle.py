"""What finding and mirroring a kernel's files costs: `python bench/bundle.py [FILES] [CLICKS]`.

A CUDA file that includes FILES - 1 headers in 10 folders (each header 8 KB and five others) and a Python
file with as many modules. Per click one file is edited; printed are the first click, in a process that
has seen none of it, and the median and slowest of the others: the closure on the author's side, and on
the other side what is missing, put and materialised.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Literal

from orbit_lsp.closure import closure
from orbit_remote.common.content_store import ContentStore
from orbit_remote.common.requests import Job

FOLDERS = 10
BODY = "\n".join(f"/* line {n} of a header as long as headers are */" for n in range(165))
LIMIT = 64 << 20


def header(number: int, count: int) -> tuple[str, str]:
    remaining = [(number * 5 + k) % (count - 1) for k in range(1, 6)]
    lines = "".join(f'#include "../d{other % FOLDERS}/h{other}.cuh"\n' for other in remaining)
    return f"d{number % FOLDERS}/h{number}.cuh", f"#pragma once\n{lines}{BODY}\n"


def module(number: int, count: int) -> tuple[str, str]:
    remaining = [(number * 5 + k) % (count - 1) for k in range(1, 6)]
    lines = "".join(f"from d{other % FOLDERS}.m{other} import x as x{other}\n" for other in remaining)
    return f"d{number % FOLDERS}/m{number}.py", lines + BODY.replace("/*", "#") + "\nx = 1\n"


def project(folder: Path, language: Literal["cuda", "triton"], count: int) -> Job:
    make = header if language == "cuda" else module
    for number in range(count - 1):
        name, text = make(number, count)
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        os.utime(path, (1e9, 1e9))
    if language == "cuda":
        main, text = "k.cu", "".join(f'#include "d{n % FOLDERS}/h{n}.cuh"\n' for n in range(count - 1))
    else:
        main, text = "k.py", "".join(f"import d{n % FOLDERS}.m{n}\n" for n in range(count - 1))
    return Job("1", "run", language, str(folder / main), text, directory=str(folder), flags=("-I", "."))


def click(job: Job, folder: Path, store: ContentStore, tree: Path) -> tuple[float, float, int]:
    """Seconds of the closure, seconds of the other side, files sent."""
    began = time.perf_counter()
    result = closure(job, [str(folder)], data=(), limit=LIMIT)
    closed = time.perf_counter() - began
    assert result.refusal is None, result.refusal
    began = time.perf_counter()
    missing = store.missing(result.manifest)
    for digest in missing:
        content = result.contents[digest]
        store.put(digest, content if isinstance(content, bytes) else content.read_bytes())
    store.materialise(result.manifest, tree)
    return closed, time.perf_counter() - began, len(missing)


def main(count: int = 200, clicks: int = 50) -> None:
    languages: tuple[Literal["cuda", "triton"], ...] = ("cuda", "triton")
    for language in languages:
        with tempfile.TemporaryDirectory() as scratch:
            folder = Path(scratch, "project")
            job = project(folder, language, count)
            time.sleep(2.5)  # files at rest, as those of a person who edits one of them
            store, tree = ContentStore(Path(scratch, "store"), LIMIT), Path(scratch, "tree")
            first = click(job, folder, store, tree)
            edited = next(folder.rglob("*3.cuh" if language == "cuda" else "*3.py"))
            times: list[tuple[float, float, int]] = []
            for number in range(clicks):
                edited.write_text(
                    f"{edited.read_text()}// {number}\n" if language == "cuda" else f"x = {number}\n"
                )
                times.append(click(job, folder, store, tree))
            print(
                f"{language}: {count} files; first click sent {first[2]}, the others {sorted({t[2] for t in times})}"
            )
            for name, which in (("closure", 0), ("store and tree", 1)):
                later = [1e3 * t[which] for t in times]
                middle, worst = statistics.median(later), max(later)
                print(
                    f"  {name:15} first {1e3 * first[which]:6.1f} ms, then {middle:5.1f} ms median, {worst:5.1f} ms slowest"
                )


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
