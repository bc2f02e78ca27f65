"""FlashInfer-Bench's and SOL-ExecBench's JSON: what is submitted becomes a job that the real harness checks on the CPU, and a Trace."""

from __future__ import annotations

import base64
import dataclasses
import importlib.util
import json
import struct
import sys
from pathlib import Path
from typing import Any

import pytest

from orbit_lsp.api import traces
from orbit_lsp.queue import request as requests
from orbit_lsp.queue import result_text
from orbit_lsp.queue.job_store import Result, StoredJob
from orbit_lsp.queue.request import RequestRefusedError
from orbit_lsp.runs import summary
from orbit_remote.common import codec
from orbit_remote.common import messages as c
from orbit_remote.common.contracts import harness_files
from orbit_remote.common.contracts.harness_files import AllowedDifference
from tests.remote.test_harness_job import carry_out

pytestmark = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="no torch here")
__all__ = ["carry_out"]

DEFINITION = {
    "name": "scaled_sum", "op_type": "sum", "axes": {"M": {"type": "var"}, "N": {"type": "const", "value": 4}},
    "inputs": {
        "x": {"shape": ["M", "N"], "dtype": "float32"}, "ids": {"shape": ["M"], "dtype": "int64"},
        "scale": {"shape": None, "dtype": "float32"},
    },
    "outputs": {"y": {"shape": ["M", "N"], "dtype": "float32"}},
    "reference": "import torch\ndef run(x, ids, scale):\n    return {'y': x * scale + ids[:, None].float()}\n",
}  # fmt: skip
WORKLOAD = {
    "uuid": "w1", "axes": {"M": 3},
    "inputs": {"x": {"type": "random"}, "ids": {"type": "random"}, "scale": {"type": "scalar", "value": 2.0}},
}  # fmt: skip
RIGHT = "from ops.parts import add\ndef run(x, ids, scale, y):\n    y.copy_(add(x * scale, ids))\n"
PARTS = "def add(y, ids):\n    return y + ids[:, None].float()\n"


def solution(text: str, *, passing: bool = True) -> dict[str, Any]:
    spec = {
        "language": "triton",
        "target_hardware": ["H100"],
        "entry_point": "ops/main.py::run",
        "destination_passing_style": passing,
    }
    sources = [{"path": "ops/main.py", "content": text}, {"path": "ops/parts.py", "content": PARTS}]
    return {"name": "mine", "definition": "scaled_sum", "author": "me", "spec": spec, "sources": sources}  # fmt: skip


def body(
    text: str = RIGHT, *, passing: bool = True, definition: dict[str, Any] | None = None, **workload: Any
) -> traces.Evaluation:
    return traces.Evaluation.model_validate(
        {
            "definition": DEFINITION | (definition or {}), "solution": solution(text, passing=passing),
            "workloads": [WORKLOAD | workload], "grade": "referee",
        }
    )  # fmt: skip


def traced(carry_out: Any, folder: Path, asked: traces.Evaluation) -> dict[str, Any]:
    [request] = traces.requests(asked)
    requests.check(request, trusted=False)
    requests.place(request, folder)
    finished = carry_out(request.text, request.name)
    for name, module in list(sys.modules.items()):  # a job has a process of its own
        if str(getattr(module, "__file__", "")).startswith("submitted/"):
            del sys.modules[name]
    result = result_text.read(codec.read_json(json.dumps(dataclasses.asdict(Result(finished)))))
    assert result
    made = traces.trace(job(), request, result)
    assert made
    return made


def job(**fields: Any) -> StoredJob:
    values: dict[str, Any] = {"id": "f" * 16, "submitted": 0.5, "started": 1.0, "ended": 2.0, **fields}
    return StoredJob(**{field.name: values.get(field.name, "") for field in dataclasses.fields(StoredJob)})


