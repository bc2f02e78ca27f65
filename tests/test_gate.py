"""The loop of a gate on a machine that is made up: which pairs count, who is decided when, and what a control shows."""

from __future__ import annotations

import random
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bench.order_of_pairs import Fixed
from orbit_lsp.gate import changes, gate, gate_loop
from orbit_lsp.gate.changes import ChangedKernel, GateUnit
from orbit_lsp.gate.gate_loop import GateLoop
from orbit_lsp.gate.gate_store import GateStore, Noise
from orbit_lsp.gate.results import GatedKernel, GateResult, exit_code, sentence
from orbit_lsp.history import git
from orbit_lsp.report import gate_report
from orbit_lsp.runs.scheduler import RunFailedError
from orbit_lsp.state.kernel_ids import KernelId
from orbit_remote.common import messages as c
from orbit_remote.common.evidence.sign_bets import GateQuestion
from orbit_remote.common.measurements import Telemetry
from tests.test_git import Repository

SHARED = Telemetry(3, shared=True)
GOOD = Telemetry(3, (1980, 1980, 1980), default_sm_clock_mhz=1980, throttle_reasons=("power cap",))


class Machine:
    """It runs the variants that a gate asks for. A variant's name is `kernel side`; `times` has its time in the nth run of all."""

    device: c.Device | None = c.Device("H200")

    def __init__(
        self, times: Callable[[str, int], float], telemetry: Callable[[int], Telemetry] = lambda _: GOOD
    ) -> None:
        self.times, self.telemetry = times, telemetry
        self.ran: list[str] = []
        self.places: Any = None

    def show(self, text: str) -> None: ...

    async def perform(self, variant: Any, run: str, files: Any, heard: Callable[[Any], None]) -> c.Finished:
        name = f"{variant.kernel} {variant.name}"
        self.ran.append(name)
        time = self.times(name, len(self.ran))
        finished = c.ok(run, device=self.device, telemetry=self.telemetry(len(self.ran)), run_s=time)
        heard(finished)
        return finished


class Side(SimpleNamespace):
    """What a gate needs of a variant; `replace` gives it another name."""

    def __replace__(self, **how: Any) -> Side:
        return Side(**{**vars(self), **how})


@pytest.fixture(autouse=True)
def made_up(monkeypatch: pytest.MonkeyPatch) -> None:
    def launches_of(variant: Any, finished: c.Finished) -> Any:
        return (SimpleNamespace(timing=SimpleNamespace(median=finished.run_s)),)

    monkeypatch.setattr(gate_loop.variant_runs, "launches_of", launches_of)
    monkeypatch.setattr(
        gate_loop,
        "replace",
        lambda it, **how: it.__replace__(**how) if isinstance(it, Side) else replace(it, **how),
    )


def unit(name: str, *, base: bool = True) -> GateUnit:
    plan, job = (
        SimpleNamespace(driver=None, through="spec"),
        SimpleNamespace(language="triton", start=SimpleNamespace(through="spec")),
    )
    now, then = (Side(kernel=name, name=side, plan=plan, job=job, remarks=()) for side in ("now", "base"))
    kernel: Any = ChangedKernel("k.py", KernelId("file:///k.py", name), name, 1, now, then if base else None)  # type: ignore[arg-type]
    return GateUnit([kernel])


async def ran(
    machine: Machine, *names: str, coin: random.Random | None = None, question: GateQuestion | None = None
) -> GateLoop:
    runs: Any = machine
    loop = GateLoop(
        [unit(name) for name in names],
        question or GateQuestion(len(names)),
        runs,
        run_id="g",
        coin=coin or random.Random(1),
    )
    await loop.run(lambda _: None)
    return loop


def verdicts(loop: GateLoop) -> dict[str, tuple[str, int]]:
    return {kernel.kernel: (kernel.verdict, kernel.pairs) for kernel in loop.kernels()}


def slow_b(name: str, number: int) -> float:
    return 103.0 if name == "b now" else 100.0


async def test_each_kernel_is_decided_as_soon_as_it_can_be() -> None:
    machine = Machine(slow_b)
    loop = await ran(machine, "a", "b", "c")
    assert verdicts(loop) == {"a": ("not slower", 8), "b": ("slower", 11), "c": ("not slower", 8)}
    assert [control.pairs for control in loop.controls()] == [11]  # as many as the slower kernel
    assert not loop.red_control
    counts = {name: machine.ran.count(name) for name in ("a base", "b now", "b base")}
    assert counts == {"a base": 9, "b now": 12, "b base": 12}  # the first of each does not count
    assert machine.ran.count("a now") == 9 + 2 * 11  # with its control


