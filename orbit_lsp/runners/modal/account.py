"""Whether this machine knows a Modal account, found without importing `modal`."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from typing import Any, cast

from orbit_remote.common import limits, regular_files


def configured() -> bool:
    """A token in the environment or in Modal's own file; whether it is a good one, only Modal knows."""
    return token_place() is not None


def installed() -> bool:
    return importlib.util.find_spec("modal") is not None


def token_place() -> str | None:
    """Where the token stands, in words; None where there is none."""
    if os.environ.get("MODAL_TOKEN_ID") and os.environ.get("MODAL_TOKEN_SECRET"):
        return "MODAL_TOKEN_ID"
    path = Path(os.environ.get("MODAL_CONFIG_PATH") or Path.home() / ".modal.toml")
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
