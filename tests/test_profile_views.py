"""What an author sees of a profile: on the kernel's line, on hot lines, in hovers; and where the text has changed.

The profiles are recordings from an H100 (tests/recordings/profiles).
"""

from __future__ import annotations

import re
from dataclasses import replace

import ncu_report
import pytest

from orbit_lsp.cli import source_listing
from orbit_lsp.runs import profile_filing, result_filing
from orbit_lsp.specs import job_builder
from orbit_lsp.state.config import Settings
from orbit_lsp.state.documents import TextChange
from orbit_lsp.state.kernel_ids import KernelId
from orbit_lsp.state.placement import RunSetup
from orbit_lsp.state.results import RunResult
from orbit_lsp.state.session import Session
from orbit_lsp.views import diagnostics, hints, hover, kernel_actions, lenses
from orbit_lsp.views.profile import counter_rows, next_steps, profile_lines
from orbit_remote.common import messages as c
from orbit_remote.common.measurements import Advice, Line, Metric, Timing
from orbit_remote.common.requests import Job
from tests.recorded_profiles import FOLDER, H100, NAMES, Profiling, finished, profile, profiled
from tests.settings_check import settings_of_values
from tests.test_views import LAUNCHES


def shown(bench: Profiling, last: int) -> str:
    return "\n".join(source_listing.lines(bench.session, bench.uri, color=False)[:last]) + "\n"


def edited(bench: Profiling, line: int, start: int, end: int, text: str) -> None:
    version = bench.session.files[bench.uri].document.version + 1
    bench.session.change(bench.uri, version, [TextChange((line, start), (line, end), text)])


def on_lines(bench: Profiling) -> dict[int, str]:
    """By the line's number, from 1."""
    return {line + 1: label for line, label in profile_lines.labels(bench.session, bench.uri)}


def said_at(bench: Profiling, line: int, *, markdown: bool = False) -> str:
    result = hover.hover(bench.session, bench.uri, line - 1, markdown=markdown)
    return result.contents.value if result else ""  # type: ignore[union-attr]


def unwrapped(text: str) -> str:
    return " ".join(text.split())


def test_bank_conflicts() -> None:
    assert (
        shown(profiled("bank_conflicts"), 11)
        == """\
 1 // A column of a 32 x 32 tile lies in one bank: 32 passes for every read of it.
   ◔ 143 µs · L1/shared 93% of peak | ▶ Run | Profile
 2 __global__ void transpose_tile(const float *in, float *out) {   ◔ 143 µs · occ 50% of 50% · 40 regs
 3     __shared__ float tile[32][32];
 4     int block = blockIdx.x * 1024;
 5     tile[threadIdx.y][threadIdx.x] = in[block + threadIdx.y * 32 + threadIdx.x];
 6     __syncthreads();
 7     float sum = 0;
 8     for (int step = 0; step < 64; ++step)
 9         sum += tile[threadIdx.x][(threadIdx.y + step) & 31];   ◂ 95% · ⚠ bank conflicts: 32.0×
10     out[block + threadIdx.y * 32 + threadIdx.x] = sum;
"""
    )


def test_spills_and_scattered_reads() -> None:
    assert (
        shown(profiled("spilling"), 14)
        == """\
 1 // More live values than the 32 registers it is allowed: they go to local memory and come back.
   ◔ 251 µs · memory 69% of peak | ▶ Run | Profile
 2 __global__ void __launch_bounds__(1024, 2) spilling(const float *in, float *out, int n) {   ◔ 251 µs · occ 89% of 100% · 32 regs
 3     int i = blockIdx.x * blockDim.x + threadIdx.x;
 4     float v[64];
 5 #pragma unroll
 6     for (int k = 0; k < 64; ++k)
 7         v[k] = in[(i + k * 37) % n];   ◂ 58% · ⚠ uncoalesced: 82% used
 8     float sum = 0;
 9 #pragma unroll
10     for (int k = 0; k < 64; ++k)
11 #pragma unroll
12         for (int j = 0; j < 4; ++j)
13             sum += v[k] * v[(k * 7 + j * 13) % 64];   ◂ 39% · ⚠ local memory: 36%
"""
    )