async def test_a_pair_is_discarded_for_the_state_of_the_gpu_before_its_times_are_read() -> None:
    """The odd times of the first pairs would be evidence."""
    machine = Machine(
        lambda name, number: 200.0 if name == "a now" and number < 8 else 100.0,
        lambda number: SHARED if 4 <= number < 8 else GOOD,
    )
    loop = await ran(machine, "a")
    (kernel,) = loop.kernels()
    assert (kernel.verdict, kernel.ratio) == ("not slower", 1.0)
    assert sum(loop.discarded.values()) >= 2
    assert list(loop.discarded) == ["another process used the GPU"]


@pytest.mark.parametrize(
    ("telemetry", "why"),
    [
        (None, ""),
        (GOOD, ""),
        (SHARED, "another process used the GPU"),
        (
            replace(GOOD, throttle_reasons=("thermal slowdown (hardware)",)),
            "the GPU slowed down for heat or power",
        ),
        (replace(GOOD, sm_clock_mhz=(345, 1400, 1980)), "the clock was low"),
    ],
)
def test_what_makes_a_pair_unfit(telemetry: Telemetry | None, why: str) -> None:
    one, other = c.ok("1", telemetry=GOOD), c.ok("2", telemetry=telemetry)
    assert gate_loop._unfit(one, other) == gate_loop._unfit(other, one) == why


def test_two_gpus_make_no_pair() -> None:
    first, second = (c.ok("1", device=c.Device("H200", uuid=uuid)) for uuid in ("GPU-1", "GPU-2"))
    assert gate_loop._unfit(first, first) == ""
    assert gate_loop._unfit(first, second) == "the two runs had different GPUs"


async def test_a_gpu_that_is_never_fit_is_given_up() -> None:
    loop = await ran(Machine(slow_b, lambda _: SHARED), "a")
    (kernel,) = loop.kernels()
    assert (kernel.verdict, kernel.pairs, kernel.discarded) == ("inconclusive", 0, 8)
    assert kernel.reason == "8 pairs in a row were discarded: another process used the GPU"


async def test_a_run_without_times_is_a_discarded_pair_and_at_first_no_comparison() -> None:
    """0 stands for launches that were not recorded."""
    loop = await ran(Machine(lambda name, number: 0.0 if number in (5, 9) else 100.0), "a")
    assert verdicts(loop) == {"a": ("not slower", 8)}
    assert loop.discarded == {"a run has no times of the kernel": 2}
    assert not loop.is_blind
    loop = await ran(Machine(lambda name, number: 0.0 if number == 1 else 100.0), "a")
    (kernel,) = loop.kernels()
    assert (kernel.verdict, kernel.reason) == ("not compared", "base: a was not launched, or has no time")
    assert loop.is_blind
    assert gate.verdict_of((kernel,), red_control=False, failure=loop.is_blind) == "inconclusive"
    loop = await ran(Machine(lambda name, number: 0.0 if number > 2 else 100.0), "a")
    (kernel,) = loop.kernels()
    assert (kernel.verdict, kernel.pairs, kernel.discarded) == ("inconclusive", 0, 8)


async def test_a_control_that_differs_from_itself_ends_the_gate() -> None:
    """A machine that becomes slower with every run, and a coin that always falls the same way."""
    machine = Machine(lambda name, number: 100.0 * 1.03**number)
    loop = await ran(machine, "a", "b", coin=Fixed(), question=GateQuestion(2, most_pairs=30))
    assert loop.red_control
    assert gate.verdict_of(loop.kernels(), red_control=True, failure=False) == "inconclusive"
    drawn = await ran(
        Machine(machine.times), "a", "b", coin=random.Random(3), question=GateQuestion(2, most_pairs=30)
    )
    assert not drawn.red_control


async def test_a_kernel_that_the_change_breaks_later_has_failed() -> None:
    class Breaks(Machine):
        async def perform(
            self, variant: Any, run: str, files: Any, heard: Callable[[Any], None]
        ) -> c.Finished:
            if variant.name == "now" and len(self.ran) > 6:
                raise RunFailedError(c.Failure("wrong answer", "now: y[7] is 1 and not 2"))
            return await super().perform(variant, run, files, heard)

    loop = await ran(Breaks(slow_b), "a")
    (kernel,) = loop.kernels()
    assert (kernel.verdict, kernel.failure and kernel.failure.message) == ("failed", "y[7] is 1 and not 2")


