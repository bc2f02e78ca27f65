"""Comparisons and histories as JSON: published as JSON schemas, like `Finished` of the other commands."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from orbit_lsp.history import counter_diff as moved
from orbit_lsp.history.history_store import HistoryEntry
from orbit_lsp.history.version_groups import grouped, regression
from orbit_lsp.state.results import AbResult
from orbit_lsp.views import ab_table as versus_view
from orbit_lsp.views import kernel_status, sweep_tables
from orbit_remote.common.lazy_dataclass import dataclass
from orbit_remote.common.measurements import Metric, Timing
from orbit_remote.common.messages import Cost, Failure, Launches
from orbit_remote.common.requests import BY_AUTHOR


@dataclass(frozen=True, slots=True)
class MovedMetric:
    """A counter that differs between the profiles of the two sides. `name` is for people, `unit` is NVIDIA's."""

    name: str
    metric: str
    then: float
    now: float
    unit: str


@dataclass(frozen=True, slots=True)
class Compared:
    """A comparison of a kernel as it stands (`now`) with something else (`then`, which `against` names), by whole
    runs in turn.

    `ratio` is the time now over the time then. It lies between `low` and `high` at 95 %; `pairs` counts pairs of
    runs. All three and `verdict` are null if there is none; `failure` has the reason. `runs` has the times of the
    counted runs in nanoseconds, by pairs. `now_first` says of each pair whether `now` ran first, which a coin
    decides. `devices` has the GPUs by NVML's names: then, now.
    """

    kernel: str
    against: str
    sentence: str
    verdict: Literal["faster", "slower", "inconclusive"] | None = None
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    pairs: int = 0
    then: Timing | None = None
    now: Timing | None = None
    runs: tuple[tuple[float, ...], tuple[float, ...]] = ((), ())
    now_first: tuple[bool, ...] = ()
    devices: tuple[str, str] = ("", "")
    moved: tuple[MovedMetric, ...] = ()
    remarks: tuple[str, ...] = ()
    failure: Failure | None = None
    cost: Cost | None = None


@dataclass(frozen=True, slots=True)
class KeptRun:
    """One run or profile of a kernel. `at` is seconds since 1970, `version` counts its versions from 1, `digest` is
    the hash of the tokens that ran. `text` is the name under which the whole text is kept; null if it is not.

    `time_ns` is the time of all that a launch spec launches with its first values, else of the configuration that
    took most of the program's time. `timing` and `warm` are of its first launch, `occupancy` is theoretical.
    `metrics` are a profile's, by NVIDIA's names.
    """

    at: float
    version: int
    action: Literal["run", "profile"]
    digest: str
    outcome: str
    gpu: str | None = None
    time_ns: float | None = None
    grid: tuple[int, int, int] | None = None
    block: tuple[int, int, int] | None = None
    values: dict[str, str] | None = None
    timing: Timing | None = None
    warm: Timing | None = None
    occupancy: float | None = None
    metrics: dict[str, Metric] | None = None
    text: str | None = None


@dataclass(frozen=True, slots=True)
class Slower:
    """A regression: the last version takes `change` more time than the fastest before it (0.12: 12 %). That one was
    `edits` versions ago.
    """

    change: float
    edits: int


@dataclass(frozen=True, slots=True)
class KernelHistory:
    kernel: str
    regression: Slower | None
    runs: tuple[KeptRun, ...]


@dataclass(frozen=True, slots=True)
class FileHistory:
    """The history of a file's kernels. Runs are ordered oldest first."""

    file: str
    kernels: tuple[KernelHistory, ...]


def compared(name: str, versus: AbResult) -> Compared:
    ab_verdict = versus.comparison
    metrics = tuple(
        MovedMetric(change.name, change.metric, change.before, change.after, change.unit)
        for change in versus.moved
    )
    return Compared(
        name, versus.against, versus_view.sentence(name, versus),
        verdict=ab_verdict.verdict if ab_verdict else None,
        ratio=ab_verdict.ratio if ab_verdict else None,
        low=ab_verdict.low if ab_verdict else None,
        high=ab_verdict.high if ab_verdict else None,
        pairs=ab_verdict.pairs if ab_verdict else 0,
        then=versus.then, now=versus.now, runs=versus.runs, now_first=versus.now_first, devices=versus.devices, moved=metrics, remarks=versus.remarks,
        failure=versus.failure, cost=versus.cost,
    )  # fmt: skip


def kernel_history(name: str, entries: Sequence[HistoryEntry]) -> KernelHistory:
    """Return the history of one kernel from its `entries`, the oldest first."""
    slower = regression(entries)
    runs = [
        _run(number, entry) for number, version in enumerate(grouped(entries), 1) for entry in version.runs
    ]
    return KernelHistory(name, Slower(slower.change, slower.edits) if slower else None, tuple(runs))


def _run(version: int, entry: HistoryEntry) -> KeptRun:
    stored, finished = entry.result, entry.result.finished
    device = finished.device
    gpu = device.name if device else None
    if entry.action == "profile":
        profile = moved.main(finished.profiles)
        return KeptRun(
            entry.at, version, "profile", entry.digest, finished.outcome, gpu,
            grid=profile.grid if profile else None, block=profile.block if profile else None,
            metrics=dict(profile.metrics) if profile else None, text=entry.text,
        )  # fmt: skip
    launches = shown(stored.launches, stored.through)
    point = sweep_tables.shown(finished.points)
    capability = device.capability if device else None
    held = (
        kernel_status.launch_occupancy(launches, capability, finished.resources)
        if launches and capability
        else None
    )
    total = (
        launches.timing.median
        if launches and stored.through in BY_AUTHOR
        else sweep_tables.total_ns(stored.launches)
    )
    return KeptRun(
        entry.at, version, "run", entry.digest, finished.outcome, gpu, total, launches.grid if launches else None,
        launches.block if launches else None, dict(point.values) if point else None, launches.timing if launches else None,
        launches.warm if launches else None, held.fraction if held else None, text=entry.text,
    )  # fmt: skip


def shown(launches: tuple[Launches, ...], through: str) -> Launches | None:
    """Return the launch that a single number speaks of."""
    if through in BY_AUTHOR:
        return kernel_status.main_launch(launches)
    return launches[0] if launches else None
