"""`orbit-lsp mcp`, spoken to by the SDK's own client. The GPU side is recorded (recorded_worker.py): these machines have none."""

from __future__ import annotations

import asyncio
import re
import sqlite3
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx2
import pytest
import uvicorn

from orbit_lsp.api import connections, http_app
from orbit_lsp.api.guard import RequestLimits
from orbit_lsp.queue import pool
from orbit_lsp.queue.job_queue import JobQueue, engines
from orbit_lsp.queue.job_store import JobStore
from orbit_lsp.queue.slot_engine import EngineOptions
from orbit_remote.common import limits
from tests.e2e.forks import LIMIT_S
from tests.e2e.test_driver_lenses import KERNELS, TESTS
from tests.e2e.test_history import FASTER, SAXPY
from tests.later import Later
from tests.remote.nvcc_check import needs_nvcc

if TYPE_CHECKING:
    import mcp
    from mcp.client import stdio, streamable_http

    from orbit_lsp.agents import mcp_server
else:
    mcp, streamable_http = Later("mcp"), Later("mcp.client.streamable_http")
    stdio = Later("mcp.client.stdio")
    mcp_server = Later("orbit_lsp.agents.mcp_server")

BAD = "__global__ void k() { BUG; }\n"
TOOLS = ["check", "compare", "disassemble", "gpus", "job", "profile", "run", "submit"]
SLOW = SAXPY.replace("{", "{/*SLOW*/", 1)


@asynccontextmanager
async def agent(folder: Path, python: str, **more: Any) -> AsyncIterator[tuple[mcp.Client, JobQueue]]:
    """A client whose server is in this process, with `more` settings."""
    options = EngineOptions({"python": python, "modal": {"budget_usd": 0.0}, **more}, (str(folder),))
    queue = JobQueue(JobStore(folder / "jobs.sqlite"), pool.parse("local:0"), engines(options), "mcp")
    await queue.start()
    try:
        async with asyncio.timeout(LIMIT_S), mcp.Client(mcp_server.server(queue, budget_usd=0.0)) as client:
            yield client, queue
    finally:
        await queue.close()


def said(result: Any) -> str:
    return re.sub(r"\b[0-9a-f]{16}\b", "ID", unmasked(result))


def unmasked(result: Any) -> str:
    return "\n".join(block.text for block in result.content)


async def test_a_record_that_cannot_be_used_is_a_sentence_in_each_tool(
    tmp_path: Path, recorded_python: str
) -> None:
    async with agent(tmp_path, recorded_python) as (client, queue):
        queue.store._file.busy_s = 0.1
        with closing(sqlite3.connect(tmp_path / "jobs.sqlite", isolation_level=None)) as other:
            other.execute("begin exclusive")
            for tool, words in (
                ("submit", {"text": SAXPY, "name": "k.cu"}),
                ("job", {"id": "0123456789abcdef"}),
            ):
                result = await client.call_tool(tool, words)
                assert result.is_error
                assert re.search(
                    r"^(Error executing tool \w+: )?the record of jobs cannot be used: database is locked",
                    said(result),
                )


