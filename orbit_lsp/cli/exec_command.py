"""`orbit-lsp exec`: any Python script or program on this machine's GPU or a rented one, with the times of its kernels."""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import shutil
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from orbit_lsp import closure
from orbit_lsp.cli import json_results, terminal_text
from orbit_lsp.cli.command_options import LIMITS
from orbit_lsp.cli.terminal_text import UsageError, check_gpu
from orbit_lsp.cli.terminal_watcher import TerminalWatcher
from orbit_lsp.closure.tree import OUTSIDE, below
from orbit_lsp.engine.engine import Engine
from orbit_lsp.history import script_runs
from orbit_lsp.kernels import CUDA_SUFFIXES
from orbit_lsp.runs import summary
from orbit_lsp.state import modal_gpus, ssh_hosts, units
from orbit_lsp.state.session import Session
from orbit_remote.common import brought_files, limits, regular_files
from orbit_remote.common import messages as c
from orbit_remote.common.plain_text import visible
from orbit_remote.common.requests import ExecStart, Job

SNIPPET = "_orbit_exec.py"
"""The name of code that is not in a file: Triton and tracebacks look its lines up."""
AT_THE_LIMIT = 124
"""The exit code of timeout(1), which scripts know."""
_ROWS = 20
_NAME_CHARS = 60
"""The longest name in the table: its numbers still fit into a terminal of 120 columns."""
_BY_PYTHON = re.compile(r"#!(?:[^\n]*python|/bin/sh\n'''exec')")
_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)


def settle(options: argparse.Namespace) -> None:
    """Make other options of what stands for them."""
    if options.on == "local":
        options.runner = "local"
    elif options.on and options.on.startswith(ssh_hosts.PREFIX):
        options.runner = options.on
    elif options.on:
        options.runner, options.gpu = "modal", options.on
    if options.run_timeout_s is None:
        options.run_timeout_s = LIMITS["smoke"]


async def run(
    options: argparse.Namespace,
    engine: Engine,
    watcher: TerminalWatcher,
) -> int:
    """Run a program. Return its exit code, or that of the failure that kept it from ending. Raises UsageError."""
    session, places, runs = engine.session, engine.places, engine.runs
    job = _job(options, session, runs.new_id(), places.python.path)
    await places.look_around()
    check_gpu(session, options.gpu)
    job, remarks = await _placed(job, session, in_place=options.in_place, may_rent=options.over_budget)
    title = Path(job.path).name if job.path != str(Path(job.directory or "", SNIPPET)) else "exec"
    finished = await runs.outcome(job, watcher.hears(title))
    await script_runs.keep(session, engine.history, job, finished)
    written, unwritten = await asyncio.to_thread(
        brought_files.write, Path(job.directory or ""), finished.brought, tuple(options.bring)
    )
    finished = replace(finished, brought=written, remarks=(*remarks, *finished.remarks, *unwritten))
    if finished.failure and finished.outcome == "timed out":
        finished = replace(
            finished, failure=replace(finished.failure, remedy="raise --limit, or look for an endless loop")
        )
    if options.json:
        print(json_results.text(finished))
    else:
        _report(finished)
    return exit_code(finished)


def exit_code(finished: c.Finished) -> int:
    """Return the program's own exit code, as a shell has it, if it came to its end. A run that was not ok never
    returns 0.
    """
    status = finished.exit_code
    if finished.outcome == "timed out":
        return AT_THE_LIMIT
    if status is None or finished.outcome in ("infrastructure", "cancelled"):
        return c.EXIT_CODES[finished.outcome]
    return (status if status >= 0 else 128 - status) or c.EXIT_CODES[finished.outcome]


# -- the job ------------------------------------------------------------------------------------------


