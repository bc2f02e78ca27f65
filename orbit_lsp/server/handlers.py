"""The handlers of a client's messages.

Each handler looks up, calls one function and converts; decisions are made elsewhere. Handlers import what they call,
and nothing of it is needed to answer `initialize`. Commands (`commands`) answer at once and work in tasks of `runs`:
Emacs freezes while a command is unanswered, Neovim hides lenses.
"""

from __future__ import annotations

import asyncio
import gc
import importlib
import inspect
import logging
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, cast

from lsprotocol import types as lsp

from orbit_lsp.server.brief_log import BriefLog
from orbit_lsp.server.frames import Frames
from orbit_lsp.server.language_server import OrbitServer
from orbit_lsp.server.protocol import OrbitProtocol
from orbit_remote.common import plain_text

if TYPE_CHECKING:
    from orbit_lsp.runs.scheduler import Run
    from orbit_lsp.state.documents import TextChange

Handler = TypeVar("Handler", bound=Callable[..., Any])
log = logging.getLogger("orbit.server")

SETTINGS_S = 3.0
"""How long a client that is asked for its settings may take before work begins without its answer."""
LOOK_AFTER_S = 0.1
"""The lenses of the file for which the editor was started come first: looking for a GPU takes 9 ms of imports."""


SPEC_TRIGGERS = (" ", ":", ".", "(", "<", "=", ",")
"""What an editor asks for completion after, in a launch spec."""

FILES = "**/*.{cu,cuh,h,hh,hpp,hxx,inl,inc,py}"
BUILD = "**/{compile_commands.json,CMakePresets.json,CMakeUserPresets.json,*.rsp}"
PROGRAMS = (
    "**/{CMakeLists.txt,*.cmake,Makefile,makefile,GNUmakefile,Makefile.am,Makefile.in,*.mk,"
    "meson.build,BUILD,BUILD.bazel,xmake.lua,*.cpp,*.cc,*.cxx}"
)
"""What decides which programs a project has, besides the files that may hold kernels. A test holds it to the
registry of build systems, which takes too long to import at a start.
"""
RENAMED = [
    lsp.FileOperationFilter(lsp.FileOperationPattern(FILES, lsp.FileOperationPatternKind.File), "file"),
    lsp.FileOperationFilter(lsp.FileOperationPattern("**", lsp.FileOperationPatternKind.Folder), "file"),
]

ACTION_KINDS = (lsp.CodeActionKind.Empty, lsp.CodeActionKind.QuickFix, lsp.CodeActionKind.RefactorRewrite)

server = OrbitServer()

WAITS: dict[str, bool] = {}
"""Whether the handler of a method may wait, as it was said where it is registered."""


def on(method: str, options: Any = None, *, waits: bool) -> Callable[[Handler], Handler]:
    """Register the handler of a message. A handler that `waits` is a coroutine, or returns one if a file is long. Any
    other ends at once, and uses neither the disk nor another process: no other message is answered meanwhile.
    """

    def register(handler: Handler) -> Handler:
        may_wait = inspect.iscoroutinefunction(handler) or "Awaitable" in str(
            handler.__annotations__["return"]
        )
        if may_wait != waits:
            raise TypeError(f"the handler of {method} is registered with waits={waits}, which it does not do")
        WAITS[method] = waits
        return server.feature(method, options)(handler)

    return register


# -- life -------------------------------------------------------------------------------------------


@on(lsp.INITIALIZE, waits=False)
def initialize(ls: OrbitServer, params: lsp.InitializeParams) -> None:
    ls.asked = params
    asyncio.get_running_loop().call_soon(load)  # the answer is on its way by then


def load() -> None:
    """Import what the first messages need, while the client reads the answer of `initialize`."""
    for module in (
        "runs.scheduler", "server.notifier", "views.lenses", "views.hints", "views.hover",
        "views.kernel_actions", "views.history_actions", "views.spec.spec_drafts", "views.spec.spec_hover",
    ):  # fmt: skip
        importlib.import_module(f"orbit_lsp.{module}")
    gc.collect()
    gc.freeze()  # what start-up made lives for ever: the collector need not look at it again
    gc.enable()


