"""The loop: its limits, its judgement of evidence, and that it goes on where it was killed. No GPU, no agent (loops.py)."""

from __future__ import annotations

import io
import json
import os
import random
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest
from pydantic import TypeAdapter
from rich.console import Console

from orbit_lsp.agents.loop import history, judge, parties, records, subject
from orbit_lsp.agents.loop.coordinator import LoopError, LoopLimits
from orbit_lsp.agents.loop.judge import LoopTarget, Measured
from orbit_lsp.agents.loop.parties import Manual
from orbit_lsp.agents.loop.records import ReviewerVerdict, UnusableAnswerError, WorkerResult
from orbit_lsp.cli.doors import loop_view
from orbit_lsp.views.explain import explanations
from tests.cli_check import orbit
from tests.loops import COPY, KERNEL, NOISE, ORDERED, RESULT, Bench, Meter, decided
from tests.processes_check import wait_until_ended


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench.ready(tmp_path)


# -- what is kept -----------------------------------------------------------------------------------


def test_what_is_faster_stays_and_everything_else_goes(bench: Bench) -> None:
    bench.limits = LoopLimits(iterations=5)
    bench.worker("FAST", "NOISE", "SLOW", "BUG", "FAST")
    bench.kernel.chmod(0o640)
    (bench.folder / "beside.cuh").write_text("// not ours\n")
    summary = bench.run()
    assert bench.outcomes() == [
        "KEEP faster", "REVERT inconclusive", "REVERT slower", "REVERT failed", "KEEP faster",
    ]  # fmt: skip
    assert (
        bench.kernel.read_text() == COPY + "// FAST\n// FAST\n" == (bench.state / "best" / "k.cu").read_text()
    )
    assert bench.kernel.stat().st_mode & 0o777 == 0o640
    beside = {path.name for path in bench.folder.iterdir()} - {
        "k.cu",
        "state",
        "began",
        "worker.sh",
        "reviewer.sh",
    }
    assert beside == {"beside.cuh"}
    assert (summary.stopped, summary.kept, summary.outcomes["faster"]) == ("iterations", 2, 2)
    assert summary.ratio == pytest.approx(0.93**2)
    assert "+// FAST" in (bench.state / "iter_0001" / "change.patch").read_text()
    lines = (bench.state / "history.jsonl").read_text().splitlines()
    assert [json.loads(line)["iteration"] for line in lines] == [1, 2, 3, 4, 5]
    page = (bench.state / "history.html").read_text()
    assert "<svg" in page
    assert "iteration 3, slower: " in page
    assert json.loads((bench.state / "heartbeat.json").read_text())["pid"] == os.getpid()
    assert json.loads((bench.state / "summary.json").read_text())["kept"] == 2


