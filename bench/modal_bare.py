"""The least that an app on Modal can be which does what ours does: one event through a queue, one answer."""

from __future__ import annotations

import modal

app = modal.App("bare")


@app.cls()
class Bare:
    @modal.method()
    def run(self, request: bytes, blobs: dict[str, bytes], events: modal.Queue, run: str) -> bytes:
        del blobs  # sent, as ours are
        events.put(b"first", partition=run)
        return request
