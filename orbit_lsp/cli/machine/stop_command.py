"""`orbit-lsp stop`: end the workers that this user's editors and commands share."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from dataclasses import asdict

from orbit_lsp.cli.machine import doctor
from orbit_lsp.cli.machine.list_results import StoppedWorkers
from orbit_lsp.runners import shared_worker

INFRASTRUCTURE = 5
CANCELLED = 130


def main(options: argparse.Namespace) -> int:
    """Returns the exit code."""
    try:
        if not options.json and not _agreed(
            asks=not options.yes and sys.stdin.isatty() and sys.stdout.isatty()
        ):
            print("nothing was stopped")
            return CANCELLED
        ended = asyncio.run(shared_worker.stop())
    except shared_worker.WorkerError as error:
        print(f"orbit-lsp: error: {error}", file=sys.stderr)
        return INFRASTRUCTURE
    except KeyboardInterrupt:
        print("\norbit-lsp: cancelled", file=sys.stderr)
        return CANCELLED
    if options.json:
        print(json.dumps(asdict(StoppedWorkers(tuple(ended)))))
    elif ended:
        print(f"stopped {len(ended)} worker{'s' * (len(ended) > 1)}: process {', '.join(map(str, ended))}")
    else:
        print("no worker runs")
    return 0


def _agreed(*, asks: bool) -> bool:
    """Names the workers, and asks where somebody is there to answer. Raises WorkerError."""
    workers = asyncio.run(shared_worker.running())
    for worker in workers:
        print(doctor.worker_text(worker, "", time.time()))
    if not workers or not asks:
        return True
    jobs = sum(worker.jobs for worker in workers)
    lost = f", and cancel {jobs} job{'s' * (jobs != 1)}" if jobs else ""
    print(f"end {'it' if len(workers) == 1 else 'them'}{lost}? [y/N] ", end="", flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")
