"""The server's routes: health, jobs, statistics, and the request forms of evaluation servers.

The status is 400 for a wrong request, 200 for a kernel that fails, 500 with a body if the engine could not do its
work, 503 while jobs cannot be recorded.
"""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import re
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Annotated, Any

from fastapi import FastAPI, Query
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, PlainTextResponse
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request as HttpRequest
from starlette.routing import Match, Route

from orbit_lsp import __version__
from orbit_lsp.api import (
    evaluation,
    job_routes,
    metric_jobs,
    notebook_routes,
    page_routes,
    popcorn_routes,
    trace_routes,
)
from orbit_lsp.api.guard import Guard, RequestLimits
from orbit_lsp.api.job_routes import unknown
from orbit_lsp.api.notebook_routes import Notebooks
from orbit_lsp.api.popcorn import PopcornProblem
from orbit_lsp.queue import result_text
from orbit_lsp.queue.job_queue import JobQueue
from orbit_lsp.queue.job_store import StoreError, StoreUnusableError
from orbit_lsp.queue.request import Request, RequestRefusedError

_RETRY_S = 5
"""When a client may try again what could not be recorded."""
_COMPLAINTS = 20
"""So many of the errors of one request are answered."""
_FIELDS = "GET /openapi.json describes its fields"


def app(
    queue: JobQueue,
    limits: RequestLimits,
    hosts: list[str],
    agents: Starlette | None = None,
    problems: Sequence[PopcornProblem] = (),
    notebooks: Notebooks | None = None,
    metrics: metric_jobs.MetricSettings = metric_jobs.BY_REQUEST,
) -> FastAPI:
    """Make the app. `hosts` are the names under which the server may be addressed; `metrics` says which evaluations
    get device metrics. The routes of `agents` are served behind the same guard. popcorn's routes are served if there
    are `problems`.
    """

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncGenerator[None]:
        if agents is None:
            yield
            return
        async with agents.router.lifespan_context(agents):
            yield

    made = FastAPI(
        title="orbit-lsp", version=__version__, docs_url=None, redoc_url=None, lifespan=lifespan,
        description="Run, profile, check and compare CUDA and Triton kernels. Every answer has its grade.",
    )  # fmt: skip
    made.add_middleware(Guard, limits=limits, hosts=hosts)
    _errors(made)
    job_routes.submitting(made, queue)
    job_routes.reading(made, queue)
    _observing(made, queue)
    _evaluating(made, queue, metrics)
    trace_routes.routes(made, queue)
    page_routes.reading(made, queue, [problem.name for problem in problems])
    page_routes.submitting(made, queue)
    page_routes.signing_in(made, limits)
    if notebooks:
        notebook_routes.routes(made, notebooks)
    if problems:
        popcorn_routes.routes(made, queue, problems)
    if agents:
        made.router.routes.extend(agents.routes)
    return made


def _errors(made: FastAPI) -> None:
    @made.exception_handler(RequestValidationError)
    async def invalid(request: HttpRequest, error: RequestValidationError) -> JSONResponse:
        errors = error.errors()
        complaints = [_complaint(request, detail) for detail in errors[:_COMPLAINTS]]
        if more := len(errors) - len(complaints):
            complaints.append(f"and {more:,} more errors")
        return JSONResponse({"error": complaints[0], "validation_errors": complaints}, 400)

    @made.exception_handler(HTTPException)
    async def answered(request: HttpRequest, error: HTTPException) -> JSONResponse:
        """Return the framework's own refusals in our form."""
        own = {
            400: "the body cannot be read as JSON",
            404: "there is no such route; GET /openapi.json lists the routes",
        }
        text, headers = own.get(error.status_code, error.detail), error.headers
        if error.status_code == 405:
            methods = _methods(made, request)
            text = f"{request.method:.20} is no method of {request.url.path:.60}, which takes {' and '.join(methods)}"
            headers = {"Allow": ", ".join(methods)}
        return JSONResponse({"error": text}, error.status_code, headers)

    @made.exception_handler(RequestRefusedError)
    async def refused(_: HttpRequest, why: RequestRefusedError) -> JSONResponse:
        return JSONResponse({"error": str(why)}, 400)

    @made.exception_handler(StoreError)
    async def unkept(_: HttpRequest, why: StoreError) -> JSONResponse:
        body = {"error": str(why), "outcome": "infrastructure"}
        if isinstance(why, StoreUnusableError):
            return JSONResponse(body, 503, {"Retry-After": str(_RETRY_S)})
        return JSONResponse(body, 500)

    @made.exception_handler(Exception)
    async def fault(_: HttpRequest, error: Exception) -> JSONResponse:
        return JSONResponse(
            {"error": f"internal error of the server: {type(error).__name__}", "outcome": "infrastructure"},
            500,
        )


