"""The counters that a click on Profile reads, under NVIDIA's names, with Nsight Compute's units.

They are those of the sections that Nsight Compute collects for a click (`ncu_options.CLICK`) on a GH100, without
those that it derives or samples. A chip that lacks some is counted without them. The four roll-ups of a counter cost
no further pass.
"""

from __future__ import annotations

from collections.abc import Iterator

_ROLL_UPS = ("avg", "max", "min", "sum")
_ROLLED_UP = (
    (
        "pct_of_peak_sustained_elapsed",
        "%",
        (
            "dram__cycles_active fbpa__dram_sectors gpu__compute_memory_access_throughput "
            "gpu__compute_memory_access_throughput_internal_activity gpu__compute_memory_request_throughput "
            "gpu__compute_memory_request_throughput_internal_activity gpu__compute_memory_throughput "
            "gpu__dram_throughput idc__request_cycles_active l1tex__data_bank_reads l1tex__data_bank_writes "
            "l1tex__data_pipe_lsu_wavefronts l1tex__data_pipe_tex_wavefronts l1tex__f_wavefronts "
            "l1tex__lsu_writeback_active l1tex__lsuin_requests l1tex__m_l1tex2xbar_req_cycles_active "
            "l1tex__m_xbar2l1tex_read_sectors l1tex__m_xbar2l1tex_read_sectors_mem_dshared "
            "l1tex__tex_writeback_active l1tex__texin_sm2tex_req_cycles_active l1tex__throughput "
            "l1tex__tmain_requests lts__d_atomic_input_cycles_active lts__d_decomp_input_sectors "
            "lts__d_sectors lts__d_sectors_fill_device lts__d_sectors_fill_sysmem lts__lts2xbar_cycles_active "
            "lts__t_sectors lts__t_tag_requests lts__throughput lts__xbar2lts_cycles_active sm__inst_executed "
            "sm__inst_executed_pipe_adu sm__inst_executed_pipe_cbu_pred_on_any sm__inst_executed_pipe_ipa "
            "sm__inst_executed_pipe_lsu sm__inst_executed_pipe_tex sm__inst_executed_pipe_uniform "
            "sm__inst_executed_pipe_xu sm__instruction_throughput_internal_activity sm__issue_active "
            "sm__memory_throughput sm__memory_throughput_internal_activity sm__mio2rf_writeback_active "
            "sm__mio_inst_issued sm__mio_pq_read_cycles_active sm__mio_pq_write_cycles_active "
            "sm__pipe_alu_cycles_active sm__pipe_fma_cycles_active sm__pipe_fmaheavy_cycles_active "
            "sm__pipe_fp64_cycles_active sm__pipe_shared_cycles_active sm__pipe_tensor_cycles_active "
            "sm__pipe_tensor_op_dmma_cycles_active "
            "sm__pipe_tensor_type_hmma_hgmma_qgmma_imma_igmma_bmma_bgmma_cycles_active "
            "sm__pipe_tma_cycles_active sm__throughput"
        ),
    ),
    (
        "",
        "cycle",
        (
            "gpc__cycles_elapsed l1tex__cycles_active l1tex__cycles_elapsed lts__cycles_active "
            "lts__cycles_elapsed sm__cycles_active"
        ),
    ),
    (
        "per_cycle_elapsed",
        "inst/cycle",
        (
            "smsp__sass_thread_inst_executed_op_dadd_pred_on smsp__sass_thread_inst_executed_op_dfma_pred_on "
            "smsp__sass_thread_inst_executed_op_dmul_pred_on smsp__sass_thread_inst_executed_op_fadd_pred_on "
            "smsp__sass_thread_inst_executed_op_ffma_pred_on smsp__sass_thread_inst_executed_op_fmul_pred_on"
        ),
    ),
    ("per_second", "hz", "dram__cycles_elapsed gpc__cycles_elapsed sm__cycles_elapsed smsp__cycles_elapsed"),
    ("", "inst", "smsp__inst_executed smsp__inst_executed_op_branch"),
    ("pct_of_peak_sustained_active", "%", "l1tex__throughput sm__warps_active"),
    (
        "peak_sustained",
        "inst/cycle",
        "sm__sass_thread_inst_executed_op_dfma_pred_on sm__sass_thread_inst_executed_op_ffma_pred_on",
    ),
    ("", "branches", "smsp__sass_branch_targets_threads_divergent"),
    ("", "ns", "gpu__time_duration"),
    ("peak_sustained", "warp", "smsp__warps_active"),
    ("per_cycle_active", "", "smsp__issue_active"),
    ("per_cycle_active", "warp", "sm__warps_active"),
    ("per_second", "byte/s", "dram__bytes"),
)
"""(what comes after the roll-up, unit, counters)"""
_BYTES_PER_SECTOR = " ".join(
    f"smsp__sass_average_data_bytes_per_sector_mem_{memory}_op_{access}"
    for memory in ("global", "local")
    for access in ("ld", "st")
)
_SINGLE = (
    (
        "ratio",
        "inst",
        (
            "smsp__average_warps_issue_stalled_barrier_per_issue_active "
            "smsp__average_warps_issue_stalled_branch_resolving_per_issue_active "
            "smsp__average_warps_issue_stalled_dispatch_stall_per_issue_active "
            "smsp__average_warps_issue_stalled_drain_per_issue_active "
            "smsp__average_warps_issue_stalled_gmma_per_issue_active "
            "smsp__average_warps_issue_stalled_imc_miss_per_issue_active "
            "smsp__average_warps_issue_stalled_lg_throttle_per_issue_active "
            "smsp__average_warps_issue_stalled_long_scoreboard_per_issue_active "
            "smsp__average_warps_issue_stalled_math_pipe_throttle_per_issue_active "
            "smsp__average_warps_issue_stalled_membar_per_issue_active "
            "smsp__average_warps_issue_stalled_mio_throttle_per_issue_active "
            "smsp__average_warps_issue_stalled_misc_per_issue_active "
            "smsp__average_warps_issue_stalled_no_instruction_per_issue_active "
            "smsp__average_warps_issue_stalled_not_selected_per_issue_active "
            "smsp__average_warps_issue_stalled_selected_per_issue_active "
            "smsp__average_warps_issue_stalled_short_scoreboard_per_issue_active "
            "smsp__average_warps_issue_stalled_sleeping_per_issue_active "
            "smsp__average_warps_issue_stalled_tex_throttle_per_issue_active "
            "smsp__average_warps_issue_stalled_wait_per_issue_active"
        ),
    ),
    (
        "pct",
        "%",
        (
            "l1tex__t_sector_hit_rate lrc__average_ilc_input_sector_success_rate "
            "lrc__average_ilc_output_sector_compression_achieved_rate lts__t_sector_hit_rate "
            "lts__t_sector_op_read_hit_rate lts__t_sector_op_write_hit_rate "
            "smsp__sass_average_branch_targets_threads_uniform"
        ),
    ),
    (
        "sum",
        "sector",
        (
            "l1tex__t_sectors_pipe_lsu_mem_global_op_ld l1tex__t_sectors_pipe_lsu_mem_global_op_st "
            "lrc__ilc_input_sectors lts__t_sectors_srcunit_tex_op_read lts__t_sectors_srcunit_tex_op_write"
        ),
    ),
    (
        "max_rate",
        "byte/sector",
        _BYTES_PER_SECTOR,
    ),
    (
        "ratio",
        "byte/sector",
        _BYTES_PER_SECTOR,
    ),
    (
        "ratio",
        "",
        "smsp__thread_inst_executed_per_inst_executed smsp__thread_inst_executed_pred_on_per_inst_executed",
    ),
    (
        "ratio",
        "cycle",
        "smsp__average_warp_latency_per_inst_issued smsp__average_warps_active_per_inst_executed",
    ),
    ("sum", "byte", "dram__bytes_read dram__bytes_write"),
    ("sum", "", "l1tex__data_bank_conflicts_pipe_lsu_mem_shared"),
    ("sum.peak_sustained", "byte/cycle", "dram__bytes"),
)
"""(what comes after the counter, unit, counters)"""