@on(lsp.INITIALIZED, waits=True)
async def initialized(ls: OrbitServer, params: lsp.InitializedParams) -> None:
    del params
    answered, _ = await asyncio.wait([ls.spawn(configure(ls), "settings")], timeout=SETTINGS_S)
    if not answered:  # the client's first settings hold until it answers
        ls.places.settings.configure(None)
    ls.places.settings.configured.set()
    watch_files(ls)
    ls.versions.watch()
    ls.places.begin_looking(after_s=LOOK_AFTER_S)
    ls.spawn(ls.watch_for_account(), "watch for an account")
    ls.runs.when_ended(lambda run: show_wanted(ls, run))
    ls.watcher.lacking_gpu = lambda text: offer_gpus(ls, text)


def offer_gpus(ls: OrbitServer, text: str) -> None:
    from orbit_lsp.server import gpu_ways

    ls.spawn(gpu_ways.offer(ls, text), "ways to a GPU")


def show_wanted(ls: OrbitServer, run: Run) -> None:
    from orbit_lsp.server import shown_files  # what shows files need not be loaded to start

    shown_files.wanted(ls, run)


@on(lsp.SHUTDOWN, waits=True)
async def shutdown(ls: OrbitServer, params: None) -> None:
    del params
    for feature in ls.features:
        feature.shutdown()
    await ls.engine.end_runs()
    for task in list(ls.tasks):
        task.cancel()
    await ls.places.close()


@on(lsp.WORKSPACE_DID_CHANGE_CONFIGURATION, waits=True)
async def did_change_configuration(ls: OrbitServer, params: lsp.DidChangeConfigurationParams) -> None:
    await configure(ls, params.settings)


async def configure(ls: OrbitServer, pushed: Any = None) -> None:
    """Ask the client for its settings, or take those it sent if it cannot be asked."""
    workspace = ls.client_capabilities.workspace
    if workspace and workspace.configuration:
        items = [lsp.ConfigurationItem(section="orbit")]
        try:
            answer = await ls.workspace_configuration_async(lsp.ConfigurationParams(items))
            pushed = answer[0] if answer else None
        except Exception as error:  # noqa: BLE001 - the answer is the client's; any fault means none
            log.warning("the client did not send its settings: %s", error)
    for complaint in ls.places.settings.configure(pushed):
        ls.watcher.message(complaint, lsp.MessageType.Warning)
    await ls.places.python.look()  # so that no keystroke does
    logging.getLogger("orbit").setLevel(ls.places.settings.now.log_level.upper())
    for uri in list(ls.session.files):
        ls.watcher.changed({uri})


def watch_files(ls: OrbitServer) -> None:
    """Ask the client to watch files. A header that is changed outside the editor then makes results stale too, and a
    configured build is noticed.
    """
    if not ls.client_watches:
        return
    watchers = [lsp.FileSystemWatcher(pattern) for pattern in (FILES, BUILD, PROGRAMS)]
    ls.client_register_capability(
        lsp.RegistrationParams(
            [
                lsp.Registration(
                    "orbit/files",
                    lsp.WORKSPACE_DID_CHANGE_WATCHED_FILES,
                    lsp.DidChangeWatchedFilesRegistrationOptions(watchers),
                )
            ]
        )
    )


# -- documents --------------------------------------------------------------------------------------


@on(lsp.TEXT_DOCUMENT_DID_OPEN, waits=False)
def did_open(ls: OrbitServer, params: lsp.DidOpenTextDocumentParams) -> None:
    from orbit_lsp.state.documents import TooLongError, check_length

    document = params.text_document
    try:
        check_length(document.text)
    except TooLongError as error:
        leave_alone(ls, document.uri, error)
    else:
        if ls.session.open(document.uri, document.version, document.text, document.language_id):
            opened(ls, document.uri)


@on(lsp.NOTEBOOK_DOCUMENT_DID_OPEN, waits=False)
def notebook_did_open(ls: OrbitServer, params: lsp.DidOpenNotebookDocumentParams) -> None:
    cells_opened(ls, params.notebook_document.uri, params.cell_text_documents)


