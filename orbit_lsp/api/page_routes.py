"""The routes of the pages for people. They read forms and write pages. Server-sent events tell a browser about
changes.
"""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import AsyncGenerator, Sequence
from urllib.parse import parse_qs

from fastapi import FastAPI
from fastapi.responses import HTMLResponse, JSONResponse, RedirectResponse, Response, StreamingResponse
from starlette.requests import Request as HttpRequest

from orbit_lsp import __version__
from orbit_lsp.api import page
from orbit_lsp.api.guard import COOKIE, RequestLimits, cookie_of
from orbit_lsp.queue import request as requests
from orbit_lsp.queue import result_text
from orbit_lsp.queue.job_queue import JobQueue
from orbit_lsp.queue.request import RequestRefusedError
from orbit_remote.common import limits as sizes
from orbit_remote.common import regular_files

_JOBS = 100
_PAUSE_S = 0.5
"""Between two words that something changed."""
_FIELDS = ("text", "name", "kernel", "action", "gpu", "grade")


def reading(made: FastAPI, queue: JobQueue, leaderboards: Sequence[str]) -> None:
    @made.get("/", include_in_schema=False)
    async def root(request: HttpRequest) -> Response:
        if "text/html" not in request.headers.get("accept", ""):
            return JSONResponse({"name": "orbit-lsp", "version": __version__, "routes": "/openapi.json"})
        return await overview(queue, {}, leaderboards=leaderboards)

    @made.get("/page/jobs/{job}", include_in_schema=False)
    async def job(job: str) -> Response:
        if (followed := await queue.job(job)) is None:
            return _missing(job)
        result = await asyncio.to_thread(result_text.result_of, queue.store, followed.job)
        lines = result_text.lines(followed.job, result, followed.position)
        report = bool(result and result.report)
        return HTMLResponse(page.job(followed, lines, report=report), headers=page.HEADERS)

    @made.get("/page/jobs/{job}/report", include_in_schema=False)
    async def report(job: str) -> Response:
        if (followed := await queue.job(job)) is None:
            return _missing(job)
        result = await asyncio.to_thread(result_text.result_of, queue.store, followed.job)
        try:
            if not result or not result.report:
                raise FileNotFoundError
            text = await asyncio.to_thread(regular_files.text, result.report, sizes.PROFILE)
        except OSError:
            return HTMLResponse(page.missing(f"Job {job:.40} has no report."), 404, page.HEADERS)
        return HTMLResponse(text, headers=page.REPORT_HEADERS)

    @made.get("/page/live", include_in_schema=False)
    async def live() -> Response:
        return StreamingResponse(_changes(queue), media_type="text/event-stream", headers=page.HEADERS)


def submitting(made: FastAPI, queue: JobQueue) -> None:
    @made.post("/page/jobs", include_in_schema=False)
    async def submit(request: HttpRequest) -> Response:
        form = await _form(request)
        given = {name: form.get(name, "") for name in _FIELDS}
        given["text"] = given["text"].replace("\r\n", "\n")  # as browsers send the lines of a form
        try:
            job = await queue.submit(requests.decoded(given))
        except RequestRefusedError as why:
            return await overview(queue, given, str(why))
        return RedirectResponse(f"/page/jobs/{job.id}", 303)

    @made.post("/page/jobs/{job}/cancel", include_in_schema=False)
    async def cancel(job: str) -> Response:
        if (followed := await queue.job(job)) is None:
            return _missing(job)
        await queue.cancel(followed.job.id)
        return RedirectResponse(f"/page/jobs/{followed.job.id}", 303)


def signing_in(made: FastAPI, limits: RequestLimits) -> None:
    @made.post("/page/sign-in", include_in_schema=False)
    async def sign_in(request: HttpRequest) -> Response:
        given = (await _form(request)).get("token", "").strip()
        if not hmac.compare_digest(given.encode(), limits.token.encode()):
            return HTMLResponse(page.sign_in(wrong=True), 401, page.HEADERS)
        answer = RedirectResponse("/", 303)
        secure = request.url.scheme == "https"
        answer.set_cookie(COOKIE, cookie_of(limits.token), httponly=True, samesite="strict", secure=secure)
        return answer


async def overview(
    queue: JobQueue, form: dict[str, str], refusal: str = "", leaderboards: Sequence[str] = ()
) -> Response:
    known = await asyncio.to_thread(lambda: queue.store.jobs(door=queue.door, most=_JOBS))
    jobs = queue.positions(known)
    text = page.overview(queue.places(), queue.waiting(), jobs, form, refusal, leaderboards)
    return HTMLResponse(text, 400 if refusal else 200, page.HEADERS)


async def _changes(queue: JobQueue) -> AsyncGenerator[str]:
    """Yield an event for each change. The first comes at once: something may have changed since the page was made."""
    while True:
        change = queue.change()
        yield "event: changed\ndata: jobs\n\n"
        await asyncio.sleep(_PAUSE_S)
        await change.wait()


async def _form(request: HttpRequest) -> dict[str, str]:
    """Return the first value of each name. A text that is no form has none."""
    body = (await request.body()).decode("utf-8", "replace")
    try:
        values = parse_qs(body, keep_blank_values=True, max_num_fields=20)
    except ValueError:
        return {}
    return {name: given[0] for name, given in values.items() if given}


def _missing(job: str) -> Response:
    return HTMLResponse(page.missing(f"There is no job {job:.40}."), 404, page.HEADERS)
