"""The evaluation server over HTTP. The GPU side is recorded (recorded_worker.py): these machines have none."""

from __future__ import annotations

import asyncio
import base64
import errno
import json
import re
import signal
import socket
import sqlite3
import struct
import sys
import zlib
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import httpx2
import pytest

from orbit_lsp.api import evaluation, http_app, metric_jobs, popcorn
from orbit_lsp.api.guard import RequestLimits
from orbit_lsp.cli.doors import door_commands
from orbit_lsp.cli.terminal_text import UsageError
from orbit_lsp.queue import gpu_check, pool, result_text
from orbit_lsp.queue.job_queue import JobQueue, engines
from orbit_lsp.queue.job_store import JobStore
from orbit_lsp.queue.request import RequestRefusedError
from orbit_lsp.queue.slot_engine import EngineOptions
from orbit_lsp.state.sqlite_file import SqliteFile, UnusableFileError
from orbit_remote.common import measure
from orbit_remote.common.contracts import harness_files
from tests.e2e.forks import LIMIT_S
from tests.e2e.test_history import SAXPY
from tests.e2e.test_spec_runs import orbit
from tests.spec.test_io_contract import CONTRACT, tensor

BAD = "__global__ void k() { BUG; }\n"
BARE = "\n".join(line for line in SAXPY.splitlines() if "orbit:" not in line)
SLOW = SAXPY.replace("{", "{/*SLOW*/", 1)
REFERENCE = "import torch\nfrom torch import nn\nclass Model(nn.Module): ...\ndef get_inputs(): return []\n"
CANDIDATE = "from torch import nn\nclass ModelNew(nn.Module): ...\n"


@asynccontextmanager
async def server(
    folder: Path,
    python: str,
    problems: Sequence[popcorn.PopcornProblem] = (),
    metrics: metric_jobs.MetricSettings = metric_jobs.BY_REQUEST,
    **limits: Any,
) -> AsyncGenerator[tuple[httpx2.AsyncClient, JobQueue]]:
    """A client whose server is in this process."""
    options = EngineOptions({"python": python, "modal": {"budget_usd": 0.0}})
    queue = JobQueue(JobStore(folder / "jobs.sqlite"), pool.parse("local:0"), engines(options), "api")
    await queue.start()
    app = http_app.app(queue, RequestLimits(**limits), ["127.0.0.1"], problems=problems, metrics=metrics)
    transport = httpx2.ASGITransport(app=app, raise_app_exceptions=False)
    try:
        async with (
            asyncio.timeout(LIMIT_S),
            httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1", timeout=LIMIT_S) as client,
        ):
            yield client, queue
    finally:
        await queue.close()


async def test_a_job_from_hand_in_to_result(tmp_path: Path, recorded_python: str) -> None:
    async with server(tmp_path, recorded_python) as (client, _):
        body = {"name": "saxpy.cu", "text": SAXPY}
        first = await client.post("/v1/jobs", json=body, headers={"Idempotency-Key": "k"})
        again = await client.post("/v1/jobs", json=body, headers={"Idempotency-Key": "k"})
        assert (first.status_code, again.status_code, first.json()["id"]) == (202, 202, again.json()["id"])
        job = first.json()["id"]
        ended = (await client.get(f"/v1/jobs/{job}?wait_s=600")).json()
        assert (ended["outcome"], ended["version"]) == ("ok", 1)
        assert ended["result"]["finished"]["launches"][0]["timing"]["median"] == 288_032
        assert (first.json().get("grade"), ended["grade"], ended["grade_why"][:8]) == (
            None,
            "author",
            "author: ",
        )
        assert "288 µs ±0.2%" in (await client.get(f"/v1/jobs/{job}/text")).text
        events = (await client.get(f"/v1/jobs/{job}/events")).text
        assert re.findall(r"^event: (\w+)$", events, re.MULTILINE) == ["state", "result"]
        assert (await client.get("/stats")).json()["jobs"] == {"ok": 1}
        assert 'orbit_jobs{state="ok"} 1\n' in (await client.get("/metrics")).text
        assert (await client.get("/health")).json()["places"] == [
            {"name": "local:0", "gpu": None, "job": None, "aside": None}
        ]
        assert (await client.post("/admin/cleanup-jobs?max_age_hours=0")).json() == {"removed": 1}


