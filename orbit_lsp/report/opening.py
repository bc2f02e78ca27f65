"""Writes a kernel's last result to a file that a browser can open."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

from orbit_lsp.history.history_store import HistoryEntry
from orbit_lsp.profile import report_folder
from orbit_lsp.report import page, profile_report, sweep_report
from orbit_lsp.report.page import Page
from orbit_lsp.state.kernel_ids import KernelId
from orbit_lsp.state.session import Session, path_of

log = logging.getLogger("orbit.report")


class NoReportError(Exception):
    """There is nothing to report on, or no place to write it. The text is the sentence to show."""


def write(
    session: Session,
    target: KernelId,
    reports: Path,
    what: str | None = None,
    past: Sequence[HistoryEntry] = (),
) -> Path:
    """Write the report of a kernel's last `run` or last `profile` into the folder `reports`. If `what` does not say
    which, take the newer. `past` are its runs, for a plot. Raises NoReportError.
    """
    path = path_of(target.uri)
    return put(_page(session, target, path, what, past), reports, f"{Path(path).stem}-{target.key}")


def _page(
    session: Session, target: KernelId, path: str, what: str | None, past: Sequence[HistoryEntry]
) -> Page:
    result, profiled = session.results.runs.get(target), session.results.profiles.get(target)
    if result and result.through == "contract":
        result = None
    if profiled and not profiled.profiles:
        profiled = None
    if profiled and what != "run" and (result is None or what == "profile" or profiled.at >= result.at):
        return profile_report.page(profiled, target.key, path, past)
    if result and what != "profile":
        return sweep_report.page(result, target.key, path)
    if what == "profile":
        raise NoReportError(f"orbit: there is no profile of {target.key} to report on; profile it first")
    raise NoReportError(f"orbit: there is no run of {target.key} to report on; run it first")


def put(made: Page, reports: Path, name: str) -> Path:
    """Write a report's page. Raises NoReportError if the folder cannot be written."""
    try:
        return report_folder.save(reports, name, page.html(made))
    except OSError as error:
        log.warning("the report was not written: %s", error)
        raise NoReportError(
            f"orbit: the report cannot be written to {reports}: {error.strerror or error}"
        ) from None


def write_to(output: str | None, made: Page, reports: Path, name: str) -> Path:
    """Write the page to the file `output`, else under a new name in the folder `reports`. Raises NoReportError."""
    if output is None:
        return put(made, reports, name)
    path = Path(output)
    try:
        path.write_text(page.html(made), encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        raise NoReportError(f"orbit: {output} cannot be written: {error.strerror or error}") from None
    return path
