"""Turns the evaluation server's request forms into jobs, and jobs into its answers.

A candidate is judged against a reference if both are Python with `Model` and `ModelNew` (KernelBench's contract), and
by itself if an IOContract or a launch spec says how it is run. Times are milliseconds of device time. A value that is
not known is null.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from orbit_lsp.api import io_contract, sides
from orbit_lsp.api.io_contract import Kernel
from orbit_lsp.api.metric_jobs import NOTHING, Metrics
from orbit_lsp.compilation import compiler_messages
from orbit_lsp.kernels import cells
from orbit_lsp.queue import result_text
from orbit_lsp.queue.job_store import Result, StoredJob
from orbit_lsp.queue.request import Request, RequestRefusedError
from orbit_lsp.runs import summary
from orbit_remote.common import messages as c
from orbit_remote.common.contracts import harness_files
from orbit_remote.common.measurements import Timing
from orbit_remote.common.requests import Grade, Policy

_REFERENCE = "class Model(nn.Module): ...\ndef get_inputs(): ...\ndef get_init_inputs(): ..."


class _Limits(BaseModel):
    """`num_trials` is the most launches that are timed of a kernel with an io contract. `device_metrics` profiles
    what ran, after the run; null means what the server's ENABLE_DEVICE_METRICS says. `allow` names the policies that
    grade referee does not enforce. A job that has not begun after `wait_limit_s` ends. Without that limit it waits
    until it is cancelled.
    """

    num_trials: int = Field(100, ge=1, le=100_000)
    timeout: float = Field(120, gt=0, le=600)
    grade: Grade = "author"
    allow: list[Policy] = Field(default_factory=list[Policy])
    wait_limit_s: float | None = Field(None, gt=0, le=86_400)
    device_metrics: bool | None = None


class Evaluate(_Limits):
    """A kernel by itself."""

    kernel: Kernel


class Compare(_Limits):
    """A candidate against its reference. In the older form they are `ref_code` and `custom_code`, KernelBench's two
    texts. An element of an output is right within `atol + rtol * |expected|`. Without these two the tolerance is
    KernelBench's, by the output's type.
    """

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"ref_code": _REFERENCE, "custom_code": "class ModelNew(nn.Module): ...", "timeout": 60}
            ]
        }
    )

    ref_kernel: Kernel | None = None
    custom_kernel: Kernel | None = None
    ref_code: str = ""
    custom_code: str = ""
    rtol: float | None = Field(None, ge=0, allow_inf_nan=False)
    atol: float | None = Field(None, ge=0, allow_inf_nan=False)


def compared(body: Compare) -> Request:
    """Raises RequestRefusedError."""
    reference, candidate = (
        kernel or Kernel(source_code=code, kernel_type="torch")
        for kernel, code in ((body.ref_kernel, body.ref_code), (body.custom_kernel, body.custom_code))
    )
    if not reference.source_code or not candidate.source_code:
        raise RequestRefusedError("give ref_kernel and custom_kernel, or ref_code and custom_code")
    if sides.is_pair(reference, candidate):
        return _judged(body, reference.source_code, candidate.source_code)
    return _judged(body, *sides.pair(reference, candidate))


def _judged(body: Compare | Evaluate, model: str, candidate: str) -> Request:
    name, reference = sides.FILES
    return Request(
        name=name,
        text=candidate,
        files={reference: model + (_tolerance(body, model) if isinstance(body, Compare) else "")},
        kernel="ModelNew",
        grade=body.grade,
        allow=tuple(body.allow),
        wait_limit_s=body.wait_limit_s,
        timeout_s=body.timeout,
    )


def _tolerance(body: Compare, reference: str) -> str:
    """Return a line that states the request's tolerance, for the end of the reference. Raises RequestRefusedError."""
    if body.rtol is None and body.atol is None:
        return ""
    if harness_files.within(reference):
        raise RequestRefusedError(
            "the reference states a tolerance in a comment; give that, or rtol and atol, not both"
        )
    return f"\n{harness_files.AllowedDifference(body.rtol or 0.0, body.atol or 0.0).line}\n"


def evaluated(body: Evaluate) -> Request:
    """Raises RequestRefusedError."""
    kernel = body.kernel
    if pair := sides.alone(kernel):
        return _judged(body, *pair)
    cuda = kernel.kernel_type == "cuda" or (
        kernel.kernel_type == "multi_kernel" and not cells.is_python(kernel.source_code)
    )
    language = "cuda" if cuda else "triton"
    text, name = kernel.source_code, kernel.kernel_name
    files: dict[str, str] = {}
    if kernel.contract:
        iterations = body.num_trials if "num_trials" in body.model_fields_set else None
        specified = io_contract.with_spec(text, language, name, kernel.contract, iterations)
        text, name, files = specified.text, specified.kernel, specified.files
    return Request(
        name="kernel.cu" if cuda else "kernel.py",
        text=text,
        files=files,
        kernel=name or None,
        flags=kernel.flags,
        timeout_s=body.timeout,
        grade=body.grade,
        allow=tuple(body.allow),
        wait_limit_s=body.wait_limit_s,
    )