async def test_statistics_have_how_long_jobs_waited_and_took(tmp_path: Path, recorded_python: str) -> None:
    async with server(tmp_path, recorded_python) as (client, _):
        before = (await client.get("/stats")).json()
        assert (before["grades"], before["predictions"]) == ({}, {"good": None, "of": 0})
        made = (
            await client.post(
                "/v1/jobs", json={"action": "compile", "name": "k.cu", "text": "__global__ void k() {}"}
            )
        ).json()
        record = (await client.get(f"/v1/jobs/{made['id']}?wait_s=60")).json()
        assert record["waited_s"] >= 0
        assert record["score"] is record["policy"] is record["predicted_wait_s"] is None
        after = (await client.get("/stats")).json()["grades"]["author"]
        assert after["waited_s"]["n"] == after["took_s"]["n"] == 1
        assert 0 <= after["took_s"]["p50"] == after["took_s"]["p95"]
        lines = (await client.get("/metrics")).text.splitlines()
        assert 'orbit_wait_seconds_count{grade="author"} 1' in lines
        assert [
            line for line in lines if line.startswith('orbit_run_seconds{grade="author",quantile="0.95"} ')
        ]


async def test_events_tell_the_position_and_cancelling_ends_the_work(
    tmp_path: Path, recorded_python: str
) -> None:
    async with server(tmp_path, recorded_python) as (client, queue):
        texts = [SLOW, SLOW + "// 2", SAXPY]
        body = {
            "jobs": [{"name": "saxpy.cu", "text": text} for text in texts] + [{"name": "x.txt", "text": "x"}]
        }
        answers = (await client.post("/v1/jobs/batch", json=body)).json()["jobs"]
        assert answers[3] == {"error": "x.txt is not a .cu, .cuh or .py file"}
        item, two, three = (answer["id"] for answer in answers[:3])
        positions: list[int | None] = []

        async def follow() -> None:
            positions.extend([followed.position async for followed in queue.follow(three)])

        following = asyncio.create_task(follow())
        for job in (item, two):
            assert (await client.delete(f"/v1/jobs/{job}")).json()["outcome"] == "cancelled"
        assert (await client.get(f"/v1/jobs/{three}?wait_s=600")).json()["outcome"] == "ok"
        await following
        assert positions[-1] is None
        assert sorted((place for place in positions if place is not None), reverse=True) == [
            place for place in positions if place is not None
        ]
        listed = (await client.get("/v1/jobs?most=2")).json()["jobs"]
        assert [job["id"] for job in listed] == [three, two]


async def test_a_candidate_against_its_reference_in_both_forms(tmp_path: Path, recorded_python: str) -> None:
    async with server(tmp_path, recorded_python) as (client, _):
        forms = [
            ("/", {"ref_code": REFERENCE, "custom_code": CANDIDATE, "num_trials": 10, "timeout": 60}),
            (
                "/compare",
                {
                    "ref_kernel": {"source_code": REFERENCE, "kernel_type": "torch"},
                    "custom_kernel": {"source_code": CANDIDATE, "kernel_type": "torch_cuda"},
                },
            ),
        ]
        for route, body in forms:
            answer = await client.post(route, json=body)
            result = answer.json()
            judged = result["kernel_exec_result"]
            assert (answer.status_code, answer.headers["x-gpu-type"]) == (200, "NVIDIA H100 80GB HBM3")
            assert (result["status"], judged["compiled"], judged["correctness"]) == ("success", True, True)
            assert (judged["runtime"], result["ref_runtime"]["median"]) == (3.1, 4.41)
            assert judged["runtime_stats"]["mean"] is None  # the recording has no samples
            assert judged["warm_runtime_stats"]["median"] is None  # only a cold L2 is measured
            assert judged["metadata"]["verdict"]["verdict"] == "faster"
            assert result["grade"] == "author"
            assert result["grade_why"].startswith("author: ")
            assert (await client.get(f"/job/{result['job_id']}")).json() == result


