"""The doors that take jobs from others: the drop folder, HTTP. What is handed in, where it lies and how it is sent may be hostile."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from io import BytesIO
from pathlib import Path
from typing import Any

import httpx2
import pytest
from starlette.requests import Request as HttpRequest

from orbit_lsp.agents import message_lines
from orbit_lsp.agents.drop_folder import TAKEN, DropFolder
from orbit_lsp.api import connections, http_app
from orbit_lsp.api.guard import RequestLimits
from orbit_lsp.queue import pool
from orbit_lsp.queue.job_queue import JobQueue
from orbit_lsp.queue.job_store import JobStore
from orbit_remote.common.limits import VALUES

SECRET = "hunter2 is the password"
DEAD = "1-0123456789ab"
"""The name that a watcher which was killed may have had."""


class Never:
    """An engine that never takes a job."""

    async def ready(self) -> str:
        await asyncio.Event().wait()
        return ""

    async def perform(self, *_: Any) -> Any: ...
    async def close(self) -> None: ...


@asynccontextmanager
async def queue(folder: Path, door: str) -> AsyncGenerator[JobQueue]:
    """One whose jobs wait for ever: nothing here needs an engine."""
    made = JobQueue(JobStore(folder / "jobs.sqlite"), pool.parse("local:0"), lambda _: Never(), door)
    await made.start()
    try:
        yield made
    finally:
        await made.close()


# -- orbit-lsp watch --------------------------------------------------------------------------------


def _taken(folder: Path) -> Path:
    (folder / TAKEN).mkdir(mode=0o700)
    return folder / TAKEN


def _link_to_a_folder(folder: Path) -> None:
    (_taken(folder) / DEAD).symlink_to(folder.parent / "victim")


def _stray_files(folder: Path) -> None:
    (_taken(folder) / "file").write_text("x")
    os.mkfifo(folder / TAKEN / "fifo")
    (folder / TAKEN / DEAD).write_text("x")


def _no_lock(folder: Path) -> None:
    (_taken(folder) / DEAD).mkdir()
    (folder / TAKEN / "owners").mkdir()
    (folder / TAKEN / "owners" / DEAD).write_text("this is no database, and longer than the head of one " * 9)


def _lock_elsewhere(folder: Path) -> None:
    _no_lock(folder)
    lock = folder / TAKEN / "owners" / DEAD
    lock.unlink()
    lock.symlink_to(folder.parent / "victim" / "thesis.txt")


def _fifo_lock(folder: Path) -> None:
    _no_lock(folder)
    (folder / TAKEN / "owners" / DEAD).unlink()
    os.mkfifo(folder / TAKEN / "owners" / DEAD)


def _taken_links(folder: Path) -> None:
    (_taken(folder) / DEAD).mkdir()
    (folder / TAKEN / DEAD / "k.cu").symlink_to(folder.parent / "victim" / "thesis.txt")
    (folder / TAKEN / DEAD / "folder").symlink_to(folder.parent / "victim")


def _dropped(name: str | bytes, make: Callable[[Path], object]) -> Callable[[Path], None]:
    return lambda folder: make(folder / os.fsdecode(name)) and None


def _link(to: str) -> Callable[[Path], object]:
    return lambda path: path.symlink_to(to)


DROPPED: dict[str, tuple[Callable[[Path], None], str]] = {
    "a link to a secret": (_dropped("k.cu", _link("../victim/thesis.txt")), "'k.cu' is a link; drop the file itself"),
    "a link to a device": (_dropped("k.cu", _link("/dev/zero")), "'k.cu' is a link; drop the file itself"),
    "a link to itself": (_dropped("k.cu", _link("k.cu")), "'k.cu' is a link; drop the file itself"),
    "a link to nothing": (_dropped("k.cu", _link("nowhere")), "'k.cu' is a link; drop the file itself"),
    "a FIFO": (_dropped("k.cu", os.mkfifo), "'k.cu' cannot be read: it is a FIFO, not a regular file"),
    "a name of two lines": (_dropped("k\n\x1b[31m.cu", Path.touch), "'k\\n\\x1b[31m.cu' is not a valid file name"),
    "a name that is no text": (_dropped(b"k\xff.cu", Path.touch), "'k\\udcff.cu' is not a valid file name"),
    "a name as long as may be": (_dropped("k" * 252 + ".cu", Path.touch), "'kkkk"),
    "a folder": (_dropped("k.cu", Path.mkdir), ""),
    "a head of 10 MB": (_dropped("k.cu", lambda path: path.write_text("// Type: " + "x" * 10_000_000)), "Type is 'xxxx"),
    "a link where taken files are": (_link_to_a_folder, ""),
    "strange files where taken ones are": (_stray_files, ""),
    "a lock that is none": (_no_lock, ""),
    "a lock that is a link": (_lock_elsewhere, ""),
    "a lock that is a FIFO": (_fifo_lock, ""),
    "links among taken files": (_taken_links, "orbit-lsp was killed or crashed while this job ran"),
}  # fmt: skip


def victim(tmp_path: Path) -> Path:
    (tmp_path / "victim").mkdir()
    (tmp_path / "victim" / "thesis.txt").write_text(SECRET)
    (tmp_path / "in").mkdir()
    return tmp_path / "in"


@pytest.mark.parametrize("name", DROPPED)
async def test_what_lies_in_a_drop_folder_harms_nothing(tmp_path: Path, name: str) -> None:
    make, answer = DROPPED[name]
    folder = victim(tmp_path)
    make(folder)
    lines: list[str] = []
    async with queue(tmp_path, "watch") as jobs:
        watched = DropFolder(jobs, folder, tmp_path / "out", lines.append)
        watched.clean(0)
        await watched.once(0)
        watched.clean(3600)
        await watched.close()
    assert (tmp_path / "victim" / "thesis.txt").read_text() == SECRET
    results = [json.loads(path.read_text()) for path in (tmp_path / "out").iterdir()]
    assert {result["message"][: len(answer)] for result in results} == ({answer} if answer else set())
    assert SECRET not in json.dumps(results)


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (_link("../victim"), "is a link"),
        (Path.touch, "is not a folder"),
        (lambda path: (path.mkdir(), path.chmod(0o777)), "can be written by other users (its permissions are 777)"),
    ],
)  # fmt: skip
async def test_a_place_for_taken_files_that_others_could_use_is_refused(
    tmp_path: Path, make: Callable[[Path], object], why: str
) -> None:
    folder = victim(tmp_path)
    make(folder / TAKEN)
    async with queue(tmp_path, "watch") as jobs:
        with pytest.raises(OSError, match=r"\.orbit-taken ") as error:
            DropFolder(jobs, folder, tmp_path / "out", print)
    assert why in str(error.value)
    assert [path.name for path in (tmp_path / "victim").iterdir()] == ["thesis.txt"]


# -- orbit-lsp mcp ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sent", "left_out"),
    [
        (r'"\ud800.cu"', True),
        (r'"\ud83d\uDE00"', False),
        (r'"\\ud800"', False),
        ("[" * 500 + "]" * 500, True),
        ("[" * 50 + "]" * 50, False),
        ("{", True),
        ("[" + "0," * VALUES.most + "0]", True),
        (json.dumps("{[0,0]}, " * VALUES.most), False),
    ],
)
def test_a_message_that_the_package_cannot_read_is_answered(sent: str, left_out: bool) -> None:
    text = f'{{"id": 7, "method": "ping", "params": {sent}}}\n'
    line = message_lines.MessageLines(BytesIO(text.encode())).readline()
    answered = json.loads(line)
    assert (answered["id"], "is ignored" in answered["method"]) == (7, left_out)


# -- orbit-lsp api ----------------------------------------------------------------------------------

JOB: dict[str, Any] = {"name": "k.cu", "text": "__global__ void k() {}"}
REFERENCE = "class Model: ...\ndef get_inputs(): ...\n"


@asynccontextmanager
async def client(folder: Path, **limits: Any) -> AsyncGenerator[tuple[httpx2.AsyncClient, JobQueue]]:
    async with queue(folder, "api") as jobs:
        app = http_app.app(jobs, RequestLimits(**limits), ["127.0.0.1", "[::1]", "gpu7"])
        transport = httpx2.ASGITransport(app=app, raise_app_exceptions=False)
        async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1") as made:
            yield made, jobs


@pytest.mark.parametrize(
    ("headers", "status", "error"),
    [
        ({"Host": "evil.example"}, 400, "this server is not called 'evil.example'"),
        ({"Host": "127.0.0.1.evil.example"}, 400, "this server is not called"),
        ({"Host": ""}, 400, "this server is not called ''"),
        ({"Host": "[::1]:8421"}, 200, None),
        ({"Host": "GPU7:8421"}, 200, None),
        ({"Origin": "http://evil.example"}, 403, "requests from web pages are refused"),
        ({"Origin": "null"}, 403, "requests from web pages are refused"),
        ({"Origin": "http://127.0.0.1:8888"}, 403, "requests from web pages are refused"),
        ({"Origin": "http://127.0.0.1"}, 200, None),
        ({"Content-Length": "9" * 5_000}, 413, "the request's body is larger"),
        ({"Content-Length": "-1"}, 400, "Content-Length is '-1'"),
    ],
)
async def test_whose_requests_are_taken(
    tmp_path: Path, headers: dict[str, str], status: int, error: str | None
) -> None:
    async with client(tmp_path) as (http, _):
        answer = await http.post("/admin/cleanup-jobs", headers=headers)
        assert (answer.status_code, answer.json().get("error", "")[: len(error or "")]) == (
            status,
            error or "",
        )


@pytest.mark.parametrize(
    ("route", "body", "error"),
    [
        ("/v1/jobs", "[" * 100_000, "the body cannot be read as JSON"),
        ("/v1/jobs", '{"name":' * 100_000, "the body cannot be read as JSON"),
        ("/v1/jobs", '{"name": "k.cu", "text": "x", "timeout_s": ' + "9" * 5_000 + "}", "the body cannot be read as JSON"),
        ("/v1/jobs", b'{"name": "\xff"}', "the body cannot be read as JSON"),
        ("/v1/jobs", '{"name": "k.cu", "text": "x", "timeout_s": NaN}', "timeout_s is nan"),
        ("/v1/jobs", '{"name": "k.cu", "text": "x", "kernel": "\\ud800"}', "an argument or a name holds half a surrogate pair"),
        ("/v1/jobs", '{"name": "k.cu", "text": "x", "gpu": "\\ud800"}', "an argument or a name holds half a surrogate pair"),
        ("/v1/jobs", '{"name": "k.cu", "text": "x", "flags": ["-D\\ud800"]}', "an argument or a name holds half a surrogate pair"),
        ("/v1/jobs", '{"name": "k.cu", "text": "x", "kernel": "\\u0000"}', "an argument or a name holds a zero byte"),
        ("/v1/jobs", '{"name": "\\ud800.cu", "text": "x"}', "'\\ud800.cu' is not a valid file name"),
        ("/compare", {"ref_code": REFERENCE, "custom_code": "a = " + "-" * 200_000 + "1"}, "the torch source has no class Model"),
        ("/compare", {"ref_code": REFERENCE, "custom_code": "class ModelNew: ...\n" * 100_000}, "a torch source is too large"),
        ("/evaluate", {"kernel": {"source_code": "x", "kernel_type": "cuda", "io": {"args": [{"name": "n", "type": "int"}] * 1_001}}}, "kernel.io.args: List should have at most"),
    ],
)  # fmt: skip
async def test_a_body_that_is_meant_to_break_the_server(
    tmp_path: Path, route: str, body: Any, error: str
) -> None:
    async with client(tmp_path) as (http, jobs):
        content = json.dumps(body) if isinstance(body, dict) else body
        answer = await http.post(route, content=content, headers={"Content-Type": "application/json"})
        assert (answer.status_code, answer.json()["error"][: len(error)]) == (400, error)
        assert jobs.store.jobs() == []
        assert (await http.get("/health")).status_code == 200


@pytest.mark.parametrize("route", ["/v1/jobs", "/v1/jobs/batch", "/evaluate", "/compare", "/v1/traces"])
@pytest.mark.parametrize(
    "body",
    [
        "{" + ",".join(f'"k{number}":1' for number in range(31_000)) + "}",
        '{"jobs":[' + "[]," * 60_000 + "[]]}",
        '{"a\\",b":{' + '"\\\\":1,' * 60_000,
    ],
    ids=["unknown keys", "lists", "not closed"],
)
async def test_values_are_counted_before_they_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, route: str, body: str
) -> None:
    """A million unknown keys took 10 s, in which nobody else was answered, and 1.2 GiB."""
    monkeypatch.setattr(HttpRequest, "json", lambda _: pytest.fail("it was read"))
    async with client(tmp_path) as (http, _):
        answer = await http.post(route, content=body, headers={"Content-Type": "application/json"})
        assert (answer.status_code, answer.json()["error"][:52]) == (
            400,
            "the request's body has more than 30,000 items, the l",
        )


async def test_signs_in_texts_are_no_values_and_the_first_errors_are_answered(tmp_path: Path) -> None:
    async with client(tmp_path) as (http, jobs):
        whole = await http.post("/v1/jobs", json=JOB | {"text": 'f("a", {0: [1, 2]});\n' * 60_000})
        assert (whole.status_code, len(jobs.store.jobs())) == (202, 1)
        wrong = (await http.post("/v1/jobs", json=JOB | {f"k{number}": 1 for number in range(9_000)})).json()
        assert wrong["error"] == "k0: Extra inputs are not permitted"
        assert wrong["validation_errors"][19:] == [
            "k19: Extra inputs are not permitted",
            "and 8,980 more errors",
        ]


async def test_wrong_tokens_are_limited_as_guesses(tmp_path: Path) -> None:
    now = [0.0]
    right = {"Authorization": "Bearer secret"}
    async with client(tmp_path, token="secret", clock=lambda: now[0]) as (http, _):

        async def statuses(*tries: dict[str, str]) -> list[int]:
            return [(await http.get("/stats", headers=headers)).status_code for headers in tries]

        assert await statuses(*[{}] * 20) == [401] * 20  # no token is no guess
        wrong = [{"Authorization": f"Bearer {number}"} for number in range(4)]
        wrong += [{"X-Popcorn-Cli-Id": "a"}, {"Cookie": "orbit_page=0"}]
        assert await statuses(*wrong) == [401] * 6
        form = {"content": "token=wrong", "headers": {"Content-Type": "application/x-www-form-urlencoded"}}
        signed = [(await http.post("/page/sign-in", **form)).status_code for _ in range(5)]
        assert signed == [401] * 4 + [429]
        # who may be guessing is not told that a guess was right
        assert await statuses(right, wrong[0]) == [429, 429]
        assert (await http.get("/health")).status_code == 200
        now[0] += 1.5
        assert await statuses(right) == [200]
        # a user's own address is not locked by others who share it
        assert await statuses(*[wrong[0]] * 3, right) == [401, 429, 429, 200]


@pytest.mark.parametrize(
    ("body", "kind", "error"),
    [
        ('{"a":', "application/json", "the body is not JSON: at character 6: Expecting value"),
        ("{'a': 1}", "application/json", "the body is not JSON: at character 2: Expecting property name"),
        ("[1]", "application/json", "the body is not a JSON object; GET /openapi.json describes its fields"),
        ("", "application/json", "the request has no body; GET /openapi.json describes its fields"),
        (json.dumps(JOB), None, "the header Content-Type is missing; send `Content-Type: application/json`"),
        (json.dumps(JOB), "application/x-www-form-urlencoded", "the header Content-Type is 'application/x-www-form-urlencoded'; send"),
    ],
)  # fmt: skip
async def test_a_body_that_is_no_json_or_is_not_sent_as_such(
    tmp_path: Path, body: str, kind: str | None, error: str
) -> None:
    async with client(tmp_path) as (http, jobs):
        headers = {"Content-Type": kind} if kind else {}
        for route in ("/v1/jobs", "/evaluate", "/v1/traces"):
            answer = await http.post(route, content=body.encode(), headers=headers)
            assert (answer.status_code, answer.json()["error"][: len(error)]) == (400, error)
        assert jobs.store.jobs() == []


@pytest.mark.parametrize(
    ("method", "route", "methods"),
    [("PUT", "/v1/jobs", "GET and POST"), ("GET", "/evaluate", "POST"), ("POST", "/v1/jobs/abc", "DELETE and GET")],
)  # fmt: skip
async def test_a_method_that_a_route_does_not_take(
    tmp_path: Path, method: str, route: str, methods: str
) -> None:
    async with client(tmp_path) as (http, _):
        answer = await http.request(method, route)
        error = f"{method} is no method of {route}, which takes {methods}"
        assert (answer.status_code, answer.json()) == (405, {"error": error})
        assert answer.headers["allow"] == methods.replace(" and ", ", ")


async def test_an_unknown_job_and_an_unknown_route_are_404_in_one_form(tmp_path: Path) -> None:
    async with client(tmp_path) as (http, _):
        for route in (
            "/v1/jobs/abcdef00",
            "/v1/jobs/abcdef00/events",
            "/job/abcdef00",
            "/v1/jobs/%00%ff",
            "/nothing",
        ):
            answer = await http.get(route)
            assert (answer.status_code, list(answer.json())) == (404, ["error"]), route


async def test_a_body_that_does_not_arrive_and_too_many_at_once(tmp_path: Path) -> None:
    begun, more = asyncio.Event(), asyncio.Event()

    async def slow() -> AsyncGenerator[bytes]:
        yield b" " * 600
        begun.set()
        await more.wait()
        yield b" "

    headers = {"Content-Type": "application/json"}
    async with client(tmp_path, bodies=1_000) as (http, _):
        first = asyncio.create_task(http.post("/v1/jobs", content=slow(), headers=headers))
        await begun.wait()
        assert (await http.post("/v1/jobs", content=b" " * 600, headers=headers)).status_code == 503
        more.set()
        assert (await first).status_code == 400
        assert (await http.post("/v1/jobs", content=b" " * 600, headers=headers)).status_code == 400
    more.clear()
    async with client(tmp_path, body_s=0.0) as (http, _):
        answer = await http.post("/v1/jobs", content=slow(), headers=headers)
        assert (answer.status_code, "did not arrive" in answer.json()["error"]) == (408, True)


@asynccontextmanager
async def served(app: Any, log_level: str = "critical") -> AsyncGenerator[tuple[str, int]]:
    """Where it listens, behind our connections."""
    import uvicorn

    config = uvicorn.Config(
        app, port=0, http=connections.BoundedConnection, ws="none", lifespan="off", log_level=log_level
    )
    server = uvicorn.Server(config)
    with config.bind_socket() as socket:
        serving = asyncio.create_task(server.serve([socket]))
        while not server.started:  # noqa: ASYNC110 - uvicorn has no event for it
            await asyncio.sleep(0)
        yield socket.getsockname()[:2]
        server.should_exit = True
        await serving


async def test_a_client_that_vanishes_takes_nothing_with_it(tmp_path: Path) -> None:
    body = json.dumps({"kernel": {"source_code": JOB["text"], "kernel_type": "cuda"}}).encode()
    head = b"POST /evaluate HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    async with (
        queue(tmp_path, "api") as jobs,
        served(http_app.app(jobs, RequestLimits(), ["127.0.0.1"])) as place,
    ):
        for sent, length in ((body, len(body)), (body[:20], len(body)), (b"", 1 << 40)):
            change = jobs.change()
            _, writer = await asyncio.open_connection(*place)
            writer.write(head + f"Content-Length: {length}\r\n\r\n".encode() + sent)
            await writer.drain()
            if sent == body:
                await change.wait()
            writer.close()
            await writer.wait_closed()
        reader, writer = await asyncio.open_connection(*place)
        writer.write(b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
        assert b'"waiting":1,' in await reader.read()
        writer.close()
        [job] = jobs.store.jobs()
        assert (await jobs.cancel(job.id) or job).outcome == "cancelled"


async def test_a_connection_without_a_request_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections.BoundedConnection, "head_s", 0.0)
    async with served(answering(asyncio.Event())) as place:
        silent, writer = await asyncio.open_connection(*place)
        assert await silent.read() == b""  # closed by the server
        writer.close()


def answering(go: asyncio.Event) -> Any:
    """An app that answers at once, and /wait when it may."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["path"] == "/wait":
            await go.wait()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": b"ok"})

    return app