@pytest.mark.parametrize(
    ("settings", "lines"),
    [
        ({}, {4: "◂ 86% · ⚠ uncoalesced: 22% used", 5: "◂ 13% · drain"}),
        ({"line_percent": 50}, {4: "◂ 86% · ⚠ uncoalesced: 22% used"}),
        ({"excess_percent": 80, "line_percent": 50}, {4: "◂ 86% · long scoreboard"}),
        ({"line_percent": 90}, {4: "◂ ⚠ uncoalesced: 22% used"}),
        ({"line_percent": 100, "excess_percent": 100}, {}),
    ],
)
def test_only_what_matters_by_the_settings(settings: dict[str, float], lines: dict[int, str]) -> None:
    assert on_lines(profiled("uncoalesced", profile=settings)) == lines


def test_hints_of_profiles_can_be_turned_off() -> None:
    bench = profiled("uncoalesced", hints={"profile": False})
    assert not hints.hints(bench.session, bench.uri, 0, 99)


def test_where_hints_cannot_be_refreshed_they_are_diagnostics_on_their_lines() -> None:
    bench = profiled("uncoalesced")
    assert diagnostics.diagnostics(bench.session, bench.uri) == []
    bench.session.client.mirror_hints = True
    results = diagnostics.diagnostics(bench.session, bench.uri)
    assert [
        (diagnostic.range.start.line, diagnostic.range.start.character, diagnostic.message.split(" · ")[0])
        for diagnostic in results
    ] == [
        (1, 16, "◔ 104 µs"),
        (3, 4, "◂ 86%"),
        (4, 0, "◂ 13%"),
    ]
    assert {(diagnostic.severity, diagnostic.source) for diagnostic in results} == {
        (diagnostics.lsp.DiagnosticSeverity.Hint, "orbit")
    }


# -- an edited source -------------------------------------------------------------------------------


def test_lines_follow_edits_and_an_edited_one_says_nothing() -> None:
    bench = profiled("uncoalesced")
    edited(bench, 0, 0, 0, "// above\n")
    assert sorted(on_lines(bench)) == [5, 6]
    assert "edited since" not in shown(bench, 9)
    edited(bench, 4, 21, 23, "33")
    assert on_lines(bench) == {6: "◂ 13% · drain · edited since"}
    assert "◔ 104 µs · edited since" in shown(bench, 9)
    edited(bench, 4, 21, 23, "32")
    assert on_lines(bench)[5].endswith("22% used")


def test_lines_of_a_kernel_that_has_another_name_now_are_marked() -> None:
    bench = profiled("uncoalesced")
    at = bench.session.files[bench.uri].document.lines[1].index("strided")
    edited(bench, 1, at, at + len("strided"), "spread")
    assert [label.split(" · ")[-1] for label in on_lines(bench).values()] == ["edited since"] * 2
    edited(bench, 1, at, at + len("spread"), "strided")
    assert "edited since" not in " ".join(on_lines(bench).values())


def test_a_source_edited_while_the_profile_runs() -> None:
    """The answer is of the text that was frozen: it stands where that text's lines are now, and is marked."""
    bench = Profiling("uncoalesced")
    frozen = bench.session.freeze(bench.uri)
    assert frozen
    edited(bench, 2, 0, 0, "    int unused = n;\n")
    target = bench.kernels["strided"]
    job = Job("r1", "profile", "cuda", "/src/uncoalesced.cu", frozen.text, "strided")
    profile_filing.finished(bench.session, frozen, job, {target}, None, finished("uncoalesced"), None)
    assert [
        (line, label.split(" · ")[0], label.split(" · ")[-1]) for line, label in on_lines(bench).items()
    ] == [
        (5, "◂ 86%", "edited since"),
        (6, "◂ 13%", "edited since"),
    ]
    assert "edited since" in said_at(bench, 2)


def test_a_file_that_is_closed_and_opened_again_has_its_lines() -> None:
    bench = profiled("uncoalesced")
    text = bench.session.files[bench.uri].document.text
    bench.session.close(bench.uri)
    bench.session.open(bench.uri, 7, "\n\n" + text)
    assert sorted(on_lines(bench)) == [6, 7]


def test_lines_of_a_header_stand_in_it_as_long_as_it_is_what_was_compiled(tmp_path) -> None:
    bench = Profiling("uncoalesced")
    header = tmp_path / "inner.cuh"
    header.write_text("__device__ int at(int i) {\n    return i * 32;\n}\n")
    line = Line(str(header), 2, 40, {"wait": 40})
    item = replace(profile("uncoalesced"), lines=(line, *profile("uncoalesced").lines))
    known = {str(header): c.content_hash(header.read_bytes())}
    bench.file(replace(finished("uncoalesced"), profiles=(item,), files=known))
    uri = header.as_uri()
    bench.session.setup.settings = settings_of_values({"profile": {"line_percent": 0}})
    bench.session.open(uri, 1, header.read_text())
    assert [label for _, label in profile_lines.labels(bench.session, uri)] == ["◂ 0.3% · wait"]
    bench.file(replace(finished("uncoalesced"), profiles=(item,), files={str(header): "of another text"}))
    assert profile_lines.labels(bench.session, uri) == []


