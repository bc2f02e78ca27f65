"""The judge on the CPU: its processes, locks, comparison and verdicts are those of a GPU; gates and kernels are not there.

What a GPU adds is in tests/gpu/test_cheats_gpu.py.
"""

from __future__ import annotations

import contextlib
import importlib.util
import mmap
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Generator
from pathlib import Path

import pytest

from orbit_remote.common import messages as c
from orbit_remote.common.requests import Policy
from orbit_remote.judge import channel, party
from orbit_remote.worker.actions import python_action
from tests import cheats, newer_cheats
from tests.cheats import Cheat

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="the judge is for Linux"),
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="no torch here"),
]

Judge = Callable[..., c.Finished]


@pytest.fixture
def judge(tmp_path: Path) -> Judge:
    from orbit_remote.judge import judge_main

    def run(
        text: str, reference: str = cheats.REFERENCE, limit_s: float = 120.0, allow: tuple[Policy, ...] = ()
    ) -> c.Finished:
        job = cheats.job_of(tmp_path, text, reference, limit_s=limit_s, allow=allow)
        return cheats.judge_in_a_fork(
            lambda: judge_main.judge(job, lambda _: None, tmp_path / "cache", "cpu", most_s=0.0)
        )

    return run


def median_s(finished: c.Finished) -> float:
    return finished.launches[0].timing.median / 1e9


def test_an_honest_kernel_gets_a_score_and_the_grade(judge: Judge) -> None:
    finished = judge(cheats.HONEST.text("cpu"))
    assert finished.outcome == "ok", finished
    assert finished.judged
    assert (finished.judged.grade, finished.judged.suspicious, finished.judged.clock) == (
        "referee",
        "",
        "host",
    )
    assert median_s(finished) >= cheats.SLEEP_S / 2
    assert [point.values["version"] for point in finished.points] == ["ModelNew", "Model"]


def test_memory_for_arguments_that_cannot_be_had_is_not_the_candidates_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from orbit_remote.judge import judge_main, memory

    def allocate(_: memory.HostMemory, size: int) -> memory.MappedMemory:
        raise OSError(f"cuMemAlloc_v2 failed with CUDA error 2, for {'some' if size else 'no'} bytes")

    monkeypatch.setattr(memory.HostMemory, "allocate", allocate)
    job = cheats.job_of(tmp_path, cheats.HONEST.text("cpu"))

    def judged() -> c.Finished:
        try:
            return judge_main.judge(job, lambda _: None, tmp_path / "cache", "cpu", most_s=0.0)
        except OSError as error:  # for which the job gets grade `author`
            return c.failed("1", c.Failure("infrastructure", str(error)))

    failure = cheats.judge_in_a_fork(judged).failure
    assert failure
    assert failure.message == "reference: OSError: cuMemAlloc_v2 failed with CUDA error 2, for some bytes"


@contextlib.contextmanager
def _group(*command: str | Path) -> Generator[subprocess.Popen[bytes]]:
    """A process that ends with all that it has started."""
    with subprocess.Popen(command, start_new_session=True) as process:
        try:
            yield process
        finally:
            os.killpg(process.pid, signal.SIGKILL)


