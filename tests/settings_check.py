"""Settings from their values, all of which must be valid."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from orbit_lsp.state.config import Settings, parse


def settings_of_values(values: Mapping[str, Any]) -> Settings:
    settings, complaints = parse(dict(values))
    assert not complaints
    return settings
