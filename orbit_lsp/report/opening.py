"""From a kernel's last result to a file that a browser can open."""

from __future__ import annotations

import logging
from pathlib import Path

from orbit_lsp.report import folder, page, sweep
from orbit_lsp.session import KernelId, Session, path_of

log = logging.getLogger("orbit.report")


class NoReport(Exception):  # noqa: N818 - it is no error of anybody's
    """There is nothing to report on, or nowhere to put it; the text is the sentence to say."""


def write(session: Session, target: KernelId, reports: Path) -> Path:
    """The report of a kernel's last run by its launch spec, written into the folder `reports`."""
    result = session.results.get(target)
    if result is None or result.through != "spec":
        raise NoReport(
            f"orbit: there is no run of {target.key} by its launch spec to report on; run it first"
        )
    html = page.html(sweep.page(result, target.key, path_of(target.uri)))
    try:
        return folder.save(reports, f"{Path(path_of(target.uri)).stem}-{target.key}", html)
    except OSError as error:
        log.warning("the report was not written: %s", error)
        raise NoReport(
            f"orbit: the report cannot be written to {reports}: {error.strerror or error}"
        ) from None
