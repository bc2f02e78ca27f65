"""A profile on a rented GPU: the worker of the container is the real one, its `ncu` a fake with a recorded report."""

from __future__ import annotations

import base64
import os
import zlib
from pathlib import Path

import pytest

from orbit_remote.common import messages as c
from orbit_remote.common.requests import KernelDefinition
from tests.modal.conftest import Author, container, states, told_of_a_gpu
from tests.modal_loopback.fixture import started
from tests.remote import fake_ncu
from tests.remote.fake_ncu import PROGRESS, RECORDED
from tests.remote.nvcc_check import needs_nvcc

pytestmark = needs_nvcc
PERMISSION = (
    "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU Performance Counters"
)
SAXPY = (RECORDED / "memory_bound.cu").read_text().partition("int main")[0] + "int main() { return 0; }\n"


@pytest.mark.parametrize(
    ("recording", "log"),
    [("memory_bound", PROGRESS), pytest.param("", f"{PERMISSION}\n", marks=pytest.mark.slow)],
)
async def test_the_report_or_why_there_is_none(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, author, recording: str, log: str
) -> None:
    fake_ncu.write(tmp_path / "bin", tmp_path / "calls", recording, log)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    here = container(tmp_path, recorded=False) | {"ORBIT_PYTHON": str(told_of_a_gpu(tmp_path))}
    with started(monkeypatch, tmp_path, here, kept=True) as modal:
        item: Author = author()
        definition = KernelDefinition("saxpy", "saxpy", 3, 3, 3, 21)
        job = item.job("profile", SAXPY, path="memory_bound.cu", kernel="saxpy", tool_kernel=definition)
        events = await item.events(job)
        assert [each.function.gpu for each in modal.world.but_for("hello")] == ["H100!"]
    finished = events[-1]
    assert isinstance(finished, c.Finished)
    assert finished.outcome == "ok", finished.failure
    assert "profiling" in states(events)
    if recording:
        (profile,) = finished.profiles
        assert (profile.name, profile.tier) == ("saxpy", "counters")
        assert profile.place
        assert profile.place.file == str(item.folder / "memory_bound.cu")
        assert profile.metrics["gpu__time_duration.sum"].unit == "ns"
        kept = zlib.decompress(base64.b64decode(finished.report))
        assert kept == (RECORDED / f"{recording}.ncu-rep").read_bytes()
    else:
        assert any("ERR_NVGPUCTRPERM" in remark for remark in finished.remarks)