async def test_a_client_that_wants_a_websocket_is_answered_and_nothing_is_logged(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async with served(answering(asyncio.Event()), "warning") as place:
        for wanted in ("websocket", "h2c"):
            reader, writer = await asyncio.open_connection(*place)
            writer.write(
                f"GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: {wanted}\r\n\r\n".encode()
            )
            assert (await reader.readuntil(b"ok")).startswith(b"HTTP/1.1 200 ")
            writer.close()
    assert capsys.readouterr().err == ""


async def test_a_connection_has_the_place_of_the_one_that_is_waited_for_longest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connections.BoundedConnection, "most", 2)
    monkeypatch.setattr(connections.BoundedConnection, "head_s", 3600.0)
    go = asyncio.Event()
    writers: list[asyncio.StreamWriter] = []

    async def connected(path: str = "") -> asyncio.StreamReader:
        reader, writer = await asyncio.open_connection(*place)
        writers.append(writer)
        if path:
            writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        return reader

    async with served(answering(go)) as place:
        first = await connected("/")
        assert await first.readuntil(b"ok")
        silent = await connected()
        second = await connected("/")
        assert await silent.read() == b""  # it had asked for nothing, and the older one had
        assert await second.readuntil(b"ok")
        waits = await connected("/wait")
        assert await first.read() == b""
        too = await connected("/wait")
        assert await second.read() == b""
        one_too_many = await connected()
        assert await one_too_many.read() == b""  # the others have an answer under way
        go.set()
        assert await waits.readuntil(b"ok")
        assert await too.readuntil(b"ok")
        for writer in writers:
            writer.close()
