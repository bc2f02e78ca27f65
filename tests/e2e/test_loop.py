"""`orbit-lsp loop`, whole. The GPU side is recorded (recorded_worker.py): these machines have none. Shell scripts stand in for agents."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace

import pytest
from pydantic import TypeAdapter

from orbit_lsp.agents.loop import judge, records
from orbit_lsp.queue.job_store import Result
from orbit_lsp.queue.request import Request
from orbit_remote.common import messages as c
from tests.cli_check import orbit as in_this_process
from tests.e2e.test_history import SAXPY
from tests.e2e.test_spec_runs import orbit
from tests.loops import RESULT, VERDICT, killed_at
from tests.test_harness_view import KERNELBENCH

WORDS = ("loop", "saxpy.cu", "--pool", "local:0")


class Agents:
    """`edits` are words that the worker puts before the kernel's body, one in each iteration."""

    def __init__(self, folder: Path, *edits: str, claim: str = "null", more: str = "") -> None:
        self.folder, self.kernel = folder, folder / "saxpy.cu"
        self.state = folder / ".orbit-loop" / "saxpy.cu"
        self.kernel.write_text(SAXPY)
        cases = "".join(
            f"{at}) sed -i 's|{{|{{/*{edit}*/ int i{at};|' $2;;\n" for at, edit in enumerate(edits, 1)
        )
        result = RESULT.replace("k.cu", "saxpy.cu") % (
            "'$1'",
            f', "metric_name": "time_us", "metric_value": {claim}',
        )
        (folder / "worker").write_text(
            f"echo $1 >> began\ncase $1 in {cases}esac\necho '{result}' > $3\n{more}"
        )
        (folder / "reviewer").write_text(
            f"echo '{VERDICT % (chr(39) + '$1' + chr(39), 'CONTINUE', '')}' > $3"
        )

    def words(self, *more: str) -> tuple[str, ...]:
        given = [word for role in ("worker", "reviewer") for word in (f"--{role}", f"sh {self.folder}/{role} {{iteration}} {{kernel}} {{result}}")]  # fmt: skip
        return (*WORDS, "--mode", "command", *given, *more)

    def rows(self) -> list[records.Iteration]:
        lines = (self.state / "history.jsonl").read_text().splitlines()
        return [TypeAdapter(records.Iteration).validate_json(line, strict=True) for line in lines]


def test_programs_in_turn_and_the_table_of_what_became_of_it(tmp_path: Path, recorded_python: str) -> None:
    agents = Agents(tmp_path, "FAST", "NOISE", "WRONG", "BUG")
    code, out, message = orbit(tmp_path, recorded_python, *agents.words("--max-iterations", "4"))
    assert (code, re.sub(r"/\S+/", "", out)) == (
        0,
        """\
saxpy: the loop
  stopped     iterations: the limit of 4 iterations (--max-iterations)
  iterations  4, 1 kept
  time        288 µs at the start, 268 µs now
  in turn     -7.0% time (-7.0% to -7.0%)
  folder      saxpy.cu
""",
    ), message
    assert [(row.decision, row.outcome) for row in agents.rows()] == [
        ("KEEP", "faster"), ("REVERT", "inconclusive"), ("REVERT", "failed"), ("REVERT", "failed"),
    ]  # fmt: skip
    assert (
        agents.rows()[2].reason == "y[7] is 0.5 and not 2.5; 12 of 67,108,864 elements differ [wrong answer]"
    )
    assert (
        agents.rows()[3].reason == 'does not compile: 1 error: identifier "BUG" is undefined [compile error]'
    )
    assert agents.kernel.read_text() == SAXPY.replace("{", "{/*FAST*/ int i1;")
    assert (
        "iteration 1: KEEP, faster: -7.0% time against the best so far (-7.0% to -7.0%, 7 pairs of runs); best 268 µs\n"
        in message
    )
    page = (agents.state / "history.html").read_text()
    assert "best after iteration 1: 268 µs" in page


def test_a_claim_that_is_not_measured(tmp_path: Path, recorded_python: str) -> None:
    agents = Agents(tmp_path, "FAST", claim="200")
    code, out, _ = orbit(tmp_path, recorded_python, *agents.words("--max-iterations", "1", "--json"))
    assert (code, json.loads(out)["outcomes"]) == (0, {"evidence error": 1})
    assert agents.rows()[0].reason == (
        "the worker claims 200 µs, and the loop measured 268 µs: -25.3%, where runs differ by at most 2.2%"
    )
    assert agents.kernel.read_text() == SAXPY


def test_by_hand(tmp_path: Path, recorded_python: str) -> None:
    """What has been written already is not waited for."""
    (tmp_path / "saxpy.cu").write_text(SAXPY)
    folder = tmp_path / "there" / "iter_0001"
    folder.mkdir(parents=True)
    (folder / "worker_result.json").write_text(RESULT.replace("k.cu", "saxpy.cu") % (1, ""))
    (folder / "reviewer_verdict.json").write_text(VERDICT % (1, "STOP_BLOCKED", ""))
    code, out, _ = orbit(tmp_path, recorded_python, *WORDS, "--state", "there", "--json")
    known = json.loads(out)
    assert (code, known["stopped"], known["outcomes"]) == (0, "reviewer", {"unchanged": 1})
    assert "The worker's change: " in (folder / "reviewer_prompt.txt").read_text()


