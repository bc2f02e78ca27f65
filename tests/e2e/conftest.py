"""A whole server over stdio, spoken to with the capabilities that real editors sent (recorded)."""

from __future__ import annotations

import ast
import asyncio
import functools
import inspect
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import attrs
import pytest
from lsprotocol import types as lsp
from pygls.io_ import run_async
from pygls.protocol import default_converter
from pytest_lsp import LanguageClient
from pytest_lsp.client import register_lsp_features

from orbit_lsp.views import labels
from tests.e2e.conversation import CONVERSATIONS, Conversation, pytest_runtest_makereport
from tests.e2e.forks import LIMIT_S, LINE_LIMIT, Process

__all__ = ["pytest_runtest_makereport"]
T = TypeVar("T")
HERE = Path(__file__).parent
EDITORS = {
    "vscode": "vscode-1.139.1-languageclient-9.0.1",
    "neovim-0.11": "neovim-0.11.4",
    "neovim-0.12": "neovim-0.12.4",
    "helix": "helix-25.07.1",
    "emacs": "emacs-30.1-eglot-1.17.30",
}


SERVER = [sys.executable, "-P", "-m", "orbit_lsp"]
AGAIN_S = 0.05
"""How soon a client asks again that no server can tell when to."""


converter = functools.cache(default_converter)
"""The one of all clients: it makes its code for a type when it first meets one."""


@functools.cache
def capabilities(editor: str) -> lsp.ClientCapabilities:
    recorded = json.loads((HERE / "capabilities" / f"{EDITORS[editor]}.json").read_text())
    return converter().structure(recorded["capabilities"], lsp.ClientCapabilities)


class Client(LanguageClient):
    """A client whose server is forked (forks.py), or is a process started like an editor's."""

    def __init__(self, conversation: Conversation) -> None:
        super().__init__(converter_factory=converter)
        register_lsp_features(self)
        self._conversation = conversation
        send_data, request = self.protocol._send_data, self.protocol.send_request_async

        def sent(message: Any) -> None:
            conversation.add("->", message)
            send_data(message)

        async def bounded(method: str, params: Any = None, **more: Any) -> Any:
            try:
                async with asyncio.timeout(LIMIT_S):
                    return await request(method, params, **more)
            except TimeoutError:
                raise AssertionError(f"{method} has no answer after {LIMIT_S} s") from None

        self.protocol._send_data = sent
        self.protocol.send_request_async = bounded

    async def begin(self, folder: Path, *, forked: bool, constants: Mapping[str, Any] | None) -> None:
        with self._conversation.log.open("wb") as log:
            if forked:
                self._server, writer, reader = await Process.start(["serve"], folder, log, constants)
            else:
                pipe = asyncio.subprocess.PIPE
                self._server = await asyncio.create_subprocess_exec(
                    *SERVER, cwd=folder, stdin=pipe, stdout=pipe, stderr=log, limit=LINE_LIMIT
                )
                writer, reader = self._server.stdin, self._server.stdout
        self.protocol.set_writer(writer)
        listening = run_async(
            stop_event=self._stop_event,
            reader=reader,
            protocol=self.protocol,
            error_handler=self.report_server_error,
        )
        self._async_tasks += [asyncio.create_task(listening), asyncio.create_task(self._server_exit())]


def own_cache(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """A cache in `folder` in which nothing is built but the launch recorder, which takes each new cache two seconds."""
    recorder = Path(os.environ["XDG_CACHE_HOME"]) / "orbit-lsp" / "cupti"
    own = folder / "cache" / "orbit-lsp" / "cupti"
    for place in (recorder, own.parent):
        place.mkdir(parents=True, exist_ok=True)
    own.symlink_to(recorder)
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))


