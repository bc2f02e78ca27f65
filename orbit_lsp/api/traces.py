"""Turns FlashInfer-Bench's JSON, which SOL-ExecBench shares, into jobs (Definition, Workload and Solution), and their
results into Traces.

The reference becomes `Model` and the solution `ModelNew`; the engine judges them as KernelBench's files. A value that
is not known is null.
"""

from __future__ import annotations

import json
import math
import re
import textwrap
import time
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from orbit_lsp.api import tensors
from orbit_lsp.api.submitted_sources import BROUGHT, SOURCES
from orbit_lsp.queue import result_text
from orbit_lsp.queue.job_store import Result, StoredJob
from orbit_lsp.queue.request import Request, RequestRefusedError
from orbit_remote.common import codec
from orbit_remote.common import limits as sizes
from orbit_remote.common import messages as c
from orbit_remote.common.contracts.harness_files import AllowedDifference
from orbit_remote.common.requests import Grade, Policy

ABOUT = "orbit_trace.json"
"""The file beside the job that says what its Trace is of."""
_NAME = re.compile(r"[A-Za-z_]\w*")
_ENTRY = re.compile(r"((?:[A-Za-z_]\w*/)*[A-Za-z_]\w*)\.py::([A-Za-z_]\w*)")
_NATIVE_ENTRY = re.compile(r"(\S{1,500}\.(?:cu|cpp|cc|cxx|c))::([A-Za-z_]\w*)")
_PLACE = re.compile(r"(?:[\w-][\w.+-]*/)*[\w-][\w.+-]*")
"""A path below the folder that the solution is built in."""
_LOG = 4_000
INVALID = "invalid reference: "
"""How a failure of the reference begins, here and in the judge's words."""
_NOT_BUILT = "the solution does not compile: "


class _Open(BaseModel):
    """A model that keeps fields that are not ours."""

    model_config = ConfigDict(extra="allow")


class Axis(_Open):
    type: Literal["const", "var"]
    value: int | None = None


class Spec(_Open):
    shape: list[str] | None = None
    dtype: str


class Definition(_Open):
    """`reference` is Python with a function `run`."""

    name: str
    axes: dict[str, Axis] = Field(default_factory=dict[str, Axis])
    inputs: dict[str, Spec] = Field(max_length=1_000)
    outputs: dict[str, Spec] = Field(min_length=1, max_length=1_000)
    reference: str


class Input(_Open):
    type: Literal["random", "scalar", "safetensors", "custom"]
    value: int | float | bool | None = None
    path: str = ""
    tensor_key: str = ""


class Limits(_Open):
    max_atol: float = Field(1e-2, ge=0, allow_inf_nan=False)
    max_rtol: float = Field(1e-2, ge=0, allow_inf_nan=False)
    required_matched_ratio: float = Field(1.0, ge=0, le=1)
    max_error_cap: float | None = Field(None, ge=0, allow_inf_nan=False)


class Workload(_Open):
    uuid: str = ""
    axes: dict[str, int] = Field(default_factory=dict[str, int])
    inputs: dict[str, Input] = Field(default_factory=dict[str, Input])
    tolerance: Limits | None = None


class Source(_Open):
    path: str
    content: str


class Flags(_Open):
    cflags: list[str] = Field(default_factory=list[str], max_length=100)
    cuda_cflags: list[str] = Field(default_factory=list[str], max_length=100)
    ld_flags: list[str] = Field(default_factory=list[str], max_length=100)


class Build(_Open):
    """`binding` is that of CUDA and C++: torch's extensions or TVM-FFI."""

    language: str = ""
    languages: list[str] = Field(default_factory=list[str])
    entry_point: str
    destination_passing_style: bool = True
    binding: Literal["torch", "tvm-ffi"] | None = None
    compile_options: Flags | None = None


class Solution(_Open):
    name: str
    definition: str
    spec: Build
    sources: list[Source] = Field(min_length=1, max_length=100)


class Evaluation(BaseModel):
    """A solution, and the workloads that it is judged with. `tensors` are the safetensors files that the workloads name, by path, in
    base64: this server reads none of its own files for a client.
    """

    definition: Definition
    solution: Solution
    workloads: Annotated[list[Workload], Field(min_length=1, max_length=1_000)]
    tensors: dict[str, str] = Field(default_factory=dict[str, str])
    grade: Grade = "author"
    allow: list[Policy] = Field(default_factory=list[Policy])
    gpu: str = ""
    timeout: float = Field(120, gt=0, le=600)


