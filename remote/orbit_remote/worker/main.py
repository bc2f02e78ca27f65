"""Requests in, events out, one JSON object a line; every job's work is done in child processes.

One job at a time measures on a GPU; the others wait and say so. Builds run beside it. When standard
input ends - the author's side has gone - all work is ended and the worker leaves.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import errno
import os
import sys
import threading
import traceback
from collections.abc import Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

from orbit_remote.common import codec
from orbit_remote.common import messages as c
from orbit_remote.process import process_groups
from orbit_remote.recording import injection
from orbit_remote.worker import builds, plain_action, probe
from orbit_remote.worker.calibration_store import CalibrationStore
from orbit_remote.worker.context import Context, Send

_LEAVE_S = 2.0
"""How long leaving may take when the author's side has gone."""


class Worker:
    def __init__(self, context: Context) -> None:
        self._context = context
        self._reached = CalibrationStore(context.home / "reached.json")
        self._jobs: dict[str, asyncio.Task[None]] = {}

    async def serve(self, requests: asyncio.Queue[str | None]) -> None:
        """Until None comes; then every job is ended first."""
        self._context.forget_the_dead()
        while (line := await requests.get()) is not None:
            try:
                self._take(codec.decode_request(line))
            except ValueError as error:
                print(f"orbit worker: a request was not understood: {error}", file=sys.stderr)
        jobs = list(self._jobs.values())
        for job in jobs:
            job.cancel()
        await asyncio.gather(*jobs, return_exceptions=True)
        await self._reached.close()
        await self._context.close()

    def _take(self, request: c.Request) -> None:
        match request:
            case c.Cancel(run=run):
                if job := self._jobs.get(run):
                    job.cancel()
            case c.Probe():
                self._begin(request.run, self._probe(request))
            case c.Warm():
                self._begin(request.run, self._warm(request))
            case c.Job():
                self._begin(request.run, self._perform(request))

    def _begin(self, run: str, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._jobs[run] = task
        task.add_done_callback(lambda _: self._over(run, task))

    def _over(self, run: str, task: asyncio.Task[None]) -> None:
        self._jobs.pop(run, None)
        if task.cancelled():  # before it took its first step: nobody else has said so
            self._context.send(_cancelled(run))

    async def _probe(self, request: c.Probe) -> None:
        self._context.send(await probe.probe(request, self._context.author_python, self._context.counters))

    async def _warm(self, request: c.Warm) -> None:
        if request.language == "triton" and self._context.idle_s > 0:
            await self._context.spares.prepare(self._context.environment())
        else:
            await asyncio.to_thread(_prepare_recorder, self._context.home)

    async def _perform(self, job: c.Job) -> None:
        """Exactly one Finished, whatever happens."""
        try:
            if job.action == "profile":
                from orbit_remote.worker import profile_action

                finished = await profile_action.profile(job, self._context)
            elif job.action == "disassemble":
                from orbit_remote.worker import disassemble_action

                finished = await disassemble_action.of_file(job, self._context)
            elif job.action == "sanitize":
                from orbit_remote.worker import sanitize_action

                finished = await sanitize_action.check_memory(job, self._context)
            else:
                finished = await plain_action.build_or_run(job, self._context)
        except asyncio.CancelledError:
            finished = _cancelled(job.run)
        except OSError as error:
            finished = c.failed(job.run, _no_room(error))
        except Exception as error:  # noqa: BLE001 - ours: the author gets a sentence, the log the rest
            traceback.print_exc()
            text = f"orbit's worker failed: {type(error).__name__}: {error}"
            failure = c.Failure("infrastructure", text, "see the server's log, and please report it", True)
            finished = c.failed(job.run, failure)
        device = self._reached.told(finished.device)
        self._context.send(replace(finished, device=device))
        if device and job.through == "spec" and finished.outcome == "ok":
            self._reached.measure(device, self._context)


def _prepare_recorder(home: Path) -> None:
    """Compile the launch recorder before a first run needs it."""
    with contextlib.suppress(injection.Unavailable):  # a run says so, at its place
        injection.environment(home / "cupti", cache=home / "cupti")


def _no_room(error: OSError) -> c.Failure:
    """A file that could not be written or read, in a sentence."""
    where = f" ({error.filename})" if error.filename else ""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return c.Failure("infrastructure", f"the disk is full{where}", "free some space and run it again")
    return c.Failure("infrastructure", f"{os.strerror(error.errno or 0)}{where}", "", retryable=True)


def _cancelled(run: str) -> c.Finished:
    return c.failed(run, c.Failure("cancelled", "cancelled by the user"))


def _read_lines(into: asyncio.Queue[str | None], loop: asyncio.AbstractEventLoop) -> None:
    """In a thread: asyncio cannot read standard input on Windows."""
    stdin = os.fdopen(os.dup(0), encoding="utf-8", errors="surrogatepass", newline="\n")
    try:
        for line in stdin:
            loop.call_soon_threadsafe(into.put_nowait, line)
    except (OSError, ValueError):
        pass
    try:
        loop.call_soon_threadsafe(into.put_nowait, None)
    except RuntimeError:  # the loop is closed: the worker is leaving already
        return
    # a job that will not end must not keep the worker: its groups die with it (PDEATHSIG)
    threading.Event().wait(_LEAVE_S)
    os._exit(1)


async def _serve(options: argparse.Namespace, send: Send) -> None:
    requests: asyncio.Queue[str | None] = asyncio.Queue()
    loop = asyncio.get_running_loop()
    threading.Thread(target=_read_lines, args=(requests, loop), daemon=True, name="requests").start()
    await Worker(Context(options, send, builds.build_ahead)).serve(requests)


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="orbit_remote worker")
    parser.add_argument("--cache", required=True, help="folder for builds and scratch files")
    parser.add_argument("--cache-bytes", type=int, default=2 << 30)
    parser.add_argument("--spare-idle-s", type=float, default=300.0)
    parser.add_argument("--environment", default="", help="further variables passed to jobs, by comma")
    parser.add_argument(
        "--author-python", default="", help="the server's Python: compiler wheels may be there"
    )
    parser.add_argument(
        "--ends-with-parent", action="store_true", help="end soon after the thread that started this process"
    )
    options = parser.parse_args(arguments)
    if options.ends_with_parent:
        process_groups.end_after_parent()
    # events have standard output to themselves: whatever else prints goes to the log
    events = os.dup(1)
    os.dup2(2, 1)
    process_groups.adopt()
    asyncio.run(_serve(options, Send(events)))
    os._exit(0)  # without waiting for the thread that reads standard input


if __name__ == "__main__":
    main(sys.argv[1:])
