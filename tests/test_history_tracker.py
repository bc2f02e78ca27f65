"""Versions of a kernel: which runs belong together, what comes back when a file is opened, what moved between profiles."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest

from orbit_lsp.history import counter_diff, version_groups
from orbit_lsp.history.history_store import HistoryEntry
from orbit_lsp.history.history_tracker import HistoryTracker
from orbit_lsp.report import history_report as history_page
from orbit_lsp.report import page
from orbit_lsp.runs.scheduler import Run
from orbit_lsp.state.session import Session
from orbit_lsp.views import hints, version_table
from orbit_remote.common import measure
from orbit_remote.common import messages as c
from orbit_remote.common.measurements import Line, Telemetry
from orbit_remote.common.requests import Job
from tests.recorded_profiles import Profiling, finished, profile, profiled
from tests.test_history import entry
from tests.test_report import Reader

# -- which runs may be compared ---------------------------------------------------------------------


def timed(*middles: int, digests: str = "abcdefgh", **fields: object) -> list[HistoryEntry]:
    """Runs by the median of their times in µs; the digests are letters, one a run."""
    entries: list[HistoryEntry] = []
    for number, (middle, digest) in enumerate(zip(middles, digests, strict=False)):
        item = entry(number)
        timing = measure.timing([middle * 1_000 + i for i in range(100)], "cold L2, n=100")
        launches = (replace(item.result.launches[0], timing=timing),)
        entries.append(replace(item, digest=digest, result=replace(item.result, launches=launches), **fields))
    return entries


def regression(entries: list[HistoryEntry]) -> tuple[float, int] | None:
    result = version_groups.regression(entries)
    return (round(result.change, 2), result.edits) if result else None


def test_runs_of_the_same_code_are_one_version() -> None:
    versions = version_groups.grouped(timed(100, 101, 99, 120, 100, digests="aabba"))
    assert [(version.digest, len(version.runs)) for version in versions] == [("a", 2), ("b", 2), ("a", 1)]
    headers = [
        replace(item.result, files={"/src/a.cuh": name})
        for item, name in zip(timed(1, 1, 1), "001", strict=True)
    ]
    same = [
        replace(item, result=stored)
        for item, stored in zip(timed(1, 1, 1, digests="aaa"), headers, strict=True)
    ]
    assert [len(version.runs) for version in version_groups.grouped(same)] == [2, 1]


def test_a_regression_counts_the_versions_since_the_fastest() -> None:
    assert regression(timed(100, 130, 120, 112)) == (0.12, 3)
    assert regression(timed(100, 112, 113, digests="abb")) == (0.12, 1)
    assert regression(timed(100, 102)) is None
    assert regression(timed(112, 100)) is None
    assert regression([]) is None


def on_gpu(stored: HistoryEntry, name: str) -> HistoryEntry:
    device = stored.result.finished.device
    assert device
    return replace(
        stored,
        result=replace(
            stored.result, finished=replace(stored.result.finished, device=replace(device, name=name))
        ),
    )


def with_nvcc(stored: HistoryEntry, version: str) -> HistoryEntry:
    return replace(
        stored,
        result=replace(stored.result, finished=replace(stored.result.finished, toolchain={"nvcc": version})),
    )


def at_values(stored: HistoryEntry, **values: str) -> HistoryEntry:
    point = replace(stored.result.finished.points[0], values=values)
    return replace(
        stored, result=replace(stored.result, finished=replace(stored.result.finished, points=(point,)))
    )


@pytest.mark.parametrize(
    "elsewhere",
    [
        lambda item: on_gpu(item, "NVIDIA L4"),
        lambda item: replace(item, inputs="other flags"),
        lambda item: with_nvcc(item, "13.1.0"),
        lambda item: at_values(item, n="2048"),
        lambda item: replace(item, result=replace(item.result, lines="// orbit: n = 2048")),
        lambda item: replace(item, result=replace(item.result, through="program")),
        lambda item: replace(
            item, result=replace(item.result, finished=replace(item.result.finished, outcome="wrong answer"))
        ),
        lambda item: replace(item, result=replace(item.result, launches=())),
        lambda item: replace(item, action="profile"),
    ],
    ids=[
        "GPU",
        "flags",
        "compiler",
        "values",
        "launch spec",
        "program",
        "wrong answer",
        "not launched",
        "profile",
    ],
)
def test_what_was_run_otherwise_is_no_witness(elsewhere) -> None:
    fast, slow = timed(100, 120)
    assert regression([fast, slow]) == (0.2, 1)
    assert regression([elsewhere(fast), slow]) is None


def test_a_programs_kernel_in_several_configurations_has_no_one_time() -> None:
    def program(stored: HistoryEntry, *grids: int) -> HistoryEntry:
        launches = tuple(replace(stored.result.launches[0], grid=(grid, 1, 1)) for grid in grids)
        return replace(stored, result=replace(stored.result, through="program", launches=launches))

    fast, slow = timed(100, 120)
    assert regression([program(fast, 8), program(slow, 8)]) == (0.2, 1)
    assert regression([program(fast, 8), program(slow, 4)]) is None
    assert regression([program(fast, 8), program(slow, 8, 4)]) is None


# -- the table and the page -------------------------------------------------------------------------


def test_the_table_has_a_row_for_each_version_and_changes_within_a_setup() -> None:
    entries = timed(100, 110, 50, 121, digests="abcd")
    entries[2] = on_gpu(entries[2], "NVIDIA B200")
    table = version_table.table(entries, "saxpy", now=1_600.0)
    assert table.title == "saxpy: 4 versions, 4 runs"
    columns = [table.header.index(name) for name in ("version", "time", "change", "GPU")]
    assert [tuple(row[at] for at in columns) for row in table.rows] == [
        ("1", "100 µs ±<0.1%", "", "H100 80GB HBM3"),
        ("2", "110 µs ±<0.1%", "+10.0%", "H100 80GB HBM3"),
        ("3", "50.0 µs ±0.1%", "", "B200"),
        ("4", "121 µs ±<0.1%", "+10.0%", "H100 80GB HBM3"),
    ]


def test_the_page_draws_each_gpu_by_itself() -> None:
    entries = timed(100, 110, 50, 121, 52, digests="abcde")
    entries[2], entries[4] = on_gpu(entries[2], "NVIDIA B200"), on_gpu(entries[4], "NVIDIA B200")
    made = history_page.page(entries, "saxpy", "/src/saxpy.cu", "+21% since 3 edits")
    read = Reader(page.html(made))
    assert read.open == []
    assert read.tags.count("svg") == 2
    assert "Time of saxpy on NVIDIA B200" in read.said
    assert "saxpy: 5 versions, 5 runs · +21% since 3 edits" in read.said
    days = [time.strftime("%Y-%m-%d %H:%M", time.localtime(item.at)) for item in entries]
    assert set(days) <= set(read.said)  # who reads it later has no use for `just now`


# -- coming back ------------------------------------------------------------------------------------


class Kept:
    """A history file, and sessions that come and go."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "history.sqlite"
        self.said: list[str] = []

    def of(self, session: Session) -> HistoryTracker:
        return HistoryTracker(session, lambda: self.path, self.said.append, lambda uris: None)

    async def end(self, bench: Profiling) -> None:
        """A click has filed what is in the session: keep it, and quit."""
        kept = self.of(bench.session)
        frozen = bench.session.freeze(bench.uri)
        assert frozen
        kept.filed(Run("r1", "profile", frozen, Job("r1", "profile", "cuda", "", ""), set()))
        await kept.close()

    async def begin(self, bench: Profiling) -> None:
        kept = self.of(bench.session)
        kept.restore(bench.uri)
        await kept.close()


