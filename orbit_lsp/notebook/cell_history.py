"""Keeps what kernels in a notebook's cells did in the history of files: under the notebook's path, with the cell's
text.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

from orbit_lsp.history.history_store import Action, HistoryEntry, HistoryStore, StoredResult
from orbit_lsp.runs import result_filing
from orbit_lsp.specs import launch_plan
from orbit_lsp.state.kernel_ids import KernelId
from orbit_lsp.state.results import renamed
from orbit_lsp.state.session import Session, uri_of
from orbit_lsp.state.user_folders import state_folder
from orbit_remote.common import messages as c

log = logging.getLogger("orbit.history")

UNNAMED = "unnamed.ipynb"
"""The notebook in a kernel's folder whose front end does not say which it is, as `jupyter console`."""


def notebook_path(folder: Path, told: str = "") -> str:
    """Return the path of the notebook. JupyterLab and Jupyter's server name it in a variable of the kernel's process,
    VS Code in one of its cells (`told`).
    """
    name = told or os.environ.get("JPY_SESSION_NAME", "")
    if not name.lower().endswith(".ipynb") or "\0" in name:
        name = UNNAMED
    path = folder / name
    # the name that Jupyter's server gives may begin at the folder that it serves
    return str(path if path.exists() else folder / path.name)


class CellHistory:
    def __init__(self, folder: Path) -> None:
        """Make the history of a kernel that runs in `folder`."""
        self._folder = folder
        self._store = HistoryStore(lambda: state_folder() / "history.sqlite")

    async def keep(self, action: Action, finished: c.Finished, texts: dict[str, str], told: str) -> None:
        """Keep the results of cells. `texts` are the cells whose kernels ran, by the names that places in `finished`
        have for them. A failure to keep them is a warning in the log of the kernel's process.
        """
        path = notebook_path(self._folder, told)

        def work() -> None:
            for name, text in texts.items():
                for entry in entries(path, action, renamed(finished, {name: path}), text):
                    self._store.keep(entry, text)
            for complaint in self._store.complaints():
                log.warning("%s", complaint)

        await asyncio.to_thread(work)


def entries(path: str, action: Action, finished: c.Finished, text: str) -> list[HistoryEntry]:
    """Return an entry for each kernel of a cell with this text that was launched or profiled."""
    session, uri = Session(), uri_of(path)
    session.open_cell(uri, path, 0, text)
    frozen = session.freeze(uri)
    assert frozen
    find = result_filing.kernel_of(session, frozen)
    launches: dict[KernelId, list[c.Launches]] = defaultdict(list)
    profiles: dict[KernelId, list[c.Profile]] = defaultdict(list)
    for each in finished.launches:
        if target := find(each.place, each.name):
            launches[target].append(each)
    for each in finished.profiles:
        if target := find(each.place, each.name):
            profiles[target].append(each)
    kept: list[HistoryEntry] = []
    for target, kernel, digest in session.kernels(uri):
        mine, counted = tuple(launches[target]), tuple(profiles[target])
        if not (counted if action == "profile" else mine):
            continue
        plan = launch_plan.of(session, uri, kernel)
        stored = StoredResult(
            replace(finished, profiles=counted), mine, {}, plan.through,
            target.key if plan.through == "spec" else None, plan.lines, plan.elements,
        )  # fmt: skip
        kept.append(HistoryEntry(time.time(), path, target.key, action, digest, "", stored))
    return kept