async def test_a_request_of_the_evaluation_servers_own_form(tmp_path: Path, recorded_python: str) -> None:
    """Every field that its documentation names, those too that mean nothing here."""
    ones = base64.b64encode(zlib.compress(struct.pack("<4f", 1, 1, 1, 1))).decode()
    data = {"data_b64": ones, "dtype": "float32", "shape": [4], "compress": "zlib"}
    kernel = {
        "source_code": 'extern "C" __global__ void scale(const float* x, float* y, int n, float a) {}\n',
        "kernel_type": "cuda",
        "metadata": {"kernel_name": "scale", "compiler_options": ["-O3"], "backend": "nvcc"},
        "io": {
            "args": [
                {"name": "x", "type": "tensor", "tensor_spec": {"shape": [4], "dtype": "float32", "data": data}, "role": "input"},
                {"name": "y", "type": "tensor", "tensor_spec": {"shape": [4], "dtype": "float32"}, "role": "output", "is_meta": False},
                {"name": "n", "type": "int", "value": 4, "role": "input"}, {"name": "a", "type": "float", "value": 2.0},
            ],
            "outputs": [],
            "launch": {"grid": {"x": 1, "y": 1, "z": 1}, "block": {"x": 32, "y": 1, "z": 1}, "shared_mem_bytes": 0},
        },
    }  # fmt: skip
    async with server(tmp_path, recorded_python) as (client, queue):
        answer = await client.post("/evaluate", json={"kernel": kernel, "num_trials": 100, "timeout": 120})
        assert (answer.status_code, answer.json()["kernel_exec_result"]["compiled"]) == (200, True), (
            answer.text
        )
        [job] = queue.store.jobs()
        request = queue.store.request(job.id)
        assert (
            '// orbit: x = from_file("x.tensor", 4, dtype=float32)\n// orbit: y = empty(4, dtype=float32)\n'
            in request.text
        )
        assert zlib.decompress(base64.b64decode(request.files["x.tensor"])) == struct.pack("<4f", 1, 1, 1, 1)


GIVEN = {
    "args": [
        {
            "name": "x",
            "type": "tensor",
            "tensor_spec": {"shape": [1024], "init": {"kind": "randn", "seed": 42}},
        }
    ]
}
DOUBLE = {
    "source_code": "class Model(torch.nn.Module):\n    def forward(self, x):\n        return x * 2",
    "kernel_type": "torch",
    "io": GIVEN,
}


@pytest.mark.parametrize(
    ("route", "body"),
    [
        ("/evaluate", {"kernel": DOUBLE, "num_trials": 100}),
        ("/evaluate", {"kernel": DOUBLE | {"metadata": {"class_name": "Model", "method_name": "forward"}}}),
        ("/compare", {"ref_kernel": DOUBLE, "custom_kernel": DOUBLE, "num_trials": 100}),
        ("/", {"ref_kernel": DOUBLE, "custom_kernel": DOUBLE}),
    ],
)  # fmt: skip
async def test_the_forms_of_the_evaluation_servers_guide(
    tmp_path: Path, recorded_python: str, route: str, body: dict[str, Any]
) -> None:
    """A class that imports nothing, with an io contract and no `get_inputs`; what runs is in tests/remote/test_sides.py."""
    async with server(tmp_path, recorded_python) as (client, _):
        answer = await client.post(route, json=body)
        judged = answer.json()["kernel_exec_result"]
        alone = route == "/evaluate"
        assert (answer.status_code, judged["compiled"], judged["runtime"]) == (200, True, 3.1)
        assert (judged["correctness"], answer.json()["ref_runtime"] is None) == (
            None if alone else True,
            alone,
        )


async def test_messages_about_a_kernel_with_an_io_contract_are_at_the_lines_that_were_handed_in(
    tmp_path: Path, recorded_python: str
) -> None:
    kernel: dict[str, Any] = {
        "source_code": "// scales\n\n__global__ void k(float* x, int n) {\n  BUG;\n}\n",
        "kernel_type": "cuda",
        "io": {"args": [tensor("x"), {"name": "n", "type": "int", "value": 4}], "launch": CONTRACT["launch"]},
    }
    async with server(tmp_path, recorded_python) as (client, queue):

        async def evaluated(**more: Any) -> dict[str, Any]:
            answer = (await client.post("/evaluate", json={"kernel": kernel, **more})).json()
            assert (await client.get(f"/job/{answer['job_id']}")).json() == answer
            return answer["kernel_exec_result"]

        failed = await evaluated(num_trials=7)
        first, second, *_ = failed["compilation_error"].splitlines()
        assert first.startswith(
            'kernel.cu does not compile (1 error): kernel.cu:4: identifier "BUG" is undefined'
        )
        assert second.startswith('kernel.cu:4:3: error: identifier "BUG" is undefined')
        assert "// orbit: iterations 7\n" in queue.store.request(queue.store.jobs()[0].id).text
        kernel["io"]["args"].pop()
        failed = await evaluated()
        assert "\nerror: the io contract: k takes 2 arguments, not 1" in failed["compilation_error"], failed