@pytest.mark.parametrize(
    ("outcome", "ran", "kept_as"),
    [
        ("timed out", True, ["ok", "timed out"]),
        ("runtime error", True, ["ok", "runtime error"]),
        ("cancelled", True, ["ok", "cancelled"]),
        ("cancelled", False, ["ok"]),  # while it waited
        ("infrastructure", True, ["ok"]),
        ("compile error", False, ["ok"]),
    ],
)
async def test_a_run_without_a_result_is_listed_and_hides_no_result(
    tmp_path: Path, outcome: c.Outcome, ran: bool, kept_as: list[str]
) -> None:
    kept, session, uri = Kept(tmp_path), Session(), "file:///src/saxpy.cu"
    session.open(uri, 1, "// orbit: launch saxpy<<<1, 32>>>()\n__global__ void saxpy() {}\n")
    frozen = session.freeze(uri)
    assert frozen
    (target, _, digest), known = session.kernels(uri)[0], entry(0)
    stored = replace(known, path="/src/saxpy.cu", kernel=target.key, digest=digest)
    tracker = kept.of(session)
    assert tracker._store().keep(stored, frozen.text)
    run = Run("r1", "run", frozen, Job("r1", "run", "cuda", "/src/saxpy.cu", frozen.text), {target})
    run.finished, run.ran = c.failed("r1", c.Failure(outcome, "why")), ran
    tracker.filed(run)
    await tracker.close()
    after = kept.of(Session())
    entries = await after.entries("/src/saxpy.cu")
    await after.close()
    assert [each.result.finished.outcome for each in entries] == kept_as
    rows = version_table.table(entries, "saxpy").rows
    assert rows[0][2]  # its time
    again = Session()
    again.open(uri, 1, frozen.text)
    after = kept.of(again)
    after.restore(uri)
    await after.close()
    assert again.results.runs[target].finished.outcome == "ok"


