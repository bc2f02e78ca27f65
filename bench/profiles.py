"""What a profile costs and whether it is right, on this machine's NVIDIA GPU: docs/dev/results/measurements-profile.md.

    python -P bench/profiles.py --out FOLDER [--seconds 420]

Needs ncu. Every part ends by itself, notes its own failure and goes on; what does not fit into the time is left out and
said so. FOLDER receives measurements-profile.md, profile.json with every sample, and the reports of kernels whose hot
line was not named.
"""

from __future__ import annotations

import argparse
import asyncio
import datetime as dt
import json
import math
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))
sys.path.insert(0, str(Path(__file__).parent.parent / "scripts"))
from plant_hot_lines import SEED, cases

from orbit_remote.common import messages as c
from orbit_remote.ncu import ncu_options, report_reader
from tests.remote import profiling
from tests.remote.profiling import Bench, hottest

ROOT = Path(__file__).parent.parent
RECORDED = ROOT / "tests" / "recordings" / "profiles"
PROGRAMS = (("memory_bound", "saxpy"), ("compute_bound", "polynomial"), ("uncoalesced", "strided"))
ROUNDS = 5
TARGETS = {"basic": 20, "detailed": 60, "full": 200}
"""Milliseconds that reading a report may take."""
NOT_COMPARED = ("device__", "numa__", "nvlink__", "c2clink__", "breakdown:", "group:")


class Page:
    def __init__(self, seconds: float) -> None:
        self.whole_s = seconds
        self.ends = time.monotonic() + seconds
        self.parts: list[str] = []
        self.figures: dict[str, Any] = {}

    def say(self, title: str, *lines: str) -> None:
        self.parts.append("\n".join([f"## {title}", "", *lines, ""]))
        print("\n".join([f"== {title}", *lines, ""]), flush=True)

    @property
    def left_s(self) -> float:
        return self.ends - time.monotonic()


async def part(page: Page, title: str, least_s: float, work: Callable[[], Awaitable[None]]) -> None:
    if page.left_s < least_s:
        page.say(title, f"Not measured: {page.left_s:.0f} s were left.")
        return
    try:
        async with asyncio.timeout(page.left_s):
            await work()
    except Exception as error:  # noqa: BLE001 - the other parts are wanted
        traceback.print_exc()
        page.say(title, f"Failed: {type(error).__name__}: {error}")


def bare(tool: ncu_options.Tool, folder: Path, program: list[str], symbol: str) -> float:
    """Seconds of ncu as a person would call it: the same sections, one launch."""
    sections = [word for name in ncu_options.CLICK for word in ("--section", name)]
    command = [
        tool.path, "--clock-control", "none", "--import-source", "yes", *sections, "--kernel-name-base", "mangled",
        "-k", symbol, "-c", "1", "-f", "-o", str(folder / "bare"), *program,
    ]  # fmt: skip
    began = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, cwd=folder)
    seconds = time.perf_counter() - began
    if done.returncode or not (folder / "bare.ncu-rep").is_file():
        raise RuntimeError(f"bare ncu failed: {done.stdout[-500:]}{done.stderr[-500:]}")
    return seconds


