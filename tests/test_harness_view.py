"""Files that keep KernelBench's or popcorn's contract: the lens, and what is on the line after a check.

The GPU side's answers are made here.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from orbit_lsp.profile.bottleneck import TIME
from orbit_lsp.runs import profile_filing, result_filing
from orbit_lsp.specs import job_builder, launch_plan
from orbit_lsp.state import harness, staleness
from orbit_lsp.views import diagnostics, hints, hover, kernel_actions, lenses
from orbit_remote.common import messages as c
from orbit_remote.common.measurements import AgainstReference, Metric
from tests.recorded_profiles import profiles, source_of
from tests.test_spec_views import H100, timing
from tests.test_views import Bench

URI = "file:///src/model.py"
KERNELBENCH = """\
import torch

class Model(torch.nn.Module):
    def forward(self, x): return torch.relu(x)

class ModelNew(torch.nn.Module):
    def forward(self, x): return x.clamp(min=0)

def get_inputs(): return [torch.randn(4096, 4096)]
def get_init_inputs(): return []
"""
POPCORN = (
    "from task import input_t, output_t\n\ndef custom_kernel(data: input_t) -> output_t:\n    return data\n"
)


def call(name: str, microseconds: float, kernels: int) -> c.Launches:
    shape = ((0, 0, 0), (0, 0, 0))
    return c.Launches(name, name, *shape, timing(microseconds), 52, kernels=kernels)


FASTER = AgainstReference("Model", "faster", 0.704, 0.70, 0.71, 40)
PASSED = c.Check("ModelNew(*inputs)", True, elements=4096 * 4096, error=0.0, rtol=1e-2, atol=1e-2)


def answer(
    versus: AgainstReference | None = FASTER, *checks: c.Check, **more: str
) -> tuple[c.Point, c.Point]:
    new = c.Point(
        {"version": "ModelNew", **more}, "", (call("ModelNew", 3100, 1),), checks or (PASSED,), versus=versus
    )
    return new, c.Point({"version": "Model", **more}, "", (call("Model", 4410, 2),))


def test_the_grade_is_of_a_contract_alone() -> None:
    bench = Bench(KERNELBENCH, URI)
    frozen = bench.session.freeze(URI)
    assert frozen

    def keys() -> list[str]:
        plans = launch_plan.PROGRAM, launch_plan.DRIVER, launch_plan.CONTRACT
        return [staleness.job_key(job_builder.make(bench.session, frozen, "run", "", plan)) for plan in plans]

    before = keys()
    setup = bench.session.setup
    setup.settings = replace(setup.settings, grade="referee")
    assert [key == known for key, known in zip(keys(), before, strict=True)] == [True, True, False]


class Checked(Bench):
    def __init__(self, text: str = KERNELBENCH) -> None:
        super().__init__(text, URI)

    def answered(self, *points: c.Point, outcome: c.Outcome = "ok", **fields: object) -> Checked:
        frozen, entry = self.session.freeze(URI), harness.of(self.session, URI)
        assert frozen
        assert entry
        job = job_builder.make(
            self.session, frozen, "run", "r1", job_builder.plan_of(self.session, entry.target)
        )
        assert job.start.through == "contract"
        finished = c.Finished(
            "r1", outcome, launches=points[0].launches, points=points, device=H100, **fields
        )  # type: ignore[arg-type]
        result_filing.finished(
            self.session, frozen, job, {entry.target}, None, finished, launch_plan.CONTRACT
        )
        return self

    @property
    def lens(self) -> list[tuple[int, str]]:
        return [
            (lens.range.start.line, lens.command.title)
            for lens in lenses.lenses(self.session, URI)
            if lens.command and lens.command.command != "orbit.profile"
        ]

    @property
    def hint(self) -> str:
        return " | ".join(str(hint.label) for hint in hints.hints(self.session, URI, 0, 99))


@pytest.mark.parametrize(("text", "line"), [(KERNELBENCH, 5), (POPCORN, 2), (KERNELBENCH + "x = (", 5), (POPCORN[:-8] + "(", 2)])  # fmt: skip
def test_where_the_lens_stands_also_while_the_text_is_broken(text: str, line: int) -> None:
    assert Checked(text).lens == [(line, "✓ Test")]


@pytest.mark.parametrize("text", ["'''\nclass ModelNew: pass\n'''\n", "# custom_kernel\n", "ModelNews = 1\n"])
def test_what_only_speaks_of_a_contract_keeps_none(text: str) -> None:
    assert Checked(text).lens == []


def test_the_line_of_a_version_that_is_faster() -> None:
    checked = Checked().answered(*answer())
    assert checked.hint == "✓ 1.42x · 3.10 ms vs 4.41 ms"
    assert checked.lens == [(5, "✓ 1.42x · 3.10 ms vs 4.41 ms"), (5, "✓ Test")]
    checked.typed(6, 0, 4, "    #")
    assert checked.hint == "✓ 1.42x · edited since"


@pytest.mark.parametrize(
    ("points", "outcome", "hint"),
    [
        (answer(replace(FASTER, verdict="inconclusive", ratio=0.999)), "ok", "✓ ± · 3.10 ms vs 4.41 ms"),
        (answer(replace(FASTER, verdict="slower", ratio=1.25)), "ok", "✓ 0.80x · 3.10 ms vs 4.41 ms"),
        (answer(None, replace(PASSED, passed=False, differing=7)), "wrong answer",
         "✗ 7 of 16,777,216 differ"),
        (answer(None, replace(PASSED, passed=False, elements=0, message="mismatch found! shape differs")), "wrong answer",
         "✗ mismatch found! shape differs"),
        ((*answer(n="1024"), *answer(replace(FASTER, ratio=0.5), n="4096")), "ok", "✓ 1.69x · 2 benchmarks"),
    ],
)  # fmt: skip
def test_the_line_of_other_answers(points: tuple[c.Point, ...], outcome: c.Outcome, hint: str) -> None:
    assert Checked().answered(*points, outcome=outcome).hint == hint


def test_the_hover_says_how_sure_it_is() -> None:
    checked = Checked().answered(*answer())
    result = hover.hover(checked.session, URI, 5, markdown=False)
    assert result
    text = result.contents.value  # type: ignore[union-attr]
    for message in (
        "against Model            1.42x, 1.41x to 1.43x at 99 %  [40 pairs of calls in turn]",
        "version = Model          4.41 ms ±0.2%, 2 kernels a call  [cold L2, n=52]",
        "16,777,216 elements, largest error 0",
    ):
        assert " ".join(message.split()) in " ".join(text.split())


def test_editors_without_lenses_or_fresh_hints_have_it_too() -> None:
    checked = Checked().answered(*answer())
    checked.session.client.mirror_hints = True
    assert [diagnostic.message for diagnostic in diagnostics.diagnostics(checked.session, URI)] == [
        "✓ 1.42x · 3.10 ms vs 4.41 ms"
    ]
    actions = kernel_actions.actions(checked.session, URI, 5, 5)
    assert [action.command.command for action in actions if action.command] == [
        "orbit.test",
        "orbit.profile",
    ]


def test_a_profile_of_a_call_stands_on_its_name_and_on_the_lines_of_the_files_own_kernels() -> None:
    """The recording is of a Triton program; here its kernel is what a call of ModelNew launches."""
    source = source_of("softmax").read_text()
    checked = Checked(source + "\n" + KERNELBENCH.replace("import torch\n", ""))
    frozen, entry = checked.session.freeze(URI), harness.of(checked.session, URI)
    assert frozen
    assert entry
    line = entry.span.line
    job = job_builder.make(checked.session, frozen, "profile", "r1", launch_plan.CONTRACT)
    (softmax,) = profiles("softmax")
    ours = replace(softmax, lines=tuple(replace(line, file="/src/model.py") for line in softmax.lines))
    library = replace(
        ours, symbol="relu", name="relu", lines=(), metrics=ours.metrics | {TIME: Metric(TIME, 9e6, "ns")}
    )
    answer = c.Finished("r1", "ok", device=H100, profiles=(ours, library))
    profile_filing.finished(checked.session, frozen, job, {entry.target}, None, answer, None)

    def shown() -> dict[int, str]:
        return {hint.position.line: str(hint.label) for hint in hints.hints(checked.session, URI, 0, 999)}

    kernel = next(kernel for _, kernel, _ in checked.session.kernels(URI) if kernel.name == "softmax")
    output = shown()
    assert output[line].startswith("◔ 9.00 ms · memory 82%")
    assert output[line].endswith("longest of 2")
    assert output[kernel.name_span.line].startswith("◔ 41.1 µs · occ 68% of 75%")
    assert output[kernel.line + 5] == "◂ 23% · short scoreboard"
    result = hover.hover(checked.session, URI, line, markdown=False)
    assert result
    assert "ModelNew: profiled" in result.contents.value  # type: ignore[union-attr]
    commands = [
        lens.command.command
        for lens in lenses.lenses(checked.session, URI)
        if lens.command and lens.range.start.line == line
    ]
    assert commands == ["orbit.test", "orbit.profile"]
    checked.typed(line, 0, 0, "x = 1\n")
    assert "edited since" in shown()[line + 1]
