"""popcorn's routes, asked as popcorn-cli asks them. The real program was not run: its requests are those of its source. The GPU side
is recorded (recorded_worker.py).
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from orbit_lsp.api import popcorn
from orbit_lsp.queue import request as requests
from orbit_remote.common import measure
from orbit_remote.common import messages as c
from orbit_remote.common.contracts import popcorn_task
from tests.e2e.forks import LIMIT_S
from tests.e2e.test_api import server

EXAMPLES = Path(__file__).parents[2] / "examples"
SUBMISSION = (EXAMPLES / "popcorn_rms_norm" / "submission.py").read_text()
PROBLEMS = popcorn.problems(EXAMPLES)
PLACE = "/popcorn_rms_norm/local:0/leaderboard"


def upload(text: str = SUBMISSION) -> dict[str, Any]:
    return {"file": ("submission.py", text.encode())}


def events(text: str) -> list[tuple[str, Any]]:
    return [(kind, json.loads(data)) for kind, data in re.findall(r"event: (\w+)\ndata: (.*)\n\n", text)]


async def test_a_submission_followed_by_its_events(tmp_path: Path, recorded_python: str) -> None:
    async with server(tmp_path, recorded_python, PROBLEMS, token="secret") as (client, _):
        own = {"X-Popcorn-Cli-Id": "secret"}
        [board] = (await client.get("/leaderboards", headers=own)).json()
        assert (board["name"], type(board["task"]), type(board["description"])) == (
            "popcorn_rms_norm",
            dict,
            str,
        )
        assert (await client.get("/gpus/popcorn_rms_norm", headers=own)).json() == ["local:0"]
        answer = await client.post(PLACE, files=upload(), headers=own)
        assert answer.headers["content-type"].startswith("text/event-stream")
        *before, (kind, last) = events(answer.text)
        assert {name for name, _ in before} == {"status"}
        assert before[0][1]["message"]
        assert (kind, last["status"]) == ("result", "success")
        run = last["results"][0]["runs"]["leaderboard"]["run"]
        assert (run["passed"], run["exit_code"], run["result"]["check"]) == (True, 0, "pass")
        assert isinstance(last["reports"][0], str)
        assert (await client.get("/leaderboards")).status_code == 401


async def test_a_submission_that_is_polled_and_cancelled(tmp_path: Path, recorded_python: str) -> None:
    async with server(tmp_path, recorded_python, PROBLEMS) as (client, queue):
        answer = await client.post(f"/submission{PLACE}", files=upload())
        body = answer.json()
        assert (answer.status_code, body["status"], body["runner_queue"]["gpu"]) == (
            202,
            "accepted",
            "local:0",
        )
        number = body["details"]["id"]
        assert number < 1 << 53  # as an integer of JSON
        await queue.wait(popcorn.job_of(number), LIMIT_S)
        shown = (await client.get(f"/user/submissions/{number}")).json()
        assert (shown["id"], shown["done"], shown["code"]) == (number, True, SUBMISSION)
        assert (shown["runs"][0]["mode"], shown["runs"][0]["passed"]) == ("leaderboard", True)
        assert shown["grade"] == "author"

        slow = await client.post(
            "/submission/popcorn_rms_norm/local:0/test", files=upload(SUBMISSION + "# SLOW\n")
        )
        number = slow.json()["details"]["id"]
        assert (await client.delete(f"/user/submissions/{number}")).json() == {
            "status": "ok",
            "submission_id": number,
        }
        ended = (await client.get(f"/user/submissions/{number}")).json()
        assert (ended["done"], ended["runs"], ended["job"]["error"]) == (True, [], "cancelled")
        assert (await client.get("/user/submissions/5")).status_code == 404
        plain = (
            await client.post("/v1/jobs", json={"name": "k.cu", "text": "__global__ void k() {}"})
        ).json()["id"]
        assert (await client.get(f"/user/submissions/{popcorn.number(plain)}")).status_code == 400


async def test_the_ranking_of_a_leaderboard(tmp_path: Path, recorded_python: str) -> None:
    async with server(tmp_path, recorded_python, PROBLEMS) as (client, queue):
        for mode, text in [
            ("leaderboard", SUBMISSION),
            ("leaderboard", SUBMISSION),
            ("leaderboard", SUBMISSION + "# 2\n"),
            ("test", SUBMISSION + "# 3\n"),
            ("leaderboard", SUBMISSION + "# BUG\n"),
        ]:
            answer = await client.post(f"/submission/popcorn_rms_norm/local:0/{mode}", files=upload(text))
            last = popcorn.job_of(answer.json()["details"]["id"])
        await queue.wait(last, LIMIT_S)
        ranked = (await client.get("/submissions/popcorn_rms_norm/local:0")).json()
        assert [(entry["rank"], entry["runs"], entry["grade"]) for entry in ranked] == [
            (1, 2, "author"),
            (1, 1, "author"),
        ]
        assert ranked[0]["submission_score"] > 0
        assert ranked[0]["gpu"] == "NVIDIA H100 80GB HBM3"
        assert (await client.get("/submissions/popcorn_rms_norm/local:0?limit=1&offset=1")).json() == ranked[
            1:
        ]
        assert (await client.get("/submission_count/popcorn_rms_norm/local:0")).json() == {"count": 2}
        assert (await client.get("/submissions/popcorn_rms_norm/B200")).json() == []
        assert (await client.get("/submissions/other/local:0")).status_code == 404
        html = {"Accept": "text/html"}
        shown = (await client.get("/page/leaderboards/popcorn_rms_norm", headers=html)).text
        assert ranked[0]["job"] in shown
        assert '<a href="/page/leaderboards/popcorn_rms_norm">' in (await client.get("/", headers=html)).text
        assert (await client.get("/page/leaderboards/other")).status_code == 404


def test_a_text_is_ranked_by_the_median_of_its_runs() -> None:
    def score(text: str, seconds: float, slot: str = "modal:H100#2") -> popcorn.Score:
        job: Any = SimpleNamespace(id="a" * 16, slot=slot, file="submission.py", submitted=1.0)
        return popcorn.Score(job, "b", text, "NVIDIA H100", seconds, "author")

    lucky = [score("x", 3.0), score("x", 1.0), score("x", 4.0)]
    every = [*lucky, score("y", 2.0), score("z", 0.5, "modal:L4#1")]
    assert [
        (entry["rank"], entry["submission_score"], entry["runs"]) for entry in popcorn.ranking(every, "H100")
    ] == [(1, 2.0, 1), (2, 3.0, 3)]


@pytest.mark.parametrize(
    ("route", "text", "status", "detail"),
    [
        ("/submission/other/local:0/test", SUBMISSION, 404, "there is no leaderboard 'other'; this server has: popcorn_rms_norm"),
        ("/submission/popcorn_rms_norm/local:0/private", SUBMISSION, 400, "'private' is not a mode; use one of test, "),
        ("/submission/popcorn_rms_norm/B200/test", SUBMISSION, 400, "no place of this pool is 'B200'"),
        ("/submission/popcorn_rms_norm/local:0/test", "x = 1", 400, "a submission needs a function custom_kernel"),
        ("/popcorn_rms_norm/local:0/test", "\ud800", 400, "the submission is not a text in UTF-8"),
    ],
)  # fmt: skip
async def test_what_is_refused(
    tmp_path: Path, recorded_python: str, route: str, text: str, status: int, detail: str
) -> None:
    async with server(tmp_path, recorded_python, PROBLEMS) as (client, queue):
        content = text.encode("utf-8", "surrogatepass")
        answer = await client.post(route, files={"file": ("submission.py", content)})
        assert (answer.status_code, answer.json()["detail"][: len(detail)]) == (status, detail)
        assert (
            await client.post(route, content=b"no form", headers={"Content-Type": "text/plain"})
        ).status_code in (400, 404)
        assert queue.store.jobs() == []


def test_a_test_times_nothing_and_the_problem_goes_with_the_job() -> None:
    [problem] = popcorn.problems(EXAMPLES)
    task = popcorn_task.of_file(problem.folder / "task.yml")
    for mode, benchmarks in (("test", ()), ("leaderboard", task.benchmarks)):
        asked = popcorn.request(problem, mode, "", SUBMISSION)
        requests.check(asked, trusted=False)
        written = popcorn_task.read(asked.files["task.yml"])
        assert (written.tests, written.benchmarks) == (task.tests, benchmarks)
        assert {"reference.py", "task.py"} <= set(asked.files)


def test_what_clients_read_of_a_result() -> None:
    timing = measure.timing(range(1_000_000, 2_000_000, 20_000), "cold L2, n=50")
    launches = (c.Launches("custom_kernel", "custom_kernel", (0, 0, 0), (0, 0, 0), timing, 50),)
    wrong = c.Check("check_implementation", False, message="mismatch at 3")
    points = (
        c.Point({"rows": "1"}, "test 1", (), (c.Check("check_implementation", True),)),
        c.Point({"rows": "2"}, "test 2", (), (wrong,)),
        c.Point({"version": "custom_kernel", "rows": "64"}, "", launches),
        c.Point({"version": "ref_kernel", "rows": "64"}, "", launches),
    )
    keys = popcorn._results(c.ok("1", points=points))
    assert keys == {
        "check": "pass", "test-count": "2", "test.0.spec": "rows: 1", "test.0.status": "pass", "test.1.spec": "rows: 2",
        "test.1.status": "fail", "test.1.error": "mismatch at 3", "benchmark-count": "1", "benchmark.0.spec": "rows: 64",
        "benchmark.0.runs": "50", "benchmark.0.mean": "1490000.0", "benchmark.0.std": keys["benchmark.0.std"],
        "benchmark.0.best": "1000000", "benchmark.0.worst": "1980000", "benchmark.0.err": keys["benchmark.0.err"],
    }  # fmt: skip
    for ranking, score in (("last", 0.00149), ("mean", 0.00149), ("geom", 0.00149)):
        known = {"mode": "leaderboard", "ranking_by": ranking}
        assert popcorn._score(c.ok("1", points=points), known) == pytest.approx(score)
    assert popcorn._score(c.ok("1", points=points), {"mode": "benchmark", "ranking_by": "last"}) is None
