"""Modules that are imported at their first use. Each process of pytest imports every file of tests, to know which there are; torch takes a
second of processor time, and most processes run no test that needs it.
"""

from __future__ import annotations

import importlib
from typing import Any


class Later:
    """What stands for the module; its attributes are the module's own. They cannot be replaced here: monkeypatch does it by the module's
    name.
    """

    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        # by such names pytest asks whatever stands in a file whether it is a test
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(importlib.import_module(self._name), name)