def _job(options: argparse.Namespace, session: Session, run: str, python: str) -> Job:
    """Raises UsageError."""
    settings = session.setup.settings
    folder = str(Path(options.mount).resolve()) if options.mount else next(iter(session.setup.folders), "")
    if not folder or not Path(folder).is_dir():
        raise UsageError(f"{options.mount or 'the current folder'} is not a folder, so nothing can run in it")
    installed = _installed(options.file, python) if options.code is None and options.file else None
    if installed:
        path, text, arguments = *_of_installed(installed, folder, python), options.arguments
    else:
        path, text, arguments = _program(options, folder)
    for pattern in options.bring:
        try:
            brought_files.parts_of(pattern)
        except ValueError as error:
            raise UsageError(f"--bring {error}") from None
    if options.in_place and options.bring:
        raise UsageError("--bring has no use with --in-place: files are written to the folder itself")
    setup = session.setup
    if installed and not text and (setup.host or setup.place() == "modal"):
        raise UsageError(
            f"{installed} is a program of this machine, which {setup.host or 'a rented GPU'} does not have: give a script, or a program in {folder}"
        )
    if not (options.in_place or installed) and below(path, folder) is None:
        raise UsageError(f"{options.file} is not in {folder}; add --mount with a folder that holds it")
    return Job(
        run=run,
        action="run",
        language="triton",
        path=path,
        text=text,
        directory=folder,
        arguments=tuple(arguments),
        nvcc=settings.nvcc or None,
        device=settings.device,
        run_timeout_s=settings.run_timeout_s,
        start=ExecStart("" if options.in_place else folder, bring=tuple(options.bring)),
        variables=tuple(_variable(given) for given in options.variables),
    )


def _installed(name: str, python: str) -> str | None:
    """Return the program of this name beside the chosen Python, else on PATH. Return None for a path, or a file of
    the current folder.
    """
    if os.path.basename(name) != name or name == "-" or os.path.exists(name):  # noqa: PTH110, PTH119 - also of a name that is no path
        return None
    return shutil.which(name, path=str(Path(python).parent)) or shutil.which(name)


def _of_installed(program: str, folder: str, python: str) -> tuple[str, str]:
    """Return (path, text of a script). The chosen Python runs a script beside it, as pip writes them, like any other
    script.
    """
    if Path(program).parent == Path(python).parent:
        with suppress(OSError):
            text = regular_files.text(program, limits.SOURCE)
            if _BY_PYTHON.match(text):
                return str(Path(folder, SNIPPET)), text
    return program, ""


def _program(options: argparse.Namespace, folder: str) -> tuple[str, str, Sequence[str]]:
    """Return (path, text of a script, arguments). Raises UsageError."""
    snippet = str(Path(folder, SNIPPET))
    if options.code is not None:  # as Python has it, what follows is the code's
        return snippet, options.code, [*([options.file] if options.file else []), *options.arguments]
    if options.file is None:
        raise UsageError("nothing to run: give a file, -c CODE, or - for code from standard input")
    if options.file == "-":
        code = sys.stdin.read(limits.SOURCE.most + 1)
        if len(code) > limits.SOURCE.most:
            raise UsageError(f"the code of standard input is too long: {limits.SOURCE.exceeded}")
        return snippet, code, options.arguments
    try:
        path = str(Path(options.file).resolve())
        if path.lower().endswith(".py"):
            return path, regular_files.text(path, limits.SOURCE), options.arguments
        regular_files.opened(path).close()
    except FileNotFoundError:
        where = (
            ""
            if {"/", "."} & set(options.file)
            else ", and no program of that name on PATH or beside the chosen Python"
        )
        raise UsageError(f"there is no file {options.file}{where}") from None
    except (
        OSError,
        ValueError,
        RuntimeError,
    ) as error:  # RuntimeError: a link to itself, in Python 3.12 and older
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise UsageError(f"{options.file} cannot be read: {why}") from None
    if path.lower().endswith(CUDA_SUFFIXES):
        raise UsageError(f"{options.file} has to be built first: orbit-lsp run builds and runs it")
    if not os.access(path, os.X_OK):
        raise UsageError(f"{options.file} is neither a .py file nor a program; chmod +x makes it a program")
    return path, "", options.arguments