WRONG = "def run(x, ids, scale):\n    return {}\n"
CASES = {
    "right, into its outputs": (body(), "PASSED"),
    "right, returned by name": (body(WRONG.format("{'y': x * scale + ids[:, None].float()}"), passing=False), "PASSED"),
    "another answer": (body(WRONG.format("x * scale"), passing=False), "INCORRECT_NUMERICAL"),
    "another shape": (body(WRONG.format("x[:1]"), passing=False), "INCORRECT_SHAPE"),
    "another type": (body(WRONG.format("x.double()"), passing=False), "INCORRECT_DTYPE"),
    "two outputs": (body(WRONG.format("(x, x)"), passing=False), "INCORRECT_SHAPE"),
    "an exception": (body(WRONG.format("1 / 0"), passing=False), "RUNTIME_ERROR"),
    "no Python": (body("def run(:\n"), "COMPILE_ERROR"),
    "a reference that fails": (body(definition={"reference": "def run(*x):\n    raise KeyError('no')\n"}), "INVALID_REFERENCE"),
    "a reference that is no Python": (body(definition={"reference": "def run(:\n"}), "INVALID_REFERENCE"),
    "a reference of NaN": (body(definition={"reference": "def run(x, ids, scale):\n    return x * float('nan')\n"}), "INVALID_REFERENCE"),
    "a little wrong, within its tolerance": (
        body(WRONG.format("x * scale + ids[:, None].float() + 0.5"), passing=False, tolerance={"max_atol": 1.0, "max_rtol": 0}), "PASSED",
    ),
    "one element of twelve wrong, and one may be": (
        body("def run(x, ids, scale, y):\n    y.copy_(x * scale + ids[:, None].float())\n    y[0, 0] += 9\n", tolerance={"required_matched_ratio": 0.9}),
        "PASSED",
    ),
    "the same, with a cap": (
        body(
            "def run(x, ids, scale, y):\n    y.copy_(x * scale + ids[:, None].float())\n    y[0, 0] += 9\n",
            tolerance={"required_matched_ratio": 0.9, "max_error_cap": 1.0},
        ),
        "INCORRECT_NUMERICAL",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_a_solution_and_its_status(carry_out: Any, tmp_path: Path, name: str) -> None:
    asked, status = CASES[name]
    made = traced(carry_out, tmp_path, asked)
    evaluation = made["evaluation"]
    assert (evaluation["status"], made["definition"], made["solution"], made["workload"]["uuid"]) == (
        status, "scaled_sum", "mine", "w1",
    ), evaluation["log"]  # fmt: skip
    assert (evaluation["correctness"] is not None) == (status in ("PASSED", "INCORRECT_NUMERICAL"))
    assert (evaluation["performance"] is not None) == (status == "PASSED")
    checked = name == "a reference of NaN" or status.startswith(("PASSED", "INCORRECT"))
    assert evaluation["grade"] == ("author" if checked else None)
    assert evaluation["environment"]["hardware"] is None  # not known here, and so null


NATIVE = """
#include <pybind11/pybind11.h>
#include "parts.h"
namespace py = pybind11;
void run(py::object x, py::object ids, py::object scale, py::object y) {
  y.attr("copy_")(x.attr("mul")(scale).attr("add")(ids.attr("float")().attr("unsqueeze")(1)) PLUS);
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("run", &run); }
"""


def native(text: str, **spec: Any) -> traces.Evaluation:
    own = body().model_dump(exclude_unset=True)
    spec = {"languages": ["cuda_cpp"], "entry_point": "src/main.cpp::run", "binding": "torch", **spec}
    sources = [
        {"path": "src/main.cpp", "content": text},
        {"path": "src/parts.h", "content": "#define PLUS\n"},
    ]
    return traces.Evaluation.model_validate(
        own | {"solution": own["solution"] | {"spec": spec, "sources": sources}}
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "status", "log"),
    [(NATIVE, "PASSED", ""), (NATIVE.replace("py::object y", "py::objekt y"), "COMPILE_ERROR", "objekt")],
    ids=["right", "not compiled"],
)
def test_a_solution_in_cpp(
    carry_out: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, status: str, log: str
) -> None:
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path / "built"))
    evaluation = traced(carry_out, tmp_path, native(text, compile_options={"cflags": ["-O0"]}))["evaluation"]
    assert evaluation["status"] == status, evaluation["log"]
    assert log in evaluation["log"]