@pytest.mark.parametrize(
    ("source", "name"),
    [("__global__ void k() {}\nint main() {}\n", "kernel.cu"), ("import torch\nsource = '__global__'\n", "kernel.py")],
)  # fmt: skip
def test_the_language_of_several_kernels_is_that_of_their_text(source: str, name: str) -> None:
    kernel = {"source_code": source, "kernel_type": "multi_kernel"}
    assert evaluation.evaluated(evaluation.Evaluate.model_validate({"kernel": kernel})).name == name


def test_a_tolerance_of_the_request() -> None:
    body = {"ref_code": REFERENCE, "custom_code": CANDIDATE}

    def allowed(**more: Any) -> harness_files.AllowedDifference | None:
        request = evaluation.compared(evaluation.Compare.model_validate(body | more))
        return harness_files.within(request.files["candidate.py"])

    assert allowed() is None
    assert allowed(rtol=1e-3, atol=0.01) == harness_files.AllowedDifference(1e-3, 0.01)
    assert allowed(atol=2) == harness_files.AllowedDifference(0, 2)
    body["ref_code"] += harness_files.AllowedDifference(1, 1).line
    with pytest.raises(RequestRefusedError, match="give that, or rtol and atol, not both"):
        allowed(rtol=0)


async def test_a_solution_in_flashinfer_benchs_json_and_its_trace(
    tmp_path: Path, recorded_python: str
) -> None:
    async with server(tmp_path, recorded_python) as (client, _):
        tensor = {"shape": ["N"], "dtype": "float32"}
        body = {
            "definition": {
                "name": "double", "op_type": "scale", "axes": {"N": {"type": "var"}}, "inputs": {"x": tensor}, "outputs": {"y": tensor},
                "reference": "def run(x):\n    return 2 * x\n",
            },
            "solution": {
                "name": "mine", "definition": "double", "author": "me",
                "spec": {"language": "python", "entry_point": "main.py::run", "destination_passing_style": False},
                "sources": [{"path": "main.py", "content": "def run(x):\n    return x + x\n"}],
            },
            "workloads": [{"uuid": name, "axes": {"N": 64}, "inputs": {"x": {"type": "random"}}} for name in "ab"],
        }  # fmt: skip
        answer = await client.post("/v1/traces", json=body)
        jobs = [job["id"] for job in answer.json()["jobs"]]
        assert (answer.status_code, len(jobs)) == (202, 2)
        trace = (await client.get(f"/v1/traces/{jobs[1]}?wait_s=600")).json()
        assert (trace["definition"], trace["solution"], trace["workload"]) == (
            "double",
            "mine",
            body["workloads"][1],
        )
        evaluation = trace["evaluation"]
        assert (evaluation["status"], evaluation["environment"]["hardware"]) == (
            "PASSED",
            "NVIDIA H100 80GB HBM3",
        )
        assert evaluation["performance"] == {
            "latency_ms": 3.1, "reference_latency_ms": 4.41, "speedup_factor": 4.41 / 3.1,
        }  # fmt: skip
        assert evaluation["grade_why"].startswith("author: ")
        plain = (await client.post("/v1/jobs", json={"name": "saxpy.cu", "text": SAXPY})).json()["id"]
        other = await client.get(f"/v1/traces/{plain}?wait_s=600")
        assert (other.status_code, "was not submitted by" in other.json()["error"]) == (400, True)
        assert (await client.get("/v1/traces/ffffffff")).status_code == 404


def test_statistics_are_in_milliseconds_and_null_where_the_launches_are_too_few() -> None:
    stats = evaluation._stats(measure.timing(range(1_000_000, 2_000_000, 20_000), "cold L2, n=50"))
    shown = {name: value if value is None else round(value, 4) for name, value in stats.items()}
    assert shown == {
        "mean": 1.49, "std": 0.2915, "min": 1.0, "max": 1.98, "median": 1.49, "percentile_95": 1.931, "percentile_99": None,
    }  # fmt: skip
    assert set(evaluation._stats(None).values()) == {None}