def cells_opened(ls: OrbitServer, notebook: str, cells: Sequence[lsp.TextDocumentItem]) -> None:
    """Open the cells of the notebook whose URI is given. Each is an open file whose kernels have the notebook's
    history. The notebook runs the cells: the lens of a kernel has its last result, from whatever front end, and *Run*
    is the cell's own button.
    """
    from orbit_lsp.state.documents import TooLongError, check_length
    from orbit_lsp.state.session import path_of

    for cell in cells:
        try:
            check_length(cell.text)
        except TooLongError as error:
            leave_alone(ls, cell.uri, error)
        else:
            ls.session.open_cell(cell.uri, path_of(notebook), cell.version, cell.text)
            opened(ls, cell.uri)


@on(lsp.NOTEBOOK_DOCUMENT_DID_CHANGE, waits=False)
def notebook_did_change(ls: OrbitServer, params: lsp.DidChangeNotebookDocumentParams) -> None:
    cells = params.change.cells
    if cells is None:
        return
    if structure := cells.structure:
        for gone in structure.did_close or ():
            closed(ls, gone.uri)
        cells_opened(ls, params.notebook_document.uri, structure.did_open or ())
    for edited in cells.text_content or ():
        text_changed(ls, edited.document, edited.changes)


@on(lsp.NOTEBOOK_DOCUMENT_DID_CLOSE, waits=False)
def notebook_did_close(ls: OrbitServer, params: lsp.DidCloseNotebookDocumentParams) -> None:
    for cell in params.cell_text_documents:
        closed(ls, cell.uri)


def leave_alone(ls: OrbitServer, uri: str, why: Exception) -> None:
    """Treat a file that is too long as closed, whatever the client sends about it, until it is opened again."""
    from orbit_lsp.state.session import path_of

    closed(ls, uri)
    name = plain_text.visible(path_of(uri).rpartition("/")[2])
    ls.watcher.once(
        f"{name} is left alone: {why}. Make it shorter and open it again.", lsp.MessageType.Warning
    )


def opened(ls: OrbitServer, uri: str) -> None:
    ls.spawn(prepare(ls, uri), "prepare")


async def prepare(ls: OrbitServer, uri: str) -> None:
    """Return the work that an opened file needs, once the settings are known and its text is scanned."""
    from orbit_lsp.history import compare_candidates
    from orbit_lsp.state.session import path_of

    await ls.places.settings.configured.wait()
    await ls.settle(uri)
    if (file := ls.session.files.get(uri)) is None:
        return
    ls.versions.restore(uri)
    if file.builds:
        file.in_git = await asyncio.to_thread(compare_candidates.in_git, path_of(uri))
    await ls.settle(uri)  # it may have been edited meanwhile
    if ls.session.files.get(uri) is file:
        for feature in ls.features:
            feature.opened(uri)


@on(lsp.TEXT_DOCUMENT_DID_CHANGE, waits=False)
def did_change(ls: OrbitServer, params: lsp.DidChangeTextDocumentParams) -> None:
    text_changed(ls, params.text_document, params.content_changes)


def text_changed(
    ls: OrbitServer,
    document: lsp.VersionedTextDocumentIdentifier,
    edits: Sequence[lsp.TextDocumentContentChangeEvent],
) -> None:
    """Apply edits of an open file, or of a cell."""
    from orbit_lsp.state.documents import TooLongError

    changes = [_change(change) for change in edits]
    uri = document.uri
    try:
        new = ls.session.change(uri, document.version, changes)
    except TooLongError as error:
        leave_alone(ls, uri, error)
        return
    if new:
        opened(ls, uri)
        ls.watcher.changed({uri})  # the editor has asked before, and was answered that there is nothing
    for feature in ls.features:
        feature.edited(uri)
    if ls.session.client.mirror_hints:
        ls.watcher.changed({uri})  # clients that support refresh requests ask again after an edit anyway


def _change(change: lsp.TextDocumentContentChangeEvent) -> TextChange:
    from orbit_lsp.state.documents import TextChange

    if isinstance(change, lsp.TextDocumentContentChangePartial):
        start, end = change.range.start, change.range.end
        return TextChange((start.line, start.character), (end.line, end.character), change.text)
    return TextChange(None, None, change.text)


@on(lsp.TEXT_DOCUMENT_DID_SAVE, lsp.TextDocumentSaveRegistrationOptions(include_text=False), waits=False)
def did_save(ls: OrbitServer, params: lsp.DidSaveTextDocumentParams) -> None:
    for feature in ls.features:
        feature.saved(params.text_document.uri)


