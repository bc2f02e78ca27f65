"""The language server: the only module that makes a pygls server.

Each handler looks up, calls one function and converts; decisions live elsewhere. Commands answer at
once and work in tasks of `runs`: Emacs freezes while a command is unanswered, Neovim hides lenses.
"""

from __future__ import annotations

import asyncio
import dataclasses
import gc
import logging
import sys
import time
from collections.abc import Callable, Coroutine
from typing import Any, cast

from lsprotocol import types as lsp
from pygls.lsp.server import LanguageServer

from orbit_lsp import __version__, contract, startup
from orbit_lsp.comparisons import Comparisons
from orbit_lsp.documents import Change
from orbit_lsp.editor import EditorWatcher
from orbit_lsp.launch_specs import Watch
from orbit_lsp.live import Live
from orbit_lsp.protocol import OrbitProtocol
from orbit_lsp.recheck import Recheck
from orbit_lsp.renting import CannotAsk
from orbit_lsp.report import opening
from orbit_lsp.runs import Run, Runs
from orbit_lsp.session import KernelId, Session, path_of
from orbit_lsp.views import (
    facts,
    hints,
    kernel_actions,
    lenses,
    side_by_side,
    spec_completion,
    spec_drafts,
    spec_hover,
)
from orbit_lsp.views.hover import hover as hover_view
from orbit_lsp.views.hover import render

log = logging.getLogger("orbit.server")

SETTINGS_S = 3.0
"""How long a client that is asked for its settings may take before work begins without its answer."""


class OrbitServer(LanguageServer):
    def __init__(self) -> None:
        # pygls' own arguments are not typed
        cast("Any", super()).__init__("orbit-lsp", __version__, protocol_cls=OrbitProtocol)
        self.session = Session()
        self.watcher = EditorWatcher(self, self.session)
        self.environment = startup.Environment(self.session, self.watcher.message, self.watcher.changed)
        self.runs = Runs(self.session, self.environment.runner_of, self.watcher)
        self.watcher.runs = self.runs
        self.environment.budget.ask = self.watcher.ask
        self.comparisons = Comparisons(self.session, self.environment, self.watcher)
        self.watcher.comparisons = self.comparisons
        self.live = Live(
            self.session,
            self.runs,
            self.watcher.message,
            self.watcher.changed,
            lambda uri: compile_quietly(self, uri),
        )
        self.watcher.live = self.live
        self.recheck = Recheck(self.session, self.watcher.changed)
        self.specs = Watch(self.session, self.watcher.changed)
        self.tasks: set[asyncio.Task[None]] = set()

    def spawn(self, work: Any, name: str) -> asyncio.Task[None]:
        """A task of our own, kept until it ends."""
        task: asyncio.Task[None] = asyncio.create_task(work, name=name)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return task


server = OrbitServer()


# -- life -------------------------------------------------------------------------------------------


@server.feature(lsp.INITIALIZE)
def initialize(ls: OrbitServer, params: lsp.InitializeParams) -> None:
    encoding = ls.workspace.position_encoding
    ls.session.encoding = cast("Any", getattr(encoding, "value", encoding) or "utf-16")
    workspace = params.capabilities.workspace
    hint = workspace.inlay_hint if workspace else None
    ls.session.mirror_hints = not (hint and hint.refresh_support)
    window = params.capabilities.window
    ls.session.can_ask = bool(window and window.show_message)
    ls.session.folders = [path_of(folder.uri) for folder in params.workspace_folders or []]
    if not ls.session.folders and params.root_uri:
        ls.session.folders = [path_of(params.root_uri)]
    ls.environment.options = params.initialization_options


@server.feature(lsp.INITIALIZED)
async def initialized(ls: OrbitServer, params: lsp.InitializedParams) -> None:
    del params
    gc.collect()
    gc.freeze()  # what start-up made lives for ever: the collector need not look at it again
    answered, _ = await asyncio.wait([ls.spawn(configure(ls), "settings")], timeout=SETTINGS_S)
    if not answered:
        ls.environment.configure(
            None
        )  # what the client said at first; an answer that is late counts from then
    ls.environment.configured.set()
    watch_headers(ls)
    ls.environment.begin_looking()


