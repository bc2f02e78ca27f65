"""Stores the outcome of a memory check under its kernel. Its problems are filed like all others."""

from __future__ import annotations

import time

from orbit_lsp.state import staleness
from orbit_lsp.state.kernel_ids import KernelId, identify
from orbit_lsp.state.results import MemoryCheck
from orbit_lsp.state.session import Frozen, Session
from orbit_remote.common import messages as c
from orbit_remote.common.requests import Job


def finished(
    session: Session,
    frozen: Frozen,
    job: Job,
    targets: set[KernelId],
    build: c.Built | None,
    event: c.Finished,
) -> set[str]:
    """Store a finished check, and return the uris whose views changed. A check that did not finish changes nothing:
    the previous one stays.
    """
    faulty = any(problem.severity == "error" for problem in event.problems)
    if event.outcome != "ok" and not (event.outcome == "runtime error" and faulty):
        return set()
    digests = {target: digest for target, _, digest in identify(frozen.uri, frozen.scan)}
    known = [target for target in targets if target in digests]
    for target in known:
        session.results.memory_checks[target] = MemoryCheck(
            digest=digests[target],
            at=time.time(),
            finished=event,
            tools=job.tools,
            inputs=staleness.job_key(job),
            files=event.files | (build.files if build else {}),
            through=job.start.through,
            asked=next(iter(sorted(targets))),
        )
    return {target.uri for target in known}
