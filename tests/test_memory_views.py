"""What an editor shows of a memory check: at the faulty line, on the kernel's line, in its hover."""

from __future__ import annotations

import time

from orbit_lsp.cli import source_listing
from orbit_lsp.runs import memory_filing, result_filing, summary
from orbit_lsp.specs import job_builder
from orbit_lsp.state.documents import TextChange
from orbit_lsp.state.kernel_ids import KernelId
from orbit_lsp.state.placement import RunSetup
from orbit_lsp.state.session import Session
from orbit_lsp.views import diagnostics, hover, kernel_actions, lenses
from orbit_remote.common import messages as c
from tests.settings_check import settings_of_values

URI = "file:///src/k.cu"
TEXT = """\
__global__ void reverse(const float* in, float* out) {
  __shared__ float tile[256];
  tile[threadIdx.x] = in[threadIdx.x];
  out[threadIdx.x] = tile[255 - threadIdx.x];
}
int main() { reverse<<<1, 256>>>(nullptr, nullptr); }
"""
WRITE, READ = c.Place("/src/k.cu", 3), c.Place("/src/k.cu", 4)
RACE = (
    c.Problem("error", "race: this write", "racecheck", WRITE, notes=(c.Note("the read", READ),)),
    c.Problem("error", "race: this read", "racecheck", READ, notes=(c.Note("the write", WRITE),)),
)
TARGET = KernelId(URI, "reverse")


class Bench:
    """A session with one file whose kernel has been checked."""

    def __init__(self, **settings: object) -> None:
        self.session = Session(setup=RunSetup(settings=settings_of_values(settings)))
        self.session.open(URI, 1, TEXT)

    def checked(self, *problems: c.Problem, outcome: c.Outcome | None = None) -> Bench:
        frozen = self.session.freeze(URI)
        assert frozen
        bad = any(problem.severity == "error" for problem in problems)
        finished = c.Finished(
            "r1", outcome or ("runtime error" if bad else "ok"), problems=problems,
            toolchain={"compute-sanitizer": "2025.3.1"},
        )  # fmt: skip
        job = job_builder.make(self.session, frozen, "sanitize", "r1")
        job = job_builder.under_a_tool(self.session, job, TARGET, "click", ())
        result_filing.finished(self.session, frozen, job, {TARGET}, None, finished)
        memory_filing.finished(self.session, frozen, job, {TARGET}, None, finished)
        return self

    def typed(self, line: int, start: int, end: int, text: str) -> Bench:
        version = self.session.files[URI].document.version + 1
        self.session.change(URI, version, [TextChange((line, start), (line, end), text)])
        return self

    @property
    def first_line(self) -> str:
        return next(
            line for line in source_listing.lines(self.session, URI, color=False) if "reverse(const" in line
        )

    def hover(self) -> str:
        result = hover.hover(self.session, URI, 0, markdown=False, now=time.time())
        assert result
        return getattr(result.contents, "value", "")


def test_a_race_is_two_diagnostics_that_name_each_other() -> None:
    results = diagnostics.diagnostics(Bench().checked(*RACE).session, URI)
    assert [(diagnostic.range.start.line, diagnostic.source) for diagnostic in results] == [
        (2, "racecheck"),
        (3, "racecheck"),
    ]
    related = [
        diagnostic.related_information[0].location.range.start.line
        for diagnostic in results
        if diagnostic.related_information
    ]
    assert related == [3, 2]


def test_a_new_check_takes_the_place_of_the_last() -> None:
    bench = Bench().checked(*RACE).checked()
    assert not diagnostics.diagnostics(bench.session, URI)
    assert bench.first_line.endswith("{   ✓ memory checked")


def test_a_check_that_came_to_no_end_says_nothing_of_the_kernel() -> None:
    assert Bench().checked().checked(outcome="timed out").first_line.endswith("✓ memory checked")


def test_the_kernels_line_counts_the_faults() -> None:
    assert Bench().checked(*RACE).first_line.endswith("✗ 2 faults of memory")


def test_an_edit_of_the_kernel_marks_it_and_undoing_the_edit_does_not() -> None:
    bench = Bench().checked()
    assert bench.typed(3, 2, 5, "in_").first_line.endswith("✓ memory checked · edited since")
    assert bench.typed(3, 2, 5, "out").first_line.endswith("✓ memory checked")


def test_a_kernel_that_never_ran_is_not_called_clean() -> None:
    text = "main did not launch reverse, so nothing in it was checked"
    bench = Bench().checked(c.Problem("information", text, "orbit", code=c.NOT_LAUNCHED))
    assert bench.first_line.endswith("memory not checked: never launched")
    assert diagnostics.diagnostics(bench.session, URI)[0].range.start.line == 0


def test_the_hover_says_which_tools_looked_and_what_each_found() -> None:
    assert (
        Bench().checked(*RACE).hover()
        == """\
reverse: memory checked just now
  result     ✗ 2 faults of memory: memcheck, racecheck, initcheck, synccheck
             [compute-sanitizer 2025.3.1]
  memcheck   nothing  [compute-sanitizer 2025.3.1]
  racecheck  2 in lines 3, 4  [compute-sanitizer 2025.3.1]
  initcheck  nothing  [compute-sanitizer 2025.3.1]
  synccheck  nothing  [compute-sanitizer 2025.3.1]"""
    )


def test_it_is_a_code_action_and_a_lens_for_those_who_want_one() -> None:
    titles = [action.title for action in kernel_actions.actions(Bench().session, URI, 0, 0)]
    assert "Check memory (reverse)" in titles

    def shown(bench: Bench) -> list[str]:
        return [lens.command.title for lens in lenses.lenses(bench.session, URI) if lens.command]

    assert "Check memory" not in shown(Bench())
    assert "Check memory" in shown(Bench(check_memory={"lens": True}))


def test_the_job_has_the_tools_and_the_limit_of_the_settings() -> None:
    bench = Bench(check_memory={"tools": ["racecheck"], "timeout_s": 7})
    frozen = bench.session.freeze(URI)
    assert frozen
    job = job_builder.make(bench.session, frozen, "sanitize", "r1")
    job = job_builder.under_a_tool(bench.session, job, TARGET, "click", ())
    assert (job.tools, job.run_timeout_s, job.kernel) == (("racecheck",), 7, "reverse")


def test_in_one_line() -> None:
    def line(*problems: c.Problem) -> str:
        finished = c.Finished("r", "ok", problems=problems, toolchain={"compute-sanitizer": "1"})
        return summary.one_line(finished, compiled_only=False)

    leak = c.Problem("information", "4 bytes allocated here are never freed", "memcheck")
    assert line() == "no memory fault was found"
    assert line(leak, leak) == "no memory fault was found, 2 remarks"