@server.feature(lsp.SHUTDOWN)
async def shutdown(ls: OrbitServer, params: None) -> None:
    del params
    ls.recheck.close()
    ls.live.close()
    ls.specs.close()
    await asyncio.gather(ls.runs.close(), ls.comparisons.close())
    for task in list(ls.tasks):
        task.cancel()
    await ls.environment.close()


@server.feature(lsp.WORKSPACE_DID_CHANGE_CONFIGURATION)
async def did_change_configuration(ls: OrbitServer, params: lsp.DidChangeConfigurationParams) -> None:
    await configure(ls, params.settings)


async def configure(ls: OrbitServer, pushed: Any = None) -> None:
    """Ask the client for its settings, or take those it sent where it cannot be asked."""
    workspace = ls.client_capabilities.workspace
    if workspace and workspace.configuration:
        items = [lsp.ConfigurationItem(section="orbit")]
        try:
            answer = await ls.workspace_configuration_async(lsp.ConfigurationParams(items))
            pushed = answer[0] if answer else None
        except Exception as error:  # noqa: BLE001 - the answer is the client's; any fault means none
            log.warning("the client did not say its settings: %s", error)
    for complaint in ls.environment.configure(pushed):
        ls.watcher.message(complaint, lsp.MessageType.Warning)
    logging.getLogger("orbit").setLevel(ls.environment.settings.log_level.upper())
    for uri in list(ls.session.files):
        ls.watcher.changed({uri})


def watch_headers(ls: OrbitServer) -> None:
    """So that a header changed outside the editor makes results stale too."""
    workspace = ls.client_capabilities.workspace
    watching = workspace.did_change_watched_files if workspace else None
    if not (watching and watching.dynamic_registration):
        return
    pattern = lsp.FileSystemWatcher("**/*.{cu,cuh,h,hh,hpp,hxx,inl,inc,py}")
    ls.client_register_capability(
        lsp.RegistrationParams(
            [
                lsp.Registration(
                    "orbit/headers",
                    lsp.WORKSPACE_DID_CHANGE_WATCHED_FILES,
                    lsp.DidChangeWatchedFilesRegistrationOptions([pattern]),
                )
            ]
        )
    )


# -- documents --------------------------------------------------------------------------------------


@server.feature(lsp.TEXT_DOCUMENT_DID_OPEN)
def did_open(ls: OrbitServer, params: lsp.DidOpenTextDocumentParams) -> None:
    document = params.text_document
    if file := ls.session.open(document.uri, document.version, document.text):
        ls.specs.edited(document.uri, pause_s=0)
        ls.spawn(prepare(ls, document.uri, file.scan.language if file.scan.kernels else None), "prepare")


async def prepare(ls: OrbitServer, uri: str, warm: str | None) -> None:
    """What an opened file asks for, once the settings are known."""
    await ls.environment.configured.wait()
    compile_quietly(ls, uri)
    if warm:
        await ls.environment.warm(warm)
    if warm == "cuda" and any(one.recipe.through == "spec" for one in facts.of(ls.session, uri)):
        await ls.environment.warm("triton")  # launch specs run in a Python child, of either language


@server.feature(lsp.TEXT_DOCUMENT_DID_CHANGE)
def did_change(ls: OrbitServer, params: lsp.DidChangeTextDocumentParams) -> None:
    changes = [_change(change) for change in params.content_changes]
    uri = params.text_document.uri
    ls.session.change(uri, params.text_document.version, changes)
    ls.recheck.edited(uri)
    ls.live.edited(uri)
    ls.specs.edited(uri)


def _change(change: lsp.TextDocumentContentChangeEvent) -> Change:
    if isinstance(change, lsp.TextDocumentContentChangePartial):
        start, end = change.range.start, change.range.end
        return Change((start.line, start.character), (end.line, end.character), change.text)
    return Change(None, None, change.text)


