"""Device metrics of an evaluation: from recorded reports (an H100), and by the counters that each kind of GPU has."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from orbit_lsp.api import device_metrics, metric_jobs
from orbit_lsp.profile import roofline
from orbit_lsp.profile.sections import SECTIONS
from orbit_lsp.queue.job_store import Result, StoredJob
from orbit_lsp.queue.request import Request, RequestRefusedError, check
from orbit_remote.common import messages as c
from orbit_remote.common.measurements import Metric
from orbit_remote.common.requests import Grade
from tests.recorded_profiles import finished, profile

CHIPS: dict[str, list[str]] = json.loads(
    (Path(__file__).parent / "recordings" / "base_metrics.json").read_text()
)
OF_ANY_GPU = ("launch__", "memory_l2_theoretical_sectors_")
"""What is no counter of a chip: Nsight Compute has these of the launch, and of each instruction."""


def told(groups: dict[str, object]) -> str:
    """A line for each group."""
    lines: list[str] = []
    for group, fields in groups.items():
        if isinstance(fields, dict):
            words = (
                f"{name} {value:.6g}" if isinstance(value, int | float) else f"{name} {value}"
                for name, value in fields.items()  # pyright: ignore[reportUnknownVariableType]
            )
            lines.append(f"{group}: {', '.join(words)}")
        else:
            lines.append(f"{group}: {fields}")
    return "\n".join(lines)


SAXPY = """\
kernel: saxpy(int, float, const float *, float *)
speed_of_light: compute_throughput_pct 28.9806, memory_throughput_pct 79.0442, compute_memory_throughput_pct 79.0442, \
sm_throughput_pct 28.9806, dram_throughput_pct 79.0442, gpu_dram_throughput_pct 79.0442
detailed_metrics: l1_hit_rate_pct 32.8777, l2_hit_rate_pct 33.8057, warp_occupancy_pct 76.079, sm_active_cycles_pct 96.5861, \
instructions_per_cycle 0.56879, waves_per_sm 62.0606
memory_metrics: dram_avg_bandwidth_gb_s 66.2037, dram_total_bandwidth_gb_s 2648.15, dram_active_cycles_pct 79.0442, \
l1_writeback_active_pct 8.67429, l1_read_sectors_pct 5.78286, l2_throughput_pct 77.8009
compute_metrics: fma_pipe_utilization_pct 2.99363, fp64_pipe_utilization_pct 0, alu_pipe_utilization_pct 1.49682, \
xu_pipe_utilization_pct 0, tensor_pipe_utilization_pct 0, instructions_per_cycle 0.56879, occupancy_limit_registers 16, \
occupancy_limit_shared_mem 32, occupancy_limit_warps 8, occupancy_limit_blocks 32, registers_per_thread 16
pipeline_metrics: fma_pipe_active_pct 4.33712, alu_pipe_active_pct 1.44572, tensor_pipe_active_pct 0, shared_pipe_active_pct 0, \
fp64_pipe_active_pct 0, sm_issue_active_pct 13.7444
occupancy_metrics: occupancy_limit_registers 16, occupancy_limit_shared_mem 32, occupancy_limit_warps 8, \
occupancy_limit_blocks 32, waves_per_sm 62.0606, block_size 256, grid_size 65536, shared_mem_per_block 1024
stall_metrics: stall_long_scoreboard_pct 88.2503, stall_short_scoreboard_pct 4.11074, stall_barrier_pct 0, \
stall_not_selected_pct 0.271985
scheduler_metrics: warps_eligible_per_cycle 0.174345, inst_issued_per_cycle 0.141347, issue_active_pct 14.1347
access_pattern_metrics: l1_load_sectors_per_req 4, l1_store_sectors_per_req 3.99525, l2_theoretical_sectors_global 6.29146e+06, \
l2_theoretical_sectors_global_ideal 6.29146e+06, l2_theoretical_sectors_global_excessive 0, l2_excess_frac 0, \
shared_bank_conflicts_load_sum 0, shared_bank_conflicts_store_sum 0
roofline_metrics: flop_count_total 3.35544e+07, dram_bytes_sum 1.85582e+08, arithmetic_intensity 0.180806, gflops 478.802
timing_metrics: gpu_time_duration_sum 70080, gpu_time_duration_unit ns, gpu_time_duration_seconds 7.008e-05, \
gpc_cycles_elapsed_max 138675"""


def test_every_field_of_a_kernel_that_was_counted_in_full() -> None:
    groups = device_metrics.of(profile("memory_bound.full"), "9.0")
    assert told(groups) == SAXPY
    # an FMA of each of 2^24 elements
    assert groups["roofline_metrics"]["flop_count_total"] == 2 << 24


@pytest.mark.parametrize(
    ("name", "group", "text"),
    [
        ("uncoalesced", "access_pattern_metrics", "l1_load_sectors_per_req 32, l1_store_sectors_per_req 4"),
        ("bank_conflicts", "access_pattern_metrics", "shared_bank_conflicts_load_sum"),
        ("tensor_core", "pipeline_metrics", "tensor_pipe_active_pct 64.1295, shared_pipe_active_pct 64.1295"),
        # the pipe was busy, and its operations were not counted
        ("tensor_core", "roofline_metrics", "flop_count_total None, dram_bytes_sum 16384, arithmetic_intensity None"),
        ("memory_bound.basic", "stall_metrics", "stall_long_scoreboard_pct None, stall_short_scoreboard_pct None"),
        ("memory_bound.basic", "occupancy_metrics", "occupancy_limit_registers 16"),
        # adds and multiplies of FP16 are not in the sections of a click
        ("memory_bound", "roofline_metrics", "flop_count_total None, dram_bytes_sum 1.85516e+08"),
    ],
)  # fmt: skip
def test_fields_of_other_kernels_and_sections(name: str, group: str, text: str) -> None:
    groups = device_metrics.of(profile(name), "9.0")
    assert text in told({group: groups[group]})


def test_nothing_is_a_share_of_nothing() -> None:
    whole = profile("memory_bound.full")
    none = {
        name: replace(metric, value=0.0) if "sectors" in name or "requests" in name else metric
        for name, metric in whole.metrics.items()
    }
    access = device_metrics.of(replace(whole, metrics=none), "9.0")["access_pattern_metrics"]
    assert (access["l1_load_sectors_per_req"], access["l2_excess_frac"]) == (None, None)
    assert access["l2_theoretical_sectors_global_excessive"] == 0


def test_operations_of_tensor_cores_are_counted_once() -> None:
    whole = profile("memory_bound.full")
    clock = whole.metrics["sm__cycles_elapsed.avg.per_second"].value
    counted = dict(whole.metrics)
    for path in ("src_fp16", "op_hmma_src_fp16_dst_fp32_sparsity_off", "src_int8"):
        name = f"sm__ops_path_tensor_{path}.sum.per_cycle_elapsed"
        counted[name] = Metric(name, 1000.0)
    before, after = roofline.operations(whole), roofline.operations(replace(whole, metrics=counted))
    assert before is not None
    assert after == pytest.approx(before + 1000 * clock)
    # from sm_100 on there are instructions that these sections do not count
    assert roofline.operations(whole, packed=True) is None


@pytest.mark.parametrize(
    ("chip", "paths"),
    [
        ("ga100", "bf16_dst_fp32 fp16_dst_fp16 fp16_dst_fp32 fp64 tf32_dst_fp32"),
        ("gh100", "bf16_dst_fp32 fp16 fp64 fp8 tf32_dst_fp32"),
        ("gb100", "bf16_dst_fp32 fp16_dst_fp16 fp16_dst_fp32 fp4_dst_fp32 fp4_fp6_fp8_dst_fp16 fp4_fp6_fp8_dst_fp32 fp64 tf32_dst_fp32"),
    ],
)  # fmt: skip
def test_the_paths_through_the_tensor_cores_of_each_gpu(chip: str, paths: str) -> None:
    start = "sm__ops_path_tensor_"
    every = [name.removeprefix(start) for name in CHIPS[chip] if name.startswith(start)]
    assert roofline.floating_point_paths(every) == [f"src_{path}" for path in paths.split()]


# -- which counters there are ------------------------------------------------------------------------


def fields() -> Iterator[tuple[str, list[tuple[str, ...]]]]:
    """Each field with the counters of each of its options."""
    for group, table in device_metrics.TABLE.items():
        for name, options in table.items():
            yield f"{group}.{name}", [names for names, _ in options]
    for group, derived in device_metrics.DERIVED.items():
        for name, names in derived.items():
            yield f"{group}.{name}", [names]


@pytest.mark.parametrize("chip", ["ga100", "gh100", "gb100"])
def test_every_field_has_its_counters_on_each_gpu(chip: str) -> None:
    def exists(name: str) -> bool:
        return name.startswith(OF_ANY_GPU) or name.partition(".")[0] in CHIPS[chip]

    lacking = [field for field, options in fields() if not any(all(map(exists, names)) for names in options)]
    assert lacking == []
    packed = {name.partition(".")[0] for name, _ in roofline._PACKED}
    assert packed & set(CHIPS[chip]) == (packed if chip == "gb100" else set())


def test_every_counter_of_the_table_exists_somewhere() -> None:
    every = {name for chip in ("ga100", "gh100", "gb100") for name in CHIPS[chip]}
    named = {name for _, options in fields() for names in options for name in names}
    unknown = {name for name in named if not name.startswith(OF_ANY_GPU)} - {
        name for name in named if name.partition(".")[0] in every
    }
    assert unknown == set()


def test_the_answer_has_the_fields_of_the_table() -> None:
    groups = device_metrics.of(c.Profile("k", "k", "counters"), "")
    assert [f"{group}.{name}" for group, known in groups.items() if group != "kernel" for name in known] == [
        field for field, _ in fields()
    ]
    assert {value for known in groups.values() if isinstance(known, dict) for value in known.values()} == {  # pyright: ignore[reportUnknownVariableType]
        None
    }


# -- what a profile came to, and what the server is asked for ----------------------------------------


def test_the_longest_kernel_counts() -> None:
    short, long = profile("memory_bound"), profile("tensor_core")
    groups, why = metric_jobs.of_result(Result(finished("memory_bound", profiles=(short, long))))
    assert groups
    assert (groups["kernel"], why) == (long.name, "")


@pytest.mark.parametrize(
    ("ended", "why"),
    [
        (c.ok("r", profiles=(c.Profile("k", "k", "times", "there is no ncu"),)), "there is no ncu"),
        (c.failed("r", c.Failure("timed out", "it took longer than 5 s")), "it took longer than 5 s"),
        (c.ok("r", remarks=("the program did not launch k",)), "the program did not launch k"),
        (c.ok("r"), "Nsight Compute profiled no launch"),
    ],
)  # fmt: skip
def test_without_counters_there_is_a_reason(ended: c.Finished, why: str) -> None:
    assert metric_jobs.of_result(Result(ended)) == (None, why)


@pytest.mark.parametrize(
    ("name", "grade", "profiled"),
    [
        ("k.cu", "referee", True),  # by a launch spec, which runs no host code of the file
        ("k.cu", "author", False),  # by its main
        ("k.py", "referee", False),
    ],
)  # fmt: skip
def test_at_grade_referee_no_host_code_runs_under_the_profiler(
    name: str, grade: Grade, profiled: bool
) -> None:
    request = Request(name=name, text="", sections=device_metrics.SECTIONS, grade="referee")
    ended = Result(finished("memory_bound", judged=c.Judged(grade, "")))
    row = (
        "id",
        "api",
        "done",
        "",
        "ok",
        "",
        "run",
        name,
        None,
        "",
        "local:0",
        "normal",
        "",
        0.0,
        0.0,
        0.0,
        "",
    )
    wanted, why = metric_jobs._requests(StoredJob(*row), request, ended)
    assert [each.key for each in wanted.values()] == (["device-metrics:id"] if profiled else [])
    assert why.startswith("" if profiled else "at grade referee the candidate's own host code is not run")


def test_what_the_environment_of_the_server_says() -> None:
    assert metric_jobs.settings({}) == metric_jobs.BY_REQUEST
    named = metric_jobs.settings(
        {
            "ENABLE_DEVICE_METRICS": "True",
            "NCU_SECTIONS": "Occupancy, SpeedOfLight,Occupancy",
        }
    )
    assert named == metric_jobs.MetricSettings(enabled=True, sections=("Occupancy", "SpeedOfLight"))
    asked = [
        named.of(Request(name="k.cu", text="x"), wanted).sections == named.sections
        for wanted in (None, True, False)
    ]
    assert asked == [True, True, False]
    with pytest.raises(
        RequestRefusedError,
        match="NCU_SECTIONS names 'Speed', which is not a section of Nsight Compute; use some of Comp",
    ):
        metric_jobs.settings({"NCU_SECTIONS": "Speed"})
    with pytest.raises(RequestRefusedError, match="ENABLE_DEVICE_METRICS is 'maybe'; write true or false"):
        metric_jobs.settings({"ENABLE_DEVICE_METRICS": "maybe"})


def test_a_request_names_known_sections_alone() -> None:
    assert set(device_metrics.SECTIONS) <= set(SECTIONS)
    request = Request(name="k.cu", text="__global__ void k() {}")
    check(replace(request, sections=device_metrics.SECTIONS), trusted=False)
    with pytest.raises(RequestRefusedError, match="'--set' is not a section of Nsight Compute; use some of "):
        check(replace(request, sections=("--set",)), trusted=False)
