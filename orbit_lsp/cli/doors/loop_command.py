"""`orbit-lsp loop`: a worker changes a kernel; the loop measures the change, and keeps or reverts it."""

from __future__ import annotations

import argparse
import asyncio
import sys
import uuid
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from orbit_lsp.agents.loop import parties, records
from orbit_lsp.agents.loop import subject as subjects
from orbit_lsp.agents.loop.coordinator import Loop, LoopError, LoopLimits, LoopSetup
from orbit_lsp.agents.loop.journal import Journal, JournalError
from orbit_lsp.agents.loop.judge import LoopTarget, Meter, QueueMeter
from orbit_lsp.agents.loop.parties import CommandParty, DryRun, LoopParty, Manual, SimulatedMeter
from orbit_lsp.agents.loop.records import LoopSummary, Role
from orbit_lsp.agents.loop.subject import LoopSubject, NoSubjectError
from orbit_lsp.cli import json_results
from orbit_lsp.cli.doors import loop_view, pool_options
from orbit_lsp.cli.terminal_text import UsageError, refused
from orbit_lsp.queue.request import Request
from orbit_lsp.state import units
from orbit_remote.common import messages as c
from orbit_remote.common.plain_text import visible


def main(options: argparse.Namespace) -> int:
    try:
        return asyncio.run(_main(options))
    except (UsageError, NoSubjectError, JournalError) as error:
        return refused(str(error), as_json=options.json)
    except LoopError as error:
        if options.json:
            print(json_results.failure(error.outcome, str(error), error.remedy))
        print(visible(f"orbit-lsp: error: {error} [{error.outcome}]"), file=sys.stderr)
        if error.remedy:
            print(f"  {visible(error.remedy)}", file=sys.stderr)
        return c.EXIT_CODES[error.outcome]
    except KeyboardInterrupt:
        print("orbit-lsp: cancelled; the same command goes on where the loop was", file=sys.stderr)
        return c.EXIT_CODES["cancelled"]


async def _main(options: argparse.Namespace) -> int:
    """Raises UsageError, NoSubjectError, JournalError, LoopError and OSError."""
    subject = subjects.subject(_file(options), options.kernel)
    target, limits = _target(options), _limits(options)
    words = _words(options)
    simulated = options.mode == "dry-run"
    folder = _folder(options, subject)
    journal = Journal(folder, fresh=options.fresh_start)
    try:
        name = _begun(journal, options, subject)
        people = _parties(options, words, target, folder, name)
        if not subject.checked:
            text = f"{subject.name} has no `expect` and no `reference`, so nothing checks what a faster version computes"
            pool_options.complain(text)
        settings = {} if simulated else pool_options.settings(options)
        if options.nvcc_flags:
            settings["nvcc_flags"] = options.nvcc_flags

        async def harness(start: str, text: str) -> dict[str, str]:
            return await subjects.harness_of(subject, settings, start, text)

        async with _meter(options, subject) as (meter, remedy):
            with loop_view.watcher(subject.name, quiet=options.json) as watcher:
                setup = LoopSetup(
                    subject,
                    meter,
                    people,
                    target,
                    limits,
                    harness,
                    watcher,
                    options.mode,
                    remedy,
                    simulated=simulated,
                )
                summary = await Loop(journal, name, setup).run()
    finally:
        journal.close()
    _print(options, summary)
    return c.EXIT_CODES["infrastructure"] if summary.stopped in ("infrastructure", "budget") else 0


def _file(options: argparse.Namespace) -> str:
    given = [file for file in (options.file, options.kernel_path) if file]
    if len(given) != 1:
        raise UsageError("give the kernel file once, as FILE or with --kernel-path")
    return given[0]


def _target(options: argparse.Namespace) -> LoopTarget:
    if records.unit_ns(options.target_metric_name) is None:
        raise UsageError(
            f"--target-metric-name is {options.target_metric_name!r:.60}; a loop measures time, so the name ends in _ns, _us or _ms"
        )
    return LoopTarget(options.target_metric_name, options.target_metric_threshold)


def _limits(options: argparse.Namespace) -> LoopLimits:
    for name in (
        "max_iterations",
        "max_wall_clock_minutes",
        "no_progress_limit",
        "infra_failure_limit",
        "wait_minutes",
    ):
        if not getattr(options, name) > 0:
            raise UsageError(f"--{name.replace('_', '-')} must be more than 0")
    return LoopLimits(
        options.max_iterations, options.max_wall_clock_minutes, options.no_progress_limit, options.infra_failure_limit,
        options.wait_minutes,
    )  # fmt: skip


