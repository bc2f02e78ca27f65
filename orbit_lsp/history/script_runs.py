"""Keeps what a script of the project launched under `orbit-lsp exec` as the run of a driver. A click can use that
driver afterwards.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

from orbit_lsp.closure.tree import below
from orbit_lsp.history.history_tracker import HistoryTracker
from orbit_lsp.runs import result_filing
from orbit_lsp.runs.scheduler import Run
from orbit_lsp.specs import job_builder, launch_plan
from orbit_lsp.state.session import Session, uri_of
from orbit_remote.common import limits, regular_files
from orbit_remote.common import messages as c
from orbit_remote.common.requests import Driver, Job


async def keep(session: Session, history: HistoryTracker, job: Job, finished: c.Finished) -> None:
    """Keep what a job launched that ran a script.

    Nothing is kept if the script had arguments, because then it is another program than a click would run. Nor is a
    kernel kept whose file has changed since, or lies in another folder.
    """
    place = below(job.path, job.directory or "") if job.is_script and not job.arguments else None
    if not place or finished.device is None or not finished.launches:
        return
    texts = await asyncio.to_thread(_texts, job, finished)
    if not texts:
        return
    for path, text in texts.items():
        session.open(uri_of(path), 1, text)
    frozen = session.freeze(uri_of(next(iter(texts))))
    assert frozen
    plan = launch_plan.driven(session, frozen.uri, Driver("script", place))
    launches = tuple(each for each in finished.launches if each.place and each.place.file in texts)
    of_driver = job_builder.make(session, frozen, "run", job.run, plan)
    event = replace(finished, launches=launches, problems=())
    result_filing.finished(session, frozen, of_driver, set(), None, event, plan)
    history.filed(Run(job.run, "run", frozen, of_driver))


def _texts(job: Job, finished: c.Finished) -> dict[str, str]:
    """Return the texts that ran of the files whose kernels were launched. Only files that the project has on the disk
    count.
    """
    if not Path(job.path).is_file():
        return {}
    texts: dict[str, str] = {}
    for path in dict.fromkeys(each.place.file for each in finished.launches if each.place):
        if below(path, job.directory or "") is None or "site-packages" in Path(path).parts:
            continue
        try:
            text = regular_files.text(path, limits.SOURCE)
        except (OSError, ValueError):
            continue
        known = finished.files.get(path)
        if text == job.text if path == job.path else known and known == regular_files.file_hash(path):
            texts[path] = text
    return texts