def _complaint(request: HttpRequest, detail: Mapping[str, Any]) -> str:
    """Return what is wrong with a request, as the framework found it."""
    place = ".".join(map(str, detail["loc"][1:]))
    if detail["type"] == "json_invalid":
        return f"the body is not JSON: at character {detail['loc'][-1] + 1}: {detail['ctx']['error']}"
    if not place and detail["type"] in ("model_attributes_type", "dict_type"):
        if isinstance(detail["input"], bytes):  # the framework has not read it
            given = request.headers.get("content-type")
            have = f"is {given!r:.60}" if given else "is missing"
            return f"the header Content-Type {have}; send `Content-Type: application/json`"
        return f"the body is not a JSON object; {_FIELDS}"
    if not place and detail["type"] == "missing":
        return f"the request has no body; {_FIELDS}"
    return f"{place or 'body'}: {detail['msg']}"


def _methods(made: FastAPI, request: HttpRequest) -> list[str]:
    """Return the methods of all routes of a path. The framework names only those of the first route."""
    methods: set[str] = set()
    for route in made.router.routes:
        if isinstance(route, Route) and route.matches(request.scope)[0] is not Match.NONE:
            methods |= route.methods or set()
    return sorted(methods)


def _observing(made: FastAPI, queue: JobQueue) -> None:
    @made.get("/health", summary="Whether the server accepts jobs; needs no token")
    async def health() -> JSONResponse:
        state = {"version": __version__, "waiting": queue.waiting(), "places": queue.places()}
        if troubles := queue.troubles():
            told = {"error": "; ".join(trouble.text for trouble in troubles)}
            told |= {"since": min(trouble.since for trouble in troubles)}
            return JSONResponse({"status": "failing", **told, **state}, 503)
        return JSONResponse({"status": "ok", **state})

    @made.get("/stats", summary="Jobs by outcome and state, the queue, the pool")
    async def stats() -> dict[str, Any]:
        counts = await asyncio.to_thread(queue.store.counts, queue.door)
        return {"jobs": counts, "waiting": queue.waiting(), "places": queue.places(), **_figures(queue)}

    @made.get("/metrics", summary="The same for Prometheus")
    async def metrics() -> PlainTextResponse:
        counts = await asyncio.to_thread(queue.store.counts, queue.door)
        lines = ["# HELP orbit_jobs Jobs in the record, by outcome or state.", "# TYPE orbit_jobs gauge"]
        lines += [f'orbit_jobs{{state="{state}"}} {count}' for state, count in counts.items()]
        lines += ["# HELP orbit_queue_waiting Jobs that wait.", "# TYPE orbit_queue_waiting gauge"]
        lines += [f"orbit_queue_waiting {queue.waiting()}"]
        lines += [
            "# HELP orbit_place_busy Whether a place of the pool runs a job.",
            "# TYPE orbit_place_busy gauge",
        ]
        lines += [
            f'orbit_place_busy{{place="{place["name"]}"}} {int(bool(place["job"]))}'
            for place in queue.places()
        ]
        lines += [
            "# HELP orbit_place_aside Whether a GPU takes no job, because it is not as it was before a job failed there.",
            "# TYPE orbit_place_aside gauge",
        ]
        lines += [
            f'orbit_place_aside{{place="{place["name"]}"}} {int(bool(place["aside"]))}'
            for place in queue.places()
        ]
        lines += _figure_lines(queue)
        return PlainTextResponse("\n".join(lines) + "\n", media_type="text/plain; version=0.0.4")


