"""scripts/modal_smoke.py, which is for Modal itself, on the control plane of this machine with a recorded GPU."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.modal_loopback.loopback import LIMIT_S, Loopback

SMOKE = Path(__file__).parents[2] / "scripts" / "modal_smoke.py"


def smoke(*arguments: str, given: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", str(SMOKE), *arguments]
    return subprocess.run(command, input=given, capture_output=True, text=True, check=False, timeout=LIMIT_S)


@pytest.mark.slow
def test_every_step_works_and_nothing_stays_there(h100s: Loopback, tmp_path: Path) -> None:
    done = smoke("--gpu", "H100", "--yes", "--out", str(tmp_path / "report.txt"))
    assert done.returncode == 0, done.stdout + done.stderr
    report = (tmp_path / "report.txt").read_text()
    steps = re.findall(r"^([✓✗]) (.*?)  +", report, re.MULTILINE)
    assert {mark for mark, _ in steps} == {"✓"}
    names = [name for _, name in steps]
    assert (names[0], names[-1], len(names)) == ("the account", "stopped", 29)
    for told in (
        "asked for H100, NVML says NVIDIA H100 80GB HBM3", "image builder 2026.10", "landlock: ", "which ncu: ", "volume: commit: ",
        "20 launches recorded, by CUPTI activity records", "counters, ", "was stopped, and the run began again",
        "39 KiB came in and went out", "refused: a restricted run may send 1.94 MiB", "a kernel was there after",
        "no H100 is rented, by Modal's own list too", "not looked at within 60 s", "a greeting: p50 ",
    ):  # fmt: skip
        assert told in report
    assert str(tmp_path) not in report
    h100s.until(lambda world: all(app.over for app in world.apps.values()) and not world.alive())


@pytest.mark.slow
def test_a_step_that_fails_is_said_and_the_app_is_stopped_all_the_same(
    h100s: Loopback, tmp_path: Path
) -> None:
    done = smoke("--gpu", "L4", "--yes", "--out", str(tmp_path / "report.txt"))  # the recorded GPU is an H100
    assert done.returncode > 0
    assert "✗ CUDA, cold; live output; the GPU" in done.stdout
    assert "L4 was asked for, and Modal gave a container with NVIDIA H100 80GB HBM3" in done.stdout
    assert "✓ stopped" in done.stdout
    h100s.until(lambda world: all(app.over for app in world.apps.values()))


@pytest.mark.slow
def test_containers_that_do_not_start_end_it_before_a_gpu_is_rented(h100s: Loopback, tmp_path: Path) -> None:
    h100s.forget_kept()
    h100s.do(lambda world: world.container_env.update({"ORBIT_HOME": "/proc/nowhere"}))
    done = smoke("--gpu", "H100", "--yes", "--out", str(tmp_path / "report.txt"))
    assert done.returncode == 1
    report = (tmp_path / "report.txt").read_text()
    assert "✗ the app is put there" in report
    assert "could not start its worker: FileNotFoundError" in report
    assert "· CUDA, cold; live output; the GPU" in report
    assert not [each for each in h100s.world.containers.values() if each.function.gpu]


def test_it_says_what_it_costs_and_does_nothing_without_a_yes(h100s: Loopback) -> None:
    done = smoke("--gpu", "H100", given="n\n")
    assert re.search(
        r"one H100 on your Modal account for some minutes: at most 15, about \$1\.\d\d", done.stdout
    )
    assert not h100s.world.apps
