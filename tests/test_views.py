"""What an editor shows, as text: lenses above, hints behind, squiggles below."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from orbit_lsp.cli import source_listing
from orbit_lsp.places.places import Places
from orbit_lsp.runs import result_filing
from orbit_lsp.specs import job_builder
from orbit_lsp.state.compilation import Compilation
from orbit_lsp.state.documents import TextChange
from orbit_lsp.state.kernel_ids import KernelId
from orbit_lsp.state.placement import RunSetup
from orbit_lsp.state.session import AwaitedRun, Session
from orbit_lsp.views import diagnostics, hints, hover, kernel_actions, kernel_status, lenses
from orbit_remote.common import measure, symbols
from orbit_remote.common import messages as c
from orbit_remote.common.measurements import Telemetry, Timing
from tests.settings_check import settings_of_values

URI = "file:///src/k.cu"
H100 = c.Device("NVIDIA H100 80GB HBM3", 0, "9.0", driver="580.159.04")
SAXPY = """\
__global__ void saxpy(int n, float* y) {
  y[n] = 0;
}
int main() { saxpy<<<1, 256>>>(0, 0); }
"""
PTXAS = c.Resources("_Z5saxpyiPf", "saxpy", "sm_90a", registers=40, static_shared=0, dynamic_shared=0,
                    stack=0, spill_stores=0, spill_loads=0, barriers=0)  # fmt: skip
LAUNCHES = c.Launches(
    "_Z5saxpyiPf", "saxpy", (4, 1, 1), (256, 1, 1),
    Timing(19, 288_000.0, "in program, n=19", 287_000.0, 289_000.0, 0.002), 20,
    registers=40, static_shared=0, dynamic_shared=0,
)  # fmt: skip


class Bench:
    """A session with one open file, and what compilers and runs said of it."""

    def __init__(self, text: str = SAXPY, uri: str = URI, **settings: object) -> None:
        self.session = Session(
            setup=RunSetup(
                settings=settings_of_values(settings), modal_account=settings.get("runner") == "modal"
            )
        )
        self.uri = uri
        self.session.open(uri, 1, text)

    def built(self, *reported: c.Problem | c.Resources) -> Bench:
        frozen = self.session.freeze(self.uri)
        assert frozen
        problems = tuple(item for item in reported if isinstance(item, c.Problem))
        resources = tuple(item for item in reported if isinstance(item, c.Resources))
        job = job_builder.make(self.session, frozen, "compile", "r1")
        result_filing.built(self.session, frozen, job, c.Built("r1", problems, resources))
        return self

    def ran(
        self, *launches: c.Launches, target: str = "saxpy", outcome: c.Outcome = "ok", **fields: object
    ) -> Bench:
        frozen = self.session.freeze(self.uri)
        assert frozen
        finished = c.Finished("r2", outcome, launches=launches, device=H100, **fields)
        job = job_builder.make(self.session, frozen, "run", "r2")
        result_filing.finished(self.session, frozen, job, {KernelId(self.uri, target)}, None, finished)
        return self

    def typed(self, line: int, start: int, end: int, text: str) -> Bench:
        version = self.session.files[self.uri].document.version + 1
        self.session.change(self.uri, version, [TextChange((line, start), (line, end), text)])
        return self

    def shows(self, expected: str) -> None:
        shown = "\n".join(source_listing.lines(self.session, self.uri, color=False)) + "\n"
        shown = re.sub(r"\d\d:\d\d:\d\d", "14:05:07", shown)
        assert shown == expected


def test_before_anything_is_known() -> None:
    Bench().shows("""\
  ▶ Run | Profile
1 __global__ void saxpy(int n, float* y) {
2   y[n] = 0;
3 }
4 int main() { saxpy<<<1, 256>>>(0, 0); }
""")


def test_static_figures_take_the_block_size_from_the_launch() -> None:
    Bench().built(replace(PTXAS, static_shared=8192)).shows("""\
  ▶ Run | Profile
