"""A job and what it came to, as text and as JSON: the same in a terminal, for a model, and over HTTP.

The order of lines is fixed, so that two results can be compared line by line.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from orbit_lsp.queue.job_queue import Followed
from orbit_lsp.queue.job_store import Job, JobStore, Result
from orbit_lsp.queue.request import VERSION
from orbit_lsp.runs import summary
from orbit_remote.common import codec
from orbit_remote.common.plain_text import visible

_NOTES = 3


def result_of(store: JobStore, job: Job) -> Result | None:
    """None where there is none yet, or none that this version reads."""
    stored = store.result(job.id)
    try:
        return codec.build(Result, stored, lenient=True) if stored else None
    except ValueError:
        return None


def as_json(store: JobStore, followed: Followed, *, whole: bool = True) -> dict[str, Any]:
    """The record of a job; `whole`: with its result, which is null until it has ended."""
    job = followed.job
    record: dict[str, Any] = {"version": VERSION, **dataclasses.asdict(job), "position": followed.position}
    del record["owner"]
    if whole:
        record["result"] = store.result(job.id) if job.over else None
    return record


def line(job: Job, position: int | None = None) -> str:
    """`3f2a91c04b7d1e55  done     ok  run saxpy.cu: saxpy 288 µs`"""
    state = job.outcome or ("cancelling" if job.cancelling else job.state)
    name = job.file.rpartition("/")[2] + (f" {job.kernel}" if job.kernel else "")
    if job.over:
        more = job.summary.removeprefix(f"{job.outcome}: ")
    else:
        place = f"{position} before it" if position else ""
        more = ", ".join(filter(None, (place, job.why, f"on {job.slot}" if job.slot else "")))
    return visible(f"{job.id}  {state:<14}  {job.action} {name}" + (f": {more}" if more else ""))


def lines(job: Job, result: Result | None, position: int | None = None) -> list[str]:
    """All that is known of a job: its outcome, errors as `file:line:column: error: …`, then numbers with their sources."""
    found = [line(job, position)]
    if result is None:
        return found
    failure = result.finished.failure
    if failure:
        found += [f"{result.finished.outcome}: {failure.message}"]
        found += [f"what to do: {failure.remedy}"] if failure.remedy else []
    for problem in result.problems:
        shown = summary.problem_lines(problem)
        found += shown[: 1 + _NOTES]
    if result.finished.stderr and result.finished.outcome != "ok":
        found += ["the program's standard error ended with:", *result.finished.stderr.splitlines()[-5:]]
    found += result.text.splitlines()
    found += [f"note: {remark}" for remark in result.finished.remarks]
    if result.finished.cost:
        found.append(f"cost: {summary.cost(result.finished.cost)}")
    if result.report:
        found.append(f"report: {result.report}")
    if result.profile:
        found.append(f"for Nsight Compute: {result.profile}")
    return [visible(each) for each in found]
