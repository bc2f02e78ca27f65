"""A profile of a CUDA kernel through a driver in Python, without a GPU: what CUPTI counts is acted"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from orbit_remote.child.driver.extension_profile import ExtensionProfile
from orbit_remote.common import messages as c
from orbit_remote.common.requests import Driver, DriverStart, Job
from orbit_remote.counters import program_counts
from orbit_remote.recording import injection
from orbit_remote.recording.recorder import Native, Nothing
from tests import recorded_profiles
from tests.remote.test_program_counts import line_of

JOB = Job(
    "r1", "profile", "cuda", "/src/memory_bound.cu", "", kernel="saxpy", directory="/src",
    start=DriverStart(Driver("pytest", "test_k.py", "test_saxpy")),
)  # fmt: skip


@pytest.fixture
def recorder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Native:
    made = Native.__new__(Native)
    made.directory, made.cache = tmp_path, tmp_path
    cupti = injection.Cupti((), tmp_path, 130001, "CUpti_ActivityKernel10")
    monkeypatch.setattr(injection, "find", lambda **_: cupti)
    monkeypatch.setattr(program_counts.profiler, "library", lambda *_: tmp_path / "profiler.so")
    return made


def test_what_the_drivers_process_counted(recorder: Native, tmp_path: Path) -> None:
    profile = ExtensionProfile(JOB, recorder)
    with profile.counting():
        order = Path(os.environ["ORBIT_PROFILE"]).read_text()
        (tmp_path / "7.counted").write_text(json.dumps(line_of(recorded_profiles.profile("memory_bound"))))
    assert "ORBIT_PROFILE" not in os.environ
    assert order.startswith("pattern (^|[^0-9])5saxpy|^saxpy$\n")
    finished = profile.added(c.ok("r1"))
    assert [(made.name, made.source) for made in finished.profiles] == [("saxpy", "CUPTI 13.0")]


def test_a_kernel_that_the_driver_does_not_launch_has_no_profile(recorder: Native, tmp_path: Path) -> None:
    profile = ExtensionProfile(JOB, recorder)
    with profile.counting():
        (tmp_path / "7.counted").write_text('{"launched": ["_Z5otherPf"]}\n')
    assert profile.added(c.ok("r1")).profiles == ()


def test_where_nothing_can_be_counted_the_profile_says_why(recorder: Native) -> None:
    for each, why in ((Nothing(), "launches cannot be recorded here"), (recorder, "CUPTI could not come")):
        profile = ExtensionProfile(JOB, each)
        with profile.counting():
            pass
        (made,) = profile.added(c.ok("r1")).profiles
        assert (made.tier, made.why.startswith(why)) == ("times", True)
