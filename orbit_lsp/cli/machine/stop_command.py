"""`orbit-lsp stop`: ends the workers that this user's editors and commands share, here or on a host reached by ssh."""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import Sequence

from orbit_lsp.cli import json_results, terminal_text
from orbit_lsp.cli.machine import doctor
from orbit_lsp.cli.machine.list_results import StoppedWorkers
from orbit_lsp.runners import shared_worker
from orbit_lsp.state import ssh_hosts
from orbit_remote.common.handshake import Status

INFRASTRUCTURE = 5
CANCELLED = 130


def main(options: argparse.Namespace) -> int:
    """Run the command. Return the exit code."""
    if options.on:
        return _on_host(options)
    try:
        spared = None if options.every else doctor.is_elsewhere
        running = asyncio.run(shared_worker.running())
        workers = [worker for worker in running if not (spared and spared(worker))]
        asks = not (options.yes or options.json) and sys.stdin.isatty() and sys.stdout.isatty()
        busy = [worker for worker in workers if worker.jobs]
        if busy and not options.yes and not asks:
            clients = ", ".join(sorted({name for worker in busy for name in worker.clients}))
            text = (
                f"{_jobs(busy)} of {clients or 'other clients'} would be cancelled; --yes stops all the same"
            )
            return terminal_text.refused(text, as_json=options.json)
        if not options.json and not _agreed(workers, asks=asks):
            print("nothing was stopped")
            return CANCELLED
        ended = asyncio.run(shared_worker.stop(spared))
    except shared_worker.WorkerError as error:
        print(f"orbit-lsp: error: {error}", file=sys.stderr)
        return INFRASTRUCTURE
    except KeyboardInterrupt:
        print("\norbit-lsp: cancelled", file=sys.stderr)
        return CANCELLED
    if options.json:
        print(json_results.text(StoppedWorkers(tuple(ended))))
    elif ended:
        print(f"stopped {len(ended)} worker{'s' * (len(ended) > 1)}: process {', '.join(map(str, ended))}")
    else:
        elsewhere = f"; {len(running)} of other installations: --all ends these too" if running else ""
        print(f"no worker runs{elsewhere}")
    return 0


def _on_host(options: argparse.Namespace) -> int:
    """Stop the workers of a host. Return the exit code."""
    from orbit_lsp.runners.ssh import leaving
    from orbit_lsp.runners.ssh.trouble import SshError

    try:
        host = ssh_hosts.host(options.on)
    except ValueError as mistake:
        return terminal_text.refused(f"--on: {mistake}", as_json=options.json)
    try:
        left = asyncio.run(leaving.leave(host, busy_too=options.yes))
    except SshError as error:
        if options.json:
            print(json_results.failure("infrastructure", error.message, error.remedy))
        print(f"orbit-lsp: error: {error}", file=sys.stderr)
        return INFRASTRUCTURE
    except KeyboardInterrupt:
        print("\norbit-lsp: cancelled", file=sys.stderr)
        return CANCELLED
    if left.busy:
        several = "s" * (left.busy != 1)
        text = f"{left.busy} job{several} or notebook kernel{several} on {host} would be ended; --yes stops all the same"
        return terminal_text.refused(text, as_json=options.json)
    if options.json:
        print(json_results.text(StoppedWorkers(left.ended)))
    else:
        count = len(left.ended)
        print(f"{host}: stopped {count} process{'es' * (count != 1)}, and removed orbit-lsp's files")
    return 0


def _agreed(workers: Sequence[Status], *, asks: bool) -> bool:
    """Name the workers, and ask if somebody is there to answer. Return whether to stop them."""
    for worker in workers:
        print(doctor.worker_text(worker, "", time.time()))
    if not workers or not asks:
        return True
    lost = f", and cancel {_jobs(workers)}" if any(worker.jobs for worker in workers) else ""
    print(f"end {'it' if len(workers) == 1 else 'them'}{lost}? [y/N] ", end="", flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _jobs(workers: Sequence[Status]) -> str:
    jobs = sum(worker.jobs for worker in workers)
    return f"{jobs} job{'s' * (jobs != 1)}"