async def test_what_fails_in_a_control_has_failed_in_its_kernel() -> None:
    class Breaks(Machine):
        async def perform(
            self, variant: Any, run: str, files: Any, heard: Callable[[Any], None]
        ) -> c.Finished:
            if (variant.kernel, variant.name) == ("a", "now") and self.ran[-1:] == ["a now"]:
                raise RunFailedError(c.Failure("runtime error", "now: misaligned address"))
            return await super().perform(variant, run, files, heard)

    loop = await ran(Breaks(slow_b), "a", "c")
    assert verdicts(loop)["a"][0] == "failed"
    assert verdicts(loop)["c"] == ("not slower", 8)


async def test_a_machine_that_fails_ends_the_gate_and_one_that_fails_once_does_not() -> None:
    class Fails(Machine):
        left = 1

        async def perform(
            self, variant: Any, run: str, files: Any, heard: Callable[[Any], None]
        ) -> c.Finished:
            if len(self.ran) == 5 and self.left:
                self.left -= 1
                raise RunFailedError(c.Failure("infrastructure", "the link is down", retryable=True))
            return await super().perform(variant, run, files, heard)

    machine = Fails(slow_b)
    assert verdicts(await ran(machine, "a")) == {"a": ("not slower", 8)}
    machine = Fails(slow_b)
    machine.left = 2
    loop = await ran(machine, "a")
    (kernel,) = loop.kernels()
    assert (kernel.verdict, kernel.reason) == ("inconclusive", "the link is down")


async def test_a_program_that_ran_without_a_gpu_is_the_machines_failure() -> None:
    """It may end well then, and launch nothing. That must not look as if its kernels could not be compared."""
    machine = Machine(slow_b)
    machine.device = None
    loop = await ran(machine, "a")
    (kernel,) = loop.kernels()
    assert (kernel.verdict, kernel.reason) == ("inconclusive", c.NO_GPU)
    assert loop.failure
    assert exit_code((kernel,), "inconclusive", loop.failure, strict=False) == 5


# -- reports ----------------------------------------------------------------------------------------

FAILURE = c.Failure("wrong answer", 'y[7] is <1> and "2"')
KERNELS = (
    GatedKernel(
        "a b.cu", "fine", 3, "not slower", ratio=1.0, low=0.999, high=1.001, then_ns=1e5, now_ns=1e5, pairs=8
    ),
    GatedKernel(
        "k.cu",
        "slow|er",
        7,
        "slower",
        ratio=1.03,
        low=1.02,
        high=1.04,
        then_ns=1e5,
        now_ns=1.03e5,
        pairs=15,
        discarded=2,
    ),
    GatedKernel("k.cu", "bad", 9, "failed", failure=FAILURE),
    GatedKernel(
        "k.cu", "unknown", 11, "inconclusive", reason="60 pairs were too few for its noise", pairs=60
    ),
)
RESULT = GateResult(
    "failed",
    "bad: wrong answer.",
    3,
    "1" * 40,
    "main (1111111)",
    "2" * 40,
    False,
    "H200",
    0.01,
    0.02,
    0.005,
    KERNELS,
)


def test_a_pull_request_reads_one_sentence_and_a_table_that_nothing_breaks() -> None:
    lines = gate_report.markdown(RESULT).splitlines()
    assert lines[0] == "🔴 **bad: wrong answer.**"
    rows = [line for line in lines if line.startswith("| ")]
    assert [row.split(" | ")[0] for row in rows] == ["| ", "| 🔴", "| 🔴", "| ⚪", "| 🟢"]
    assert "slow\\|er" in rows[2]
    assert "&lt;1&gt;" in rows[1]
    assert {row.replace("\\|", "").count("|") for row in rows} == {8}


def test_sarif_and_junit_name_the_lines() -> None:
    import json
    from xml.etree import ElementTree as ET

    found = json.loads(gate_report.sarif(RESULT))["runs"][0]["results"]
    lines = [
        (each["ruleId"], each["locations"][0]["physicalLocation"]["region"]["startLine"]) for each in found
    ]
    assert lines == [("orbit/slower", 7), ("orbit/failed", 9), ("orbit/inconclusive", 11)]
    suite = ET.fromstring(gate_report.junit(RESULT))[0]
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("4", "2", "1")
    assert suite[2][0].get("message") == 'bad: wrong answer: y[7] is <1> and "2"'


