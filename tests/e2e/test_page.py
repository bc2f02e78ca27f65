"""The evaluation server's pages for people, as a browser without scripts reads them. The GPU side is recorded (recorded_worker.py)."""

from __future__ import annotations

import asyncio
import html
import re
from html.parser import HTMLParser
from pathlib import Path

import httpx2
import pytest

from orbit_lsp.api import page
from orbit_lsp.queue.job_queue import JobQueue
from tests.e2e.test_api import SLOW, server
from tests.e2e.test_history import SAXPY

BROWSER = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
MARKUP = "<script>alert(1)</script>\"'>&<img src=x onerror=alert(1)>"


class _Reader(HTMLParser):
    """The text of a page, and the tags and attributes that it has."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: set[str] = set()
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_data(self, data: str) -> None:
        if self.tags[-1:] != ["style"]:
            self.text += data


def form(**fields: str) -> dict[str, str]:
    return {
        "text": SAXPY.replace("\n", "\r\n"),
        "name": "saxpy.cu",
        "action": "run",
        "grade": "author",
        **fields,
    }


async def submitted(client: httpx2.AsyncClient, queue: JobQueue, **fields: str) -> str:
    """The address of the job's page."""
    answer = await client.post("/page/jobs", data=form(**fields), headers=BROWSER)
    assert answer.status_code == 303, answer.text
    await queue.wait(answer.headers["location"].rpartition("/")[2])
    return answer.headers["location"]


async def test_a_kernel_is_pasted_and_its_result_read(tmp_path: Path, recorded_python: str) -> None:
    async with server(tmp_path, recorded_python) as (client, queue):
        assert (await client.get("/")).json()["name"] == "orbit-lsp"  # for a program
        empty = await client.get("/", headers=BROWSER)
        assert "@media (prefers-color-scheme: dark)" in empty.text
        assert re.search(r"local:0\s*not known yet\s*free", re.sub(r"<[^>]*>", " ", empty.text))

        place = await submitted(client, queue, kernel="saxpy")
        shown = await client.get(place, headers=BROWSER)
        assert "288 µs ±0.2%" in _Reader(shown.text).text
        assert await queue.job(place.rpartition("/")[2])
        [job] = queue.store.jobs()
        assert queue.store.request(job.id).text == SAXPY

        everything = await client.get("/", headers=BROWSER)
        assert place in everything.text
        report = await client.get(f"{place}/report", headers=BROWSER)
        assert report.text.startswith("<!doctype html>")
        assert "sandbox" in report.headers["content-security-policy"]


async def test_a_refused_form_keeps_what_was_typed(tmp_path: Path, recorded_python: str) -> None:
    async with server(tmp_path, recorded_python) as (client, queue):
        answer = await client.post("/page/jobs", data=form(name="saxpy.txt"), headers=BROWSER)
        assert answer.status_code == 400
        text = _Reader(answer.text).text
        assert "Not submitted: saxpy.txt is not a .cu, .cuh or .py file" in text
        assert SAXPY in text
        assert (await client.post("/page/jobs", content=b"\xff=%ff&" * 99)).status_code == 400
        assert queue.store.jobs() == []


async def test_no_markup_of_a_job_reaches_a_page(tmp_path: Path, recorded_python: str) -> None:
    async with server(tmp_path, recorded_python) as (client, queue):
        plain = await submitted(client, queue)
        hostile = await submitted(client, queue, text=SAXPY + f"// {MARKUP} BUG", kernel=MARKUP)
        refused = await client.post("/page/jobs", data=form(name=MARKUP, kernel=MARKUP), headers=BROWSER)
        tags = {
            address: _Reader((await client.get(address, headers=BROWSER)).text)
            for address in (plain, hostile)
        }
        assert tags[plain].attributes >= tags[hostile].attributes
        assert set(tags[plain].tags) >= set(tags[hostile].tags)
        everything = await client.get("/", headers=BROWSER)
        for answer in (everything, refused):
            assert answer.text.count("<script>") == 1
            assert "<img" not in answer.text
            assert html.escape(MARKUP) in answer.text
            policy = answer.headers["content-security-policy"]
            assert policy.startswith("default-src 'none'; style-src 'sha256-")
            assert "unsafe" not in policy
            assert page._hash(re.findall(r"<script>(.*?)</script>", answer.text, re.DOTALL)[0]) in policy
            assert page._hash(re.findall(r"<style>(.*?)</style>", answer.text, re.DOTALL)[0]) in policy


