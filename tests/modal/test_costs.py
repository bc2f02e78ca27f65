"""What renting costs: prices, the ledger of a month, what a container has cost. No control plane here."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest

from orbit_lsp.runners.modal.costs import RentalCosts, WantedGpu
from orbit_lsp.runners.modal.ledger import Ledger, RentedTime
from orbit_lsp.runners.modal.rates import MODALS, TABLES, Rates
from orbit_lsp.runners.modal.sessions import ContainerSessions
from orbit_lsp.state.user_folders import state_folder

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
    from orbit_lsp.state.modal_gpus import NAMES

    assert [gpu for gpu in NAMES if Rates().of(gpu) is None] == []


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
YEAR = 365.25 * 86_400
RATE = 0.001


def span(name: str, began: float, ends: float | None, rate: float | None = RATE) -> RentedTime:
    return RentedTime(name, "H100", began, ends, rate, "" if rate is None else TABLES)


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(lambda: tmp_path / "state" / "rented.sqlite")


def month(ledger: Ledger, *spans: RentedTime, now: float = NOON) -> tuple[float, float, float]:
    """(spent, due, seconds without a price), dollars as thousandths: seconds at the rate of these tests."""
    for item in spans:
        ledger.put(item)
    result = ledger.month(now)
    assert ledger.complaints() == []
    assert result
    return round(result.spent_usd / RATE), round(result.due_usd / RATE), round(result.unpriced_s)


def spent(ledger: Ledger) -> int:
    result = ledger.month(NOON)
    return round(result.spent_usd / RATE) if result else -1


def kept(ledger: Ledger) -> tuple[str, ...]:
    result = ledger.month(NOON)
    assert result
    return result.kept


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
    assert kept(ledger) == ("H100",)
    ledger.end(None, NOON)
    assert month(ledger, now=NOON + HOUR) == (3600, 0, 0)
    assert kept(ledger) == ()


def test_a_price_that_is_not_known_is_no_dollar_and_its_seconds_are_said(ledger: Ledger) -> None:
    assert month(ledger, span("a", NOON - 60, NOON, rate=None)) == (0, 0, 60)


def test_a_container_that_two_editors_use_is_counted_once(ledger: Ledger, tmp_path: Path) -> None:
    month(ledger, span("ta-1", NOON - 100, NOON + 200))
    other = Ledger(lambda: tmp_path / "state" / "rented.sqlite")
    assert month(other, span("ta-1", NOON - 50, NOON + 250)) == (100, 250, 0)
    ledger.end("ta-1", NOON)
    assert month(other) == (100, 0, 0)


def test_a_waiting_run_is_due_until_its_container_speaks(ledger: Ledger) -> None:
    assert ledger.reserve([span("r1", NOON, NOON + 500)], None, NOON)
    assert month(ledger) == (0, 500, 0)
    ledger.put(span("ta-1", NOON, NOON + 400), instead="r1")
    assert month(ledger) == (0, 400, 0)


ASKS = """
import sys, pathlib
from orbit_lsp.runners.modal.ledger import Ledger, RentedTime
ledger = Ledger(lambda: pathlib.Path(sys.argv[1]))
print("here", flush=True)
for line in sys.stdin:
    count, now = int(line.split()[0]), float(line.split()[1])
    answers = [ledger.reserve([RentedTime(f"r{n}", "H100", now, now + 1000, 0.001)], 10.0, now) for n in range(count)]
    print(sum(fits for _, fits in answers), ledger.complaints(), flush=True)
"""


class Editors:
    """Processes that ask for a dollar at a time, of a month's budget of ten."""

    def __init__(self, path: Path, count: int) -> None:
        command = [sys.executable, "-c", ASKS, str(path)]
        self.processes = [
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            for _ in range(count)
        ]
        assert [self.hear(process) for process in self.processes] == ["here"] * count

    def ask(self, count: int, now: float = NOON) -> int:
        """How often they are allowed it together; each asks `count` times."""
        for process in self.processes:
            assert process.stdin
            process.stdin.write(f"{count} {now}\n")
            process.stdin.flush()
        answers = [self.hear(process).partition(" ") for process in self.processes]
        assert [complaints for _, _, complaints in answers] == ["[]"] * len(answers)
        return sum(int(allowed) for allowed, _, _ in answers)

    def hear(self, process: subprocess.Popen[str]) -> str:
        assert process.stdout
        return process.stdout.readline().strip()

    def kill(self) -> None:
        for process in self.processes:
            process.kill()
            process.communicate()