1 __global__ void saxpy(int n, float* y) {   occ 75% (regs) · 40 regs · 8 KiB shared
2   y[n] = 0;
3 }
4 int main() { saxpy<<<1, 256>>>(0, 0); }
""")


@pytest.mark.parametrize(
    ("launches", "shown"),
    [
        ("saxpy<<<1, 256, 100 * 1024>>>(0, 0);", "occ 25% (shared)"),
        ("saxpy<<<1, 256, 5120 * sizeof(float2)>>>(0, 0);", "occ 62.5% (shared)"),
        ("saxpy<<<1, 256, BYTES, stream>>>(0, 0);", "occ 25% (shared)"),
        ("saxpy<<<1, 256, 0, stream>>>(0, 0);", "occ 75% (regs)"),
        ("saxpy<<<1, 256, n * sizeof(T)>>>(0, 0);", "occ ≤75% (regs)"),
        ("saxpy<<<1, 256, 1024>>>(0, 0); saxpy<<<1, 256, 100 * 1024>>>(0, 0);", "occ 75% (regs)"),
    ],
)
def test_static_figures_count_the_dynamic_shared_memory_of_a_launch(launches: str, shown: str) -> None:
    """Of several launches the one that asks for the least: the occupancy is what can be reached."""
    head = "constexpr int BYTES = 100 << 10;\n__global__ void saxpy(int n, float* y) {}"
    Bench(f"{head}\nint main() {{ {launches} }}\n").built(PTXAS).shows(f"""\
1 constexpr int BYTES = 100 << 10;
  ▶ Run | Profile
2 __global__ void saxpy(int n, float* y) {{}}   {shown} · 40 regs · sm_90a
3 int main() {{ {launches} }}
""")


def test_a_launch_spec_says_the_block_size_and_the_shared_memory() -> None:
    source = """\
// orbit: B = 512; x = randn(B)
// orbit: launch scale<<<1, dim3(B / 2, 2), 100 * 1024>>>(x)
__global__ void scale(float* x) {}
"""
    Bench(source).built(replace(PTXAS, name="scale(float*)", symbol="_Z5scalePf")).shows("""\
1 // orbit: B = 512; x = randn(B)
2 // orbit: launch scale<<<1, dim3(B / 2, 2), 100 * 1024>>>(x)
  ▶ Run | Profile
3 __global__ void scale(float* x) {}   occ 50% (shared) · 40 regs · sm_90a
""")


def test_with_no_block_size_the_best_reachable_is_said_to_be_that() -> None:
    Bench("__global__ void saxpy(int n, float* y) { y[n] = 0; }\n").built(
        replace(PTXAS, registers=128)
    ).shows("""\
  ✎ Draft a launch spec: this file has no main
1 __global__ void saxpy(int n, float* y) { y[n] = 0; }   occ 25% from 32 threads · 128 regs
""")


def test_a_failed_import_is_one_error() -> None:
    """The build reports it at its line, and the compile ends with the same failure."""
    text = "import triton\nimport nowhere\n@triton.jit\ndef k(x): pass\n"
    bench = Bench(text, "file:///src/k.py")
    frozen = bench.session.freeze(bench.uri)
    assert frozen
    message, place = "ModuleNotFoundError: No module named 'nowhere'", c.Place("/src/k.py", 2, 1, 15)
    build = c.Built("r1", (c.Problem("error", message, "python", place),))
    ended = c.Finished("r1", "runtime error", c.Failure("runtime error", message, place=place))
    job = job_builder.make(bench.session, frozen, "compile", "r1")
    result_filing.built(bench.session, frozen, job, build)
    result_filing.finished(bench.session, frozen, job, set(), build, ended)
    bench.shows("""\
1 import triton
2 import nowhere
  ~~~~~~~~~~~~~~
  error python: ModuleNotFoundError: No module named 'nowhere'
3 @triton.jit
  ✎ Draft a launch spec: no main, benchmark or test here | Compile (imports this file): no registers yet
4 def k(x): pass
""")


def test_a_measured_time_stands_before_the_static_figures() -> None:
    Bench().built(PTXAS).ran(LAUNCHES).shows("""\
  ⏱ 288 µs ±0.2% | ▶ Run | Profile