def test_a_solution_in_cuda_is_built_where_it_runs() -> None:
    kernel = [{"path": "k.cu", "content": "TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run_)"}]
    asked = native("")
    asked.solution.sources = [traces.Source.model_validate(source) for source in kernel]
    asked.solution.spec.entry_point, asked.solution.spec.binding = "k.cu::run", None
    [request] = traces.requests(asked)
    compile(request.text, "candidate_new.py", "exec")
    assert "'tvm-ffi'), 'run')" in request.text
    asked.solution.sources[0].path = "../k.cu"
    asked.solution.spec.entry_point = "../k.cu::run"
    with pytest.raises(RequestRefusedError, match="not one below"):
        traces.requests(asked)


def safetensors(key: str, dtype: str, shape: list[int], data: bytes) -> str:
    head = json.dumps(
        {"__metadata__": {"a": "b"}, key: {"dtype": dtype, "shape": shape, "data_offsets": [0, len(data)]}}
    ).encode()
    return base64.b64encode(len(head).to_bytes(8, "little") + head + data).decode()


def test_an_input_of_a_safetensors_file(carry_out: Any, tmp_path: Path) -> None:
    asked = body(
        "def run(x, ids, scale, y):\n    assert ids.tolist() == [7, -1, 1 << 40]\n    y.copy_(x * scale + ids[:, None].float())\n",
        inputs=WORKLOAD["inputs"]
        | {"ids": {"type": "safetensors", "path": "d/ids.safetensors", "tensor_key": "k"}},
    )
    asked.tensors["d/ids.safetensors"] = safetensors("k", "I64", [3], struct.pack("<3q", 7, -1, 1 << 40))
    assert traced(carry_out, tmp_path, asked)["evaluation"]["status"] == "PASSED"
    for content, message in (
        (safetensors("k", "I64", [2], bytes(16)), "ids is int64 [3], and its file has int64 [2]"),
        (safetensors("k", "I64", [3], bytes(16)), "its header and its bytes do not agree"),
        (safetensors("other", "I64", [3], bytes(24)), "the data of ids has no tensor 'k'; it has: other"),
        (base64.b64encode(b"\xff" * 40).decode(), "the data of ids is no safetensors file"),
        ("not base64!", "the data of ids is not in base64"),
    ):
        asked.tensors["d/ids.safetensors"] = content
        with pytest.raises(RequestRefusedError, match="ids") as why:
            traces.requests(asked)
        assert message in str(why.value)


JUDGED = c.Judged("referee", "referee: it was", "its two clocks disagree", rounds=3)
ONLY_LIBRARIES = c.Judged(
    "referee", "referee: it was", rounds=3, policies=(c.PolicyFinding("libraries", "100 % is cuBLAS"),)
)
OUTCOMES = [
    (c.ok("1", judged=ONLY_LIBRARIES), "PASSED"),
    (c.failed("1", c.Failure("timed out", "it took too long")), "TIMEOUT"),
    (c.failed("1", c.Failure("wrong answer", "the result is suspicious: its two clocks disagree"), judged=JUDGED), "REWARD_HACK"),
    (c.failed("1", c.Failure("runtime error", "invalid reference: its arguments do not vary")), "INVALID_REFERENCE"),
    (c.failed("1", c.Failure("infrastructure", "the worker ended")), None),
    (c.failed("1", c.Failure("cancelled", "cancelled")), None),
]  # fmt: skip


