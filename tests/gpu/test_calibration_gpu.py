"""What a GPU is measured to reach, on a real one: plausible against its peaks, quick, and remembered."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys
from contextlib import aclosing
from pathlib import Path

import pytest

from orbit_lsp.kernels.cuda import cuda_kernels
from orbit_lsp.runners.local import LocalOptions, LocalRunner
from orbit_remote.child import calibration, child_main
from orbit_remote.common import messages as c
from orbit_remote.common import peaks
from orbit_remote.common.requests import Job, KernelDefinition, SpecStart
from orbit_remote.worker import probe

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(shutil.which("nvidia-smi") is None, reason="no NVIDIA GPU on this machine"),
]
SPEC = """\
// orbit: n = 1 << 26; x = randn(n); y = empty(n)
// orbit: launch copy<<<n / 256, 256>>>(x, y)
// orbit: bytes 8 * n
__global__ void copy(const float* x, float* y) { int i = blockIdx.x * 256 + threadIdx.x; y[i] = x[i]; }
"""


def child(action: str, folder: Path) -> c.Finished:
    """A process of its own, as the worker starts one."""
    job = Job("r", action, "cuda", "calibration", "")  # pyright: ignore[reportArgumentType]
    subprocess.run(child_main.command(folder, folder / "cache", job), cwd=folder, check=True)
    finished = child_main.outcome(folder)
    assert finished
    return finished


def test_every_rate_lies_between_half_and_all_of_its_peak(tmp_path: Path) -> None:
    finished = child("calibrate", tmp_path)
    assert finished.outcome == "ok", finished.failure
    assert finished.device
    reached = finished.device.reached
    assert set(reached) == set(calibration.SOURCES)
    device = probe.device(0)
    assert device
    known = peaks.peaks(device)
    assert known.dram
    ceilings = {"dram": known.dram.rate} | {name: peak.rate for name, peak in known.flops.items()}
    shares = {name: rate / ceilings[name] for name, rate in reached.items()}
    print("reached", {name: f"{rate:.4g}" for name, rate in reached.items()}, "in", finished.run_s, shares)
    assert all(0.5 < share <= 1.01 for share in shares.values()), shares


def test_after_a_first_launch_spec_the_next_ones_know_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    path = tmp_path / "copy.cu"
    path.write_text(SPEC)
    kernel = cuda_kernels.scan(SPEC).kernels[-1]
    spot = kernel.name_span
    where = KernelDefinition("copy", "copy", kernel.whole.line, kernel.line, spot.line, spot.end_column)

    async def runs() -> list[c.Finished]:
        runner = LocalRunner(LocalOptions(python=sys.executable, cache=str(tmp_path / "cache")))
        results: list[c.Finished] = []
        try:
            for turn in range(4):
                job = Job(
                    f"r{turn}", "run", "cuda", str(path), SPEC, "copy", str(tmp_path), start=SpecStart(where)
                )  # fmt: skip
                async with aclosing(runner.run(job)) as events:
                    results += [event async for event in events if isinstance(event, c.Finished)]
        finally:
            await runner.close()
        return results

    finisheds = asyncio.run(runs())
    assert [finished.outcome for finished in finisheds] == ["ok"] * 4
    last = finisheds[-1].device
    assert last
    assert set(last.reached) == set(calibration.SOURCES), (
        "the first run's answer asks for it, later ones have it"
    )
    (kept,) = (tmp_path / "cache").rglob("reached.json")
    assert list(json.loads(kept.read_text()).values()) == [last.reached]
