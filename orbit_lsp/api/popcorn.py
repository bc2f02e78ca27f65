"""Turns submissions to GPU MODE's problems into jobs, and results into the JSON that popcorn's clients read.

A problem is a folder with a task.yml below the folder of `--problems`. The folder's name is the name of its
leaderboard.
"""

from __future__ import annotations

import hashlib
import json
import math
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from orbit_lsp.queue import result_text
from orbit_lsp.queue.job_store import Result, StoredJob
from orbit_lsp.queue.request import Request, RequestRefusedError
from orbit_remote.common import codec, limits, regular_files
from orbit_remote.common import messages as c
from orbit_remote.common.contracts import harness_files, popcorn_task
from orbit_remote.common.lazy_dataclass import dataclass
from orbit_remote.common.measurements import Timing

ABOUT = "orbit_popcorn.json"
"""The file beside the job that says which leaderboard and mode it is of."""
MODES = ("test", "benchmark", "profile", "leaderboard")
_DIGITS = 13
"""Of a job's id, which is longer than the integers of these clients."""
_EXITS = {"ok": 0, "wrong answer": 112, "timed out": 114}
_MOST = 1_000
ENTRY = "custom_kernel"
RANKED = 2_000
"""A ranking reads at most these newest submissions."""


@dataclass(frozen=True, slots=True)
class PopcornProblem:
    name: str
    folder: Path


def problems(folder: Path) -> list[PopcornProblem]:
    """Return the problem of every folder with a task.yml, the folder itself included. Raises OSError."""
    places = sorted({file.parent for file in folder.absolute().rglob(harness_files.TASK)})[:_MOST]
    return [PopcornProblem(place.resolve().name.lower(), place) for place in places]


def request(problem: PopcornProblem, mode: str, gpu: str, text: str) -> Request:
    """Raises RequestRefusedError."""
    if mode not in MODES:
        raise RequestRefusedError(f"{mode!r:.40} is not a mode; use one of {', '.join(MODES)}")
    kept = harness_files.kept(text)
    if kept is None or kept.kind != "popcorn":
        raise RequestRefusedError("a submission needs a function custom_kernel(data) at its top level")
    try:
        task = popcorn_task.of_file(problem.folder / harness_files.TASK)
        files = _files(problem.folder, task)
    except popcorn_task.TaskError as error:
        raise RequestRefusedError(f"task.yml of {problem.name}, line {error.line}: {error.message}") from None
    except (OSError, ValueError) as error:
        raise RequestRefusedError(
            f"the files of the problem {problem.name} cannot be read: {error}"
        ) from None
    about = {"leaderboard": problem.name, "mode": mode, "ranking_by": task.ranking_by}
    return Request(
        action="profile" if mode == "profile" else "run",
        name="submission.py",
        text=text,
        files={**files, harness_files.TASK: _written(task, timed=mode != "test"), ABOUT: json.dumps(about)},
        kernel=ENTRY,
        gpu=gpu,
        timeout_s=180.0,
    )


def _files(folder: Path, task: popcorn_task.Task) -> dict[str, str]:
    """Return the problem's modules, which all stand beside the submission. Raises OSError and ValueError."""
    places = {name: folder / f"{name}.py" for name in ("reference", "task", "utils")}
    places |= harness_files.listed(folder, task)
    return {
        f"{name}.py": regular_files.text(place, limits.SOURCE)
        for name, place in places.items()
        if name != "submission" and place.is_file()
    }


def _written(task: popcorn_task.Task, *, timed: bool) -> str:
    """Write a task.yml with what the job has to do: a test times nothing."""
    lists = {"tests": task.tests or task.benchmarks, "benchmarks": task.benchmarks if timed else ()}
    lines = [f"lang: {json.dumps(task.language)}"]
    lines += ["multi_gpu: true"] if task.several_gpus else []
    for name, items in lists.items():
        lines += [f"{name}:", *(f"  - {json.dumps(item)}" for item in items)] if items else []
    return "\n".join(lines) + "\n"


