"""`orbit-lsp run FILE --on H100,L4`: prints a table of several GPUs, as text or JSON."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence

from orbit_lsp.cli import json_results, terminal_text
from orbit_lsp.engine.engine import Engine
from orbit_lsp.runs import summary
from orbit_lsp.runs.multi_gpu import MultiGpu
from orbit_lsp.runs.scheduler import RunWatcher
from orbit_lsp.state.kernel_ids import KernelId
from orbit_lsp.views import gpu_table, tables
from orbit_remote.common import messages as c
from orbit_remote.common.plain_text import visible


async def run(
    engine: Engine,
    watcher: RunWatcher,
    uri: str,
    targets: Sequence[KernelId | None],
    gpus: Sequence[str],
    *,
    as_json: bool,
) -> int:
    """Run on several GPUs. Return the exit code of the first GPU, in their order, that did not end well."""
    session, scheduler = engine.session, engine.runs
    multi_gpu = MultiGpu(session, engine.places, scheduler, watcher)
    code = 0
    ended: list[c.Finished] = []
    for target in targets:
        started = multi_gpu.start(uri, target, gpus)
        assert started is not None
        finished = await scheduler.result(started)
        ended.append(finished)
        wrong = [
            row.finished
            for comparison in session.results.multi_gpu.values()
            for row in comparison.rows
            if row.finished.outcome != "ok"
        ]
        code = code or c.EXIT_CODES[next(iter(wrong), finished).outcome]
        if not as_json:
            _say(finished)
    results = session.results.multi_gpu.items()
    if as_json and not results:  # it came to no GPU
        print(json_results.text(ended))
        return code
    if as_json:
        every = [gpu_table.as_json(target.key, result) for target, result in results]
        print(json_results.text(every))
        return code
    for target, result in results:
        table = gpu_table.table(result, target.key, time.time(), stale=False)
        print(visible(tables.render([table], markdown=False)), end="\n\n")
    return code


def _say(finished: c.Finished) -> None:
    print(visible(summary.one_line(finished, compiled_only=False)), file=sys.stderr)
    for remark in finished.remarks:
        print(f"  {visible(remark)}", file=sys.stderr)
    if finished.failure and finished.failure.remedy:
        print(terminal_text.indented(finished.failure.remedy), file=sys.stderr)
