"""Computes what Nsight Compute derives for a launch, under its names, from the launch's configuration and from
counters.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import get_args

from orbit_remote.common import occupancy
from orbit_remote.common.launch_records import LaunchRecord
from orbit_remote.common.measurements import Metric
from orbit_remote.common.occupancy import Limiter, Occupancy

_DOUBLED = (
    (
        "derived__smsp__sass_thread_inst_executed_op_{}_pred_on_x2",
        "smsp__sass_thread_inst_executed_op_{}_pred_on.sum.per_cycle_elapsed",
    ),
    (
        "derived__sm__sass_thread_inst_executed_op_{}_pred_on_x2",
        "sm__sass_thread_inst_executed_op_{}_pred_on.sum.peak_sustained",
    ),
)
"""A fused multiply-add is two operations."""
_BRANCHES = "smsp__inst_executed_op_branch.sum"
_INSTRUCTIONS = "smsp__inst_executed.sum"


def metrics(
    record: LaunchRecord, capability: str, multiprocessors: int, barriers: int, counted: Mapping[str, float]
) -> Iterator[Metric]:
    """Yield the metrics. `record` is of the launch, `counted` are its counters by name, `barriers` are those of a
    block that the compiler reserved.
    """
    yield from _of_launch(record, multiprocessors)
    x, y, z = record.block
    if record.registers is not None:
        held = occupancy.occupancy(
            capability, record.registers, x * y * z, record.static_shared or 0, record.dynamic_shared or 0,
            barriers=barriers,
        )  # fmt: skip
        if held is not None and held.blocks:
            yield from _of_occupancy(held, math.prod(record.grid), multiprocessors)
    yield from _derived(counted)


def _of_launch(record: LaunchRecord, multiprocessors: int) -> Iterator[Metric]:
    for what, extents in (
        ("grid", record.grid),
        ("block", record.block),
        ("cluster", record.cluster or (0, 0, 0)),
    ):
        for axis, extent in zip("xyz", extents, strict=True):
            yield Metric(f"launch__{what}_dim_{axis}", extent, "block" if what == "block" else "")
    blocks, threads = math.prod(record.grid), math.prod(record.block)
    yield Metric("launch__grid_size", blocks)
    yield Metric("launch__block_size", threads)
    yield Metric("launch__thread_count", blocks * threads, "thread")
    yield Metric("launch__sm_count", multiprocessors, "SM")
    if record.registers is not None:
        yield Metric("launch__registers_per_thread", record.registers, "register/thread")
    for kind, size in (("static", record.static_shared), ("dynamic", record.dynamic_shared)):
        if size is not None:
            yield Metric(f"launch__shared_mem_per_block_{kind}", size, "byte/block")


def _of_occupancy(held: Occupancy, blocks: int, multiprocessors: int) -> Iterator[Metric]:
    for limiter in get_args(Limiter):
        if limiter == "shared memory" and limiter not in held.limiters:
            continue  # Nsight Compute's is by the part of L1 that the launch got as shared memory: all of it only if that limits
        # what sets no limit is limited by the number of blocks alone
        limit = held.limits.get(limiter, held.limits["blocks"])
        if limiter == "barriers":
            limit = min(limit, held.limits["blocks"])
        name = limiter.replace("shared memory", "shared_mem")
        yield Metric(f"launch__occupancy_limit_{name}", limit, "block")
    yield Metric("launch__waves_per_multiprocessor", blocks / (multiprocessors * held.blocks))
    yield Metric("sm__maximum_warps_avg_per_active_cycle", held.warps, "warp")
    yield Metric("sm__maximum_warps_per_active_cycle_pct", 100 * held.fraction, "%")
    yield Metric("smsp__maximum_warps_avg_per_active_cycle", held.warps / occupancy.SUB_PARTITIONS, "warp")


def _derived(counted: Mapping[str, float]) -> Iterator[Metric]:
    for name, source in _DOUBLED:
        for kind in ("ffma", "dfma"):
            value = counted.get(source.format(kind))
            if value is not None:
                yield Metric(name.format(kind), 2 * value, "thread")
    branches, instructions = counted.get(_BRANCHES), counted.get(_INSTRUCTIONS)
    if branches is not None and instructions:
        yield Metric("derived__smsp__inst_executed_op_branch_pct", branches / instructions, "%")