async def cost(page: Page, bench: Bench, tool: ncu_options.Tool) -> None:
    """Click and bare ncu in turn; the executable is built."""
    rows = [
        "| program | pairs | bare ncu | click | ratio, median of pairs | of a click before and after the program |",
        "|---|---|---|---|---|---|",
    ]
    ratios: list[float] = []
    for name, kernel in PROGRAMS:
        text = (RECORDED / f"{name}.cu").read_text()
        job = bench.job(f"{name}.cu", text, kernel)
        first = await bench.profile(job)  # builds, starts the reader
        check(first)
        symbol = first.profiles[0].symbol
        executable = bench.folder / f"{name}.bare"
        command = [
            "nvcc",
            "-O3",
            "-lineinfo",
            "-arch=sm_90a",
            "-o",
            str(executable),
            str(bench.folder / f"{name}.cu"),
        ]
        await asyncio.to_thread(subprocess.run, command, check=True, capture_output=True)
        pairs: list[tuple[float, float]] = []
        outside: list[float] = []
        for _ in range(ROUNDS if page.whole_s > 240 else 2):
            mine = await asyncio.to_thread(bare, tool, bench.folder, [str(executable)], symbol)
            began = time.perf_counter()
            finished = await bench.profile(job)
            pairs.append((mine, time.perf_counter() - began))
            check(finished)
            outside.append(pairs[-1][1] - (finished.run_s or 0.0))
            if page.left_s < 60:
                break
        ratio = statistics.median(click / alone for alone, click in pairs)
        ratios.append(ratio)
        alone, click = (statistics.median(item) for item in zip(*pairs, strict=True))
        rows.append(
            f"| {name} | {len(pairs)} | {alone:.2f} s | {click:.2f} s | {ratio:.3f} | {statistics.median(outside):.2f} s |"
        )
        page.figures[f"cost.{name}"] = {"pairs": pairs, "ratio": ratio}
    worst = max(ratios)
    rows += ["", f"Worst ratio {worst:.3f}; target 1.15: {'reached' if worst <= 1.15 else 'NOT reached'}."]
    page.say("Click to result against bare ncu with the same sections, one launch", *rows)


def check(finished: c.Finished) -> None:
    if finished.outcome != "ok" or not finished.profiles or finished.profiles[0].tier != "counters":
        why = finished.profiles[0].why if finished.profiles else ""
        raise RuntimeError(
            f"{finished.outcome}: {finished.failure} {why} {finished.remarks} {finished.stderr[-500:]}"
        )


async def sections(page: Page, bench: Bench, tool: ncu_options.Tool) -> None:
    """What each section of a click costs, by leaving it out."""
    program = str(bench.folder / "memory_bound.bare")  # of `cost`
    rows = ["| sections | seconds | passes |", "|---|---|---|"]
    sets = {"all of a click": ncu_options.CLICK}
    sets |= {
        f"without {name}": tuple(s for s in ncu_options.CLICK if s != name) for name in ncu_options.CLICK[1:]
    }
    sets["with MemoryWorkloadAnalysis_Tables"] = (*ncu_options.CLICK, "MemoryWorkloadAnalysis_Tables")
    for name, chosen in sets.items():
        words = [word for name in chosen for word in ("--section", name)]
        command = [
            tool.path,
            "--clock-control",
            "none",
            *words,
            "-c",
            "1",
            "-f",
            "-o",
            str(bench.folder / "some"),
            program,
        ]
        began = time.perf_counter()
        done = await asyncio.to_thread(
            subprocess.run, command, capture_output=True, text=True, timeout=60, check=False
        )
        seconds = time.perf_counter() - began
        passes = next(
            (line.rpartition("- ")[2] for line in done.stdout.splitlines() if "passes" in line), "?"
        )
        rows.append(f"| {name} | {seconds:.2f} | {passes} |")
    page.say("What the sections of a click cost (memory_bound, once each)", *rows)


async def reading(page: Page, bench: Bench, tool: ncu_options.Tool) -> None:
    rows = ["| report | bytes | read | target |", "|---|---|---|---|"]
    for kind, target in TARGETS.items():
        report = RECORDED / f"memory_bound.{kind}.ncu-rep"
        request = report_reader.ReportRequest(str(report), "/src/memory_bound.cu")
        spent: list[float] = []
        for _ in range(8):
            began = time.perf_counter()
            answer = await bench.context.reports.read(tool.readers, request)
            spent.append((time.perf_counter() - began) * 1000)
            if answer.problem:
                raise RuntimeError(answer.problem)
        middle = statistics.median(spent[1:])
        rows.append(
            f"| {kind} | {report.stat().st_size} | {middle:.1f} ms | {target} ms{'' if middle <= target else ' NOT reached'} |"
        )
        page.figures[f"reading.{kind}"] = spent
    page.say("Reading a report of one launch, reader warm, over the pipe and back", *rows)


