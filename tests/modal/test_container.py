"""What the container's side does without Modal: names of files both ways, and answers that are too large."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from orbit_remote.common import messages as c
from orbit_remote.common.measurements import Metric, Timing
from orbit_remote.modal_app import container as modal_container
from orbit_remote.modal_app.facts import facts
from orbit_remote.process.author_paths import Paths

POSIX = Paths((("/home/u/k", "/orbit/trees/ab"), ("/opt/inc", "/orbit/trees/ab/.outside/1")))
WINDOWS = Paths(((r"C:\Users\u\k", "/orbit/trees/ab"),))


@pytest.mark.parametrize(
    ("paths", "there", "here"),
    [
        (POSIX, "/home/u/k/a/b.cu", "/orbit/trees/ab/a/b.cu"),
        (POSIX, "/home/u/k", "/orbit/trees/ab"),
        (POSIX, "-I/home/u/k/include", "-I/orbit/trees/ab/include"),
        (POSIX, "-isystem=/opt/inc", "-isystem=/orbit/trees/ab/.outside/1"),
        (POSIX, '-DDATA="/home/u/k/x.bin"', '-DDATA="/orbit/trees/ab/x.bin"'),
        (POSIX, "/home/u/kernels/x.cu", "/home/u/kernels/x.cu"),  # another folder
        (WINDOWS, r"C:\Users\u\k\a\b.cu", "/orbit/trees/ab/a/b.cu"),
        (WINDOWS, r"c:/Users/u/k/a/b.cu", "/orbit/trees/ab/a/b.cu"),
        (WINDOWS, r"-IC:\Users\u\k\inc", "-I/orbit/trees/ab/inc"),
    ],
)
def test_a_name_of_the_authors_as_it_is_in_the_container(paths: Paths, there: str, here: str) -> None:
    assert paths.inward(there) == here


@pytest.mark.parametrize(
    ("paths", "here", "there"),
    [
        (POSIX, "/orbit/trees/ab/a/b.cu", "/home/u/k/a/b.cu"),
        (POSIX, "/orbit/trees/ab/.outside/1/x.cuh", "/opt/inc/x.cuh"),
        (POSIX, "cannot open '/orbit/trees/ab/x.bin'", "cannot open '/home/u/k/x.bin'"),
        (POSIX, "/orbit/trees/abc/x", "/orbit/trees/abc/x"),  # another tree
        (WINDOWS, "in /orbit/trees/ab/a/b.cu: wrong", r"in C:\Users\u\k\a\b.cu: wrong"),
    ],
)
def test_a_name_in_the_container_as_the_author_knows_it(paths: Paths, here: str, there: str) -> None:
    assert paths.outward(here) == there


def test_what_a_program_prints_is_left_as_it_is() -> None:
    answer = {"kind": "output", "text": "/orbit/trees/ab/x"}
    assert POSIX.event(answer) == answer
    record = {"kind": "finished", "stdout": "/orbit/trees/ab/x", "remarks": ["/orbit/trees/ab/x"]}
    assert POSIX.event(record) == record | {"remarks": ["/home/u/k/x"]}


def test_a_profilers_report_that_is_too_large_goes_and_its_numbers_stay() -> None:
    metric = Metric("gpu__time_duration.sum", 1000.0, "ns")
    profile = c.Profile("_Z1k", "k", "counters", metrics={metric.name: metric})
    whole = json.loads(c.encode(c.Finished("r1", "ok", profiles=(profile,), report="A" * 200_000)))
    cut = modal_container.bounded(whole, 50_000)
    assert (cut["report"], cut["profiles"]) == ("", whole["profiles"])
    assert cut["remarks"] == ["the answer was too large to be sent whole; cut: the profiler's own report"]


def test_what_the_compiler_made_goes_after_the_report() -> None:
    dump = c.Dump("_Z1k", "k", "sass", text="/orbit/trees/ab/" * 10_000)
    whole = json.loads(c.encode(c.Finished("r1", "ok", dumps=(dump,), report="A" * 200_000)))
    assert modal_container.bounded(whole, 200_000)["dumps"] == whole["dumps"]
    cut = modal_container.bounded(whole, 50_000)
    assert (cut["report"], cut["dumps"]) == ("", [])
    assert "the profiler's own report, what the compiler made of the kernels" in cut["remarks"][0]
    assert POSIX.event(whole)["dumps"] == whole["dumps"]  # packed text has no names


def test_a_result_too_large_is_cut_where_it_hurts_least_and_says_so() -> None:
    timing = Timing(9, 100.0, "in program", samples=tuple(range(20_000)))
    launch = c.Launches("s", "saxpy", (1, 1, 1), (1, 1, 1), timing, 9)
    whole = json.loads(c.encode(c.Finished("r1", "ok", launches=(launch,), stdout="x" * 200_000)))
    assert modal_container.bounded(whole, 1 << 30) == whole
    cut = modal_container.bounded(whole, 50_000)
    assert len(json.dumps(cut)) < 60_000
    assert cut["launches"][0]["timing"]["median"] == 100.0
    assert cut["launches"][0]["timing"]["samples"] == []
    assert cut["truncated"]
    assert cut["remarks"] == ["the answer was too large to be sent whole; cut: single samples, stdout"]


def test_what_a_container_is_like_is_asked_without_leaving_anything(tmp_path: Path) -> None:
    told = facts(tmp_path, None, lambda: Path("/nowhere").unlink())
    assert told["python"].startswith(sys.version.split()[0])
    assert told["volume: a time set"].endswith(" ms")
    assert told["volume: commit"] == "none"
    assert told["volume: reload"] == "FileNotFoundError: [Errno 2] No such file or directory: '/nowhere'"
    assert all(isinstance(value, str) for value in told.values())
    assert not list(tmp_path.iterdir())
