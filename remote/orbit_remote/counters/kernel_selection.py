"""Chooses the kernels of a job that are profiled."""

from __future__ import annotations

import re
from collections.abc import Sequence

from orbit_remote.common import messages as c
from orbit_remote.common import symbols
from orbit_remote.common.requests import Job, OtherKernel


def chosen(job: Job, resources: Sequence[c.Resources]) -> list[c.Resources]:
    """Return the instances of the requested kernel among all that were compiled, or all if none was named. They are
    found by the place of their code, which distinguishes overloads and namesakes. If no code of the name is at that
    place, as with a macro, they are found by name alone.
    """
    name = job.definition.name if job.definition else job.kernel
    if name is None:
        return list(resources)
    base = re.split(r"::|\.", name)[-1]
    named = [resource for resource in resources if symbols.base_name(resource.symbol) == base]
    return [resources for resources in named if _is_at(job, resources.place)] or named


def other_kernel(job: Job) -> OtherKernel | None:
    """Return the requested kernel, if its language is one that the worker does not compile itself."""
    where = job.definition
    if where is None:
        return None
    named = [kernel for kernel in job.other_kernels if kernel.qualified == where.qualified]
    return next((kernel for kernel in named if kernel.line == where.name_line + 1), None)


def _is_at(job: Job, place: c.Place | None) -> bool:
    where = job.definition
    if where is None or place is None or place.file != job.path:
        return False
    return where.start_line < place.line and (where.end_line is None or place.line <= where.end_line + 1)


def pattern(job: Job) -> str:
    """Return a pattern of mangled names, for symbols that are too many or not known before the run. Triton's symbols
    are the function's name; C++'s have the name behind its length; other languages have their own forms.
    """
    if (other := other_kernel(job)) is not None:
        return symbols.pattern(other)
    name = job.definition.name if job.definition else job.kernel
    if name is None:
        return ""
    base = re.escape(re.split(r"::|\.", name)[-1])
    return f"^{base}$" if job.language == "triton" else f"(^|[^0-9]){len(base)}{base}|^{base}$"


def not_launched(job: Job, launched: Sequence[str]) -> str:
    """Return the remark on a program that did not launch the requested kernel. `launched` are the names of those that
    it launched.
    """
    asked = job.definition.qualified if job.definition else job.kernel or "any kernel"
    names = list(dict.fromkeys(launched))
    instead = f"it launched {', '.join(names[:8])}" if names else "it launched no kernel at all"
    return f"nothing was profiled: the program did not launch {asked}; {instead}"
