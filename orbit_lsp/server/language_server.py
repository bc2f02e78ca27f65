"""The server with everything it holds: session, runs, what watches them. `server` and `commands` handle its messages."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from lsprotocol import types as lsp
from pygls.lsp.server import LanguageServer

from orbit_lsp import __version__
from orbit_lsp.history.ab_compare import AbCompare
from orbit_lsp.history.history_tracker import HistoryTracker
from orbit_lsp.runs.live import Live
from orbit_lsp.runs.multi_gpu import MultiGpu
from orbit_lsp.runs.run_environment import Environment
from orbit_lsp.runs.scheduler import Scheduler
from orbit_lsp.server.notifier import Notifier
from orbit_lsp.server.protocol import OrbitProtocol
from orbit_lsp.specs.spec_cache import Watch
from orbit_lsp.state.kernel_ids import KernelId
from orbit_lsp.state.session import Session


class OrbitServer(LanguageServer):
    def __init__(self) -> None:
        # pygls' own arguments are not typed
        cast("Any", super()).__init__("orbit-lsp", __version__, protocol_cls=OrbitProtocol)
        self.session = Session()
        self.looked_at: KernelId | None = None
        """The kernel under the cursor, for commands that an editor sends without arguments."""
        self.watcher = Notifier(self, self.session)
        show, changed = self.watcher.message, self.watcher.changed
        self.environment = Environment(self.session, show, changed, self.watcher.ask)
        self.versions = HistoryTracker(self.session, self.environment.history_file, show, changed)
        self.runs = Scheduler(
            self.session, self.environment.runner_of, self.watcher, self.environment.profile_folder
        )
        self.runs.when_ended(self.versions.filed)
        self.multi_gpu = MultiGpu(self.session, self.environment, self.runs, self.watcher)
        self.ab_compare = AbCompare(self.session, self.environment, self.versions, self.runs, self.watcher)
        self.live = Live(self.session, self.runs, show, changed, self.compile_quietly)
        self.specs = Watch(self.session, self.watcher.changed)
        self.tasks: set[asyncio.Task[None]] = set()

    def spawn(self, work: Any, name: str) -> asyncio.Task[None]:
        """A task of our own, kept until it ends."""
        task: asyncio.Task[None] = asyncio.create_task(work, name=name)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return task

    def compile_quietly(self, uri: str) -> None:
        """Compile a file that was opened or saved, where it can be and the settings say so."""
        file = self.session.files.get(uri)
        if file is None or file.scan.language != "cuda":
            return
        self.spawn(self._compile_quietly(uri), "compile")

    async def _compile_quietly(self, uri: str) -> None:
        for refused in await self.environment.find_flags(uri):
            self.watcher.once(f"nvcc flag {refused}", lsp.MessageType.Warning)
        if uri in self.session.files and self.environment.settings.compile_on_save:
            self.runs.start("compile", uri)

    @property
    def takes_versions(self) -> bool:
        """Whether the client refuses an edit of a text that it has changed since."""
        workspace = self.client_capabilities.workspace
        edits = workspace.workspace_edit if workspace else None
        return bool(edits and edits.document_changes)
