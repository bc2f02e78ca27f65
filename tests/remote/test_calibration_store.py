"""What a GPU was measured to reach: kept by GPU and driver, measured once; the child's part is in tests/gpu."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from orbit_remote.common import messages as c
from orbit_remote.common.requests import Job
from orbit_remote.worker.calibration_store import CalibrationStore
from orbit_remote.worker.children import Afterwards

H100 = c.Device("NVIDIA H100 80GB HBM3", uuid="GPU-1", driver="580.159.04")
RATES = {"dram": 3.0e12, "fp32": 6.0e13}


class Spare:
    """A child that answers a calibration; the real one needs a GPU."""

    def __init__(self, *events: c.Event, stays: bool = True) -> None:
        self._events = events
        self._stays = stays
        self.closed = False

    async def events(self) -> AsyncIterator[c.Event]:
        for event in self._events:
            yield event

    async def afterwards(self) -> Afterwards:
        return "stays" if self._stays else None

    async def close(self) -> None:
        self.closed = True


class PreforkPool:
    def __init__(self, *children: Spare) -> None:
        self.children = list(children)
        self.given_back = 0

    @property
    def waiting(self) -> int | None:
        return len(self.children) or None

    async def take(self, job: Job, _env: dict[str, str]) -> Spare:
        assert job.action == "calibrate"
        return self.children.pop(0)

    def give_back(self, _child: Spare) -> bool:
        self.given_back += 1
        return True


class Context:
    def __init__(self, *children: Spare) -> None:
        self.spares = PreforkPool(*children)

    def environment(self) -> dict[str, str]:
        return {}

    @asynccontextmanager
    async def gpu(self, _job: Job) -> AsyncIterator[None]:
        yield


def answer(rates: dict[str, float]) -> Spare:
    device = c.Device("NVIDIA H100 80GB HBM3", reached=rates)
    return Spare(c.Finished("calibration", "ok", device=device))


async def measured(reached: CalibrationStore, context: Context, device: c.Device = H100) -> None:
    reached.measure(device, context)  # pyright: ignore[reportArgumentType]
    await asyncio.gather(*reached._tasks)


async def test_it_is_measured_once_and_remembered_over_restarts(tmp_path: Path) -> None:
    file, context = tmp_path / "reached.json", Context(answer(RATES), answer({"dram": 1.0}))
    reached = CalibrationStore(file)
    assert reached.with_reached(H100) == H100
    await measured(reached, context)
    await measured(reached, context)
    assert context.spares.given_back == 1
    for calibration_store in (reached, CalibrationStore(file)):
        known = calibration_store.with_reached(H100)
        assert known
        assert known.reached == RATES


@pytest.mark.parametrize(
    "other", [replace(H100, uuid="GPU-2"), replace(H100, driver="590.1"), replace(H100, uuid=None)]
)
async def test_another_gpu_or_driver_is_another_matter(tmp_path: Path, other: c.Device) -> None:
    reached = CalibrationStore(tmp_path / "reached.json")
    await measured(reached, Context(answer(RATES)))
    known = reached.with_reached(other)
    assert known
    assert known.reached == {}


async def test_where_it_fails_it_is_not_tried_again(tmp_path: Path) -> None:
    failed = Spare(c.Finished("calibration", "infrastructure"), stays=False)
    context = Context(failed, answer(RATES))
    reached = CalibrationStore(tmp_path / "reached.json")
    await measured(reached, context)
    await measured(reached, context)
    assert failed.closed
    assert context.spares.waiting == 1
    assert not (tmp_path / "reached.json").exists()


async def test_it_waits_for_a_process_that_is_there_anyway(tmp_path: Path) -> None:
    reached = CalibrationStore(tmp_path / "reached.json")
    await measured(reached, Context())
    assert reached.with_reached(H100) == H100


@pytest.mark.parametrize(
    "content", ["", "[]", '{"GPU-1 580.159.04": 3}', '{"GPU-1 580.159.04": {"dram": null}}', "\0"]
)
def test_a_file_that_says_something_else_is_none(tmp_path: Path, content: str) -> None:
    file = tmp_path / "reached.json"
    file.write_text(content)
    known = CalibrationStore(file).with_reached(H100)
    assert known
    assert known.reached == {}