1 __global__ void saxpy(int n, float* y) {   ⏱ 288 µs ±0.2% · n=19 · occ ≤75%
2   y[n] = 0;
3 }
4 int main() { saxpy<<<1, 256>>>(0, 0); }
""")


@pytest.mark.parametrize(
    ("wanted", "reported"),
    [
        ({}, ["⏱ 288 µs ±0.2% · n=19 · occ ≤75%"]),
        ({"static": False}, ["⏱ 288 µs ±0.2% · n=19 · occ ≤75%"]),
        ({"measured": False}, ["occ 75% (regs) · 40 regs · sm_90a"]),
        ({"measured": False, "static": False}, []),
    ],
)  # fmt: skip
def test_where_hints_cannot_be_refreshed_one_diagnostic_says_them_all(
    wanted: dict[str, bool], reported: list[str]
) -> None:
    bench = Bench(hints=wanted).built(PTXAS).ran(LAUNCHES)
    assert diagnostics.diagnostics(bench.session, URI) == []
    bench.session.client.mirror_hints = True
    assert [diagnostic.message for diagnostic in diagnostics.diagnostics(bench.session, URI)] == reported


def test_a_hint_is_no_diagnostic_once_the_client_has_asked_for_it_until_it_changes() -> None:
    """Emacs asks again only after an edit or a scroll: until then the new number is a diagnostic, and no number stands twice."""
    bench = Bench().built(PTXAS)
    bench.session.client.mirror_hints = True

    def noted() -> list[str]:
        return [diagnostic.message for diagnostic in diagnostics.diagnostics(bench.session, URI)]

    assert noted() == ["occ 75% (regs) · 40 regs · sm_90a"]
    hints.answer(bench.session, URI, 1, 9)  # lines below the kernel's
    assert noted() == ["occ 75% (regs) · 40 regs · sm_90a"]
    hints.answer(bench.session, URI, 0, 9)
    assert noted() == []
    bench.ran(LAUNCHES)
    assert noted() == ["⏱ 288 µs ±0.2% · n=19 · occ ≤75%"]
    hints.answer(bench.session, URI, 0, 9)
    bench.typed(0, 0, 0, "// a comment\n")
    assert noted() == []
    bench.typed(2, 9, 10, "1")
    assert noted() == ["⏱ 288 µs · edited since · occ ≤75%"]


def test_edited_since_and_undone() -> None:
    bench = Bench().ran(LAUNCHES)
    bench.typed(1, 9, 10, "1")
    bench.shows("""\
  ⏱ 288 µs ±0.2% · edited since | ▶ Run | Profile
1 __global__ void saxpy(int n, float* y) {   ⏱ 288 µs · edited since · occ ≤75%
2   y[n] = 1;
3 }
4 int main() { saxpy<<<1, 256>>>(0, 0); }
""")
    bench.typed(1, 9, 10, "0").typed(0, 0, 0, "// a comment\n")
    bench.shows("""\
1 // a comment
  ⏱ 288 µs ±0.2% | ▶ Run | Profile
2 __global__ void saxpy(int n, float* y) {   ⏱ 288 µs ±0.2% · n=19 · occ ≤75%
3   y[n] = 0;
4 }
5 int main() { saxpy<<<1, 256>>>(0, 0); }
""")


def test_a_changed_setting_or_header_makes_it_stale_too() -> None:
    bench = Bench().ran(LAUNCHES)
    (known,) = kernel_status.of(bench.session, URI)
    assert not known.stale
    bench.session.files[bench.uri].compilation = Compilation(("-DN=4",))
    (known,) = kernel_status.of(bench.session, URI)
    assert known.stale


def test_a_kernel_shorter_than_the_recording_can_tell_has_no_number() -> None:
    short = Timing(19, 32.0, "in program, n=19", 32.0, 512.0, 7.5, under=184.0)
    bench = Bench().ran(replace(LAUNCHES, timing=short))
    bench.shows("""\
  ⏱ under 1 µs | ▶ Run | Profile
