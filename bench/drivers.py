"""How long it takes to find the drivers of a kernel, and what is kept: projects of 2,000 and 50,000 Python files

    python -P bench/drivers.py [--sources FOLDER] [--files 2000,50000]

The projects are copies of real files, those of torch and triton in this Python, or of FOLDER, in folders of about the sizes that
they have there; one package with a kernel, its test and its benchmark stands among them. Standard output is a Markdown table.
`cold` is a process without an index, the files in the system's cache; `next process` has the index; `warm` asks for another kernel of
the same process. `nearest` is when the driver's name is known while the rest is still being read.
"""

from __future__ import annotations

import argparse
import gc
import importlib.util
import itertools
import json
import shutil
import subprocess
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

KERNELS = 40
KERNEL = """
@triton.jit
def op{0}_kernel(x): ...

def op{0}(x):
    op{0}_kernel[(1,)](x)
"""
TEST = """
def test_op{0}():
    op{0}(1)
"""


def sources(folder: str | None) -> list[Path]:
    if folder:
        return sorted(Path(folder).rglob("*.py"))
    found: list[Path] = []
    for name in ("torch", "triton"):
        if (spec := importlib.util.find_spec(name)) and spec.submodule_search_locations:
            found += sorted(Path(spec.submodule_search_locations[0]).rglob("*.py"))
    return found


def project(root: Path, count: int, texts: list[Path]) -> Path:
    """A project of `count` files; returns the file of the kernels."""
    for number, source in zip(range(count - 3), itertools.cycle(texts), strict=False):
        round_, index = divmod(number, len(texts))
        target = root / f"part{round_}" / f"sub{index // 200}" / f"d{index // 20}" / f"m{index}.py"
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)
    for name, text in {
        "pkg/ops.py": "import triton\n" + "".join(KERNEL.format(i) for i in range(KERNELS)),
        "pkg/__init__.py": "from .ops import *\n",
        "tests/test_ops.py": "from pkg import *\n" + "".join(TEST.format(i) for i in range(KERNELS)),
    }.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (root / "pyproject.toml").write_text("")
    return root / "pkg" / "ops.py"


def measure(root: str, kernel: str, cache: str, *, memory: bool) -> Iterator[tuple[str, float]]:
    """In a process of its own: seconds, and MiB."""
    from orbit_lsp.drivers.finder import DriverFinder

    if memory:
        tracemalloc.start()
    begun = time.perf_counter()
    finder = DriverFinder(root, lambda: Path(cache))
    near = 0.0
    while not finder.refresh(kernel, within=0.1):
        if not near and finder.drivers(kernel, "op0_kernel").drivers:
            near = time.perf_counter() - begun
    yield "all read", time.perf_counter() - begun
    assert finder.drivers(kernel, "op0_kernel").drivers[0].id == "tests/test_ops.py::test_op0"
    yield "nearest", near or time.perf_counter() - begun
    times: list[float] = []
    for i in range(1, KERNELS):
        start = time.perf_counter()
        assert finder.drivers(kernel, f"op{i}_kernel").drivers
        times.append(time.perf_counter() - start)
    yield "warm", sorted(times)[len(times) // 2]
    start = time.perf_counter()
    finder.refresh()
    yield "look again", time.perf_counter() - start
    if memory:
        gc.collect()
        yield "kept MiB", tracemalloc.get_traced_memory()[0] / 2**20


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sources")
    parser.add_argument("--files", default="2000,50000")
    parser.add_argument("--measure", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        root, kernel, cache, memory = options.measure
        print(json.dumps(dict(measure(root, kernel, cache, memory=memory == "memory"))))
        return
    texts = sources(options.sources)
    if not texts:
        raise SystemExit("no Python files: name a folder with --sources")
    columns = ("nearest", "all read", "warm", "look again", "kept MiB")
    print("| files | process | " + " | ".join(columns) + " |\n|---|---|" + "---|" * len(columns))
    for count in map(int, options.files.split(",")):
        with tempfile.TemporaryDirectory() as folder:
            kernel = project(Path(folder) / "project", count, texts)
            for process in ("cold", "next process", "memory"):
                words = [str(kernel.parents[1]), str(kernel), f"{folder}/drivers.sqlite", process]
                done = subprocess.run(
                    [sys.executable, "-P", __file__, "--measure", *words],
                    check=True,
                    capture_output=True,
                    text=True,
                )
                figures = json.loads(done.stdout)
                shown = [f"{figures[each]:.3f}" if each in figures else "" for each in columns]
                print(f"| {count:,} | {process} | " + " | ".join(shown) + " |", flush=True)


if __name__ == "__main__":
    main()
