"""A job and its result as text and as JSON, the same in a terminal, for a model, and over HTTP.

The order of lines is fixed, so that two results can be compared line by line.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, cast

from orbit_lsp.queue import compiled_code
from orbit_lsp.queue.job_queue import Followed
from orbit_lsp.queue.job_store import JobStore, Result, StoredJob
from orbit_lsp.queue.request import VERSION
from orbit_lsp.runs import summary
from orbit_remote.common import codec
from orbit_remote.common import messages as c
from orbit_remote.common.plain_text import in_a_line, visible

_NOTES = 3
GRADE_WHY = (
    "author: the candidate's code shares the process that measures it, so deceptive code may succeed; this is a help for authors, "
    "not a referee"
)
_BY_AUTHOR = c.Judged("author", GRADE_WHY)
_UNMEASURED = {"grade": None, "grade_why": "nothing was measured"}
_MEASURED = ("launches", "points", "profiles")
"""Fields of a `Finished` of which one is not empty where something was measured or checked."""


def result_of(store: JobStore, job: StoredJob) -> Result | None:
    """Return a job's result. Return None if there is none yet, or none that this version can read."""
    stored = store.result(job.id)
    return read(stored) if stored else None


def read(stored: Mapping[str, Any]) -> Result | None:
    """Read a stored result. Return None for one that this version cannot read. `judged` is set if something was
    measured.
    """
    try:
        result = codec.build(Result, stored, lenient=True)
    except ValueError:
        return None
    if result.finished.judged or not _measured(stored):
        return result
    return dataclasses.replace(result, finished=dataclasses.replace(result.finished, judged=_BY_AUTHOR))


def _measured(stored: Mapping[str, Any]) -> bool:
    finished: Any = stored.get("finished")
    return isinstance(finished, dict) and any(
        cast("dict[str, Any]", finished).get(name) for name in _MEASURED
    )


def as_json(store: JobStore, followed: Followed, *, whole: bool = True) -> dict[str, Any]:
    """Return the record of a job. `whole`: with its result, which is null until it has ended."""
    job = followed.job
    record: dict[str, Any] = {"version": VERSION, **dataclasses.asdict(job), "position": followed.position}
    del record["owner"]
    record |= {"waited_s": job.waited_s} | predicted(followed)
    if whole:
        stored = store.result(job.id) if job.over else None
        record |= _stored_grade(stored) | {"result": stored}
    return record


def predicted(followed: Followed) -> dict[str, Any]:
    """Return how long a job still waits, in seconds, and the share of such predictions that were good so far. Null
    means that it is not known.
    """
    known = followed.predicted
    return {
        "predicted_wait_s": known.wait_s if known else None,
        "predictions_good": known.good if known else None,
        "predictions": known.of if known else None,
    }


def line(job: StoredJob, position: int | None = None) -> str:
    """Return a job in a line: `3f2a91c04b7d1e55 done ok run saxpy.cu: saxpy 288 µs`"""
    state = job.outcome or ("cancelling" if job.cancelling else job.state)
    name = job.file.rpartition("/")[2] + (f" {job.kernel}" if job.kernel else "")
    if job.over:
        more = job.summary.removeprefix(f"{job.outcome}: ")
    else:
        place = f"{position} before it" if position else ""
        more = ", ".join(filter(None, (place, job.why, f"on {job.slot}" if job.slot else "")))
    return in_a_line(f"{job.id}  {state:<14}  {job.action} {name}" + (f": {more}" if more else ""))


