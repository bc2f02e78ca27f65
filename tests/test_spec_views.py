"""What stands on a kernel's line after its launch spec has run.

The GPU side's answers are made here, with the figures of an NVIDIA H100 80GB HBM3 (2 x 2619 MHz x 5120 bit:
3.35 TB/s; 132 multiprocessors at 1980 MHz; 50 MiB of L2): saxpy of 2^26 elements takes 288 µs there.
"""

from __future__ import annotations

from dataclasses import replace
from textwrap import dedent

import pytest

from orbit_lsp.runs import result_filing
from orbit_lsp.specs import job_builder
from orbit_lsp.state.kernel_ids import KernelId
from orbit_lsp.state.session import path_of
from orbit_lsp.views import hints, hover, lenses
from orbit_remote.common import messages as c
from orbit_remote.common.measurements import Timing, Tried
from orbit_remote.common.requests import KernelDefinition
from tests.test_views import URI, Bench

H100 = c.Device(
    "NVIDIA H100 80GB HBM3", 0, "9.0", driver="580.159.04", multiprocessors=132, sm_clock_mhz=1980,
    memory_clock_mhz=2619, bus_width_bits=5120, l2_bytes=50 << 20,
)  # fmt: skip
SPEC = """\
// orbit: n = 1 << 26
// orbit: x = randn(n); y = randn(n); a = 2.0f
// orbit: launch saxpy<<<(n + 255) / 256, 256>>>(n, a, x, y)
// orbit: expect y == a * x + y
// orbit: bytes 3 * 4 * n; flops 2 * n
"""
SAXPY = SPEC + "__global__ void saxpy(int n, float a, const float* x, float* y) {}\n"
N = 1 << 26