async def test_a_kernel_by_itself(tmp_path: Path, recorded_python: str) -> None:
    async with server(tmp_path, recorded_python) as (client, _):
        kernel = {"source_code": SAXPY, "kernel_type": "cuda"}
        ran = (await client.post("/evaluate", json={"kernel": kernel})).json()["kernel_exec_result"]
        assert (ran["correctness"], ran["runtime_stats"]["median"]) == (True, 0.288032)
        assert ran["warm_runtime_stats"]["median"] == 0.288032  # the recording has the same samples
        answer = await client.post("/evaluate", json={"kernel": kernel | {"source_code": BAD}})
        failed = answer.json()["kernel_exec_result"]
        assert answer.json()["status"] == "success"
        assert (answer.status_code, failed["compiled"], failed["correctness"], failed["runtime"]) == (
            200,
            False,
            False,
            None,
        )
        assert '\nkernel.cu:1:23: error: identifier "BUG" is undefined' in failed["compilation_error"]
        crash = await client.post("/evaluate", json={"kernel": kernel | {"source_code": SAXPY + "// CRASH"}})
        assert (crash.status_code, crash.json()["outcome"]) == (500, "infrastructure")
        assert "the worker process ended unexpectedly" in crash.json()["error"]
        assert (
            await client.post("/evaluate", json={"kernel": kernel})
        ).status_code == 200  # the next job runs


@pytest.mark.parametrize(
    ("text", "other", "message", "remedy"),
    [
        (BARE, SAXPY, "the present text of k.cu has neither a launch spec above saxpy nor a main, so it cannot be run", "write a launch spec above saxpy"),
        (SAXPY, BARE, "the other text, k.cu, has neither a launch spec above saxpy nor a main, so it cannot be run", "write a launch spec above saxpy"),
        (SAXPY.replace("saxpy<<<", "sxpy<<<"), SAXPY, "the present text of k.cu cannot be run: line 3, in the launch spec: ", "correct it"),
        (SAXPY, "__global__ void b() {}\n__global__ void c() {}", "there is no kernel saxpy in k.cu; it has: b, c", "nothing was compared"),
    ],
)  # fmt: skip
async def test_a_text_that_cannot_be_compared_is_the_clients_fault(
    tmp_path: Path, recorded_python: str, text: str, other: str, message: str, remedy: str
) -> None:
    async with server(tmp_path, recorded_python) as (client, queue):
        body = {"action": "compare", "name": "k.cu", "kernel": "saxpy", "text": text, "against_text": other}
        job = (await client.post("/v1/jobs", json=body)).json()["id"]
        record = (await client.get(f"/v1/jobs/{job}?wait_s=600")).json()
        failure = record["result"]["finished"]["failure"]
        assert (record["outcome"], failure["message"][: len(message)]) == ("compile error", message)
        assert failure["remedy"].startswith(remedy)
        assert record["summary"].startswith(f"saxpy was not compared with against/k.cu: {message}")
        result = result_text.read(queue.store.result(job) or {})
        assert result
        assert not gpu_check.suspect(result.finished)


async def test_where_nothing_was_measured_there_is_no_grade(tmp_path: Path, recorded_python: str) -> None:
    jobs = [
        ({"action": "compile", "text": SAXPY}, "ok", None),
        ({"text": SAXPY.replace("{", "{BUG", 1)}, "compile error", None),
        ({"text": SAXPY + "// CRASH"}, "infrastructure", None),
        ({"text": SAXPY}, "ok", "author"),
        ({"text": SAXPY + "// WRONG"}, "wrong answer", "author"),
    ]
    async with server(tmp_path, recorded_python) as (client, _):
        for body, outcome, grade in jobs:
            job = (await client.post("/v1/jobs", json=body | {"name": "saxpy.cu"})).json()["id"]
            record = (await client.get(f"/v1/jobs/{job}?wait_s=600")).json()
            assert (record["outcome"], record["grade"]) == (outcome, grade)
            assert record["grade_why"].startswith("author: " if grade else "nothing was measured")
            assert ("\ngrade: " in (await client.get(f"/v1/jobs/{job}/text")).text) == bool(grade)
            again = (await client.get(f"/job/{job}")).json()
            assert (again["grade"], again["grade_why"]) == (grade, record["grade_why"])


