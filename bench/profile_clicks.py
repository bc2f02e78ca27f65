"""Clicks on *Profile* that CUPTI counts, on this machine's NVIDIA GPU, through the worker's own code.

    python -P bench/profile_clicks.py [clicks] [program] [long] [memory] [short]

clicks: 100 profiles of a launch spec in one process, and the kernel's time there against fresh processes, in turn. program: a program of 0.4 s, and
what its other launches cost. long: a kernel of seconds. memory: 60 and 90 GB of arguments. short: kernels of microseconds against Nsight Compute.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

from orbit_remote.common import messages as c
from orbit_remote.common.requests import Job
from orbit_remote.counters import click_metrics, profiler
from orbit_remote.recording import injection
from tests.remote import profiling
from tests.remote.profiling import Bench

PROFILES = 100
EVERY = 25
"""Profiles between two pairs of runs."""
SAXPY = """\
// orbit: n = 1 << 24; x = randn(n); y = randn(n)
// orbit: launch k<<<(n + 255) / 256, 256>>>(n, 2.0f, x, y)
__global__ void k(int n, float a, const float* x, float* y) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n)
    y[i] = a * x[i] + y[i];
}
"""
PROGRAM = """\
#include <chrono>
#include <cstdio>
__global__ void k(int n, float a, const float* x, float* y) {{
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n)
    y[i] = a * x[i] + y[i];
}}
__global__ void wait(long long ns) {{
  long long now, begin;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(begin));
  do asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now)); while (now - begin < ns);
}}
int main() {{
  const long long n = {n};
  float *x, *y;
  if (cudaMalloc(&x, n * 4) || cudaMalloc(&y, n * 4)) return 3;
  {body}
  return cudaDeviceSynchronize() != cudaSuccess;
}}
"""
LAUNCH = "k<<<(1 << 24) / 256, 256>>>(1 << 24, 2.0f, x, y);"
MANY = """
  for (int turn = 0; turn < 2; ++turn) {{
    auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < 20000; ++i) wait<<<1, 32>>>(0);
    auto launched = std::chrono::steady_clock::now();
    cudaDeviceSynchronize();
    if (turn) printf("%.3f\\n", std::chrono::duration<double, std::micro>(launched - begin).count() / 20000);
  }}"""


def program(body: str, n: int = 1 << 24) -> str:
    return PROGRAM.format(body=body, n=n)


async def timed(bench: Bench, job: Job) -> tuple[float, c.Finished]:
    began = time.perf_counter()
    finished = await bench.profile(job)
    return time.perf_counter() - began, finished


def said(finished: c.Finished) -> str:
    profiles = [f"{each.name} {each.tier} by {each.source} {each.why}" for each in finished.profiles]
    failure = finished.failure.message if finished.failure else ""
    return f"{finished.outcome} {failure} {profiles} {[each for each in finished.remarks if 'prof' in each or 'count' in each or 'launch' in each]}"


def spread(values: list[float]) -> str:
    return f"{statistics.median(values):.3f} ({min(values):.3f} to {max(values):.3f}, {len(values)})"


async def clicks(bench: Bench) -> None:
    profile = bench.job("saxpy.cu", SAXPY, by_spec=True)
    run = replace(profile, action="run", run="r2")
    spent: list[float] = []
    times: dict[str, list[float]] = {"profiled": [], "fresh": []}
    process: set[int | None] = set()
    with tempfile.TemporaryDirectory(prefix="orbit-bench-") as folder:
        async with profiling.bench(Path(folder)) as other:

            async def kernel(of: Bench, name: str) -> None:
                finished = await of.profile(run)
                times[name].append(finished.launches[0].timing.median / 1e3)

            for at in range(PROFILES + 1):
                if at % EVERY == 0:
                    for _ in range(3 if at == PROFILES else 1):
                        await kernel(bench, "profiled")
                        process.add(bench.context.spares.waiting)
                        await other.context.spares.free()
                        await kernel(other, "fresh")
                if at < PROFILES:
                    seconds, finished = await timed(bench, profile)
                    spent.append(seconds)
                    if at == 0 or finished.profiles[0].tier != "counters":
                        print(f"first {seconds:.2f} s: {said(finished)}", flush=True)
    print(f"a click, in s: {spread(spent[1:])}; the last 20: {spread(spent[-20:])}")
    print(f"processes that were profiled: {len(process)}")
    for name, values in times.items():
        print(f"{name}: {' '.join(f'{value:.2f}' for value in values)} µs")
    after = [statistics.median(values[-5:]) for values in times.values()]
    print(
        f"median of the last five: {after[0]:.2f} and {after[1]:.2f} µs, {after[0] / after[1] - 1:+.2%}",
        flush=True,
    )


async def of_program(bench: Bench) -> None:
    job = bench.job("cold.cu", program(LAUNCH))
    await timed(bench, replace(job, action="run"))
    alone = [(await timed(bench, replace(job, action="run")))[1].run_s or 0 for _ in range(3)]
    first, finished = await timed(bench, job)
    print(f"program: first {first:.2f} s: {said(finished)}", flush=True)
    spent, own = [], []
    for _ in range(5):
        seconds, finished = await timed(bench, job)
        spent.append(seconds)
        own.append(finished.run_s or 0)
    print(
        f"a click, in s: {spread(spent)}; the program {spread(own)}; recorded alone {spread(alone)}",
        flush=True,
    )
    many = bench.job("many.cu", program(LAUNCH + MANY.format()))
    for action in ("run", "profile"):
        seconds, finished = await timed(bench, replace(many, action=action))  # pyright: ignore[reportArgumentType]
        print(
            f"20,000 launches, {action}: {finished.stdout.strip()} µs each for the host; {finished.run_s or 0:.2f} s: {said(finished)}",
            flush=True,
        )


async def long_kernel(bench: Bench) -> None:
    for seconds in (1.5, 5.5):
        text = program(f"wait<<<1, 32>>>({seconds * 1e9:.0f}LL);")
        spent, finished = await timed(bench, bench.job("long.cu", text, "wait"))
        names = len(finished.profiles[0].metrics) if finished.profiles else 0
        print(f"a kernel of {seconds} s: {spent:.1f} s, {names} metrics: {said(finished)}", flush=True)


async def memory(bench: Bench) -> None:
    for gb in (60, 90):
        text = program(f"cudaMemset(x, 0, n * 4), cudaMemset(y, 0, n * 4);\n  {LAUNCH}", gb * 10**9 // 8)
        spent, finished = await timed(bench, bench.job(f"memory{gb}.cu", text, "k"))
        print(
            f"{gb} GB: {spent:.1f} s, the program {finished.run_s or 0:.1f} s: {said(finished)}", flush=True
        )


async def short(bench: Bench) -> None:
    text = program("for (int i = 0; i < 3; ++i) k<<<1024, 256>>>(1 << 18, 2.0f, x, y);")
    job = bench.job("short.cu", text, "k")
    for name, each in (("CUPTI", job), ("ncu", replace(job, sections=("SpeedOfLight", "SourceCounters")))):
        rows: list[tuple[float, int, int]] = []
        for _ in range(3):
            _, finished = await timed(bench, each)
            profile = finished.profiles[0]
            hot = profiling.hottest(profile).line if profile.lines else 0
            rows.append((profile.metrics["gpu__time_duration.sum"].value / 1e3, profile.samples or 0, hot))
        print(f"a kernel of microseconds by {name}, (µs, samples, hot line): {rows}", flush=True)


PARTS: dict[str, Callable[[Bench], Coroutine[Any, Any, None]]] = {
    "program": of_program,
    "clicks": clicks,
    "short": short,
    "memory": memory,
    "long": long_kernel,
}


async def main(wanted: list[str]) -> None:
    with tempfile.TemporaryDirectory(prefix="orbit-bench-") as folder:
        async with profiling.bench(Path(folder)) as bench:
            began = time.monotonic()
            await asyncio.to_thread(lambda: profiler.library(bench.context.home / "cupti", injection.find()))
            print(
                f"the profiler is compiled: {time.monotonic() - began:.1f} s; {len(click_metrics.CLICK)} counters",
                flush=True,
            )
            for name, part in PARTS.items():
                if not wanted or name in wanted:
                    began = time.monotonic()
                    try:
                        await part(bench)
                    except Exception as error:  # noqa: BLE001 - the other parts are wanted
                        print(f"{name} failed: {type(error).__name__}: {error}")
                    print(f"-- {name}: {time.monotonic() - began:.0f} s\n", flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
