"""The server's routes: health, jobs, statistics, and the request forms of evaluation servers.

400 for a request that is wrong, 200 for a kernel that fails, 500 with a body where the engine could not do its work.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncGenerator
from typing import Annotated, Any

from fastapi import FastAPI, Header, Query
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, PlainTextResponse, StreamingResponse
from pydantic import BaseModel, ConfigDict, Field
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request as HttpRequest

from orbit_lsp import __version__
from orbit_lsp.api import evaluation
from orbit_lsp.api.guard import Guard, Limits
from orbit_lsp.queue import request as requests
from orbit_lsp.queue import result_text
from orbit_lsp.queue.job_queue import Followed, JobQueue
from orbit_lsp.queue.job_store import StoreError
from orbit_lsp.queue.pool import COMPILER
from orbit_lsp.queue.request import Refused, Request

_MOST_WAIT_S = 600.0
_BATCH = 1_000
SAXPY = """\
// orbit: n = 1 << 20; x = randn(n); y = randn(n); a = 2.0f
// orbit: launch saxpy<<<(n + 255) / 256, 256>>>(n, a, x, y)
// orbit: expect y == a * x + y
__global__ void saxpy(int n, float a, const float* x, float* y) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = a * x[i] + y[i];
}
"""


class JobRequest(BaseModel):
    """A file, and what is done with it. `kernel` is run by its launch spec; without it the file's main, its KernelBench or
    popcorn contract, or its only launch spec. A second request with the same `key` gets the same job.
    """

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [
                {"action": "compile", "name": "saxpy.cu", "text": SAXPY},
                {
                    "action": "run",
                    "name": "saxpy.cu",
                    "text": SAXPY,
                    "kernel": "saxpy",
                    "priority": "high",
                    "key": "saxpy-1",
                },
            ]
        },
    )

    action: requests.Action = "run"
    name: str
    text: str
    files: dict[str, str] = Field(default_factory=dict[str, str])
    kernel: str | None = None
    against: str = ""
    against_text: str = ""
    gpu: str = ""
    flags: list[str] = Field(default_factory=list[str])
    arguments: list[str] = Field(default_factory=list[str])
    timeout_s: float | None = None
    detail: str = Field("click", pattern="^(click|full)$")
    tools: list[str] = Field(default_factory=list[str])
    priority: requests.Priority = "normal"
    key: str = ""
    wait_limit_s: float = requests.WAIT_LIMIT_S

    def request(self, key: str) -> Request:
        """Raises Refused."""
        values: dict[str, Any] = {name: getattr(self, name) for name in JobRequest.model_fields}
        for name in ("flags", "arguments", "tools"):
            values[name] = tuple(values[name])
        if self.action == "compare":
            if not self.against_text:
                raise Refused("compare needs `against_text`: the other version's text")
            values["against"] = self.against or self.name
        values["key"] = self.key or key
        return Request(**values)


class Batch(BaseModel):
    jobs: list[JobRequest] = Field(min_length=1, max_length=_BATCH)


Wait = Annotated[float, Query(ge=0, le=_MOST_WAIT_S)]
Key = Annotated[str, Header(alias="Idempotency-Key")]


def app(queue: JobQueue, limits: Limits, hosts: list[str]) -> FastAPI:
    """`hosts` are the names under which the server may be addressed."""
    made = FastAPI(
        title="orbit-lsp", version=__version__, docs_url=None, redoc_url=None,
        description="Run, profile, check and compare CUDA and Triton kernels. Every answer has its grade.",
    )  # fmt: skip
    made.add_middleware(TrustedHostMiddleware, allowed_hosts=hosts)
    made.add_middleware(Guard, limits=limits)
    _errors(made)
    _jobs(made, queue)
    _observing(made, queue)
    _evaluating(made, queue)
    return made


def _errors(made: FastAPI) -> None:
    @made.exception_handler(RequestValidationError)
    async def invalid(_: HttpRequest, error: RequestValidationError) -> JSONResponse:
        found = [f"{'.'.join(map(str, one['loc'][1:])) or 'body'}: {one['msg']}" for one in error.errors()]
        return JSONResponse({"error": found[0], "validation_errors": found}, 400)

    @made.exception_handler(Refused)
    async def refused(_: HttpRequest, why: Refused) -> JSONResponse:
        return JSONResponse({"error": str(why)}, 400)

    @made.exception_handler(StoreError)
    async def unkept(_: HttpRequest, why: StoreError) -> JSONResponse:
        return JSONResponse({"error": str(why), "outcome": "infrastructure"}, 500)

    @made.exception_handler(Exception)
    async def fault(_: HttpRequest, error: Exception) -> JSONResponse:
        return JSONResponse(
            {"error": f"a fault of the server: {type(error).__name__}", "outcome": "infrastructure"}, 500
        )


def _jobs(made: FastAPI, queue: JobQueue) -> None:
    async def record(job: str) -> JSONResponse:
        if (followed := await queue.job(job)) is None:
            return _unknown(job)
        return JSONResponse(await asyncio.to_thread(result_text.as_json, queue.store, followed))

    @made.post(
        "/v1/jobs",
        status_code=202,
        summary="Hand in a job; the answer comes at once, with its id and position",
    )
    async def submit(body: JobRequest, idempotency_key: Key = "") -> JSONResponse:
        job = await queue.submit(body.request(idempotency_key))
        followed = Followed(job, queue.position(job.id))
        return JSONResponse(result_text.as_json(queue.store, followed, whole=False), 202)

    @made.post(
        "/v1/jobs/batch",
        status_code=202,
        summary="Hand in many jobs; what is refused does not hold up the others",
    )
    async def batch(body: Batch) -> JSONResponse:
        answers: list[dict[str, Any]] = []
        for one in body.jobs:
            try:
                job = await queue.submit(one.request(""))
            except Refused as why:
                answers.append({"error": str(why)})
            else:
                followed = Followed(job, queue.position(job.id))
                answers.append(result_text.as_json(queue.store, followed, whole=False))
        return JSONResponse({"jobs": answers}, 202)

    @made.get("/v1/jobs", summary="The newest jobs of this server")
    async def listed(
        under_way: bool = False, most: Annotated[int, Query(ge=1, le=1000)] = 100
    ) -> JSONResponse:
        known = await asyncio.to_thread(
            lambda: queue.store.jobs(door=queue.door, most=most, under_way=under_way)
        )
        found = [Followed(job, queue.position(job.id)) for job in known]
        return JSONResponse({"jobs": [result_text.as_json(queue.store, one, whole=False) for one in found]})

    @made.get("/v1/jobs/{id}", summary="A job with its result; `wait_s` waits for its end as long")
    async def shown(id: str, wait_s: Wait = 0) -> JSONResponse:  # noqa: A002 - the route's own word
        await queue.wait(id, wait_s)
        return await record(id)

    @made.get(
        "/v1/jobs/{id}/text", summary="A job as text: its outcome, errors by line, numbers with their sources"
    )
    async def text(id: str) -> PlainTextResponse:  # noqa: A002
        followed = await queue.job(id)
        if followed is None:
            return PlainTextResponse(f"there is no job {id!r:.40}\n", 404)
        result = await asyncio.to_thread(result_text.result_of, queue.store, followed.job)
        return PlainTextResponse("\n".join(result_text.lines(followed.job, result, followed.position)) + "\n")

    @made.get("/v1/jobs/{id}/events", summary="Server-sent events: state and queue position, then the result")
    async def events(id: str) -> StreamingResponse:  # noqa: A002
        async def stream() -> AsyncGenerator[str]:
            last: Followed | None = None
            async for last in queue.follow(id):
                state = await asyncio.to_thread(result_text.as_json, queue.store, last, whole=False)
                yield f"event: state\ndata: {json.dumps(state)}\n\n"
            if last is None:
                yield f"event: error\ndata: {json.dumps({'error': f'there is no job {id!r:.40}'})}\n\n"
            else:
                whole = await asyncio.to_thread(result_text.as_json, queue.store, last)
                yield f"event: result\ndata: {json.dumps(whole)}\n\n"

        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        return StreamingResponse(stream(), media_type="text/event-stream", headers=headers)

    @made.delete("/v1/jobs/{id}", summary="Cancel a job; the answer comes when its work has ended")
    async def cancel(id: str) -> JSONResponse:  # noqa: A002
        await queue.cancel(id)
        return await record(id)


def _observing(made: FastAPI, queue: JobQueue) -> None:
    def places() -> list[dict[str, Any]]:
        return [
            {"name": slot.name, "gpu": slot.gpu or None, "job": queue.at(slot.name)}
            for slot in queue.slots
            if slot.name != COMPILER
        ]

    @made.get("/health", summary="Whether the server takes jobs; needs no token")
    async def health() -> dict[str, Any]:
        return {"status": "ok", "version": __version__, "waiting": queue.waiting(), "places": places()}

    @made.get("/stats", summary="Jobs by outcome and state, the queue, the pool")
    async def stats() -> dict[str, Any]:
        counts = await asyncio.to_thread(queue.store.counts, queue.door)
        return {"jobs": counts, "waiting": queue.waiting(), "places": places()}

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
            f'orbit_place_busy{{place="{place["name"]}"}} {int(bool(place["job"]))}' for place in places()
        ]
        return PlainTextResponse("\n".join(lines) + "\n", media_type="text/plain; version=0.0.4")

    @made.get("/", include_in_schema=False)
    async def root() -> dict[str, str]:
        return {"name": "orbit-lsp", "version": __version__, "routes": "/openapi.json"}


def _evaluating(made: FastAPI, queue: JobQueue) -> None:
    async def judged(request: Request) -> JSONResponse:
        job = await queue.submit(request)
        ended = await queue.wait(job.id)
        assert ended
        return await answered(ended.id)

    async def answered(job: str) -> JSONResponse:
        if (followed := await queue.job(job)) is None:
            return _unknown(job)
        result = await asyncio.to_thread(result_text.result_of, queue.store, followed.job)
        status, body = evaluation.answer(followed.job, result)
        device = result.finished.device if result else None
        headers = {"X-GPU-Type": re.sub(r"[^\x20-\x7e]", "?", device.name)} if device else None
        return JSONResponse(body, status, headers)

    @made.post("/", summary="Judge a candidate against its reference, in either of the two forms")
    async def legacy(body: evaluation.Compare) -> JSONResponse:
        return await judged(evaluation.compared(body))

    @made.post("/compare", summary="The same")
    async def compare(body: evaluation.Compare) -> JSONResponse:
        return await judged(evaluation.compared(body))

    @made.post("/evaluate", summary="Compile and time one kernel by itself")
    async def evaluate(body: evaluation.Evaluate) -> JSONResponse:
        return await judged(evaluation.evaluated(body))

    @made.get("/job/{id}", summary="The answer of an evaluation, or its state while it is not over")
    async def job(id: str) -> JSONResponse:  # noqa: A002
        return await answered(id)

    @made.post("/admin/cleanup-jobs", summary="Remove the records of jobs that ended longer ago")
    async def cleanup(max_age_hours: Annotated[float, Query(ge=0)] = 24) -> dict[str, int]:
        return {"removed": await asyncio.to_thread(queue.store.prune, max_age_hours * 3600, queue.door)}


def _unknown(job: str) -> JSONResponse:
    return JSONResponse({"error": f"there is no job {job!r:.40}"}, 404)