@on(lsp.TEXT_DOCUMENT_DID_CLOSE, waits=False)
def did_close(ls: OrbitServer, params: lsp.DidCloseTextDocumentParams) -> None:
    closed(ls, params.text_document.uri)


def closed(ls: OrbitServer, uri: str) -> None:
    ls.runs.cancel_all(uri, "compile")
    for feature in ls.features:
        feature.closed(uri)
    ls.session.close(uri)
    ls.watcher.forget(uri)


@on(lsp.WORKSPACE_DID_RENAME_FILES, lsp.FileOperationRegistrationOptions(RENAMED), waits=False)
def did_rename_files(ls: OrbitServer, params: lsp.RenameFilesParams) -> None:
    from orbit_lsp.state.results import renamed

    for file in params.files:
        names = ls.versions.renamed(file.old_uri, file.new_uri)
        ls.runs.renamed(names)
        ls.watcher.runs.renamed(names)
        ls.looked_at = renamed(ls.looked_at, names)


@on(lsp.WORKSPACE_DID_CHANGE_WATCHED_FILES, waits=False)
def did_change_watched_files(ls: OrbitServer, params: lsp.DidChangeWatchedFilesParams) -> None:
    changed = {change.uri for change in params.changes}
    came = {change.uri for change in params.changes if change.type != lsp.FileChangeType.Changed}
    for feature in ls.features:
        feature.changed_on_disk(changed, came)


# -- views ------------------------------------------------------------------------------------------


@on(lsp.TEXT_DOCUMENT_CODE_LENS, waits=True)
async def code_lens(ls: OrbitServer, params: lsp.CodeLensParams) -> list[lsp.CodeLens]:
    from orbit_lsp.views import lenses

    await ls.look_aside_for_account()
    ls.rents_unsaid = False
    uri = params.text_document.uri
    await ls.settle(uri)
    return lenses.answer(ls.session, uri)


@on(lsp.TEXT_DOCUMENT_INLAY_HINT, waits=False)
def inlay_hint(ls: OrbitServer, params: lsp.InlayHintParams) -> list[lsp.InlayHint]:
    from orbit_lsp.views import hints

    uri = params.text_document.uri
    helix = ls.session.client.name == "helix"  # it draws hints too seldom
    answer = hints.hints if helix else hints.answer
    if ls.session.client.mirror_hints and not helix:
        ls.watcher.changed({uri})  # what it draws now is no longer a diagnostic
    return answer(ls.session, uri, params.range.start.line, params.range.end.line)


@on(lsp.TEXT_DOCUMENT_HOVER, waits=False)
def hover(ls: OrbitServer, params: lsp.HoverParams) -> lsp.Hover | None:
    from orbit_lsp.views import hover as kernel_hover
    from orbit_lsp.views.spec import spec_hover

    uri, line = params.text_document.uri, params.position.line
    look_at(ls, uri, line)
    document = ls.client_capabilities.text_document
    formats = document.hover.content_format if document and document.hover else None
    markdown = not formats or lsp.MarkupKind.Markdown in formats
    if spec_answer := spec_hover.hover(ls.session, uri, line, params.position.character, markdown=markdown):
        return spec_answer
    if ls.session.at(uri, line):
        for feature in ls.features:
            feature.hovered(uri)
    spec_answer = kernel_hover.hover(
        ls.session, uri, line, markdown=markdown and ls.session.client.draws_tables
    )
    return (
        kernel_hover.fenced(spec_answer)
        if spec_answer and markdown and not ls.session.client.draws_tables
        else spec_answer
    )


@on(lsp.TEXT_DOCUMENT_COMPLETION, lsp.CompletionOptions(trigger_characters=SPEC_TRIGGERS), waits=False)
def completion(ls: OrbitServer, params: lsp.CompletionParams) -> list[lsp.CompletionItem] | None:
    from orbit_lsp.views.spec import spec_completion

    place = params.position
    return spec_completion.completions(ls.session, params.text_document.uri, place.line, place.character)


