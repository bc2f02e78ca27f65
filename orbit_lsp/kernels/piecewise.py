"""Searches in pieces: one call of `re` over megabytes would keep the interpreter from all other threads."""

from __future__ import annotations

import re
from typing import AnyStr

AT_ONCE = 1 << 16


def search(
    pattern: re.Pattern[AnyStr], text: AnyStr, start: int, end: int, longest: int
) -> re.Match[AnyStr] | None:
    """Return the first match within text[start:end]. `longest` is the most characters of a match and of the text
    behind it that decides about it.
    """
    for first in range(start, end, AT_ONCE):
        behind = first + AT_ONCE
        match = pattern.search(text, first, min(behind + longest, end))
        # where a piece ends, the beginning of a longer word looks like a whole word
        if match and match.start() < behind and (whole := pattern.match(text, match.start(), end)):
            return whole
    return None
