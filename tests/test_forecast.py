"""How long jobs will wait, by a clock of the test."""

from __future__ import annotations

import random
from collections import deque

import pytest

from orbit_lsp.queue import forecast
from orbit_lsp.queue.forecast import Ahead, Forecast, Like
from orbit_lsp.queue.request import Request

A, B = Like("a", "run author click", "author"), Like("b", "run referee click", "referee")
NEW = Like("new", "run author click", "author")
STRANGE = Like("strange", "profile author click", "author")
TWO = ("local:0", "local:1")


def knowing(**seconds: float) -> Forecast:
    known = Forecast()
    for like in (A, B):
        if like.problem in seconds:
            known.ended(like, seconds[like.problem])
    return known


@pytest.mark.parametrize(
    ("running", "ahead", "waits"),
    [
        ({"local:0": None}, [A, B, A], [0.0, 4.0, 14.0]),
        ({"local:0": (A, 1.0)}, [B, A], [3.0, 13.0]),
        ({"local:0": (A, 8.0)}, [B], [2.0]),  # longer than expected
        ({"local:0": (B, 1.0), "local:1": (A, 1.0)}, [A, A, B], [3.0, 7.0, 9.0]),
        ({"local:0": None}, [NEW, A], [0.0, 4.0]),  # as others of its kind
        ({"local:0": None}, [STRANGE, A], [0.0, None]),
        ({"local:0": (STRANGE, 1.0)}, [A], [None]),
        ({}, [A], [None]),
    ],
)
def test_a_job_waits_for_those_before_it(
    running: dict[str, tuple[Like, float] | None], ahead: list[Like], waits: list[float | None]
) -> None:
    known = knowing(a=4.0, b=10.0)
    assert known.waits_s(running, [Ahead(like, TWO) for like in ahead]) == waits


def test_only_its_own_places_count() -> None:
    known = knowing(a=4.0, b=10.0)
    ahead = [Ahead(A, ["local:0"]), Ahead(B, ["local:1"]), Ahead(A, ["local:0"])]
    assert known.waits_s({"local:0": (B, 4.0), "local:1": None}, ahead) == [6.0, 0.0, 10.0]


def test_figures_are_by_grade() -> None:
    known = Forecast()
    for waited in range(100):
        known.begun(f"job{waited}", A, float(waited))
    known.ended(B, 3.0)
    (author, took), (none, referee) = known.figures()["author"], known.figures()["referee"]
    assert author
    assert (author.p50, author.p95, author.n, took, none) == (49.5, 95.0, 100, None, None)
    assert referee == forecast.Spread(3.0, 3.0, 1)


@pytest.mark.parametrize(
    ("predicted", "waited", "good"),
    [(1.0, 2.9, 1.0), (1.0, 3.1, 0.0), (80.0, 100.0, 1.0), (70.0, 100.0, 0.0)],
)
def test_a_prediction_is_good_within_a_quarter_or_two_seconds(
    predicted: float, waited: float, good: float
) -> None:
    known = Forecast()
    known.submitted("job", predicted)
    known.begun("job", A, waited)
    assert known.good() == (good, 1)
    told = known.predicted(5.0)
    assert told == forecast.Predicted(5.0, good, 1)


def test_what_a_request_is_like() -> None:
    request = Request(name="c_new.py", text="class ModelNew: ...", files={"c.py": "class Model: ..."})
    another = Request(name="c_new.py", text="class ModelNew: pass", files={"c.py": "class Model: ..."})
    graded = Request(name="c_new.py", text="x", files={"c.py": "class Model: ..."}, grade="referee")
    assert forecast.like(request) == forecast.like(another)
    assert forecast.like(request).problem != forecast.like(graded).problem
    assert forecast.like(Request(name="k.cu", text="a")) != forecast.like(Request(name="k.cu", text="b"))


def simulated(seed: int, count: int = 500) -> float:
    """Share of good predictions for jobs of 20 problems of 1 to 20 s and two grades that come to two places in bursts; each takes within
    10 % of what its problem does.
    """
    draw = random.Random(seed)
    problems = [
        (Like(f"p{number}", grade := draw.choice(("author", "referee")), grade), draw.uniform(1, 20))
        for number in range(20)
    ]
    known, now = Forecast(), 0.0
    queue: deque[tuple[str, Like, float, float]] = deque()
    running: dict[str, tuple[Like, float, float] | None] = dict.fromkeys(TWO)

    def advance(until: float) -> None:
        nonlocal now
        while True:
            for place, job in running.items():
                if job is None and queue:
                    name, like, took, since = queue.popleft()
                    known.begun(name, like, now - since)
                    running[place] = (like, now, now + took)
            ends = [(job[2], place) for place, job in running.items() if job]
            if not ends or min(ends)[0] > until:
                now = until
                return
            now, place = min(ends)
            job = running[place]
            assert job
            known.ended(job[0], now - job[1])
            running[place] = None

    for number in range(count):
        advance(now + draw.expovariate(0.25) * (draw.random() < 0.9))
        like, usual = draw.choice(problems)
        queue.append((f"job{number}", like, usual * draw.uniform(0.9, 1.1), now))
        busy = {place: (job[0], now - job[1]) if job else None for place, job in running.items()}
        known.submitted(f"job{number}", known.waits_s(busy, [Ahead(each[1], TWO) for each in queue])[-1])
    advance(now + 1e6)
    good, of = known.good()
    assert of > 0.9 * count
    assert good is not None
    return good


def test_nine_of_ten_predictions_are_good_once_the_problems_are_known() -> None:
    assert min(simulated(seed) for seed in range(5)) >= 0.9