@server.feature(lsp.TEXT_DOCUMENT_DID_SAVE, lsp.TextDocumentSaveRegistrationOptions(include_text=False))
def did_save(ls: OrbitServer, params: lsp.DidSaveTextDocumentParams) -> None:
    uri = params.text_document.uri
    changed_on_disk(ls, uri)
    if not ls.live.saved(uri):
        compile_quietly(ls, uri)


@server.feature(lsp.TEXT_DOCUMENT_DID_CLOSE)
def did_close(ls: OrbitServer, params: lsp.DidCloseTextDocumentParams) -> None:
    uri = params.text_document.uri
    ls.runs.cancel_file(uri, "compile")
    ls.live.closed(uri)
    ls.session.close(uri)
    ls.recheck.forget(uri)
    ls.specs.forget(uri)
    ls.watcher.forget(uri)


@server.feature(lsp.WORKSPACE_DID_CHANGE_WATCHED_FILES)
def did_change_watched_files(ls: OrbitServer, params: lsp.DidChangeWatchedFilesParams) -> None:
    for change in params.changes:
        changed_on_disk(ls, change.uri)


def changed_on_disk(ls: OrbitServer, uri: str) -> None:
    """Compile again what is open and was built from this file."""
    for dependent in ls.environment.changed_on_disk(path_of(uri)):
        if dependent != uri:
            compile_quietly(ls, dependent)
        ls.watcher.changed({dependent})


def compile_quietly(ls: OrbitServer, uri: str) -> None:
    file = ls.session.files.get(uri)
    if file is None or file.scan.language != "cuda":
        return
    for refused in ls.environment.choose_flags(uri):
        ls.watcher.once(f"nvcc flag {refused}", lsp.MessageType.Warning)
    if ls.environment.settings.compile_on_save:
        ls.runs.start("compile", uri)


# -- views ------------------------------------------------------------------------------------------


@server.feature(lsp.TEXT_DOCUMENT_CODE_LENS)
def code_lens(ls: OrbitServer, params: lsp.CodeLensParams) -> list[lsp.CodeLens]:
    return lenses.lenses(ls.session, params.text_document.uri)


@server.feature(lsp.TEXT_DOCUMENT_INLAY_HINT)
def inlay_hint(ls: OrbitServer, params: lsp.InlayHintParams) -> list[lsp.InlayHint]:
    return hints.hints(ls.session, params.text_document.uri, params.range.start.line, params.range.end.line)


@server.feature(lsp.TEXT_DOCUMENT_HOVER)
def hover(ls: OrbitServer, params: lsp.HoverParams) -> lsp.Hover | None:
    uri, line = params.text_document.uri, params.position.line
    look_at(ls, uri, line)
    document = ls.client_capabilities.text_document
    formats = document.hover.content_format if document and document.hover else None
    markdown = not formats or lsp.MarkupKind.Markdown in formats
    if found := spec_hover.hover(ls.session, uri, line, params.position.character, markdown=markdown):
        return found
    return hover_view(ls.session, uri, line, markdown=markdown)


@server.feature(
    lsp.TEXT_DOCUMENT_COMPLETION, lsp.CompletionOptions(trigger_characters=spec_completion.TRIGGERS)
)
def completion(ls: OrbitServer, params: lsp.CompletionParams) -> list[lsp.CompletionItem] | None:
    place = params.position
    return spec_completion.completions(ls.session, params.text_document.uri, place.line, place.character)


@server.feature(
    lsp.TEXT_DOCUMENT_CODE_ACTION,
    lsp.CodeActionOptions(code_action_kinds=[lsp.CodeActionKind.Empty, lsp.CodeActionKind.RefactorRewrite]),
)
def code_action(ls: OrbitServer, params: lsp.CodeActionParams) -> list[lsp.CodeAction]:
    uri = params.text_document.uri
    look_at(ls, uri, params.range.start.line)
    first, last = params.range.start.line, params.range.end.line
    return [
        *lenses.actions(ls.session, uri, first, last),
        *kernel_actions.actions(ls.session, uri, first, last),
        *spec_drafts.actions(ls.session, uri, first, last, versioned=takes_versions(ls)),
    ]