async def test_a_profile_is_back_after_a_restart_line_by_line(tmp_path: Path) -> None:
    before, after = profiled("memory_bound"), Profiling("memory_bound")
    kept = Kept(tmp_path)
    await kept.end(before)
    await kept.begin(after)
    (target,) = before.session.results.profiles
    old, new = before.session.results.profiles[target], after.session.results.profiles[target]
    assert replace(new, report=None) == replace(old, report=None)
    count = len(before.session.files[before.uri].document.lines)
    shown = hints.hints(before.session, before.uri, 0, count)
    assert shown
    assert hints.hints(after.session, after.uri, 0, count) == shown
    assert kept.said == []


@pytest.mark.parametrize(("edited", "lines"), [(False, {1: "◂ 80% · wait"}), (True, {})])
async def test_lines_of_a_header_are_back_where_it_is_what_was_compiled(
    tmp_path: Path, edited: bool, lines: dict[int, str]
) -> None:
    header = tmp_path / "inner.cuh"
    header.write_text("__device__ int at(int i) {\n    return i * 32;\n}\n")
    before, after = profiled("uncoalesced"), Profiling("uncoalesced")
    item = replace(profile("uncoalesced"), samples=50, lines=(Line(str(header), 2, 40, {"wait": 40}),))
    known = {str(header): c.content_hash(header.read_bytes())}
    before.file(replace(finished("uncoalesced"), profiles=(item,), files=known))
    kept = Kept(tmp_path)
    await kept.end(before)
    if edited:
        header.write_text("// another\n" + header.read_text())
    await kept.begin(after)
    uri = header.as_uri()
    after.session.open(uri, 1, header.read_text())
    assert {hint.position.line: hint.label for hint in hints.hints(after.session, uri, 0, 9)} == lines


async def test_what_was_run_since_the_file_was_opened_stays(tmp_path: Path) -> None:
    before, after = profiled("memory_bound"), profiled("memory_bound")
    kept = Kept(tmp_path)
    await kept.end(before)
    (target,) = after.session.results.profiles
    mine = after.session.results.profiles[target]
    await kept.begin(after)
    assert after.session.results.profiles[target] is mine