async def test_the_tools_and_what_they_answer(tmp_path: Path, recorded_python: str) -> None:
    (tmp_path / "saxpy.cu").write_text(SAXPY)
    file = str(tmp_path / "saxpy.cu")
    async with agent(tmp_path, recorded_python) as (client, _):
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert sorted(tools) == TOOLS
        assert all(tool.output_schema and tool.description for tool in tools.values())
        # a model reads all of it in each conversation
        assert sum(len(str(tool.model_dump(exclude={"output_schema"}))) for tool in tools.values()) < 16_000

        steps: list[str] = []

        async def step(_: float, __: float | None, message: str | None) -> None:
            steps.append(re.sub(r"^[0-9a-f]{16} +", "", message or ""))

        ran = await client.call_tool("run", {"file": file}, progress_callback=step)
        name = "saxpy(int, float, const float *, float *)"
        assert said(ran).startswith(
            "ID  ok              run saxpy.cu: saxpy 288 µs, 1 check passed\nsaxpy: run just now\n"
        )
        assert re.search(r"time, median +288 µs ±0.2% .*\[CUPTI activity records\]", said(ran))
        answer = ran.structured_content
        assert (answer["outcome"], answer["place"], answer["problems"]) == ("ok", "local:0", [])
        assert (answer["grade"], answer["grade_why"][:8]) == ("author", "author: ")
        assert "\ngrade: author: the candidate's code shares the process that measures it" in said(ran)
        assert answer["numbers"][0] == {
            "kernel": name, "what": f"time, median ({answer['numbers'][0]['what'][14:-1]})", "value": 288_032,
            "unit": "ns", "source": "CUPTI activity records",
        }  # fmt: skip
        assert steps[-1].startswith("ok              run saxpy.cu: saxpy 288 µs")

        wrong = await client.call_tool("run", {"text": BAD, "name": "bad.cu"})
        assert wrong.is_error
        assert 'bad.cu:1:23: error: identifier "BUG" is undefined [nvcc #20]\n' in said(wrong) + "\n"
        assert wrong.structured_content["problems"][0] == {
            "severity": "error", "file": "bad.cu", "line": 1, "column": 23, "message": 'identifier "BUG" is undefined',
            "tool": "nvcc",
        }  # fmt: skip

        compared = await client.call_tool("compare", {"file": file, "other_text": FASTER})
        assert "saxpy takes 7." in compared.structured_content["verdict"]
        assert " more time than saxpy.cu " in compared.structured_content["verdict"]

        page = await client.read_resource(f"orbit://report/{answer['job']}")
        assert "<!doctype html>" in str(page.contents[0])
        record = await client.read_resource(f"orbit://job/{answer['job']}/record")
        assert '"version": 1' in getattr(record.contents[0], "text", "")


async def test_a_long_job_is_followed_by_its_id_and_cancelled(tmp_path: Path, recorded_python: str) -> None:
    async with agent(tmp_path, recorded_python) as (client, queue):
        started = await client.call_tool("run", {"text": SLOW, "name": "saxpy.cu", "wait_s": 0.01})
        job = started.structured_content["job"]
        assert not started.is_error
        assert said(started).endswith('call the tool `job` with id "ID" to wait on, or with cancel to end it')
        behind = await client.call_tool("submit", {"text": SAXPY, "name": "saxpy.cu", "key": "once"})
        again = await client.call_tool("submit", {"text": SAXPY, "name": "saxpy.cu", "key": "once"})
        assert behind.structured_content["job"] == again.structured_content["job"]
        pool_text = said(await client.call_tool("gpus", {}))
        assert re.fullmatch(
            r"local:0  name not known yet  (runs job ID|free)\n[012] jobs wait\nbudget for rented GPUs: \$0.00 this month",
            pool_text,
        )
        ended = await client.call_tool("job", {"id": job, "cancel": True})
        assert ended.structured_content["outcome"] == "cancelled"
        rest = await client.call_tool("job", {"id": behind.structured_content["job"]})
        assert rest.structured_content["outcome"] == "ok"
        assert queue.waiting() == 0


