"""The journal of a loop: one that was killed, or whose folder somebody has changed, goes on where it was or says why not."""

from __future__ import annotations

import json
import resource
import signal
import time
from pathlib import Path

import pytest

from orbit_lsp.agents.loop import records
from orbit_lsp.agents.loop.coordinator import LoopLimits
from orbit_lsp.agents.loop.journal import HEARTBEAT, Journal, JournalError
from tests.loops import COPY, Bench, killed_at

STEPS = ("open", "work", "take", "measure", "show", "review", "decide", "apply", "record")


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench.ready(tmp_path)


def once(bench: Bench) -> None:
    """Nothing was begun twice but comparisons, whose results the queue keeps by their keys."""
    began = [line for line in bench.began.read_text().splitlines() if not line.startswith(("compare", "run"))]
    assert sorted(began) == sorted(set(began))
    assert [row.iteration for row in bench.rows()] == list(range(1, 1 + len(bench.rows())))
    lines = (bench.state / "history.jsonl").read_text().splitlines()
    assert [json.loads(line)["iteration"] for line in lines] == [row.iteration for row in bench.rows()]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> list[records.Iteration]:
    bench = Bench.ready(tmp_path_factory.mktemp("whole"))
    bench.run()
    return bench.rows()


@pytest.mark.parametrize("state", [pytest.param("begin", marks=pytest.mark.slow), "end"])
@pytest.mark.parametrize("step", STEPS)
def test_killed_at_a_step_it_goes_on_there(
    bench: Bench, undisturbed: list[records.Iteration], step: str, state: str
) -> None:
    """A program that may have been started is not started again: killed just before, the iteration is a failure."""
    wanted = (step, state, 1)
    assert killed_at(bench.run, lambda *at: at[:3] == wanted, after=True) == -signal.SIGKILL
    assert bench.run().stopped == "iterations"
    once(bench)
    if state == "begin" and step in ("work", "review"):
        first, second = bench.rows()
        assert first.outcome == "infrastructure failure"
        assert "was cut off when the loop was killed and has not written" in first.reason
        assert second.outcome == "inconclusive"
        assert bench.kernel.read_text() == COPY
    else:
        assert bench.rows() == undisturbed
        assert bench.kernel.read_text() == COPY + "// FAST\n"


@pytest.mark.slow
def test_killed_before_each_line_of_its_journal_in_turn_it_comes_to_the_same(
    bench: Bench, undisturbed: list[records.Iteration]
) -> None:
    """Each process writes a line and does the next thing, and is killed before it writes that down."""
    deaths = 0
    while (
        killed_at(bench.run, lambda _step, _state, _iteration, count: count == 3, after=False)
        == -signal.SIGKILL
    ):
        deaths += 1
        assert deaths < 100
    assert deaths > 2 * 2 * len(STEPS)
    once(bench)
    assert bench.rows() == undisturbed
    assert bench.kernel.read_text() == COPY + "// FAST\n"


def test_a_line_that_was_being_written_did_not_happen(
    bench: Bench, undisturbed: list[records.Iteration]
) -> None:
    assert killed_at(bench.run, lambda *at: at[:3] == ("take", "end", 1), after=True) == -signal.SIGKILL
    journal = bench.state / "journal.jsonl"
    journal.write_bytes(journal.read_bytes()[:-7])
    bench.run()
    assert bench.rows() == undisturbed


def test_a_clock_that_is_set_gives_a_loop_no_more_time_and_no_less(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = Journal(_made(tmp_path / "state"))
    journal.write("session", "begin")
    began, real = journal.active_s(), time.time
    for moved_s in (-1e9, 1e9):
        monkeypatch.setattr(time, "time", lambda moved_s=moved_s: real() + moved_s)
        assert began <= journal.active_s() < 1e6
        journal.write("build", "begin")
    journal.close()
    assert 0 <= Journal(tmp_path / "state").active_s() < 1e6


def test_a_heartbeat_that_somebody_wrote_is_no_traceback(tmp_path: Path) -> None:
    journal = Journal(_made(tmp_path / "state"))
    for text in ('{"pid": Infinity, "at": 0}', '{"pid": 1, "at": NaN}', "[]", '{"pid": 1e400, "at": "x"}'):
        (tmp_path / "state" / HEARTBEAT).write_text(text)
        with pytest.raises(JournalError, match="another loop is at work"):
            Journal(tmp_path / "state")
    journal.close()


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def test_a_second_loop_is_kept_out_and_a_damaged_journal_is_a_sentence(bench: Bench) -> None:
    bench.run()
    journal = Journal(bench.state)
    with pytest.raises(
        JournalError, match=r"another loop is at work in .* \(process \d+, last seen \d+ s ago\)"
    ):
        Journal(bench.state)
    journal.close()
    path = bench.state / "journal.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole.replace(b'"decision": "KEEP"', b'"decision": "REVERT"'))
    with pytest.raises(JournalError, match=r"line \d+ of .* is damaged; --fresh-start begins anew"):
        Journal(bench.state)
    path.write_bytes(b"{}\n" + whole)
    with pytest.raises(JournalError, match=r"line 1 of .* is damaged; --fresh-start begins anew"):
        Journal(bench.state)
    Journal(bench.state, fresh=True).close()
    assert {path.name for path in bench.state.iterdir()} <= {".gitignore", "lock", "lock-journal"}
    with pytest.raises(JournalError, match="is not the folder of a loop"):
        Journal(bench.folder, fresh=True)


def test_a_line_that_the_disk_took_half_of_damages_no_other(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.write("a", "begin")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, ((tmp_path / "journal.jsonl").stat().st_size + 20, hard))
    try:
        with pytest.raises(OSError, match="the disk is full; free space"):
            journal.write("b", "begin")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    journal.write("c", "begin")
    journal.close()
    again = Journal(tmp_path)
    assert [entry.step for entry in again.entries] == ["a", "c"]
    again.close()


def test_a_copy_that_was_changed_is_not_put_back(bench: Bench) -> None:
    bench.run()
    for copy in (bench.state / "copies").iterdir():
        copy.write_text("// mine\n")
    bench.limits = LoopLimits(iterations=3)
    with pytest.raises(JournalError, match="was changed; begin with --fresh-start"):
        bench.run()
    assert bench.kernel.read_text() == COPY + "// FAST\n"
