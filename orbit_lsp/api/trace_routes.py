"""The routes that take FlashInfer-Bench's and SOL-ExecBench's JSON, and answer with Traces."""

from __future__ import annotations

import asyncio

from fastapi import FastAPI
from fastapi.responses import JSONResponse

from orbit_lsp.api import traces
from orbit_lsp.api.job_routes import Wait, records, unknown
from orbit_lsp.queue import result_text
from orbit_lsp.queue.job_queue import JobQueue
from orbit_lsp.queue.job_store import StoredJob
from orbit_lsp.queue.request import RequestRefusedError


def routes(made: FastAPI, queue: JobQueue) -> None:
    @made.post("/v1/traces", status_code=202, summary="Submit a solution; each workload becomes a job")
    async def submit(body: traces.Evaluation) -> JSONResponse:
        jobs = await queue.submit_all(await asyncio.to_thread(traces.requests, body))
        if refused := [job for job in jobs if isinstance(job, RequestRefusedError)]:
            raise refused[0]
        return JSONResponse(
            {"jobs": records(queue, [job for job in jobs if isinstance(job, StoredJob)])}, 202
        )

    @made.get("/v1/traces/{job}", summary="The Trace of a job; 202 with the job while it has not ended")
    async def trace(job: str, wait_s: Wait = 0) -> JSONResponse:
        await queue.wait(job, wait_s)
        if (followed := await queue.job(job)) is None:
            return unknown(job)
        known = followed.job
        result = await asyncio.to_thread(result_text.result_of, queue.store, known)
        if result is None:
            return JSONResponse(result_text.as_json(queue.store, followed, whole=False), 202)
        made = traces.trace(known, await asyncio.to_thread(queue.store.request, known.id), result)
        if made is not None:
            return JSONResponse(made)
        failure = result.finished.failure
        return JSONResponse(
            {
                "job_id": known.id, "error": failure.message if failure else known.summary, "outcome": known.outcome,
                "retryable": bool(failure and failure.retryable), **result_text.graded(result.finished),
            },
            500,
        )  # fmt: skip