@pytest.mark.parametrize(
    ("worker", "reviewer", "outcome", "reason"),
    [
        ({"more": ', "metric_name": "time_us", "metric_value": 93.9'}, {}, "KEEP faster", "-7.0% time"),
        ({"more": ', "metric_name": "gmean_ms", "metric_value": 0.09'}, {}, "REVERT evidence error",
         "the worker claims 90.0 µs, and the loop measured 93.0 µs: -3.2%, where runs differ by at most 2.2%"),
        ({"more": ', "metric_name": "tflops", "metric_value": 9'}, {}, "REVERT evidence error", "metric_name is 'tflops'; the loop measures time"),
        ({"more": ', "metric_name": "time_us", "metric_value": 1e999'}, {}, "REVERT evidence error", "metric_value is inf, which is not a time"),
        ({"more": ', "artifacts": ["../iter_0007/a"]'}, {}, "REVERT evidence error", "lies in iter_0007, the folder of another iteration"),
        ({"more": ', "artifacts": ["/etc/passwd"]'}, {}, "REVERT evidence error", "lies outside of iter_0001"),
        ({"more": ', "artifacts": ["absent.ncu-rep"]'}, {}, "REVERT evidence error", "the artifact 'absent.ncu-rep' does not exist"),
        ({"result": RESULT.replace("k.cu", "/tmp/other.cu")}, {}, "REVERT evidence error", "kernel_path is '/tmp/other.cu'"),
        ({"result": RESULT.replace("%s,", "7%.0s,", 1)}, {}, "REVERT evidence error", "is of iteration 7, and stands in the folder of iteration 1"),
        ({"result": RESULT.replace('sed": true', 'sed": false', 1)}, {}, "REVERT evidence error", "whose tests did not pass"),
        ({"result": RESULT.replace("KEEP", "REVERT"), "more": ', "errors": ["no idea"]'}, {}, "REVERT withdrawn", "no idea"),
        ({"result": '{"iteration": %s,%.0s'}, {}, "REVERT infrastructure failure", "worker_result.json: Invalid JSON: EOF"),
        ({"result": "[%.0s%.0s]"}, {}, "REVERT infrastructure failure", "worker_result.json: "),
        ({"more": ', "version": 9'}, {}, "REVERT infrastructure failure", "has schema version 9, and this orbit-lsp knows 1"),
        ({"more": ', "metric_value": "fast"'}, {}, "REVERT infrastructure failure", "metric_value: Input should be a valid number"),
        ({}, {"more": ', "requires_revert": true'}, "REVERT vetoed", "faster, but the reviewer requires a revert: r"),
        ({}, {"verdict": "GO ON"}, "REVERT infrastructure failure", "reviewer_verdict.json: verdict: Input should be 'CONTINUE'"),
    ],
)  # fmt: skip
def test_what_a_worker_and_a_reviewer_may_write(
    bench: Bench, worker: dict[str, str], reviewer: dict[str, str], outcome: str, reason: str
) -> None:
    bench.limits = LoopLimits(iterations=1)
    bench.worker("FAST", **worker)
    bench.reviewer(**reviewer)
    bench.run()
    (row,) = bench.rows()
    assert f"{row.decision} {row.outcome}" == outcome
    assert reason in row.reason
    assert bench.kernel.read_text() == (COPY + "// FAST\n" if outcome == "KEEP faster" else COPY)


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("exit 3", "the worker ended with exit code 3 and has not written worker_result.json"),
        ("ln -s /etc/passwd $2", "worker_result.json cannot be read: "),
        ("mkfifo $2", "worker_result.json cannot be read: "),
        ("head -c 2000000 /dev/zero > $2", "worker_result.json cannot be read: it is larger than 1 MiB"),
        ("rm k.cu; ln -s began k.cu; " + "echo '{}' > $2".format(RESULT % (1, "")), "the kernel file cannot be read: it is a link now"),
    ],
)  # fmt: skip
def test_a_worker_that_leaves_no_file(bench: Bench, script: str, reason: str) -> None:
    bench.limits = LoopLimits(iterations=1)
    bench.party("worker", script)
    bench.run()
    (row,) = bench.rows()
    assert row.decision == "REVERT"
    assert reason in row.reason
    assert (bench.kernel.read_text(), bench.kernel.is_symlink()) == (COPY, False)


def test_a_worker_that_never_answers_is_ended_with_all_it_started(bench: Bench) -> None:
    bench.limits = LoopLimits(iterations=1, wait_minutes=0.005)
    bench.party("worker", f"sleep 1000 & echo $! > {bench.folder}/pid; wait")
    bench.run()
    why = "the worker was ended at the limit of 0.005 minutes and has not written worker_result.json"
    assert bench.rows()[0].reason == why
    wait_until_ended(int((bench.folder / "pid").read_text()))


def test_what_a_worker_prints_is_kept_within_bounds(bench: Bench) -> None:
    bench.limits = LoopLimits(iterations=1)
    bench.party("worker", "yes | head -c 5000000; exit 1")
    bench.run()
    assert 1_000 < (bench.state / "iter_0001" / "worker.log").stat().st_size < 1_000_000


def test_a_worker_that_cannot_be_started(bench: Bench) -> None:
    bench.limits = LoopLimits(iterations=1)
    bench.parties["worker"] = parties.CommandParty("worker", ["/absent/agent"], bench.state, "m")
    bench.run()
    assert bench.rows()[0].reason == "the worker cannot be started: /absent/agent: No such file or directory"


