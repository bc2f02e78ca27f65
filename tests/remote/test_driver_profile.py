"""Which launches of a driver a profile counts. What CUPTI counts of them is tried on a GPU: docs/dev/results/measurements-profile.md."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import pytest

from orbit_remote.child.driver.driver_profile import DriverProfile
from orbit_remote.common import messages as c
from orbit_remote.common.requests import Driver, DriverStart, Job
from orbit_remote.recording.recorder import Nothing
from orbit_remote.worker.actions import profile_action
from tests.later import Later

START = DriverStart(Driver("pytest", "test_scale.py", "test_scale"))
JOB = Job(
    "r1", "profile", "triton", __file__, "", kernel="scale", directory=str(Path(__file__).parent), start=START
)

torch: Any = Later("torch")
triton: Any = Later("triton")


@functools.cache
def kernel() -> Any:
    @triton.jit
    def scale(y, x, n, block: triton.language.constexpr):
        pass

    return scale


@pytest.fixture
def profile() -> DriverProfile:
    return DriverProfile(JOB, Nothing("no GPU"))


def launched(
    profile: DriverProfile, elements: int, block: int, *, grid: tuple[int, ...] = (1,), **options: int
) -> None:
    x = torch.zeros(elements)
    profile.see(kernel(), (x, x, elements), grid, {"block": block, **options})


def numbers(profile: DriverProfile) -> list[int]:
    return [taken.number for taken in profile.every]


def test_the_first_launch_of_each_configuration_is_taken(profile: DriverProfile) -> None:
    launched(profile, 64, 64)
    launched(profile, 32, 64)  # another size alone
    launched(profile, 64, 128)
    launched(profile, 64, 64, grid=(2,))
    launched(profile, 64, 64, num_warps=8)
    launched(profile, 64, 128)
    assert (profile.seen, numbers(profile)) == (6, [1, 3, 4, 5])


def test_sixteen_configurations_are_looked_at(profile: DriverProfile) -> None:
    for grid in range(1, 30):
        launched(profile, 64, 64, grid=(grid,))
    assert (profile.seen, numbers(profile)) == (29, list(range(1, 17)))


def test_of_a_driver_that_launches_nothing_there_is_no_profile(profile: DriverProfile) -> None:
    assert profile.relaunch(lambda: 1, lambda: None) is None
    assert profile.added(c.ok("r1")).profiles == ()


def test_what_is_not_counted_says_why(profile: DriverProfile) -> None:
    launched(profile, 64, 64)
    assert profile.relaunch(lambda: 7, lambda: None) == 7
    (made,) = profile.added(c.ok("r1")).profiles
    assert (made.name, made.tier) == ("scale", "times")
    assert made.why.startswith("launching it again failed: ")


def test_a_launch_that_cannot_be_made_again_says_why(profile: DriverProfile) -> None:
    profile.see(kernel(), (torch.zeros(4), object(), 4), (1,), {"block": 4})
    assert profile.relaunch(lambda: 7, lambda: None) is None
    (made,) = profile.added(c.ok("r1")).profiles
    assert made.why == "x is a object, which a launch spec cannot pass"


@pytest.mark.parametrize(
    ("language", "start", "detail", "by_cupti"),
    [
        ("triton", START, "click", True),
        ("triton", START, "full", False),
        ("cuda", DriverStart(Driver("program", "main.cu", tool="nvcc")), "click", True),
        ("cuda", START, "click", True),  # an extension's kernel
    ],
)
def test_which_profiles_through_drivers_cupti_counts(
    language: str, start: DriverStart, detail: str, by_cupti: bool
) -> None:
    job = Job("r1", "profile", language, __file__, "", start=start, detail=detail, directory="/src")
    assert profile_action.counts_by_cupti(job) is by_cupti
