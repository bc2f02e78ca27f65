"""`orbit-lsp stop --on HOST`: ends what came to this machine by ssh, and removes what it left."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import time
from contextlib import suppress
from pathlib import Path

from orbit_remote.common import content_store
from orbit_remote.process import process_groups, worker_socket
from orbit_remote.ssh_host import notebooks, relay

_END_S = 20.0
_LOOK_S = 0.05


def main(arguments: list[str]) -> int:
    """Print one line of JSON, {"ended": [pid, …], "busy": n}. If jobs or notebook kernels are under way, nothing is
    ended, unless `--yes` is given.
    """
    parser = argparse.ArgumentParser(prog="orbit_remote leave")
    parser.add_argument("--home", type=Path, required=True)
    parser.add_argument("--yes", action="store_true")
    options, _ = parser.parse_known_args(arguments)
    folder = relay.folder()
    workers = asyncio.run(worker_socket.running())
    kernels = _ours(options.home, notebooks.ROLE)
    busy = sum(worker.jobs for worker in workers) + len(kernels)
    if busy and not options.yes:
        print(json.dumps({"ended": [], "busy": busy}), flush=True)
        return 0
    proxies = _ours(options.home, "proxy")
    for pid in proxies:  # kernels end with them, and say so
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
    until = time.monotonic() + _END_S
    while any(map(process_groups.alive, [*proxies, *kernels])) and time.monotonic() < until:
        time.sleep(_LOOK_S)
    for pid in filter(process_groups.alive, [*proxies, *kernels]):
        os.kill(pid, signal.SIGKILL)
    ended = [*proxies, *kernels, *asyncio.run(worker_socket.stop())]
    for left in (*folder.glob("*.proxy"), folder / "proxies.lock"):
        relay.forget(left)
    content_store.remove(options.home)
    print(json.dumps({"ended": ended, "busy": 0}), flush=True)
    return 0


def _ours(home: Path, role: str) -> list[int]:
    """Return the process ids of that role that keep their files in `home`, whatever version they are of."""
    found: list[int] = []
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            words = process_groups.command(int(path.name))
            ours = words[3:4] == [role.encode()] and os.fsencode(home) in words
            if ours and path.stat().st_uid == os.getuid():
                found.append(int(path.name))
    return found