@on(lsp.TEXT_DOCUMENT_CODE_ACTION, lsp.CodeActionOptions(code_action_kinds=list(ACTION_KINDS)), waits=True)
async def code_action(ls: OrbitServer, params: lsp.CodeActionParams) -> list[lsp.CodeAction]:
    from orbit_lsp.views import history_actions, kernel_actions, kernel_commands, lenses
    from orbit_lsp.views.compiler import block_size, clangd_file, launch_bounds, num_warps, quick_fixes
    from orbit_lsp.views.spec import spec_drafts, spec_fixes, spec_place

    await ls.look_aside_for_account()
    ls.rents_unsaid = False
    uri = params.text_document.uri
    look_at(ls, uri, params.range.start.line)
    begin, end = params.range.start.line, params.range.end.line
    first, last = begin, spec_place.kernel_line(ls.session, uri, end)
    await spec_drafts.prepare(ls.session, uri, first, last)
    offered = [
        *quick_fixes.actions(ls.session, uri, begin, end, versioned=ls.takes_versions),
        *spec_fixes.actions(ls.session, uri, begin, end, versioned=ls.takes_versions),
        *(clangd_file.actions(ls.session, uri, begin) if ls.creates_files else ()),
        *lenses.actions(ls.session, uri, first, last),
        *kernel_actions.actions(ls.session, uri, first, last),
        *launch_bounds.actions(ls.session, uri, first, versioned=ls.takes_versions),
        *block_size.actions(ls.session, uri, begin, versioned=ls.takes_versions),
        *num_warps.actions(ls.session, uri, begin, versioned=ls.takes_versions),
        *history_actions.actions(ls.session, uri, first, last),
        *spec_drafts.actions(ls.session, uri, first, last, versioned=ls.takes_versions),
    ]
    if ls.session.is_cell(uri):
        return [
            each
            for each in offered
            if each.command is None or each.command.command in kernel_commands.OF_CELLS
        ]
    return offered


def look_at(ls: OrbitServer, uri: str, line: int) -> None:
    """Remember the kernel, for commands that an editor sends without arguments."""
    from orbit_lsp.state import harness
    from orbit_lsp.views.spec import spec_place

    line = spec_place.kernel_line(ls.session, uri, line)
    ls.looked_at = ls.session.at(uri, line) or harness.at(ls.session, uri, line) or ls.looked_at


@on("orbit/panel", waits=True)
async def panel(ls: OrbitServer, params: Any) -> dict[str, Any]:
    """Return what a client shows beside the text: see `panel`."""
    del params
    from orbit_lsp.server import panel as items

    return await items.content(ls)


COMMANDS = (
    "orbit.run", "orbit.profile", "orbit.checkMemory", "orbit.debug", "orbit.test", "orbit.draft", "orbit.live", "orbit.openReport",
    "orbit.showFailure",
    "orbit.openIr", "orbit.disassemble", "orbit.runRestricted", "orbit.cancel", "orbit.locate", "orbit.capture", "orbit.pinDriver", "orbit.forgetDrivers", "orbit.compile", "orbit.runOnAll", "orbit.compareWith",
    "orbit.history", "orbit.showOutput", "orbit.export", "orbit.chooseGpu", "orbit.sessions", "orbit.keepWarm", "orbit.release", "orbit.info",
)  # fmt: skip
"""What the client may send; the functions are in the modules of `command_functions`."""


def command_functions() -> dict[str, Callable[..., Any]]:
    for module in (
        "capture_commands",
        "dump_commands",
        "history_commands",
        "output_commands",
    ):  # each registers its commands when it is imported
        importlib.import_module(f"orbit_lsp.server.{module}")
    from orbit_lsp.server import commands

    return commands.COMMANDS


def register(name: str) -> None:
    def command(ls: OrbitServer, *arguments: Any) -> Any:
        return command_functions()[name](ls, *arguments)

    server.command(name)(command)


for command_name in COMMANDS:
    register(command_name)


def serve() -> int:
    """Speak LSP on standard input and output until the client leaves. Return the exit status of the process."""
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
    logging.getLogger().handlers[0].addFilter(BriefLog())
    logging.getLogger("pygls").setLevel(logging.WARNING)  # at INFO it prints every message's body
    strange: list[str] = []
    # a thread that scans or checks a large file has the interpreter for 5 ms at a time; a message crosses some ten times
    sys.setswitchinterval(0.001)
    server.start_frames(Frames(sys.stdin.buffer, strange.append))
    if strange:
        print(f"orbit-lsp: {strange[0]}", file=sys.stderr)
    return 1 if strange else cast("OrbitProtocol", server.protocol).status
