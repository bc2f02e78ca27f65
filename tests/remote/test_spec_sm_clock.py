"""The SM clock from what multiprocessors noted: nanoseconds and cycles before and after each round."""

from __future__ import annotations

import importlib.util

import pytest

from orbit_remote.child.spec.sm_clock import mean_mhz

pytestmark = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="no torch here")

Note = tuple[int, int]
NONE = (0, 0)


@pytest.mark.parametrize(
    ("rounds", "mhz"),
    [
        pytest.param([([(1000, 7000)], [(101_000, 207_000)])], 2000.0, id="one multiprocessor"),
        pytest.param(
            [([(1000, 0), (1000, 500)], [(101_000, 150_000), (101_000, 170_500)])], 1600.0, id="their mean"
        ),
        pytest.param(
            [([(1000, 0)], [(101_000, 100_000)]), ([(9000, 0)], [(309_000, 600_000)])],
            1750.0,
            id="longer rounds weigh more",
        ),
        pytest.param(
            [([(1000, 0), NONE], [(101_000, 190_000), (101_000, 9_000_000)])],
            1900.0,
            id="one that noted nothing before",
        ),
        pytest.param(
            [([(1000, 0), (1000, 50)], [(101_000, 190_000), NONE])], 1900.0, id="nor anything after"
        ),
        pytest.param([([NONE], [NONE])], None, id="no notes at all"),
        pytest.param([], None, id="no rounds"),
    ],
)
def test_mean_clock(rounds: list[tuple[list[Note], list[Note]]], mhz: float | None) -> None:
    import torch

    nothing = torch.zeros((0, 2, 1, 2), dtype=torch.int64)
    assert mean_mhz(torch.tensor(rounds).reshape(len(rounds), 2, -1, 2) if rounds else nothing) == mhz