async def test_gpus_says_why_a_place_takes_no_job_and_where_no_gpu_is(
    tmp_path: Path, recorded_python: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def place(
        name: str, gpu: str | None = None, job: str | None = None, aside: str | None = None
    ) -> dict[str, Any]:
        return {"name": name, "gpu": gpu, "job": job, "aside": aside}

    async with agent(tmp_path, recorded_python) as (client, queue):
        places = [
            place("local:0", "NVIDIA L4", "0123456789abcdef"),
            place("local:1", "NVIDIA L4", None, "a copy of 64 MiB takes 80.0 µs"),
            place("local:2") | {"absent": "this machine has no GPU 2: it has 0, 1"},
        ]
        monkeypatch.setattr(queue, "places", lambda: places)
        answer = await client.call_tool("gpus", {})
        assert said(answer).splitlines()[:3] == [
            "local:0  NVIDIA L4  runs job ID",
            "local:1  NVIDIA L4  set aside: a copy of 64 MiB takes 80.0 µs",
            "local:2  no GPU  this machine has no GPU 2: it has 0, 1",
        ]
        assert [each["absent"] for each in answer.structured_content["places"]] == [
            "",
            "",
            places[2]["absent"],
        ]


async def outcome_of_a_cancelled_call(client: Any, queue: JobQueue) -> str:
    """Of the job of a call that is cancelled while its kernel runs."""
    runs = asyncio.Event()

    async def step(_: float, __: float | None, message: str | None) -> None:
        if "running" in (message or ""):
            runs.set()

    call = asyncio.create_task(
        client.call_tool("run", {"text": SLOW, "name": "saxpy.cu"}, progress_callback=step)
    )
    async with asyncio.timeout(LIMIT_S):
        await runs.wait()
    call.cancel()
    await asyncio.gather(call, return_exceptions=True)
    [job] = queue.store.jobs()
    ended = await queue.wait(job.id, LIMIT_S)
    assert ended
    return ended.outcome


async def test_a_call_that_is_cancelled_ends_its_job(tmp_path: Path, recorded_python: str) -> None:
    async with agent(tmp_path, recorded_python) as (client, queue):
        assert await outcome_of_a_cancelled_call(client, queue) == "cancelled"


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("run", {}, "give either `file`, a path, or `text` with `name`"),
    ("run", {"file": "/absent.cu"}, "there is no file /absent.cu"),
    ("run", {"text": BAD, "gpu": "B200"}, "no place of this pool is 'B200'; it has local:0"),
    (
        "run",
        {"text": BAD, "flags": ["-ccbin", "/x"]},
        "a compiler flag is not permitted: -ccbin is left out",
    ),
    ("compare", {"text": BAD}, "give either `other_file` or `other_text` to compare with"),
    (
        "submit",
        {"text": BAD, "action": "compare"},
        "give either `other_file` or `other_text` to compare with",
    ),
    (
        "submit",
        {"text": BAD, "other_text": BAD},
        "`other_file` and `other_text` are for compare: leave them out, or use it instead of run",
    ),
    *(
        (
            tool,
            {"text": BAD, "other_text": BAD, "grade": "judge"} | more,
            "Error executing tool TOOL: 'judge' is not a grade; use author or referee",
        )
        for tool, more in (("compare", {}), ("submit", {"action": "compare"}))
    ),
    (
        "run",
        {"text": BAD, "kernal": "k"},
        "run has no argument 'kernal'; its arguments: file, text, name, kernel, ",
    ),
    ("gpus", {"all": 1, "b": 2}, "gpus has no argument 'all' and 1 more; its arguments: none"),
    (
        "run",
        {"text": BAD, "grade": ""},
        "Error executing tool TOOL: '' is not a grade; use author or referee",
    ),
    (
        "submit",
        {"text": BAD, "action": "sort"},
        "'sort' is not an action; use one of run, profile, check, compile, compare",
    ),
    ("run", {"text": BAD, "priority": "now"}, "'now' is not a priority; use one of high, normal, low"),
    (
        "check",
        {"text": BAD, "checks": ["magic"]},
        "'magic' is not a tool of a check; use memcheck, racecheck, initcheck, synccheck",
    ),
    ("job", {"id": "ffff"}, "there is no job 'ffff'"),
    (
        "run",
        {"text": SAXPY, "name": "k.cu", "through": "auto"},
        "a test or script runs in its project: name the kernel's file by its path, not by its text",
    ),
]
"""A tool, its arguments, and what is said of them in one line."""