@pytest.mark.parametrize(
    ("which", "failure", "strict", "code"),
    [
        ((0,), None, True, 0),
        ((0, 1), None, False, 6),
        ((0, 1, 2), None, False, 3),
        ((0, 3), None, False, 0),
        ((0, 3), None, True, 7),
        ((0, 1), c.Failure("infrastructure", "x"), False, 6),
        ((0, 3), c.Failure("infrastructure", "x"), False, 5),
    ],
)
def test_the_exit_code(which: tuple[int, ...], failure: c.Failure | None, strict: bool, code: int) -> None:
    kernels = tuple(KERNELS[at] for at in which)
    verdict = gate.verdict_of(kernels, red_control=False, failure=failure is not None)
    assert exit_code(kernels, verdict, failure, strict=strict) == code


def test_a_gate_is_remembered_with_the_noise_of_its_kernels(tmp_path: Path) -> None:
    complaints: list[str] = []
    store = GateStore(lambda: tmp_path / "gates.sqlite", complaints.append)
    kernels = [
        replace(KERNELS[0], noise=noise, pair_s=0.5, first_s=2.0, runs=((1.0,), (2.0,)))
        for noise in (0.001, 0.003, 0.002)
    ]
    for kernel in kernels:
        store.keep("key", "/r", replace(RESULT, kernels=(kernel,)))
    assert store.earlier("key") == replace(RESULT, kernels=(kernels[-1],))
    assert store.earlier("another") is None
    known = store.noise("/r", "a b.cu", "fine", "H200")
    assert known == Noise(0.002, 0.5, 2.0)
    assert store.noise("/r", "a b.cu", "fine", "B200") is None
    (tmp_path / "gates.sqlite").write_bytes(b"no database at all, but long enough to be one " * 99)
    assert store.earlier("key") is None
    assert "the record of gates was damaged" in complaints[0]


# -- the base ---------------------------------------------------------------------------------------


def test_the_base_is_the_merge_base_of_the_branch_that_ci_names(tmp_path: Path) -> None:
    repository = Repository(tmp_path / "r")
    first = repository.commit(k_cu="1\n")
    repository.git("branch", "release")
    repository.commit(k_cu="2\n")
    folder = str(repository.folder)
    assert changes.base_of(folder, "HEAD~1", {}) == (first, f"HEAD~1 ({first[:7]})")
    repository.git("checkout", "-q", "-b", "change", "release")
    repository.commit(k_cu="3\n")
    assert changes.base_of(folder, None, {})[0] == first
    repository.git("update-ref", "refs/remotes/origin/release", "release")
    assert changes.base_of(folder, None, {"GITHUB_BASE_REF": "release"}) == (
        first,
        f"origin/release ({first[:7]})",
    )
    with pytest.raises(changes.NoBaseError, match="the base branch origin/absent is not here: fetch it"):
        changes.base_of(folder, None, {"GITHUB_BASE_REF": "absent"})


def test_a_history_that_was_cut_off_is_a_sentence(tmp_path: Path) -> None:
    repository = Repository(tmp_path / "r")
    repository.commit(k_cu="1\n")
    repository.git("checkout", "-q", "--orphan", "change")
    repository.commit(k_cu="2\n")
    with pytest.raises(git.GitError, match="have no common commit here: fetch the whole history"):
        changes.base_of(str(repository.folder), None, {})


def test_a_working_tree_beside_a_commit(tmp_path: Path) -> None:
    repository = Repository(tmp_path / "r")
    base = repository.commit(k_cu="1\n", a_cuh="1\n", data_txt="1\n")
    same = git.checkout(str(repository.folder), base)
    assert (same.changed, same.sources) == (frozenset(), ("a.cuh", "k.cu"))
    repository.path("a_cuh").unlink()
    repository.path("new_py").write_text("1\n")
    differs = git.checkout(str(repository.folder), "HEAD")
    assert (sorted(differs.changed), differs.sources) == (["a.cuh", "new.py"], ("k.cu", "new.py"))
    repository.path("data_txt").write_text("2\n")
    repository.git("add", "-A")
    staged = git.checkout(str(repository.folder), base)
    assert len({same.identity, differs.identity, staged.identity}) == 3


def shallow(repository: Repository, *words: str) -> str:
    """The folder of a clone with the newest commit alone."""
    clone = repository.folder.with_name("clone")
    url = f"file://{repository.folder}"
    repository.git("-c", "advice.detachedHead=false", "clone", "-q", "--depth", "1", *words, url, str(clone))
    return str(clone)