def _figures(queue: JobQueue) -> dict[str, Any]:
    """Return figures of the last 1,000 jobs of each grade that this process began: the seconds that they waited, and
    the seconds that they occupied their places.
    """
    good, count = queue.forecast.good()
    grades = {
        grade: {
            "waited_s": waited and dataclasses.asdict(waited),
            "took_s": took and dataclasses.asdict(took),
        }
        for grade, (waited, took) in queue.forecast.figures().items()
    }
    return {"grades": grades, "predictions": {"good": good, "of": count}}


def _figure_lines(queue: JobQueue) -> list[str]:
    lines: list[str] = []
    figures = queue.forecast.figures()
    for at, (name, what) in enumerate(
        (("orbit_wait_seconds", "How long jobs waited."), ("orbit_run_seconds", "How long jobs had a place."))
    ):
        lines += [f"# HELP {name} {what}", f"# TYPE {name} summary"]
        for grade, spreads in figures.items():
            if spread := spreads[at]:
                lines += [
                    f'{name}{{grade="{grade}",quantile="0.5"}} {spread.p50:.6g}',
                    f'{name}{{grade="{grade}",quantile="0.95"}} {spread.p95:.6g}',
                    f'{name}_count{{grade="{grade}"}} {spread.n}',
                ]
    good, _ = queue.forecast.good()
    if good is not None:
        lines += [
            "# HELP orbit_predictions_good Share of predicted waits that were within 25 % or 2 s.",
            "# TYPE orbit_predictions_good gauge",
            f"orbit_predictions_good {good:.6g}",
        ]
    return lines


def _evaluating(made: FastAPI, queue: JobQueue, metrics: metric_jobs.MetricSettings) -> None:
    async def judged(request: Request, wanted: bool | None) -> JSONResponse:
        job = await queue.submit(metrics.of(request, wanted))
        ended = await queue.wait(job.id)
        assert ended
        return await answered(ended.id, wait=True)

    async def answered(job: str, *, wait: bool) -> JSONResponse:
        read = queue.read if wait else asyncio.to_thread
        if (followed := await read(functools.partial(queue.followed, job))) is None:
            return unknown(job)
        result = await read(functools.partial(result_text.result_of, queue.store, followed.job))
        request = await read(functools.partial(queue.store.request, followed.job.id))
        collected = metric_jobs.NOTHING
        if result:
            try:
                collected = await metric_jobs.collected(queue, followed.job, request, result, wait=wait)
            except StoreUnusableError as why:
                collected = metric_jobs.Metrics(why=str(why))
        status, body = evaluation.answer(followed.job, result, request, collected)
        device = result.finished.device if result else None
        headers = {"X-GPU-Type": re.sub(r"[^\x20-\x7e]", "?", device.name)} if device else None
        return JSONResponse(body, status, headers)

    @made.post("/", summary="Judge a candidate against its reference, in either of the two forms")
    async def legacy(body: evaluation.Compare) -> JSONResponse:
        return await judged(await asyncio.to_thread(evaluation.compared, body), body.device_metrics)

    @made.post("/compare", summary="The same")
    async def compare(body: evaluation.Compare) -> JSONResponse:
        return await judged(await asyncio.to_thread(evaluation.compared, body), body.device_metrics)

    @made.post("/evaluate", summary="Compile and time one kernel by itself")
    async def evaluate(body: evaluation.Evaluate) -> JSONResponse:
        return await judged(await asyncio.to_thread(evaluation.evaluated, body), body.device_metrics)

    @made.get("/job/{job}", summary="The answer of an evaluation, or its state while it is not over")
    async def job(job: str) -> JSONResponse:
        return await answered(job, wait=False)

    @made.post("/admin/cleanup-jobs", summary="Remove the records of jobs that ended longer ago")
    async def cleanup(max_age_hours: Annotated[float, Query(ge=0)] = 24) -> dict[str, int]:
        return {"removed": await asyncio.to_thread(queue.store.prune, max_age_hours * 3600, queue.door)}
