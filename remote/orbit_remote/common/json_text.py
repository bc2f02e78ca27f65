"""JSON that somebody else has written, read with one kind of error for everything that can be wrong with it."""

from __future__ import annotations

import json
from typing import Any


def read(text: str | bytes) -> Any:
    """Raises ValueError for what is no JSON, and for what Python cannot read: nested too deeply, numbers too long."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