# -- hovers -----------------------------------------------------------------------------------------


def test_the_hover_of_the_signature_says_everything_with_its_counters() -> None:
    whole = said_at(profiled("memory_bound"), 4)
    assert "   477 GFLOP/s │   ╱╱╱●╱" in whole
    text = unwrapped(whole)
    for part in (
        "saxpy: profiled just now",
        "bottleneck                   memory 79% of peak: compute at 29 %, memory at 79 % of their peaks",
        "time of this launch          70.3 µs  [gpu__time_duration.sum]",
        "occupancy is limited by      warps: 8 blocks per SM  [launch__occupancy_limit_warps]",
        "SM clock of this launch      1979 MHz  [gpc__cycles_elapsed.avg.per_second]",
        "roofline: FP32 477 GFLOP/s at 0.181 FLOP per byte of DRAM, 79% of the DRAM roof there (606 GFLOP/s)",
        "L2 hit rate                     34%  [lts__t_sector_hit_rate.pct]",
        "long scoreboard   87%, 73.9 cycles: waits for data of global, local, surface or texture memory",
        "memory_bound.cu:7  92%      long scoreboard   y[i] = a * x[i] + y[i];",
        "about 87 % of the part it speaks of: On average, each warp of this workload spends 73.9 cycles",
        "GPU        NVIDIA H100 80GB HBM3, driver 580.159.04  [NVML]",
    ):
        assert unwrapped(part) in text, part
    gains = [int(result) for result in re.findall(r"about (\d+) %", text)]
    assert gains == sorted(gains, reverse=True)


def test_bandwidth_against_what_a_calibration_reached() -> None:
    bench = Profiling("memory_bound")
    bench.file(replace(finished("memory_bound"), device=replace(H100, reached={"dram": 3.07e12})))
    message = "of what this GPU was measured to reach  86% of 3.07 TB/s  [orbit's calibration]"
    assert unwrapped(message) in unwrapped(said_at(bench, 4))
    assert "calibration" not in said_at(profiled("memory_bound"), 4)


def test_the_hover_of_a_line() -> None:
    bench = profiled("uncoalesced")
    assert (
        unwrapped(said_at(bench, 4))
        == unwrapped("""\
strided, this line: 86% of the warp samples
  warp samples     11,067 of 12,924  [smsp__pcsamp_sample_count]
  long scoreboard  98%, 10,809 samples: waits for data of global, local, surface or texture memory  [smsp__pcsamp_warps_issue_stalled_long_scoreboard]
  wait             1.2%, 134 samples: waits the fixed time between two dependent instructions  [smsp__pcsamp_warps_issue_stalled_wait]
  instructions     3,801,088, counted once for each warp  [inst_executed]
  global memory    4,718,592 sectors of 32 bytes, 1,048,576 would do  [memory_l2_theoretical_sectors_global]""")
    )
    assert said_at(bench, 7) == ""


def test_code_of_a_library_is_charged_to_the_line_that_called_it() -> None:
    bench = profiled("in_library")
    assert on_lines(bench)[12] == "◂ 75% · short scoreboard"
    text = said_at(bench, 12)
    assert "in inlined code" in text
    assert "100% of its samples  [line table]" in text
    assert re.search(r"inlined from block_radix_rank\.cuh:476 +10%, 201 samples", text)


def test_code_without_line_information_has_no_lines_and_says_so() -> None:
    bench = profiled("without_lines")
    bench.session.open("file:///src/memory_bound.cu", 1, (FOLDER / "memory_bound.cu").read_text())
    assert on_lines(bench) == {}
    assert "none: the code that ran has no line information" in said_at(bench, 4)


def test_a_report_of_the_basic_set_says_what_it_has() -> None:
    bench = profiled("memory_bound.basic")
    assert "◔ 70.1 µs · occ 76% of 100% · 16 regs" in shown(bench, 6)
    assert "roofline" not in said_at(bench, 4)
    assert "warp states" not in said_at(bench, 4)