def requests(body: Evaluation) -> list[Request]:
    """Return a job for each workload. Raises RequestRefusedError."""
    definition, solution = body.definition, body.solution
    if solution.definition != definition.name:
        raise RequestRefusedError(
            f"solution.definition is {solution.definition!r:.60}, and the definition's name is {definition.name!r:.60}"
        )
    top = _entry(solution)
    for name in (*definition.inputs, *definition.outputs):
        if not _NAME.fullmatch(name):
            raise RequestRefusedError(f"{name!r:.40} is not a valid name of an input or output")
    sources = {source.path: source.content for source in solution.sources}
    folders = {str(folder) for path in sources for folder in PurePosixPath(path).parents} - {"."}
    sources = {f"{folder}/__init__.py": "" for folder in sorted(folders)} | sources
    return [_request(body, workload, top, sources) for workload in body.workloads]


def _entry(solution: Solution) -> str:
    """Return Python that makes `_run`: it imports it, or builds it from C++ and CUDA."""
    spec, paths = solution.spec, {source.path for source in solution.sources}
    if (match := _ENTRY.fullmatch(spec.entry_point)) and f"{match[1]}.py" in paths:
        return f"from {match[1].replace('/', '.')} import {match[2]} as _run\n"
    match = _NATIVE_ENTRY.fullmatch(spec.entry_point)
    if match is None or match[1] not in paths:
        raise RequestRefusedError(
            f"solution.spec.entry_point is {spec.entry_point!r:.80}; it must be FILE::FUNCTION, and FILE one of the sources, a .py, .cu or "
            "C++ file"
        )
    if wrong := next((path for path in sorted(paths) if not _PLACE.fullmatch(path)), None):
        raise RequestRefusedError(f"the source's path {wrong!r:.80} is not one below the solution's folder")
    texts = {source.path: source.content for source in solution.sources}
    bound = spec.binding or ("tvm-ffi" if any("TVM_FFI" in text for text in texts.values()) else "torch")
    flags = spec.compile_options or Flags.model_validate({})
    return _NATIVE.format(
        texts=texts,
        flags=(flags.cflags, flags.cuda_cflags, flags.ld_flags),
        bound=bound,
        function=match[2],
        failed=_NOT_BUILT,
    )


def _request(body: Evaluation, workload: Workload, top: str, sources: Mapping[str, str]) -> Request:
    definition, names = body.definition, list(body.definition.outputs)
    axes = _axes(definition, workload)
    inputs = [
        _input(name, spec, workload.inputs.get(name) or Input(type="random"), axes, body.tensors)
        for name, spec in definition.inputs.items()
    ]
    outputs = [
        f"torch.empty({_shape(name, spec, axes) or []!r}, dtype=torch.{_dtype(name, spec)}, device=_device(arguments))"
        for name, spec in definition.outputs.items()
    ]
    limits = workload.tolerance or Limits.model_validate({})
    allowed = AllowedDifference(
        limits.max_rtol, limits.max_atol, limits.required_matched_ratio, limits.max_error_cap
    )
    about = {
        "definition": definition.name,
        "solution": body.solution.name,
        "workload": workload.model_dump(mode="json", exclude_unset=True),
    }
    called = _CANDIDATE.format(
        outputs=", ".join(outputs), passed=body.solution.spec.destination_passing_style
    )
    ordered = _ORDERED.format(names=names)
    candidate = SOURCES.format(files=sources, known="") + ordered + top + called
    if len(candidate) > sizes.CONTRACT.most:
        raise RequestRefusedError(f"the solution's sources are too large: {sizes.CONTRACT.exceeded}")
    reference = {"orbit_reference.py": definition.reference}
    model = SOURCES.format(files=reference, known="") + ordered + _MODEL.format(inputs=", ".join(inputs))
    return Request(
        name="candidate_new.py",
        text=candidate,
        files={"candidate.py": f"{allowed.line}\n{model}", ABOUT: json.dumps(about)},
        kernel="ModelNew",
        gpu=body.gpu,
        grade=body.grade,
        allow=tuple(body.allow),
        timeout_s=body.timeout,
    )


# -- what the job runs ------------------------------------------------------------------------------