async def test_what_is_refused(tmp_path: Path, recorded_python: str) -> None:
    async with agent(tmp_path, recorded_python) as (client, _):
        for tool, arguments, sentence in REFUSED:
            refused = await client.call_tool(tool, arguments)
            assert refused.is_error, (tool, arguments)
            assert sentence.replace("TOOL", tool) in said(refused)
            assert "\n" not in said(refused)
        with pytest.raises(mcp.MCPError):
            await client.read_resource("orbit://job/ffffffff/text")


async def test_a_grade_is_asked_for_and_a_comparison_is_submitted(
    tmp_path: Path, recorded_python: str
) -> None:
    async with agent(tmp_path, recorded_python) as (client, queue):
        tools = {tool.name: tool.input_schema["properties"] for tool in (await client.list_tools()).tools}
        graded = {name for name, properties in tools.items() if "grade" in properties}
        assert graded == {"run", "compare", "submit"}
        assert all(tools[name]["grade"]["enum"] == ["author", "referee"] for name in graded)

        versions = {"text": SAXPY, "other_text": FASTER}
        jobs = [
            await client.call_tool("run", {"text": SAXPY, "name": "saxpy.cu", "grade": "referee"}),
            await client.call_tool("compare", versions | {"grade": "referee"}),
            await client.call_tool("submit", versions | {"action": "compare", "grade": "referee"}),
            await client.call_tool("submit", versions | {"action": "compare"}),
        ]
        ids = [answer.structured_content["job"] for answer in jobs]
        assert [queue.store.request(each).grade for each in ids] == ["referee"] * 3 + ["author"]
        for each in ids[2:]:
            ended = await client.call_tool("job", {"id": each})
            assert "saxpy takes 7." in ended.structured_content["verdict"]


# -- compiled code, by the real compilers -----------------------------------------------------------

TWO = """\
__device__ float twice(float x) {
  return 2 * x;
}
__global__ void first(float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = twice(y[i]);
}
__global__ void second(float* y) { y[0] = 1; }
template <typename T> __global__ void never(T* y) { *y = 1; }
"""
LONG = """\
__global__ void k(volatile float* y) {
#pragma unroll
  for (int i = 0; i < 400; i++) y[i] = i;
}
"""
ADD = """\
import triton
import triton.language as tl

# orbit: n = 4096; x = randn(n); y = empty(n)
# orbit: launch add[(4,)](x, y, n, BLOCK=1024)
@triton.jit
def add(x, y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i, tl.load(x + i, mask=i < n) + 1, mask=i < n)
"""


@needs_nvcc
async def test_sass_stands_below_the_lines_of_its_source(tmp_path: Path) -> None:
    async with agent(tmp_path, sys.executable) as (client, _):
        asked = {"text": TWO, "name": "two.cu", "kernel": "first", "gpu": "A100"}
        made = await client.call_tool("disassemble", asked)
        assert said(made).startswith(
            "ID  ok              compile two.cu first: 2 kernels compiled for sm_80\n"
        )
        listing = unmasked(made)[unmasked(made).index("// SASS") :]
        answer = made.structured_content
        [code] = answer["code"]
        assert listing.startswith(
            f"// SASS of first, sm_80: {code['length']} instructions\n// two.cu:4    __global__"
        )
        assert re.search(
            r"\n// two.cu:5    int i = blockIdx.x \* blockDim.x \+ threadIdx.x;\n +/\*[0-9a-f]{4}\*/  B\S+  S2R ",
            listing,
        )
        assert "\n// two.cu:6, in two.cu:2    if (i < n) y[i] = twice(y[i]);\n" in listing
        assert "second" not in listing
        assert sum(len(line["code"]) for line in code["lines"]) == code["length"]
        assert (code["lines"][0]["line"], code["lines"][0]["source"]) == (4, TWO.splitlines()[3])
        assert {number["what"] for number in answer["numbers"]} >= {"registers per thread, sm_80"}
        assert said(await client.call_tool("job", {"id": answer["job"]})) == said(made)
        whole = await client.read_resource(f"orbit://job/{answer['job']}/code")
        assert getattr(whole.contents[0], "text", "") == listing
        path = tmp_path / "two.cu"
        path.write_text(TWO)
        at_path = await client.call_tool(
            "disassemble", {"file": str(path), "kernel": "second", "level": "ptx"}
        )
        assert ".visible .entry _Z6secondPf(" in said(at_path)


