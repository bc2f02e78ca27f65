"""What an editor is told, and when again. The client is acted: it notes what is published."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from lsprotocol import types as lsp

from orbit_lsp.server.notifier import Notifier
from orbit_lsp.state.results import Problems
from orbit_remote.common import messages as c
from tests.loop_check import settled
from tests.test_views import URI, Bench


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