def test_a_contract_has_its_reference_as_its_judge(tmp_path: Path, recorded_python: str) -> None:
    (tmp_path / "k.py").write_text(KERNELBENCH)
    (tmp_path / "worker").write_text(
        f"echo '# new' >> k.py; echo '{RESULT.replace('k.cu', 'k.py') % (chr(39) + '$1' + chr(39), '')}' > $2"
    )
    words = (
        "--mode",
        "command",
        "--worker",
        "sh worker {iteration} {result}",
        "--max-iterations",
        "1",
        "--json",
    )
    code, out, message = orbit(tmp_path, recorded_python, "loop", "k.py", "--pool", "local:0", *words)
    assert code == 0, message
    known = json.loads(out)
    assert (known["kernel"], known["start_ns"], known["outcomes"]) == ("ModelNew", 3.1e6, {"inconclusive": 1})
    assert (tmp_path / "k.py").read_text() == KERNELBENCH


def test_a_kernel_that_does_not_compile_begins_no_loop(tmp_path: Path, recorded_python: str) -> None:
    (tmp_path / "saxpy.cu").write_text(SAXPY.replace("{", "{BUG"))
    code, out, message = orbit(tmp_path, recorded_python, *WORDS)
    assert (code, out) == (1, "")
    assert "orbit-lsp: error: does not compile: 1 error [compile error]\n" in message
    code, out, _ = orbit(tmp_path, recorded_python, *WORDS, "--json")
    failure = json.loads(out)["failure"]
    assert (code, failure["category"], failure["message"]) == (
        1,
        "compile error",
        "does not compile: 1 error",
    )


def test_a_worker_that_kills_the_loop(tmp_path: Path, recorded_python: str) -> None:
    """Its result was there: the next start takes it, and starts no worker again."""
    agents = Agents(tmp_path, "FAST", more="[ $1 = 2 ] || kill -9 $PPID")
    words = agents.words("--max-iterations", "2")
    assert orbit(tmp_path, recorded_python, *words)[0] == -signal.SIGKILL
    code, _, message = orbit(tmp_path, recorded_python, *words)
    assert code == 0, message
    assert [row.outcome for row in agents.rows()] == ["faster", "unchanged"]
    assert (tmp_path / "began").read_text() == "1\n2\n"


def test_what_the_queue_has_measured_is_not_measured_again(
    tmp_path: Path, recorded_python: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed once the comparison has ended, and before the journal says so."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / ".state"))
    agents = Agents(tmp_path, "FAST")
    words = agents.words("--max-iterations", "1", "--no-reviewer", "--python", recorded_python)

    def loop() -> None:
        os.setsid()  # what it starts is not of this group
        in_this_process(tmp_path, *words)

    assert killed_at(loop, lambda *at: at[:3] == ("measure", "end", 1), after=False) == -signal.SIGKILL
    assert in_this_process(tmp_path, *words)[0] == 0
    jobs = json.loads(orbit(tmp_path, None, "jobs", "list", "--json")[1])
    keys = sorted(job["key"].partition("/")[2].partition("-")[0] for job in jobs)
    assert keys == ["1", "start", "whole"]
    assert {job["gpu"] for job in jobs} == {"local:0"}
    assert [row.outcome for row in agents.rows()] == ["faster"]


@pytest.mark.parametrize(
    ("message", "outcome", "expected"),
    [
        ("now: does not compile", "failed", "does not compile [compile error]"),
        ("k.cu: does not compile", "infrastructure failure", "k.cu: does not compile [infrastructure]"),
    ],
)
async def test_where_the_best_version_fails_the_machine_is_at_fault(
    message: str, outcome: str, expected: str
) -> None:
    """It has run before. The queue is a stand-in, because a recorded worker fails by the text alone."""
    ended = json.loads(json.dumps(asdict(Result(c.failed("j", c.Failure("compile error", message))))))

    async def job(_: object) -> SimpleNamespace:
        return SimpleNamespace(id="j")

    async def read(what: Callable[[], object]) -> object:
        return what()

    queue = SimpleNamespace(submit=job, wait=job, read=read, store=SimpleNamespace(result=lambda _: ended))
    meter = judge.QueueMeter(queue, Request(name="k.cu", text="", path="/k.cu"))  # type: ignore[arg-type]
    result = records.WorkerResult(1, "k.cu", True, True, "KEEP")
    row = judge.judged(1, result, await meter.compare("l/1", "then", "now"), None, changed=True)
    assert (row.decision, row.outcome, row.reason) == ("REVERT", outcome, expected)