@needs_nvcc
@pytest.mark.slow
async def test_long_sass_is_cut_and_its_resource_is_whole(tmp_path: Path) -> None:
    async with agent(tmp_path, sys.executable) as (client, _):
        made = await client.call_tool("disassemble", {"text": LONG, "name": "long.cu"})
        listing = said(made)[said(made).index("// SASS") :].splitlines()
        assert len(listing) == 151
        answer = made.structured_content
        assert answer["code"][0]["length"] > 400
        whole = await client.read_resource(f"orbit://job/{answer['job']}/code")
        lines = getattr(whole.contents[0], "text", "").splitlines()
        assert lines[:150] == listing[:-1]
        assert listing[-1] == f"({len(lines) - 150} more lines: resource orbit://job/ID/code)"
        assert f"orbit://job/{answer['job']}/code" in answer["resources"]


NO_SASS: list[tuple[dict[str, str], str]] = [
    ({"kernel": "fist"}, "there is no kernel fist in two.cu; it has: first, second, never"),
    ({}, "which kernel? Name one: two.cu has first, second, never"),
    (
        {"kernel": "never"},
        "there is no sass of never: the compiler generated no code for it: a template needs a launch spec or an instantiation",
    ),
    ({"kernel": "first", "level": "ttir"}, "ttir exists only for Triton kernels; a CUDA kernel has ptx and sass"),
    ({"kernel": "first", "level": "asm"}, "'asm' is not a level; use one of ttir, ttgir, llir, ptx, sass"),
    (
        {"kernel": "first", "gpu": "local:0"},
        "'local:0' is not a GPU that code can be compiled for; name one as in H100 or sm_90",
    ),
    ({"kernel": "first", "text": TWO.replace("int n", "it n")}, 'two.cu:4:33: error: identifier "it" is undefined'),
]  # fmt: skip


@needs_nvcc
async def test_why_there_is_no_sass(tmp_path: Path) -> None:
    async with agent(tmp_path, sys.executable) as (client, _):
        for more, sentence in NO_SASS:
            refused = await client.call_tool("disassemble", {"text": TWO, "name": "two.cu", **more})
            assert refused.is_error
            assert sentence in said(refused)
            if refused.structured_content:
                with pytest.raises(
                    mcp.MCPError, match="has no compiled code: the tool `disassemble` keeps it"
                ):
                    await client.read_resource(f"orbit://job/{refused.structured_content['job']}/code")


@needs_nvcc
@pytest.mark.slow
async def test_triton_code_has_the_names_of_its_own_job(tmp_path: Path) -> None:
    """Triton's cache answers the second one, with the paths of the first one, whose folder is gone."""
    async with agent(tmp_path, sys.executable) as (client, _):
        for _again in range(2):
            made = await client.call_tool("disassemble", {"text": ADD, "name": "add.py", "gpu": "H100"})
            assert "\n// SASS of add, BLOCK=1024, num_warps=4," in said(made)
            assert "\n// add.py:8    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)\n" in said(made)
        ir = await client.call_tool("disassemble", {"text": ADD, "name": "add.py", "level": "ttgir"})
        assert '\n#loc = loc("add.py":7:0)\n' in said(ir)


# -- /mcp of `orbit-lsp api` ------------------------------------------------------------------------


