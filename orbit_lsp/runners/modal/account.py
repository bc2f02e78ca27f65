"""Finds whether this machine knows a Modal account, and how to get one, without importing `modal`."""

from __future__ import annotations

import importlib.util
import os
import shlex
import sys
from pathlib import Path
from typing import Any, cast

from orbit_remote.common import limits, regular_files
from orbit_remote.common.packages import installing

NO_TOKEN = "there is no Modal token on this machine"  # noqa: S105 - not a password
_BY_HAND = (
    "make a token at modal.com/settings/tokens, put it into MODAL_TOKEN_ID and MODAL_TOKEN_SECRET, and start the "
    "editor or the command from there"
)


def configured() -> bool:
    """Say whether there is a token in the environment or in Modal's own file. Only Modal knows whether it is valid."""
    return token_place() is not None


def client(words: str) -> str:
    """Return a command of Modal's own client for a shell: `modal` itself is seldom on PATH."""
    return f"{installing.quoted(sys.executable)} -m modal {words}"


def installed() -> bool:
    return importlib.util.find_spec("modal") is not None


def token_place() -> str | None:
    """Return where the token stands, in words. Return None if there is none."""
    if os.environ.get("MODAL_TOKEN_ID") and os.environ.get("MODAL_TOKEN_SECRET"):
        return "MODAL_TOKEN_ID"
    if (path := _file()) is None:
        return None
    try:
        text = regular_files.read(path, limits.STATE).decode()
        import tomllib  # 3 ms that those without an account do without

        profiles = tomllib.loads(text)
    except (OSError, ValueError, RuntimeError):
        return None
    named = os.environ.get("MODAL_PROFILE")
    tables = {
        name: cast("dict[str, Any]", profile)
        for name, profile in profiles.items()
        if isinstance(profile, dict)
    }
    active = named or next((name for name, table in tables.items() if table.get("active")), "default")
    account = tables.get(active, {})
    known = account.get("token_id") or account.get("oauth_refresh_token")
    return str(path) if known else None


def stamp() -> object:
    """Return a stamp of Modal's file, which stays equal while the file is the same. It is needed for each lens, so it
    reads nothing.
    """
    try:
        about = path.stat() if (path := _file()) else None
    except OSError:
        return None
    return about and (about.st_ino, about.st_size, about.st_mtime_ns)


def new_token() -> list[str]:
    """Return the command that makes a token, in the Python that has Modal's client. It has -P, so that no `modal.py`
    of a workspace is imported in its place.
    """
    profile = os.environ.get("MODAL_PROFILE")
    return [sys.executable, "-P", "-m", "modal", "token", "new", *(["--profile", profile] if profile else [])]


def remedy() -> str:
    """Return how to get a token here, with what works in this environment."""
    path = _file()
    if "MODAL_TOKEN_ID" in os.environ or path is None or not _writable(path):  # variables go before the file
        return _BY_HAND
    return f"`{shlex.join(new_token())}` makes a token"


def makes_token() -> bool:
    """Say whether the command can be carried out here."""
    return remedy() is not _BY_HAND


def _file() -> Path | None:
    """Return Modal's own file, which need not exist. Return None for a user without a home folder."""
    try:
        return Path(os.environ.get("MODAL_CONFIG_PATH") or Path.home() / ".modal.toml")
    except RuntimeError:
        return None


def _writable(path: Path) -> bool:
    return os.access(path if path.exists() else path.parent, os.W_OK)