def test_a_candidate_does_nothing_while_it_is_the_references_turn(tmp_path: Path) -> None:
    counted = tmp_path / "counted"
    counted.write_bytes(bytes(mmap.PAGESIZE))
    counting = """
import mmap, os, sys
with open(sys.argv[1], "r+b") as file: page = mmap.mmap(file.fileno(), 0)
at = int(os.fork() == 0)  # its own process counts, and one that it has started
while True: page[at] = (page[at] + 1) % 256
"""
    with (
        _group(sys.executable, "-c", counting, counted) as candidate,
        counted.open("rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as page,
    ):
        side = party.Party("ModelNew", channel.Channel(channel.pair()[0]), mmap.mmap(-1, 1), candidate.pid)
        while not all(page[:2]):
            os.sched_yield()
        with side.still():
            counts = page[:2]
            for _ in range(10_000):
                os.sched_yield()
            assert page[:2] == counts
        while page[0] == counts[0] or page[1] == counts[1]:
            os.sched_yield()


def test_what_a_candidate_starts_cannot_leave_it(judge: Judge) -> None:
    leaves = (
        "import ctypes\nif ctypes.CDLL(None).prctl(36, 0) == 0: raise OSError('init reaps its orphans')\n"
    )
    assert judge(leaves + cheats.HONEST.text("cpu")).outcome == "ok"


@pytest.mark.parametrize(
    ("finished", "text"),
    [
        (
            c.failed("1", c.Failure("wrong answer", "…"), judged=c.Judged("referee", "…", "work goes on after the end")),
            ("infrastructure: other processes used the GPU while the candidate was judged, and the result is suspicious: "
            "work goes on after the end; submit it again when the GPU is free"),
        ),
        (c.failed("1", c.Failure("wrong answer", "y[3] is 0"), judged=c.Judged("referee", "…")), "wrong answer: y[3] is 0; "),
        (c.ok("1", judged=c.Judged("referee", "…")), "ok"),
    ],
    ids=["suspicious", "wrong", "ok"],
)  # fmt: skip
def test_beside_other_programs_on_the_gpu_nobody_is_accused(finished: c.Finished, text: str) -> None:
    finished = python_action.undecided(finished)
    failure = finished.failure
    assert text == (
        f"{finished.outcome}: {failure.message}; {failure.remedy}" if failure else finished.outcome
    )


@pytest.mark.parametrize(
    ("inputs", "reference", "candidate", "answer"),
    [
        ("torch.randn(8, 4)", "x.sum()", "x.sum()", "ok"),
        ("torch.randn(())", "x * 2", "x * 2", "ok"),
        ("torch.randn(1, 4).expand(8, 4)", "(x[:1] * 2).expand(8, 4)", "x + x", "ok"),
        ("torch.randn(8, 4)", "x.t() * 2", "(x * 2).t().contiguous()", "ok"),
        ("torch.randn(8, 4).where(torch.rand(8, 4) > .5, float('nan'))", "x.nan_to_num(1.0)", "x.nan_to_num(1.0)", "ok"),
        ("torch.randn(8, 4)", "torch.where(x > 1, float('inf'), x)", "torch.where(x > 1, float('inf'), x)", "ok"),
        ("torch.randn(8, 4)", "torch.where(x > 1, float('inf'), x)", "x", "wrong answer: output"),
        ("torch.randn(8, 4)", "x[:0] * 2", "x[:0] * 2", "invalid reference: the reference gives the same answer"),
        ("torch.randn(0, 4)", "x * 2", "x * 2", "invalid reference: get_inputs gives the same arguments"),
        ("torch.randn(8, 4)", "x * 1e-40", "x * 1e-40", "invalid reference: the reference gives the same answer"),
        ("torch.randn(8, 4)", "1 / 0", "x", "invalid reference: ZeroDivisionError"),
        pytest.param(
            "torch.randn(8, 4)", "x", "exec('while True: print(1)') or x", "ModelNew did not end within", marks=pytest.mark.slow
        ),
    ],
)  # fmt: skip
def test_odd_tensors_and_bad_manners(
    judge: Judge, inputs: str, reference: str, candidate: str, answer: str
) -> None:
    text = cheats.REFERENCE.replace("torch.relu(x * 2 + 1)", reference).replace(
        "torch.randn(512, 1024)", inputs
    )
    new = f"import torch\nfrom torch import nn\nclass ModelNew(nn.Module):\n    def forward(self, x):\n        return {candidate}\n"
    finished = judge(new, text, limit_s=10.0 if "while" in candidate else 120.0)
    said = finished.failure.message if finished.failure else finished.outcome
    assert answer in said


def test_the_source_of_a_reference_is_known_in_the_candidates_process_too(judge: Judge) -> None:
    """As `@triton.jit` wants it; the candidate's process runs the reference's file for its inputs."""
    reference = f"{cheats.REFERENCE}\nimport inspect\nassert 'torch.randn' in inspect.getsource(get_inputs)\n"
    finished = judge(cheats.HONEST.text("cpu"), reference)
    assert finished.outcome == "ok", finished


def test_a_reference_as_people_write_them(judge: Judge, tmp_path: Path) -> None:
    """A seed of its own in each draw, a module and values beside it, parameters that the candidate names and draws otherwise."""
    (tmp_path / "shapes.py").write_text("ROWS = 64\n")
    (tmp_path / "scale.txt").write_text("2")
    reference = """
import torch
from pathlib import Path
from torch import nn
from shapes import ROWS
SCALE = float((Path(__file__).parent / "scale.txt").read_text())
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(16, 16)
    def forward(self, x):
        return self.linear(x) * SCALE
def get_inputs():
    return [torch.randn(ROWS, 16, generator=torch.Generator().manual_seed(42))]
def get_init_inputs(): return []
"""
    candidate = """
import torch
from torch import nn
class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.w, self.b = nn.Parameter(torch.zeros(16, 16)), nn.Parameter(torch.zeros(16))
    def forward(self, x):
        return (x @ self.w.t() + self.b) * 2
"""
    finished = judge(candidate, reference)
    assert (finished.outcome, finished.failure) == ("ok", None)
    assert any("so Model's were loaded into it" in remark for remark in finished.remarks)
    failing = judge(candidate, reference.replace("* SCALE", "* SCALES"))
    assert failing.failure
    assert failing.failure.place
    assert Path(failing.failure.place.file).name == "candidate.py"
    assert Path(failing.failure.place.file).parent == tmp_path
    assert failing.failure.place.line == 12


SHAPED = """
import torch
from torch import nn
ROWS = 8
class Model(nn.Module):
    def forward(self, x):
        return x.sum(1)
def get_inputs():
    return [torch.randn(ROWS, 16)]
def get_init_inputs(): return []
"""
FOR_ONE_SHAPE = """
import torch
from torch import nn
class ModelNew(nn.Module):
    def forward(self, x):
        {special}
        return torch.einsum("ij->i", x)
"""


@pytest.mark.parametrize(
    ("special", "failure"),
    [
        ("", None),
        ("if len(x) > 8: return x[:, 0]", "the largest error is .* for the shape ROWS = 24"),
        ("if len(x) > 8: raise ValueError('only 8')", r"ValueError: only 8 \(for the shape ROWS = 24\)"),
    ],
    ids=["for all", "wrong for another", "fails for another"],
)
def test_shapes_that_a_problem_states_are_checked_though_one_is_timed(
    judge: Judge, tmp_path: Path, special: str, failure: str | None
) -> None:
    """`shapes.py` beside the reference, as KernelBench-Hard has it (kind 27)."""
    (tmp_path / "shapes.py").write_text('SHAPES = [{"ROWS": 8}, {"ROWS": 24}, {"COLUMNS": 2}]\n')
    finished = judge(FOR_ONE_SHAPE.format(special=special), SHAPED)
    assert finished.judged
    answers = [tried.answer for tried in finished.judged.beyond if tried.family.startswith("shape")]
    if failure is None:
        assert finished.outcome == "ok", finished.failure
        no_variable = "left out: shapes.py has COLUMNS, which is no variable of the reference"
        assert answers == ["right", "right", no_variable]
        assert any("right for 2 of 3 shapes of shapes.py" in remark for remark in finished.remarks)
    else:
        assert finished.failure
        assert re.search(failure, finished.failure.message), finished.failure
        assert answers == ["right", "wrong" if finished.outcome == "wrong answer" else "it fails"]


@pytest.mark.parametrize(
    "cheat",
    [
        pytest.param(cheat, id=f"{cheat.number}: {cheat.name}", marks=[pytest.mark.slow] * further)
        for cheat, further in cheats.in_turn(
            known for known in (*cheats.CHEATS, *newer_cheats.NEWER) if known.on == "both"
        )
    ],
)
def test_no_cheat_gets_a_better_score_than_its_work(judge: Judge, cheat: Cheat) -> None:
    finished = judge(cheat.text("cpu"), cheat.reference)
    print(finished.outcome, finished.failure and finished.failure.message)
    assert finished.outcome not in ("infrastructure", "timed out"), finished
    assert not finished.launches or median_s(finished) >= cheats.SLEEP_S / 2


@pytest.mark.slow
@pytest.mark.parametrize("cheat", newer_cheats.OPEN, ids=lambda known: f"{known.number}: {known.name}")
def test_a_kind_that_is_open_gets_a_score(judge: Judge, cheat: Cheat) -> None:
    """One that does not is open no more: move it to those that get none, and off the page."""
    finished = judge(cheat.text("cpu"), cheat.reference)
    assert (finished.outcome, bool(finished.launches)) == ("ok", True), finished.failure


@pytest.mark.parametrize(("allow", "scored"), [((), False), (("precision",), True)])
def test_less_precision_is_no_wrong_answer_and_scores_if_the_request_allows_it(
    judge: Judge, allow: tuple[Policy, ...], scored: bool
) -> None:
    half = next(cheat for cheat in cheats.CHEATS if cheat.number == 17)
    finished = judge(half.text("cpu"), half.reference, allow=allow)
    assert (finished.outcome, finished.failure, bool(finished.launches)) == ("ok", None, scored)
    assert finished.judged
    assert [(found.name, found.allowed) for found in finished.judged.policies] == [("precision", scored)]