# -- what comes back --------------------------------------------------------------------------------


def number(job: str) -> int:
    """Return a job's id as a number, because these clients have numbers as ids."""
    return int(job[:_DIGITS], 16)


def job_of(number: int) -> str:
    """Return the beginning of the job's id."""
    return f"{number:0{_DIGITS}x}"


def about(request: Request) -> dict[str, str]:
    """Return what a job of popcorn is about. Raises RequestRefusedError for a job of another kind."""
    if ABOUT not in request.files:
        raise RequestRefusedError("that job is not a submission to a leaderboard")
    return codec.read_json(request.files[ABOUT])


def accepted(job: StoredJob, queue: dict[str, Any]) -> dict[str, Any]:
    ids = {"id": number(job.id), "job_status_id": number(job.id)}
    return {"details": ids, "runner_queue": queue, "status": "accepted"}


def shown(job: StoredJob, request: Request, result: Result | None, queue: dict[str, Any]) -> dict[str, Any]:
    """Return a submission as it is now."""
    known = about(request)
    runs: list[dict[str, Any]] = []
    if result and result.finished.outcome not in ("infrastructure", "cancelled"):
        runs.append(
            {
                "start_time": _when(job.started), "end_time": _when(job.ended), "mode": known["mode"], "secret": False,
                "runner": job.slot, "score": _score(result.finished, known), "passed": job.outcome == "ok",
                "result": _results(result.finished),
            }
        )  # fmt: skip
    error = None if runs or not job.over else job.summary
    return {
        "id": number(job.id), "leaderboard_name": known["leaderboard"], "file_name": request.name, "code": request.text,
        "submission_time": _when(job.submitted), "done": job.over, "runs": runs,
        "job": {"status": "failed" if error else "succeeded" if job.over else job.state, "error": error, "last_heartbeat": None},
        "runner_queue": queue, **result_text.graded(result.finished if result else None),
    }  # fmt: skip


def full_result(job: StoredJob, request: Request, result: Result) -> dict[str, Any]:
    """Return what popcorn calls a FullResult. What is not known is null."""
    finished, known = result.finished, about(request)
    run = {
        "success": finished.outcome in ("ok", "wrong answer"), "passed": finished.outcome == "ok", "command": None,
        "stdout": finished.stdout, "stderr": finished.stderr, "exit_code": _EXITS.get(finished.outcome, finished.exit_code),
        "duration": finished.run_s, "result": _results(finished),
    }  # fmt: skip
    system = {
        "gpu": finished.device.name if finished.device else None, "device_count": None, "cpu": None, "runtime": "CUDA",
        "platform": None, "torch": finished.toolchain.get("torch"), "hostname": None,
    }  # fmt: skip
    return {
        "success": job.outcome not in ("infrastructure", "cancelled"),
        "error": finished.failure.message if finished.failure else "",
        **result_text.graded(finished),
        "system": system,
        "runs": {
            known["mode"]: {
                "start": _when(job.started), "end": _when(job.ended), "compilation": None, "run": run, "profile": None,
            }
        },
    }  # fmt: skip


def _results(finished: c.Finished) -> dict[str, str]:
    """Return the results under popcorn's keys. Times are nanoseconds."""
    tests = [point for point in finished.points if point.case]
    timed = _timed(finished)
    keys = {"check": "pass" if finished.outcome == "ok" else "fail"}
    keys |= {"test-count": str(len(tests))} if tests else {}
    for at, point in enumerate(tests):
        wrong = next((check for check in point.checks if not check.passed), None)
        keys[f"test.{at}.spec"] = _arguments(point)
        keys[f"test.{at}.status"] = "fail" if wrong else "pass"
        keys |= {f"test.{at}.error": wrong.message} if wrong else {}
    keys |= {"benchmark-count": str(len(timed))} if timed else {}
    for at, (point, timing) in enumerate(timed):
        values = {
            "spec": _arguments(point), "runs": timing.n, "mean": timing.mean, "std": timing.deviation, "best": timing.minimum,
            "worst": timing.maximum,
            "err": timing.deviation / math.sqrt(timing.n) if timing.deviation is not None else None,
        }  # fmt: skip
        keys |= {f"benchmark.{at}.{name}": str(value) for name, value in values.items() if value is not None}
    return keys