@asynccontextmanager
async def agent_over_http(
    folder: Path, python: str, token: str
) -> AsyncIterator[tuple[mcp.Client, JobQueue, str]]:
    """A client whose server listens on the loopback, with the evaluation server's guard before it."""
    options = EngineOptions({"python": python, "modal": {"budget_usd": 0.0}})
    queue = JobQueue(JobStore(folder / "jobs.sqlite"), pool.parse("local:0"), engines(options), "api")
    await queue.start()
    app = http_app.app(
        queue, RequestLimits(token=token), ["127.0.0.1"], mcp_server.over_http(queue, budget_usd=0.0)
    )
    config = uvicorn.Config(app, port=0, http=connections.BoundedConnection, ws="none", log_level="critical")
    served = uvicorn.Server(config)
    headers = {"Authorization": f"Bearer {token}"}
    with config.bind_socket() as socket:
        serving = asyncio.create_task(served.serve([socket]))
        address = f"http://127.0.0.1:{socket.getsockname()[1]}"
        try:
            async with (
                asyncio.timeout(LIMIT_S),
                httpx2.AsyncClient(headers=headers, timeout=LIMIT_S) as http,
                mcp.Client(
                    streamable_http.streamable_http_client(f"{address}/mcp", http_client=http)
                ) as client,
            ):
                yield client, queue, address
        finally:
            served.should_exit = True
            await serving
            await queue.close()


@pytest.mark.parametrize(
    ("through", "trusted", "answer"),
    [
        ("auto", True, "test_softmax"),
        ("tests/test_softmax.py::test_softmax_of_a_large_row", True, "test_softmax_of_a_large_row"),
        ("test_gone", True, "test_gone is not known to run softmax_kernel; known are"),
        ("auto", False, "is not trusted: "),
    ],
)
async def test_a_kernel_through_a_test_of_its_project(
    tmp_path: Path, recorded_python: str, through: str, trusted: bool, answer: str
) -> None:
    files = {"pkg/__init__.py": "", "pkg/softmax.py": KERNELS, "tests/test_softmax.py": TESTS}
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    asked = {"file": str(tmp_path / "pkg/softmax.py"), "kernel": "softmax_kernel", "through": through}
    async with agent(tmp_path, recorded_python, trusted=trusted) as (client, _):
        said = unmasked(await client.call_tool("run", asked))
        assert answer in said
        assert ("288 µs" in said) == (answer.startswith("test_softmax"))


async def test_the_same_tools_over_http(tmp_path: Path, recorded_python: str) -> None:
    (tmp_path / "saxpy.cu").write_text(SAXPY)
    async with agent_over_http(tmp_path, recorded_python, "secret") as (client, queue, address):
        listed = [tool.name for tool in (await client.list_tools()).tools]
        assert sorted(listed) == TOOLS
        ran = await client.call_tool("run", {"text": SAXPY, "name": "saxpy.cu"})
        assert ran.structured_content["outcome"] == "ok"
        log = await client.read_resource(f"orbit://job/{ran.structured_content['job']}/text")
        assert "288 µs" in getattr(log.contents[0], "text", "")

        file = str(tmp_path / "saxpy.cu")
        for arguments in ({"file": file}, {"text": SAXPY, "other_file": file}):
            tool = "compare" if "text" in arguments else "run"
            refused = await client.call_tool(tool, arguments)
            assert "this server reads no files of its own machine" in said(refused)
        assert len(queue.store.jobs()) == 1

        async with httpx2.AsyncClient(base_url=address) as stranger:
            call = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
            assert (await stranger.post("/mcp", json=call)).status_code == 401
            own = {"Authorization": "Bearer secret"}
            answer = await stranger.post("/mcp", json=call, headers=own | {"Host": "evil.example"})
            assert (answer.status_code, answer.json()["error"][:26]) == (400, "this server is not called ")


INITIALIZE = {
    "jsonrpc": "2.0", "id": 1, "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "an agent", "version": "1"}},
}  # fmt: skip
LIST = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}


