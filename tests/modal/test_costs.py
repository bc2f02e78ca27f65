"""What renting costs: prices, the ledger of a month, what a container has cost. No control plane here."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from orbit_lsp.runners.modal.costs import Costs, Wanted
from orbit_lsp.runners.modal.ledger import Ledger, Span, state_folder
from orbit_lsp.runners.modal.rates import MODALS, TABLES, Rates
from orbit_lsp.runners.modal.sessions import Sessions

H100 = 3.95 + 2 * 0.0473 + 4 * 0.008
"""Dollars an hour of a container with one, two cores and 4 GiB, by the table."""


@pytest.mark.parametrize(
    ("gpu", "hourly"),
    [
        ("H100", H100),
        ("H100:8", H100 + 7 * 3.95),
        ("A10", 1.10 + 0.1266),
        ("A100-80GB", 2.50 + 0.1266),
        ("RTX PRO 6000", 3.03 + 0.1266),
        ("", 0.1266),
    ],
)
def test_a_container_costs_its_gpus_its_cores_and_its_memory(gpu: str, hourly: float) -> None:
    price = Rates().of(gpu)
    assert price
    assert price.usd_per_s * 3600 == pytest.approx(hourly)
    assert price.rates == "rates of 2026-09-20"


def test_every_gpu_of_the_settings_has_a_price() -> None:
    from orbit_lsp.state.config import GPUS

    assert [gpu for gpu in GPUS if Rates().of(gpu) is None] == []


ANSWER = {"gpu_hour_cost_h100": "3.00", "cpu_hour_cost": "0.05", "mem_gib_hour_cost": "0.01"}


@pytest.mark.parametrize(
    ("answer", "gpu", "hourly", "rates"),
    [
        (ANSWER, "H100", 3.14, MODALS),
        (ANSWER, "L4", 0.80 + 0.1266, TABLES),  # Modal did not say: the table, and not a mixture
        (ANSWER | {"cpu_hour_cost": "n/a"}, "H100", H100, TABLES),
        ({"GPU_H100": "0.001"}, "H100", H100, TABLES),  # names that are not known say nothing
    ],
)
def test_modals_own_prices_go_first(answer: dict[str, str], gpu: str, hourly: float, rates: str) -> None:
    known = Rates()
    known.take(answer)
    price = known.of(gpu)
    assert price
    assert (price.usd_per_s * 3600, price.rates) == (pytest.approx(hourly), rates)


def test_a_gpu_without_a_price_has_none() -> None:
    assert Rates().of("B300") is None


# -- the ledger -------------------------------------------------------------------------------------

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC).timestamp()
NOVEMBER = datetime(2026, 11, 1, tzinfo=UTC).timestamp()
HOUR = 3600.0
RATE = 0.001


def span(
    name: str, began: float, ends: float | None, rate: float | None = RATE, expires: float | None = None
) -> Span:
    return Span(name, "H100", began, ends, rate, "" if rate is None else TABLES, expires)


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(lambda: tmp_path / "state" / "rented.sqlite")


def month(ledger: Ledger, *spans: Span, now: float = NOON) -> tuple[float, float, float]:
    """(spent, due, seconds without a price), dollars as thousandths: seconds at the rate of these tests."""
    for one in spans:
        ledger.put(one)
    found = ledger.month(now)
    assert ledger.complaints() == []
    return round(found.spent_usd / RATE), round(found.due_usd / RATE), round(found.unpriced_s)


def test_what_is_rented_now_is_spent_so_far_and_due_to_its_end(ledger: Ledger) -> None:
    over, now = span("a", NOON - 900, NOON - 600), span("b", NOON - 100, NOON + 200)
    assert month(ledger, over, now) == (300 + 100, 200, 0)


def test_only_what_lies_in_the_month_counts(ledger: Ledger) -> None:
    assert month(ledger, span("a", NOVEMBER - 500, NOVEMBER + 40), span("b", NOVEMBER - 90, NOVEMBER - 1)) == (
        40, 0, 0
    )  # fmt: skip


def test_a_kept_container_counts_until_somebody_says_that_it_has_ended(ledger: Ledger) -> None:
    assert month(ledger, span("a", NOON - HOUR, None)) == (3600, 0, 0)
    assert month(ledger, now=NOON + HOUR) == (7200, 0, 0)
    assert ledger.month(NOON).kept == ("H100",)
    ledger.end_all(NOON)
    assert month(ledger, now=NOON + HOUR) == (3600, 0, 0)
    assert ledger.month(NOON).kept == ()


def test_a_price_that_is_not_known_is_no_dollar_and_its_seconds_are_said(ledger: Ledger) -> None:
    assert month(ledger, span("a", NOON - 60, NOON, rate=None)) == (0, 0, 60)


def test_a_container_that_two_editors_use_is_counted_once(ledger: Ledger, tmp_path: Path) -> None:
    month(ledger, span("ta-1", NOON - 100, NOON + 200))
    other = Ledger(lambda: tmp_path / "state" / "rented.sqlite")
    assert month(other, span("ta-1", NOON - 50, NOON + 250)) == (100, 250, 0)
    ledger.end("ta-1", NOON)
    assert month(other) == (100, 0, 0)


def test_a_waiting_run_is_due_until_its_container_speaks(ledger: Ledger) -> None:
    assert month(ledger, span("r1", NOON, NOON + 500, expires=NOON + HOUR)) == (0, 500, 0)
    ledger.put(span("ta-1", NOON, NOON + 400), instead="r1")
    assert month(ledger) == (0, 400, 0)


def test_a_waiting_run_of_an_editor_that_died_is_forgotten(ledger: Ledger) -> None:
    assert month(ledger, span("r1", NOON - HOUR, NOON, expires=NOON - 1)) == (0, 0, 0)


def test_many_processes_write_at_once(ledger: Ledger, tmp_path: Path) -> None:
    code = (
        "import sys, pathlib\n"
        "from orbit_lsp.runners.modal.ledger import Ledger, Span\n"
        "ledger = Ledger(lambda: pathlib.Path(sys.argv[1]))\n"
        f"for n in range(20): ledger.put(Span(f'{{sys.argv[2]}}-{{n}}', 'H100', {NOON} - 10, {NOON}, {RATE}, ''))\n"
        "print(ledger.complaints())\n"
    )
    path = str(tmp_path / "state" / "rented.sqlite")
    command = [sys.executable, "-c", code, path]
    writers = [subprocess.Popen([*command, str(n)], stdout=subprocess.PIPE, text=True) for n in range(4)]
    assert [one.communicate()[0] for one in writers] == ["[]\n"] * 4
    assert month(ledger) == (4 * 20 * 10, 0, 0)


def test_a_damaged_file_is_set_aside_and_said(ledger: Ledger, tmp_path: Path) -> None:
    path = tmp_path / "state" / "rented.sqlite"
    path.parent.mkdir()
    path.write_bytes(b"no database " * 1000)
    ledger.put(span("a", NOON - 60, NOON))
    assert round(ledger.month(NOON).spent_usd / RATE) == 60
    (said,) = ledger.complaints()
    (aside,) = path.parent.glob("*.damaged-*")
    assert str(aside) in said
    assert aside.read_bytes().startswith(b"no database")


def test_a_folder_that_cannot_be_written_is_said_and_stops_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    ledger = Ledger(lambda: tmp_path / "file" / "rented.sqlite")
    ledger.put(span("a", NOON - 60, NOON))
    assert ledger.month(NOON).spent_usd == 0
    assert "cannot be kept" in ledger.complaints()[0]


def test_old_rows_go(ledger: Ledger, tmp_path: Path) -> None:
    ledger.put(span("old", NOON - 500 * 86_400, NOON - 499 * 86_400))
    ledger.put(span("new", NOON, NOON))
    with sqlite3.connect(tmp_path / "state" / "rented.sqlite") as file:
        assert [name for (name,) in file.execute("select id from rented")] == ["new"]


@pytest.mark.skipif(sys.platform != "linux", reason="the XDG specification")
def test_the_ledger_lies_in_the_state_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "/var/state")
    assert state_folder() == Path("/var/state/orbit-lsp")
    monkeypatch.setenv("XDG_STATE_HOME", "relative")
    monkeypatch.setenv("HOME", "/home/u")
    assert state_folder() == Path("/home/u/.local/state/orbit-lsp")


# -- containers -------------------------------------------------------------------------------------


class Clock:
    now = NOON

    def time(self) -> float:
        return self.now

    monotonic = time


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr("orbit_lsp.runners.modal.sessions.time", made)
    monkeypatch.setattr("orbit_lsp.runners.modal.costs.time", made)
    return made


@pytest.fixture
def costs(tmp_path: Path, clock: Clock) -> Costs:
    return Costs(lambda: tmp_path / "rented.sqlite")


async def spent_and_due(costs: Costs) -> tuple[int, int]:
    found = await costs.month()
    assert found
    return round(found.spent_usd / H100 * 3600), round(found.due_usd / H100 * 3600)


async def test_a_session_costs_its_start_its_runs_and_its_idle_time(clock: Clock, costs: Costs) -> None:
    sessions = Sessions(300, lambda: None, costs, limit_s=240)
    sessions.begin("H100", "r1-ab", {"container": "ta-1", "age_s": 12.0})
    assert await spent_and_due(costs) == (12, 240 + 300)  # nobody knows how long the run will take
    clock.now += 8
    cost = sessions.end("r1-ab")
    assert cost
    assert (cost.gpu, cost.seconds, cost.rates) == ("H100", 20, TABLES)
    assert cost.usd == pytest.approx(20 * H100 / 3600)
    assert cost.idle_usd == pytest.approx(300 * H100 / 3600)
    assert await spent_and_due(costs) == (20, 300)
    clock.now += 100
    sessions.begin("H100", "r2-cd", {"container": "ta-1", "age_s": 120.0})
    clock.now += 5
    again = sessions.end("r2-cd")
    assert again
    assert again.seconds == 5  # the idle time before is the session's, not the run's
    (session,) = sessions.all()
    assert (session.runs, session.gpu_s) == (2, 25)
    assert session.usd(clock.now) == pytest.approx(125 * H100 / 3600)
    clock.now += 30
    assert sessions.idle("H100") == {"ta-1"}
    sessions.left("H100", "ta-1")
    assert await spent_and_due(costs) == (155, 0)


async def test_two_containers_of_one_gpu_both_count(clock: Clock, costs: Costs) -> None:
    sessions = Sessions(300, lambda: None, costs)
    for run in ("1", "2"):
        sessions.begin("H100", f"r{run}-x", {"container": f"ta-{run}", "age_s": 1})
    clock.now += 9
    assert [sessions.end(f"r{run}-x").seconds for run in ("1", "2")] == [10, 10]  # type: ignore[union-attr]
    assert await spent_and_due(costs) == (20, 600)


async def test_a_run_that_began_again_elsewhere_ended_the_container_before(
    clock: Clock, costs: Costs
) -> None:
    sessions = Sessions(300, lambda: None, costs)
    sessions.begin("H100", "r1-x", {"container": "ta-1", "age_s": 0})
    clock.now += 10
    sessions.begin("H100", "r1-x", {"container": "ta-2", "age_s": 0})
    clock.now += 4
    sessions.end("r1-x")
    assert [one.container for one in sessions.all()] == ["ta-2"]
    assert await spent_and_due(costs) == (14, 300)


async def test_a_restricted_container_ends_with_its_run(clock: Clock, costs: Costs) -> None:
    sessions = Sessions(300, lambda: None, costs)
    sessions.answered(
        "H100", "r1-x", {"finished": {}, "container": "ta-1", "age_s": 7, "seconds": 3}, alone=True
    )
    cost = sessions.end("r1-x")
    assert cost
    assert (cost.seconds, cost.idle_usd) == (7, None)
    assert sessions.all() == []
    assert await spent_and_due(costs) == (7, 0)


async def test_a_container_that_compiles_is_in_the_month_and_is_no_gpu(clock: Clock, costs: Costs) -> None:
    sessions = Sessions(300, lambda: None, costs)
    sessions.begin(None, "r1-x", {"container": "ta-1", "age_s": 10})
    assert sessions.end("r1-x") is None
    assert sessions.all() == []
    found = await costs.month()
    assert found
    assert (found.gpu_s, found.spent_usd) == (0, pytest.approx(10 * 0.1266 / 3600))


async def test_a_kept_container_has_a_name_once_a_run_was_in_it(clock: Clock, costs: Costs) -> None:
    sessions = Sessions(300, lambda: None, costs)
    sessions.keep("H100", True)
    clock.now += 50
    sessions.begin("H100", "r1-x", {"container": "ta-1", "age_s": 20})
    clock.now += 5
    sessions.end("r1-x")
    (session,) = sessions.all()
    assert (session.container, session.kept) == ("ta-1", True)
    assert await spent_and_due(costs) == (55, 0)
    clock.now += 100
    assert await spent_and_due(costs) == (155, 0)


async def test_what_waits_counts_until_it_is_over(costs: Costs) -> None:
    costs.reserve(Wanted("r1", "H100", 540))
    assert await spent_and_due(costs) == (0, 540)
    costs.unreserve("r1")
    assert await spent_and_due(costs) == (0, 0)


async def test_a_complaint_is_said_once(tmp_path: Path) -> None:
    said: list[str] = []
    (tmp_path / "file").write_text("")
    costs = Costs(lambda: tmp_path / "file" / "x", said.append)
    costs.reserve(Wanted("r1", "H100", 540))
    costs.unreserve("r1")
    await asyncio.wait_for(costs.month(), 5)
    assert len(said) == 1
