"""`orbit-lsp trace FILE`: keeps torch.profiler's trace of a run as a file, and shows its kernels and operators as
tables.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import sys
from dataclasses import replace
from pathlib import Path

from orbit_lsp.cli import json_results, terminal_text
from orbit_lsp.cli.exec_command import kernel_table
from orbit_lsp.cli.json_results import Trace
from orbit_lsp.cli.terminal_text import UsageError, check_gpu
from orbit_lsp.cli.terminal_watcher import TerminalWatcher
from orbit_lsp.engine.engine import Engine
from orbit_lsp.profile import report_folder, report_store
from orbit_lsp.runs import summary
from orbit_lsp.specs import job_builder
from orbit_lsp.state import units, user_folders
from orbit_lsp.state.session import path_of
from orbit_lsp.views import tables
from orbit_remote.common import messages as c
from orbit_remote.common.plain_text import visible
from orbit_remote.common.requests import ProgramStart

_ROWS = 15


async def run(
    options: argparse.Namespace,
    engine: Engine,
    watcher: TerminalWatcher,
    uri: str,
) -> int:
    """Trace a run. Return the exit code. Raises UsageError."""
    session, runs = engine.session, engine.runs
    frozen = session.freeze(uri)
    assert frozen
    if frozen.scan.language != "triton":
        raise UsageError(f"{options.file} is not a Python file: torch.profiler traces Python files only")
    await engine.places.look_around()
    check_gpu(session, options.gpu)
    job = replace(job_builder.make(session, frozen, "run", runs.new_id()), start=ProgramStart(traced=True))
    finished = await runs.outcome(job, watcher.hears(Path(job.path).name))
    kept, finished = await asyncio.to_thread(
        _kept, user_folders.report_folder(), finished, Path(job.path).stem
    )
    if options.json:
        print(json_results.text(Trace(str(kept) if kept else None, finished)))
        return c.EXIT_CODES[finished.outcome]
    if finished.launches:
        print(visible(kernel_table(finished.launches)), end="\n\n")
    if finished.operators:
        print(visible(_operators(finished.operators)), end="\n\n")
    for remark in finished.remarks:
        print(visible(f"note: {remark}"), file=sys.stderr)
    if finished.failure:
        lines = [
            line for problem in finished.problems for line in summary.problem_lines(problem, path_of(uri))
        ]
        lines += [f"orbit-lsp: error: {finished.failure.message} [{finished.outcome}]"]
        lines += [terminal_text.indented(finished.failure.remedy)] if finished.failure.remedy else []
        print(visible("\n".join(lines)), file=sys.stderr)
    if kept:
        print(
            f"the trace is kept; to see it, open ui.perfetto.dev in a browser, and there this file: {kept}",
            file=sys.stderr,
        )
    return c.EXIT_CODES[finished.outcome]


def _kept(folder: Path, finished: c.Finished, name: str) -> tuple[Path | None, c.Finished]:
    """Write the trace to a file. Return its path, and the result without it. Raises OSError."""
    if not finished.report:
        return None, finished
    emptied = replace(finished, report="")
    try:
        trace = report_store.unpack(finished.report)
    except report_store.NotKeptError as why:
        return None, replace(emptied, remarks=(*finished.remarks, str(why)))
    return report_folder.save(folder, f"{name}-trace", gzip.compress(trace, 1), "json.gz"), emptied


def _operators(operators: tuple[c.Operator, ...]) -> str:
    rows = tuple((each.name, str(each.calls), units.time(each.self_ns)) for each in operators[:_ROWS])
    title = "operators on the CPU, longest first, without the operators that they call"
    return tables.render([tables.Table(title, ("operator", "calls", "time"), rows)], markdown=False)
