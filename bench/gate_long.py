"""Many runs of the kernels that `bench/gate_kernels.py gather` writes, in one warm worker, on a GPU.

    python -P bench/gate_long.py sizes FOLDER --out sizes.json         which size takes 2.0 to 2.5 % more time
    python -P bench/gate_long.py choose SIZES... --out plants.json     offline: of each kernel that size, or one between two
    python -P bench/gate_long.py unchanged FOLDER --out runs.jsonl     pairs of runs of the same text, all kernels in turn
    python -P bench/gate_long.py verify FOLDER PLANTS --out both.jsonl both sides of each planted slow-down, after the gates

Each run is the job of a click. Its kernel is checked in the first run of `sizes`. After that, what the launch spec expects is left out: that
saves time, and changes no launch that is timed. Each run is written once it has ended, so that a limit of time loses nothing.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import statistics
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from gate_kernels import CHECKS, SIZES
from spec_job import job, run

from orbit_lsp.runners.local import LocalOptions, LocalRunner
from orbit_remote.common.measure import median
from orbit_remote.common.requests import Job

LANES = 8
"""Builds at once."""
AIM = 1.0225
"""A planted slow-down: it is to be from 1.020 to 1.025."""
CLOSE = 0.0015
"""As far as measured sizes may lie from a line."""


class LongRuns:
    """A worker, the kernels of a folder, and what is written of their runs."""

    def __init__(self, options: argparse.Namespace, scratch: Path) -> None:
        self.folder, self.scratch = options.folder, scratch
        self.ends = time.monotonic() + options.within
        self.runner = LocalRunner(LocalOptions(python=options.python, shared=False))
        self.kernels = [key for key in SIZES if not options.only or key[1] in options.only]

    def job(self, file: str, name: str, size: str = "", *, checked: bool = False) -> Job:
        """The job of a kernel, at another size than its own where one is given."""
        text = (self.folder / file).read_text()
        text = text if checked else CHECKS.sub("", text)
        text = text.replace(SIZES[file, name][0], size, 1) if size else text
        path = (
            self.scratch / f"{'checked ' if checked else ''}{name} {size or 'base'}".replace(" ", "_") / file
        )
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        return job(path, name)

    async def build(self, jobs: Iterable[Job]) -> None:
        lanes = asyncio.Semaphore(LANES)

        async def one(each: Job) -> None:
            async with lanes:
                await run(self.runner, replace(each, action="build", run=f"{each.run} build"))

        begin = time.monotonic()
        await asyncio.gather(*map(one, jobs))
        print(f"builds: {time.monotonic() - begin:.1f} s", flush=True)

    async def time_ns(self, each: Job) -> float | None:
        """The time of one run; None where it did not end well, or the time is up."""
        if time.monotonic() > self.ends:
            return None
        ended = await run(self.runner, replace(each, run=f"{each.run} {time.monotonic_ns()}"))
        if ended.outcome != "ok" or not ended.launches:
            print(f"{each.kernel}: {ended.outcome}: {ended.failure}", flush=True)
            return None
        return sum(launch.timing.median for launch in ended.launches)


async def sizes(runs: LongRuns, options: argparse.Namespace) -> None:
    """Check every kernel, measure its sizes in turn, and name the one nearest to the aim, or one between two of them."""
    checked = {key: runs.job(*key, checked=True) for key in runs.kernels}
    jobs = {key: {size: runs.job(*key, size) for size in ("", *SIZES[key][1])} for key in runs.kernels}
    await runs.build([*checked.values(), *(each for of in jobs.values() for each in of.values())])
    found: dict[str, dict[str, object]] = {}
    for key in runs.kernels:
        begin = time.monotonic()
        first = await runs.time_ns(checked[key])
        if first is None:
            continue
        whole = time.monotonic()
        await runs.time_ns(checked[key])
        bare = time.monotonic()
        times: dict[str, list[float]] = {}
        for _ in range(options.runs):
            for size, each in jobs[key].items():
                if (time_ns := await runs.time_ns(each)) is not None:
                    times.setdefault(size, []).append(time_ns)
        count = sum(map(len, times.values()))
        seconds = (time.monotonic() - bare) / max(1, count)
        base = median(times[""])
        ratios = {size: round(median(of) / base, 5) for size, of in times.items() if size}
        print(
            f"{key[1]}: {base / 1e3:.1f} µs, first {whole - begin:.2f} s, checked {bare - whole:.3f} s, else {seconds:.3f} s; {ratios}",
            flush=True,
        )
        found["/".join(key)] = {"base_ns": base, "ratios": ratios, "times": times}
        write(options.out, json.dumps(found))


async def unchanged(runs: LongRuns, options: argparse.Namespace) -> None:
    """Pairs of runs of the same text, one of each kernel in a round."""
    jobs = {key: runs.job(*key) for key in runs.kernels}
    await runs.build(jobs.values())
    for each in jobs.values():
        await runs.time_ns(each)
    for number in range(options.runs // 2):
        begin = time.monotonic()
        for key, each in jobs.items():
            append(options.out, key, [await runs.time_ns(each) for _ in range(2)])
        print(f"round {number}: {time.monotonic() - begin:.2f} s", flush=True)
        if time.monotonic() > runs.ends:
            break


async def verify(runs: LongRuns, options: argparse.Namespace) -> None:
    """Both sides of each planted slow-down, in turn."""
    plants: dict[str, str] = json.loads(read(options.more[0]))
    keys = [key for key in runs.kernels if "/".join(key) in plants]
    jobs = {key: [runs.job(*key), runs.job(*key, plants["/".join(key)])] for key in keys}
    await runs.build(each for sides in jobs.values() for each in sides)
    for number in range(options.runs):
        order = 1 if number % 2 else -1
        for key, sides in jobs.items():
            pair = [await runs.time_ns(each) for each in sides[::order]]
            append(options.out, key, pair[::order])
        if time.monotonic() > runs.ends:
            break
    print(
        "\n".join(
            f"{name}: {ratio:.4f} of {count} pairs" for name, (ratio, count) in ratios(options.out).items()
        )
    )


def choose(files: Sequence[str], only: Sequence[str]) -> dict[str, str]:
    """By file and kernel, the size at which a line through its sizes meets the aim; the later of several files counts. Left out are kernels whose
    time does not grow so.
    """
    found: dict[str, dict[str, float]] = {}
    for file in files:
        found |= {key: each["ratios"] for key, each in json.loads(read(file)).items() if each["ratios"]}
    plants: dict[str, str] = {}
    for key, ratios in found.items():
        size, off = _on_a_line(ratios)
        print(f"{key}: {size}, sizes lie within {off:.2%} of a line")
        if off < CLOSE and (not only or key.rpartition("/")[2] in only):
            plants[key] = size
    return plants


def _on_a_line(ratios: dict[str, float]) -> tuple[str, float]:
    """The size at which a line by least squares meets the aim, and how far the measured ratios are from the line at most."""
    words = next(iter(ratios)).rpartition(" ")[0]
    sizes = [int(size.split()[-1]) for size in ratios]
    slope, start = statistics.linear_regression(sizes, list(ratios.values()))
    step = math.gcd(*sizes)
    off = max(abs(start + slope * size - ratio) for size, ratio in zip(sizes, ratios.values(), strict=True))
    return f"{words} {round((AIM - start) / slope / step) * step}", off


def write(path: str, text: str) -> None:
    Path(path).write_text(text)


def read(path: str) -> str:
    return Path(path).read_text()


def append(path: str, key: tuple[str, str], pair: list[float | None]) -> None:
    """Add a pair of runs, if both ended well."""
    if None not in pair:
        with Path(path).open("a") as out:
            out.write(json.dumps(["/".join(key), pair]) + "\n")


def ratios(path: str) -> dict[str, tuple[float, int]]:
    """Of what `verify` wrote: the ratio of the medians of both sides, and how many runs each has."""
    sides: dict[str, list[tuple[float, float]]] = {}
    for line in read(path).splitlines():
        name, pair = json.loads(line)
        sides.setdefault(name, []).append(pair)
    return {
        name: (median([now for _, now in pairs]) / median([then for then, _ in pairs]), len(pairs))
        for name, pairs in sides.items()
    }


async def perform(options: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        runs = LongRuns(options, Path(scratch))
        try:
            await {"sizes": sizes, "unchanged": unchanged, "verify": verify}[options.what](runs, options)
        finally:
            await runs.runner.close()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("sizes", "choose", "unchanged", "verify"))
    parser.add_argument("folder", type=Path, metavar="FOLDER|SIZES")
    parser.add_argument("more", nargs="*", help="PLANTS, or further files of sizes")
    parser.add_argument("--out", required=True)
    parser.add_argument("--runs", type=int, default=2, help="of each kernel and size")
    parser.add_argument("--within", type=float, default=600.0, help="seconds, after which no run begins")
    parser.add_argument("--only", nargs="*", help="names of kernels")
    parser.add_argument("--python", default=sys.executable, help="the Python of the worker")
    options = parser.parse_args()
    if options.what == "choose":
        write(
            options.out,
            json.dumps(choose([str(options.folder), *options.more], options.only or ()), indent=1) + "\n",
        )
        return
    asyncio.run(perform(options))


if __name__ == "__main__":
    main()