def timing(microseconds: float, **fields: object) -> Timing:
    """52 cold launches, 0.4 % apart."""
    middle = round(microseconds * 1000)
    samples = tuple(middle + step * middle // 1000 for step in range(-2, 3) for _ in range(10))
    known = {
        "low": middle * 0.998,
        "high": middle * 1.002,
        "spread": 0.002,
        "error": 0.0011,
        "stopped": "precise",
    }
    return Timing(52, middle, "cold L2, n=52", samples=samples, **(known | fields))  # type: ignore[arg-type]


def launched(microseconds: float, grid: int = N // 256, **fields: object) -> c.Launches:
    shape: dict[str, object] = {
        "warm": timing(microseconds * 0.96),
        "registers": 16,
        "static_shared": 0,
        "dynamic_shared": 0,
    }
    made = c.Launches("_Z5saxpyifPKfPf", "saxpy", (grid, 1, 1), (256, 1, 1), timing(microseconds), 52)
    return replace(made, **(shape | fields))  # type: ignore[arg-type]


PASSED = c.Check("y == a * x + y", True, c.Place(path_of(URI), 4), N, error=4.8e-7, rtol=1.3e-6, atol=1e-5)
FAILED = replace(PASSED, passed=False, differing=12, index=(7,), actual="0.5", expected="2.5", error=2.0)


def point(microseconds: float | None = 288, n: int = N, **fields: object) -> c.Point:
    made = (launched(microseconds, n // 256),) if microseconds else ()
    known = {
        "launches": made,
        "checks": (PASSED, replace(PASSED, when="again")),
        "bytes": 12.0 * n,
        "flops": 2.0 * n,
        "footprint": 8 * n,
    }
    return c.Point(**(known | fields))  # type: ignore[arg-type]


class Spec(Bench):
    """A file whose kernel has a launch spec, and what the GPU side answered."""

    def __init__(self, text: str = SAXPY, uri: str = URI, **settings: object) -> None:
        super().__init__(text, uri, **settings)
        self.key = self.session.kernels(uri)[0][0]

    def answered(
        self, *points: c.Point, outcome: c.Outcome = "ok", device: c.Device = H100, **fields: object
    ) -> Spec:
        frozen = self.session.freeze(self.uri)
        assert frozen
        plan = job_builder.plan_of(self.session, self.key)
        job = job_builder.make(self.session, frozen, "run", "r1", plan)
        first = next((item.launches for item in points if not item.case), ())
        finished = c.Finished("r1", outcome, launches=first, points=points, device=device, **fields)  # type: ignore[arg-type]
        result_filing.finished(self.session, frozen, job, {self.key}, None, finished, plan)
        return self

    @property
    def hint(self) -> str:
        return " | ".join(str(hint.label) for hint in hints.hints(self.session, self.uri, 0, 99))

    @property
    def lens(self) -> str:
        """What stands besides *Profile*, which is always there."""
        commands = [lens.command for lens in lenses.lenses(self.session, self.uri) if lens.command]
        return " | ".join(command.title for command in commands if command.command != "orbit.profile")

    def hover(self, *, markdown: bool = False) -> str:
        line = self.session.kernels(self.uri)[0][1].line
        result = hover.hover(self.session, self.uri, line, markdown=markdown)
        return result.contents.value if result else ""  # type: ignore[union-attr]


def test_the_job_of_a_click() -> None:
    spec = Spec(
        SPEC + "// orbit: flags -O3; timeout 5; gpu H200\n" + SAXPY.removeprefix(SPEC), runner="modal"
    )
    frozen = spec.session.freeze(URI)
    assert frozen
    job = job_builder.make(spec.session, frozen, "run", "r1", job_builder.plan_of(spec.session, spec.key))
    assert (job.start.through, job.kernel, job.gpu, job.flags, job.run_timeout_s) == (
        "spec",
        "saxpy",
        "H200",
        ("-O3",),
        5,
    )
    assert job.definition == KernelDefinition("saxpy", "saxpy", 6, 6, 6, 21)


@pytest.mark.parametrize(
    ("spelled", "gpu"),
    [("H100", "H100"), ("a100-80gb", "A100-80GB"), ("RTX-PRO-6000", "RTX PRO 6000"), ("H100!:2", "H100:2"), ("B200:1", "B200")],
)  # fmt: skip
def test_the_gpu_of_a_spec_as_the_settings_spell_it(spelled: str, gpu: str) -> None:
    spec = Spec(f"// orbit: gpu {spelled}\n" + SAXPY, runner="modal", gpu="T4")
    plan = job_builder.plan_of(spec.session, spec.key)
    frozen = spec.session.freeze(spec.uri)
    assert frozen
    assert job_builder.refusal(job_builder.make(spec.session, frozen, "run", "r1", plan), plan) == ""
    assert job_builder.gpu_of(spec.session, plan) == gpu
    assert spec.lens.endswith(f"▶ Run on {gpu}")


def test_a_gpu_that_nobody_rents_out_is_refused_before_anything_is_rented() -> None:
    spec = Spec("// orbit: gpu V100\n" + SAXPY, runner="modal")
    plan, frozen = job_builder.plan_of(spec.session, spec.key), spec.session.freeze(spec.uri)
    assert frozen
    why = job_builder.refusal(job_builder.make(spec.session, frozen, "run", "r1", plan), plan)
    assert why.startswith(
        "its launch spec asks for a GPU that cannot be rented: 'V100' is not one of the GPUs on Modal: T4, L4, "
    )
    assert spec.lens.endswith("▶ Run (no such GPU to rent)")
    assert job_builder.refusal(job_builder.make(spec.session, frozen, "compile", "r1"), plan) == ""


def test_a_spec_without_launch_configures_the_program() -> None:
    text = '// orbit: args --size 4; stdin "a\\nb"; flags -DN=4\n__global__ void k() {}\nint main() { k<<<1, 1>>>(); }\n'
    spec = Spec(text, arguments=["of", "the", "settings"])
    frozen = spec.session.freeze(URI)
    assert frozen
    job = job_builder.make(spec.session, frozen, "run", "r1", job_builder.plan_of(spec.session, spec.key))
    assert (job.start.through, job.definition, job.arguments, job.stdin, job.flags) == (
        "program", None, ("--size", "4"), "a\nb", ("-DN=4",),
    )  # fmt: skip


def test_the_whole_line() -> None:
    spec = Spec().answered(point())
    assert spec.hint == "⏱ 288 µs · 2.80 TB/s (83%) · occ ≤100%"
    assert spec.lens == "✓ 288 µs ±0.2% | ▶ Run"


def test_the_hover_says_everything_and_where_it_comes_from() -> None:
    text = Spec().answered(point(), toolchain={"nvcc": "13.0.88"}).hover()
    expected = """\
        saxpy: run just now
          saxpy<<<262144, 256>>>            52 launches  [CUPTI]
          time, median                      288 µs ±0.2% (cold L2, n=52)  [CUPTI activity records]
          time, median, warm                276 µs ±0.2% (cold L2, n=52)  [CUPTI activity records]
          cold or warm                      either: the cold time is at most 5% longer  [orbit]
          measured until                    n=52: the median is known to ±0.1%  [orbit]
          time, 20 % to 80 %                287 µs to 289 µs  [CUPTI activity records]
          occupancy, theoretical            ≤100%, 8 blocks per SM  [derived from the launch]
          registers per thread              16 allocated  [CUPTI]
          shared memory per block           0 B static, 0 B dynamic  [CUPTI]
          memory rate                       2.80 TB/s, 83% of 3.35 TB/s of DRAM  [declared bytes over the cold median; peak: 2 × 2619 MHz × 5120 bit]
          arithmetic rate                   466 GFLOP/s, 0.1% of 535 TFLOP/s of TF32 tensor  [declared flops over the cold median; peak: 132 SMs × 1980 MHz × 2048 per clock; which cores the kernel uses is not known, the fastest for its types are assumed]
          memory of its arguments           512 MiB  [launch spec]
          ✓ y == a * x + y                  67,108,864 elements, largest error 4.8e-07, allowed 1.3e-06 relative, 1e-05 absolute  [before timing]
          ✓ y == a * x + y                  67,108,864 elements, largest error 4.8e-07, allowed 1.3e-06 relative, 1e-05 absolute  [fresh data after timing]
          GPU                               NVIDIA H100 80GB HBM3, driver 580.159.04  [NVML]
          toolchain                         nvcc 13.0.88  [installed]"""
    answer = "saxpy: ✓ 288 µs ±0.2% · just now 2.80 TB/s (83% of peak) ✓ y == a * x + y occupancy ≤100% at 256 threads a block → Profile says what limits it"
    assert " ".join(text.split()) == f"{answer} {' '.join(dedent(expected).split())}"


@pytest.mark.parametrize(
    ("answer", "hint"),
    [
        (point(bytes=24.0 * N), "⏱ 288 µs ±0.2% · ⚠ 'bytes' too large?"),
        (point(2, 1 << 20), "⏱ 2.00 µs · 6.29 TB/s (L2) · occ ≤100%"),
        (point(6, 1 << 20), "⏱ 6.00 µs · 2.10 TB/s (63%) · occ ≤100%"),
        (point(bytes=None, flops=1e11), "⏱ 288 µs ±0.2% · 347 TFLOP/s (65%)"),
        (point(bytes=None, flops=None), "⏱ 288 µs ±0.2% · occ ≤100%"),
        (point(checks=()), "⏱ 288 µs · 2.80 TB/s (83%) · occ ≤100%"),
    ],
)  # fmt: skip
def test_rates_are_told_as_far_as_they_can_be_true(answer: c.Point, hint: str) -> None:
    assert Spec().answered(answer).hint == hint


def test_of_a_gpu_whose_peaks_are_not_known_there_is_a_rate_and_no_share() -> None:
    assert (
        Spec().answered(point(), device=c.Device("Some GPU")).hint == "⏱ 288 µs ±0.2% · 2.80 TB/s · occ ≤100%"
    )


@pytest.mark.parametrize(
    ("points", "hint", "lens"),
    [
        ([point(None, checks=(FAILED,))], "✗ 12 of 67,108,864 differ", "✗ 12 of 67,108,864 differ"),
        ([point(checks=(PASSED, replace(FAILED, when="again")))],
         "✗ wrong answer · 2.80 TB/s (83%)",
         "✗ wrong answer · 288 µs"),
        ([point(), point(None, case="tail", values={"n": "1000003"}, checks=(replace(FAILED, elements=1_000_003),))],
         "✗ wrong answer · 2.80 TB/s (83%)",
         "✗ wrong answer · 288 µs"),
    ],
)  # fmt: skip
def test_wrong_answers(points: list[c.Point], hint: str, lens: str) -> None:
    problem = c.Problem("error", "y[7] is 0.5, not 2.5", "orbit", c.Place(path_of(URI), 4))
    failure = c.Failure("wrong answer", "y is not a * x + y: 12 of 67,108,864 differ")
    spec = Spec().answered(*points, outcome="wrong answer", failure=failure, problems=(problem,))
    assert spec.hint == hint
    assert spec.lens == f"{lens} | ▶ Run"
    assert "first at [7]: 0.5 instead of 2.5" in " ".join(spec.hover().split())


SIZES = [point(5.2, 1 << 20, values={"n": str(1 << 20)}), point(75, 1 << 24, values={"n": str(1 << 24)}), point(288, values={"n": str(N)})]  # fmt: skip


def test_a_sweep_is_told_by_its_first_size_and_a_table() -> None:
    spec = Spec().answered(*SIZES, point(None, case="tail", values={"n": "1000003"}, bytes=None, flops=None))
    assert spec.hint == ("⏱ 5.20 µs · n: 1 of 3 · 2.42 TB/s (72%)")
    table = spec.hover().partition("saxpy: every run\n")[2]
    assert table.splitlines() == [
        "  case  n         time       spread  samples  memory     of peak  arithmetic   of peak  occupancy  check",
        "  -     1048576   5.20 µs    ±0.2%   52       2.42 TB/s  72%      403 GFLOP/s  0.1%     ≤100%      ✓",
        "  -     16777216  75.0 µs    ±0.2%   52       2.68 TB/s  80%      447 GFLOP/s  0.1%     ≤100%      ✓",
        "  -     67108864  288 µs     ±0.2%   52       2.80 TB/s  83%      466 GFLOP/s  0.1%     ≤100%      ✓",
        "  tail  1000003   not timed                                                                        ✓",
    ]
    assert (
        spec.hover().count("✓ y == a * x + y") == 3
    )  # the answer, and of the one on the line; the table has all
    assert "| - | 1048576 | 5.20 µs | ±0.2% | 52 |" in spec.hover(markdown=True)


def test_several_launches_are_timed_together() -> None:
    both = (launched(200), launched(88, grid=1))
    hint = "⏱ 288 µs ±0.1% · in 2 launches"
    assert Spec().answered(point(launches=both)).hint == hint
    few = tuple(
        replace(launches, timing=replace(launches.timing, samples=(), spread=None)) for launches in both
    )
    assert Spec().answered(point(launches=few)).hint == hint.replace(" ±0.1%", "")


def test_what_autotuning_tried_is_a_table_the_fastest_first() -> None:
    tried = (Tried("BLOCK: 64", 5200.0), Tried("BLOCK: 128", 4100.0, chosen=True), Tried("BLOCK: 4096"))
    tuned = launched(4.2, tuning=tried, constants={"BLOCK": "128"})
    table = Spec().answered(point(launches=(tuned,))).hover().partition("saxpy: autotuned\n")[2]
    assert table.splitlines() == [
        "          configuration  median while tuning",
        "  chosen  BLOCK: 128     4.10 µs",
        "          BLOCK: 64      5.20 µs",
        "          BLOCK: 4096    did not run",
    ]


def test_a_run_that_broke_off_keeps_the_numbers_before() -> None:
    failure = c.Failure("runtime error", "an illegal memory access was encountered")
    spec = Spec().answered(point()).answered(point(None, checks=()), outcome="runtime error", failure=failure)
    assert spec.hint.startswith("⏱ 288 µs · ")
    assert spec.lens.startswith("✗ runtime error · ")


def test_a_comment_of_the_spec_counts_and_one_beside_it_does_not() -> None:
    spec = Spec().answered(point())
    spec.typed(0, 0, 0, "// a remark\n")
    assert "edited since" not in spec.hint
    spec.typed(1, 19, 21, "20")
    assert spec.hint.startswith("⏱ 288 µs · edited since")


def test_figures_of_a_build_for_another_kernels_run_are_not_old() -> None:
    """Such a build is of the whole file."""
    bench = Spec(SAXPY + "__global__ void other(float* x) {}\nint main() {}\n")
    frozen = bench.session.freeze(bench.uri)
    assert frozen
    job = job_builder.make(bench.session, frozen, "run", "r1", job_builder.plan_of(bench.session, bench.key))
    figures = c.Resources("_Z5otherPf", "other(float*)", "sm_90", registers=12, static_shared=0)
    result_filing.built(bench.session, frozen, job, c.Built("r1", resources=(figures,)))
    assert bench.hint == "occ 100% from 64 threads · 12 regs"


def test_a_programs_launches_do_not_replace_what_a_spec_has_measured() -> None:
    main = "int main() { saxpy<<<1, 256>>>(0, 0, 0, 0); }\n__global__ void other() {}\n"
    spec = Spec(SAXPY + main).answered(point())
    frozen = spec.session.freeze(URI)
    assert frozen
    finished = c.Finished("r2", "ok", launches=(launched(400), launched(9, name="other")), device=H100)
    job = job_builder.make(spec.session, frozen, "run", "r2")
    result_filing.finished(spec.session, frozen, job, {KernelId(URI, "other")}, None, finished)
    assert [str(hint.label)[:9] for hint in hints.hints(spec.session, URI, 0, 99)] == [
        "⏱ 288 µs ",
        "⏱ 9.00 µs",
    ]
