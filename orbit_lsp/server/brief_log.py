"""A server's log that stays short: no client can fill a disk by invalid messages."""

from __future__ import annotations

import logging
from collections import Counter

from orbit_remote.common.plain_text import visible

_REPEATED = 20
_CHARACTERS = 2_000


class BriefLog(logging.Filter):
    """Logs at most 20 of pygls' remarks of each kind, without the stack and never at length."""

    def __init__(self) -> None:
        super().__init__()
        self._counts: Counter[str] = Counter()

    def filter(self, record: logging.LogRecord) -> bool:
        if not record.name.startswith("pygls"):
            return True
        kind = str(record.msg)[:100]
        self._counts[kind] += 1
        text = visible(record.getMessage().partition("\n")[0][:_CHARACTERS])
        if error := record.exc_info[1] if record.exc_info else None:
            text += f" ({type(error).__name__}: {visible(str(error)[:300])})"
        if self._counts[kind] == _REPEATED:
            text += " (what follows of this kind is not logged)"
        record.msg, record.args, record.exc_info = text, (), None
        return self._counts[kind] <= _REPEATED