_ORDERED = textwrap.dedent("""
    def _ordered(result):
        if isinstance(result, dict):
            return tuple(result[name] for name in {names!r})
        return tuple(result) if isinstance(result, (list, tuple)) else (result,)
""")
_MODEL = BROUGHT + textwrap.dedent("""
    def _random(shape, dtype):
        if dtype == torch.bool:
            return torch.randint(0, 2, shape).bool()
        if not dtype.is_floating_point:
            low, high = (max(-1024, torch.iinfo(dtype).min), min(1024, torch.iinfo(dtype).max))
            return torch.randint(low, high + 1, shape, dtype=torch.int64).to(dtype)
        return torch.randn(shape, dtype=torch.float32).to(dtype)

    def get_inputs():
        return [{inputs}]

    class Model(nn.Module):
        def forward(self, *arguments):
            try:
                import orbit_reference
                return _ordered(orbit_reference.run(*arguments))
            except Exception as error:
                raise RuntimeError("invalid reference: " + type(error).__name__ + ": " + str(error)) from error
""")
_NATIVE = textwrap.dedent("""
    import hashlib
    import os
    from pathlib import Path
    from torch.utils import cpp_extension

    def _built(texts, flags, bound):
        key = "orbit_" + hashlib.sha256(repr((texts, flags, bound)).encode()).hexdigest()[:16]
        folder = Path(os.environ.get("TORCH_EXTENSIONS_DIR") or cpp_extension.get_default_build_root(), key)
        for place, text in texts.items():
            path = folder / place
            path.parent.mkdir(parents=True, exist_ok=True)
            if not (path.is_file() and path.read_text() == text):  # a new time would build it again
                path.write_text(text)
        cuda = [str(folder / place) for place in texts if place.endswith(".cu")]
        host = [str(folder / place) for place in texts if place.endswith((".cpp", ".cc", ".cxx", ".c"))]
        shared = dict(extra_cflags=flags[0], extra_cuda_cflags=flags[1], extra_ldflags=flags[2], extra_include_paths=[str(folder)])
        if bound == "torch":
            return cpp_extension.load(key, cuda + host, build_directory=str(folder), with_cuda=bool(cuda), **shared)
        import tvm_ffi
        import tvm_ffi.cpp
        return tvm_ffi.load_module(
            tvm_ffi.cpp.build(key, cpp_files=host, cuda_files=cuda, build_directory=str(folder), **shared)
        )

    try:
        _run = getattr(_built({texts!r}, {flags!r}, {bound!r}), {function!r})
    except Exception as error:
        raise RuntimeError({failed!r} + type(error).__name__ + ": " + str(error)) from None
""")
_CANDIDATE = textwrap.dedent("""
    def _device(arguments):
        return next((each.device for each in arguments if isinstance(each, torch.Tensor)), None)

    class ModelNew(nn.Module):
        def forward(self, *arguments):
            if {passed}:
                outputs = ({outputs},)
                _run(*arguments, *outputs)
                return outputs
            return _ordered(_run(*arguments))
""")


def _axes(definition: Definition, workload: Workload) -> dict[str, int]:
    axes: dict[str, int] = {}
    for name, axis in definition.axes.items():
        value = axis.value if axis.type == "const" else workload.axes.get(name)
        if value is None or value < 0:
            raise RequestRefusedError(
                f"the axis {name} of workload {workload.uuid!r:.60} has no value of at least 0"
            )
        axes[name] = value
    return axes


def _input(name: str, spec: Spec, given: Input, axes: Mapping[str, int], brought: Mapping[str, str]) -> str:
    """Return an expression that makes the input."""
    shape, dtype = _shape(name, spec, axes), _dtype(name, spec)
    if given.type == "scalar":
        if given.value is None or not math.isfinite(given.value):
            raise RequestRefusedError(f"the scalar {name} has no finite value")
        return repr(given.value)
    if given.type == "random" and shape is not None:
        return f"_random({shape}, torch.{dtype})"
    if given.type == "safetensors" and shape is not None:
        if given.path not in brought:
            raise RequestRefusedError(
                f"the workload reads {name} from {given.path!r:.80}: put that file into `tensors`, in base64"
            )
        tensor = tensors.from_safetensors(brought[given.path], given.tensor_key, name)
        if (tensor.dtype, list(tensor.shape)) != (dtype, shape):
            raise RequestRefusedError(
                f"{name} is {dtype} {shape}, and its file has {tensor.dtype} {list(tensor.shape)}"
            )
        return f"_brought({tensor.packed()!r}, {shape}, torch.{dtype})"
    if given.type == "custom":
        raise RequestRefusedError(
            f"{name} is made by a function of the definition (type custom), which is not supported"
        )
    raise RequestRefusedError(f"{name} has no shape: give its value in the workload, as a scalar")