@pytest.fixture
def editors(ledger: Ledger, tmp_path: Path) -> Iterator[Editors]:
    made = Editors(tmp_path / "state" / "rented.sqlite", 4)
    yield made
    made.kill()


def test_of_a_thousand_questions_at_once_as_many_are_allowed_as_the_budget_pays(
    editors: Editors, ledger: Ledger
) -> None:
    assert editors.ask(250) == 10
    assert month(ledger) == (0, 10_000, 0)


def test_a_reservation_counts_while_its_editor_lives_whatever_the_clock_says_and_no_longer(
    editors: Editors, ledger: Ledger
) -> None:
    assert editors.ask(3) == 10
    for years in (-30, 0, 30):
        assert month(ledger, now=NOON + years * YEAR) == (0, 10_000, 0)
        assert editors.ask(1, NOON + years * YEAR) == 0
    editors.kill()
    assert month(ledger) == (0, 0, 0)


def test_a_reservation_that_does_not_fit_takes_none_of_its_part(ledger: Ledger) -> None:
    both = [span("r1", NOON, NOON + 3000), span("r2", NOON, NOON + 3000)]
    for limit, fits in ((5.0, False), (6.0, True), (6.0, False), (None, True)):
        answer = ledger.reserve(both, limit, NOON)
        assert answer
        assert answer[1] is fits
    assert month(ledger) == (0, 6000, 0)  # the same runs, asked for once more
    ledger.release("r1")
    assert month(ledger) == (0, 3000, 0)
    ledger.close()
    assert month(ledger) == (0, 0, 0)


@pytest.mark.parametrize("clocks", [[-30], [30], [30, -30], [30, 30, -5], [-30, -30]])
def test_a_clock_that_was_set_wrong_for_a_while_neither_frees_money_nor_locks_it(
    ledger: Ledger, clocks: list[int]
) -> None:
    """`clocks` are in years before or after; each ran while $1 was spent, after $5 in November."""
    hours = [span(f"a{n}", NOON - (9 - n) * HOUR, NOON - (9 - n) * HOUR + 1000) for n in range(5)]
    month(ledger, *hours)
    for number, years in enumerate(clocks):
        wrong = NOON + years * YEAR
        spent, due, _ = month(ledger, span(f"b{number}", wrong - 1000, wrong), now=wrong)
        assert spent + due >= 1000
    spent, due, _ = month(ledger)
    assert spent + due == 5000 + 1000 * len(clocks)
    month(ledger, *(span(f"c{n}", NOON + n * HOUR, NOON + n * HOUR + 1000) for n in range(1, 6)))
    december = NOVEMBER + 31 * 86_400
    assert month(ledger, now=december) == (0, 0, 0)
    assert month(ledger, now=NOON + 30 * YEAR) == (0, 0, 0)


def test_set_back_by_a_month_the_clock_makes_no_fresh_month(ledger: Ledger) -> None:
    month(ledger, *(span(f"a{n}", NOON - (9 - n) * HOUR, NOON - (9 - n) * HOUR + 1000) for n in range(5)))
    spent, due, _ = month(ledger, now=NOON - 40 * 86_400)
    assert spent + due == 5000


def test_two_editors_use_a_container_and_it_ends_with_the_later_one(ledger: Ledger, tmp_path: Path) -> None:
    other = Ledger(lambda: tmp_path / "state" / "rented.sqlite")
    month(ledger, span("ta-1", NOON - 100, NOON + 900))
    assert month(other, span("ta-1", NOON - 100, NOON + 200)) == (100, 900, 0)
    assert month(ledger, span("ta-1", NOON - 100, NOON + 50)) == (100, 200, 0)