@pytest.mark.parametrize("name", NAMES)
def test_what_is_shown_is_what_the_report_says_to_the_last_digit_shown(name: str) -> None:
    action = ncu_report.load_report(str(FOLDER / f"{name}.ncu-rep")).range_by_idx(0).action_by_idx(0)
    wanted = (
        *counter_rows.SPEED,
        *counter_rows.LAUNCH,
        *counter_rows.MEMORY,
        *counter_rows.CLOCKS,
    )
    rows = counter_rows.rows(profile(name), wanted)
    assert len(rows) > 8
    for what, text, counter in rows:
        true = float(action.metric_by_name(str(counter)).as_double())
        number, factor = read(text)
        if text == "<0.1%":
            assert 0 < true < 0.05, what
            continue
        last = 10.0 ** -len(number.partition(".")[2]) if "." in number else 1.0
        assert abs(true / factor - float(number)) <= 0.5 * last * 1.0001, (what, text, true)


def read(text: str) -> tuple[str, float]:
    """(the number as it is written, how much of the report's unit one of it is)."""
    match = re.match(r"<?([\d.,]+) ?(\S*)", text)
    assert match, text
    scale = {"µs": 1e3, "ms": 1e6, "kB": 1e3, "MB": 1e6, "GB": 1e9, "MHz": 1e6, "GB/s": 1e9, "TB/s": 1e12,
             "MB/s": 1e6, "KiB": 1024}  # fmt: skip
    return match[1].replace(",", ""), scale.get(match[2], 1.0)


# -- what is not there ------------------------------------------------------------------------------


def test_times_only() -> None:
    """Counters were refused: what the times say, by whom they were refused, what would help."""
    why = "this machine does not permit its counters (ERR_NVGPUCTRPERM); its administrator can permit them"
    item = c.Profile(LAUNCHES.symbol, "saxpy", "times", why, grid=(4, 1, 1), block=(256, 1, 1))
    bench = Profiling("memory_bound")
    bench.file(replace(finished("memory_bound"), profiles=(item,), launches=(LAUNCHES,)))
    assert "◔ 288 µs ±0.2% · occ ≤75% · no counters" in shown(bench, 6)
    text = said_at(bench, 4)
    assert f"none: {why} [Nsight Compute]" in unwrapped(text)
    assert "288 µs ±0.2% (in program, n=19) [CUPTI activity records]" in unwrapped(text)
    assert on_lines(bench) == {}


def test_times_only_of_several_configurations_are_of_the_longest() -> None:
    short = replace(LAUNCHES, grid=(1, 1, 1), timing=Timing(9, 2_000.0, "in program, n=9"))
    both = tuple(
        c.Profile(launches.symbol, "saxpy", "times", "no", grid=launches.grid, block=launches.block)
        for launches in (short, LAUNCHES)
    )
    bench = Profiling("memory_bound")
    bench.file(replace(finished("memory_bound"), profiles=both, launches=(short, LAUNCHES)))
    assert "◔ 288 µs" in shown(bench, 6)
    assert "longest of 2" in shown(bench, 6)


def test_of_two_overloads_the_one_that_was_clicked_has_the_profile() -> None:
    bench = Profiling("memory_bound")
    text = "__global__ void saxpy(int) {}\n" + bench.session.files[bench.uri].document.text
    bench.session.open(bench.uri, 2, text)
    bench.kernels = {kernel.key: kernel for kernel, _, _ in bench.session.kernels(bench.uri)}
    bench.file(finished("memory_bound"), "saxpy#2")
    assert list(bench.session.results.profiles) == [bench.kernels["saxpy#2"]]


def test_a_kernel_that_was_never_launched() -> None:
    bench = Profiling("memory_bound")
    bench.file(replace(finished("memory_bound"), profiles=()), "saxpy")
    assert "◔ the program did not launch it" in shown(bench, 6)
    assert "none: the program did not launch it" in said_at(bench, 4)


def test_a_failed_profile_leaves_the_last_one() -> None:
    bench = profiled("memory_bound")
    failure = c.Failure("timed out", "over the limit of 60 s")
    bench.file(c.Finished("r2", "timed out", failure), "saxpy")
    assert "◔ 70.3 µs" in shown(bench, 6)


