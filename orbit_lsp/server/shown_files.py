"""Shows files to the author: a report in a browser, a text in the editor. If neither can show it, a message has the
path.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from lsprotocol import types as lsp

from orbit_lsp.profile import report_folder
from orbit_lsp.state import user_folders
from orbit_lsp.state.kernel_ids import KernelId

if TYPE_CHECKING:
    from orbit_lsp.runs.scheduler import Run
    from orbit_lsp.server.language_server import OrbitServer


async def report(ls: OrbitServer, path: Path) -> None:
    """Show a page in the editor's own window for it, else in a browser. An editor that hands it to a browser cannot
    know whether one opened, so a message always has the path.
    """
    shows = ls.session.client.shows_reports
    if (
        (shows or browser_at_hand(os.environ, sys.platform))
        and await _shown(ls, path, external=True)
        and shows
    ):
        return
    ls.watcher.message(f"orbit: the report is {path}")


async def result(ls: OrbitServer, target: KernelId, what: str | None = None) -> None:
    """Show the report of a kernel's last `run` or `profile`; of the newer if `what` does not say which."""
    from orbit_lsp.report import opening  # pages cost 10 ms of a start, and few sessions ask for one

    try:
        past = await ls.versions.entries(ls.session.path(target.uri), target.key)
        path = opening.write(ls.session, target, user_folders.report_folder(), what, past)
    except opening.NoReportError as none:
        ls.watcher.message(str(none), lsp.MessageType.Warning)
        return
    await report(ls, path)


def wanted(ls: OrbitServer, run: Run) -> None:
    """Open the report of a click's result if the author wants that."""
    when = ls.session.setup.settings.report.open
    clicked = run.finished and run.finished.outcome == "ok" and not (run.live or run.named or run.of_several)
    if clicked and when != "never" and run.action in ("profile", when):
        for target in sorted(run.targets)[:1]:
            ls.spawn(result(ls, target, run.action), "report")


async def text(
    ls: OrbitServer, path: Path, what: str, line: int | None = None, *, beside: bool = False
) -> None:
    """Show a text in the editor, at `line` from 0. `what` names it if no file can be opened. `beside` leaves the
    cursor where it is: VS Code and Neovim then split the window.
    """
    if not await _shown(ls, path, external=False, line=line, focus=not beside):
        ls.watcher.message(f"orbit: {what} is {path}")


async def written(ls: OrbitServer, name: str, suffix: str, content: str, what: str) -> None:
    """Write a new file, kept with the reports, and show it."""
    try:
        folder = user_folders.report_folder()
        path = await asyncio.to_thread(report_folder.save, folder, name, content, suffix)
    except OSError as error:
        ls.watcher.message(f"orbit: {what} cannot be written: {error.strerror}", lsp.MessageType.Error)
        return
    await text(ls, path, what)


async def _shown(
    ls: OrbitServer, path: Path, *, external: bool, line: int | None = None, focus: bool = True
) -> bool:
    """Return whether the editor says that it has opened the file."""
    window = ls.client_capabilities.window
    if not (window and window.show_document and window.show_document.support):
        return False
    place = None if line is None else lsp.Position(line, 0)
    params = lsp.ShowDocumentParams(
        path.as_uri(),
        external=external,
        take_focus=None if external else focus,
        selection=lsp.Range(place, place) if place else None,
    )
    return (await ls.window_show_document_async(params)).success


def browser_at_hand(environment: Mapping[str, str], platform: str) -> bool:
    """Say whether a browser can open a window where this process runs. Over SSH it would be a program in the
    terminal, above the editor's text, or none.
    """
    if platform in ("darwin", "win32"):
        return "SSH_CONNECTION" not in environment
    return any(environment.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "WSL_DISTRO_NAME", "BROWSER"))
