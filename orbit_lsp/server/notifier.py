"""Tells an editor about runs: progress, log, messages, new diagnostics, lenses and hints."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from lsprotocol import types as lsp

from orbit_lsp.runners.modal import spending
from orbit_lsp.runs import summary
from orbit_lsp.runs.scheduler import Run
from orbit_lsp.server.run_log import RunLog
from orbit_lsp.state.session import Session
from orbit_lsp.views import diagnostics, hints, lenses
from orbit_remote.common import messages as c
from orbit_remote.common.plain_text import plain

if TYPE_CHECKING:
    from pygls.lsp.server import LanguageServer


log = logging.getLogger("orbit.editor")

_QUIET_S = 0.7
"""A compile that ends sooner shows nothing of itself: it would only flicker."""
BAR_S = 3.0
"""How long a client may take to make a progress bar: what a run came to is said without one where the request was lost."""


class Notifier:
    def __init__(
        self, server: LanguageServer, session: Session, settled: Callable[[str], bool] = lambda _: True
    ) -> None:
        """Make a notifier. `settled` says whether diagnostics of a file can be made now; if not, `changed` is called
        once they can.
        """
        self._settled = settled
        self._server = server
        self._session = session
        self._bars: dict[str, _Bar] = {}
        self._dirty: set[str] = set()
        self._flushes = False
        self._published: dict[str, tuple[list[lsp.Diagnostic], int | None]] = {}
        """What was published last of a file, and for which version of it."""
        self._shown: set[str] = set()
        self._quiet: dict[str, asyncio.TimerHandle] = {}
        """Files that are compiled, until `compiled` is called."""
        self._asked: set[str] = set()
        """Compilations whose end somebody waits for."""
        self.runs = RunLog()
        self.lacking_gpu: Callable[[str], object] = self.message
        """What says that a click found no GPU."""

    # -- a run's life -------------------------------------------------------------------------

    def asked(self, run: Run) -> None:
        """Take note that the author asked for this compilation: its end is always a message."""
        self._asked.add(run.id)

    def compiles(self, uri: str) -> None:
        """Take note that a compilation begins, or the search for how a file is compiled. If it takes long, the file's
        kernels say so.
        """
        if uri not in self._quiet:
            self._quiet[uri] = asyncio.get_running_loop().call_later(_QUIET_S, self._takes_long, uri)

    def compiled(self, uri: str) -> None:
        """Take note that a compilation has ended."""
        if timer := self._quiet.pop(uri, None):
            timer.cancel()
        if uri in self._session.compiling:
            self._session.compiling.discard(uri)
            self.changed({uri})

    def _takes_long(self, uri: str) -> None:
        self._session.compiling.add(uri)
        self.changed({uri})

    def begin(self, run: Run, cancel: Callable[[], object]) -> None:
        if run.action == "compile":
            self.compiles(run.frozen.uri)
        else:
            self._written(self.runs.begin(run))
        window = self._server.client_capabilities.window
        if window and window.work_done_progress and not run.renews:
            self._bars[run.id] = _Bar(self._server, run, cancel)

    def stage(self, run: Run, state: c.State, why: str) -> None:
        if bar := self._bars.get(run.id):
            bar.report(f"{state}: {why}" if why else state)
        if run.action != "compile":
            self.changed({run.frozen.uri})

    def output(self, run: Run, stream: str, text: str) -> None:
        shown = self.runs.output(run, text)
        if self._session.client.takes_output:
            self._written(shown)
            return
        for line in plain(text).splitlines():
            self.log(f"[{run.id} {stream}] {line}" if stream == "stderr" else f"[{run.id}] {line}")

    def _written(self, text: str) -> None:
        """Append a text to the client's own log of runs."""
        if text and self._session.client.takes_output:
            self._server.protocol.notify("orbit/output", {"text": text})

    def debugger(self, run: Run, debugger: c.Debugger) -> None:
        del run
        program = ", ".join(map(str, debugger.program))
        name = f"{debugger.kernel}, program ({program})"
        if self._session.client.debugs:
            values = {"name": name, "host": debugger.host, "port": debugger.port}
            self._server.protocol.notify("orbit/debug", values)
        else:
            address = f"{debugger.host}:{debugger.port}"
            self.message(f"orbit: attach a debugger for Python to {address}, within a minute: {name}")
        if debugger.why:
            self.message(f"orbit: {name}: {debugger.why}")

    def end(self, run: Run, finished: c.Finished) -> None:
        if run.action == "compile":
            self.compiled(run.frozen.uri)
        kernel = run.title.partition(" ")[2]
        text = summary.one_line(finished, compiled_only=run.action == "compile", kernel=kernel)
        if run.action == "compile" and finished.outcome == "ok":
            text = summary.only_helpers(finished, run.frozen.scan.kernels) or text
        if run.action == "debug" and finished.outcome == "ok":
            text = "the debugger has ended"
        if run.action == "compile" and finished.outcome == "cancelled" and run.id not in self._asked:
            text = ""  # a newer text is compiled; nobody cancelled
        message = self._message_of(run, finished)
        if run.action != "compile":
            self._written(self.runs.end(run, finished.outcome, text))
            if not self._session.client.takes_output:
                self.log(f"[{run.id}] {run.title}: {text}", lsp.MessageType.Info)
        asked = run.id in self._asked
        self._asked.discard(run.id)
        already = message in self._shown and run.action == "compile" and not asked
        self._shown |= {message} if message else set()

        def then() -> None:
            if message and finished.failure and spending.lacks_gpu(finished.failure) and not run.live:
                self.lacking_gpu(message)
            elif message and not already:
                self.message(message, lsp.MessageType.Info if run.harmless else lsp.MessageType.Error)
            elif asked:
                self.message(f"orbit: {run.title}: {text}")

        if bar := self._bars.pop(run.id, None):
            bar.end(
                "" if message or asked else text, then
            )  # one message an event, and progress never after it
        else:
            then()

    def _message_of(self, run: Run, finished: c.Finished) -> str:
        """Return the message for a run that has no line to stand on. Return "" if there is none."""
        failure, outcome = finished.failure, finished.outcome
        shown = outcome in ("runtime error", "wrong answer") and bool(
            failure and (failure.place or finished.problems)
        )
        # a comparison's compile error is of another text than the editor has
        shown = shown or (outcome == "compile error" and not (run.refused or run.of_several))
        shown = shown and run.action != "debug"  # it leaves nothing on a line
        unasked = run.renews or (run.live and outcome != "infrastructure")
        if failure is None or outcome == "cancelled" or shown or unasked:
            return ""
        return summary.explained(failure)

    # -- views --------------------------------------------------------------------------------

    def changed(self, uris: set[str]) -> None:
        """Tell the client soon that views of these files changed. It is told once for all changes in this turn of the
        loop.
        """
        if not self._flushes:
            asyncio.get_running_loop().call_soon(self._flush)
        self._flushes = True
        self._dirty |= uris

    def forget(self, uri: str) -> None:
        """A file was closed: its messages go."""
        self.compiled(uri)
        known, _ = self._published.pop(uri, ([], None))
        if known:
            self._server.text_document_publish_diagnostics(lsp.PublishDiagnosticsParams(uri, []))

    def _flush(self) -> None:
        uris, self._dirty, self._flushes = self._dirty, set(), False
        settled = [uri for uri in uris if self._settled(uri)]
        for uri in settled:
            fresh = diagnostics.diagnostics(self._session, uri)
            file = self._session.files.get(uri)
            version = file.document.version if file else None
            if self._is_news(uri, fresh, version):
                self._published[uri] = fresh, version
                self._server.text_document_publish_diagnostics(
                    lsp.PublishDiagnosticsParams(uri, fresh, version)
                )
        workspace = self._server.client_capabilities.workspace
        of_hints = workspace.inlay_hint if workspace else None
        of_lenses = workspace.code_lens if workspace else None
        if of_hints and of_hints.refresh_support and self._any_news(settled, hints.are_news):
            self._server.workspace_inlay_hint_refresh(None)
        if of_lenses and of_lenses.refresh_support and self._any_news(settled, lenses.are_news):
            self._server.workspace_code_lens_refresh(None)
        if self._session.client.shows_panel:
            self._server.protocol.notify("orbit/panelChanged", {})

    def _any_news(self, uris: list[str], are_news: Callable[[Session, str], bool]) -> bool:
        """Return whether the client has to draw something else for one of these files. If there are many kernels, an
        event may not take the time to find out: then the client is told to ask.
        """
        news = [
            len(self._session.kernels(uri)) > lenses.AT_ONCE or are_news(self._session, uri)
            for uri in uris
            if uri in self._session.files
        ]
        return any(news)

    def _is_news(self, uri: str, fresh: list[lsp.Diagnostic], version: int | None) -> bool:
        """Say whether diagnostics differ from those published. The same ones count as news too if the client may have
        left their version: Helix drops those.
        """
        known, of_version = self._published.get(uri, ([], version))
        return fresh != known or (self._session.client.mirror_hints and version != of_version)

    # -- words --------------------------------------------------------------------------------

    def once(self, text: str, kind: lsp.MessageType) -> None:
        """Show a message once that would otherwise come again at every save."""
        if text not in self._shown:
            self._shown.add(text)
            self.message(text, kind)

    def message(self, text: str, kind: lsp.MessageType = lsp.MessageType.Info) -> None:
        self._shown.add(text.removeprefix("orbit: "))  # a compile need not say it again
        self._server.window_show_message(lsp.ShowMessageParams(kind, text))

    async def ask(self, text: str, answers: Sequence[str]) -> str | None:
        """Ask a question with answers to choose from. Return None if it is closed. Raises spending.CannotAskError."""
        if not self._session.client.can_ask:
            raise spending.CannotAskError
        items = [lsp.MessageActionItem(answer) for answer in answers]
        params = lsp.ShowMessageRequestParams(lsp.MessageType.Info, text, items)
        try:
            answer = await self._server.window_show_message_request_async(params)
        except Exception as error:  # noqa: BLE001 - the client said that it could
            log.warning("the client did not put a question: %s", error)
            raise spending.CannotAskError from None
        return answer.title if answer else None

    def table(self, text: str, *, titled: bool = True) -> None:
        """Write a table to the client's log of runs, or to its log if it has none. Not `titled`: a message is the
        first line.
        """
        if self._session.client.takes_output:
            self._written((text if titled else text.partition("\n")[2]) + "\n")
        else:
            self.log(text, lsp.MessageType.Info)

    def log(self, text: str, kind: lsp.MessageType = lsp.MessageType.Log) -> None:
        self._server.window_log_message(lsp.LogMessageParams(kind, text))


