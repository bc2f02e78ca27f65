"""Stores a profile under its kernel, with the texts that its lines refer to, and keeps its report as a file."""

from __future__ import annotations

import time
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

from orbit_lsp.profile import bottleneck
from orbit_lsp.runs import result_filing
from orbit_lsp.state import harness, staleness
from orbit_lsp.state.documents import split_lines
from orbit_lsp.state.kernel_ids import KernelId, identify
from orbit_lsp.state.results import Profiled
from orbit_lsp.state.session import Frozen, Session, path_of
from orbit_remote.common import messages as c
from orbit_remote.common import symbols
from orbit_remote.common.requests import Job


def finished(
    session: Session,
    frozen: Frozen,
    job: Job,
    targets: set[KernelId],
    build: c.Built | None,
    event: c.Finished,
    report: Path | None,
    dumps: Path | None = None,
) -> set[str]:
    """File the profiles of a finished job, and return the uris whose views changed.

    A program that was profiled without launching the kernel is a result too: it says so. If a job failed before there
    was a profile, the last one stays.
    """
    if event.outcome != "ok" and not event.profiles:
        return set()
    by_kernel = _by_kernel(session, frozen, job, targets, event)
    digests = {target: digest for target, _, digest in identify(frozen.uri, frozen.scan)}
    files = event.files | (build.files if build else {})
    now = time.time()
    for target, profiles in by_kernel.items():
        before = session.results.profiles.get(target)
        session.results.profiles[target] = Profiled(
            digest=digests.get(target, harness.digest(frozen.text)),
            at=now,
            finished=replace(event, report=""),
            profiles=tuple(sorted(profiles, key=lambda profile: _length(profile, event), reverse=True)),
            inputs=staleness.job_key(job),
            files=build.files if build else {},
            through=job.start.through,
            asked=next(iter(sorted(targets)), None),
            detail=job.detail,
            texts=_texts(session, frozen, files, profiles),
            report=report,
            dumps=dumps,
            before=replace(before, before=None) if before else None,
        )
    return {target.uri for target in by_kernel} | _shown_in(session, by_kernel)


def _by_kernel(
    session: Session, frozen: Frozen, job: Job, targets: set[KernelId], event: c.Finished
) -> dict[KernelId, list[c.Profile]]:
    """Return the profiles by the kernel's place and name. The other kernels that a launch spec launches belong to the
    target. All kernels that a contract's call launches belong to the contract, and a kernel of the file has its own
    besides.
    """
    find = result_filing.kernel_of(session, frozen, job, event.files)
    by_kernel: dict[KernelId, list[c.Profile]] = defaultdict(list)
    for target in targets:
        by_kernel[target] = []
    called = targets if job.start.through == "contract" else set[KernelId]()
    for profile in event.profiles:
        kernel = find(profile.place, profile.name)
        if profile.place is None and job.kernel == symbols.base_name(profile.name) and len(targets) == 1:
            # of overloads the one that was asked for is the one that was profiled
            kernel = next(iter(targets))
        of = {kernel} if kernel and (job.start.through != "spec" or kernel in targets) else set(targets)
        for target in of | called:
            by_kernel[target].append(profile)
    return by_kernel


def _length(profile: c.Profile, event: c.Finished) -> float:
    """Return the length of a launch in nanoseconds. Without counters it is the time of the run's own launches of that
    configuration.
    """
    timed = [
        launch.timing.median
        for launch in event.launches
        if (launch.symbol, launch.grid, launch.block) == (profile.symbol, profile.grid, profile.block)
    ]
    return bottleneck.value(profile, bottleneck.TIME) or max(timed, default=0.0)


def _texts(
    session: Session, frozen: Frozen, files: dict[str, str], profiles: list[c.Profile]
) -> dict[str, tuple[str, ...]]:
    """Return the text of the file itself as it was frozen, and of other files if it is known that exactly that text
    was compiled.
    """
    texts: dict[str, tuple[str, ...]] = {}
    for file in dict.fromkeys(line.file for profile in profiles for line in profile.lines):
        if Path(file) == Path(path_of(frozen.uri)):
            texts[file] = tuple(split_lines(frozen.text))
        elif file in files and (text := result_filing.text_of(session, file, files[file])) is not None:
            texts[file] = tuple(split_lines(text))
    return texts


def _shown_in(session: Session, by_kernel: dict[KernelId, list[c.Profile]]) -> set[str]:
    return {session.uri_for(file) for target in by_kernel for file in session.results.profiles[target].texts}
