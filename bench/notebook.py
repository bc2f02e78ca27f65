"""Figures of notebook kernels on this machine: cells, files, interrupts and a long output, here, through the offline Modal and at an
evaluation server.

    python -P bench/notebook.py [--cells 50]

A cell's time is from its request to the message that the kernel is idle, as a front end waits for it, beside that of a bare
ipykernel of the same Python. Linux.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "remote"))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import pytest

from tests.modal_loopback.fixture import started
from tests.test_notebook import Kernel
from tests.test_notebook_served import TOKEN, Served, Server

FILES = 2000
LONG = 100_000_000
RENTED = ("--on", "modal:H100", "--budget", "5000")


class Bare(Kernel):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder, name="python3")


def cell_ms(kernel: Kernel, cells: int, before: Callable[[int], object] = lambda _: None) -> list[float]:
    """The times of empty cells; `before` is called before each."""
    times: list[float] = []
    for number in range(cells + 3):
        before(number)
        began = time.perf_counter()
        kernel.run("pass")
        times.append(1000 * (time.perf_counter() - began))
    return times[3:]


def interrupt_ms(kernel: Kernel) -> list[float]:
    times: list[float] = []
    for _ in range(5):
        pressed: list[float] = []

        def press(_: str, pressed: list[float] = pressed) -> None:
            if not pressed:
                pressed.append(time.perf_counter())
                kernel.manager.interrupt_kernel()

        assert "KeyboardInterrupt" in kernel.run("print('on')\nwhile True: pass", press)
        times.append(1000 * (time.perf_counter() - pressed[0]))
    return times


def show(what: str, times: list[float], less: float = 0.0) -> None:
    median, worst = statistics.median(times) - less, max(times) - less
    print(f"| {what} | {median:.1f} ms | {worst:.1f} ms |", flush=True)


def files(folder: Path) -> None:
    for number in range(FILES):
        place = folder / f"package{number // 100}"
        place.mkdir(exist_ok=True)
        (place / f"module{number}.py").write_text(f"value = {number}\n" * 20)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cells", type=int, default=50)
    options = parser.parse_args()
    loads = os.getloadavg()
    cpus = os.cpu_count()
    print(f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC, {cpus} cores, load {loads[0]:.1f}\n")
    print("| what | median | longest |\n|---|---|---|")
    with tempfile.TemporaryDirectory(prefix="bench-") as made, pytest.MonkeyPatch.context() as patch:
        folder = Path(made)
        for name in ("JUPYTER_DATA_DIR", "XDG_STATE_HOME", "XDG_CACHE_HOME", "IPYTHONDIR"):
            patch.setenv(name, str(folder / name.lower()))
        work = folder / "work"
        work.mkdir()
        with contextlib.closing(Bare(work)) as bare, contextlib.closing(Kernel(work)) as here:
            alone = cell_ms(bare, options.cells)
            show("empty cell, bare ipykernel", alone)
            base = statistics.median(alone)
            show("empty cell, this machine, over the bare one", cell_ms(here, options.cells), base)
            show("interrupt of a loop, this machine", interrupt_ms(here))
            memory = here.relay().memory_info().rss
            began = time.perf_counter()
            shown = here.run(f"print('x' * {LONG})")
            seconds = time.perf_counter() - began
            more = here.relay().memory_info().rss - memory
            assert here.run("print('alive')") == "alive"
            print(
                f"| 100 MB in one cell: {len(shown) >> 20} MiB shown, relay grew by {more >> 20} MiB | {seconds:.1f} s | |"
            )
        with started(patch, folder, {"ORBIT_HOME": str(folder / "orbit-{container}")}):
            rented = Kernel(work, *RENTED, name="orbit-modal-h100")
            with contextlib.closing(rented):
                rented.run("pass")
                empty = cell_ms(rented, options.cells)
                show("empty cell, offline Modal, over the bare one", empty, base)
                show("interrupt of a loop, offline Modal", interrupt_ms(rented))
                files(work)
                rented.run("pass")
                less = statistics.median(empty)
                show(f"sync of {FILES:,} files, nothing changed", cell_ms(rented, options.cells), less)
                changed = work / "package0" / "module0.py"
                times = cell_ms(
                    rented, options.cells, lambda number: changed.write_text(f"value = -{number}\n")
                )
                show(f"sync of {FILES:,} files, one changed", times, less)
        patch.setenv("ORBIT_API_TOKEN", TOKEN)
        server = Server(folder / "server")
        with contextlib.closing(Served(work, server.url)) as served:
            served.run("pass")
            show(
                f"cell and {FILES:,} files at a server, over the bare one",
                cell_ms(served, options.cells),
                base,
            )
            show("interrupt of a loop, at a server", interrupt_ms(served))
        server.end()
    return 0


if __name__ == "__main__":
    sys.exit(main())
