"""Cases of a test that costs much for each: the first go without a mark, the others with `--slow`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def first_of(cases: Iterable[Any], count: int = 1) -> list[Any]:
    """Return the parameters of a test; a tuple is the values of several."""
    return [
        case if number < count else pytest.param(*_values(case), marks=pytest.mark.slow)
        for number, case in enumerate(cases)
    ]


def _values(case: Any) -> tuple[Any, ...]:
    return case if isinstance(case, tuple) else (case,)
