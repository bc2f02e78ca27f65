"""The server object: session, runs, and their watchers. `handlers` and `commands` handle its messages.

Each part is imported and made on first use, so that `initialize` is answered before most of the server is loaded.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

from lsprotocol import types as lsp
from pygls.exceptions import JsonRpcException
from pygls.io_ import StdoutWriter, run_async
from pygls.lsp.server import LanguageServer

from orbit_lsp import __version__
from orbit_lsp.server.frames import FrameReader, Frames
from orbit_lsp.server.protocol import OrbitProtocol, converter
from orbit_lsp.state import daemon_thread

if TYPE_CHECKING:
    from orbit_lsp.engine.engine import Engine
    from orbit_lsp.features import Features
    from orbit_lsp.history.ab_compare import AbCompare
    from orbit_lsp.history.history_tracker import HistoryTracker
    from orbit_lsp.places.places import Places
    from orbit_lsp.runs.multi_gpu import MultiGpu
    from orbit_lsp.runs.scheduler import Scheduler
    from orbit_lsp.server.notifier import Notifier
    from orbit_lsp.state.kernel_ids import KernelId
    from orbit_lsp.state.session import ClientAbilities, Session
    from orbit_remote.common.requests import Level


_LOOKS_S = 0.2
"""How long lenses wait for the disk that may have a token for Modal."""
_WATCHES_S = 5.0
log = logging.getLogger("orbit.server")


class OrbitServer(LanguageServer):
    def __init__(self) -> None:
        # pygls' own arguments are not typed
        cells = lsp.NotebookDocumentFilterWithCells([lsp.NotebookCellLanguage("python")], "jupyter-notebook")
        cast("Any", super()).__init__(
            "orbit-lsp",
            __version__,
            notebook_document_sync=lsp.NotebookDocumentSyncOptions([cells]),
            protocol_cls=OrbitProtocol,
            converter_factory=converter,
        )
        self.asked: lsp.InitializeParams
        """What the client sent with `initialize`; nothing below is made before that."""
        self.looked_at: KernelId | None = None
        """The kernel under the cursor, for commands that an editor sends without arguments."""
        self.to_show: dict[tuple[KernelId, Level], int | None] = {}
        """Compiler output that is opened once it is made."""
        self.follows_listings = False
        self.tasks: set[asyncio.Task[None]] = set()
        self._looks_for_account: asyncio.Task[None] | None = None
        self.rents_unsaid = False
        """A token for Modal has come since lenses were asked for: who clicks does not know yet that runs rent a GPU."""
        self.history_items: dict[str, tuple[int, list[dict[str, Any]]]] = {}
        """By file: after how many ended runs, of any program, its part of `orbit/panel` was read, and that."""

    @cached_property
    def session(self) -> Session:
        from orbit_lsp.state.placement import RunSetup
        from orbit_lsp.state.session import Session, path_of

        params = self.asked
        roots = [folder.uri for folder in params.workspace_folders or []] or [params.root_uri]
        client = abilities_of(params, self.workspace.position_encoding)
        return Session(setup=RunSetup(folders=[path_of(root) for root in roots if root]), client=client)

    @cached_property
    def watcher(self) -> Notifier:
        from orbit_lsp.server.notifier import Notifier

        return Notifier(self, self.session, self._settled)

    @cached_property
    def engine(self) -> Engine:
        from orbit_lsp.engine.engine import Engine

        engine = Engine(self.session, self.watcher, self.watcher.message, ask=self.watcher.ask)
        engine.places.settings.options = self.asked.initialization_options
        engine.file_runs()
        return engine

    @property
    def places(self) -> Places:
        return self.engine.places

    @property
    def runs(self) -> Scheduler:
        return self.engine.runs

    @property
    def versions(self) -> HistoryTracker:
        return self.engine.history

    @cached_property
    def multi_gpu(self) -> MultiGpu:
        from orbit_lsp.runs.multi_gpu import MultiGpu

        return MultiGpu(self.session, self.places, self.runs, self.watcher)

    @cached_property
    def ab_compare(self) -> AbCompare:
        from orbit_lsp.history.ab_compare import AbCompare

        return AbCompare(self.session, self.places, self.versions, self.runs, self.watcher)

    @cached_property
    def features(self) -> Features:
        from orbit_lsp.features import FeatureContext, Features

        return Features(
            FeatureContext(
                self.session,
                self.places,
                self.runs,
                message=self.watcher.message,
                warn_once=lambda text: self.watcher.once(text, lsp.MessageType.Warning),
                changed=self.watcher.changed,
                compiles=self.watcher.compiles,
                compiled=self.watcher.compiled,
                client_watches=self.client_watches,
            )
        )

    def start_frames(self, frames: Frames) -> None:
        """Answer the messages of a client on standard output until it leaves."""
        # as `start_io` of pygls 2.1.1, with a reader of our own
        self._stop_event = threading.Event()
        self.protocol.set_writer(StdoutWriter(sys.stdout.buffer))
        reader = FrameReader(frames, self.thread_pool)
        try:
            asyncio.run(self._answer(reader, self._stop_event))
        except BrokenPipeError:
            log.error("the client is gone")
        except (KeyboardInterrupt, SystemExit):
            pass
        finally:
            self.shutdown()

    async def _answer(self, reader: FrameReader, stop: threading.Event) -> None:
        asyncio.get_running_loop().set_default_executor(daemon_thread.Threads())
        try:
            await run_async(stop, reader, self.protocol, error_handler=self.report_server_error)
        finally:
            await end_tasks()

    def spawn(self, work: Any, name: str) -> asyncio.Task[None]:
        """Start a task of our own, and keep it until it ends."""
        task: asyncio.Task[None] = asyncio.create_task(work, name=name)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return task

    def asked_about(self, params: Any) -> str | None:
        """Return the open file that a request is about: the one it names, else the one that was last used."""
        document = getattr(params, "text_document", None)
        uri = getattr(document, "uri", None)
        if isinstance(params, lsp.ExecuteCommandParams):
            first: Any = next(iter(params.arguments or ()), None)
            uri = cast("dict[str, Any]", first).get("uri") if isinstance(first, dict) else None
            if uri is None and self.looked_at:
                uri = self.looked_at.uri
        return uri if isinstance(uri, str) else None

    def _settled(self, uri: str) -> bool:
        """Return whether diagnostics of a file can be made now. If not, prepare the file, and then make its
        diagnostics anew.
        """
        if settled := self.is_settled(uri):
            return settled
        self.spawn(self._settle_and_show(uri), "settle")
        return False

    async def _settle_and_show(self, uri: str) -> None:
        await self.settle(uri)
        self.watcher.changed({uri})

    def is_settled(self, uri: str) -> bool:
        """Return whether views of this file can be made at once."""
        from orbit_lsp.specs import spec_cache

        return spec_cache.is_settled(self.session, uri)

    async def settle(self, uri: str) -> None:
        """Scan a file and check its launch specs outside of the event loop."""
        from orbit_lsp.specs import spec_cache

        await spec_cache.settle(self.session, uri)

    def look_for_account(self) -> None:
        """Look for a token for Modal, before a command."""
        from orbit_lsp.runners.modal import account

        self._take_account(account.stamp())

    async def look_aside_for_account(self) -> None:
        """Look for a token beside the event loop, which uses no disk while somebody types. The look ends after a
        while even if the disk does not answer.
        """
        if self._looks_for_account is None or self._looks_for_account.done():
            self._looks_for_account = self.spawn(self._look_for_account(), "account")
        await asyncio.wait([self._looks_for_account], timeout=_LOOKS_S)

    async def watch_for_account(self) -> None:
        """Look for a token while nobody asks for lenses, as long as the lenses say that there is none."""
        while True:
            await asyncio.sleep(_WATCHES_S)
            setup = self.session.setup
            if not (setup.modal_account or setup.host or setup.own_gpu()):
                await self.look_aside_for_account()

    async def _look_for_account(self) -> None:
        from orbit_lsp.runners.modal import account

        self._take_account(await asyncio.to_thread(account.stamp))

    def _take_account(self, stamp: object) -> None:
        """Take note of whether there is a Modal token now. Files are compiled again, because figures depend on the
        GPU that runs use.
        """
        rented = self._rents()
        if self.places.rental.look_for_account(stamp):
            self.rents_unsaid = self._rents() and (not rented or self.rents_unsaid)
            for uri in list(self.session.files):
                self.compile_quietly(uri)

    def _rents(self) -> bool:
        setup = self.session.setup
        return setup.modal_account and setup.place() == "modal"

    def compile_quietly(self, uri: str) -> None:
        """Compile an open file in a task, if that is possible and the settings say so."""
        from orbit_lsp.features.quiet_compile import QuietCompile

        self.features.of(QuietCompile).compile(uri)

    @property
    def client_watches(self) -> bool:
        """Say whether the client reports files that change on disk."""
        workspace = self.client_capabilities.workspace
        watching = workspace.did_change_watched_files if workspace else None
        return bool(watching and watching.dynamic_registration)

    @property
    def creates_files(self) -> bool:
        """Say whether the client accepts edits that make a file."""
        workspace = self.client_capabilities.workspace
        edits = workspace.workspace_edit if workspace else None
        operations = edits.resource_operations if edits and edits.document_changes else None
        return lsp.ResourceOperationKind.Create in (operations or ())

    @property
    def takes_versions(self) -> bool:
        """Say whether the client refuses an edit of a text that it has changed since."""
        workspace = self.client_capabilities.workspace
        edits = workspace.workspace_edit if workspace else None
        return bool(edits and edits.document_changes)

    def report_server_error(self, error: Exception, source: Any) -> None:
        if source is JsonRpcException and not isinstance(error, JsonRpcException):
            cast("OrbitProtocol", self.protocol).refuse_body(error)
        else:
            super().report_server_error(error, source)


def abilities_of(
    params: lsp.InitializeParams, encoding: lsp.PositionEncodingKind | str | None
) -> ClientAbilities:
    """Return what a client can do: what it announces, and what is known of some clients that announce something else."""
    from orbit_lsp.state.session import ClientAbilities

    workspace, document = params.capabilities.workspace, params.capabilities.text_document
    general, window = params.capabilities.general, params.capabilities.window
    hint = workspace.inlay_hint if workspace else None
    published = document.publish_diagnostics if document else None
    ours = _ours(params.capabilities)
    name = params.client_info.name if params.client_info else ""  # Kate 26.08 gives none
    vims = name in ("vim-lsp", "Vim")  # they list lenses when they are asked to, and draw none
    # lsp-mode 10 announces lenses for the workspace alone
    lenses = (document and document.code_lens) or (workspace and workspace.code_lens)
    return ClientAbilities(
        name=name or "an editor",
        encoding=cast("Any", getattr(encoding, "value", encoding) or "utf-16"),
        # eglot 1.17 asks, and does not announce it
        can_ask=bool(window and window.show_message) or name == "Eglot",
        mirror_hints=not (hint and hint.refresh_support),
        tags=bool(published and published.tag_support),
        draws_lenses=bool(lenses) and not vims,
        notes_behind_lines=bool(name) and not vims,
        # clients say which parser of markdown they have; those that say none (Neovim, Helix) show its source, kakoune-lsp's knows no tables
        draws_tables=bool(general and general.markdown and general.markdown.parser != "kakoune-lsp"),
        takes_output=ours.get("output") is True,
        shows_answers=name not in ("helix", ""),
        shows_panel=ours.get("panel") is True,
        shows_reports=ours.get("reports") is True,
        debugs=ours.get("debug") is True,
    )


def _ours(capabilities: lsp.ClientCapabilities) -> dict[str, Any]:
    """Return what our own clients say about themselves: `experimental.orbit`."""
    experimental: Any = capabilities.experimental
    options: Any = (
        cast("dict[str, Any]", experimental).get("orbit") if isinstance(experimental, dict) else None
    )
    return cast("dict[str, Any]", options) if isinstance(options, dict) else {}


async def end_tasks() -> None:
    """Cancel what is still under way.

    `asyncio.run` cancels everything at once. If a process is being started, that includes the task that connects its
    pipes. The cancelled start then waits for that task without end (CPython 3.11).
    """
    tasks = [
        task
        for task in asyncio.all_tasks() - {asyncio.current_task()}
        if "_connect_pipes" not in getattr(task.get_coro(), "__qualname__", "")
    ]
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks)