def _all() -> Iterator[tuple[str, str]]:
    for rate, unit, counters in _ROLLED_UP:
        for counter in counters.split():
            for roll_up in _ROLL_UPS:
                yield f"{counter}.{roll_up}{rate and f'.{rate}'}", unit
    for rest, unit, counters in _SINGLE:
        for counter in counters.split():
            yield f"{counter}.{rest}", unit


UNITS = dict(_all())
"""Unit by name."""
CLICK = tuple(sorted(UNITS))
"""17 passes on GH100, 12 on GA100, 14 on AD102, 15 on GB100 (CUPTI 13.0); in another order some chips need one more."""
SHORT = tuple(
    name
    for name in CLICK
    if "throughput" not in name
    and "issue_stalled" not in name
    and "pct_of_peak_sustained_elapsed" not in name
)
"""4 passes on GH100, 5 on GA100."""
_IN_ONE_PASS = (
    *("gpu__time_duration", "gpc__cycles_elapsed", "sm__cycles_", "smsp__cycles_elapsed", "sm__warps_active"),
    *(
        "dram__",
        "gpu__dram_throughput",
        "fbpa__",
        "lts__t_sectors.",
        "lts__t_sectors_srcunit",
        "l1tex__t_sector_hit_rate",
    ),
    *("smsp__inst_executed.", "sm__inst_executed.", "sm__issue_active", "smsp__issue_active"),
)
ONE_PASS = tuple(name for name in CLICK if name.startswith(_IN_ONE_PASS))
"""Time, occupancy, instructions, and the traffic of DRAM and L2: 1 pass on these chips."""
SETS = (CLICK, SHORT, ONE_PASS)
"""All, and fewer for kernels that are too long to be launched as often."""