def test_a_row_that_somebody_wrote_by_hand_is_no_row(ledger: Ledger, tmp_path: Path) -> None:
    month(ledger, span("ta-1", NOON - 100, NOON))
    with closing(sqlite3.connect(tmp_path / "state" / "rented.sqlite")) as file, file:
        for number, values in enumerate(
            [
                ("H100", "soon", None, 1.0),
                ("H100", 1e300, 1e308, 1.0),
                (b"\xff", 1.0, 2.0, 1.0),
                ("H100", 1.0, b"", 1.0),
            ]
        ):
            file.execute("insert into spans values (?, 'x', ?, ?, ?, ?, '', 0)", (f"bad{number}", *values))
        file.execute("insert into spans values (cast(x'ff' as text), 'x', 'H100', 1.0, 2.0, 1e300, '', 0)")
    assert month(ledger) == (100, 0, 0)


def test_a_file_of_the_version_before_keeps_what_was_spent(ledger: Ledger, tmp_path: Path) -> None:
    path = tmp_path / "state" / "rented.sqlite"
    path.parent.mkdir()
    with closing(sqlite3.connect(path)) as file, file:
        file.execute(
            "create table rented (id text primary key, gpu text not null, began real not null, ends real, "
            "usd_per_s real, rates text, expires real)"
        )
        file.execute("pragma user_version = 1")
        rows = [("ta-1", NOON - 100, None), ("r1", NOON - 100, NOON + HOUR)]
        file.executemany(f"insert into rented values (?, 'H100', ?, {NOON}, {RATE}, 'x', ?)", rows)
    assert month(ledger) == (100, 0, 0)


def test_many_processes_write_at_once(ledger: Ledger, tmp_path: Path) -> None:
    code = (
        "import sys, pathlib\n"
        "from orbit_lsp.runners.modal.ledger import Ledger, RentedTime\n"
        "ledger = Ledger(lambda: pathlib.Path(sys.argv[1]))\n"
        f"for n in range(20): ledger.put(RentedTime(f'{{sys.argv[2]}}-{{n}}', 'H100', {NOON} - 10, {NOON}, {RATE}, ''))\n"
        "print(ledger.complaints())\n"
    )
    path = str(tmp_path / "state" / "rented.sqlite")
    command = [sys.executable, "-c", code, path]
    writers = [subprocess.Popen([*command, str(n)], stdout=subprocess.PIPE, text=True) for n in range(4)]
    assert [writer.communicate()[0] for writer in writers] == ["[]\n"] * 4
    assert month(ledger) == (4 * 20 * 10, 0, 0)


def test_a_damaged_file_is_set_aside_and_said(ledger: Ledger, tmp_path: Path) -> None:
    path = tmp_path / "state" / "rented.sqlite"
    path.parent.mkdir()
    path.write_bytes(b"no database " * 1000)
    ledger.put(span("a", NOON - 60, NOON))
    assert spent(ledger) == 60
    (message,) = ledger.complaints()
    (aside,) = path.parent.glob("*.damaged-*")
    assert str(aside) in message
    assert aside.read_bytes().startswith(b"no database")


def test_what_was_spent_while_the_file_could_not_be_written_is_written_later(
    ledger: Ledger, tmp_path: Path
) -> None:
    ledger._file.busy_s = 0.05
    assert spent(ledger) == 0
    path = tmp_path / "state" / "rented.sqlite"
    with closing(sqlite3.connect(path, isolation_level=None)) as file:
        file.execute("begin exclusive")
        ledger.put(span("a", NOON - 60, None))
        ledger.end("a", NOON - 10)
        assert ledger.complaints()[0] == (
            f"the costs of rented GPUs cannot be recorded: database is locked ({path}); another process holds it: wait for that "
            "process, or end it"
        )
    assert ledger._file.write_again(at_once=True)
    assert spent(ledger) == 50


def test_a_folder_that_cannot_be_written_is_said_and_stops_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    ledger = Ledger(lambda: tmp_path / "file" / "rented.sqlite")
    ledger.put(span("a", NOON - 60, NOON))
    assert ledger.month(NOON) is None
    assert ledger.reserve([], 5.0, NOON) is None
    assert "cannot be recorded" in ledger.complaints()[0]


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

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr("orbit_lsp.runners.modal.sessions.clock", made)
    monkeypatch.setattr("orbit_lsp.runners.modal.costs.clock", made)
    return made


@pytest.fixture
def costs(tmp_path: Path, clock: Clock) -> RentalCosts:
    return RentalCosts(lambda: tmp_path / "rented.sqlite")


