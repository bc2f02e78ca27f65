"""The hottest line by CUPTI's samples against Nsight Compute's, of planted and of real kernels, on this machine's NVIDIA GPU.

    python -P bench/hot_lines.py [--seconds 120] [--together]

Both go through the worker's own code, and the same reader finds the lines. Nsight Compute takes source counters alone. With `--together` nine planted
kernels share a program. What does not fit into the time is left out and said so.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))
sys.path.insert(0, str(Path(__file__).parent.parent / "scripts"))
from plant_hot_lines import SEED, cases, together

from orbit_remote.common import messages as c
from orbit_remote.common.requests import Job
from orbit_remote.counters import profiler
from orbit_remote.recording import injection
from tests.remote import profiling
from tests.remote.profiling import Bench, hottest

ROOT = Path(__file__).parent.parent
RECORDED = ROOT / "tests" / "recordings" / "profiles"
SEEDS = (SEED, SEED + 1)
SPECS = (
    ("layer_norm.cu", "layer_norm"),
    ("matmul.cu", "matmul"),
    ("stencil.cu", "heat"),
    ("bitonic_sort.cu", "bitonic_sort"),
    ("histogram.cu", "histogram"),
    ("scan.cu", "inclusive_scan"),
    ("online_softmax.py", "online_softmax"),
    ("flash_attention.py", "attention"),
)
NCU = ("SourceCounters",)


Hot = tuple[str, float, int]
"""A launch's hottest line, its share of all samples, and their number."""
_NONE: Hot = ("-", 0.0, 0)


def jobs(bench: Bench, *, sharing: bool) -> Iterator[tuple[Job, dict[str, int]]]:
    """Yield each job with the lines that were planted in its kernels, by name."""
    for seed in SEEDS:
        if sharing:
            text, planted = together(seed)
            yield bench.job(f"planted_{seed}.cu", text, None), planted
        else:
            for case in cases(seed):
                if case.file.endswith(".cu"):
                    yield bench.job(f"{seed}_{case.file}", case.text, case.kernel), {case.kernel: case.line}
    for file in sorted(RECORDED.glob("*.cu")):
        yield bench.job(file.name, file.read_text(), None), {}
    for name, kernel in SPECS:
        yield bench.job(name, (ROOT / "examples" / name).read_text(), kernel, by_spec=True), {}


def lines(finished: c.Finished) -> dict[str, Hot]:
    """Return the hottest line of each launch, by kernel and grid."""
    found: dict[str, Hot] = {}
    for profile in finished.profiles:
        if profile.tier != "counters" or not profile.lines:
            print(f"  {profile.name}: {profile.tier} {profile.why} {finished.remarks}")
            continue
        hot, samples = hottest(profile), profile.samples or 0
        place = f"{Path(hot.file).name}:{hot.line}"
        found[f"{profile.name} {profile.grid}"] = place, hot.samples / max(samples, 1), samples
    return found


async def compare(bench: Bench, seconds: float, *, sharing: bool) -> int:
    """Return how many launches had another hot line."""
    began = time.monotonic()
    print(
        "| launch | CUPTI's hot line | of samples | ncu's | of samples | planted |\n|---|---|---|---|---|---|"
    )
    same = count = right = plants = 0
    for job, planted in jobs(bench, sharing=sharing):
        if time.monotonic() - began > seconds:
            print(f"| {Path(job.path).name} | not run: no time left |")
            continue
        here = lines(await bench.profile(job))
        there = lines(await bench.profile(replace(job, sections=NCU)))
        for launch in here.keys() | there.keys():
            (ours, share, samples), (theirs, other, others) = (
                here.get(launch, _NONE),
                there.get(launch, _NONE),
            )
            line = planted.get(launch.partition(" ")[0])
            count, same = count + 1, same + (ours == theirs)
            plants, right = plants + bool(line), right + (bool(line) and ours.endswith(f":{line}"))
            row = f"{ours} | {share:.0%} of {samples:,} | {theirs} | {other:.0%} of {others:,} | {line or ''}"
            print(f"| {launch} | {row} |", flush=True)
    print(f"\nthe same line in {same} of {count}; the planted one in {right} of {plants}")
    print(f"{time.monotonic() - began:.0f} s")
    return count - same


async def prepare(bench: Bench, *, sharing: bool) -> None:
    """Build all programs and the profiler side by side."""
    every = [job for job, _ in jobs(bench, sharing=sharing) if job.is_program]
    builds = [bench.jobs._perform(replace(job, action="build", run=f"b{at}")) for at, job in enumerate(every)]
    profilers = asyncio.to_thread(lambda: profiler.library(bench.context.home / "cupti", injection.find()))
    await asyncio.gather(profilers, *builds)


async def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--together", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="orbit-bench-") as folder:
        async with profiling.bench(Path(folder)) as bench:
            await prepare(bench, sharing=options.together)
            return int(await compare(bench, options.seconds, sharing=options.together) > 0)


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
