"""A fresh scan off the loop once typing has paused: what followed the edits must say the same.

The incremental scans are tested against fresh ones; this is for the case that a test has not met. A
difference is logged and the fresh scan taken.
"""

from __future__ import annotations

import ast
import asyncio
import logging
from collections.abc import Callable

from orbit_lsp import kernels
from orbit_lsp.kernels import Language, Tracker
from orbit_lsp.state.debounce import Pauses
from orbit_lsp.state.session import Session, header_reader

log = logging.getLogger("orbit.recheck")

PAUSE_S = 3.0


class Recheck:
    def __init__(self, session: Session, changed: Callable[[set[str]], None]) -> None:
        self._session = session
        self._changed = changed
        self._pauses = Pauses(self.check, "recheck")

    def edited(self, uri: str) -> None:
        """Check `uri` once it has not been edited for a while."""
        self._pauses.edited(uri, PAUSE_S)

    def forget(self, uri: str) -> None:
        self._pauses.forget(uri)

    def close(self) -> None:
        self._pauses.close()

    async def check(self, uri: str) -> bool:
        """Whether the scan was right, or was not looked at because the text moved on."""
        file = self._session.files.get(uri)
        if file is None:
            return True
        document, followed = file.document, file.scan
        fresh = await asyncio.to_thread(
            _fresh, followed.language, document.text, self._session.macros(), document.path
        )
        if fresh is None or file.scan is not followed or fresh.scan == followed:
            return True
        log.error("the scan that followed the edits of %s was wrong; a fresh one takes its place", uri)
        file.tracker = fresh
        self._changed({uri})
        return False


def _fresh(language: Language, text: str, macros: tuple[str, ...], path: str) -> Tracker | None:
    """None where a fresh scan need not agree: near a syntax error the followed one keeps its kernels."""
    if language == "triton":
        try:
            ast.parse(text)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return None
    return kernels.track(language, text, macros=macros, headers=header_reader(path))