def test_a_right_answer_that_a_policy_gives_no_score_is_right_in_every_form() -> None:
    from orbit_lsp.agents import mcp_answers
    from orbit_lsp.api import evaluation

    [request] = traces.requests(body())
    passed = c.Check("output of ModelNew == Model", True, elements=8)
    points = (c.Point({"version": "ModelNew"}, "", (), (passed,)),)
    result = Result(c.ok("1", points=points, judged=ONLY_LIBRARIES))
    made = traces.trace(job(), request, result)
    assert made
    status, answered = evaluation.answer(job(), result, request)
    ran = answered["kernel_exec_result"]
    assert (status, ran["correctness"], ran["runtime"], ran["validation_error"]) == (200, True, None, None)
    agents = dataclasses.asdict(mcp_answers.of_job(job(), None, result))
    for told in (made["evaluation"], answered, agents):
        assert (told["score"], told["policy"]) == (None, "libraries")
    assert result_text.lines(job(), result)[1:] == [
        "grade: referee: it was", "no score by the policy libraries: 100 % is cuBLAS", "waited: 0.5 s",
    ]  # fmt: skip
    assert summary.one_line(result.finished, compiled_only=False) == (
        "right, no score by the policy libraries: 100 % is cuBLAS"
    )


@pytest.mark.parametrize(("finished", "status"), OUTCOMES)
def test_the_status_of_an_outcome(finished: c.Finished, status: str | None) -> None:
    [request] = traces.requests(body())
    result = result_text.read(codec.read_json(json.dumps(dataclasses.asdict(Result(finished)))))
    assert result
    made = traces.trace(job(), request, result)
    assert (made["evaluation"]["status"] if made else None) == status
    assert (
        traces.trace(job(started=None), request, Result(OUTCOMES[1][0])) is None
    )  # it waited too long, and never ran


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"solution": solution(RIGHT) | {"definition": "other"}}, "solution.definition is 'other'"),
        ({"solution": solution(RIGHT) | {"spec": {"language": "cuda", "entry_point": "k.cu::run"}}}, "solution.spec.entry_point is 'k.cu::run'; it must be"),
        ({"solution": solution("x" * (1 << 18))}, "the solution's sources are too large"),
        ({"workloads": [WORKLOAD | {"axes": {}}]}, "the axis M of workload 'w1' has no value"),
        ({"workloads": [WORKLOAD | {"inputs": {"x": {"type": "custom"}}}]}, "x is made by a function of the definition"),
        ({"workloads": [WORKLOAD | {"inputs": {"x": {"type": "safetensors", "path": "/etc/passwd"}}}]}, "the workload reads x from '/etc/passwd'"),
        ({"workloads": [WORKLOAD | {"inputs": {}}]}, "scale has no shape: give its value"),
        ({"definition": DEFINITION | {"outputs": {"y'": {"shape": ["M"], "dtype": "float32"}}}}, '"y\'" is not a valid name'),
        ({"definition": DEFINITION | {"outputs": {"y": {"shape": ["K"], "dtype": "float32"}}}}, "the shape of y has 'K'"),
        ({"definition": DEFINITION | {"outputs": {"y": {"shape": ["M"], "dtype": "float2"}}}}, "y has the element type 'float2'"),
    ],
)  # fmt: skip
def test_what_is_refused(change: dict[str, Any], message: str) -> None:
    asked = {"definition": DEFINITION, "solution": solution(RIGHT), "workloads": [WORKLOAD]} | change
    with pytest.raises(RequestRefusedError) as why:
        traces.requests(traces.Evaluation.model_validate(asked))
    assert str(why.value).startswith(message)


def test_a_reference_states_its_tolerance_in_a_comment() -> None:
    stated = AllowedDifference(1e-3, 1e-5, 0.99, 4.0)
    assert harness_files.within(f"import torch\n{stated.line}\nclass Model: ...\n") == stated
    assert harness_files.within("# tolerance: rtol 0.1, atol 1\n") == AllowedDifference(0.1, 1.0)
    for text in (
        "",
        "x = '# tolerance: rtol 1, atol 1'",
        "# tolerance: rtol one, atol 1",
        "# tolerance: rtol inf, atol nan",
    ):
        assert harness_files.within(text) is None
