"""Turns a dropped file into a request, and a job's result into the fields of its result file.

The header is KRAIT's: comment lines `EXECUTION REQUEST` or `COMPILATION REQUEST`, `Hardware:`, `Backend:`,
`Timestamp:` and `Type: execute` or `compile_only`. `profile`, `Grade: author` or `referee` and `Allow: libraries,
precision` are ours. Without a header a file is run, or compiled if its name begins with `compile_`.
"""

from __future__ import annotations

import re
import time
from typing import Any

from orbit_lsp import kernels
from orbit_lsp.kernels.cuda import kernel_warnings
from orbit_lsp.profile import bottleneck
from orbit_lsp.queue import request as requests
from orbit_lsp.queue import result_text
from orbit_lsp.queue.job_queue import Followed
from orbit_lsp.queue.job_store import JobStore, Result, StoredJob
from orbit_lsp.queue.request import GRADES, POLICIES, Action, Request, RequestRefusedError
from orbit_lsp.runs import summary
from orbit_lsp.views import sweep_tables
from orbit_remote.common import messages as c
from orbit_remote.common.lazy_dataclass import dataclass

_TYPES: dict[str, Action] = {"execute": "run", "compile_only": "compile", "profile": "profile"}
_MOST_CHECKS = 100
_FIELD = re.compile(
    r"[ \t]*(?://|#)[ \t]*(Hardware|Backend|Timestamp|Type|Grade|Allow)[ \t]*:[ \t]*(.*)", re.IGNORECASE
)
_TITLE = re.compile(r"[ \t]*(?://|#)[ \t]*(EXECUTION|COMPILATION) REQUEST[ \t]*$")


@dataclass(frozen=True, slots=True)
class Header:
    """The fields of a file's first lines, by lower-case names; empty without a header."""

    fields: dict[str, str]

    @property
    def hardware(self) -> str:
        return self.fields.get("hardware", "")


def request(name: str, text: str, timeout_s: float | None = None) -> tuple[Request, Header]:
    """Raises RequestRefusedError."""
    header, lines = _header(text)
    kind = header.fields.get("type", "").lower()
    if kind and kind not in _TYPES:
        raise RequestRefusedError(f"Type is {kind!r:.40}; use one of {', '.join(_TYPES)}")
    grade = header.fields.get("grade", "").lower() or "author"
    if grade not in GRADES:
        raise RequestRefusedError(f"Grade is {grade!r:.40}; use one of {', '.join(GRADES)}")
    named: Action = "compile" if name.startswith("compile_") else "run"
    if header.fields:
        text = _without_its_indent(text, lines)
    action = _TYPES.get(kind, named)
    allow = [word for word in re.split(r"[\s,]+", header.fields.get("allow", "").lower()) if word]
    if unknown := [word for word in allow if word not in POLICIES]:
        raise RequestRefusedError(f"Allow has {unknown[0]!r:.40}; use {' or '.join(POLICIES)}")
    asked = {
        "action": action, "name": name, "text": text, "grade": grade, "allow": allow, "timeout_s": timeout_s,
    }  # fmt: skip
    return requests.decoded(asked), header


def _header(text: str) -> tuple[Header, int]:
    """Return the header and how many lines it has."""
    fields: dict[str, str] = {}
    count = 0
    for number, line in enumerate(text.split("\n", 12)[:12], 1):
        if title := _TITLE.match(line.rstrip("\r")):
            fields.setdefault("type", "compile_only" if title[1] == "COMPILATION" else "execute")
        elif field := _FIELD.match(line.rstrip("\r")):
            fields[field[1].lower()] = field[2].strip()
        elif line.strip():
            break
        count = number
    return Header(fields), count


def _without_its_indent(text: str, header: int) -> str:
    """Remove the indent of KRAIT's own template from the header and the first line of the code. The four spaces are
    no valid Python.
    """
    lines = text.split("\n")
    if (
        header < len(lines)
        and header > 1
        and lines[1].startswith("    #")
        and lines[header].startswith("    ")
    ):
        lines[header] = lines[header][4:]
    return "\n".join(lines)


