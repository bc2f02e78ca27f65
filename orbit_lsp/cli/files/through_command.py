"""`orbit-lsp run FILE --through DRIVER`: runs a kernel by a test, a script or a program of the project that launches
it, with its times.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from orbit_lsp.cli import exec_command, json_results, terminal_text
from orbit_lsp.cli.arguments import did_you_mean
from orbit_lsp.cli.terminal_text import UsageError, check_gpu
from orbit_lsp.engine.engine import Engine
from orbit_lsp.kernels import language_of
from orbit_lsp.runs import driver_search
from orbit_lsp.runs.scheduler import Action
from orbit_lsp.specs import driver_choice
from orbit_lsp.state import harness, units, user_folders
from orbit_lsp.state.kernel_ids import KernelId
from orbit_lsp.state.session import Session, uri_of
from orbit_lsp.views import kernel_status
from orbit_remote.common import limits, regular_files
from orbit_remote.common import messages as c
from orbit_remote.common.plain_text import visible
from orbit_remote.common.requests import Driver

AUTO = "auto"
_MAIN = re.compile(r"main|^[ \t]*#[ \t]*include[ \t]*\"", re.IGNORECASE | re.MULTILINE)
"""A text that may have a `main`: it says the name, or a macro such as BENCHMARK_MAIN, or it includes a file of the project."""


async def run(
    options: argparse.Namespace,
    engine: Engine,
    action: Action,
    report: Callable[[str, KernelId, c.Finished], None],
) -> int:
    """Run through a driver. Return the exit code. `report` prints what a profile or a memory check found. Raises
    UsageError.
    """
    session, places, runs = engine.session, engine.places, engine.runs
    root = session.setup.folders[0]
    target = kernel_of(options, session)
    try:
        driver, sets = await driver_search.asked_for(
            session, target, options.through, user_folders.driver_index, engine.history.learn
        )
    except driver_search.UnknownDriverError as error:
        raise UsageError(str(error)) from None
    if not places.settings.trust.covers(root):
        remedy = places.settings.trust.remedy("add --trust", root)
        raise UsageError(
            f"{driver.id} and what it imports are not run, because {root} is not trusted: {remedy}"
        )
    await places.look_around()
    check_gpu(session, options.gpu)
    detail = "full" if getattr(options, "full", False) else "click"
    again = getattr(options, "repeat", False)
    started = runs.start(action, target.uri, target, driver=driver, detail=detail, sets=sets, repeated=again)
    assert started
    finished = await runs.result(started)
    if options.json:
        print(json_results.text(finished))
    elif action != "run":
        report(target.uri, target, finished)
    else:
        result = session.results.runs.get(target)
        _report(finished, target.key, driver, result.launches if result else ())
    return c.EXIT_CODES[finished.outcome]


async def is_alone(options: argparse.Namespace, engine: Engine) -> bool:
    """Say whether `--through auto` means the kernel's file itself, as a click does: it has a launch spec, or it is a
    program. A Python file that is one has its routes, too, and runs as a script. Raises UsageError.
    """
    if options.through != AUTO or getattr(options, "repeat", False):
        return False
    session, target = engine.session, kernel_of(options, engine.session)
    await driver_search.look(session, target.uri, user_folders.driver_index, engine.history.learn)
    known = next(each for each in kernel_status.of(session, target.uri) if each.target == target)
    if session.files[target.uri].scan.language != "cuda" and driver_choice.ranked(session, target):
        return False
    return known.plan.through != "driver" and kernel_status.is_started(session, known)


async def refuse_alone(
    options: argparse.Namespace, engine: Engine, uri: str, target: KernelId | None
) -> None:
    """Refuse to run a file alone that launches nothing.

    Raises UsageError if nothing in the file launches the kernel (or any kernel, if none is named) and a test, a
    script or a program of the project does. It does so too for a CUDA file without a `main`.
    """
    session = engine.session
    meant = [known for known in kernel_status.of(session, uri) if target in (None, known.target)]
    if harness.of(session, uri) or session.files[uri].scan.entries:
        return
    if any(kernel_status.is_started(session, known) for known in meant):
        return
    await driver_search.look(session, uri, user_folders.driver_index, engine.history.learn)
    for known in meant:
        if routes := driver_choice.ranked(session, known.target):
            kernel = known.target.key
            named = f" --kernel {shlex.quote(kernel)}" if len(session.kernels(uri)) > 1 else ""
            command = f"orbit-lsp {options.command} {shlex.quote(options.file)}{named} --through auto"
            raise UsageError(
                f"nothing in {options.file} launches {kernel}, but {routes[0].driver.id} does: `{command}`"
            )
    document = session.files[uri].document
    if (
        meant
        and document.path.lower().endswith(".cu")
        and not (options.nvcc_flags or _MAIN.search(document.text))
    ):
        raise UsageError(
            f"nothing launches {meant[0].target.key}: {options.file} has no main and no launch spec; "
            f"`orbit-lsp draft {shlex.quote(options.file)}` prints a launch spec to put above it"
        )


def kernel_of(options: argparse.Namespace, session: Session) -> KernelId:
    """Open the file, and return the kernel that is meant. Raises UsageError."""
    path = os.path.normpath(Path(options.file).absolute())
    if language_of(path) is None:
        raise UsageError(f"{options.file} holds no kernels: name a .py, .cu or .cuh file")
    uri = uri_of(path)
    try:
        session.open(uri, 1, regular_files.text(path, limits.SOURCE))
    except (OSError, ValueError) as error:
        raise UsageError(f"{options.file} cannot be read: {error}") from None
    known = {target.key: target for target, _, _ in session.kernels(uri)}
    fitting = [key for key in known if options.kernel in (None, key, key.rpartition(".")[2])]
    if len(fitting) == 1:
        return known[fitting[0]]
    if not fitting:
        raise UsageError(f"no kernel {options.kernel!r}{did_you_mean(options.kernel or '', list(known))}")
    raise UsageError(f"{options.file} has several kernels: name one, as in --kernel {fitting[0]}")


def _report(finished: c.Finished, kernel: str, driver: Driver, launched: Sequence[c.Launches]) -> None:
    lines = [f"note: {remark}" for remark in finished.remarks]
    if finished.launches:
        lines += [exec_command.kernel_table(finished.launches)]
    if failure := finished.failure:
        at = f"{failure.place.file}:{failure.place.line}: " if failure.place else ""
        first = failure.message.partition("\n")[0]
        lines += [f"{at}error: {first} [{finished.outcome}]"]
        lines += [terminal_text.indented(failure.remedy)] if failure.remedy else []
    if launched:
        count = sum(each.count for each in launched)
        longest = max(launched, key=lambda each: each.count * each.timing.median)
        lines += [f"{kernel}: {units.timing(longest.timing)}, {count} launches, via {driver.id}"]
    elif finished.outcome not in ("infrastructure", "cancelled"):  # then the driver was not run to its end
        lines += [f"{kernel}: not launched by {driver.id}"]
    print(visible("\n".join(lines)), file=sys.stderr)
