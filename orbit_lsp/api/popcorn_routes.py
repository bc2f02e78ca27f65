"""popcorn's HTTP routes: leaderboards, submissions, their results and their ranking, as popcorn-cli asks for them."""

from __future__ import annotations

import asyncio
import functools
import json
from collections.abc import AsyncGenerator, Sequence
from typing import Annotated, Any

from fastapi import FastAPI, Query
from fastapi.responses import HTMLResponse, JSONResponse, Response, StreamingResponse
from starlette.datastructures import UploadFile
from starlette.requests import Request as HttpRequest

from orbit_lsp.api import page, popcorn
from orbit_lsp.api.popcorn import PopcornProblem
from orbit_lsp.queue import result_text
from orbit_lsp.queue.job_queue import Followed, JobQueue
from orbit_lsp.queue.job_store import StoredJob, StoreError
from orbit_lsp.queue.request import RequestRefusedError


class _Routes:
    """The common part of the routes."""

    def __init__(self, queue: JobQueue, problems: Sequence[PopcornProblem]) -> None:
        self.queue = queue
        self.problems = {problem.name: problem for problem in problems}
        self._scores: dict[str, popcorn.Score | None] = {}
        """Job -> its score: what has ended changes no more."""

    def gpus(self) -> list[str]:
        """Return the GPUs that a submission may ask for by name: of a place of this machine, or a kind of GPU that is
        rented.
        """
        return list(dict.fromkeys(popcorn.place_of(str(place["name"])) for place in self.queue.places()))

    def scores(self, leaderboard: str) -> list[popcorn.Score]:
        """Return the scores of a leaderboard, the newest last. Blocks."""
        store = self.queue.store
        jobs = store.jobs(door=self.queue.door, most=popcorn.RANKED, ended_well=popcorn.ENTRY)
        known = self._scores
        self._scores = {
            job.id: known[job.id]
            if job.id in known
            else popcorn.score(job, store.request(job.id), result_text.result_of(store, job))
            for job in reversed(jobs)
        }
        every = self._scores.values()
        return [score for score in every if score and score.leaderboard == leaderboard]

    def waiting(self, gpu: str) -> dict[str, Any]:
        return {
            "runner": "orbit-lsp",
            "gpu": gpu,
            "queued_jobs": self.queue.waiting(),
            "status": "ok",
            "error": None,
        }

    async def submitted(
        self, leaderboard: str, gpu: str, mode: str, request: HttpRequest
    ) -> StoredJob | JSONResponse:
        """Return the job of an upload, or the answer if it is refused."""
        problem = self.problems.get(leaderboard.lower())
        if problem is None:
            have = ", ".join(self.problems)[:500] or "none"
            return _refusal(404, f"there is no leaderboard {leaderboard!r:.60}; this server has: {have}")
        async with request.form(max_files=1, max_fields=10) as form:
            file = form.get("file")
            content = await file.read() if isinstance(file, UploadFile) else b""
        try:
            text = content.decode()
            asked = await asyncio.to_thread(popcorn.request, problem, mode.lower(), gpu, text)
            return await self.queue.submit(asked)
        except UnicodeDecodeError:
            return _refusal(400, "the submission is not a text in UTF-8")
        except RequestRefusedError as why:
            return _refusal(400, str(why))

    async def shown(self, number: int) -> Followed | None:
        return await self.queue.job(popcorn.job_of(number)) if number >= 0 else None


def routes(made: FastAPI, queue: JobQueue, problems: Sequence[PopcornProblem]) -> None:
    known = _Routes(queue, problems)
    _listing(made, known)
    _ranking(made, known)
    _submitting(made, known)
    _following(made, known)


def _listing(made: FastAPI, known: _Routes) -> None:
    @made.get("/leaderboards", include_in_schema=False)
    async def leaderboards() -> JSONResponse:
        gpus = known.gpus()
        return JSONResponse([popcorn.leaderboard(problem, gpus) for problem in known.problems.values()])

    @made.get("/gpus/{leaderboard}", include_in_schema=False)
    async def gpus(leaderboard: str) -> JSONResponse:
        if leaderboard.lower() not in known.problems:
            return _refusal(404, f"there is no leaderboard {leaderboard!r:.60}")
        return JSONResponse(known.gpus())

    @made.get("/runner_queue/{gpu}", include_in_schema=False)
    async def runner_queue(gpu: str) -> JSONResponse:
        return JSONResponse(known.waiting(gpu))