def test_another_file_may_not_change(bench: Bench) -> None:
    """Not even one that the text newly needs; it is an evidence error in each turn until it is as it was."""
    bench.harness = {"a.cuh": "1"}
    bench.limits = LoopLimits(iterations=1)
    bench.run()
    bench.limits = LoopLimits(iterations=3)
    bench.worker("FAST", "FAST", "FAST")
    bench.harness = {"a.cuh": "2", "b.cuh": "1"}
    bench.run()
    assert bench.outcomes() == ["KEEP faster", "REVERT evidence error", "REVERT evidence error"]
    why = "only the kernel file may change, and a.cuh was changed, b.cuh is new; put it back as it was"
    assert bench.rows()[2].reason == why


# -- when it stops ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limits", "edits", "stopped", "count"),
    [
        (LoopLimits(), ["FAST", "FAST", "FAST"], "target reached", 2),
        (LoopLimits(iterations=1), ["FAST"], "iterations", 1),
        (LoopLimits(no_progress=3), ["FAST", "NOISE", "SLOW", "BUG"], "no progress", 4),
        (LoopLimits(minutes=1e-9), ["FAST"], "minutes", 0),
    ],
)
def test_the_limits(bench: Bench, limits: LoopLimits, edits: list[str], stopped: str, count: int) -> None:
    bench.target = LoopTarget("time_us", 88.0)
    bench.limits = limits
    bench.worker(*edits)
    summary = bench.run()
    assert (summary.stopped, summary.iterations) == (stopped, count)


def test_failures_of_the_machine_in_a_row_stop_it_and_the_next_start_tries_again(bench: Bench) -> None:
    bench.meter = Meter(bench.began, "infrastructure")
    bench.limits = LoopLimits()
    bench.worker("FAST", "BUG", "BUG", "BUG", "FAST")
    summary = bench.run()
    assert (summary.stopped, summary.iterations) == ("infrastructure", 4)
    bench.limits = LoopLimits(iterations=5)
    assert bench.run().stopped == "iterations"
    assert bench.outcomes()[-1] == "KEEP faster"


@pytest.mark.parametrize(
    ("verdict", "stopped"),
    [("STOP_BLOCKED", "reviewer"), ("STOP_NO_PROGRESS", "reviewer"), ("STOP_TARGET_REACHED", "reviewer"), ("CONTINUE", "iterations")],
)  # fmt: skip
def test_the_reviewer_stops_it(bench: Bench, verdict: str, stopped: str) -> None:
    bench.reviewer(verdict)
    assert bench.run().stopped == stopped
    assert len(bench.rows()) == (2 if stopped == "iterations" else 1)


def test_a_target_is_not_reached_by_a_reviewers_word(bench: Bench) -> None:
    bench.target = LoopTarget("time_us", 1.0)
    bench.reviewer("STOP_TARGET_REACHED")
    assert bench.run().stopped == "iterations"


def test_a_kernel_that_fails_as_it_is_begins_no_loop(tmp_path: Path) -> None:
    bench = Bench(tmp_path, text=COPY + "// BUG\n")
    bench.worker()
    with pytest.raises(LoopError, match="does not compile"):
        bench.run()
    bench.kernel.write_text(COPY)  # fixed
    assert bench.run().stopped == "iterations"


def test_no_money_ends_it_at_once(bench: Bench) -> None:
    bench.meter = Meter(bench.began, "infrastructure", "raise --budget")
    bench.worker("BUG", "FAST")
    summary = bench.run()
    assert (summary.stopped, summary.iterations) == ("budget", 1)
    assert summary.reason.endswith("does not compile [infrastructure]; raise --budget")


def test_the_file_stop_ends_it_after_the_iteration(bench: Bench) -> None:
    bench.party("worker", f"touch {bench.state}/stop; echo '{RESULT % (1, '')}' > $2")
    assert (bench.run().stopped, len(bench.rows())) == ("stopped", 1)