def _words(options: argparse.Namespace) -> dict[Role, list[str]]:
    """Return the command lines. Raises UsageError."""
    given: dict[Role, str | None] = {"worker": options.worker, "reviewer": options.reviewer}
    if options.mode != "command" and any(given.values()):
        raise UsageError("--worker and --reviewer need --mode command")
    if options.mode == "command" and not options.worker:
        raise UsageError("--mode command needs --worker, a command line such as 'agent --task {prompt}'")
    try:
        return {role: parties.words_of(text, f"--{role}") for role, text in given.items() if text is not None}
    except ValueError as error:
        raise UsageError(str(error)) from None


def _folder(options: argparse.Namespace, subject: LoopSubject) -> Path:
    """Return the loop's folder. Raises UsageError if a link makes it lead elsewhere."""
    if options.state:
        return Path(options.state).absolute()
    made_up = ".dry-run" if options.mode == "dry-run" else ""
    folder = subject.path.parent / ".orbit-loop" / f"{subject.path.name}{made_up}"
    if folder.resolve() != folder:
        raise UsageError(
            f"{folder} leads elsewhere by a link; remove the link, or choose a folder with --state"
        )
    return folder


def _begun(journal: Journal, options: argparse.Namespace, subject: LoopSubject) -> str:
    """Return the id of the loop of this folder. Raises UsageError if the folder's loop is about something else."""
    about: dict[str, Any] = {
        "kernel file": str(subject.path), "kernel": subject.name, "dry run": options.mode == "dry-run", "--flag": options.nvcc_flags,
        "--timeout": options.run_timeout_s, "--gpu": options.gpu, "--pool": options.pool,
    }  # fmt: skip
    known = journal.ended("loop")
    if known is None:
        known = {"id": uuid.uuid4().hex, **about}
        journal.write("loop", "end", 0, known)
    different = next((name for name, value in about.items() if known.get(name) != value), None)
    if different:
        raise UsageError(
            f"the loop in {journal.folder} has another {different}: {known.get(different)}; choose another --state, or --fresh-start"
        )
    return str(known["id"])


def _parties(
    options: argparse.Namespace, words: dict[Role, list[str]], target: LoopTarget, folder: Path, name: str
) -> dict[Role, LoopParty]:
    if options.mode == "command":
        return {role: CommandParty(role, command, folder, name) for role, command in words.items()}
    party = DryRun(target.metric) if options.mode == "dry-run" else Manual()
    return {"worker": party} if options.no_reviewer else {"worker": party, "reviewer": party}


@asynccontextmanager
async def _meter(options: argparse.Namespace, subject: LoopSubject) -> AsyncGenerator[tuple[Meter, str]]:
    """Give the meter, and how it says that the budget is used up."""
    if options.mode == "dry-run":
        yield SimulatedMeter(), ""
        return
    async with pool_options.queue(options, "loop", trusted=True) as queue:
        # the first place of the pool for all of it: times of several GPUs are not one kernel's
        request = Request(
            name=subject.path.name, text="", path=str(subject.path), kernel=subject.name, gpu=options.gpu or queue.slots[0].name,
            flags=tuple(options.nvcc_flags), timeout_s=options.run_timeout_s,
        )  # fmt: skip
        yield QueueMeter(queue, request), pool_options.remedy("loop")


def _print(options: argparse.Namespace, summary: LoopSummary) -> None:
    if options.json:
        print(json_results.text(summary))
        return
    rows = {
        "stopped": f"{summary.stopped}: {summary.reason}",
        "iterations": f"{summary.iterations}, {summary.kept} kept",
    }
    if summary.start_ns is not None and summary.best_ns is not None:
        rows["time"] = f"{units.time(summary.start_ns)} at the start, {units.time(summary.best_ns)} now"
    if summary.ratio is not None:
        low, high = (f"{100 * ((bound or summary.ratio) - 1):+.1f}%" for bound in (summary.low, summary.high))
        rows["in turn"] = f"{100 * (summary.ratio - 1):+.1f}% time ({low} to {high})"
    if summary.usd is not None:
        rows["cost"] = units.money(summary.usd)
    rows["folder"] = summary.folder
    print(
        visible(
            f"{summary.kernel}: the loop"
            + (" (simulated, nothing was measured)" if summary.simulated else "")
        )
    )
    for name, text in rows.items():
        print(visible(f"  {name:<10}  {text}"))