def _ranking(made: FastAPI, known: _Routes) -> None:
    @made.get("/submissions/{leaderboard}/{gpu}", include_in_schema=False)
    async def ranked(
        leaderboard: str,
        gpu: str,
        limit: Annotated[int, Query(ge=1)] = popcorn.RANKED,
        offset: Annotated[int, Query(ge=0)] = 0,
    ) -> JSONResponse:
        if (problem := known.problems.get(leaderboard.lower())) is None:
            return _refusal(404, f"there is no leaderboard {leaderboard!r:.60}")
        scores = await asyncio.to_thread(known.scores, problem.name)
        return JSONResponse(popcorn.ranking(scores, gpu)[offset : offset + limit])

    @made.get("/submission_count/{leaderboard}/{gpu}", include_in_schema=False)
    async def counted(leaderboard: str, gpu: str) -> JSONResponse:
        scores = await asyncio.to_thread(known.scores, leaderboard.lower())
        return JSONResponse({"count": len(popcorn.ranking(scores, gpu))})

    @made.get("/page/leaderboards/{leaderboard}", include_in_schema=False)
    async def shown(leaderboard: str) -> HTMLResponse:
        if (problem := known.problems.get(leaderboard.lower())) is None:
            text = page.missing(f"There is no leaderboard {leaderboard:.60}.")
            return HTMLResponse(text, 404, page.HEADERS)
        scores = await asyncio.to_thread(known.scores, problem.name)
        lists = {gpu: popcorn.ranking(scores, gpu) for gpu in known.gpus()}
        return HTMLResponse(page.ranking(problem.name, lists), headers=page.HEADERS)


def _submitting(made: FastAPI, known: _Routes) -> None:
    @made.post("/submission/{leaderboard}/{gpu}/{mode}", include_in_schema=False)
    async def submit(leaderboard: str, gpu: str, mode: str, request: HttpRequest) -> JSONResponse:
        job = await known.submitted(leaderboard, gpu, mode, request)
        if isinstance(job, JSONResponse):
            return job
        return JSONResponse(popcorn.accepted(job, known.waiting(gpu)), 202)

    @made.post("/{leaderboard}/{gpu}/{mode}", include_in_schema=False)
    async def submit_and_follow(leaderboard: str, gpu: str, mode: str, request: HttpRequest) -> Response:
        job = await known.submitted(leaderboard, gpu, mode, request)
        if isinstance(job, JSONResponse):
            return job
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        return StreamingResponse(_events(known.queue, job), media_type="text/event-stream", headers=headers)


def _following(made: FastAPI, known: _Routes) -> None:
    @made.get("/user/submissions/{number}", include_in_schema=False)
    async def shown(number: int) -> JSONResponse:
        if (followed := await known.shown(number)) is None:
            return _refusal(404, f"there is no submission {number}")
        queue, job = known.queue, followed.job
        result = await asyncio.to_thread(result_text.result_of, queue.store, job)
        request = await asyncio.to_thread(queue.store.request, job.id)
        return JSONResponse(popcorn.shown(job, request, result, known.waiting(job.slot)))

    @made.delete("/user/submissions/{number}", include_in_schema=False)
    async def cancel(number: int) -> JSONResponse:
        if (followed := await known.shown(number)) is None:
            return _refusal(404, f"there is no submission {number}")
        await known.queue.cancel(followed.job.id)
        return JSONResponse({"status": "ok", "submission_id": number})


async def _events(queue: JobQueue, job: StoredJob) -> AsyncGenerator[str]:
    """Yield `status` while a job waits and runs, then `result`, or `error` if nothing was measured."""
    try:
        async for followed in queue.follow(job.id):
            job = followed.job
            yield _event("status", {"status": job.state, "message": result_text.line(job, followed.position)})
        result = await queue.read(functools.partial(result_text.result_of, queue.store, job))
        request = await queue.read(functools.partial(queue.store.request, job.id))
    except StoreError as why:
        yield _event("error", {"status": "error", "detail": str(why), "status_code": 500})
        return
    if result is None or job.outcome in ("infrastructure", "cancelled"):
        yield _event("error", {"status": "error", "detail": job.summary, "status_code": 500})
        return
    reports = ["\n".join(result_text.lines(job, result))]
    yield _event(
        "result",
        {"status": "success", "results": [popcorn.full_result(job, request, result)], "reports": reports},
    )


def _event(kind: str, data: dict[str, Any]) -> str:
    return f"event: {kind}\ndata: {json.dumps(data)}\n\n"


def _refusal(status: int, why: str) -> JSONResponse:
    """Return a refusal in our form and in the one that popcorn's clients read."""
    return JSONResponse({"error": why, "detail": why}, status)
