"""The user's folders on each platform: what may be deleted at any time, and what is kept."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def cache_folder() -> Path:
    """For builds, reports and profiles."""
    return _folder("XDG_CACHE_HOME", ".cache", "Library/Caches")


def state_folder() -> Path:
    """For the history, the record of spending and trusted folders."""
    return _folder("XDG_STATE_HOME", ".local/state", "Library/Application Support")


def _folder(variable: str, default: str, macos: str) -> Path:
    """`variable` and `default` are those of the XDG specification, for Linux."""
    if os.name == "nt":
        base = os.environ.get("LOCALAPPDATA") or str(Path.home() / "AppData/Local")
    elif sys.platform == "darwin":
        base = str(Path.home() / macos)
    else:
        base = os.environ.get(variable, "")
        if not os.path.isabs(base):  # noqa: PTH117 - the XDG specification: such a value is ignored
            base = str(Path.home() / default)
    return Path(base) / "orbit-lsp"
