"""Launches of strangers' kernels captured through their own tests, scripts and programs, on a GPU

    python -P bench/captures.py run FOLDER... --out results.jsonl [--cuda] [--draw 12] [--most 3] [--seed 55] [--within 300] [--at-once 1]
    python -P bench/captures.py table results.jsonl

Each FOLDER is a project, in which launch specs are written. The kernels are drawn, before any is looked at, from those that `orbit-lsp drivers` finds a test or
script for; with --cuda, from those that have a program, or a `main` in their own file. Each one is captured by the command line as an author would, cold (its
driver has never run), then its driver and then its launch spec are run alone. `table` prints a Markdown table of what came of them.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

COMMAND = [sys.executable, "-P", "-m", "orbit_lsp"]


def orbit(folder: str, *words: str, limit: float) -> tuple[dict[str, Any], float, str]:
    """What a command printed as JSON, its seconds, and what it said beside it."""
    began = time.perf_counter()
    try:
        ended = subprocess.run(
            [*COMMAND, *words, "--json"],
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=limit,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return {}, limit, f"not done in {limit:.0f} s"
    seconds = time.perf_counter() - began
    try:
        return json.loads(ended.stdout), seconds, ended.stderr.strip()
    except ValueError:
        return {}, seconds, (ended.stderr or ended.stdout).strip()


def made_checkout(folder: str) -> None:
    """A folder that came as an archive is no repository, and so no project for what looks for the top of one."""
    subprocess.run(["git", "init", "-q", folder], check=True)


def is_launched(folder: str, kernel: dict[str, Any], cuda: bool) -> bool:
    """Say whether a kernel is of the language that is drawn, and something that can be run launches it."""
    kinds = {driver["kind"] for driver in kernel["drivers"]}
    if not cuda:
        return kernel["file"].endswith(".py") and bool(kinds & {"pytest", "script"})
    text = (Path(folder) / kernel["file"]).read_text(encoding="utf-8", errors="replace")
    return kernel["file"].endswith((".cu", ".cuh")) and ("program" in kinds or " main(" in text)


def drawn(options: argparse.Namespace) -> list[tuple[str, str, str]]:
    """(folder, file, kernel): the same for the same folders, and at most `most` of a folder."""
    found: list[tuple[str, str, str]] = []
    for folder in sorted(options.folders):
        made_checkout(folder)
        listed, _, _ = orbit(folder, "drivers", ".", limit=120)
        found += [
            (folder, each["file"], each["kernel"])
            for each in listed.get("kernels", ())
            if not each["helper"] and is_launched(folder, each, options.cuda)
        ]
    random.Random(options.seed).shuffle(found)
    counts: Counter[str] = Counter()
    taken: list[tuple[str, str, str]] = []
    for each in found:
        counts[each[0]] += 1
        if counts[each[0]] <= options.most:
            taken.append(each)
    return taken[: options.draw]


def median(finished: dict[str, Any]) -> float | None:
    launches = [each for each in finished.get("launches", ()) if each.get("warm")]
    return sum(each["warm"]["median"] for each in launches) if launches else None


def tried(folder: str, file: str, kernel: str, limit: float) -> dict[str, Any]:
    """What became of one kernel."""
    named = ["--kernel", kernel, "--trust", "--build-timeout", "120"]
    row: dict[str, Any] = {"project": Path(folder).name, "file": file, "kernel": kernel}
    got, row["capture_s"], said = orbit(folder, "capture", file, *named, limit=limit)
    captured = got.get("captured")
    if not captured:
        failure = got.get("failure") or {}
        return row | {
            "outcome": "refused",
            "why": failure.get("message") or said[-400:],
            "remedy": failure.get("remedy", ""),
        }
    row |= {
        name: captured[name]
        for name in ("statements", "launch", "seen", "random", "kept", "orderly", "relaunched_ns", "remarks")
    }
    ran, row["driver_s"], _ = orbit(folder, "run", file, *named, "--through", "auto", limit=limit)
    row["driver_outcome"] = ran.get("outcome")
    replayed, row["spec_s"], said = orbit(folder, "run", file, *named, limit=limit)
    checks = [check["passed"] for point in replayed.get("points", ()) for check in point["checks"]]
    row |= {
        "spec_ns": median(replayed),
        "checks": len(checks),
        "why": (replayed.get("failure") or {}).get("message", said[-300:]),
    }
    row["outcome"] = (
        "replayed" if replayed.get("outcome") == "ok" and checks and all(checks) else "written, not replayed"
    )
    return row


def run(options: argparse.Namespace) -> None:
    kernels = drawn(options)[options.skip :]
    began = time.monotonic()

    def row(kernel: tuple[str, str, str]) -> dict[str, Any]:
        folder, file, name = kernel
        left = options.within - (time.monotonic() - began)
        if left > 10:
            return tried(folder, file, name, min(options.each, left))
        return {"project": Path(folder).name, "file": file, "kernel": name, "outcome": "no time left"}

    with Path(options.out).open("a", encoding="utf-8") as out, ThreadPoolExecutor(options.at_once) as pool:
        for done in pool.map(row, kernels):
            out.write(json.dumps(done) + "\n")
            out.flush()
            print(done["outcome"], done["file"], done["kernel"], done.get("why", "")[:300], flush=True)


def table(options: argparse.Namespace) -> None:
    rows = [json.loads(line) for line in Path(options.file).read_text(encoding="utf-8").splitlines()]
    print(
        "| project | kernel | outcome | random / kept | spec, warm | relaunched | capture | driver alone |\n|---|---|---|---|---|---|---|---|"
    )
    for row in rows:
        times = [f"{row[key] / 1000:.1f} µs" if row.get(key) else "" for key in ("spec_ns", "relaunched_ns")]
        seconds = [f"{row[key]:.1f} s" if row.get(key) else "" for key in ("capture_s", "driver_s")]
        outcome = (
            row["outcome"]
            if row["outcome"] == "replayed"
            else f"{row['outcome']}: {row.get('why', '')}".rstrip(": ")
        )
        values = f"{len(row['random'])} / {len(row['kept'])}" if "random" in row else ""
        print(
            f"| {row['project']} | `{row['kernel']}` | {outcome} | {values} | {' | '.join([*times, *seconds])} |"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(required=True)
    running = commands.add_parser("run")
    running.add_argument("folders", nargs="+")
    running.add_argument("--out", required=True)
    running.add_argument("--cuda", action="store_true")
    running.add_argument("--draw", type=int, default=12)
    running.add_argument("--most", type=int, default=1000)
    running.add_argument("--at-once", type=int, default=1)
    running.add_argument("--skip", type=int, default=0)
    running.add_argument("--seed", type=int, default=55)
    running.add_argument("--within", type=float, default=300)
    running.add_argument("--each", type=float, default=90)
    running.set_defaults(do=run)
    printing = commands.add_parser("table")
    printing.add_argument("file")
    printing.set_defaults(do=table)
    options = parser.parse_args()
    options.do(options)


if __name__ == "__main__":
    main()
