"""Sides of an evaluation that are not KernelBench's files: what is made of them runs as a KernelBench pair, here on the CPU. A CUDA
kernel's launch alone is a stand-in; tests/gpu/test_evaluations_gpu.py has the real one.
"""

from __future__ import annotations

import importlib.util
import linecache
import sys
from collections.abc import Callable, Generator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar
from unittest.mock import MagicMock

import pytest

from orbit_lsp.api import evaluation, metric_jobs, sides
from orbit_lsp.queue.request import Request, RequestRefusedError
from orbit_remote.child.harness import cuda_source
from orbit_remote.common import messages as c
from orbit_remote.common import nvcc_flags
from orbit_remote.common.requests import ContractStart, Job
from orbit_remote.recording import recorder
from tests import cheats

pytestmark = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="no torch here")
Check = Callable[[Request], c.Finished]


@pytest.fixture
def check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[Check]:
    """Both sides with a few inputs, in this process, which is put back as it was."""
    import torch  # noqa: F401 - before it is noted what there is: its finders stay

    from orbit_remote.child.harness import harness_job

    modules, finders = dict(sys.modules), list(sys.meta_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TRITON_INTERPRET", "1")

    def run(request: Request) -> c.Finished:
        for name, text in request.files.items():
            (tmp_path / name).write_text(text)
        path = str(tmp_path / request.name)
        job = Job("1", "run", "triton", path, request.text, start=ContractStart())
        return harness_job.check_and_time(job, lambda _: None, recorder.Nothing(), device="cpu")

    yield run
    sys.meta_path[:] = finders
    linecache.clearcache()  # Triton reads the next test's kernel by the same name
    for added in set(sys.modules) - set(modules):
        if added in ("candidate", "orbit_reference", "orbit_candidate"):
            del sys.modules[added]


def tensor(name: str, *shape: int, role: str = "input", **more: Any) -> dict[str, Any]:
    return {"name": name, "type": "tensor", "role": role, "tensor_spec": {"shape": shape, **more}}


def scalar(name: str, value: object, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": "int", "value": value, **more}


def torch_source(text: str, *args: dict[str, Any], **metadata: str) -> dict[str, Any]:
    io = {"args": args} if args else None
    return {"source_code": text, "kernel_type": "torch", "io": io, "metadata": metadata}


def model(expression: str, parameters: str = "x") -> str:
    """Without imports, as the evaluation server's own examples are."""
    return f"class Model(torch.nn.Module):\n    def forward(self, {parameters}):\n        return {expression}"


X = tensor("x", 64, init={"kind": "randn", "seed": 42})
ADDED = """\
import triton
import triton.language as tl


@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    kept = at < n
    tl.store(out + at, tl.load(x + at, mask=kept) + tl.load(y + at, mask=kept), mask=kept)
"""
ADD: dict[str, Any] = {
    "source_code": ADDED,
    "kernel_type": "triton",
    "io": {
        "args": [
            tensor("x", 64),
            tensor("y", 64),
            tensor("out", 64, role="output"),
            scalar("n", 64),
            scalar("BLOCK", 32, is_meta=True),
        ],
        "launch": {"grid": {"x": 2}, "num_warps": 4},
    },
}
MIXED = {
    "source_code": ADDED
    + """

def run(x, y):
    out = torch.empty_like(x)
    add[(2,)](x, y, out, 64, BLOCK=32)
    return out * 1
""",
    "kernel_type": "multi_kernel",
    "metadata": {"entry_point": "run"},
    "io": {"args": [tensor("x", 64), tensor("y", 64)]},
}
TWICE = ADDED.replace("y + at", "x + at")


CUDA = """\
namespace mine {
__global__ void add(const float* __restrict__ x, const float* y, float* out, long long n, float alpha) {}
__global__ void sub(double* x) {}
}
"""
CUDA_ADD: dict[str, Any] = {
    "source_code": CUDA,
    "kernel_type": "cuda",
    "metadata": {"kernel_name": "add", "compiler_options": ["--use_fast_math"]},
    "io": {
        "args": [
            tensor("x", 64),
            tensor("y", 64),
            tensor("out", 64, role="output"),
            scalar("n", 64),
            scalar("alpha", 2),
        ],
        "launch": {"grid": {"x": 2}, "block": {"x": 32}, "shared_mem_bytes": 8},
    },
}


def compared(reference: dict[str, Any], candidate: dict[str, Any], **more: Any) -> Request:
    body = {"ref_kernel": reference, "custom_kernel": candidate, **more}
    return evaluation.compared(evaluation.Compare.model_validate(body))


def evaluated(kernel: dict[str, Any]) -> Request:
    return evaluation.evaluated(evaluation.Evaluate.model_validate({"kernel": kernel}))


WITH_INPUTS = (
    model("x + y", "x, y") + "\n\ndef get_inputs():\n    return [torch.randn(64), torch.randn(64)]\n"
)


@pytest.mark.parametrize(
    ("reference", "candidate", "outcome"),
    [
        (torch_source(model("x * 2"), X), torch_source(model("x + x"), X), "ok"),
        (torch_source(model("x * 2"), X), torch_source(model("x * 3"), X), "wrong answer"),
        (torch_source(model("x * 2"), X), torch_source("def f(x): return x + x", function_name="f"), "ok"),
        (torch_source("def f(x): return x + x", X, function_name="f"), torch_source(model("2 * x").replace("Model", "Mine"), class_name="Mine"), "ok"),
        (torch_source(model("2 * x").replace("forward", "twice"), X, method_name="twice"), torch_source(model("x + x")), "ok"),
        (torch_source(model("x * n", "x, n"), X, scalar("n", 3)), torch_source(model("x * n", "x, n")), "ok"),
        (torch_source(WITH_INPUTS), torch_source(model("y + x", "x, y")), "ok"),
        (torch_source(WITH_INPUTS), ADD, "ok"),
        (ADD, torch_source(model("x + y", "x, y")), "ok"),
        (ADD, torch_source(model("x - y", "x, y")), "wrong answer"),
        (ADD, ADD, "ok"),
        (ADD, ADD | {"source_code": TWICE}, "wrong answer"),
        (torch_source(model("x + y", "x, y"), X, X), ADD, "ok"),
        (torch_source(model("x * 2"), X), ADD, "runtime error"),
        (torch_source("def f(x, y): return x + y", *ADD["io"]["args"], function_name="f"), ADD, "ok"),
        (torch_source(model("x + y", "x, y, k"), X, X, scalar("k", 7)), ADD, "ok"),  # n is its own, also where there are as many
        (torch_source(model("x + y", "k, x, y"), scalar("k", 7), X, X), ADD, "ok"),
        (torch_source(WITH_INPUTS), MIXED, "ok"),
        (MIXED, torch_source(model("x - y", "x, y")), "wrong answer"),
    ],
)  # fmt: skip
def test_two_sides(check: Check, reference: dict[str, Any], candidate: dict[str, Any], outcome: str) -> None:
    finished = check(compared(reference, candidate))
    assert finished.outcome == outcome, finished
    if outcome == "runtime error":
        assert finished.failure
        assert (
            "1 tensors come from the reference's inputs, and the io contract of this side has 2"
            in finished.failure.message
        )


def of_add(
    args: list[dict[str, Any]] | None = None, launch: dict[str, Any] | None = None, **changed: Any
) -> dict[str, Any]:
    """Return the CUDA kernel `CUDA_ADD` with other arguments or another launch. `changed` has the new value of an argument by its
    name, or all of its fields.
    """
    io = CUDA_ADD["io"]
    made: list[dict[str, Any]] = []
    for argument in args or io["args"]:
        new: dict[str, Any] | float = changed.get(argument["name"], argument)
        made.append(new if isinstance(new, dict) else argument | {"value": new})
    return CUDA_ADD | {"io": {"args": made, "launch": launch or io["launch"]}}


class Launched:
    """Stands in for a compiled kernel: adds on the CPU, and keeps what it was made of."""

    made: ClassVar[list[Any]] = []

    def __init__(self, *made: Any) -> None:
        self.made.append(made)

    def launch(self, grid: Any, block: Any, shared: int, values: list[Any]) -> None:
        assert (grid, block, shared) == ((2, 1, 1), (32, 1, 1), 8)
        x, y, out, n, alpha = values
        assert n == 64
        out.copy_(x + alpha * y)


MADE = """\
class Model(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.n = n

    def forward(self, x, y):
        return x + self.n * y


def get_inputs(): return [torch.randn(64), torch.randn(64)]
def get_init_inputs(): return """


@pytest.mark.parametrize("arguments", ["[1]", "{'n': 1}"])
@pytest.mark.parametrize(
    "candidate",
    [
        ADD,
        of_add(alpha=1),
        torch_source(MADE + "None"),
        torch_source("def f(x, y): return x + y", function_name="f"),
    ],
)
def test_a_reference_that_is_made_of_arguments(
    check: Check, monkeypatch: pytest.MonkeyPatch, arguments: str, candidate: dict[str, Any]
) -> None:
    monkeypatch.setattr(cuda_source, "SourceKernel", Launched)
    assert check(compared(torch_source(MADE + arguments), candidate)).outcome == "ok"


@pytest.mark.parametrize(
    ("reference", "candidate", "outcome"),
    [
        (torch_source(model("x + 2 * y", "x, y"), X, tensor("y", 64)), CUDA_ADD, "ok"),
        (CUDA_ADD, torch_source(model("x + y + y", "x, y")), "ok"),
        (CUDA_ADD, torch_source(model("x + y", "x, y")), "wrong answer"),
        (torch_source(WITH_INPUTS), of_add(alpha=1.0), "ok"),
        (ADD, of_add(alpha=1), "ok"),
        (CUDA_ADD, CUDA_ADD, "ok"),
        (CUDA_ADD, of_add(y=tensor("y", 64) | {"is_meta": True}), "ok"),
        (of_add(y=tensor("y", 64) | {"is_meta": True}), CUDA_ADD, "ok"),
    ],
)
def test_a_cuda_kernel_is_a_side(
    check: Check, monkeypatch: pytest.MonkeyPatch, reference: dict[str, Any], candidate: dict[str, Any], outcome: str,
) -> None:  # fmt: skip
    monkeypatch.setattr(cuda_source, "SourceKernel", Launched)
    monkeypatch.setattr(Launched, "made", [])
    assert check(compared(reference, candidate)).outcome == outcome
    file, source, name, flags, parameters = Launched.made[-1]
    assert (source, name, flags) == (CUDA, "mine::add", ("--use_fast_math",))
    assert file in ("candidate.cu", "reference.cu")
    assert parameters == [
        cuda_source.SourceParameter("x", "float32", pointer=True),
        cuda_source.SourceParameter("y", "float32", pointer=True),
        cuda_source.SourceParameter("out", "float32", pointer=True),
        cuda_source.SourceParameter("n", "int64", pointer=False),
        cuda_source.SourceParameter("alpha", "float32", pointer=False),
    ]


def test_a_word_of_python_names_an_argument_of_a_cuda_kernel() -> None:
    assert "'in', 'float32', True" in compared(torch_source(WITH_INPUTS), of_add(x=tensor("in", 64))).text


def test_by_itself_a_cuda_kernel_is_compiled_by_the_compiler_that_is_named() -> None:
    by = {"kernel_name": "add"}
    assert evaluated(CUDA_ADD | {"metadata": by}).name == "kernel.cu"
    assert evaluated(CUDA_ADD | {"metadata": by | {"backend": "nvcc"}}).name == "kernel.cu"
    assert sides.is_alone(evaluated(CUDA_ADD | {"metadata": by | {"backend": "nvrtc"}}))


def test_flags_of_nvcc_are_said_to_nvrtc_in_its_words() -> None:
    """A value is a word of its own to nvcc, and is not to NVRTC; what is nvcc's alone NVRTC refuses."""
    given = ["-O", "3", "--extended-lambda", "--expt-relaxed-constexpr", "-arch=sm_80", "-gencode", "arch=compute_80,code=sm_80",
             "--std", "gnu++20", "-maxrregcount", "32", "--fmad=false", "-I", "/a,/b", "-DN=3", "-D", "M", "-use_fast_math", "-rdc=true"]  # fmt: skip
    kept, refused = nvcc_flags.allowed_flags(given, trusted=False)
    assert refused == ()
    assert cuda_source._options(kept) == [  # pyright: ignore[reportPrivateUsage]
        "-std=c++20", "-maxrregcount=32", "-fmad=false", "-I/a", "-I/b", "-DN=3", "-DM", "-use_fast_math",
    ]  # fmt: skip


def test_nvrtc_is_given_what_nvcc_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    nvrtc = MagicMock()
    nvrtc.nvrtcCreateProgram.return_value = (MagicMock(),)
    monkeypatch.setitem(sys.modules, "cuda.bindings.nvrtc", nvrtc)
    with pytest.raises(cuda_source.NotCompiledError):
        cuda_source.compiled("candidate.cu", "\ufeffint a;\0int b; // \ud800é", "k", "sm_90a", ())
    assert nvrtc.nvrtcCreateProgram.call_args.args[0] == b"int a; int b; // \xed\xa0\x80\xc3\xa9"


def test_what_nvrtc_refuses_is_at_its_lines(check: Check, monkeypatch: pytest.MonkeyPatch) -> None:
    log = 'candidate.cu(2): error: identifier "foo" is undefined\n   a[0]=foo;\n        ^\n\n1 error detected in the compilation of "candidate.cu".'

    def refuse(*_: object) -> None:
        raise cuda_source.NotCompiledError(log)

    monkeypatch.setattr(cuda_source, "SourceKernel", refuse)
    finished = check(compared(torch_source(model("x + y", "x, y"), X, X), CUDA_ADD))
    assert finished.outcome == "compile error"
    assert finished.failure
    assert finished.failure.message == 'the CUDA source does not compile: identifier "foo" is undefined'
    assert finished.problems[0].place == c.Place("candidate.cu", 2)


@pytest.mark.parametrize(
    ("capability", "architecture"), [((8, 0), "sm_80"), ((9, 0), "sm_90a"), ((10, 0), "sm_100a")]
)
def test_it_is_compiled_for_all_that_its_gpu_has(
    monkeypatch: pytest.MonkeyPatch, capability: tuple[int, int], architecture: str
) -> None:
    """wgmma and tcgen05 are not in the code that later GPUs run too."""
    import torch

    seen: list[str] = []

    def compiled(*given: Any) -> tuple[bytes, str]:
        seen.append(given[3])
        return b"", "add"

    major, minor = capability
    core = MagicMock()
    core.Device.return_value.compute_capability = SimpleNamespace(major=major, minor=minor)
    monkeypatch.setitem(sys.modules, "cuda.core", core)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(cuda_source, "compiled", compiled)
    cuda_source.SourceKernel("candidate.cu", CUDA, "mine::add", (), ())
    assert seen == [architecture]


@pytest.mark.parametrize(
    ("candidate", "place"),
    [
        (torch_source("def f(x): return x + 1", function_name="f"), None),
        (torch_source("def f(x, y): return x", function_name="f"), None),
        (torch_source("def f(x):\n    return x.none", function_name="f"), 2),
    ],
)
def test_no_line_is_one_of_a_text_that_nobody_handed_in(
    check: Check, tmp_path: Path, candidate: dict[str, Any], place: int | None
) -> None:
    request = compared(torch_source(model("x * 2"), X), candidate)
    finished = check(request)
    problems = [
        replace(
            each, place=each.place and replace(each.place, file=each.place.file.removeprefix(f"{tmp_path}/"))
        )
        for each in finished.problems
    ]
    [problem] = sides.as_handed_in(problems, request.text)
    assert (problem.place and problem.place.line) == place
    if place:
        pair = compared(torch_source(WITH_INPUTS), torch_source(model("x").replace("Model", "ModelNew")))
        own = replace(problem, place=c.Place("candidate_new.py", 3))
        assert sides.as_handed_in([own], pair.text) == (own,)


def test_a_kernel_that_nvrtc_does_not_find_is_at_no_line() -> None:
    """As where `#ifdef` leaves it out: the line is one of a file that NVRTC makes."""
    log = '__nv_name_map(2): error: identifier "add" is undefined\n1 error detected in the compilation of "candidate.cu".'
    failure, problems = cuda_source.NotCompiledError(log).failure()
    assert failure.message == 'the CUDA source does not compile: identifier "add" is undefined'
    assert [failure.place, *(problem.place for problem in problems)] == [None, None]


def test_a_header_that_nvrtc_does_not_have() -> None:
    failure, _ = cuda_source.NotCompiledError(
        'candidate.cu(1): catastrophic error: cannot open source file "iostream"\n'
    ).failure()
    assert failure.message.endswith(
        'file "iostream"; NVRTC has CUDA\'s headers, <cuda/std/...>, and those of C++ and C that kernels use'
    )
    assert failure.place == c.Place("candidate.cu", 1)


@pytest.mark.parametrize("source", [torch_source(model("x * 2"), X), torch_source(WITH_INPUTS), ADD])
def test_a_reference_in_the_candidates_place(check: Check, source: dict[str, Any]) -> None:
    """As it is profiled: the engine takes no ModelNew that is Model itself."""
    request = compared(source, source)
    reference = metric_jobs.as_candidate(request.files["candidate.py"])
    assert check(replace(request, text=reference, files={})).outcome == "ok"


@pytest.mark.parametrize(
    ("init", "dtype", "values"),
    [
        ({"kind": "zeros"}, None, [0.0, 0.0]),
        ({"kind": "ones"}, "int32", [1, 1]),
        ({"kind": "full", "fill_value": -2.5}, "float16", [-2.5, -2.5]),
        ({"kind": "arange", "start": 3, "step": 0.5}, "float64", [3.0, 3.5]),
        ({"kind": "full", "fill_value": 16777217}, "int32", [16777217, 16777217]),
        ({"kind": "full", "fill_value": 0.1}, "float64", [0.1, 0.1]),
        ({"kind": "arange", "start": 0.1, "step": 0.1}, "float64", [0.1, 0.2]),
    ],
)
def test_what_a_contract_fills(
    check: Check, init: dict[str, Any], dtype: str | None, values: list[float]
) -> None:
    source = torch_source(
        model(f"x + 0 * torch.tensor({values}, dtype=x.dtype)"), tensor("x", 2, init=init, dtype=dtype)
    )
    wanted = torch_source(model(f"torch.tensor({values}, dtype=x.dtype)"))
    assert check(compared(source, wanted, rtol=1e-12)).outcome == "ok"


def test_random_inputs_are_within_what_the_contract_says(check: Check) -> None:
    x = tensor("x", 1000, init={"kind": "uniform", "low": 2, "high": 3})
    y = tensor("y", 1000, init={"kind": "randn", "mean": 50, "std": 2})
    within = "((x >= 2) & (x <= 3)).all() & (y - 50).abs().lt(20).all() & (x.std() > 0.1)"
    wanted = torch_source(model("torch.tensor(True)", "x, y"))
    assert check(compared(torch_source(model(within, "x, y"), x, y), wanted)).outcome == "ok"


def test_the_judge_takes_them(tmp_path: Path) -> None:
    from orbit_remote.judge import judge_main

    def judged(candidate: dict[str, Any]) -> c.Finished:
        request = compared(torch_source(model("x * 2"), X), candidate, grade="referee")
        job = cheats.job_of(tmp_path, request.text, request.files["candidate.py"])
        return cheats.judge_in_a_fork(
            lambda: judge_main.judge(job, lambda _: None, tmp_path / "cache", "cpu", most_s=0.0)
        )

    assert judged(torch_source(model("x + x"))).outcome == "ok"
    assert judged(torch_source(model("x + 1"))).outcome == "wrong answer"


def test_a_source_by_itself_has_a_time_and_nothing_to_be_right_about(check: Check) -> None:
    request = evaluated(
        torch_source(model("x * 2 * time.time_ns()").replace("class", "import time\nclass"), X)
    )
    assert check(request).outcome == "ok"
    assert sides.is_alone(request)
    other = compared(torch_source(WITH_INPUTS), torch_source(model("x").replace("Model", "ModelNew")))
    assert not sides.is_alone(other)
    end = request.files["candidate.py"].splitlines()[-1]
    assert not sides.is_alone(replace(other, text=f"{other.text}\n{end}\n"))


STATED = torch_source("import time\n# tolerance: rtol 0, atol 0.5\n" + model("x"), X)


@pytest.mark.parametrize(("off", "outcome"), [(0.4, "ok"), (0.6, "wrong answer")])
def test_the_tolerance_that_a_reference_states(check: Check, off: float, outcome: str) -> None:
    assert check(compared(STATED, torch_source(model(f"x + {off}")))).outcome == outcome
    with pytest.raises(RequestRefusedError, match="give that, or rtol and atol, not both"):
        compared(STATED, torch_source(model("x")), rtol=1)


def test_the_tolerance_that_a_source_by_itself_states_is_of_nothing(check: Check) -> None:
    source = STATED["source_code"].replace("return x", "return x * 2 * time.time_ns()")
    assert check(evaluated(STATED | {"source_code": source})).outcome == "ok"


def test_a_function_that_launches_kernels_runs_by_itself(check: Check) -> None:
    assert check(evaluated(MIXED)).outcome == "ok"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: compared(torch_source(model("x")), torch_source(model("x"))), "say what the inputs are: by an io contract, or by"),
        (lambda: evaluated(torch_source(model("x"))), "say what the inputs are"),
        (lambda: compared(torch_source("def g(x): ...", X, function_name="f"), ADD), "the torch source has no function f"),
        (lambda: compared(torch_source(model("x"), X, class_name="A B"), ADD), "metadata.class_name is 'A B'; it must be a name"),
        (lambda: compared(torch_source(model("x"), X, method_name="class"), ADD), "metadata.method_name is 'class'; it must be a name"),
        (lambda: compared(torch_source(model("x"), X), ADD | {"kernel_type": "multi_kernel"}), "a multi_kernel source that is compared, or has an io contract, needs"),
        (lambda: compared(torch_source(model("x"), X), CUDA_ADD | {"io": None}), "a CUDA source that is compared needs an io contract"),
        (lambda: compared(torch_source(model("x"), X), CUDA_ADD | {"metadata": {}}), "metadata.kernel_name has to name the kernel; the source has: mine::add, mine::sub"),
        (lambda: compared(torch_source(model("x"), X), CUDA_ADD | {"source_code": "namespace a {" + CUDA + "}" + CUDA}), "metadata.kernel_name has to be a whole name, as add is not the only one; the source has: a::mine::add, a::mine::sub, mine::add, mine::sub"),
        (lambda: compared(torch_source(model("x"), X), CUDA_ADD | {"metadata": {"kernel_name": "mine::2"}}), "metadata.kernel_name is 'mine::2'; it must be a name, as k, a::k or A.k"),
        (lambda: compared(torch_source(model("x"), X), CUDA_ADD | {"source_code": CUDA + CUDA}), "the source has 2 kernels with the name add; give the one that is launched a name of its own"),
        (lambda: compared(torch_source(model("x"), X), of_add(args=[X])), "io.args: add takes 5 arguments, not 1"),
        (lambda: compared(torch_source(model("x"), X), of_add(launch={"grid": {"x": 2}})), "io.launch needs a block"),
        (lambda: compared(torch_source(model("x"), X), of_add(launch={"grid": {"x": -1}, "block": {"x": 32}})), "io.launch: the grid is -1 in x; CUDA takes 1 to 2147483647"),
        (lambda: compared(torch_source(model("x"), X), of_add(launch={"grid": {"x": 1}, "block": {"z": 65}})), "io.launch: the block is 65 in z; CUDA takes 1 to 64"),
        (lambda: compared(torch_source(model("x"), X), of_add(launch={"grid": {"x": 1}, "block": {"x": 64, "y": 32}})), "io.launch: the block has 2048 threads; a block has at most 1024"),
        (lambda: compared(torch_source(model("x"), X), of_add(launch={"grid": {"x": 1}, "block": {"x": 32}, "shared_mem_bytes": -1})), "io.launch: shared_mem_bytes is -1, not a number of bytes"),
        (lambda: compared(torch_source(model("x"), X), ADD | {"io": ADD["io"] | {"launch": {"grid": {"y": 1 << 16}}}}), "io.launch: the grid is 65536 in y; CUDA takes 1 to 65535"),
        (lambda: compared(torch_source(model("x"), X), of_add(n=1e19)), "io.args: n is 1e+19, which is no long long"),
        (lambda: compared(torch_source(model("x"), X), of_add(n=2.5)), "io.args: n is 2.5, which is no long long"),
        (lambda: compared(torch_source(model("x"), X), of_add(alpha=10**400)), "io.args: alpha is 1000000000000000000000000000000000000000, which is no float"),
        (lambda: compared(torch_source(model("x"), X), of_add(x=tensor("x", 64, dtype="float64"))), "io.args: x is float64, and the kernel takes const float*"),
        (lambda: compared(torch_source(model("x"), X), of_add(x=scalar("x", 1))), "io.args: x is 'int'; const float* takes a tensor"),
        (lambda: compared(torch_source(model("x"), X), CUDA_ADD | {"source_code": "template <class T> __global__ void add(T* x) {}"}), "the parameters of add cannot be read from the source"),
        (lambda: compared(torch_source(model("x"), X), CUDA_ADD | {"source_code": CUDA.replace("long long n", "Count n")}), "io.args: the type of n, Count, is not known here"),
        (lambda: compared(torch_source(model("x"), X), CUDA_ADD | {"metadata": {"kernel_name": "add", "backend": "nvcc"}}), "NVRTC compiles a CUDA source that is compared"),
        (lambda: compared(torch_source(model("x"), X), CUDA_ADD | {"metadata": {"kernel_name": "add", "backend": "gcc"}}), "metadata.backend is 'gcc'; it must be nvcc or nvrtc"),
        (lambda: compared(torch_source(model("x"), X), CUDA_ADD | {"metadata": {"kernel_name": "add", "compiler_options": ["-include", "/etc/passwd"]}}), "a compiler flag is not permitted"),
        (lambda: compared(torch_source(model("x"), X), ADD | {"io": {"args": [], "launch": {"grid": {"x": 2}}}}), "io.args: a kernel that is compared needs a tensor with"),
        (lambda: compared(torch_source(model("x"), X), ADD | {"metadata": {"kernel_name": "sub"}}), "there is no kernel sub"),
        (lambda: compared(torch_source(model("x"), tensor("x", 0)), ADD), "io.args: the shape of x is [0]"),
        (lambda: compared(torch_source(model("x"), scalar("n", "a b")), ADD), "io.args: n is 'a b'; a scalar needs a number"),
        (lambda: compared(torch_source(model("x"), tensor("x", 2, role="output")), ADD), "io.args: there is no input"),
    ],
)  # fmt: skip
def test_what_cannot_be_compared(call: Callable[[], Request], message: str) -> None:
    with pytest.raises(RequestRefusedError) as why:
        call()
    assert str(why.value).startswith(message)
