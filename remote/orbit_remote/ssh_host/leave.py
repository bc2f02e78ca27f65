"""`orbit-lsp stop --on HOST`: end what came to this machine by ssh, and remove what it left."""

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
from orbit_remote.ssh_host import relay

_END_S = 15.0
_LOOK_S = 0.05


def main(arguments: list[str]) -> int:
    """Print one line of JSON, {"ended": [pid, …], "busy": n}. With jobs under way nothing is ended, unless `--yes` is given."""
    parser = argparse.ArgumentParser(prog="orbit_remote leave")
    parser.add_argument("--home", type=Path, required=True)
    parser.add_argument("--yes", action="store_true")
    options, _ = parser.parse_known_args(arguments)
    folder = relay.folder()
    workers = asyncio.run(worker_socket.running())
    busy = sum(worker.jobs for worker in workers)
    if busy and not options.yes:
        print(json.dumps({"ended": [], "busy": busy}), flush=True)
        return 0
    proxies = _proxies(options.home)
    for pid in proxies:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
    until = time.monotonic() + _END_S
    while any(map(process_groups.alive, proxies)) and time.monotonic() < until:
        time.sleep(_LOOK_S)
    for pid in filter(process_groups.alive, proxies):
        os.kill(pid, signal.SIGKILL)
    ended = [*proxies, *asyncio.run(worker_socket.stop())]
    for left in (*folder.glob("*.proxy"), folder / "proxies.lock"):
        relay.forget(left)
    content_store.remove(options.home)
    print(json.dumps({"ended": ended, "busy": 0}), flush=True)
    return 0


def _proxies(home: Path) -> list[int]:
    """Return the process ids of the proxies that keep their files in `home`, whatever version they are of."""
    proxies: list[int] = []
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            words = process_groups.command(int(path.name))
            if path.stat().st_uid == os.getuid() and b"proxy" in words and os.fsencode(home) in words:
                proxies.append(int(path.name))
    return proxies
