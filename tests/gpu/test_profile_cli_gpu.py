"""`orbit-lsp profile` and `report` on a real GPU: the whole way, as an author goes it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import TypeAdapter

from orbit_remote.common import messages as c

pytestmark = pytest.mark.gpu
PROGRAMS = Path(__file__).parents[1] / "recordings" / "profiles"


def orbit(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {
        "XDG_CACHE_HOME": str(folder / "cache"),
        "XDG_STATE_HOME": str(folder / "state"),
    }
    return subprocess.run(
        [sys.executable, "-P", "-m", "orbit_lsp", *words],
        cwd=folder, env=environment, capture_output=True, encoding="utf-8", timeout=120, check=False,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("name", "held_back", "line", "stall"),
    [
        ("bank_conflicts", r"L1/shared \d+% of peak", 9, "mio throttle"),
        ("memory_bound", r"memory \d+% of peak", 7, "long scoreboard"),
        ("spilling", r"(memory \d+% of peak|latency)", 7, "long scoreboard"),
    ],
)
def test_a_program_of_the_recordings_says_what_its_recording_says(
    tmp_path: Path, name: str, held_back: str, line: int, stall: str
) -> None:
    source = tmp_path / f"{name}.cu"
    source.write_text((PROGRAMS / source.name).read_text())
    ran = orbit(tmp_path, "profile", source.name, "--runner", "local")
    assert ran.returncode == 0, ran.stderr
    assert re.search(rf"bottleneck +{held_back}", ran.stdout)
    hottest = ran.stdout.partition("main stall")[2].strip().splitlines()[1]
    assert re.match(rf" +{name}\.cu:{line} +\d+% +{stall}", hottest), ran.stdout
    kept = Path(ran.stderr.partition("ncu-ui ")[2].split("\n")[0])
    assert kept.stat().st_size > 10_000
    page = orbit(tmp_path, "report", source.name, "--output", "page.html")
    assert page.returncode == 0, page.stderr
    assert "<svg" in (tmp_path / "page.html").read_text()


def test_the_full_profile_has_what_a_click_leaves_out(tmp_path: Path) -> None:
    source = tmp_path / "tensor_core.cu"
    source.write_text((PROGRAMS / source.name).read_text())
    ran = orbit(tmp_path, "profile", source.name, "--runner", "local", "--full", "--json")
    finished = TypeAdapter(c.Finished).validate_python(json.loads(ran.stdout))
    names = set(finished.profiles[0].metrics)
    assert any(name.startswith("sm__ops_path_tensor_") for name in names)