1 __global__ void saxpy(int n, float* y) {   ⏱ under 1 µs · n=19 · occ ≤75%
2   y[n] = 0;
3 }
4 int main() { saxpy<<<1, 256>>>(0, 0); }
""")
    shown = hover.hover(bench.session, URI, 0, markdown=False)
    assert shown
    assert "under 1 µs (in program, n=19)" in shown.contents.value
    assert not re.search(r"\d ns", shown.contents.value)


@pytest.mark.parametrize(
    ("cold_us", "warm_us", "row"),
    [
        (100, 98, "either: the cold time is at most 5% longer"),
        (98, 100, "either: "),
        (150, 100, "cold (1.5 times as long) if"),
    ],
)
def test_which_time_counts(cold_us: int, warm_us: int, row: str) -> None:
    cold, warm = (
        measure.timing([1000 * us] * 50, label) for us, label in ((cold_us, "cold L2"), (warm_us, "warm L2"))
    )
    bench = Bench().ran(replace(LAUNCHES, timing=cold, warm=warm))
    shown = hover.hover(bench.session, URI, 0, markdown=False)
    assert shown
    assert re.search(rf"cold or warm +{re.escape(row)}", shown.contents.value)


@pytest.mark.parametrize(
    ("energy_j", "busy", "row"),
    [
        (14.0, 0.98, "14 J, to 0.4 J; 700 mJ a launch, to 20 mJ"),
        (14.0, 0.5, "14 J, to 0.4 J"),
        (4.0, 0.98, "4 J, to 0.4 J"),
    ],
    ids=["one kernel", "the GPU idled between", "too few steps of the counter"],
)
def test_energy_is_of_a_launch_where_one_kernel_had_the_gpu(energy_j: float, busy: float, row: str) -> None:
    seen = Telemetry(50, utilization=(90.0, 97.0, 100.0), energy_j=energy_j, energy_step_j=0.4)
    seen = seen.with_launches([20], busy)
    bench = Bench().ran(LAUNCHES, telemetry=seen)
    shown = hover.hover(bench.session, URI, 0, markdown=False)
    assert shown
    assert re.search(rf"energy, the whole GPU +{re.escape(row)}  \[NVML", shown.contents.value)
    assert "97 % of the time (90 to 100)" in shown.contents.value


def test_how_the_launches_lie_around_their_median_is_in_the_hover() -> None:
    spread = replace(LAUNCHES.timing, n=200, mean=290_000.0, deviation=4_000.0, p95=296_000.0, p99=301_000.0)
    bench = Bench().ran(replace(LAUNCHES, timing=spread))
    shown = hover.hover(bench.session, URI, 0, markdown=False)
    assert shown
    assert re.search(r"time, 20 % to 80 % +287 µs to 289 µs ", shown.contents.value)
    assert re.search(r"time, mean +290 µs, standard deviation 4.00 µs ", shown.contents.value)
    assert re.search(r"time, 95 % and 99 % +296 µs, 301 µs ", shown.contents.value)


def test_several_configurations_are_counted_and_the_heaviest_is_named() -> None:
    small = replace(LAUNCHES, grid=(1, 1, 1), timing=Timing(3, 2_000.0, "in program, n=3"), count=3)
    Bench().ran(small, LAUNCHES).shows("""\
  ⏱ 288 µs ±0.2% | ▶ Run | Profile
1 __global__ void saxpy(int n, float* y) {   ⏱ 288 µs ±0.2% · 23 launches · occ ≤75%
2   y[n] = 0;
3 }
4 int main() { saxpy<<<1, 256>>>(0, 0); }
""")


def test_spills_are_a_warning_in_the_hint() -> None:
    Bench().built(replace(PTXAS, registers=255, spill_stores=320, spill_loads=640)).shows("""\
  ▶ Run | Profile
1 __global__ void saxpy(int n, float* y) {   ⚠ spills 960 B · occ 12.5% · 255 regs
                  ~~~~~
                  warning orbit register-spills: registers spill to local memory: 320 bytes stored and 640 loaded by each thread; it has 255 registers, the most that a thread can have
2   y[n] = 0;
3 }
4 int main() { saxpy<<<1, 256>>>(0, 0); }
""")


def test_errors_with_a_column_without_one_and_on_a_kernel() -> None:
    Bench().built(
        c.Problem("error", 'identifier "y" is undefined', "nvcc", c.Place("/src/k.cu", 2, 3, 4), "#20",
                  notes=(c.Note("detected here", c.Place("/src/k.cu", 4)),)),
        c.Problem("warning", "no column", "nvcc", c.Place("/src/k.cu", 4), "#1-D"),
        c.Problem("error", "uses too much shared data", "ptxas", symbol="_Z5saxpyiPf"),
    ).shows("""\
  ▶ Run | Profile
