"""The texts for a worker and a reviewer: the task, what is known, the rules, and the file to write."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from orbit_lsp.agents.loop import history
from orbit_lsp.agents.loop.judge import LoopTarget
from orbit_lsp.agents.loop.records import FILES, Iteration
from orbit_lsp.agents.loop.subject import LoopSubject
from orbit_lsp.state import units

_SHOWN = 8

_WORKER = """\
Iteration {number}: make {name} in {path} faster.

Best time so far: {best}. {target}
Change {path} and no other file; of the launch spec only its `launch` lines. Make one change that means something.
`orbit-lsp run {path} --kernel {name}` checks and times it, `orbit-lsp profile` counts what limits it.

Then write {result} (`orbit-lsp schema worker` prints its schema):
{{"version": 1, "iteration": {number}, "kernel_path": {quoted}, "tests_passed": true, "benchmark_passed": true,
 "metric_name": "{metric}", "metric_value": null, "decision": "KEEP", "artifacts": [], "errors": [], "summary": "what you changed"}}
`metric_value` is what you measured, or null. `decision` REVERT withdraws the change. `artifacts` are files in {folder}.

The loop then measures the change against the best version, in turn, and keeps it only if it is faster beyond noise.
A metric_value that its measurement contradicts is an evidence error, and so is a change of any other file that the run uses.
"""
_REVIEWER = """\
Iteration {number} of {name} in {path}: judge the evidence.

The worker's change: {folder}/change.patch. Its own words: {folder}/worker_result.json.
The loop's measurement: {folder}/measurement.json: {outcome}; {reason}
{target}

Write {result} (`orbit-lsp schema reviewer` prints its schema):
{{"version": 1, "iteration": {number}, "verdict": "CONTINUE", "confidence": "medium", "reason": "…", "next_change_hint": "…",
 "requires_revert": false}}
`verdict` is CONTINUE, STOP_TARGET_REACHED, STOP_NO_PROGRESS or STOP_BLOCKED. `requires_revert` reverts a change that is faster but
must not stay, such as one that computes less than it should.
"""


def worker(
    subject: LoopSubject,
    folder: Path,
    number: int,
    target: LoopTarget,
    rows: Sequence[Iteration],
    start_ns: float | None,
) -> str:
    best = history.best_ns(rows, start_ns)
    text = _WORKER.format(
        number=number, name=subject.name, path=subject.path, quoted=json.dumps(str(subject.path)), best="unknown" if best is None else units.time(best), target=_aim(target),
        result=folder / FILES["worker"], metric=target.metric, folder=folder,
    )  # fmt: skip
    if rows and rows[-1].hint:
        text += f"\nThe reviewer's hint: {rows[-1].hint}\n"
    if rows:
        text += "\nBefore:\n" + "".join(
            f"{row.iteration}. {row.decision}, {row.outcome}: {row.summary} ({row.reason})\n"
            for row in rows[-_SHOWN:]
        )
    return text


def reviewer(subject: LoopSubject, folder: Path, number: int, target: LoopTarget, row: Iteration) -> str:
    return _REVIEWER.format(
        number=number, name=subject.name, path=subject.path, folder=folder, outcome=row.outcome, reason=row.reason, target=_aim(target),
        result=folder / FILES["reviewer"],
    )  # fmt: skip


def _aim(target: LoopTarget) -> str:
    return (
        f"The target: {target.metric} of at most {target.threshold:g}."
        if target.threshold is not None
        else ""
    )