async def test_a_job_is_cancelled_on_its_page_and_the_page_is_told_of_changes(
    tmp_path: Path, recorded_python: str
) -> None:
    async with server(tmp_path, recorded_python) as (client, queue):
        change = queue.change()
        answer = await client.post("/page/jobs", data=form(text=SLOW), headers=BROWSER)
        await change.wait()
        place = answer.headers["location"]
        waiting = await client.get(place, headers=BROWSER)
        assert f'action="{place}/cancel"' in waiting.text
        ended = await client.post(f"{place}/cancel", headers=BROWSER | {"Origin": "http://127.0.0.1"})
        assert (ended.status_code, ended.headers["location"]) == (303, place)
        assert "cancelled" in (await client.get(place, headers=BROWSER)).text


@pytest.mark.parametrize("address", ["/page/jobs/ffffffff", "/page/jobs/%3Cb%3E/report"])
async def test_a_job_that_is_not_there(tmp_path: Path, recorded_python: str, address: str) -> None:
    async with server(tmp_path, recorded_python) as (client, _):
        answer = await client.get(address, headers=BROWSER)
        assert (answer.status_code, "There is no job" in answer.text, "<b>" in answer.text) == (
            404,
            True,
            False,
        )
        assert (await client.post("/page/jobs/ffffffff/cancel")).status_code == 404


async def test_the_token_is_typed_once_and_stands_in_no_address(tmp_path: Path, recorded_python: str) -> None:
    async with server(tmp_path, recorded_python, token="secret") as (client, _):
        first = await client.get("/", headers=BROWSER)
        assert first.status_code == 401
        assert 'name="token" type="password"' in first.text
        assert "its ORBIT_API_TOKEN, or if it has none, the token that it printed" in first.text
        assert (await client.get("/stats")).json()["error"].startswith("this server needs its token")
        wrong = await client.post("/page/sign-in", data={"token": "guess"}, headers=BROWSER)
        assert (wrong.status_code, "That is not the token" in wrong.text) == (401, True)
        right = await client.post("/page/sign-in", data={"token": "secret"}, headers=BROWSER)
        assert (right.status_code, right.headers["location"]) == (303, "/")
        cookie = right.headers["set-cookie"]
        assert "secret" not in cookie
        assert "HttpOnly" in cookie
        assert "SameSite=strict" in cookie
        assert (await client.get("/", headers=BROWSER)).status_code == 200  # the client has kept it
        assert (await client.get("/stats")).status_code == 200
        other = await client.post("/page/jobs", data=form(), headers={"Origin": "http://evil.example"})
        assert other.status_code == 403


async def test_only_so_many_tokens_are_tried_in_a_second(tmp_path: Path, recorded_python: str) -> None:
    limits = {"token": "secret", "burst": 3.0, "rate": 1.0, "clock": lambda: 0.0}
    async with server(tmp_path, recorded_python, **limits) as (client, _):
        answers = [await client.post("/page/sign-in", data={"token": "guess"}) for _ in range(4)]
        assert [answer.status_code for answer in answers] == [401, 401, 401, 429]
        assert (await client.get("/stats", headers={"Authorization": "Bearer secret"})).status_code == 200


async def test_the_first_word_of_the_live_part_comes_at_once(tmp_path: Path, recorded_python: str) -> None:
    from orbit_lsp.api.page_routes import _changes

    async with server(tmp_path, recorded_python) as (_, queue):
        async with asyncio.timeout(60):
            assert await anext(_changes(queue)) == "event: changed\ndata: jobs\n\n"