@pytest.mark.parametrize(
    ("route", "body", "status", "error"),
    [
        ("/v1/jobs", {"name": "k.cu"}, 400, "text: Field required"),
        ("/v1/jobs", {"name": "k.cu", "text": "x", "path": "/etc/passwd"}, 400, "path: Extra inputs are not permitted"),
        ("/v1/jobs", {"name": "../k.cu", "text": "x"}, 400, "'../k.cu' is not a valid file name"),
        ("/v1/jobs", {"name": "k.cu", "text": "x", "flags": ["-ccbin=/x"]}, 400, "a compiler flag is not permitted"),
        ("/v1/jobs", {"name": "k.cu", "text": "x", "gpu": "B200"}, 400, "no place of this pool is 'B200'"),
        ("/v1/jobs", {"action": "compare", "name": "k.cu", "text": "x", "against": "/etc/x.cu"}, 400, "compare needs `against_text`"),
        ("/", {}, 400, "give ref_kernel and custom_kernel, or ref_code and custom_code"),
        ("/", {"ref_code": "class Model: ...", "custom_code": CANDIDATE}, 400, "say what the inputs are: by an io contract, or by a"),
        ("/", {"ref_code": "def (", "custom_code": CANDIDATE}, 400, "the torch source has no class Model; metadata may name"),
        ("/", {"ref_code": REFERENCE, "custom_code": "x = 1"}, 400, "the torch source has no class Model; metadata may name"),
        ("/evaluate", {"kernel": {"source_code": "x", "kernel_type": "opencl"}}, 400, "kernel.kernel_type: Input should be"),
        ("/evaluate", {"kernel": {"source_code": SAXPY, "kernel_type": "cuda"}, "timeout": 9999}, 400, "timeout: Input should be"),
        ("/evaluate", {"kernel": {"source_code": SAXPY, "kernel_type": "cuda"}, "num_trials": 0}, 400, "num_trials: Input should"),
        ("/evaluate", {"kernel": {"source_code": SAXPY, "kernel_type": "cuda"}, "grade": "best"}, 400, "grade: Input should be 'author' or"),
        ("/compare", {"ref_code": REFERENCE, "custom_code": CANDIDATE, "rtol": -1}, 400, "rtol: Input should be greater than or equal to 0"),
    ],
)  # fmt: skip
async def test_a_wrong_request_is_400(
    tmp_path: Path, recorded_python: str, route: str, body: dict[str, Any], status: int, error: str
) -> None:
    async with server(tmp_path, recorded_python) as (client, queue):
        answer = await client.post(route, json=body)
        assert (answer.status_code, answer.json()["error"][: len(error)]) == (status, error)
        assert queue.store.jobs() == []
        assert (await client.get("/v1/jobs/ffffffff")).status_code == 404


async def test_what_the_guard_refuses(tmp_path: Path, recorded_python: str) -> None:
    now = [0.0]
    limits = {"token": "secret", "body": 1_000, "burst": 2.0, "rate": 1.0, "clock": lambda: now[0]}
    async with server(tmp_path, recorded_python, **limits) as (client, _):
        own = {"Authorization": "Bearer secret"}
        assert (await client.get("/stats")).status_code == 401
        assert (await client.get("/stats", headers={"Authorization": "Bearer wrong"})).status_code == 401
        assert (
            (await client.get("/stats?token=secret"))
            .json()["error"]
            .startswith("send the token in the header")
        )
        assert (await client.get("/stats", headers=own | {"Host": "evil.example"})).status_code == 400
        large = {"name": "k.cu", "text": "x" * 2_000}
        assert (await client.post("/v1/jobs", json=large, headers=own)).status_code == 413

        async def pieces() -> AsyncGenerator[bytes]:
            for _ in range(20):
                yield b" " * 100  # no Content-Length says how much comes

        chunked = await client.post(
            "/v1/jobs", content=pieces(), headers=own | {"Content-Type": "application/json"}
        )
        assert chunked.status_code == 413
        assert (await client.get("/stats", headers=own)).status_code == 429
        now[0] += 2
        assert (await client.get("/stats", headers=own)).status_code == 200
        assert (await client.get("/health")).status_code == 200


async def test_the_examples_of_the_openapi_document_are_taken(tmp_path: Path, recorded_python: str) -> None:
    async with server(tmp_path, recorded_python) as (client, queue):
        document = (await client.get("/openapi.json")).json()
        assert {"/v1/jobs", "/v1/jobs/{job}", "/evaluate", "/compare", "/", "/health", "/metrics"} <= set(
            document["paths"]
        )
        schemas = document["components"]["schemas"]
        for example in schemas["JobRequest"]["examples"]:
            job = (await client.post("/v1/jobs", json=example)).json()["id"]
            assert (await queue.wait(job, LIMIT_S) or pytest.fail("no job")).outcome == "ok"
        for example in schemas["Compare"]["examples"]:
            assert evaluation.compared(evaluation.Compare(**example))