def _variable(given: str) -> str:
    """Return `NAME=value`, also for a name alone. Raises UsageError."""
    name, equals, value = given.partition("=")
    if not _NAME.fullmatch(name) or name.startswith("MODAL_"):
        raise UsageError(f"--env {name!r:.60} is not a variable that a program may get")
    if not equals and name not in os.environ:
        raise UsageError(f"--env {name}: there is no such variable; --env {name}=VALUE gives it a value")
    return f"{name}={value if equals else os.environ[name]}"


async def _placed(
    job: Job, session: Session, *, in_place: bool, may_rent: bool
) -> tuple[Job, tuple[str, ...]]:
    """Return the job for the machine that it goes to, and remarks on files that are not sent. `may_rent`: without a
    budget too. Raises UsageError.
    """
    setup = session.setup
    if setup.place() == "modal":
        if in_place:
            raise UsageError("--in-place is for this machine's own GPU; a rented one gets a copy")
        if not setup.settings.modal.budget_usd and not may_rent:
            raise UsageError(
                f"exec would rent a GPU ({setup.settings.gpu}): add what rented GPUs may cost in a month, as in --budget 20 (dollars)"
            )
        own = tuple(f"{name}={os.environ[name]}" for name in setup.settings.environment if name in os.environ)
        return replace(job, gpu=setup.settings.gpu, variables=(*own, *job.variables)), ()
    job = replace(job, gpus=modal_gpus.count(setup.settings.gpu))
    if setup.host:
        if in_place:
            raise UsageError(f"--in-place is for this machine's own GPU; {setup.host} gets a copy")
        return job, ()
    if in_place:
        return job, ()
    assert isinstance(job.start, ExecStart)
    mount = job.start.mount
    inside = below(job.path, mount) is not None
    # a program of PATH is not copied; the tree is made as for a script alone in its folder
    copied = job if inside else replace(job, path=str(Path(mount, SNIPPET)), text="")
    tree = await asyncio.to_thread(
        closure.closure, copied, [mount], data=(), limit=setup.settings.modal.files_mib << 20
    )
    if tree.refusal:
        raise UsageError(f"{tree.refusal} --in-place runs without a copy")
    files = tuple(
        name for name in tree.manifest.files if not name.startswith(OUTSIDE) and (inside or name != SNIPPET)
    )
    return replace(job, start=replace(job.start, files=files)), tree.remarks


# -- what is printed ----------------------------------------------------------------------------------


def _report(finished: c.Finished) -> None:
    """Print a report on standard error: standard output is the program's."""
    lines = [f"note: {remark}" for remark in finished.remarks]
    if finished.launches:
        lines += [kernel_table(finished.launches)]
    lines += [f"brought back {file.path}, {units.size(file.size)}" for file in finished.brought]
    failure = finished.failure
    if failure and (finished.exit_code is None or finished.exit_code == 0 or finished.problems):
        lines += [f"orbit-lsp: error: {failure.message} [{finished.outcome}]"]
        lines += [terminal_text.indented(failure.remedy)] if failure.remedy else []
    if finished.exit_code is not None:
        took = f" after {finished.run_s:.2f} s" if finished.run_s is not None else ""
        lines += [f"exit code {exit_code(finished)}{took}"]
    if finished.cost:
        lines += [summary.cost(finished.cost)]
    print(visible("\n".join(lines)), file=sys.stderr)


def _cut(name: str) -> str:
    """Cut the end of a long name: kernels of templates have names of 2,000 characters."""
    return name if len(name) <= _NAME_CHARS else f"{name[: _NAME_CHARS - 1]}…"


def kernel_table(launches: Sequence[c.Launches]) -> str:
    from orbit_lsp.views import tables

    longest = sorted(launches, key=lambda each: -each.count * each.timing.median)
    rows = tuple(
        (_cut(each.name), str(each.count), units.timing(each.timing), "x".join(map(str, each.grid)), "x".join(map(str, each.block)))
        for each in longest[:_ROWS]
    )  # fmt: skip
    more = f", the first {_ROWS} of {len(launches)}" if len(launches) > _ROWS else ""
    table = tables.Table(
        f"kernels, longest in total first{more}", ("kernel", "launches", "median", "grid", "block"), rows
    )
    return tables.render([table], markdown=False)