# -- by hand ----------------------------------------------------------------------------------------


def test_by_hand_half_a_file_is_waited_for_and_no_answer_is_a_failure(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parties, "POLL_S", 0.001)
    folder = bench.state / "iter_0001"

    class Slowly(Manual):
        """Whose worker writes in pieces: the rest comes once the first has been looked at."""

        async def answer(self, ask: parties.Ask) -> WorkerResult | ReviewerVerdict:
            text = RESULT % (1, "")
            (folder / "worker_result.json").write_text(text[:30])
            read = records.read

            def rest(*given: object) -> object:
                monkeypatch.setattr(records, "read", read)
                (folder / "worker_result.json").write_text(text)
                raise UnusableAnswerError("infrastructure failure", "half a file")

            monkeypatch.setattr(records, "read", rest)
            return await super().answer(replace(ask, limit_s=600.0))

    bench.parties = {"worker": Slowly(), "reviewer": Manual()}
    bench.limits = LoopLimits(iterations=1, wait_minutes=1e-6)
    bench.run()
    (row,) = bench.rows()
    assert (row.outcome, row.reason[:55]) == (
        "infrastructure failure",
        "the reviewer has not written reviewer_verdict.json with",
    )


def test_by_hand_half_a_file_that_stays_half_is_a_failure(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parties, "POLL_S", 0.001)
    monkeypatch.setattr(parties, "HALF_S", 0.005)
    (bench.state / "iter_0001").mkdir(parents=True)
    (bench.state / "iter_0001" / "worker_result.json").write_text('{"iteration": 1,')
    bench.parties = {"worker": Manual()}
    bench.limits = LoopLimits(iterations=1)
    bench.run()
    assert bench.rows()[0].reason.startswith("worker_result.json: Invalid JSON: EOF")


# -- the kernel and its harness ----------------------------------------------------------------------


HARNESS = "the launch spec (but for its launch lines)"
MODEL = """\
import torch
SIZE = 4
class Model(torch.nn.Module):
    def forward(self, x): return x + 1
def get_inputs(): return [torch.rand(SIZE)]
def get_init_inputs(): return []
class ModelNew(torch.nn.Module):
    def forward(self, x): return x + 1
"""
REFERENCE = "the reference in the file"


@pytest.mark.parametrize(
    ("name", "before", "old", "new", "changed"),
    [
        ("k.cu", COPY, "y[i] = x[i]", "y[i] = x[i] + 0", ""),
        ("k.cu", COPY, "<<<n / 256, 256>>>", "<<<n / 128, 128>>>", ""),
        ("k.cu", COPY, "// orbit: n", "// orbit:   n", ""),
        ("k.cu", COPY, "1 << 20", "1 << 10", f"{HARNESS} was changed"),
        ("k.cu", COPY, "// orbit: expect y == x\n", "", f"{HARNESS} was changed"),
        ("k.cu", COPY, "// orbit: n", '#include "b.cuh"\n// orbit: n', "b.cuh is new"),
        ("k.cu", '#include "b.cuh"\n' + COPY, '#include "b.cuh"\n', "", "b.cuh is gone"),
        ("k.py", MODEL, "New(torch.nn.Module):\n", "New(torch.nn.Module):\n    'mine'\n", ""),
        ("k.py", MODEL, "import torch\n", "import torch, math\nimport os\n", ""),
        ("k.py", MODEL, "SIZE = 4", "SIZE = 2", f"{REFERENCE} was changed"),
        ("k.py", MODEL, "class ModelNew", "Model.forward = None\nclass ModelNew", f"{REFERENCE} was changed"),
        ("k.py", MODEL, "class ModelNew", "from other import get_inputs\nclass ModelNew", f"{REFERENCE} was changed"),
        ("k.py", MODEL, "class ModelNew", "if True:\n    torch = None\nclass ModelNew", f"{REFERENCE} was changed"),
    ],
)  # fmt: skip
async def test_what_belongs_to_the_harness(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, before: str, old: str, new: str, changed: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).write_text(before)
    (tmp_path / "b.cuh").write_text("// used by some\n")
    about = subject.subject(name, None)
    assert old in before
    hashes = [
        await subject.harness_of(about, {}, before, text) for text in (before, before.replace(old, new, 1))
    ]
    assert subject.changed(*hashes) == changed
    assert about.checked


