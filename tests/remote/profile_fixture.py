"""`bench`: a worker's profiles without a GPU, for the tests that import it, with an `ncu` that is a fake (fake_ncu.py), to which CUPTI
leaves programs.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from orbit_remote.common import messages as c
from orbit_remote.counters.profiler import UncountedError
from orbit_remote.ncu import ncu_options, ncu_run
from orbit_remote.ncu.report_process import ReportReader
from orbit_remote.worker import probe
from orbit_remote.worker.actions import program_counting
from tests.remote import fake_ncu, profiling
from tests.remote.fake_ncu import PROGRESS
from tests.remote.profiling import Bench

H100 = c.Device("NVIDIA H100 80GB HBM3", capability="9.0", uuid="GPU-1", driver="580.159.04")


@dataclass
class Faked(Bench):
    """A bench whose `ncu` is the fake. Time stands still for the limit of a run, until a test has it pass."""

    late_after: str = ""
    """With this word of the program's output the limit is reached."""
    now: float = 0.0

    def time(self) -> float:
        outputs = [event.text for event in self.events if isinstance(event, c.Output)]
        if self.late_after and self.late_after in "".join(outputs):
            self.now += 1e9
        return self.now

    def ncu(self, recording: str = "", log: str = PROGRESS, **how: Any) -> None:
        fake_ncu.write(self.folder / "bin", self.calls, recording, log, **how)

    @property
    def calls(self) -> Path:
        return self.folder / "calls"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def reader() -> AsyncIterator[ReportReader]:
    """Of all these tests: the product, too, has one for many reports."""
    reader = ReportReader()
    yield reader
    await reader.close()


@pytest_asyncio.fixture(loop_scope="module")
async def bench(
    tmp_path: Path, kept: Path, reader: ReportReader, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Faked]:
    bench = Faked(tmp_path, kept)
    monkeypatch.setattr(probe, "all_devices", lambda: (H100,))
    # not by the path, which belongs to what a build is known by
    monkeypatch.setattr(ncu_options, "_candidates", lambda: [tmp_path / "bin" / "ncu"])
    monkeypatch.setattr(ncu_run, "_now", bench.time)
    monkeypatch.setattr(program_counting, "counted", _uncounted)
    bench.shared._reports = reader
    yield bench
    bench.shared._reports = None
    await bench.context.close()
    assert not await profiling.left_over(tmp_path)


async def _uncounted(*_: object) -> c.Finished:
    raise UncountedError("there is no CUPTI")


def unpacked(dump: c.Dump) -> str:
    return zlib.decompress(base64.b64decode(dump.text)).decode()