def test_what_a_run_said_of_the_program_goes_with_a_profile_that_ran_it() -> None:
    bench = Profiling("memory_bound")
    frozen, target = bench.session.freeze(bench.uri), bench.kernels["saxpy"]
    assert frozen
    place = c.Place("/src/memory_bound.cu", 7)
    failed = c.Finished(
        "r1", "runtime error", c.Failure("runtime error", "an illegal address"),
        problems=(c.Problem("error", "an illegal address", "cuda", place),),
    )  # fmt: skip
    for action, event, left in (
        ("run", failed, 1),
        ("profile", failed, 1),
        ("profile", finished("memory_bound"), 0),
    ):
        job = replace(job_builder.make(bench.session, frozen, "run", "r1"), action=action)
        result_filing.finished(bench.session, frozen, job, {target}, None, event)
        assert len(diagnostics.diagnostics(bench.session, bench.uri)) == left


def test_a_second_profile_remembers_the_one_before_and_no_more() -> None:
    bench = profiled("memory_bound")
    for _ in range(2):
        bench.file(finished("memory_bound"))
    known = bench.session.results.profiles[bench.kernels["saxpy"]]
    assert known.before
    assert known.before.before is None


def test_the_longest_of_several_launches_is_the_one_on_the_line() -> None:
    short = replace(
        profile("memory_bound"),
        metrics=profile("memory_bound").metrics
        | {"gpu__time_duration.sum": Metric("gpu__time_duration.sum", 5000.0, "ns")},
    )
    bench = Profiling("memory_bound")
    bench.file(replace(finished("memory_bound"), profiles=(short, profile("memory_bound"))))
    assert "◔ 70.3 µs" in shown(bench, 6)
    assert "longest of 2" in shown(bench, 6)


# -- actions ----------------------------------------------------------------------------------------


def test_lenses_and_actions() -> None:
    bench = profiled("memory_bound")
    commands = [lens.command for lens in lenses.lenses(bench.session, bench.uri) if lens.command]
    assert [(command.title, command.command) for command in commands] == [
        ("◔ 70.3 µs · memory 79% of peak", "orbit.openReport"),
        ("▶ Run", "orbit.run"),
        ("Profile", "orbit.profile"),
    ]
    actions = kernel_actions.actions(bench.session, bench.uri, 4, 4)
    offered = {action.title: action.command.arguments for action in actions if action.command}
    here = {"uri": bench.uri, "kernel": "saxpy"}
    assert offered["Profile in full (saxpy)"] == [here | {"detail": "full"}]
    assert offered["Open the profile's report (saxpy)"] == [here | {"what": "profile"}]
    assert offered["Open in Nsight Compute (saxpy)"] == [here | {"what": "nsight"}]


SPEC = "// orbit: n = 256, y = zeros(n), launch fill(y) block 256\n"
FILL = "__global__ void fill(float* y) { y[threadIdx.x] = 1; }\n"


def offered_profile(milliseconds: float, spec: str = "", cupti: str | None = None) -> tuple[str, str | None]:
    """The lens *Profile* and its tooltip, after a run whose launches took so long and whose program took half a second."""
    machine = c.Machine("p", c.RESULT_VERSION, "/py", "3.12", devices=(H100,), cupti=cupti)
    session = Session(setup=RunSetup(settings=Settings(), machine=machine))
    session.open(
        uri := "file:///src/fill.cu", 1, f"{spec}{FILL}int main() {{ fill<<<1, 256>>>(nullptr); }}\n"
    )
    target = KernelId(uri, "fill")
    launch = replace(LAUNCHES, timing=replace(LAUNCHES.timing, median=milliseconds * 1e6))
    session.results.runs[target] = RunResult("", 0, c.ok("r", run_s=0.5), (launch,), "", {})
    commands = [lens.command for lens in lenses.lenses(session, uri) if lens.command]
    return next((each.title, each.tooltip) for each in commands if each.command == "orbit.profile")


def test_how_long_a_profile_will_take_is_said_before_the_click() -> None:
    assert offered_profile(0.06) == ("Profile", "about 3.3 s: 20 passes of 60.0 µs by Nsight Compute")
    assert offered_profile(2000) == ("Profile (43 s)", "about 43 s: 20 passes of 2.00 s by Nsight Compute")
    assert offered_profile(0.06, SPEC) == ("Profile", "about 3.3 s: 20 passes of 60.0 µs by Nsight Compute")
    assert offered_profile(0.06, SPEC, "13.0") == ("Profile", "about 0.7 s: 17 passes of 60.0 µs by CUPTI")
    assert offered_profile(0.06, cupti="13.0") == ("Profile", "about 1.4 s: 17 passes of 60.0 µs by CUPTI")
    assert offered_profile(10_000, SPEC, "13.0") == (
        "Profile (11 s)",
        "about 11 s: 1 pass of 10.0 s by CUPTI",
    )
    assert offered_profile(2000, cupti="13.0") == ("Profile", "about 9.4 s: 4 passes of 2.00 s by CUPTI")