async def values(page: Page, bench: Bench, tool: ncu_options.Tool) -> None:
    """Every number of a fresh profile by ncu against NVIDIA's own reader, in a process of its own."""
    text = (RECORDED / "memory_bound.cu").read_text()
    job = bench.job("memory_bound.cu", text, "saxpy", sections=ncu_options.CLICK)
    finished = await bench.profile(job)
    check(finished)
    report = bench.report(finished)
    script = (
        "import json, sys, ncu_report\n"
        "action = ncu_report.load_report(sys.argv[1])[0][0]\n"
        "found = {name: action[name].value() for name in action.metric_names() if action[name].has_value()}\n"
        "print(json.dumps({n: v for n, v in found.items() if isinstance(v, (int, float))}))\n"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(tool.readers)}
    command = [sys.executable, "-c", script, report]
    done = await asyncio.to_thread(
        subprocess.run, command, env=environment, capture_output=True, text=True, check=True
    )
    answer = {name: float(value) for name, value in json.loads(done.stdout).items()}
    wanted = {n: v for n, v in answer.items() if math.isfinite(v) and not n.startswith(NOT_COMPARED)}
    shown = {name: metric.value for name, metric in finished.profiles[0].metrics.items()}
    equal = sum(shown.get(name) == value for name, value in wanted.items())
    missing = [name for name in wanted if name not in shown]
    page.say(
        "Values",
        f"{equal} of {len(wanted)} numbers of the report are equal; missing: {missing[:5] or 'none'}.",
    )
    page.figures["values"] = {"equal": equal, "of": len(wanted), "missing": missing}


async def planted(page: Page, bench: Bench, out: Path) -> None:
    rows = ["| program | planted | named | share of samples | main stall |", "|---|---|---|---|---|"]
    right = 0
    every = cases()
    for item in every:
        if page.left_s < 10:
            rows.append(f"| {item.file} | {item.line} | not run: no time left | | |")
            continue
        finished = await bench.profile(bench.job(item.file, item.text, item.kernel, run_timeout_s=90))
        try:
            check(finished)
            profile = finished.profiles[0]
            hot = hottest(profile)
        except (RuntimeError, ValueError) as error:
            rows.append(f"| {item.file} | {item.line} | failed: {error} | | |")
            continue
        right += hot.line == item.line
        share = hot.samples / profile.samples if profile.samples else math.nan
        rows.append(
            f"| {item.file} | {item.line} | {hot.line} | {share:.0%} | {next(iter(hot.stalls), '')} |"
        )
        if hot.line != item.line and finished.report:
            shutil.copy(bench.report(finished), out / f"{item.file}.ncu-rep")
    rows += ["", f"{right} of {len(every)} named right (seed {SEED}, scripts/plant_hot_lines.py)."]
    page.figures["planted"] = {"right": right, "of": len(every)}
    page.say("Hot lines that a script planted", *rows)


async def measure(page: Page, out: Path) -> None:
    tool = ncu_options.find()
    if tool is None:
        page.say("Profile", "There is no ncu here.")
        return
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    asked = await asyncio.to_thread(subprocess.run, query, capture_output=True, text=True, check=False)
    card = asked.stdout.strip()
    page.say(
        "Where",
        f"{card.replace(', ', ', driver ')}; ncu {tool.version} with its own reader; {dt.datetime.now(dt.UTC):%Y-%m-%d}.",
    )
    with tempfile.TemporaryDirectory(prefix="orbit-bench-") as folder:
        async with profiling.bench(Path(folder)) as bench:
            await part(page, "Reading", 10, lambda: reading(page, bench, tool))
            await part(page, "Values", 20, lambda: values(page, bench, tool))
            await part(page, "Click", 60, lambda: cost(page, bench, tool))
            await part(page, "Planted", 40, lambda: planted(page, bench, out))
            await part(page, "Sections", 30, lambda: sections(page, bench, tool))


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=420)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    page = Page(options.seconds)
    try:
        asyncio.run(measure(page, options.out))
    finally:
        head = "# Measurements: profile\n\nWritten by `scripts/gpu_check` (bench/profiles.py).\n\n"
        (options.out / "measurements-profile.md").write_text(head + "\n".join(page.parts))
        (options.out / "profile.json").write_text(json.dumps(page.figures, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
