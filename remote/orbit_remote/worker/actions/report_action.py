"""The action `report`: reads a report of Nsight Compute that somebody else made as the profiles of its launches."""

from __future__ import annotations

import asyncio
import re
from dataclasses import replace
from pathlib import Path

from orbit_remote.common import limits, regular_files, symbols
from orbit_remote.common import messages as c
from orbit_remote.common.requests import Job
from orbit_remote.ncu import ncu_options
from orbit_remote.ncu.report_reader import ReportRequest
from orbit_remote.worker.context import WorkerContext

_BEGIN = b"NVR\0"
_VERSION = re.compile(rb"(20\d\d\.\d+\.\d+)\.\d+ \(build \d+\)")


async def read(job: Job, context: WorkerContext) -> c.Finished:
    """Read a report. `Finished.files` has the content hashes of the files that the lines name, from the texts in the
    report; "" if it has no text.
    """
    name = Path(job.path).name
    try:
        content = await asyncio.to_thread(regular_files.read, job.path, limits.IMPORTED)
    except OSError as error:
        return _refused(job, f"{name} cannot be read: {error.strerror}", "")
    if not content.startswith(_BEGIN):
        remedy = "give it a .ncu-rep of `ncu --export`, or a CSV page of `ncu --csv`"
        return _refused(job, f"{name} is no report of Nsight Compute", remedy)
    tool = await asyncio.to_thread(ncu_options.find)
    request = ReportRequest(job.path, "", most=limits.IMPORTED_LAUNCHES.most, tool=_version(content))
    answer = await context.reports.read(tool.readers if tool else (), request)
    if answer.problem:
        remedy = "to read it, install the `ncu-report` of the ncu that wrote it"
        return _refused(job, f"{name}: {answer.problem}", "" if "pip install" in answer.problem else remedy)
    left_out = f"{answer.left_out} launches beyond the first {request.most} are left out"
    return c.ok(
        job.run,
        profiles=tuple(
            replace(profile, name=symbols.short_name(profile.symbol)) for profile in answer.profiles
        ),
        device=c.Device(answer.device) if answer.device else None,
        toolchain={"ncu": request.tool} if request.tool else {},
        files=answer.sources,
        remarks=(left_out,) if answer.left_out else (),
    )


def _version(content: bytes) -> str:
    """Return the version of the ncu that wrote the report. Return "" if it names none or several."""
    versions = set(_VERSION.findall(content))
    return versions.pop().decode() if len(versions) == 1 else ""


def _refused(job: Job, message: str, remedy: str) -> c.Finished:
    return c.failed(job.run, c.Failure("infrastructure", message, remedy))