def _shape(name: str, spec: Spec, axes: Mapping[str, int]) -> list[int] | None:
    if spec.shape is None:
        return None
    if unknown := [axis for axis in spec.shape if axis not in axes and not axis.isdecimal()]:
        raise RequestRefusedError(
            f"the shape of {name} has {unknown[0]!r:.40}, which is not one of the definition's axes"
        )
    return [axes[axis] if axis in axes else int(axis[:12]) for axis in spec.shape]


def _dtype(name: str, spec: Spec) -> str:
    if spec.dtype not in tensors.SIZES:
        raise RequestRefusedError(
            f"{name} has the element type {spec.dtype!r:.30}; use one of {', '.join(tensors.SIZES)}"
        )
    return spec.dtype


# -- what comes back --------------------------------------------------------------------------------

Status = Literal[
    "PASSED", "INCORRECT_SHAPE", "INCORRECT_NUMERICAL", "INCORRECT_DTYPE", "RUNTIME_ERROR", "COMPILE_ERROR", "TIMEOUT",
    "REWARD_HACK", "INVALID_REFERENCE",
]  # fmt: skip


def trace(job: StoredJob, request: Request, result: Result) -> dict[str, Any] | None:
    """Return the trace of a job. Return None if the engine could not do its work, which says nothing about the
    solution. Raises RequestRefusedError for a job of another kind.
    """
    if ABOUT not in request.files:
        raise RequestRefusedError(f"job {job.id} was not submitted by POST /v1/traces")
    finished = result.finished
    status = _status(finished, started=job.started is not None)
    if status is None:
        return None
    checks = [check for point in finished.points for check in point.checks]
    compared = status in ("PASSED", "INCORRECT_NUMERICAL")
    errors = [check.error for check in checks if check.error is not None]
    about = codec.read_json(request.files[ABOUT])
    failure = finished.failure
    log = "\n".join(filter(None, (failure.message if failure else "", finished.stdout, finished.stderr)))
    return about | {
        "evaluation": {
            "status": status,
            "environment": {
                "hardware": finished.device.name if finished.device else None,
                "libs": finished.toolchain,
            },
            "timestamp": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(job.ended)) if job.ended else None,
            "log": log[-_LOG:],
            "correctness": {
                "max_relative_error": None,
                "max_absolute_error": max(errors, default=None),
                "has_nan": None,
                "has_inf": None,
                "extra": None,
            }
            if compared
            else None,
            "performance": _performance(finished) if status == "PASSED" else None,
            "job": job.id,
            "waited_s": job.waited_s,
            **result_text.graded(finished),
        }
    }


def _status(finished: c.Finished, *, started: bool) -> Status | None:
    outcome = finished.outcome
    message = finished.failure.message if finished.failure else ""
    if outcome in ("infrastructure", "cancelled") or (outcome == "timed out" and not started):
        return None
    if outcome == "ok":
        return "PASSED"
    if finished.judged and finished.judged.suspicious:
        return "REWARD_HACK"
    if INVALID in message:
        return "INVALID_REFERENCE"
    if _NOT_BUILT in message:
        return "COMPILE_ERROR"
    if outcome == "wrong answer":
        return _wrong(finished)
    by_outcome: dict[str, Status] = {"timed out": "TIMEOUT", "compile error": "COMPILE_ERROR"}
    return by_outcome.get(outcome, "RUNTIME_ERROR")


def _wrong(finished: c.Finished) -> Status:
    failed = next((check for point in finished.points for check in point.checks if not check.passed), None)
    if failed is None or failed.elements:
        return "INCORRECT_NUMERICAL"
    if failed.expected.startswith("without NaN"):
        return "INVALID_REFERENCE"
    return "INCORRECT_DTYPE" if failed.actual.startswith("of dtype") else "INCORRECT_SHAPE"


def _performance(finished: c.Finished) -> dict[str, float | None]:
    """Return the medians with a cold L2, in milliseconds."""
    reference = next((point for point in finished.points if point.values.get("version") == "Model"), None)
    mine, other = (
        launches[0].timing.median / 1e6 if launches else None
        for launches in (finished.launches, reference.launches if reference else ())
    )
    return {
        "latency_ms": mine,
        "reference_latency_ms": other,
        "speedup_factor": other / mine if mine and other is not None else None,
    }