1 __global__ void saxpy(int n, float* y) {
                  ~~~~~
                  error ptxas: uses too much shared data
2   y[n] = 0;
    ~
    error nvcc #20: identifier "y" is undefined
      k.cu:4: detected here
3 }
4 int main() { saxpy<<<1, 256>>>(0, 0); }
  ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
  warning nvcc #1-D: no column
""")  # fmt: skip


def test_a_runtime_error_without_a_line_stands_on_the_kernel_that_was_clicked() -> None:
    failure = c.Failure("runtime error", "main ended with exit code 3", "its output is in the log")
    Bench().ran(outcome="runtime error", failure=failure).shows("""\
  ✗ exit code 3 · 14:05:07 | ▶ Run | Profile
1 __global__ void saxpy(int n, float* y) {
                  ~~~~~
                  error orbit: main ended with exit code 3. its output is in the log
2   y[n] = 0;
3 }
4 int main() { saxpy<<<1, 256>>>(0, 0); }
""")


def test_while_it_runs_the_lens_counts_and_cancels() -> None:
    bench = Bench()
    bench.session.running[KernelId(URI, "saxpy")] = AwaitedRun("r1", "running", began=10.0)
    (lens,) = lenses.lenses(bench.session, URI, now=13.4)
    assert lens.command
    assert (lens.command.title, lens.command.command) == ("⏳ running 3 s (cancel)", "orbit.cancel")


def test_a_run_of_seconds_offers_to_show_where_its_kernel_is() -> None:
    bench = Bench()
    bench.session.setup.machine = c.Machine("p", c.RESULT_VERSION, "python", "3.12", devices=(H100,))
    bench.session.running[KernelId(URI, "saxpy")] = AwaitedRun("r1", "running", began=10.0)
    shown = [lens.command and lens.command.title for lens in lenses.lenses(bench.session, URI, now=16.0)]
    assert shown == ["⏳ running 6 s (cancel)", "Where is it?"]
    offered = kernel_actions.actions(bench.session, URI, 1, 1)
    assert "Where is it? (saxpy)" in [action.title for action in offered]


def test_the_lens_names_the_machines_own_gpu_and_figures_are_for_it() -> None:
    bench = Bench(gpu="T4")
    assert bench.session.setup.architecture() == "sm_75"
    bench.session.setup.machine = c.Machine("p", c.RESULT_VERSION, "python", "3.12", devices=(H100,))
    assert bench.session.setup.architecture() == "sm_90a"
    titles = [lens.command.title for lens in lenses.lenses(bench.session, URI) if lens.command]
    assert titles == ["▶ Run on H100 80GB HBM3", "Profile"]


@pytest.mark.parametrize(
    ("gpu", "rented", "architecture"),
    [
        ("h100", "H100", "sm_90a"),
        ("a100-80gb:2", "A100-80GB:2", "sm_80"),
        ("A10G", "A10", "sm_86"),
        ("RTX 4090", "", "sm_89"),
        ("NVIDIA GeForce RTX 3080 Laptop GPU", "", "sm_86"),
        ("sm_90", "", "sm_90"),
    ],
)
def test_the_setting_takes_any_gpu_and_rents_only_what_can_be_rented(
    gpu: str, rented: str, architecture: str
) -> None:
    session = Session()
    places = Places(session, print, lambda _: None)
    places.settings.options = {"gpu": gpu}
    assert places.settings.configure(None) == ()
    assert (session.setup.rents(), session.setup.architecture()) == (rented, architecture)
    session.setup.machine = c.Machine("p", c.RESULT_VERSION, "python", "3.12", devices=(H100,))
    assert session.setup.architecture() == "sm_90a"  # this machine's own


def test_a_helper_promises_no_run_that_its_caller_does_not() -> None:
    Bench(
        """\
import triton

@triton.jit
def row_max(x):
    return x

@triton.jit
def softmax_kernel(x):
    row_max(x)

# orbit: x = randn(8); launch scan_kernel[(1,)](x)
@triton.jit
def scan_kernel(x):
    row_max(x)

@triton.jit
def half(x):
    return x

@triton.jit
def halve_kernel(x):
    half(x)