def test_a_second_profile_takes_as_long_as_the_first() -> None:
    bench = Profiling("memory_bound")
    bench.file(replace(finished("memory_bound"), run_s=4.25))
    *_, lens = lenses.lenses(bench.session, bench.uri)
    assert lens.command
    assert lens.command.tooltip == "4.2 s last time"
    bench.file(replace(finished("memory_bound"), run_s=12.5), detail="full")
    titles = [action.title for action in kernel_actions.actions(bench.session, bench.uri, 4, 4)]
    assert "Profile in full (saxpy): 12 s last time" in titles


def test_what_cupti_counted_has_no_report_for_nsight_compute() -> None:
    bench = Profiling("memory_bound")
    by_cupti = replace(profile("memory_bound"), counted_by="CUPTI", tool="13.0")
    bench.file(replace(finished("memory_bound"), profiles=(by_cupti,)))
    titles = [action.title for action in kernel_actions.actions(bench.session, bench.uri, 4, 4)]
    assert "Profile in full (saxpy)" in titles
    assert "Open in Nsight Compute (saxpy)" not in titles
    assert "CUPTI 13.0" in said_at(bench, 4)


@pytest.mark.parametrize(
    ("name", "first", "count"),
    [
        ("bank_conflicts", "bank_conflicts.cu:9, bank conflicts: 32.0×: pad the rows of the shared array", 3),
        ("uncoalesced", "uncoalesced.cu:4, uncoalesced: 22% used: let neighbouring threads", 3),
        ("spilling", "spilling.cu:7, uncoalesced: 82% used", 3),
        ("memory_bound", "move fewer bytes of DRAM", 2),
        ("compute_bound", "execute fewer instructions", 1),
        ("tensor_core", "feed the tensor cores", 3),
        ("latency_bound", "launch more blocks", 3),
        ("matmul", "do less of both", 1),
    ],
)
def test_what_to_try_first(name: str, first: str, count: int) -> None:
    steps = next_steps.steps(profile(name))
    assert steps[0].startswith(first)
    assert len(steps) == count


@pytest.mark.parametrize("name", NAMES)
def test_the_answer_of_a_hover_is_complete_within_ten_lines(name: str) -> None:
    bench = profiled(name)
    (target,) = bench.session.results.profiles
    kernel = next(kernel for known, kernel, _ in bench.session.kernels(bench.uri) if known == target)
    for markdown in (True, False):
        steps = hover.hover(bench.session, bench.uri, kernel.name_span.line, markdown=markdown)
        assert steps
        answer, *tables = steps.contents.value.split("\n\n**" if markdown else "\n\n")
        assert tables
        assert len(answer.split("\n")) <= 10
        assert "of peak" in answer or "latency" in answer or "small grid" in answer
        assert answer.split("\n")[-1].startswith("- →" if markdown else "  ")
        counters = re.findall(r"`([^`\n]+)` \|$", steps.contents.value, re.MULTILINE) if markdown else []
        assert max(map(len, counters), default=0) <= 40


def test_without_counters_there_is_nothing_to_try() -> None:
    assert next_steps.steps(replace(profile("memory_bound"), metrics={}, lines=(), advice=())) == []


def test_what_a_rule_says_is_no_markup() -> None:
    evil = Advice("R`|", "S", "<b>|", "`x` | <img>\n# y", 12.0, "global")
    bench = Profiling("memory_bound")
    item = replace(profile("memory_bound"), advice=(evil,))
    bench.file(replace(finished("memory_bound"), profiles=(item,)))
    text = said_at(bench, 4, markdown=True)
    assert "\\`x\\` \\| \\<img\\> \\# y" in text
    assert "<img" not in text.replace("\\<img", "")


def test_a_kernel_that_is_gone_does_not_disturb() -> None:
    bench = profiled("memory_bound")
    known = bench.session.results.profiles.pop(bench.kernels["saxpy"])
    bench.session.results.profiles[KernelId("file:///src/gone.cu", "k")] = known
    assert 7 in on_lines(bench)
    assert "◔" not in shown(bench, 6)