def _nothing() -> None:
    pass


class _Bar:
    """One progress bar. Its updates wait until the client has agreed to show it."""

    def __init__(self, server: LanguageServer, run: Run, cancel: Callable[[], object]) -> None:
        self._server = server
        self._run = run
        self._cancel = cancel
        # Helix 25.01 shows the token itself
        self._token = f"orbit/{run.action} {run.title.partition(' ')[2]} {run.id}"
        self._steps: asyncio.Queue[tuple[str, bool]] = asyncio.Queue()
        self._then: Callable[[], object] = _nothing
        self._task = asyncio.create_task(self._show(), name=self._token)

    def report(self, text: str) -> None:
        self._steps.put_nowait((text, False))

    def end(self, text: str, then: Callable[[], object]) -> None:
        """End the bar. `then` is called once it has disappeared, or was refused."""
        self._then = then
        self._steps.put_nowait((text, True))

    async def _show(self) -> None:
        if not await self._shown():
            while not (await self._steps.get())[1]:
                pass
        self._then()

    async def _shown(self) -> bool:
        """Show the bar until its end, and return True. Return False if there is no bar."""
        ending, over = "", False
        if self._run.action == "compile":
            try:
                async with asyncio.timeout(_QUIET_S):
                    while not over:
                        ending, over = await self._steps.get()
            except TimeoutError:
                pass
            if over:
                return True
        progress: Any = self._server.work_done_progress  # its futures are not typed
        try:
            async with asyncio.timeout(BAR_S):
                await progress.create_async(self._token)
        except Exception as error:  # noqa: BLE001 - the client would not: no bar, the run goes on
            log.warning("no progress for %s: %s", self._token, error)
            return over
        progress.tokens[self._token].add_done_callback(self._cancelled)
        progress.begin(
            self._token, lsp.WorkDoneProgressBegin(self._run.title, cancellable=True, message=ending or None)
        )
        while True:
            ending, over = await self._steps.get()
            if over:
                break
            progress.report(self._token, lsp.WorkDoneProgressReport(message=ending, cancellable=True))
        progress.end(self._token, lsp.WorkDoneProgressEnd(message=ending or None))
        progress.tokens.pop(self._token, None)  # pygls 2.1.1 never does (issue 607)
        return True

    def _cancelled(self, future: Any) -> None:
        if future.cancelled():
            self._cancel()