@asynccontextmanager
async def sessions(folder: Path, python: str, **more: Any) -> AsyncIterator[httpx2.AsyncClient]:
    """For requests to /mcp by hand."""
    options = EngineOptions({"python": python, "modal": {"budget_usd": 0.0}})
    queue = JobQueue(JobStore(folder / "jobs.sqlite"), pool.parse("local:0"), engines(options), "api")
    await queue.start()
    app = mcp_server.over_http(queue, budget_usd=0.0, **more)
    headers = {"Accept": "application/json, text/event-stream"}
    try:
        async with (
            asyncio.timeout(LIMIT_S),
            app.router.lifespan_context(app),
            httpx2.AsyncClient(
                transport=httpx2.ASGITransport(app=app), base_url="http://127.0.0.1", headers=headers
            ) as client,
        ):
            yield client
    finally:
        await queue.close()


async def test_sessions_over_http_are_bounded(
    tmp_path: Path, recorded_python: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "AGENT_SESSIONS", replace(limits.AGENT_SESSIONS, most=2))
    async with sessions(tmp_path, recorded_python) as client:
        first, second, third = [await client.post("/mcp", json=INITIALIZE) for _ in range(3)]
        assert (first.status_code, second.status_code, third.status_code) == (200, 200, 503)
        assert third.json()["error"]["message"] == "Too many open sessions"
        own = {"Mcp-Session-Id": first.headers["mcp-session-id"]}
        assert "disassemble" in (await client.post("/mcp", json=LIST, headers=own)).text
        await client.delete("/mcp", headers=own)
        assert (await client.post("/mcp", json=INITIALIZE)).status_code == 200


async def test_an_idle_session_over_http_ends_and_leaves_its_place(
    tmp_path: Path, recorded_python: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "AGENT_SESSIONS", replace(limits.AGENT_SESSIONS, most=1))
    async with sessions(tmp_path, recorded_python, idle_s=1e-9) as client:
        first = await client.post("/mcp", json=INITIALIZE)
        own = {"Mcp-Session-Id": first.headers["mcp-session-id"]}
        while (answer := await client.post("/mcp", json=LIST, headers=own)).status_code == 200:
            pass
        assert answer.status_code == 404
        again = await client.post("/mcp", json=LIST, headers=own)
        assert (again.status_code, again.json()["error"]["message"]) == (404, "Session not found")
        assert (await client.post("/mcp", json=INITIALIZE)).status_code == 200


async def test_a_call_over_http_that_is_cancelled_ends_its_job(tmp_path: Path, recorded_python: str) -> None:
    async with agent_over_http(tmp_path, recorded_python, "secret") as (client, queue, _):
        assert await outcome_of_a_cancelled_call(client, queue) == "cancelled"


async def test_the_real_command_over_stdio(tmp_path: Path, recorded_python: str) -> None:
    (tmp_path / "saxpy.cu").write_text(SAXPY)
    places = {
        "XDG_CACHE_HOME": str(tmp_path / "cache"), "XDG_STATE_HOME": str(tmp_path / "state"),
        "ORBIT_SHARED_WORKER": "no",  # the recorded worker serves pipes alone
    }  # fmt: skip
    command = mcp.StdioServerParameters(
        command=sys.executable,
        args=["-P", "-m", "orbit_lsp", "mcp", "--pool", "local:0", "--python", recorded_python],
        cwd=tmp_path,
        env=places,
    )
    # by default it is what standard error was when the SDK was imported, maybe that of a test which captures it
    transport = stdio.stdio_client(command, errlog=sys.__stderr__)
    async with asyncio.timeout(LIMIT_S), mcp.Client(transport) as client:
        assert client.server_info.name == "orbit-lsp"
        ran = await client.call_tool("run", {"file": str(tmp_path / "saxpy.cu")})
        assert ran.structured_content["outcome"] == "ok"