async def test_a_header_and_a_build_file_that_were_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text = '#include "b.cuh"\n' + COPY
    (tmp_path / "k.cu").write_text(text)
    (tmp_path / "b.cuh").write_text("// then\n")
    built = [{"directory": str(tmp_path), "file": "k.cu", "command": "nvcc -DN=1 -c k.cu"}]
    (tmp_path / "compile_commands.json").write_text(json.dumps(built))
    about = subject.subject("k.cu", "copy")
    before = await subject.harness_of(about, {}, text, text)
    (tmp_path / "b.cuh").write_text("// some other time\n")
    assert subject.changed(before, await subject.harness_of(about, {}, text, text)) == "b.cuh was changed"
    built[0]["command"] = "nvcc -DN=2 -c k.cu"
    (tmp_path / "compile_commands.json").write_text(json.dumps(built))
    (tmp_path / "b.cuh").write_text("// then\n")
    assert (
        subject.changed(before, await subject.harness_of(about, {}, text, text))
        == "the compile command of the build files was changed"
    )


@pytest.mark.parametrize(
    ("text", "kernel", "message"),
    [
        (None, None, "there is no file k.cu"),
        ("int a;\n", None, "no kernel of k.cu can be launched"),
        (COPY, "other", "there is no kernel other in k.cu; it has: copy"),
        (COPY + COPY.replace("copy", "two"), None, "which kernel? Add --kernel; k.cu has: copy, two"),
        (KERNEL + "int main() {}\n", None, "copy has no launch spec; write one above it (`orbit-lsp draft` proposes one)"),
        (COPY.replace("n / 256", "m"), None, "copy cannot be run: "),
    ],
)  # fmt: skip
def test_what_a_loop_cannot_be_about(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str | None, kernel: str | None, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    if text is not None:
        (tmp_path / "k.cu").write_text(text)
    with pytest.raises(subject.NoSubjectError) as refused:
        subject.subject("k.cu", kernel)
    assert str(refused.value).startswith(message)


# -- the command ------------------------------------------------------------------------------------

COMMAND = ("--mode", "command", "--worker")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "give the kernel file once, as FILE or with --kernel-path"),
        (("k.cu", "--kernel-path", "k.cu"), "give the kernel file once, as FILE or with --kernel-path"),
        (("k.cu", "--target-metric-name", "tflops"), "--target-metric-name is 'tflops'; a loop measures time, so the name ends in _ns, _us or _ms"),
        (("k.cu", "--max-iterations", "0"), "--max-iterations must be more than 0"),
        (("k.cu", "--worker", "a"), "--worker and --reviewer need --mode command"),
        (("k.cu", "--mode", "command"), "--mode command needs --worker, a command line such as 'agent --task {prompt}'"),
        (("k.cu", *COMMAND, "a '"), "--worker is not a command line: No closing quotation"),
        (("k.cu", *COMMAND, " "), "--worker is empty: give a program and its arguments"),
        (("k.cu", *COMMAND, "a {promt}"), "--worker has the unknown placeholder {promt}; there are {iteration}, {folder}, {state}, {kernel}, {prompt}, {result}"),
    ],
)  # fmt: skip
def test_command_lines_that_begin_no_loop(tmp_path: Path, words: tuple[str, ...], message: str) -> None:
    (tmp_path / "k.cu").write_text(COPY)
    assert orbit(tmp_path, "loop", *words) == (64, "", f"orbit-lsp: error: {message}\n")
    assert not (tmp_path / ".orbit-loop").exists()