class Editor:
    """One editor with one file, and what it was told."""

    def __init__(self, client: LanguageClient, folder: Path, name: str) -> None:
        self.client, self.folder, self.name = client, folder, name
        self.told = asyncio.Condition()
        self.heard = 0
        """How many requests and notifications of the server have come."""
        self.refreshed: list[str] = []
        self.registered: list[lsp.Registration] = []
        self.uri = ""
        self.version = 0
        self.encoding = "utf-16"
        self.over = False
        self.withheld: list[Any] | None = None
        """Questions about settings that are not answered yet; None where they are answered at once."""

    def answer_settings(self) -> None:
        """Answer what was asked about settings, and from now on at once."""
        asked, self.withheld = self.withheld or [], None
        for message in asked:
            self.client.protocol.handle_message(message)

    async def close(self) -> None:
        """Quit, as the person at it does."""
        self.over = True
        try:
            async with asyncio.timeout(LIMIT_S):
                await self.client.shutdown_session()
                await self.client.stop()
        except TimeoutError:
            os.kill(self.client._server.pid, signal.SIGUSR1)  # its threads' stacks: fork_server.become
            with suppress(TimeoutError):
                async with asyncio.timeout(5):
                    await self.client._server.wait()
            raise AssertionError(f"the server did not end {LIMIT_S} s after it was asked to") from None
        finally:
            if self.client._server.returncode is None:
                self.client._server.kill()  # it must not outlive its test

    async def until(self, what: Callable[[], T]) -> T:
        """Wait for the message after which `what` holds."""
        try:
            async with asyncio.timeout(LIMIT_S), self.told:
                while not (value := what()):
                    await self.told.wait()
                return value
        except TimeoutError:
            raise AssertionError(f"after {LIMIT_S} s this does not hold yet: {_source(what)}") from None

    async def asked_until(
        self, ask: Callable[[], Awaitable[T]], holds: Callable[[T], Any], again_s: float | None = None
    ) -> T:
        """Ask again after every message of the server until the answer is as expected; the answer.

        A client that cannot be told to ask again does so by itself, as Helix and Neovim 0.11 do when something is typed.
        """
        answer: Any = None
        try:
            async with asyncio.timeout(LIMIT_S):
                while True:
                    heard = self.heard
                    answer = await ask()
                    if holds(answer):
                        return answer
                    await (asyncio.sleep(again_s) if again_s else self._more(heard))
        except TimeoutError:
            raise AssertionError(
                f"after {LIMIT_S} s the answer to {_source(ask)} is {answer!r}, of which this does not hold: "
                f"{_source(holds)}"
            ) from None

    async def seen(self, what: Callable[[], T]) -> T:
        """Wait for something that no message of the server tells of, as what its worker does."""

        async def look() -> T:
            return what()

        return await self.asked_until(look, bool, again_s=AGAIN_S)

    async def _more(self, heard: int) -> None:
        """Until the server has said more than that, or a moment has passed: it tells of new lenses and hints, and not of new hovers."""
        with suppress(TimeoutError):
            async with asyncio.timeout(AGAIN_S), self.told:
                await self.told.wait_for(lambda: self.heard > heard)

    def open(self, name: str, text: str) -> None:
        path = self.folder / name
        path.write_text(text, newline="")
        self.open_text(path.as_uri(), "whatever", text)

    def open_text(self, uri: str, language_id: str, text: str) -> None:
        """Which need not be a file."""
        self.uri = uri
        self.version = 1
        item = lsp.TextDocumentItem(uri, language_id, 1, text)
        self.client.text_document_did_open(lsp.DidOpenTextDocumentParams(item))

    def edit(self, line: int, start: int, end: int, text: str) -> None:
        self.version += 1
        where = lsp.Range(lsp.Position(line, start), lsp.Position(line, end))
        self.client.text_document_did_change(
            lsp.DidChangeTextDocumentParams(
                lsp.VersionedTextDocumentIdentifier(uri=self.uri, version=self.version),
                [lsp.TextDocumentContentChangePartial(range=where, text=text)],
            )
        )

    def save(self, text: str) -> None:
        (self.folder / self.uri.rpartition("/")[2]).write_text(text, newline="")
        self.client.text_document_did_save(
            lsp.DidSaveTextDocumentParams(lsp.TextDocumentIdentifier(self.uri))
        )

    async def lenses(self) -> list[lsp.CodeLens]:
        return list(
            await self.client.text_document_code_lens_async(lsp.CodeLensParams(self._document())) or []
        )

    async def titles(self) -> list[tuple[int, str]]:
        """Of the lenses besides *Profile*, which stands beside every *Run*."""
        commands = [(lens.range.start.line, lens.command) for lens in await self.lenses() if lens.command]
        return [(line, command.title) for line, command in commands if command.command != "orbit.profile"]

    async def hints(self) -> list[tuple[int, str]]:
        """Those of results: on a busy machine any compilation takes so long that kernels say so."""
        hints = [
            (line, label.removesuffix(labels.COMPILING).removesuffix(" · "))
            for line, label in await self.all_hints()
        ]
        return [(line, label) for line, label in hints if label]

    async def all_hints(self) -> list[tuple[int, str]]:
        whole = lsp.Range(lsp.Position(0, 0), lsp.Position(999, 0))
        inlay_hints = await self.client.text_document_inlay_hint_async(
            lsp.InlayHintParams(self._document(), whole)
        )
        return [(hint.position.line, str(hint.label)) for hint in inlay_hints or []]

    async def hover(self, line: int, character: int = 0) -> str:
        params = lsp.HoverParams(self._document(), lsp.Position(line, character))
        result = await self.client.text_document_hover_async(params)
        return result.contents.value if result and isinstance(result.contents, lsp.MarkupContent) else ""

    async def actions(self, line: int) -> list[lsp.Command]:
        here = lsp.Range(lsp.Position(line, 0), lsp.Position(line, 0))
        params = lsp.CodeActionParams(self._document(), here, lsp.CodeActionContext([]))
        results = await self.client.text_document_code_action_async(params)
        # lsprotocol 2025.0.0 takes a code action that carries its command for a bare command; those with an
        # edit it takes for what they are
        commands = [action for action in results or [] if isinstance(action, lsp.Command)]
        return [lsp.Command(**ast.literal_eval(str(action.command))) for action in commands]

    async def complete(self, line: int, character: int) -> list[lsp.CompletionItem]:
        params = lsp.CompletionParams(self._document(), lsp.Position(line, character))
        results = await self.client.text_document_completion_async(params)
        assert not isinstance(results, lsp.CompletionList)
        return list(results or [])

    async def drafts(self, line: int) -> list[lsp.CodeAction]:
        """The code actions that edit the file."""
        here = lsp.Range(lsp.Position(line, 0), lsp.Position(line, 0))
        params = lsp.CodeActionParams(self._document(), here, lsp.CodeActionContext([]))
        results = await self.client.text_document_code_action_async(params)
        return [action for action in results or [] if isinstance(action, lsp.CodeAction) and action.edit]

    async def command(self, name: str, *arguments: Any) -> Any:
        params = lsp.ExecuteCommandParams(name, list(arguments))
        return await self.client.workspace_execute_command_async(params)

    async def click(self, number: int = 0) -> None:
        """A lens that does something: what shows the last answer is left out."""
        shows = ("orbit.openReport", "orbit.history", "orbit.showFailure")
        commands = [lens.command for lens in await self.lenses() if lens.command]
        command = [command for command in commands if command.command not in shows][number]
        await self.command(command.command, *(command.arguments or []))

    def progress(self) -> list[list[Any]]:
        """For each bar, its steps: begin, reports, end."""
        return [list(reports) for _, reports in self._bars()]

    def tokens(self) -> list[Any]:
        """By which each bar's work is cancelled."""
        return [token for token, _ in self._bars()]

    def _bars(self, *, compilations: bool = False) -> list[tuple[Any, list[Any]]]:
        """Those of compilations apart: one that takes long, as on a busy machine, has a bar too."""
        return [
            (token, reports)
            for token, reports in self.client.progress_reports.items()
            if compilations == str(token).startswith("orbit/compile ")  # known before the bar's title comes
        ]

    async def cancel_bar(self) -> None:
        """As the cross of a compilation's progress does."""
        ((token, _),) = await self.until(lambda: self._bars(compilations=True))
        self.client.window_work_done_progress_cancel(lsp.WorkDoneProgressCancelParams(token))

    def ended(self, *, compilations: bool = False) -> list[str]:
        """What was said at the end of runs, or of compilations that took long enough for a bar."""
        return [
            reports[-1].message
            for _, reports in self._bars(compilations=compilations)
            if reports and isinstance(reports[-1], lsp.WorkDoneProgressEnd)
        ]

    def diagnostics(self) -> list[tuple[str, int, int, int, str]]:
        return [
            (
                str(diagnostic.source),
                diagnostic.range.start.line,
                diagnostic.range.start.character,
                diagnostic.range.end.character,
                diagnostic.message,
            )
            for diagnostic in self.client.diagnostics.get(self.uri, [])
            if diagnostic.message != labels.COMPILING
        ]

    def messages(self) -> list[str]:
        return [message.message for message in self.client.messages]

    def _document(self) -> lsp.TextDocumentIdentifier:
        return lsp.TextDocumentIdentifier(self.uri)


