"""`orbit-lsp compare` and `orbit-lsp history`: text or JSON."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from orbit_lsp import kernels
from orbit_lsp.cli import json_results, terminal_text
from orbit_lsp.cli.terminal_text import UsageError, check_gpu, only_kernel
from orbit_lsp.engine.engine import Engine
from orbit_lsp.history.ab_compare import AbCompare
from orbit_lsp.history.compare_candidates import Candidate
from orbit_lsp.history.history_store import HistoryEntry
from orbit_lsp.history.history_tracker import HistoryTracker
from orbit_lsp.history.version_groups import grouped, regression
from orbit_lsp.report import results_json
from orbit_lsp.runners.modal import spending
from orbit_lsp.runs import summary
from orbit_lsp.runs.scheduler import RunWatcher
from orbit_lsp.state import harness, modal_gpus
from orbit_lsp.state.kernel_ids import KernelId
from orbit_lsp.state.session import path_of
from orbit_lsp.views import ab_table, kernel_status, version_table
from orbit_lsp.views import tables as table_text
from orbit_remote.common import messages as c
from orbit_remote.common.plain_text import visible

# -- compare ----------------------------------------------------------------------------------------


async def compare(
    options: argparse.Namespace,
    engine: Engine,
    watcher: RunWatcher,
    uri: str,
    target: KernelId | None,
) -> int:
    """Compare a kernel. Return the exit code. Raises UsageError."""
    session, places = engine.session, engine.places
    wanted = other(options)
    checked = harness.of(session, uri)
    kernel = target or only_kernel([checked.target] if checked else kernel_status.launchable(session, uri))
    if wanted.kind == "kernel":
        known = [kernel.key for kernel, _, _ in session.kernels(uri)]
        if not any(wanted.name in (key, key.rpartition("::")[2]) for key in known):
            raise UsageError(f"there is no kernel {wanted.name} in this file; it has: {', '.join(known)}")
    if wanted.kind == "gpu" and not modal_gpus.rented(wanted.name):
        raise UsageError(modal_gpus.refusal(wanted.name))
    await places.look_around()
    check_gpu(session, options.gpu)
    run = AbCompare(session, places, engine.history, engine.runs, watcher).start(kernel, wanted)
    assert run
    finished = await engine.runs.result(run)
    name = harness.named(kernel) or kernel.key
    versus = session.results.ab.get(kernel)
    if options.json and versus:
        _print_json(results_json.compared(name, versus))
    elif versus and (tables := ab_table.tables(name, versus, time.time(), stale=False)):
        print(visible(table_text.render(tables, markdown=False)))
    if finished.failure:
        print(visible(f"orbit-lsp: error: {finished.failure.message} [{finished.outcome}]"), file=sys.stderr)
        if finished.failure.remedy:
            print(terminal_text.indented(finished.failure.remedy), file=sys.stderr)
    elif spent := spending.total([versus.cost if versus else None]):
        print(summary.cost(spent), file=sys.stderr)
    return c.EXIT_CODES[finished.outcome]


def other(options: argparse.Namespace) -> Candidate:
    """Return what the options name. Raises UsageError if they name two things."""
    named = [
        Candidate("kernel", options.with_kernel) if options.with_kernel else None,
        Candidate("gpu", options.with_gpu) if options.with_gpu else None,
        file_or_revision(options.against) if options.against else None,
    ]
    candidates = [candidate for candidate in named if candidate]
    if len(candidates) > 1:
        raise UsageError("give only one of --with, --with-kernel and --with-gpu")
    return candidates[0] if candidates else Candidate("last")


def file_or_revision(name: str) -> Candidate:
    """Return what `--with` names: `last`, a source file that exists, else a git revision. Raises UsageError."""
    if name == "last":
        return Candidate("last")
    path = Path(name)  # one without a suffix, as a file HEAD or main, is no source
    if path.suffix and path.exists():
        return Candidate("file", name)
    if kernels.language_of(name):
        raise UsageError(f"there is no file {name} to compare with")
    return Candidate("revision", name)


# -- history ----------------------------------------------------------------------------------------


async def history(options: argparse.Namespace, versions: HistoryTracker, uri: str) -> int:
    """Print the history of a file. A kernel that is no longer in the file still has its history. Return the exit
    code. Raises UsageError.
    """
    path = path_of(uri)
    by_kernel: dict[str, list[HistoryEntry]] = {}
    for entry in await versions.entries(path):
        by_kernel.setdefault(entry.kernel, []).append(entry)
    if options.kernel:
        by_kernel = {
            name: entries
            for name, entries in by_kernel.items()
            if options.kernel in (name, name.rpartition("::")[2], harness.named(KernelId(uri, name)))
        }
        if not by_kernel:
            raise UsageError(f"the history has no run of {options.kernel} in {path}")
    if options.text is not None:
        return await _text(versions, by_kernel, options.text)
    if options.json:
        histories = [results_json.kernel_history(name, entries) for name, entries in by_kernel.items()]
        _print_json(results_json.FileHistory(path, tuple(histories)))
        return 0
    if not by_kernel:
        print(visible(f"the history has no run of a kernel in {path}"))
    for name, entries in by_kernel.items():
        table = version_table.table(entries, harness.named(KernelId(uri, name)) or name)
        print(visible(table_text.render([table], markdown=False)))
        if histories := regression(entries):
            from orbit_lsp.views import lenses  # 0.2 s of lsprotocol

            print(f"  {visible(lenses.regression(histories))}")
        print()
    return 0


async def _text(versions: HistoryTracker, by_kernel: dict[str, list[HistoryEntry]], number: int) -> int:
    """Print the file as it was when a version of its one kernel ran."""
    if len(by_kernel) != 1:
        raise UsageError("--text needs one kernel: add --kernel")
    (entries,) = by_kernel.values()
    known = grouped(entries)
    if not 1 <= number <= len(known):
        raise UsageError(f"there is no version {number}: the history has 1 to {len(known)}")
    text = await versions.text(known[number - 1].runs[-1].text)
    if text is None:
        raise UsageError(f"the text of version {number} is not kept")
    sys.stdout.write(text)
    return 0


def _print_json(value: results_json.Compared | results_json.FileHistory) -> None:
    print(json_results.text(value))