def _timed(finished: c.Finished) -> list[tuple[c.Point, Timing]]:
    """Return the benchmarks of the submission, not of the reference."""
    mine = [point for point in finished.points if point.values.get("version") == ENTRY and point.launches]
    return [(point, point.launches[0].timing) for point in mine]


def _score(finished: c.Finished, about: dict[str, str]) -> float | None:
    """Return the score in seconds, as the problem ranks: its last benchmark, or the arithmetic or geometric mean of
    all.
    """
    times = [timing.median / 1e9 for _, timing in _timed(finished)]
    if finished.outcome != "ok" or about["mode"] != "leaderboard" or not times:
        return None
    match about["ranking_by"]:
        case "mean":
            return sum(times) / len(times)
        case "geom":
            return math.exp(sum(map(math.log, times)) / len(times))
        case _:
            return times[-1]


def _arguments(point: c.Point) -> str:
    return "; ".join(f"{name}: {value}" for name, value in point.values.items() if name != "version")


def _when(seconds: float | None) -> str | None:
    return time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime(seconds)) if seconds else None


# -- ranking ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Score:
    """The score of a submission that counts. `text` is a hash: a text that is submitted twice is ranked once. `gpu`
    is NVML's name.
    """

    job: StoredJob
    leaderboard: str
    text: str
    gpu: str
    seconds: float
    grade: str


def score(job: StoredJob, request: Request, result: Result | None) -> Score | None:
    """Return the score of a job. Return None if it does not count: it has another mode or kind, or no time."""
    if result is None or ABOUT not in request.files:
        return None
    known, finished = about(request), result.finished
    seconds = _score(finished, known)
    if seconds is None:
        return None
    text = hashlib.sha256(request.text.encode("utf-8", "replace")).hexdigest()
    grade = result_text.graded(finished)["grade"]
    gpu = finished.device.name if finished.device else ""
    return Score(job, known["leaderboard"], text, gpu, seconds, str(grade))


def place_of(slot: str) -> str:
    """Return the name under which clients ask for a place: `local:0`, `H100`."""
    return slot.removeprefix("modal:").partition("#")[0]


def ranking(scores: Sequence[Score], gpu: str) -> list[dict[str, Any]]:
    """Rank the texts of one leaderboard on one place, the fastest first. The score of a text that ran several times
    is its median: its best would reward those who try again. This server has no users, so the user is null.
    """
    runs: dict[str, list[Score]] = {}
    for known in scores:
        if place_of(known.job.slot) == gpu:
            runs.setdefault(known.text, []).append(known)
    every = [(statistics.median(run.seconds for run in own), own) for own in runs.values()]
    ranked = sorted(every, key=lambda text: (text[0], text[1][-1].job.submitted))
    return [
        {
            "rank": 1 + sum(other < seconds for other, _ in ranked), "submission_id": number(own[-1].job.id),
            "submission_name": own[-1].job.file, "submission_time": _when(own[-1].job.submitted), "submission_score": seconds,
            "leaderboard_name": own[-1].leaderboard, "user_id": None, "user_name": None, "gpu_type": gpu, "gpu": own[-1].gpu,
            "runs": len(own), "job": own[-1].job.id, "grade": own[-1].grade,
        }
        for seconds, own in ranked
    ]  # fmt: skip


def leaderboard(problem: PopcornProblem, gpus: Sequence[str]) -> dict[str, Any]:
    return {
        "name": problem.name,
        "description": "",
        "task": {"lang": "py"},
        "gpu_types": list(gpus),
        "deadline": None,
    }
