"""The server's own job API: submit, list, wait for, follow and cancel jobs."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import json
from collections.abc import AsyncGenerator, Sequence
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

from fastapi import FastAPI, Header, Query
from fastapi.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from pydantic import BaseModel, ConfigDict, Field, create_model

from orbit_lsp.queue import request as requests
from orbit_lsp.queue import result_text
from orbit_lsp.queue.job_queue import Followed, JobQueue
from orbit_lsp.queue.job_store import StoredJob, StoreError
from orbit_lsp.queue.request import Request, RequestRefusedError

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


NOT_BY_HTTP = {"path", "through", "version"}
"""Fields of a request that are about files of the server's own machine, which no client may name; `version` is the queue's own."""
_HINTS = get_type_hints(Request)


def _field(field: dataclasses.Field[Any]) -> tuple[Any, Any]:
    """Return a field of a request in pydantic's form."""
    if field.default_factory is not dataclasses.MISSING:
        return _HINTS[field.name], Field(default_factory=field.default_factory)
    return _HINTS[field.name], ... if field.default is dataclasses.MISSING else field.default


if TYPE_CHECKING:
    _Body = BaseModel
else:
    _Body = create_model(
        "_Body",
        __config__=ConfigDict(extra="forbid"),
        **{
            field.name: _field(field)
            for field in dataclasses.fields(Request)
            if field.name not in NOT_BY_HTTP
        },
    )


class JobRequest(_Body):
    """A file, and what is done with it. `kernel` is run by its launch spec; without it the file's main, its KernelBench or
    popcorn contract, or its only launch spec. A second request with the same `key` gets the same job.
    """

    model_config = ConfigDict(
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
        }
    )

    def request(self, key: str) -> Request:
        """Raises RequestRefusedError."""
        values = dict(self)
        if values["action"] == "compare":
            if not values["against_text"]:
                raise RequestRefusedError("compare needs `against_text`: the other version's text")
            values["against"] = values["against"] or values["name"]
        return requests.decoded(values | {"key": values["key"] or key})


class Batch(BaseModel):
    jobs: list[JobRequest] = Field(min_length=1, max_length=_BATCH)


Wait = Annotated[float, Query(ge=0, le=_MOST_WAIT_S)]
Key = Annotated[str, Header(alias="Idempotency-Key")]


def submitting(made: FastAPI, queue: JobQueue) -> None:
    @made.post(
        "/v1/jobs",
        status_code=202,
        summary="Submit a job; returns at once, with its id and position",
    )
    async def submit(body: JobRequest, idempotency_key: Key = "") -> JSONResponse:
        job = await queue.submit(body.request(idempotency_key))
        followed = Followed(job, queue.position(job.id))
        return JSONResponse(result_text.as_json(queue.store, followed, whole=False), 202)

    @made.post(
        "/v1/jobs/batch",
        status_code=202,
        summary="Submit many jobs; a job that is refused does not delay the others",
    )
    async def batch(body: Batch) -> JSONResponse:
        wanted = [_request(each) for each in body.jobs]
        submitted = iter(await queue.submit_all([each for each in wanted if isinstance(each, Request)]))
        jobs = [next(submitted) if isinstance(each, Request) else each for each in wanted]
        recorded = iter(records(queue, [job for job in jobs if isinstance(job, StoredJob)]))
        answers = [next(recorded) if isinstance(job, StoredJob) else {"error": str(job)} for job in jobs]
        return JSONResponse({"jobs": answers}, 202)


def reading(made: FastAPI, queue: JobQueue) -> None:
    async def record(job: str) -> JSONResponse:
        if (followed := await queue.job(job)) is None:
            return unknown(job)
        return JSONResponse(await asyncio.to_thread(result_text.as_json, queue.store, followed))

    @made.get("/v1/jobs", summary="The newest jobs of this server")
    async def listed(
        under_way: bool = False, most: Annotated[int, Query(ge=1, le=1000)] = 100
    ) -> JSONResponse:
        known = await asyncio.to_thread(
            lambda: queue.store.jobs(door=queue.door, most=most, under_way=under_way)
        )
        return JSONResponse({"jobs": records(queue, known)})

    @made.get("/v1/jobs/{job}", summary="A job with its result; waits up to `wait_s` seconds for its end")
    async def shown(job: str, wait_s: Wait = 0) -> JSONResponse:
        await queue.wait(job, wait_s)
        return await record(job)

    @made.get(
        "/v1/jobs/{job}/text",
        summary="A job as text: its outcome, errors by line, numbers with their sources",
    )
    async def text(job: str) -> PlainTextResponse:
        followed = await queue.job(job)
        if followed is None:
            return PlainTextResponse(f"there is no job {job!r:.40}\n", 404)
        result = await asyncio.to_thread(result_text.result_of, queue.store, followed.job)
        return PlainTextResponse("\n".join(result_text.lines(followed.job, result, followed.position)) + "\n")

    @made.get(
        "/v1/jobs/{job}/events", summary="Server-sent events: state and queue position, then the result"
    )
    async def events(job: str) -> Response:
        if await queue.job(job) is None:
            return unknown(job)

        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        return StreamingResponse(_events(queue, job), media_type="text/event-stream", headers=headers)

    @made.delete("/v1/jobs/{job}", summary="Cancel a job; returns when its work has ended")
    async def cancel(job: str) -> JSONResponse:
        await queue.cancel(job)
        return await record(job)


def records(queue: JobQueue, jobs: Sequence[StoredJob]) -> list[dict[str, Any]]:
    """Return the records of jobs, without their results."""
    return [result_text.as_json(queue.store, followed, whole=False) for followed in queue.positions(jobs)]


def _request(asked: JobRequest) -> Request | RequestRefusedError:
    try:
        return asked.request("")
    except RequestRefusedError as why:
        return why


async def _events(queue: JobQueue, job: str) -> AsyncGenerator[str]:
    last: Followed | None = None
    why = f"there is no job {job!r:.40}"  # its record was removed in this moment
    try:
        async for last in queue.follow(job):
            state = result_text.as_json(queue.store, last, whole=False)
            yield f"event: state\ndata: {json.dumps(state)}\n\n"
        if last:
            whole = await queue.read(functools.partial(result_text.as_json, queue.store, last))
            yield f"event: result\ndata: {json.dumps(whole)}\n\n"
            return
    except StoreError as error:
        why = str(error)
    yield f"event: error\ndata: {json.dumps({'error': why})}\n\n"


def unknown(job: str) -> JSONResponse:
    return JSONResponse({"error": f"there is no job {job!r:.40}"}, 404)