@pointwise_dynamic
@triton.jit
def neg(x):
    return -x
""",
        "file:///src/k.py",
    ).shows("""\
 1 import triton
 2
 3 @triton.jit
   ▶ Run scan_kernel | Profile scan_kernel
 4 def row_max(x):
 5     return x
 6
 7 @triton.jit
   ✎ Draft a launch spec: no main, benchmark or test here | Compile (imports this file): no registers yet
 8 def softmax_kernel(x):
 9     row_max(x)
10
11 # orbit: x = randn(8); launch scan_kernel[(1,)](x)
12 @triton.jit
   ▶ Run | Profile
13 def scan_kernel(x):
14     row_max(x)
15
16 @triton.jit
   ✎ Draft a launch spec for halve_kernel
17 def half(x):
18     return x
19
20 @triton.jit
   ✎ Draft a launch spec: no main, benchmark or test here | Compile (imports this file): no registers yet
21 def halve_kernel(x):
22     half(x)
23
24 @pointwise_dynamic
25 @triton.jit
26 def neg(x):
27     return -x
""")


def test_triton_helpers_run_what_calls_them() -> None:
    Bench(
        """\
import triton

@triton.jit
def row_max(x):
    return x

@triton.jit
def softmax_kernel(x):
    row_max(x)

def main():
    softmax_kernel[(1,)](0)
""",
        "file:///src/k.py",
    ).shows("""\
 1 import triton
 2
 3 @triton.jit
   ▶ Run softmax_kernel | Profile softmax_kernel
 4 def row_max(x):
 5     return x
 6
 7 @triton.jit
   ▶ Run | Profile
 8 def softmax_kernel(x):
 9     row_max(x)
10
11 def main():
12     softmax_kernel[(1,)](0)
""")


@pytest.mark.parametrize("markdown", [True, False])
def test_the_hover_escapes_what_programs_say_only_in_markdown(markdown: bool) -> None:
    bench = Bench().ran(LAUNCHES, remarks=("`evil` | <b>markup</b>\nand a line",))
    result = hover.hover(bench.session, URI, 0, markdown=markdown)
    assert result
    text = result.contents.value
    assert ("`evil` | <b>" in text) is not markdown
    assert ("\\`evil\\` \\| \\<b\\>markup\\</b\\> and a line" in text) is markdown
    assert hover.hover(bench.session, URI, 3, markdown=markdown) is None


def test_what_a_program_says_does_not_end_the_block_of_a_hover() -> None:
    bench = Bench().ran(LAUNCHES, remarks=("```` is said",))
    result = hover.hover(bench.session, URI, 0, markdown=False)
    assert result
    first, *_, last = hover.fenced(result).contents.value.split("\n")
    assert (first, last) == ("`````text", "`````")


@pytest.mark.parametrize(
    ("demangled", "base"),
    [
        ("saxpy(int, float const*)", "saxpy"),
        ("void ns::tiled<32, float>(float*, int)", "tiled"),
        ("(anonymous namespace)::k(int)", "k"),
        ("void a::b<c<(int)3>>::k<d::e>(f(*)(g))", "k"),
        ("add_kernel", "add_kernel"),
    ],
)
def test_the_base_name_of_a_demangled_name(demangled: str, base: str) -> None:
    assert symbols.base_name(demangled) == base


def test_kernels_of_one_name_are_told_apart_by_the_line_of_their_code() -> None:
    bench = Bench("__global__ void k(int) {}\n__global__ void k(float) {}\nint main() {}\n")
    place = c.Place("/src/k.cu", 2)
    bench.ran(replace(LAUNCHES, name="k", symbol="_Z1kf", place=place), target="k")
    assert {target.key: len(result.launches) for target, result in bench.session.results.runs.items()} == {
        "k": 0,
        "k#2": 1,
    }


def test_a_terminal_is_given_nothing_to_obey() -> None:
    bench = Bench("// \x1b]0;title\x07\n" + SAXPY)
    bench.built(c.Problem("error", "says \x1b[2J", "nvcc", c.Place("/src/k.cu", 2)))
    shown = "\n".join(source_listing.lines(bench.session, URI, color=False))
    assert "]0;title" in shown
    assert "says" in shown
    assert not {"\x1b", "\x07"} & set(shown)
