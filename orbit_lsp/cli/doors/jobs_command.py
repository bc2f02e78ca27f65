"""`orbit-lsp jobs`: hands in files, lists jobs, shows, cancels and prunes them, as text or JSON."""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import functools
import sys
from typing import Any

from orbit_lsp.cli import json_results
from orbit_lsp.cli.doors import pool_options
from orbit_lsp.cli.terminal_text import UsageError, refused
from orbit_lsp.queue import job_queue, result_text
from orbit_lsp.queue import request as requests
from orbit_lsp.queue.job_queue import Followed, JobQueue
from orbit_lsp.queue.job_store import JobStore, StoredJob, StoreError
from orbit_lsp.queue.request import Request, RequestRefusedError
from orbit_remote.common import messages as c


def main(options: argparse.Namespace) -> int:
    """Run the command. Return the exit code."""
    try:
        if options.what == "submit":
            return asyncio.run(_submit(options))
        return _look(options, JobStore())
    except (UsageError, RequestRefusedError) as error:
        return refused(str(error), as_json=options.json)
    except StoreError as error:
        print(f"orbit-lsp: error: {error}", file=sys.stderr)
        return c.EXIT_CODES["infrastructure"]
    except KeyboardInterrupt:
        print("orbit-lsp: cancelled", file=sys.stderr)
        return c.EXIT_CODES["cancelled"]


def _look(options: argparse.Namespace, store: JobStore) -> int:
    """List, show, cancel or prune jobs. Raises UsageError and StoreError."""
    if options.what == "list":
        jobs = store.jobs(most=options.most, under_way=options.under_way)
        if options.json:
            _print_json([result_text.as_json(store, Followed(job), whole=False) for job in jobs])
        else:
            print("\n".join(result_text.line(job) for job in jobs) or "no jobs")
        return 0
    if options.what == "prune":
        gone = store.prune(pool_options.seconds(options.older, "--older"))
        print(
            json_results.text({"removed": gone}) if options.json else f"{gone} job{'s' * (gone != 1)} removed"
        )
        return 0
    if not options.names:
        raise UsageError(
            f"orbit-lsp jobs {options.what} needs the id of a job; `orbit-lsp jobs list` has them"
        )
    store.sweep()
    jobs = [_job(store, name) for name in options.names]
    if options.what == "cancel":
        for job in jobs:
            store.cancel(job.id)
        jobs = asyncio.run(_ended(store, jobs))
    if options.json:
        shown = [result_text.as_json(store, Followed(job)) for job in jobs]
        _print_json(shown[0] if len(shown) == 1 else shown)
    else:
        for job in jobs:
            print("\n".join(result_text.lines(job, result_text.result_of(store, job))))
    return 0


def _job(store: JobStore, name: str) -> StoredJob:
    """Raises UsageError."""
    if (job := store.job(name)) is None:
        raise UsageError(
            f"no job, or more than one, has an id that begins with {name!r:.40}; `orbit-lsp jobs list` lists the ids"
        )
    return job


async def _ended(store: JobStore, jobs: list[StoredJob]) -> list[StoredJob]:
    """Wait until the cancelled jobs are over: the process that has them ends their work first."""
    return [await job_queue.ended_elsewhere(store, job) for job in jobs]


async def _submit(options: argparse.Namespace) -> int:
    """Submit files. Return the exit code of the first that did not end well. Raises UsageError and
    RequestRefusedError.
    """
    if not options.names:
        raise UsageError("orbit-lsp jobs submit needs a file: a .cu, .cuh or .py file")
    if options.key and len(options.names) > 1:
        raise UsageError("--key is for one job; submit one file")
    wanted = [_request(options, name) for name in options.names]
    async with pool_options.queue(options, "jobs", trusted=True) as queue:
        jobs = [_accepted(job) for job in await queue.submit_all(wanted)]
        followed = await asyncio.gather(*(_follow(queue, job, quiet=options.json) for job in jobs))
        if options.json:
            shown = [
                await queue.read(functools.partial(result_text.as_json, queue.store, Followed(job)))
                for job in followed
            ]
            _print_json(shown[0] if len(shown) == 1 else shown)
        bad = [job.outcome for job in followed if job.outcome not in ("ok", None)]
        return c.EXIT_CODES[bad[0]] if bad else 0


def _request(options: argparse.Namespace, name: str) -> Request:
    """Make a request from the options, whose names are those of a request's fields. Raises RequestRefusedError."""
    given = {field.name: getattr(options, field.name, None) for field in dataclasses.fields(Request)}
    if options.against:
        given["against"] = requests.read(options.against)[0]
    return requests.decoded(given | {"file": name})


def _accepted(job: StoredJob | RequestRefusedError) -> StoredJob:
    """Raises RequestRefusedError."""
    if isinstance(job, RequestRefusedError):
        raise job
    return job


async def _follow(queue: JobQueue, job: StoredJob, *, quiet: bool) -> StoredJob:
    async for followed in queue.follow(job.id):
        job = followed.job
        if not quiet and not job.over:
            print(result_text.line(job, followed.position), file=sys.stderr, flush=True)
    if not quiet:
        result = await queue.read(functools.partial(result_text.result_of, queue.store, job))
        print("\n".join(result_text.lines(job, result)), flush=True)
    return job


def _print_json(value: Any) -> None:
    print(json_results.text(value))