def test_a_dry_run_in_the_seeds_words_needs_no_gpu_and_changes_nothing(tmp_path: Path) -> None:
    """Everything that it writes keeps the published schemas."""
    (tmp_path / "k.cu").write_text(COPY)
    words = ("--fresh-start", "--execution-mode", "dry-run", "--kernel-path", "k.cu", "--target-metric-name", "gmean_us",
             "--target-metric-threshold", "270", "--max-iterations", "5")  # fmt: skip
    code, out, message = orbit(tmp_path, "loop", *words)
    assert (code, out.splitlines()[:2]) == (
        0, ["copy: the loop (simulated, nothing was measured)", "  stopped     target reached: gmean_us is 261.983, at most 270"],
    )  # fmt: skip
    assert "iteration 3: KEEP, faster: -10.0% time against the best so far" in message
    assert (tmp_path / "k.cu").read_text() == COPY
    state = tmp_path / ".orbit-loop" / "k.cu.dry-run"
    for name, cls in (
        ("worker_result", WorkerResult),
        ("reviewer_verdict", ReviewerVerdict),
        ("measurement", records.Iteration),
    ):
        TypeAdapter(cls).validate_json((state / "iter_0003" / f"{name}.json").read_bytes(), strict=True)
    TypeAdapter(records.LoopSummary).validate_json((state / "summary.json").read_bytes(), strict=True)
    prompt = (
        (state / "iter_0004" / "worker_prompt.txt")
        if (state / "iter_0004").exists()
        else state / "iter_0003" / "worker_prompt.txt"
    )
    assert "The reviewer's hint: made up" in prompt.read_text()
    refused = orbit(tmp_path, "loop", "k.cu", "--state", str(state))
    assert refused[0] == 64
    assert "has another dry run: True; choose another --state, or --fresh-start" in refused[2]


@pytest.mark.parametrize("outcome", [*get_args(records.Outcome), *get_args(records.Decision)])
def test_each_word_of_a_loop_is_explained(outcome: str) -> None:
    assert explanations.explain(outcome)


# -- the rule ---------------------------------------------------------------------------------------


def test_a_claim_may_differ_as_far_as_runs_do() -> None:
    measured = Measured("ok", now_runs=(100.0, 100.2, 99.9, 100.0, 100.1, 100.0))
    assert judge.claim_fault(102.1, measured) == ""
    assert judge.claim_fault(97.0, measured) != ""
    noisy = replace(measured, now_runs=(100.0, 103.0, 98.0, 100.0, 101.0, 100.0))
    assert judge.claim_fault(104.9, noisy) == ""
    assert judge.claim_fault(None, measured) == judge.claim_fault(1.0, Measured("ok")) == ""


def test_wrong_and_missed_decisions_over_the_measured_noise() -> None:
    """The kernels whose runs differ least, by the middle and most; bench/loop_decisions.py tries all of them."""
    for name in (ORDERED[0], ORDERED[len(ORDERED) // 2], ORDERED[-1]):
        for effect, least, most in ((0.0, 0, 5), (0.03, 90, 100), (0.10, 90, 100)):
            rng = random.Random(f"{name} {effect}")
            kept = sum(decided(rng, NOISE[name], effect).decision == "KEEP" for _ in range(100))
            assert least <= kept <= most, (name, effect, kept)


def test_the_best_time_is_that_of_what_was_kept_last(bench: Bench) -> None:
    bench.run()
    rows = bench.rows()
    assert history.best_ns(rows, 1.0) == rows[0].time_ns
    assert history.best_ns([], 1.0) == 1.0


def test_the_table_of_a_terminal_has_the_last_iterations_and_what_is_done_now(bench: Bench) -> None:
    bench.run()
    view = loop_view.Redrawn("copy")
    view.ended(bench.rows(), 100_000.0)
    view.stage(3, "measuring")
    console = Console(file=io.StringIO(), width=200)
    console.print(view.drawn())
    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert lines[0].rstrip() == "copy: 2 iterations, best 93.0 µs"
    assert [line.split()[1:6:2] for line in lines if line.startswith("│")] == [
        ["1", "KEEP", "faster"],
        ["2", "REVERT", "inconclusive"],
    ]
    assert lines[-1] == "iteration 3: measuring · 0 s"