async def test_while_jobs_cannot_be_recorded_the_server_says_so(tmp_path: Path, recorded_python: str) -> None:
    async with server(tmp_path, recorded_python) as (client, queue):
        queue.store._file.busy_s = 0.3
        running, waiting = [
            (await client.post("/v1/jobs", json={"name": "saxpy.cu", "text": text})).json()["id"]
            for text in (SLOW, SAXPY)
        ]
        async for followed in queue.follow(running):
            if followed.job.state == "running":
                break
        with closing(
            sqlite3.connect(tmp_path / "jobs.sqlite", timeout=LIMIT_S, isolation_level=None)
        ) as other:
            other.execute("begin exclusive")
            for _ in range(2):
                refused = await client.post("/v1/jobs", json={"name": "saxpy.cu", "text": SAXPY})
                assert (refused.status_code, refused.headers["Retry-After"]) == (503, "5")
                assert refused.json()["error"].startswith(
                    "the record of jobs cannot be used: database is locked"
                )
            health = await client.get("/health")
            assert (health.status_code, health.json()["status"], health.json()["waiting"]) == (
                503,
                "failing",
                1,
            )
            assert re.fullmatch(
                r"the record of jobs cannot be written since 20\d\d-\d\d-\d\d \d\d:\d\d:\d\d UTC: database is locked; another process "
                r"holds it: wait for that process, or end it",
                health.json()["error"],
            )
            assert (await client.get("/stats")).status_code == 503
            for job in (waiting, running):
                assert (await client.delete(f"/v1/jobs/{job}")).json()["outcome"] == "cancelled"
        while (await client.get("/health")).status_code != 200:
            await queue.change().wait()
        job = (await client.post("/v1/jobs", json={"name": "saxpy.cu", "text": SAXPY})).json()["id"]
        assert (await client.get(f"/v1/jobs/{job}?wait_s=600")).json()["outcome"] == "ok"
        assert (await client.get("/stats")).json()["jobs"] == {"cancelled": 2, "ok": 1}