def takes_versions(ls: OrbitServer) -> bool:
    """Whether the client refuses an edit of a text that it has changed since."""
    workspace = ls.client_capabilities.workspace
    edits = workspace.workspace_edit if workspace else None
    return bool(edits and edits.document_changes)


def look_at(ls: OrbitServer, uri: str, line: int) -> None:
    """Remember the kernel, for commands that an editor sends without arguments."""
    ls.session.looked_at = (
        ls.session.at(uri, line) or contract.at(ls.session, uri, line) or ls.session.looked_at
    )


# -- commands ---------------------------------------------------------------------------------------


def once_configured(ls: OrbitServer, start: Callable[[], Run | None]) -> dict[str, str] | None:
    """Start a run at once and name it; None where there is none, or where the settings, which say where it is
    to run, are still on their way: then it starts when they have come.
    """
    if not ls.environment.configured.is_set():
        ls.spawn(start_configured(ls, start), "click before the settings")
        return None
    started = start()
    return {"run": started.id} if started else None


async def start_configured(ls: OrbitServer, start: Callable[[], Run | None]) -> None:
    await ls.environment.configured.wait()
    start()


@server.command("orbit.run")
def run(ls: OrbitServer, *arguments: Any) -> dict[str, str] | None:
    """Run the program that holds a kernel, {uri, kernel}, and measure every launch."""
    target = targeted(ls, arguments)
    if target is None:
        return None
    program = named(arguments, "through") == "program"
    return once_configured(ls, lambda: ls.runs.start("run", target.uri, target, program=program))


@server.command("orbit.check")
def check(ls: OrbitServer, *arguments: Any) -> dict[str, str] | None:
    """Check and time what a file, {uri}, offers by KernelBench's or popcorn's contract."""
    uri = named(arguments, "uri") or (ls.session.looked_at.uri if ls.session.looked_at else "")
    entry = contract.of(ls.session, uri)
    if entry is None:
        ls.watcher.message(contract.NONE, lsp.MessageType.Warning)
        return None
    return once_configured(ls, lambda: ls.runs.start("run", uri, entry.target))


@server.command("orbit.draft")
def draft(ls: OrbitServer, *arguments: Any) -> None:
    """Write a launch spec above a kernel, {uri, kernel}, that has none."""
    target = targeted(ls, arguments)
    kernel = ls.session.find(target) if target else None
    if target and kernel:
        found = spec_drafts.drafts(ls.session, target.uri, kernel, versioned=takes_versions(ls))
        if found:
            ls.spawn(write_draft(ls, found[0]), "draft")
        else:
            ls.watcher.message(spec_drafts.none(kernel), lsp.MessageType.Warning)


async def write_draft(ls: OrbitServer, found: spec_drafts.Draft) -> None:
    workspace = ls.client_capabilities.workspace
    if not (workspace and workspace.apply_edit):
        ls.watcher.message(f"orbit: this editor lets no server edit; take the code action `{found.title}`")
        return
    answer = await ls.workspace_apply_edit_async(lsp.ApplyWorkspaceEditParams(found.edit, found.title))
    if not answer.applied:
        ls.watcher.message(
            f"orbit: the editor did not take the draft: {answer.failure_reason or 'no reason given'}"
        )


@server.command("orbit.live")
def live(ls: OrbitServer, *arguments: Any) -> bool | None:
    """Run a kernel, {uri, kernel}, again at every save, or stop doing so; whether it does now."""
    target = targeted(ls, arguments)
    return ls.live.toggle(target) if target else None


@server.command("orbit.openReport")
def open_report(ls: OrbitServer, *arguments: Any) -> None:
    """Show what the launch spec of a kernel, {uri, kernel}, was last run with, in a browser."""
    if target := targeted(ls, arguments):
        ls.spawn(show_report(ls, target), "report")


