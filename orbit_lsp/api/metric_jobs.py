"""The jobs that collect an evaluation's device metrics: they profile what it ran, after it.

Their keys are made from the evaluation's id, so each job is handed in once, whoever asks and after any restart. The
evaluation's own request says what is collected (`sections`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from orbit_lsp.api import device_metrics, sides
from orbit_lsp.profile.sections import SECTIONS
from orbit_lsp.queue import result_text
from orbit_lsp.queue.job_queue import JobQueue
from orbit_lsp.queue.job_store import Result, StoredJob
from orbit_lsp.queue.request import Request, RequestRefusedError
from orbit_lsp.queue.slot_engine import longest
from orbit_remote.common.lazy_dataclass import dataclass

ENABLED = "ENABLE_DEVICE_METRICS"
SECTIONS_OF = "NCU_SECTIONS"
_KEY = "device-metrics:"
_YES, _NO = ("true", "1"), ("", "false", "0")
_ORIGINAL, _CUSTOM = "original_device_metrics", "custom_device_metrics"
_NOT_ASKED = f'not asked for: send "device_metrics": true, or start the server with {ENABLED}=true'
_NOT_RUN = "nothing was profiled, because the kernel did not run to its end"
_REFEREE = (
    "at grade referee the candidate's own host code is not run under a profiler, which would be outside its sandbox; grade author has "
    "device metrics"
)
_REFERENCE = """


class ModelNew(Model):
    def forward(self, *arguments, **named):
        return super().forward(*arguments, **named)
"""


@dataclass(frozen=True, slots=True)
class MetricSettings:
    """What the server's environment says: whether requests that do not say so get device metrics, and from which
    sections.
    """

    enabled: bool = False
    sections: tuple[str, ...] = device_metrics.SECTIONS

    def of(self, request: Request, wanted: bool | None) -> Request:
        """Return the evaluation with its sections if its device metrics are wanted. None: as the server says."""
        asked = self.enabled if wanted is None else wanted
        return replace(request, sections=self.sections) if asked else request


BY_REQUEST = MetricSettings()


def settings(environment: Mapping[str, str]) -> MetricSettings:
    """Raises RequestRefusedError."""
    enabled = environment.get(ENABLED, "").strip().lower()
    if enabled not in (*_YES, *_NO):
        raise RequestRefusedError(f"{ENABLED} is {enabled!r:.40}; write true or false")
    words = [word.strip() for word in environment.get(SECTIONS_OF, "").split(",")]
    named = tuple(dict.fromkeys(word for word in words if word))
    if unknown := [name for name in named if name not in SECTIONS]:
        raise RequestRefusedError(
            f"{SECTIONS_OF} names {unknown[0]!r:.60}, which is not a section of Nsight Compute; use some of {', '.join(SECTIONS)}"
        )
    return MetricSettings(enabled in _YES, named or device_metrics.SECTIONS)


@dataclass(frozen=True, slots=True)
class Metrics:
    """The answer's `device_metrics` and `device_metrics_why`. The second says why the first, or a part of it, is
    null. `waits` is the state of a profile that has not ended.
    """

    known: dict[str, Any] | None = None
    why: str | None = None
    waits: str = ""


NOTHING = Metrics(why=_NOT_RUN)


@dataclass(slots=True)
class _Profile:
    """The profile of one source: its job, and its groups or why there are none."""

    job: StoredJob | None = None
    groups: dict[str, Any] | None = None
    why: str = ""


async def collected(
    queue: JobQueue, job: StoredJob, request: Request, result: Result, *, wait: bool
) -> Metrics:
    """Return the metrics of an evaluation that is over. With `wait`, wait until the profiles are over too."""
    wanted, why = _requests(job, request, result)
    if why:
        return Metrics(why=why)
    profiles = {name: await _handed_in(queue, each) for name, each in wanted.items()}
    for profile in profiles.values():
        if profile.job and not profile.job.over and wait:
            profile.job = await queue.wait(profile.job.id)
        if profile.job and not profile.job.over:
            return Metrics(waits=profile.job.state)
    for profile in profiles.values():
        if not profile.why:
            await asyncio.to_thread(_read, queue, profile)
    known = {_ORIGINAL: None, _CUSTOM: None} | {name: profile.groups for name, profile in profiles.items()}
    reasons = {name: profile.why for name, profile in profiles.items()}
    if len(set(reasons.values())) == 1:
        why = next(iter(reasons.values()))
    else:
        why = "; ".join(f"{name}: {text}" for name, text in reasons.items() if text)
    return Metrics(known if any(known.values()) else None, why or None)


def _requests(job: StoredJob, request: Request, result: Result) -> tuple[dict[str, Request], str]:
    """Return the profiles of an evaluation by the field that they fill, or why nothing is profiled."""
    finished = result.finished
    if not request.sections or request.action != "run":
        return {}, _NOT_ASKED
    if finished.outcome not in ("ok", "wrong answer"):
        return {}, _NOT_RUN
    if request.grade == "referee" and not _without_host_code(request, result):
        return {}, _REFEREE
    # on the same GPU, which the answer names
    own = replace(request, action="profile", key=f"{_KEY}{job.id}", gpu=job.slot)
    if "candidate.py" not in request.files or sides.is_alone(request):
        return {_ORIGINAL: own}, ""
    text = as_candidate(request.files["candidate.py"])
    reference = replace(own, text=text, files={}, key=f"{own.key}:reference")
    return {_ORIGINAL: reference, _CUSTOM: own}, ""


def as_candidate(reference: str) -> str:
    """Return the text of a reference in the candidate's place, because a profile is always of `ModelNew`."""
    return reference + _REFERENCE


def _without_host_code(request: Request, result: Result) -> bool:
    """Say whether a request is CUDA with a launch spec. Then only its device code is run, also under a profiler."""
    judged = result.finished.judged
    return request.name.endswith(".cu") and judged is not None and judged.grade == "referee"


async def _handed_in(queue: JobQueue, request: Request) -> _Profile:
    """Hand in a profile's job, or find it from before: one that ended badly is not run again at each look."""
    known = await asyncio.to_thread(queue.store.keyed, queue.door, request.key)
    if known and await asyncio.to_thread(queue.store.request, known.id) == request:
        return _Profile(job=known)
    try:
        return _Profile(job=await queue.submit(request))
    except RequestRefusedError as why:
        return _Profile(why=str(why))


def _read(queue: JobQueue, profile: _Profile) -> None:
    result = result_text.result_of(queue.store, profile.job) if profile.job else None
    if result is None:
        profile.why = "the record of the profile was removed, or cannot be read"
        return
    profile.groups, profile.why = of_result(result)


def of_result(result: Result) -> tuple[dict[str, Any] | None, str]:
    """Return the groups of the longest kernel of a profile, or why the profile has no counters."""
    finished = result.finished
    counted = [profile for profile in finished.profiles if profile.tier == "counters"]
    if profile := longest(counted):
        capability = finished.device.capability if finished.device else None
        return device_metrics.of(profile, capability or ""), ""
    if refused := next((profile.why for profile in finished.profiles if profile.why), ""):
        return None, refused
    if finished.failure:
        return None, finished.failure.message
    return None, finished.remarks[-1] if finished.remarks else "Nsight Compute profiled no launch"