def answer(store: JobStore, job: StoredJob, header: Header) -> dict[str, Any]:
    """Return a job that is over in a drop folder's field names. Values are measured, or null. `orbit` is the whole
    record.
    """
    result = result_text.result_of(store, job)
    fields = _fields(job.outcome == "ok", job.summary, result, header)
    fields["warnings"] += static_checks(job.file, store.request(job.id).text)
    fields["orbit"] = result_text.as_json(store, Followed(job))
    return fields


def static_checks(name: str, text: str) -> list[str]:
    """Return what the text of a `.cu` file shows by itself: `k.cu:7: warning: … [static check]`."""
    if kernels.language_of(name) != "cuda":
        return []
    known = kernel_warnings.warnings(text, kernels.tracker("cuda").scan(text))
    shown = [
        f"{name}:{each.line + 1}: warning: {each.message} [static check]" for each in known[:_MOST_CHECKS]
    ]
    return shown + (
        [f"{len(known) - _MOST_CHECKS} more static checks warn"] if len(known) > _MOST_CHECKS else []
    )


def refused(why: str, header: Header) -> dict[str, Any]:
    """Return the answer to a file that is no request."""
    return _fields(False, why, None, header) | {"error": why, "orbit": None}


def _fields(success: bool, message: str, result: Result | None, header: Header) -> dict[str, Any]:
    """Return the fields of an answer. Times are milliseconds, rates GB/s, sizes bytes. `gpu_utilization` is the
    median in per cent; `bound_type` is a profile's verdict.
    """
    finished = result.finished if result else None
    launches = finished.launches if finished else ()
    total_ns = sweep_tables.rated_ns(launches)
    point = sweep_tables.shown(finished.points) if finished else None
    use = finished.telemetry.utilization if finished and finished.telemetry else None
    verdicts = [bottleneck.verdict(profile) for profile in finished.profiles] if finished else []
    moved, flops = (point.bytes, point.flops) if point else (None, None)
    hardware = finished.device.name if finished and finished.device else None
    fields: dict[str, Any] = {
        "success": success,
        "message": message,
        "error": finished.failure.message if finished and finished.failure else None,
        "warnings": _warnings(result, header, hardware),
        "execution_time": total_ns / 1e6 if total_ns is not None else None,
        "gpu_utilization": use[1] if use else None,
        "memory_usage": finished.telemetry.memory_used if finished and finished.telemetry else None,
        "throughput": moved / total_ns if moved and total_ns else None,
        "total_flops": flops,
        "arithmetic_intensity": flops / moved if flops and moved else None,
        "bound_type": next((verdict.kind for verdict in verdicts if verdict), None),
        "vectorization": None,
        "optimizations": None,
        "performance_score": None,
        "corrected_code": None,
        "provider": "orbit-lsp",
        "timestamp": header.fields.get("timestamp") or int(time.time()),
        "hardware": hardware,
        "kernel_name": launches[0].name if launches else None,
        "kernel_parameters": _parameters(finished) if finished else None,
    }
    return fields


def _warnings(result: Result | None, header: Header, hardware: str | None) -> list[str]:
    problems = result.problems if result else ()
    warnings = [
        summary.problem_lines(problem)[0] for problem in problems if problem.severity != "information"
    ]
    if (
        header.hardware
        and hardware
        and not set(header.hardware.lower().split()) <= set(hardware.lower().split())
    ):
        warnings.append(f"{header.hardware} was asked for; this ran on {hardware}")
    return warnings


def _parameters(finished: c.Finished) -> dict[str, Any] | None:
    """Return the launch that `kernel_name` names, and what the compiler says of every kernel. Return null if neither
    is known.
    """
    values: dict[str, Any] = {}
    if finished.launches:
        first = finished.launches[0]
        values = {"grid": list(first.grid), "block": list(first.block), "registers": first.registers}
    if finished.resources:
        values["compiled"] = {
            made.name: {
                "registers": made.registers,
                "static_shared_bytes": made.static_shared,
                "spill_store_bytes": made.spill_stores,
                "spill_load_bytes": made.spill_loads,
                "architecture": made.architecture,
            }
            for made in finished.resources
        }
    return values or None
