"""Makes patterns that many modules define and few commands use. Each is compiled at its first use.

Compiling those of a short command takes 12 ms of its 90 ms of processor time (two-core machine); most are for build
files that it never meets. A pattern in a hot loop is better compiled at once: each use here costs one look-up more.
"""

from __future__ import annotations

import re
from typing import Any, cast


class _Later:
    def __init__(self, text: str, flags: int) -> None:
        self._text = text
        self._flags = flags

    def __getattr__(self, name: str) -> Any:
        method = getattr(re.compile(self._text, self._flags), name)
        setattr(self, name, method)  # found at once from now on
        return method


def lazy_pattern(text: str, flags: int = 0) -> re.Pattern[str]:
    """Return a pattern like `re.compile`, except for functions that check its type. A mistake in `text` is raised at
    its first use.
    """
    return cast("re.Pattern[str]", _Later(text, flags))