async def show_report(ls: OrbitServer, target: KernelId) -> None:
    try:
        path = opening.write(ls.session, target, ls.environment.report_folder())
    except opening.NoReport as none:
        ls.watcher.message(str(none), lsp.MessageType.Warning)
        return
    window = ls.client_capabilities.window
    if window and window.show_document and window.show_document.support:
        shown = await ls.window_show_document_async(lsp.ShowDocumentParams(path.as_uri(), external=True))
        if shown.success:
            return
    ls.watcher.message(f"orbit: the report is {path}")


@server.command("orbit.runRestricted")
def run_restricted(ls: OrbitServer, *arguments: Any) -> dict[str, str] | None:
    """Run code that is not the author's, {uri, kernel}: on Modal, in a container for it alone."""
    target = targeted(ls, arguments)
    return once_configured(ls, lambda: start_restricted(ls, target)) if target else None


def start_restricted(ls: OrbitServer, target: KernelId) -> Run | None:
    if not ls.session.modal_account:
        ls.watcher.message(NO_SANDBOX, lsp.MessageType.Warning)
        return None
    return ls.runs.start("run", target.uri, target, restricted=True)


@server.command("orbit.cancel")
def cancel(ls: OrbitServer, *arguments: Any) -> bool:
    """Cancel the run of a kernel, {uri, kernel}, or whatever runs where no kernel is named."""
    if not arguments:
        compared = ls.comparisons.cancel_all()
        return sum(ls.runs.cancel_run(one.id) for one in ls.runs.under_way()) > 0 or compared
    target = targeted(ls, arguments)
    return bool(target) and (ls.comparisons.cancel(target) | ls.runs.cancel(target))


@server.command("orbit.compile")
def compile_file(ls: OrbitServer, *arguments: Any) -> dict[str, str] | None:
    """Compile a file, {uri}: for Triton this imports the module, so it is never done unasked."""
    uri = named(arguments, "uri") or (ls.session.looked_at.uri if ls.session.looked_at else None)
    if uri is None or uri not in ls.session.files:
        ls.watcher.message(NO_TARGET.replace("kernel", "file"), lsp.MessageType.Warning)
        return None
    return once_configured(ls, lambda: ls.runs.start("compile", uri))


@server.command("orbit.runOnAll")
def run_on_all(ls: OrbitServer, *arguments: Any) -> dict[str, str] | None:
    """Run a kernel, {uri, kernel, gpus}, on several GPUs on Modal side by side; default: `orbit.gpus`."""
    target = targeted(ls, arguments)
    if target is None:
        return None
    first: Any = arguments[0] if arguments else None
    asked: Any = cast("dict[str, Any]", first).get("gpus") if isinstance(first, dict) else None
    gpus = [str(one) for one in cast("list[Any]", asked)] if isinstance(asked, list) else None
    if mistake := ls.environment.gpus_mistake(gpus):
        ls.watcher.message(mistake, lsp.MessageType.Warning)
        return None
    return once_configured(ls, lambda: start_on_all(ls, target, gpus))


def start_on_all(ls: OrbitServer, target: KernelId, gpus: list[str] | None) -> Run | None:
    started = ls.comparisons.start(target.uri, target, gpus or ls.environment.settings.gpus)
    if started:
        ls.spawn(tell_comparison(ls, started.task, target), "tell comparison")
    return started


async def tell_comparison(ls: OrbitServer, task: asyncio.Task[Any] | None, target: KernelId) -> None:
    """The table in the log; the hover has it too."""
    if task:
        await asyncio.wait([task])
    if comparison := ls.session.comparisons.get(target):
        found = side_by_side.table(comparison, target.key, time.time(), stale=False)
        ls.watcher.log(render([found], markdown=False), lsp.MessageType.Info)


@server.command("orbit.chooseGpu")
def choose_gpu(ls: OrbitServer, *arguments: Any) -> None:
    """Rent this GPU, {gpu}, for runs from now on; the author is asked where none is named."""
    ls.spawn(choose(ls, named(arguments, "gpu")), "choose GPU")