def _source(function: Callable[..., Any]) -> str:
    try:
        return " ".join(inspect.getsource(function).split())
    except (OSError, TypeError):
        return repr(function)


@pytest.fixture(scope="session")
def recorded_python(tmp_path_factory: pytest.TempPathFactory, of_the_run: Path) -> str:
    """A 'Python' that answers as the worker did on an H100 (see recorded_worker.py)."""
    reports = of_the_run / "reports"
    reports.mkdir(exist_ok=True)
    script = tmp_path_factory.mktemp("recorded") / "recorded-python"
    command = f'"{sys.executable}" "{HERE / "recorded_worker.py"}" "$@" --read "{reports}"'
    script.write_text(f"#!/bin/sh\nexec {command}\n")
    script.chmod(0o755)
    return str(script)


@pytest.fixture(autouse=True)
def display(monkeypatch: pytest.MonkeyPatch) -> None:
    """A browser is offered only where it can have a window."""
    monkeypatch.setenv("DISPLAY", ":0")


@pytest.fixture
async def start(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Callable[..., Any]]:
    """start(editor name, **settings) -> Editor; every server it started is shut down at the end.

    Each is a process of its own. It is forked from one that has imported everything; `forked=False` starts it as an
    editor does. `markdown` is the parser of it that the editor says to have. `constants` are other values of constants of
    the server's modules, as "orbit_lsp.server.handlers.SETTINGS_S".
    """
    started: list[Editor] = []
    conversations = request.node.stash.setdefault(CONVERSATIONS, [])
    folder = tmp_path / "workspace"
    folder.mkdir()

    async def begin(
        name: str,
        *,
        encoding: str | None = None,
        markdown: str | None = None,
        withhold_settings: bool = False,
        forked: bool = True,
        constants: Mapping[str, Any] | None = None,
        **settings: Any,
    ) -> Editor:
        offered = capabilities(name)
        if encoding:
            offered = attrs.evolve(
                offered,
                general=lsp.GeneralClientCapabilities(
                    position_encodings=[lsp.PositionEncodingKind(encoding)]
                ),
            )
        if markdown:
            parser = lsp.MarkdownClientCapabilities(markdown)
            offered = attrs.evolve(offered, general=lsp.GeneralClientCapabilities(markdown=parser))
        number = len(conversations) + 1
        conversations.append(Conversation(f"{name}, server {number}", tmp_path / f"server-{number}.log"))
        client = Client(conversations[-1])
        editor = Editor(client, folder, name)
        if withhold_settings:
            editor.withheld = []
        _listen(client, editor, conversations[-1])
        await client.begin(folder, forked=forked, constants=constants)
        started.append(editor)
        # what is typed is compiled where a test is about that: elsewhere figures of another text are looked at
        options = {"gpu": "H100", "compile_on_idle": False, "every_gpu": "hover"} | settings
        answer = await client.initialize_session(
            lsp.InitializeParams(
                capabilities=offered,
                client_info=lsp.ClientInfo(name),
                process_id=None,
                root_uri=folder.as_uri(),
                workspace_folders=[lsp.WorkspaceFolder(folder.as_uri(), "workspace")],
                initialization_options=options,
            )
        )
        chosen = answer.capabilities.position_encoding
        editor.encoding = str(getattr(chosen, "value", chosen) or "utf-16")
        return editor

    yield begin
    for editor in started:
        if not editor.over:
            await editor.close()


def _listen(client: LanguageClient, editor: Editor, conversation: Conversation) -> None:
    """Wake whoever waits, after every message of the server."""
    handle = client.protocol.handle_message

    async def wake() -> None:
        async with editor.told:
            editor.told.notify_all()

    def heard(message: Any) -> None:
        conversation.add("<-", message)
        if editor.withheld is None or getattr(message, "method", "") != lsp.WORKSPACE_CONFIGURATION:
            handle(message)
        else:
            editor.withheld.append(message)
        editor.heard += hasattr(message, "method")
        asyncio.get_running_loop().create_task(wake())

    client.protocol.handle_message = heard  # type: ignore[method-assign]
    for method in (lsp.WORKSPACE_INLAY_HINT_REFRESH, lsp.WORKSPACE_CODE_LENS_REFRESH):
        client.feature(method)(lambda params, method=method: editor.refreshed.append(method))
    client.feature(lsp.CLIENT_REGISTER_CAPABILITY)(
        lambda params: editor.registered.extend(params.registrations)
    )
