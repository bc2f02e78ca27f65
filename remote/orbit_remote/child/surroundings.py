"""Gives a prepared process the environment of its client. Nobody knew which client it would be when it was prepared."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Mapping

_given: dict[str, str] = dict(os.environ)
"""What this process was given, at its start or by the last job: variables that differ from it were set by ourselves."""


def become(environment: Mapping[str, str]) -> None:
    """Give this process the variables of a job. Those that we have set for the recorder and Triton stay."""
    global _given  # noqa: PLW0603 - a property of the process
    for name in _given.keys() | environment.keys():
        if os.environ.get(name) != _given.get(name):
            continue
        if name in environment:
            os.environ[name] = environment[name]
        else:
            os.environ.pop(name, None)
    _given = dict(environment)
    tempfile.tempdir = None  # kept from the first time that somebody asked
    if hasattr(time, "tzset"):
        time.tzset()
