"""The queue of a command that takes jobs. The command's options give its places, settings and limit of spending."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from orbit_lsp.cli import command_settings, terminal_text
from orbit_lsp.cli.terminal_text import UsageError
from orbit_lsp.queue import cluster, pool
from orbit_lsp.queue.job_queue import JobQueue, engines
from orbit_lsp.queue.job_store import JobStore, StoreError
from orbit_lsp.queue.pool import Slot
from orbit_lsp.queue.request import RequestRefusedError
from orbit_lsp.queue.slot_engine import EngineOptions, SlotEngine
from orbit_lsp.state import ssh_hosts


@asynccontextmanager
async def queue(options: argparse.Namespace, door: str, *, trusted: bool) -> AsyncGenerator[JobQueue]:
    """Give a queue that takes jobs until the end of the `with`. Raises UsageError, and OSError if its record cannot
    be kept.
    """
    engine = EngineOptions(settings(options), _folders(), remedy(door), complain)
    try:
        asked = pool.parse(_counted(options.pool)) if options.pool else []
        slots = await _looked_up(engine, asked)
        # what strangers submit may leave a GPU in a state that changes the next one's numbers
        jobs = JobQueue(
            JobStore(), slots, engines(engine), door, trusted=trusted, guarded=door in ("api", "watch")
        )
        await jobs.start()
    except RequestRefusedError as why:
        raise UsageError(str(why)) from None
    except StoreError as error:
        raise OSError(str(error)) from None
    try:
        yield jobs
    finally:
        await jobs.close()


def _counted(places: str) -> str:
    """Replace `ray` by as many places as the cluster has GPUs now. Joins the cluster. Raises RequestRefusedError."""
    words = [word.strip() for word in places.split(",")]
    if not any(word.partition("*")[0].partition(":")[0] == "ray" for word in words):
        return places
    cluster.connect()
    return ",".join(f"ray*{max(1, cluster.gpus())}" if word == "ray" else word for word in words)


def remedy(door: str) -> str:
    """Return what to do if the budget has no money for a job. It is the remedy of the failures of these jobs."""
    return f"raise --budget of `orbit-lsp {door}`"


async def _looked_up(options: EngineOptions, asked: list[Slot]) -> list[Slot]:
    """Return the places that are asked for, with what this machine has of them. If none is asked for, return every
    GPU of this machine, else the one that is rented. Raises RequestRefusedError.
    """
    if asked and not any(slot.local for slot in asked):
        return asked
    probe = SlotEngine(Slot("probe"), options)
    try:
        machine = await probe.machine()
        return pool.named(asked, machine) if asked else pool.of_machine(machine, rented=probe.rents())
    finally:
        await probe.close()


def settings(options: argparse.Namespace) -> dict[str, Any]:
    """Return the user's own settings. Renting costs money, so without a limit nothing is rented. Raises UsageError."""
    values: dict[str, Any] = {"modal": {"budget_usd": budget(options)}}
    places = map(str.strip, (options.pool or "").split(","))
    values |= command_settings.programs(options, by_ssh=all(map(ssh_hosts.host_of, places)))
    if options.build_timeout_s is not None:
        values["build_timeout_s"] = options.build_timeout_s
    if options.trust:
        values["trusted"] = True
    return values


def budget(options: argparse.Namespace) -> float:
    """Return the budget in dollars of the month. Raises UsageError."""
    given = options.budget if options.budget is not None else os.environ.get("ORBIT_BUDGET_USD", "").strip()
    try:
        return float(given) if given != "" else 0.0
    except ValueError:
        raise UsageError(f"ORBIT_BUDGET_USD is {given!r:.40}, not a number of dollars") from None


def seconds(text: str, option: str) -> float:
    """Read `7d`, `12h` or `0s` as seconds. Raises UsageError."""
    match = re.fullmatch(r"(\d{1,6})([smhd])", text)
    if not match:
        raise UsageError(f"{option} is {text!r:.40}; write a number and a unit, as in 7d, 12h, 30m or 0s")
    return int(match[1]) * {"s": 1, "m": 60, "h": 3600, "d": 86400}[match[2]]


def complain(text: str) -> None:
    terminal_text.warn(text)


def _folders() -> tuple[str, ...]:
    """The current folder, unless it has been deleted."""
    with suppress(FileNotFoundError):
        return (str(Path.cwd()),)
    return ()