@pytest.mark.parametrize(
    ("digest", "later", "comes"), [(None, 60, True), (None, -60, False), ("other", 60, False)]
)
async def test_what_another_program_ran_later_comes_in_where_it_is_of_this_text(
    tmp_path: Path, digest: str | None, later: float, comes: bool
) -> None:
    before, after = profiled("memory_bound"), profiled("memory_bound")
    (target,) = after.session.results.profiles
    mine = after.session.results.profiles[target]
    theirs = replace(mine, at=mine.at + later, digest=digest or mine.digest)
    before.session.results.profiles[target] = theirs
    kept = Kept(tmp_path)
    await kept.end(before)
    await kept.begin(after)
    assert after.session.results.profiles[target].at == (theirs if comes else mine).at


async def test_a_file_that_was_closed_meanwhile_gets_nothing(tmp_path: Path) -> None:
    kept, after = Kept(tmp_path), Profiling("memory_bound")
    await kept.end(profiled("memory_bound"))
    versions_of = kept.of(after.session)
    versions_of.restore(after.uri)
    after.session.close(after.uri)
    await versions_of.close()
    assert after.session.results.profiles == {}


# -- what moved -------------------------------------------------------------------------------------


def test_a_profile_against_itself_moves_nothing() -> None:
    assert counter_diff.moved(profile("memory_bound"), profile("memory_bound")) == ()


def test_what_moved_is_named_with_nvidias_numbers() -> None:
    before, after = profile("memory_bound"), profile("latency_bound")
    changes = {item.name: item for item in counter_diff.moved(before, after)}
    for name in ("time under ncu", "DRAM throughput"):
        change = changes[name]
        assert (change.before, change.after) == (
            before.metrics[change.metric].value,
            after.metrics[change.metric].value,
        )
    assert any(name.startswith("stall: ") for name in changes)
    assert sum(name.startswith("stall: ") for name in changes) <= 5


def test_a_counter_that_one_profile_lacks_is_left_out() -> None:
    before = profile("memory_bound")
    less = {name: metric for name, metric in before.metrics.items() if not name.startswith("dram__")}
    after = replace(profile("latency_bound"), metrics=profile("latency_bound").metrics)
    assert not [
        change
        for change in counter_diff.moved(replace(before, metrics=less), after)
        if change.metric.startswith("dram__")
    ]


def test_the_launch_that_took_longest_speaks_for_a_profile() -> None:
    item, other = profile("memory_bound"), profile("latency_bound")
    name = "gpu__time_duration.sum"
    longest = max((item, other), key=lambda it: it.metrics[name].value)
    assert counter_diff.main((item, other)) is longest
    assert counter_diff.main((replace(item, tier="times"),)) is None
    assert counter_diff.main(()) is None


def runs_of(
    millijoules: float, busy: float = 0.98, runs: int = 3, others: tuple[int, ...] = ()
) -> list[c.Finished]:
    """Runs of a kernel that was launched 1,000 times, as NVML's counter sees them in steps of 0.1 J; `others` are other kernels' counts."""
    telemetry = Telemetry(9, energy_j=millijoules, energy_step_j=0.1).with_launches([1000, *others], busy)
    return [c.ok("r", telemetry=telemetry)] * runs


def test_the_energy_of_a_launch_is_compared_where_the_counter_tells_it() -> None:
    (change,) = counter_diff.energy(runs_of(12), runs_of(9))
    assert (change.name, change.before, change.after, change.unit) == (
        "energy of a launch, the whole GPU",
        12,
        9,
        "mJ",
    )
    assert counter_diff.energy(runs_of(12), runs_of(9, busy=0.5)) == ()  # the GPU idled between
    assert counter_diff.energy(runs_of(12, runs=2), runs_of(9)) == ()
    assert counter_diff.energy(runs_of(1), runs_of(9)) == ()  # too few steps
    assert (
        counter_diff.energy(runs_of(12), runs_of(9, others=(1000,))) == ()
    )  # such as what empties L2 for a launch spec