def lines(
    job: StoredJob, result: Result | None, position: int | None = None, *, with_code: bool = True
) -> list[str]:
    """Return all that is known of a job: its outcome, errors as `file:line:column: error: …`, numbers with their
    sources, and last what the compiler made, unless it is not wanted.
    """
    texts = [line(job, position)]
    if result is None:
        return texts
    failure = result.finished.failure
    if failure:
        texts += [f"{result.finished.outcome}: {failure.message}"]
        texts += [f"what to do: {failure.remedy}"] if failure.remedy else []
    for problem in result.problems:
        shown = summary.problem_lines(problem)
        texts += shown[: 1 + _NOTES]
    if result.finished.stderr and result.finished.outcome != "ok":
        texts += ["the program's standard error ended with:", *result.finished.stderr.splitlines()[-5:]]
    texts += result.text.splitlines()
    texts += [f"note: {remark}" for remark in result.finished.remarks]
    if result.finished.judged:
        texts.append(f"grade: {graded(result.finished)['grade_why']}")
        if policy := result.finished.judged.policy:
            texts.append(f"no score by the policy {policy.name}: {policy.why}")
    if job.waited_s is not None:
        texts.append(f"waited: {job.waited_s:.1f} s")
    if result.finished.cost:
        texts.append(f"cost: {summary.cost(result.finished.cost)}")
    if result.report:
        texts.append(f"report: {result.report}")
    if result.profile:
        texts.append(f"for Nsight Compute: {result.profile}")
    texts += compiled_code.text(result.code) if with_code else []
    return [visible(each) for each in texts]


def _stored_grade(stored: dict[str, Any] | None) -> dict[str, Any]:
    """Return the grade of a stored result, which another version of orbit-lsp may have written."""
    if stored is None:
        return {"grade": None, "grade_why": "there is no result", **scored(None)}
    finished: Any = stored.get("finished")
    judged: Any = cast("dict[str, Any]", finished).get("judged") if isinstance(finished, dict) else None
    if not isinstance(judged, dict):
        by = _BY_AUTHOR if _measured(stored) else None
        words = {"grade": by.grade, "grade_why": by.why} if by else _UNMEASURED
    else:
        known = cast("dict[str, Any]", judged)
        words = {"grade": known.get("grade"), "grade_why": known.get("why")}
    result = read(stored)
    return words | scored(result.finished if result else None)


def scored(finished: c.Finished | None) -> dict[str, Any]:
    """Return the candidate's time in milliseconds, null if it has no score, and the policy that forbids a score to a
    right answer.
    """
    policy = finished.judged.policy if finished and finished.judged else None
    ns: float | None = None
    if finished and finished.outcome == "ok" and finished.launches and not policy:
        contract = any("version" in point.values for point in finished.points)
        ns = finished.launches[0].timing.median if contract else None
    return {
        "score": milliseconds(ns),
        "policy": policy.name if policy else None,
        "policy_why": policy.why if policy else None,
    }


def graded(finished: c.Finished | None) -> dict[str, Any]:
    """Return the words about how far a result can be trusted, its score, and what the judge saw besides, if there was
    one.
    """
    judged = finished.judged if finished else None
    if judged is None:
        return _UNMEASURED | scored(finished)
    saw: dict[str, Any] = {}
    if judged.beyond:
        saw = {"beyond": [dataclasses.asdict(attempt) for attempt in judged.beyond]}
    if judged.stages:
        saw["stages"] = judged.stages
    if judged.digests:
        saw["digests"] = dataclasses.asdict(judged.digests)
    if judged.rounds:
        saw |= {
            "suspicious": judged.suspicious or None,
            "judge": {
                "rounds": judged.rounds, "clock_ms": milliseconds(judged.flag_ns), "verified_ms": milliseconds(judged.verified_ns),
                "resolution_ms": milliseconds(judged.resolution_ns), "host_included": judged.host_included, "clock": judged.clock or None,
                "recorded_ms": milliseconds(judged.recorded_ns), "own_share": judged.own_share, "streams": judged.streams,
                "kernels": [dataclasses.asdict(kernel) for kernel in judged.kernels], "kept_bytes": judged.kept_bytes,
                "error": judged.error, "reference_error": judged.reference_error,
                "policies": [dataclasses.asdict(found) for found in judged.policies], "locks": judged.locks, "unlocked": judged.unlocked,
                "control": dataclasses.asdict(judged.control) if judged.control else None,
            },
        }  # fmt: skip
    return {"grade": judged.grade, "grade_why": judged.why, **scored(finished), **saw}


def milliseconds(nanoseconds: float | None) -> float | None:
    return None if nanoseconds is None else nanoseconds / 1e6
