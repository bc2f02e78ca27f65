"""`orbit-lsp capture FILE --kernel K`: takes one launch of a driver, and writes a launch spec above the kernel that
replays it.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path

from orbit_lsp.cli import json_results, terminal_text
from orbit_lsp.cli.files import through_command
from orbit_lsp.cli.terminal_text import UsageError, check_gpu
from orbit_lsp.cli.terminal_watcher import TerminalWatcher
from orbit_lsp.engine.engine import Engine
from orbit_lsp.runs import capture, driver_search
from orbit_lsp.runs.capture import LaunchCapture, WrittenSpec
from orbit_lsp.runs.scheduler import RunFailedError
from orbit_lsp.state import units, user_folders
from orbit_lsp.state.kernel_ids import KernelId
from orbit_lsp.state.session import Session, path_of
from orbit_remote.common import limits, regular_files
from orbit_remote.common import messages as c
from orbit_remote.common.plain_text import visible
from orbit_remote.common.requests import Capture, Driver


async def run(options: argparse.Namespace, engine: Engine, watcher: TerminalWatcher) -> int:
    """Capture a launch. Return the exit code. Raises UsageError."""
    session, places = engine.session, engine.places
    target = through_command.kernel_of(options, session)
    kernel = session.find(target)
    assert kernel
    if why := capture.refusal(session, target, kernel):
        raise UsageError(why)
    driver, sets = await _driver(options, engine, target)
    root = session.setup.folders[0]
    if not places.settings.trust.covers(root):
        remedy = places.settings.trust.remedy("add --trust", root)
        raise UsageError(
            f"{driver.id} and what it imports are not run, because {root} is not trusted: {remedy}"
        )
    await places.look_around()
    check_gpu(session, options.gpu)
    tools = LaunchCapture(session, places.runner_of, engine.runs, watcher)
    taking = Capture(options.launch)
    if options.launch is None:
        try:
            launches, sets = await tools.launches(target, driver, sets)
        except RunFailedError as reason:
            return _failed(c.failed("", reason.failure), as_json=options.json)
        if not launches:
            failure = c.Failure("infrastructure", capture.not_launched(target, driver))
            return _failed(c.failed("", failure), as_json=options.json)
        taking = capture.wanted(launches)
    made: list[WrittenSpec] = []
    started = tools.start(target, driver, sets, taking, made.append)
    assert started
    finished = await engine.runs.result(started)
    if not made:
        return _failed(finished, as_json=options.json)
    return _write(options, session, made[0], finished)


async def _driver(
    options: argparse.Namespace, engine: Engine, target: KernelId
) -> tuple[Driver, tuple[str, ...]]:
    """Return the driver that is named with its parameter sets, else the file's own program, else the best driver.
    Raises UsageError.
    """
    session, unknown = engine.session, ""
    driver, sets = None, ()
    try:
        driver, sets = await driver_search.asked_for(
            session, target, options.through, user_folders.driver_index, engine.history.learn
        )
    except driver_search.UnknownDriverError as error:
        unknown = str(error)
    own = capture.own_program(session, target)
    if own and (options.through == driver_search.AUTO or (driver is None and options.through == own.file)):
        return own, ()
    if driver is None:
        raise UsageError(unknown)
    return driver, sets


def _write(options: argparse.Namespace, session: Session, written: WrittenSpec, finished: c.Finished) -> int:
    path = Path(path_of(written.target.uri))
    before = session.files[written.target.uri].document.text
    try:
        if regular_files.text(path, limits.SOURCE) != before:
            raise ValueError("it was changed while the launch was captured; capture it again")  # noqa: TRY301 - one answer for all
        mode = path.stat().st_mode
        stored = capture.store(written)
        regular_files.replace(path.resolve(), capture.with_lines(before, written).encode())
        path.chmod(mode)
    except (OSError, ValueError) as error:
        why = (error.strerror if isinstance(error, OSError) else "") or str(error)
        failure = c.Failure("infrastructure", f"{options.file} was not written: {why}")
        return _failed(c.failed(finished.run, failure), as_json=options.json)
    captured = replace(written.captured, data="")
    if options.json:
        print(json_results.text(replace(finished, captured=captured)))
        return 0
    launch = max(finished.launches, key=lambda each: each.count * each.timing.median, default=None)
    replayed = f", replayed in {units.timing(launch.timing)}" if launch else ""
    lines = [
        written.text.rstrip("\n"),
        f"{options.file}: this launch spec of {written.target.key} was written{replayed}; its tensors are in {stored.name}",
    ]
    print(visible("\n".join(lines)))
    return 0


def _failed(finished: c.Finished, *, as_json: bool) -> int:
    if as_json:
        print(json_results.text(finished))
    elif failure := finished.failure:
        first = failure.message.partition("\n")[0]
        remedy = f"\n{terminal_text.indented(failure.remedy)}" if failure.remedy else ""
        print(visible(f"error: {first} [{finished.outcome}]{remedy}"), file=sys.stderr)
    return c.EXIT_CODES[finished.outcome]
