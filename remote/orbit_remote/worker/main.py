"""The worker process: requests in, events out, one JSON object a line. Child processes do every job's work.

Over pipes it serves the process that started it. When standard input ends, because the author's side has gone, all
work is ended and the worker leaves. With `--listen` it serves everybody of the same user who connects to its socket
(`shared_worker`), and leaves when nobody has been connected for a while.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import threading
from pathlib import Path

from orbit_remote.process import large_blocks, process_groups
from orbit_remote.worker.actions import builds
from orbit_remote.worker.calibration_store import CalibrationStore
from orbit_remote.worker.context import Send, Shared, WorkerClient, WorkerContext
from orbit_remote.worker.jobs import Jobs

_LEAVE_S = 2.0
"""How long the worker may take to end once the author's side has ended."""


def _read_lines(into: asyncio.Queue[str | None], loop: asyncio.AbstractEventLoop) -> None:
    """Read lines in a thread: asyncio cannot read standard input on Windows."""
    stdin = os.fdopen(os.dup(0), encoding="utf-8", errors="surrogatepass", newline="\n")
    try:
        for line in stdin:
            loop.call_soon_threadsafe(into.put_nowait, line)
    except (OSError, ValueError):
        pass
    try:
        loop.call_soon_threadsafe(into.put_nowait, None)
    except RuntimeError:  # the loop is closed: the worker is ending already
        return
    # a job that will not end must not keep the worker: its groups die with it (PDEATHSIG)
    threading.Event().wait(_LEAVE_S)
    os._exit(1)


async def _serve_pipes(options: argparse.Namespace, send: Send) -> None:
    requests: asyncio.Queue[str | None] = asyncio.Queue()
    loop = asyncio.get_running_loop()
    threading.Thread(target=_read_lines, args=(requests, loop), daemon=True, name="requests").start()
    shared = _shared(options)
    passed = tuple(name for name in str(options.environment).split(",") if name)
    client = WorkerClient(send, os.environ, passed, options.author_python or None, options.client)
    reached = CalibrationStore(shared.home / "reached.json")
    jobs = Jobs(WorkerContext(shared, client, builds.build_ahead), reached)
    shared.forget_the_dead()
    while (line := await requests.get()) is not None:
        jobs.take(line)
    await jobs.end()
    await reached.close()
    await shared.close()


def _shared(options: argparse.Namespace) -> Shared:
    return Shared(Path(options.cache), cache_bytes=options.cache_bytes, spare_idle_s=options.spare_idle_s)


def main(arguments: list[str]) -> None:
    options = _parser().parse_args(arguments)
    large_blocks.give_back()
    if options.listen is not None:
        from orbit_remote.worker import shared_worker

        shared_worker.detach()
        asyncio.run(shared_worker.serve(options, _shared))
        os._exit(0)
    if options.ends_with_parent:
        process_groups.end_after_parent()
    # events have standard output to themselves: whatever else prints goes to the log
    events = os.dup(1)
    os.dup2(2, 1)
    process_groups.adopt()
    asyncio.run(_serve_pipes(options, Send(events)))
    os._exit(0)  # without waiting for the thread that reads standard input


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="orbit_remote worker")
    parser.add_argument("--cache", required=True, help="folder for builds and scratch files")
    parser.add_argument("--cache-bytes", type=int, default=2 << 30)
    parser.add_argument("--spare-idle-s", type=float, default=300.0)
    parser.add_argument("--environment", default="", help="further variables passed to jobs, by comma")
    parser.add_argument(
        "--author-python", default="", help="the server's Python: compiler wheels may be there"
    )
    parser.add_argument("--client", default="", help="the name that others see who wait for its jobs")
    parser.add_argument(
        "--ends-with-parent", action="store_true", help="end soon after the thread that started this process"
    )
    parser.add_argument("--listen", type=int, metavar="DESCRIPTOR", help="serve the clients of this socket")
    parser.add_argument("--folder", type=Path, help="with --listen: the user's runtime folder")
    parser.add_argument("--key", default="", help="with --listen: the name of this worker")
    parser.add_argument("--release", default="", help="with --listen: our version")
    parser.add_argument(
        "--leave-s", type=float, default=0, help="with --listen: how long to wait for a client"
    )
    return parser


if __name__ == "__main__":
    import sys

    main(sys.argv[1:])
