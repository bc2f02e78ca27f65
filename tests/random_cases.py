"""Property tests: how many random inputs each tries."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

Test = TypeVar("Test", bound=Callable[..., Any])

ENCODABLE = st.characters(exclude_categories=["Cs"])
"""The characters of `st.text()`: all that UTF-8 has. Hypothesis finds these by encoding each, 1.3 s of processor time in each process that
begins in a new clone.
"""
in_full = False
"""Set from `--slow` before any test is collected (tests/conftest.py)."""


def random_cases(count: int) -> Callable[[Test], Test]:
    """Decorate a test with `@given`: it tries `count` inputs with `--slow`, a tenth of them without.

    The inputs are the same in every run, so that a failure is a change of the code; `--hypothesis-seed` tries others.
    """
    tried = count if in_full else max(count // 10, 10)
    chosen = settings(
        max_examples=tried, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True
    )
    return lambda test: pytest.mark.random(chosen(test))