async def choose(ls: OrbitServer, gpu: str | None) -> None:
    if gpu is None:
        choices = ls.environment.gpu_choices()
        question = (
            f"orbit: which GPU on Modal? Now {ls.environment.settings.gpu}{ls.environment.rates_text()}"
        )
        try:
            answer = await ls.watcher.ask(question, tuple(choices))
        except CannotAsk:
            ls.watcher.message(NO_CHOICE, lsp.MessageType.Warning)
            return
        if answer not in choices:
            return
        gpu = choices[answer]
    if mistake := ls.environment.choose_gpu(gpu):
        ls.watcher.message(mistake, lsp.MessageType.Warning)
        return
    for uri in list(ls.session.files):
        compile_quietly(ls, uri)
    ls.watcher.changed(set(ls.session.files))


NO_CHOICE = (
    "orbit: this editor cannot show a choice: take one of the code actions `Modal GPU: use …` on a kernel, or "
    "set `orbit.gpu`"
)


@server.command("orbit.sessions")
def sessions(ls: OrbitServer, *arguments: Any) -> list[dict[str, Any]]:
    """The containers on Modal that are warm because of this server, said and returned."""
    del arguments
    found = ls.environment.sessions()
    said = "; ".join(map(ls.environment.session_text, found))
    ls.watcher.message(said or "orbit: no GPU is rented now")
    return [dataclasses.asdict(one) for one in found]


@server.command("orbit.keepWarm")
def keep_warm(ls: OrbitServer, *arguments: Any) -> None:
    """Keep a container of a GPU, {gpu, keep}, until it is told otherwise; default: the settings' GPU, yes."""
    gpu = named(arguments, "gpu") or ls.environment.settings.gpu
    first: Any = arguments[0] if arguments else None
    keep = not (isinstance(first, dict) and cast("dict[str, Any]", first).get("keep") is False)
    ls.spawn(keep_or_release(ls, ls.environment.keep_warm(gpu, keep=keep)), "keep warm")


@server.command("orbit.release")
def release(ls: OrbitServer, *arguments: Any) -> None:
    """End the warm container of a GPU, {gpu}, or all of them, at once."""
    ls.spawn(keep_or_release(ls, ls.environment.release(named(arguments, "gpu"))), "release")


async def keep_or_release(ls: OrbitServer, work: Coroutine[Any, Any, str]) -> None:
    ls.watcher.message(await work)


@server.command("orbit.info")
def info(ls: OrbitServer, *arguments: Any) -> dict[str, Any]:
    """Versions, encoding, capabilities, settings, runner: what a report of a fault should carry."""
    del arguments
    return ls.environment.info(ls.client_capabilities)


NO_SANDBOX = (
    "orbit: code that is not yours is kept apart on Modal alone: `modal token new` makes a token, and "
    "`orbit.runner` must not be `local`"
)
NO_TARGET = "orbit: which kernel? Put the cursor on one, hover or open its code actions, then try again"


def targeted(ls: OrbitServer, arguments: tuple[Any, ...]) -> KernelId | None:
    """The kernel a command is about; Helix sends no arguments: then the one last looked at."""
    uri, kernel = named(arguments, "uri"), named(arguments, "kernel")
    target = KernelId(uri, kernel) if uri and kernel else ls.session.looked_at
    if target is None:
        ls.watcher.message(NO_TARGET, lsp.MessageType.Warning)
    elif ls.session.find(target) is None and not contract.holds(ls.session, target):
        text = f"orbit: {target.key} is no longer in {target.uri.rpartition('/')[2]}"
        ls.watcher.message(text, lsp.MessageType.Warning)
        return None
    ls.session.looked_at = target or ls.session.looked_at  # a click is a look
    return target


def named(arguments: tuple[Any, ...], name: str) -> str | None:
    """A field of the command's one argument, an object; None where it has none."""
    first: Any = arguments[0] if arguments else None
    value = cast("dict[str, Any]", first).get(name) if isinstance(first, dict) else getattr(first, name, None)
    return value if isinstance(value, str) else None


def serve() -> None:
    """Speak LSP on standard input and output until the client leaves."""
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
    logging.getLogger("pygls").setLevel(logging.WARNING)  # at INFO it prints every message's body
    server.start_io()