async def spent_and_due(costs: RentalCosts) -> tuple[int, int]:
    result = await costs.month()
    assert result
    return round(result.spent_usd / H100 * 3600), round(result.due_usd / H100 * 3600)


async def test_a_session_costs_its_start_its_runs_and_its_idle_time(clock: Clock, costs: RentalCosts) -> None:
    sessions = ContainerSessions(300, lambda: None, costs, limit_s=240)
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


@pytest.mark.parametrize("age", [10**400, float("inf"), 1e12, float("nan"), "x", -1e12], ids=["int", "inf", "float", "nan", "text", "negative"])  # fmt: skip
async def test_a_container_that_lies_about_its_age_costs_what_one_can(
    clock: Clock, costs: RentalCosts, age: object
) -> None:
    """The ledger leaves rows out that begin before any clock: such a container would cost nothing."""
    sessions = ContainerSessions(300, lambda: None, costs)
    sessions.begin("H100", "r1-x", {"container": "ta-1", "age_s": age})
    clock.now += 9
    sessions.end("r1-x")
    spent, due = await spent_and_due(costs)
    assert due == 300
    assert 9 <= spent <= 86_409


async def test_two_containers_of_one_gpu_both_count(clock: Clock, costs: RentalCosts) -> None:
    sessions = ContainerSessions(300, lambda: None, costs)
    for run in ("1", "2"):
        sessions.begin("H100", f"r{run}-x", {"container": f"ta-{run}", "age_s": 1})
    clock.now += 9
    assert [sessions.end(f"r{run}-x").seconds for run in ("1", "2")] == [10, 10]  # type: ignore[union-attr]
    assert await spent_and_due(costs) == (20, 600)


async def test_a_run_that_began_again_elsewhere_ended_the_container_before(
    clock: Clock, costs: RentalCosts
) -> None:
    sessions = ContainerSessions(300, lambda: None, costs)
    sessions.begin("H100", "r1-x", {"container": "ta-1", "age_s": 0})
    clock.now += 10
    sessions.begin("H100", "r1-x", {"container": "ta-2", "age_s": 0})
    clock.now += 4
    sessions.end("r1-x")
    assert [session.container for session in sessions.all()] == ["ta-2"]
    assert await spent_and_due(costs) == (14, 300)


async def test_a_restricted_container_ends_with_its_run(clock: Clock, costs: RentalCosts) -> None:
    sessions = ContainerSessions(300, lambda: None, costs)
    sessions.answered(
        "H100", "r1-x", {"finished": {}, "container": "ta-1", "age_s": 7, "seconds": 3}, alone=True
    )
    cost = sessions.end("r1-x")
    assert cost
    assert (cost.seconds, cost.idle_usd) == (7, None)
    assert sessions.all() == []
    assert await spent_and_due(costs) == (7, 0)


async def test_a_container_that_compiles_is_in_the_month_and_is_no_gpu(
    clock: Clock, costs: RentalCosts
) -> None:
    sessions = ContainerSessions(300, lambda: None, costs)
    sessions.begin(None, "r1-x", {"container": "ta-1", "age_s": 10})
    assert sessions.end("r1-x") is None
    assert sessions.all() == []
    result = await costs.month()
    assert result
    assert (result.gpu_s, result.spent_usd) == (0, pytest.approx(10 * 0.1266 / 3600))


async def test_a_kept_container_has_a_name_once_a_run_was_in_it(clock: Clock, costs: RentalCosts) -> None:
    sessions = ContainerSessions(300, lambda: None, costs)
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


async def test_what_waits_counts_until_it_is_over(costs: RentalCosts) -> None:
    wanted = WantedGpu("r1", "H100", 540)
    await costs.reserve([wanted], None)
    assert await spent_and_due(costs) == (0, 540)
    costs.unreserve(wanted)
    assert await spent_and_due(costs) == (0, 0)


async def test_a_complaint_is_said_once(tmp_path: Path) -> None:
    messages: list[str] = []
    (tmp_path / "file").write_text("")
    costs = RentalCosts(lambda: tmp_path / "file" / "x", messages.append)
    wanted = WantedGpu("r1", "H100", 540)
    await costs.reserve([wanted], None)
    costs.unreserve(wanted)
    await asyncio.wait_for(costs.month(), 5)
    assert len(messages) == 1
