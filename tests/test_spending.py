"""What an author reads about rented GPUs, and the budget's arithmetic, without Modal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from orbit_lsp.places.places import Places
from orbit_lsp.runners.modal import ledger, spending
from orbit_lsp.runners.modal.costs import RentalCosts, WantedGpu
from orbit_lsp.runners.modal.ledger import Month, RentedTime, clock
from orbit_lsp.runners.modal.rates import Price
from orbit_lsp.runners.modal.sessions import ContainerSession
from orbit_lsp.runs import multi_gpu, summary
from orbit_lsp.state import session as sessions
from orbit_lsp.state.placement import RunSetup
from orbit_lsp.state.results import GpuResult, MultiGpuResult
from orbit_lsp.views import gpu_table, tables
from orbit_remote.common import messages as c
from orbit_remote.common.measurements import Timing
from orbit_remote.common.requests import Action, Job
from tests.settings_check import settings_of_values

NOW = 1_800_000_000.0
MODALS = Price(0.001, "Modal's rates")


@pytest.mark.parametrize(
    ("session", "message"),
    [
        (
            ContainerSession("H100", NOW - 100, NOW + 200, 2, 3.14, price=MODALS),
            "2 runs, 3.1 s of work; $0.10 so far, $0.20 more if it idles to its end, at Modal's rates",
        ),
        (
            ContainerSession("H100", NOW - 100, None, 0, 0.0, price=MODALS),
            "H100: at work, 0 runs, 0.0 s of work; $0.10 so far, $0.30 more if it idles to its end, at Modal's rates",
        ),
        (
            ContainerSession("H100", NOW - 100, NOW, 1, 9.0, kept=True, price=MODALS),
            (
                "H100: kept warm until it is released, 1 run, 9.0 s of work; $0.10 so far, $3.60/h from now on, "
                "at Modal's rates"
            ),
        ),
        (ContainerSession("H100", NOW - 100, NOW, 1, 9.0), "1 run, 9.0 s of work; its price is not known"),
    ],
    ids=["warm", "at work", "kept", "no price"],
)
def test_a_session(session: ContainerSession, message: str) -> None:
    assert spending.session_text(session, 300, NOW).endswith(message)


MONTH = Month("November 2026", 1034.4, 1.204, 0.34, 0.0, ("Modal's rates",), ())


@pytest.mark.parametrize(
    ("month", "budget", "message"),
    [
        (
            MONTH,
            5.0,
            (
                "November 2026: $1.20 for 1,034 s of rented GPUs, with starts and idle time, $0.34 more if what is rented now idles to its end, "
                "at Modal's rates; the budget is $5.00"
            ),
        ),
        (
            replace(MONTH, due_usd=0.0, unpriced_s=40.0, rates=("Modal's rates", "rates of 2026-09-20")),
            None,
            (
                "November 2026: $1.20 for 1,034 s of rented GPUs, with starts and idle time, at Modal's rates and rates of 2026-09-20; 40 s have no "
                "known price and are not included"
            ),
        ),
        (
            replace(MONTH, due_usd=0.0, kept=("H100",)),
            None,
            (
                "November 2026: $1.20 for 1,034 s of rented GPUs, with starts and idle time, at Modal's rates; H100 is kept and billed until "
                "`orbit-lsp modal stop`"
            ),
        ),
    ],
    ids=["due", "no price", "kept"],
)
def test_a_month(month: Month, budget: float | None, message: str) -> None:
    assert spending.month_text(month, budget) == message


@pytest.mark.parametrize(
    ("cost", "message"),
    [
        (c.Cost("H100", 4.21, 0.0048, 0.34, "Modal's rates"), "4.2 s of H100, $0.0048 at Modal's rates"),
        (c.Cost("B300", 4.21), "4.2 s of B300"),
    ],
)
def test_a_run(cost: c.Cost, message: str) -> None:
    finished = c.Finished("r1", "timed out", c.Failure("timed out", "over 60 s"), cost=cost)
    assert summary.one_line(finished, compiled_only=False) == f"timed out: over 60 s · {message}"


# -- the budget -------------------------------------------------------------------------------------

HOUR = WantedGpu("r1", "H100", 3600)
"""$4.08 by the table."""


class Author:
    def __init__(self, answer: str | None) -> None:
        self.answer = answer
        self.asked: list[str] = []

    async def __call__(self, text: str, answers: Sequence[str]) -> str | None:
        self.asked.append(text)
        return self.answer


@pytest.fixture
def costs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RentalCosts:
    """In the middle of a month: what may run on into the next one is no cost of this."""
    middle = datetime.now(UTC).replace(day=15).timestamp()
    monkeypatch.setattr(ledger, "_STARTED", ledger._STARTED + middle - clock())
    return RentalCosts(lambda: tmp_path / "rented.sqlite")


async def test_two_runs_that_fit_alone_and_not_together(costs: RentalCosts) -> None:
    budget = spending.Budget(costs)
    other = replace(HOUR, run="r2")
    assert await budget.question([HOUR], 5) is None
    question = await budget.question([other], 5)
    assert question == (
        "this may take the month's spending on Modal to $8.15, past the budget of $5.00 ($0.00 spent, $4.08 more "
        "rented or waiting, $4.08 for the 3,600 s that it may take: 3,600 s to build and to run by its limits, at rates of 2026-09-20)"
    )
    budget.over([HOUR])
    assert await budget.question([other], 5) is None


async def test_two_editors_share_the_month(costs: RentalCosts, tmp_path: Path) -> None:
    assert await spending.Budget(costs).question([HOUR], 5) is None
    other = RentalCosts(lambda: tmp_path / "rented.sqlite")
    assert await costs.month()  # what was told before is written
    assert await spending.Budget(other).question([HOUR], 5)


async def test_a_damaged_record_of_this_month_is_asked_about(costs: RentalCosts, tmp_path: Path) -> None:
    (tmp_path / "rented.sqlite").write_bytes(b"no database " * 1000)
    question = await spending.Budget(costs).question([HOUR], 50)
    assert question
    assert question.startswith(
        "the record of this month's costs was damaged, so the month's budget of $50.00 may be exceeded ($0.00 spent"
    )
    (aside,) = tmp_path.glob("rented.damaged-*")  # noqa: ASYNC240
    assert f"delete {aside} to count from there" in question
    aside.unlink()
    assert await spending.Budget(costs).question([HOUR], 50) is None


async def test_a_build_on_a_machine_without_a_gpu_leaves_the_reservation_of_the_gpu(
    costs: RentalCosts,
) -> None:
    assert await spending.Budget(costs).question([HOUR], 5) is None
    costs.put(RentedTime("ta-1", "", clock(), None, 0.0, ""), "r1")
    assert await spending.Budget(costs).question([replace(HOUR, run="r2")], 5)
    costs.put(RentedTime("ta-2", "H100", clock(), clock(), 0.0, ""), "r1")
    assert await spending.Budget(costs).question([replace(HOUR, run="r2")], 5) is None


async def test_a_gpu_without_a_price_is_asked_about(costs: RentalCosts) -> None:
    question = await spending.Budget(costs).question([WantedGpu("r1", "B300", 1)], 500)
    assert question
    assert question.startswith(
        "the price of B300 is not known, so the month's budget of $500.00 may be exceeded"
    )


@pytest.mark.parametrize(
    ("answer", "refused", "again"),
    [(spending.ONCE, False, True), (spending.ALWAYS, False, False), (None, True, True), ("else", True, True)],
)
async def test_what_the_author_answers(
    costs: RentalCosts, answer: str | None, refused: bool, again: bool
) -> None:
    author = Author(answer)
    budget = spending.Budget(costs, author)
    question = await budget.question([HOUR], 1)
    assert question
    failure = await budget.asked(question, [HOUR])
    assert (failure is not None) is refused
    assert failure is None or failure.category == "cancelled"
    assert author.asked == [f"orbit: {question}"]
    assert (await budget.question([replace(HOUR, run="r2")], 1) is not None) is again


async def test_where_nobody_can_answer_it_is_refused_with_a_remedy(costs: RentalCosts) -> None:
    failure = await spending.Budget(costs).asked("too much", [HOUR])
    assert failure == c.Failure("infrastructure", "too much", "raise the setting `orbit.modal.budget_usd`")


# -- several GPUs -----------------------------------------------------------------------------------


def launched(name: str, median: float, **more: object) -> c.Launches:
    timing = Timing(19, median, "in program, n=19", spread=0.002)
    return c.Launches("k", name, (4, 1, 1), (256, 1, 1), timing, 20, registers=40, **more)  # type: ignore[arg-type]


def on(gpu: str, device: str, capability: str, median: float, usd_per_s: float | None) -> GpuResult:
    launches = launched("saxpy", median)
    finished = c.Finished("r1", "ok", launches=(launches,), device=c.Device(device, 0, capability))
    return GpuResult(gpu, finished, (launches,), usd_per_s, "Modal's rates" if usd_per_s else "")


H100 = on("H100", "NVIDIA H100 80GB HBM3", "9.0", 288_000, 0.001)
L4 = on("L4", "NVIDIA L4", "8.9", 2_660_000, None)
REFUSED = GpuResult(
    "B200", c.Finished("r1", "infrastructure", c.Failure("infrastructure", "no room\nmore")), ()
)


def text(*rows: GpuResult, stale: bool = False) -> str:
    table = gpu_table.table(MultiGpuResult("", NOW - 300, rows), "saxpy", NOW, stale=stale)
    return tables.render([table], markdown=False)


def test_a_table_of_several_gpus() -> None:
    assert text(H100, L4, REFUSED) == (
        "saxpy on 3 GPUs, 5 min ago; dollars at Modal's rates\n"
        "  GPU                    time           occupancy         an hour  a million launches\n"
        "  NVIDIA H100 80GB HBM3  288 µs ±0.2%   ≤75% (registers)  $3.60/h  $0.29\n"
        "  NVIDIA L4              2.66 ms ±0.2%  ≤100%\n"
        "  B200                                                                                 no room"
    )


def test_columns_that_no_gpu_fills_are_left_out() -> None:
    shown = text(L4, stale=True).splitlines()
    assert shown[0] == "saxpy on 1 GPU, 5 min ago, edited since"
    assert shown[1].split() == ["GPU", "time", "occupancy"]


def test_a_launch_spec_s_rate_is_in_the_table() -> None:
    point = c.Point(launches=(launched("saxpy", 288_000),), bytes=805_306_368, footprint=805_306_368)
    device = c.Device(
        "NVIDIA H100 80GB HBM3", 0, "9.0", memory_clock_mhz=2619, bus_width_bits=5120, multiprocessors=132
    )
    finished = c.Finished("r1", "ok", device=device, points=(point,))
    shown = text(GpuResult("H100", finished, point.launches, 0.001, "Modal's rates"))
    assert "2.80 TB/s" in shown


def test_one_end_for_all_of_them() -> None:
    cost = c.Cost("H100", 2.0, 0.5, 0.3, "Modal's rates")
    finished = {
        "H100": replace(H100.finished, cost=cost),
        "L4": replace(L4.finished, cost=c.Cost("L4", 3.0)),
        "B200": REFUSED.finished,
    }
    answer = multi_gpu.overall("all1", finished)
    assert summary.one_line(answer, compiled_only=False) == "H100 288 µs, L4 2.66 ms · 5.0 s of H100, L4"
    assert answer.remarks == ("B200: no room\nmore",)
    assert multi_gpu.overall("all1", {"B200": REFUSED.finished}).outcome == "infrastructure"


def test_a_price_or_a_time_that_is_not_known_is_null() -> None:
    result = gpu_table.as_json("saxpy", MultiGpuResult("", NOW, (H100, L4, REFUSED)))
    assert [item["usd_per_million_launches"] for item in result["gpus"]] == [pytest.approx(0.288), None, None]
    assert [item["time_ns"] for item in result["gpus"]] == [288_000, 2_660_000, None]


@pytest.mark.parametrize(
    ("action", "asks"), [("run", True), ("profile", True), ("sanitize", True), ("compile", False)]
)
async def test_whatever_rents_a_gpu_goes_through_the_months_budget(action: Action, asks: bool) -> None:
    session = sessions.Session(
        setup=RunSetup(settings_of_values({"runner": "modal", "modal": {"budget_usd": 1, "compile": True}}))
    )
    places = Places(session, pytest.fail, lambda uris: None)
    job = Job("r1", action, "cuda", "/src/k.cu", "", gpu="H100")
    runner = await places.runner_of(job)
    assert isinstance(runner, spending.Budgeted) is asks
    await places.close()
