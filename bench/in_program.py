"""Times in a program against ncu's, and what recording a million launches costs: `python -m bench.in_program FOLDER` (a GPU).

After FOLDER may stand which parts: compare, overlapping, million.

Of both, what the tool adds to a launch is taken off, measured with a kernel that notes its own length.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
import tracemalloc
from pathlib import Path
from statistics import median

from bench.gpu import ncu
from orbit_remote.common import measure, symbols
from orbit_remote.recording import injection, overhead

PROGRAMS = Path(__file__).parent / "programs"
_CLOCK = "orbit_clock"


def build(name: str, folder: Path) -> Path:
    target = folder / name
    source = PROGRAMS / f"{name}.cu"
    subprocess.run(["nvcc", "-O3", "-arch=sm_90", str(source), "-o", str(target)], check=True)
    return target


def run(command: list[str], folder: Path, cache: Path, how: str) -> tuple[float, str]:
    """Seconds and standard output; `how` is plain, automatic, serial or concurrent."""
    env = dict(os.environ)
    if how != "plain":
        env |= injection.environment(folder, cache=cache)
    if how in ("serial", "concurrent"):
        env["ORBIT_RECORD"] = how
    began = time.perf_counter()
    done = subprocess.run(command, env=env, check=True, capture_output=True, text=True)
    return time.perf_counter() - began, done.stdout


def compare(folder: Path) -> None:
    program, cache = build("in_program", folder), folder / "cupti"
    added = overhead.measure(cache, folder / "overhead", 0)
    print(f"recording adds {added.serial} (serial), {added.concurrent} (concurrent), in ns\n")
    medians: dict[str, dict[str, float]] = {}
    length = 0.0
    for how in ("automatic", "concurrent"):
        _, out = run([str(program)], folder / how, cache, how)
        length = float(out)
        for launches in measure.group(injection.read(folder / how, added).series):
            medians.setdefault(symbols.base_name(launches.symbol), {})[how] = launches.timing.median
    theirs = {name: median(times[1:]) for name, times in ncu(program).items()}
    constant = theirs[_CLOCK] - length
    print(
        f"ncu adds {constant:.0f} ns\n\n| kernel | ncu, µs | automatic | | concurrent | |\n|---|---|---|---|---|---|"
    )
    for name, times in medians.items():
        if name == _CLOCK:
            continue
        truth = theirs[name] - constant
        cells = (
            f"{times[how] / 1000:.1f} | {times[how] / truth - 1:+.1%}" for how in ("automatic", "concurrent")
        )
        print(f"| {name} | {truth / 1000:.1f} | {' | '.join(cells)} |")


def overlapping(folder: Path) -> None:
    """What programs whose kernels overlap lose by being recorded: their own time from first launch to last end."""
    program, cache = build("overlapping", folder), folder / "cupti"
    print("\n| overlapping by | alone, ms | recorded, ms | |\n|---|---|---|---|")
    for what in ("streams", "graph", "early launch"):
        times: dict[str, list[float]] = {"plain": [], "automatic": []}
        for turn in range(5):
            for how, known in times.items():
                known.append(float(run([str(program), what], folder / f"{what}{turn}", cache, how)[1]))
        alone, recorded = median(times["plain"]), median(times["automatic"])
        print(f"| {what} | {alone:.1f} | {recorded:.1f} | {recorded / alone:.3f} x |")


def million(folder: Path) -> None:
    program, cache = build("many_launches", folder), folder / "cupti"
    print(
        "\n| launches | program alone, s | recorded, s | read and grouped, s | peak of the reader, MB |\n|---|---|---|---|---|"
    )
    for count in (100_000, 400_000, 1_000_000):
        plain, _ = run([str(program), str(count)], folder, cache, "plain")
        into = folder / f"many-{count}"
        recorded, _ = run([str(program), str(count)], into, cache, "automatic")
        began = time.perf_counter()
        series = injection.read(into).series
        groups = measure.group(series)
        measure.remarks(series)
        seconds = time.perf_counter() - began
        tracemalloc.start()
        measure.group(injection.read(into).series)
        peak = tracemalloc.get_traced_memory()[1] / 1e6
        tracemalloc.stop()
        assert sum(group.count for group in groups) == count
        print(f"| {count:,} | {plain:.2f} | {recorded:.2f} | {seconds:.2f} | {peak:.0f} |")


if __name__ == "__main__":
    where = Path(sys.argv[1])
    where.mkdir(parents=True, exist_ok=True)
    for part in (compare, overlapping, million):
        if len(sys.argv) == 2 or part.__name__ in sys.argv[2:]:
            part(where)
