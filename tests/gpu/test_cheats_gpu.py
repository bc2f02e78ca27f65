"""The judge on a real GPU: gates, three clocks, CUDA's memory between processes; every cheat of tests/cheats.py; and the same
kernel by the author's click.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from orbit_remote.child import child_main
from orbit_remote.common import messages as c
from orbit_remote.common.requests import ContractStart
from tests import cheats, newer_cheats
from tests.cheats import Cheat
from tests.waiting_judges import WaitingJudges

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(shutil.which("nvidia-smi") is None, reason="no NVIDIA GPU on this machine"),
]
Judge = Callable[..., c.Finished]


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def judges(cache: Path) -> Iterator[WaitingJudges]:
    judges = WaitingJudges(cache, "cuda", most_s=0.3)
    yield judges
    judges.end()


@pytest.fixture
def judge(tmp_path: Path, judges: WaitingJudges) -> Judge:
    def run(text: str, reference: str = cheats.REFERENCE) -> c.Finished:
        finished = judges.judge(cheats.job_of(tmp_path, text, reference, device="cuda"))
        told(finished)
        return finished

    return run


def told(finished: c.Finished) -> None:
    known = finished.judged
    print(
        finished.outcome,
        finished.failure.message if finished.failure else "",
        f"{finished.run_s or 0:.1f} s",
        finished.remarks,
    )
    if known and known.rounds:
        print(
            f"  n={known.rounds} flag {known.flag_ns} verified {known.verified_ns} ± {known.resolution_ns} recorded {known.recorded_ns} "
            f"host {known.host_included} own {known.own_share} streams {known.streams} kept {known.kept_bytes} error {known.error} "
            f"{known.reference_error} {[(kernel.name[:30], kernel.library, kernel.count, kernel.ns) for kernel in known.kernels[:3]]}"
        )
        print("  locks", known.locks, known.unlocked)
        print("  control", known.control, "stages", known.stages)
    for point in finished.points:
        print("  ", point.values, point.launches[0].timing.median if point.launches else None, point.versus)


@pytest.fixture(scope="module")
def honest_ns(tmp_path_factory: pytest.TempPathFactory, judges: WaitingJudges) -> float:
    """What the work of the cheats takes, where nobody cheats."""
    job = cheats.job_of(tmp_path_factory.mktemp("honest"), cheats.HONEST.text("cuda"), device="cuda")
    finished = judges.judge(job)
    told(finished)
    assert finished.outcome == "ok", finished
    return finished.launches[0].timing.median


@pytest.mark.parametrize(
    "cheat", [*cheats.CHEATS, *newer_cheats.NEWER], ids=lambda known: f"{known.number}: {known.name}"
)
def test_no_cheat_gets_a_better_score_than_its_work(judge: Judge, honest_ns: float, cheat: Cheat) -> None:
    finished = judge(cheat.text("cuda"), cheat.reference)
    assert finished.outcome not in ("infrastructure", "timed out"), finished
    assert not finished.launches or finished.launches[0].timing.median > 0.95 * honest_ns


def test_the_machine_code_in_the_record_is_of_the_submitted_text(
    tmp_path: Path, judges: WaitingJudges
) -> None:
    """Another process compiles the text elsewhere, and gets the same code (kind 40)."""
    from orbit_remote.judge import judge_main

    text = cheats.HONEST.text("cuda")
    job = cheats.job_of(tmp_path, text, device="cuda")
    judged = judges.judge(job).judged
    assert judged
    assert judged.digests
    assert set(judged.digests.code) == {"fused"}
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "other.py").write_text(f"{text}\nModelNew()(torch.randn(512, 1024, device='cuda'))\n")
    environment = os.environ | {"TRITON_CACHE_DIR": str(elsewhere / "triton")}
    subprocess.run([sys.executable, elsewhere / "other.py"], check=True, timeout=120, env=environment)
    assert judge_main.machine_code(elsewhere / "triton") == judged.digests.code


# -- the same kernel by the author's click ----------------------------------------------------------


@pytest.mark.parametrize("name", list(cheats.KERNELS))
def test_the_judge_and_a_click_agree(tmp_path: Path, cache: Path, name: str) -> None:
    from orbit_remote.judge import judge_main

    expression, shape, dtype = cheats.KERNELS[name]
    reference = cheats.MODEL.format(expression=expression, shape=shape, dtype=dtype)
    text = reference.replace("class Model(", "class ModelNew(").partition("def get_inputs")[0]
    job = cheats.job_of(tmp_path, text, reference, device="cuda")
    judged = cheats.judge_in_a_fork(lambda: judge_main.judge(job, lambda _: None, cache, "cuda", most_s=4.0))
    told(judged)
    assert judged.outcome == "ok", judged
    folder = tmp_path / "click"
    folder.mkdir()
    environment = os.environ | {"TRITON_CACHE_DIR": str(cache / "triton")}
    subprocess.run(
        child_main.command(folder, cache, replace(job, start=ContractStart("author"))),
        capture_output=True, timeout=180, check=False, env=environment,
    )  # fmt: skip
    clicked = child_main.outcome(folder)
    assert clicked
    told(clicked)
    mine, click = judged.launches[0].timing.median, clicked.launches[0].timing.median
    print(
        f"FIGURE {name}: judge {mine / 1000:.2f} µs, click {click / 1000:.2f} µs, {100 * (mine / click - 1):+.2f} %"
    )
    assert mine == pytest.approx(click, rel=0.05, abs=2000)
