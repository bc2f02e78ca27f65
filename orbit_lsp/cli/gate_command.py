"""`orbit-lsp gate`: compares the kernels of a change with their base, for CI."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from pathlib import Path

from orbit_lsp.cli import json_results, terminal_text
from orbit_lsp.cli.terminal_text import UsageError
from orbit_lsp.cli.terminal_watcher import TerminalWatcher
from orbit_lsp.engine.engine import Engine
from orbit_lsp.gate import changes, gate
from orbit_lsp.gate.gate import GateOptions
from orbit_lsp.gate.gate_store import GateStore
from orbit_lsp.gate.results import GateResult
from orbit_lsp.history import git
from orbit_lsp.history.variants import NoVariantError
from orbit_lsp.report import gate_history, gate_report, page
from orbit_lsp.runs import summary
from orbit_lsp.state import user_folders
from orbit_remote.common import messages as c
from orbit_remote.common.evidence.sign_bets import GateQuestion
from orbit_remote.common.plain_text import visible

FORMS = ("markdown", "junit", "sarif")


async def run(options: argparse.Namespace, engine: Engine, watcher: TerminalWatcher) -> int:
    """Run a gate. Return the exit code. Raises UsageError."""
    paths, files, question = _paths(options), _files(options), _question(options)
    if options.history:
        return await asyncio.to_thread(_history, options.history, paths[0])
    await engine.places.look_around()
    terminal_text.check_gpu(engine.session, options.gpu)

    def say(text: str) -> None:
        watcher.clear()
        print(visible(f"gate: {text}"), file=sys.stderr, flush=True)

    said: set[str] = set()

    def show(text: str) -> None:
        """Show a state. In a log, show one that comes again for each of a thousand runs only once."""
        if text not in said or terminal_text.escapes(sys.stderr):
            said.add(text)
            watcher.show("gate", "running", text)

    wanted = GateOptions(
        paths,
        options.base,
        options.every,
        question,
        options.fail_inconclusive,
        options.again,
        options.profile,
        options.limit,
    )
    store = GateStore(user_folders.gate_file, terminal_text.warn)
    try:
        result = await gate.perform(engine, store, wanted, say, show, terminal_text.warn)
    except (git.GitError, changes.NoBaseError) as error:
        return _failed(options, str(error))
    except NoVariantError as reason:
        return _failed(options, str(reason))
    finally:
        watcher.clear()
    if options.json:
        print(json_results.text(result))
    elif "-" not in files.values():
        print(visible(gate_report.text(result)))
    _write(result, files)
    if result.failure and result.failure.remedy:
        print(terminal_text.indented(result.failure.remedy), file=sys.stderr)
    if result.cost:
        print(summary.cost(result.cost), file=sys.stderr)
    return result.exit_code


def _history(name: str, path: str) -> int:
    """Write the gates of the repository that a path is in as a page. Raises UsageError and OSError. Blocking."""
    out = Path(name)
    if not out.absolute().parent.is_dir():
        raise UsageError(f"{name} cannot be written: its folder does not exist")
    folder = path if Path(path).is_dir() else str(Path(path).parent)
    every = GateStore(user_folders.gate_file, terminal_text.warn).every()
    try:
        here = git.known(folder, list({result.head for result in every})) if every else set[str]()
    except git.GitError as error:
        print(visible(f"orbit-lsp: error: {error}"), file=sys.stderr)
        return c.EXIT_CODES["infrastructure"]
    gates = [result for result in every if result.head in here]
    if not gates:
        print(
            visible(f"orbit-lsp: error: no gate of the repository of {folder} is recorded"), file=sys.stderr
        )
        return c.EXIT_CODES["infrastructure"]
    out.write_text(page.html(gate_history.page(gates, Path(folder).name)), encoding="utf-8", errors="replace")
    print(visible(f"{len(gates)} gate{'' if len(gates) == 1 else 's'} in {name}"))
    return 0


def _paths(options: argparse.Namespace) -> list[str]:
    """Return absolute paths. Raises UsageError."""
    for given in options.paths:
        if not Path(given).exists():
            raise UsageError(f"there is no file or folder {given}")
    return [os.path.normpath(Path(path).absolute()) for path in options.paths or [os.curdir]]


def _files(options: argparse.Namespace) -> dict[str, str]:
    """Return the file of each form that is asked for, `-` for standard output. Raises UsageError."""
    files = {form: name for form in FORMS if (name := getattr(options, form))}
    for name in files.values():
        if name != "-" and not Path(name).absolute().parent.is_dir():
            raise UsageError(f"{name} cannot be written: its folder does not exist")
        if Path(name).is_dir():
            raise UsageError(f"{name} cannot be written: it is a folder")
    if list(files.values()).count("-") + options.json > 1:
        raise UsageError("standard output takes one report: name files for the others")
    return files


def _write(result: GateResult, files: dict[str, str]) -> None:
    """Raises OSError."""
    for form, text in gate_report.written(result, list(files)).items():
        if files[form] == "-":
            sys.stdout.write(text)
        else:
            Path(files[form]).write_text(text, encoding="utf-8", errors="replace")


def _question(options: argparse.Namespace) -> GateQuestion:
    """Raises UsageError."""
    if options.find <= options.margin:
        raise UsageError(
            f"--find must be more than --margin, {100 * options.margin:g}%: less is never called slower"
        )
    if not 10 <= options.pairs <= 1000:
        raise UsageError("--pairs is a number from 10 to 1000")
    if options.limit is not None and not options.limit > 0:
        raise UsageError("--limit is a number of seconds")
    return GateQuestion(1, options.false_alarm, options.find, margin=options.margin, most_pairs=options.pairs)


def _failed(options: argparse.Namespace, text: str) -> int:
    if options.json:
        print(json_results.failure("infrastructure", text))
    print(visible(f"orbit-lsp: error: {text}"), file=sys.stderr)
    return c.EXIT_CODES["infrastructure"]