async def test_a_batch_is_recorded_whole_or_not_at_all(
    tmp_path: Path, recorded_python: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a client would hand in the whole of it again, and have some jobs twice. One transaction takes as long for all as for each."""
    async with server(tmp_path, recorded_python) as (client, queue):
        transactions: list[bool] = []
        once = SqliteFile._once  # pyright: ignore[reportPrivateUsage]

        def counted(self: SqliteFile, *work: Any, transaction: bool) -> Any:
            if transaction:
                transactions.append(True)
                if len(transactions) == broken:
                    raise UnusableFileError("database is locked", passing=True)
            return once(self, *work, transaction=transaction)

        monkeypatch.setattr(SqliteFile, "_once", counted)
        jobs = [{"name": f"k{number}.cu", "text": SLOW, "key": f"k{number}"} for number in range(3)]
        jobs += [{**jobs[0], "text": BAD}, {**jobs[1]}, {"name": "x.txt", "text": "x"}]
        broken = 1
        assert (await client.post("/v1/jobs/batch", json={"jobs": jobs})).status_code == 503
        broken = 0
        while (await client.get("/health")).status_code != 200:  # until the record can be used again
            await queue.change().wait()
        assert (await client.get("/v1/jobs")).json() == {"jobs": []}
        transactions.clear()
        seen: list[int] = []
        add = queue.store.add_all

        def adding(*wanted: Any) -> Any:
            before = len(transactions)
            added = add(*wanted)
            seen.append(len(transactions) - before)
            return added

        monkeypatch.setattr(queue.store, "add_all", adding)
        answers = (await client.post("/v1/jobs/batch", json={"jobs": jobs})).json()["jobs"]
        assert [answer.get("error") or answer["file"] for answer in answers] == [
            "k0.cu",
            "k1.cu",
            "k2.cu",
            f"the key k0 was used for another request, job {answers[0]['id']}",
            "k1.cu",
            "x.txt is not a .cu, .cuh or .py file",
        ]
        assert seen == [1]
        for answer in answers[:3]:
            await client.delete(f"/v1/jobs/{answer['id']}")


# -- the command ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("host", "port", "message"),
    [
        ("127.0.0.1", 99_999, "--port is 99999; a port is a number from 1 to 65535, or 0 for any free one"),
        ("127.0.0.1", -1, "--port is -1; a port is a number"),
        ("203.0.113.5", 0, "orbit-lsp api cannot listen on 203.0.113.5 port 0: this machine has no such address; choose another --host"),
        ("a..b", 0, "orbit-lsp api cannot listen on a..b port 0: there is no such host; --host is"),
    ],
)  # fmt: skip
def test_an_address_that_no_server_can_have(host: str, port: int, message: str) -> None:
    with pytest.raises(UsageError, match=re.escape(message)):
        door_commands.listener(host, port)


def test_a_port_that_another_program_has_or_that_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = pytest.raises(UsageError, match="another program has that port; choose another --port")
    with door_commands.listener("127.0.0.1", 0) as other, taken:
        door_commands.listener(*other.getsockname())

    class Kept(socket.socket):
        def bind(self, _: Any) -> None:
            raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(socket, "socket", Kept)
    with pytest.raises(UsageError, match="you may not use that port; choose a --port from 1024 to 65535"):
        door_commands.listener("127.0.0.1", 80)


def test_a_bad_port_ends_as_other_bad_options_do(tmp_path: Path, recorded_python: str) -> None:
    code, out, message = orbit(tmp_path, recorded_python, "api", "--port", "99999")
    assert (code, out, message.count("\n")) == (64, "", 1)
    assert message.startswith("orbit-lsp: error: --port is 99999; ")


async def begun(folder: Path, python: str) -> asyncio.subprocess.Process:
    """The real command."""
    words = ["api", "--port", "0", "--pool", "local:0", "--python", python]
    return await asyncio.create_subprocess_exec(
        sys.executable, "-P", "-m", "orbit_lsp", *words, cwd=folder, stderr=asyncio.subprocess.PIPE,
        # a shell's background job ignores Ctrl-C, and so would what it starts
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip


async def address(errors: asyncio.StreamReader) -> str:
    line = (await errors.readline()).decode()
    known = re.search(r"http://127\.0\.0\.1:\d+", line)
    assert known, line
    return known[0]


@pytest.mark.slow
async def test_ctrl_c_at_once(tmp_path: Path, recorded_python: str) -> None:
    process = await begun(tmp_path, recorded_python)
    assert process.stderr
    async with asyncio.timeout(LIMIT_S):
        await process.stderr.readline()
        process.send_signal(signal.SIGINT)
        assert (await process.stderr.read()).decode() == "orbit-lsp: cancelled\n"
        assert await process.wait() == 130


async def test_the_real_command(tmp_path: Path, recorded_python: str) -> None:
    process = await begun(tmp_path, recorded_python)
    assert process.stderr
    async with asyncio.timeout(LIMIT_S):
        async with httpx2.AsyncClient(base_url=await address(process.stderr), timeout=LIMIT_S) as client:
            ran = await client.post(
                "/evaluate", json={"kernel": {"source_code": SAXPY, "kernel_type": "cuda"}}
            )
            assert ran.json()["kernel_exec_result"]["correctness"] is True
        process.send_signal(signal.SIGINT)
        assert await process.wait() == 130


async def test_a_machine_without_a_gpu_says_so(tmp_path: Path, recorded_python: str) -> None:
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec "{recorded_python}" "$@" --no-gpu\n')
    python.chmod(0o755)
    process = await begun(tmp_path, str(python))
    assert process.stderr
    async with asyncio.timeout(LIMIT_S):
        async with httpx2.AsyncClient(base_url=await address(process.stderr), timeout=LIMIT_S) as client:
            health = (await client.get("/health")).json()
            assert (health["status"], health["places"]) == (
                "ok",
                [
                    {
                        "name": "local:0",
                        "gpu": None,
                        "job": None,
                        "aside": None,
                        "absent": "this machine has no NVIDIA GPU",
                    }
                ],
            )
            shown = (await client.get("/", headers={"Accept": "text/html"})).text
            text = re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", shown))
            assert "local:0 none this machine has no NVIDIA GPU Jobs" in text
            body = {"name": "saxpy.cu", "text": SAXPY}
            jobs = [
                (await client.post("/v1/jobs", json=body | {"action": action})).json()
                for action in ("compile", "run")
            ]
            ended = [(await client.get(f"/v1/jobs/{job['id']}?wait_s=600")).json() for job in jobs]
            assert [job["outcome"] for job in ended] == ["ok", "infrastructure"]
        process.send_signal(signal.SIGINT)
        assert await process.wait() == 130


def test_only_with_a_token_beyond_this_machine(tmp_path: Path, recorded_python: str) -> None:
    assert door_commands.token("127.0.0.1", "") == ""
    assert door_commands.token("127.0.0.1", "own") == "own"
    assert len(door_commands.token("0.0.0.0", "")) >= 32
    assert json.dumps(door_commands.hosts("127.0.0.1", ())) == '["127.0.0.1", "localhost", "[::1]"]'
    assert door_commands.hosts("0.0.0.0", ("gpu7",)) == ["127.0.0.1", "localhost", "[::1]", "gpu7"]