# -- answers ----------------------------------------------------------------------------------------


def answer(
    job: StoredJob, result: Result | None, request: Request, metrics: Metrics = NOTHING
) -> tuple[int, dict[str, Any]]:
    """Return the HTTP status and the body: 200 if the engine did its work, however the kernel did; 500 if it could
    not. Places are those of the text that was handed in.
    """
    if result is None or metrics.waits:
        return 200, {
            "job_id": job.id,
            "status": metrics.waits or job.state,
            "grade": None,
            "grade_why": "the job has not ended",
            "waited_s": job.waited_s,
        }
    finished = result.finished
    failure = finished.failure
    grade = result_text.graded(finished) | {"waited_s": job.waited_s}
    if finished.outcome in ("infrastructure", "cancelled") or (
        finished.outcome == "timed out" and job.started is None
    ):
        why = failure.message if failure else finished.outcome
        return 500, {
            "job_id": job.id, "status": "failed", "error": why, "outcome": finished.outcome,
            "remedy": failure.remedy if failure else "", "retryable": bool(failure and failure.retryable), **grade,
        }  # fmt: skip
    launch = finished.launches[0] if finished.outcome == "ok" and finished.launches else None
    timing = launch.timing if launch else None
    stats = _stats(timing)
    problems = io_contract.as_handed_in(result.problems, request.name, request.text)
    problems = sides.as_handed_in(problems, request.text)
    if failure:
        failure = compiler_messages.failure_of(failure, result.problems, problems, request.name)
    errors = "\n".join(line for problem in problems for line in summary.problem_lines(problem))
    compiled = finished.outcome != "compile error"
    message = f"{failure.message}\n{errors}".strip() if failure else None
    alone = sides.is_alone(request)
    reference = next(
        (point for point in finished.points if point.values.get("version") == "Model" and not alone), None
    )
    reference_launch = reference.launches[0] if reference and reference.launches else None
    return 200, {
        "job_id": job.id,
        "status": "success",  # the job's own status; its kernel may have failed
        "kernel_exec_result": {
            "compiled": compiled,
            "correctness": None if alone and finished.outcome == "ok" else _correctness(finished),
            "runtime": stats["mean"] if stats["mean"] is not None else stats["median"],
            "runtime_stats": stats,
            "warm_runtime_stats": _stats(launch.warm if launch else None),
            "metadata": {
                "gpu_type": finished.device.name if finished.device else None,
                "num_trials": timing.n if timing else None,
                "clock": timing.clock if timing else None,
                "label": timing.label if timing else None,
                "outcome": finished.outcome,
                "verdict": None if alone else _verdict(finished),
                "toolchain": finished.toolchain,
                "device_metrics": metrics.known,
                "device_metrics_why": metrics.why,
            },
            "compilation_error": None if compiled else message,
            "validation_error": message if compiled else None,
        },
        "ref_runtime": _stats(reference_launch.timing if reference_launch else None) if reference else None,
        "warm_ref_runtime": _stats(reference_launch.warm) if reference_launch else None,
        "pod_name": None,
        "pod_ip": None,
        **grade,
    }


def _correctness(finished: c.Finished) -> bool | None:
    """Return whether the answer was right. Null means that nothing was checked."""
    checks = [check for point in finished.points for check in point.checks]
    if finished.outcome == "ok":
        return all(check.passed for check in checks) if checks else None
    return False


def _verdict(finished: c.Finished) -> dict[str, Any] | None:
    versus = next((point.versus for point in finished.points if point.versus), None)
    if versus is None:
        return None
    return {
        "against": versus.against, "verdict": versus.verdict, "ratio": versus.ratio, "low": versus.low, "high": versus.high,
        "pairs": versus.pairs,
    }  # fmt: skip


def _stats(timing: Timing | None) -> dict[str, float | None]:
    """Return the statistics in milliseconds. They are null for few launches, which have no distribution."""
    names = ("mean", "std", "min", "max", "median", "percentile_95", "percentile_99")
    if timing is None:
        return dict.fromkeys(names)
    known = (
        timing.mean, timing.deviation, timing.minimum, timing.maximum, timing.median, timing.p95, timing.p99
    )  # fmt: skip
    return dict(zip(names, map(result_text.milliseconds, known), strict=True))
