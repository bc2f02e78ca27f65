"""What an editor is told, and when again. The client is acted: it notes what is published."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from lsprotocol import types as lsp

from orbit_lsp.server.notifier import Notifier
from orbit_lsp.state.results import Problems
from orbit_lsp.views import hints, lenses
from orbit_remote.common import messages as c
from tests.loop_check import settled
from tests.test_views import PTXAS, SAXPY, URI, Bench


@pytest.mark.parametrize(
    ("drops_old_versions", "published"),
    [
        # Helix drops what is about a version that it has left: without the second one the mark would be lost
        (True, [(1, ["late"]), (2, ["late"]), (2, []), (3, [])]),
        (False, [(1, ["late"]), (2, [])]),
    ],
)
async def test_diagnostics_of_a_version_that_the_client_has_left_are_said_again(
    drops_old_versions: bool, published: list[tuple[int, list[str]]]
) -> None:
    bench, messages = Bench(), list[tuple[int | None, list[str]]]()
    bench.session.client.mirror_hints = drops_old_versions

    def publish(params: lsp.PublishDiagnosticsParams) -> None:
        messages.append((params.version, [diagnostic.message for diagnostic in params.diagnostics]))

    client: Any = SimpleNamespace(
        client_capabilities=lsp.ClientCapabilities(), text_document_publish_diagnostics=publish
    )
    watcher = Notifier(client, bench.session)

    async def flush() -> None:
        watcher.changed({URI})
        await settled()

    late = c.Problem("warning", "late", "nvcc", c.Place("/src/k.cu", 1))
    bench.session.results.keep_problems("test", {URI: Problems(1, (late,))})
    await flush()
    bench.typed(3, 0, 0, " ")
    await flush()
    bench.session.results.keep_problems("test", {})
    await flush()
    bench.typed(3, 0, 0, " ")
    await flush()
    assert messages == published


async def test_refreshes_are_sent_for_lenses_and_hints_that_the_client_does_not_have() -> None:
    """One open, one keystroke, its undo and a click that finds no GPU, with all that is said to have changed meanwhile."""
    bench, refreshed = Bench(), list[str]()
    supports: Any = SimpleNamespace(refresh_support=True)
    workspace = lsp.WorkspaceClientCapabilities(inlay_hint=supports, code_lens=supports)
    client: Any = SimpleNamespace(
        client_capabilities=lsp.ClientCapabilities(workspace=workspace),
        text_document_publish_diagnostics=lambda params: None,
        workspace_inlay_hint_refresh=lambda params: refreshed.append("hints"),
        workspace_code_lens_refresh=lambda params: refreshed.append("lenses"),
    )
    watcher = Notifier(client, bench.session)

    def asks() -> None:
        lenses.answer(bench.session, URI)
        hints.answer(bench.session, URI, 0, 99)

    async def told_after() -> list[str]:
        for uris in ({URI}, set[str](), {URI, "file:///src/unknown.cu"}):
            watcher.changed(uris)
            await settled()
        told = list(refreshed)
        refreshed.clear()
        if told:
            asks()
        return told

    assert await told_after() == ["lenses"]  # also a client that has not asked yet
    bench.built(PTXAS)
    assert await told_after() == ["hints"]
    bench.typed(1, 9, 10, "1")
    asks()  # as after each edit: what is stale is no news
    assert await told_after() == []
    bench.built(PTXAS)
    assert await told_after() == ["hints"]
    bench.typed(1, 9, 10, "0")
    asks()
    bench.built(PTXAS)
    assert await told_after() == ["hints"]
    bench.ran(outcome="infrastructure", failure=c.Failure("infrastructure", "no GPU"))
    assert await told_after() == ["lenses"]


async def test_a_hint_outside_of_what_the_client_has_asked_for_is_news_once() -> None:
    bench = Bench(SAXPY + "\n" * 50 + SAXPY.replace("saxpy", "axpby").replace("int main", "int more"))
    bench.built(PTXAS, replace(PTXAS, name="axpby", symbol="_Z5axpbyiPf"))
    hints.answer(bench.session, URI, 0, 9)
    assert [hints.are_news(bench.session, URI) for _ in range(2)] == [True, False]
    hints.answer(bench.session, URI, 0, 9)
    assert not hints.are_news(bench.session, URI)