def test_a_shallow_clone_is_told_to_fetch_more(tmp_path: Path) -> None:
    repository = Repository(tmp_path / "r")
    repository.commit(k_cu="1\n")
    repository.git("checkout", "-q", "-b", "change")
    repository.commit(k_cu="2\n")
    repository.git("checkout", "-q", "main")
    clone = shallow(repository, "--branch", "change")
    with pytest.raises(
        changes.NoBaseError, match="this clone is shallow and has no branch main or master: fetch"
    ):
        changes.base_of(clone, None, {})
    with pytest.raises(
        git.GitError, match=r"no revision HEAD~1 of .*: this clone is shallow, fetch the whole"
    ):
        changes.base_of(clone, "HEAD~1", {})


def test_a_repository_without_a_commit(tmp_path: Path) -> None:
    repository = Repository(tmp_path / "r")
    with pytest.raises(changes.NoBaseError, match="has no commit yet, so there is nothing to compare with"):
        changes.base_of(str(repository.folder), None, {})
    with pytest.raises(changes.NoBaseError, match="has no commit yet"):
        changes.base_of(str(repository.folder), "HEAD", {})


def test_conflicts_of_a_merge_are_to_be_resolved_first(tmp_path: Path) -> None:
    repository = Repository(tmp_path / "r")
    base = repository.commit(k_cu="1\n")
    repository.git("checkout", "-q", "-b", "change")
    repository.commit(k_cu="2\n")
    repository.git("checkout", "-q", "main")
    repository.commit(k_cu="3\n")
    with pytest.raises(subprocess.CalledProcessError):
        repository.git("merge", "change")
    with pytest.raises(git.GitError, match=r"k.cu has conflicts of a merge: resolve them"):
        git.checkout(str(repository.folder), base)


def test_a_submodule_at_another_commit_is_another_change(tmp_path: Path) -> None:
    lib, repository = Repository(tmp_path / "lib"), Repository(tmp_path / "r")
    old = lib.commit(a_cuh="1\n")
    lib.commit(a_cuh="2\n")
    repository.git("-c", "protocol.file.allow=always", "submodule", "add", "-q", str(lib.folder), "lib")
    base = repository.commit(k_cu="1\n")
    same = git.checkout(str(repository.folder), base)
    assert same.submodules == ()
    repository.git("-C", "lib", "checkout", "-q", old)
    edited = git.checkout(str(repository.folder), base)
    later = repository.commit()
    committed = git.checkout(str(repository.folder), base)
    assert edited.submodules == committed.submodules == ("lib",)
    assert edited.identity != same.identity
    assert git.checkout(str(repository.folder), later).submodules == ()


def test_a_link_to_a_file_has_no_kernels_of_its_own(tmp_path: Path) -> None:
    repository = Repository(tmp_path / "r")
    base = repository.commit(k_cu="1\n")
    (repository.folder / "link.cu").symlink_to("k.cu")
    assert git.checkout(str(repository.folder), base).sources == ("k.cu",)


def test_a_path_of_another_repository(tmp_path: Path) -> None:
    changes.check_inside("/r", ["/r", "/r/kernels"])
    with pytest.raises(
        changes.NoBaseError, match=r"^/rest/k.cu is not in the repository /r: run a gate for each"
    ):
        changes.check_inside("/r", ["/r/k.cu", "/rest/k.cu"])


def test_a_sentence_says_what_was_not_compared_and_which_of_two_is_meant() -> None:
    fine, new = KERNELS[0], replace(KERNELS[0], kernel="new", verdict="not compared")
    other = replace(fine, file="other.cu", verdict="not compared")

    def said(*kernels: GatedKernel) -> str:
        return sentence(
            "passed", kernels, base="main", find=0.02, false_alarm=0.01, red_control=False, failure=None
        )

    assert said() == "No kernel to compare with main."
    assert said(new) == "Not compared with main: new."
    assert said(fine, new).endswith("(false alarms: at most 1% of gates); not compared: new.")
    assert said(fine, other).endswith("; not compared: fine (other.cu).")


def test_a_change_reaches_who_includes_or_imports_it() -> None:
    texts = {
        "a.cuh": "", "b.cuh": '#include "../x/a.cuh"\n', "k.cu": "#include <b.cuh>\n", "other.cu": "// a.cuh\n",
        "p/ops.py": "", "p/__init__.py": "from .ops import f\n", "use.py": "import torch, p\n", "free.py": "ops = 1\n",
    }  # fmt: skip
    assert changes._reached(frozenset(["a.cuh"]), texts) == {"a.cuh", "b.cuh", "k.cu"}
    assert changes._reached(frozenset(["p/ops.py"]), texts) == {"p/ops.py", "p/__init__.py", "use.py"}
