"""Theoretical occupancy: how many blocks of a kernel one multiprocessor can hold at once.

The capacities are those of the CUDA Programming Guide's table "Technical Specifications per Compute Capability" (CUDA
13.0), which CCCL's `cuda/__device/arch_traits.h` repeats. The allocation rules are those of `cuda_occupancy.h` of the
CUDA toolkit 13.0, which the tests compile and compare with. Sizes are bytes, registers are 32-bit registers per
thread. Pure and shared by both sides.

Some things are not modelled, because nothing public states them: how many clusters fit a GPU (that depends on how its
multiprocessors are wired into GPCs; ask `cuOccupancyMaxActiveClusters` there), the "virtual resources" of compute
capability 10 and later (no compiler reports their use), and an L1 carve-out other than the default, which leaves all
of the shared memory to the kernel.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Literal

from orbit_remote.common.lazy_dataclass import dataclass
from orbit_remote.common.measurements import Resident
from orbit_remote.common.messages import Finished, Launches, Resources

Limiter = Literal["registers", "shared memory", "warps", "blocks", "barriers"]
"""What holds the occupancy down, in the words of NVIDIA's tools."""

WARP = 32
MAX_THREADS_PER_BLOCK = 1024
REGISTERS_PER_SM = 65536
REGISTERS_PER_BLOCK = 65536
# A compiler uses up to 255, but the hardware allocates 256 and profilers report what is allocated.
MAX_REGISTERS_PER_THREAD = 256
MAX_LOCAL_PER_THREAD = 512 * 1024
"""Bytes of local memory that a thread can have, on every architecture."""
REGISTER_UNIT = 256
SUB_PARTITIONS = 4


@dataclass(frozen=True, slots=True)
class MultiprocessorLimits:
    """What one multiprocessor of an architecture holds.

    `shared_per_block` is the most a kernel can opt in to; `shared_reserved` is what the driver takes
    from each block beside what the kernel asks for; `barriers` is for all blocks together and None
    where the occupancy rules do not count barriers (before compute capability 9.0).
    """

    capability: str
    threads: int
    blocks: int
    shared: int
    shared_per_block: int
    shared_reserved: int
    shared_unit: int
    barriers: int | None

    @property
    def warps(self) -> int:
        return self.threads // WARP


@dataclass(frozen=True, slots=True)
class Occupancy:
    """Blocks and warps resident on one multiprocessor, and what limits them.

    `limits` has the blocks per multiprocessor that each resource alone would allow; a resource that sets no limit is
    absent. `limiters` are those with the lowest limit. If the kernel cannot be launched at all, `blocks` and `warps`
    are 0 and `reason` says why; else `reason` is None.
    """

    blocks: int
    warps: int
    max_warps: int
    limiters: tuple[Limiter, ...]
    limits: Mapping[Limiter, int]
    reason: str | None = None

    @property
    def fraction(self) -> float:
        """Return the resident warps over the most there can be, 0 to 1."""
        return self.warps / self.max_warps


def _table() -> dict[tuple[int, int], MultiprocessorLimits]:
    # capability: threads and blocks per SM, KiB of shared memory per SM and per block at most
    rows = {
        (7, 5): (1024, 16, 64, 64),
        (8, 0): (2048, 32, 164, 163),
        (8, 6): (1536, 16, 100, 99),
        (8, 7): (1536, 16, 164, 163),
        (8, 8): (1536, 16, 100, 99),
        (8, 9): (1536, 24, 100, 99),
        (9, 0): (2048, 32, 228, 227),
        (10, 0): (2048, 32, 228, 227),
        (10, 1): (1536, 24, 228, 227),  # Thor, until CUDA 13 gave it the number 11.0
        (10, 3): (2048, 32, 228, 227),
        (11, 0): (1536, 24, 228, 227),
        (12, 0): (1536, 24, 100, 99),
        (12, 1): (1536, 24, 100, 99),
    }
    table: dict[tuple[int, int], MultiprocessorLimits] = {}
    for (major, minor), (threads, blocks, shared, per_block) in rows.items():
        # the multiprocessors that hold 64 warps have two barriers a block, the others one
        barriers = blocks * (2 if threads == 2048 else 1) if major >= 9 else None
        table[major, minor] = MultiprocessorLimits(
            capability=f"{major}.{minor}",
            threads=threads,
            blocks=blocks,
            shared=shared * 1024,
            shared_per_block=per_block * 1024,
            shared_reserved=1024 if major >= 8 else 0,
            shared_unit=128 if major >= 8 else 256,
            barriers=barriers,
        )
    return table


LIMITS: Mapping[tuple[int, int], MultiprocessorLimits] = _table()
"""By compute capability (major, minor)."""

_SPELLING = re.compile(r"(?:sm_|compute_)?(\d{1,4})\.?(\d)[af]?")


def limits(architecture: str) -> MultiprocessorLimits | None:
    """Return the capacities of `sm_90a`, `sm_100f`, `compute_89`, `90` or `9.0`. Return None if they are not known."""
    match = _SPELLING.fullmatch(architecture.strip())
    return LIMITS.get((int(match[1]), int(match[2]))) if match else None


def occupancy(
    architecture: str,
    registers: int,
    threads: int,
    static_shared: int = 0,
    dynamic_shared: int = 0,
    *,
    barriers: int = 0,
    max_threads: int | None = None,
    max_dynamic_shared: int | None = None,
) -> Occupancy | None:
    """Return the occupancy of a kernel launched with `threads` threads per block.

    `barriers` is the number of block barriers it uses, as ptxas reports it. `max_threads` is its launch bound.
    `max_dynamic_shared` is what `cudaFuncAttributeMaxDynamicSharedMemorySize` opted it in to; None assumes as much as
    it needs. Return None for an architecture that is not in the table, and for what no kernel has: a negative amount,
    or a block without a thread.
    """
    sm = limits(architecture)
    if sm is None or threads <= 0 or min(registers, static_shared, dynamic_shared, barriers) < 0:
        return None
    opted_in = dynamic_shared if max_dynamic_shared is None else max_dynamic_shared
    block_warps = -(-threads // WARP)

    refused: dict[Limiter, str | None] = {
        "warps": _too_many_threads(threads, max_threads),
        "registers": _too_many_registers(registers, block_warps),
        "shared memory": _too_much_shared(sm, static_shared, dynamic_shared, opted_in),
    }
    for limiter, reason in refused.items():
        if reason is not None:
            return Occupancy(0, 0, sm.warps, (limiter,), {limiter: 0}, reason)

    by_limiter: dict[Limiter, int] = {"blocks": sm.blocks, "warps": sm.warps // block_warps}
    if registers:
        warps_per_partition = REGISTERS_PER_SM // SUB_PARTITIONS // _registers_per_warp(registers)
        by_limiter["registers"] = warps_per_partition * SUB_PARTITIONS // block_warps
    if shared := _round_up(static_shared + dynamic_shared + sm.shared_reserved, sm.shared_unit):
        by_limiter["shared memory"] = sm.shared // shared
    if barriers and sm.barriers is not None:
        by_limiter["barriers"] = sm.barriers // barriers

    blocks = min(by_limiter.values())
    return Occupancy(
        blocks=blocks,
        warps=blocks * block_warps,
        max_warps=sm.warps,
        limiters=tuple(name for name, limit in by_limiter.items() if limit == blocks),
        limits=by_limiter,
        reason=None if blocks else "it uses more barriers than a multiprocessor has",
    )


def of_launch(launches: Launches, architecture: str, compiled: Iterable[Resources] = ()) -> Occupancy | None:
    """Return the theoretical occupancy of the launch as it was made, with the compiler's number of barriers."""
    if launches.registers is None:
        return None
    x, y, z = launches.block
    barriers = next(
        (resources.barriers for resources in compiled if resources.symbol == launches.symbol), None
    )
    return occupancy(
        architecture, launches.registers, x * y * z, launches.static_shared or 0, launches.dynamic_shared or 0,
        barriers=barriers or 0,
    )  # fmt: skip


def with_occupancy(finished: Finished) -> Finished:
    """Return a run's end with the occupancy of each of its launches, if its GPU and the launch's registers are known."""
    capability = finished.device.capability if finished.device else None
    if capability is None:
        return finished
    known = (
        (launches, of_launch(launches, capability, finished.resources)) for launches in finished.launches
    )
    return replace(
        finished,
        launches=tuple(
            replace(launches, occupancy=_resident(reached)) if reached else launches
            for launches, reached in known
        ),
    )


def _resident(reached: Occupancy) -> Resident:
    limited_by = reached.limiters if reached.fraction < 1 else ()
    return Resident(round(reached.fraction, 4), reached.blocks, reached.warps, limited_by)


def best(
    architecture: str,
    registers: int,
    static_shared: int = 0,
    dynamic_shared: int = 0,
    *,
    barriers: int = 0,
    max_threads: int | None = None,
) -> tuple[int, Occupancy] | None:
    """Return the highest occupancy that any block size reaches, and the smallest block size that reaches it.

    It is the smallest, because more threads per block then gain no occupancy and cost a longer tail and wider
    barriers; `cudaOccMaxPotentialOccupancyBlockSize` names the largest instead. Only whole warps are tried.
    `dynamic_shared` does not change with the block size. Return None if the architecture is not known. `reason` is
    set if no block size can be launched.
    """
    top = MAX_THREADS_PER_BLOCK if max_threads is None else min(max_threads, MAX_THREADS_PER_BLOCK)
    best_yet: tuple[int, Occupancy] | None = None
    # a launch bound of 100 threads still allows the fourth warp, with 4 of its threads
    for threads in (*range(WARP, top, WARP), top):
        result = occupancy(
            architecture,
            registers,
            threads,
            static_shared,
            dynamic_shared,
            barriers=barriers,
            max_threads=max_threads,
        )
        if result is not None and (best_yet is None or result.warps > best_yet[1].warps):
            best_yet = threads, result
    return best_yet


def _too_many_threads(threads: int, max_threads: int | None) -> str | None:
    if threads > MAX_THREADS_PER_BLOCK:
        return f"{threads} threads per block; the most is {MAX_THREADS_PER_BLOCK}"
    if max_threads is not None and threads > max_threads:
        return f"{threads} threads per block; the kernel's launch bound is {max_threads}"
    return None


def _too_many_registers(registers: int, block_warps: int) -> str | None:
    if registers > MAX_REGISTERS_PER_THREAD:
        return f"{registers} registers per thread; the most is {MAX_REGISTERS_PER_THREAD - 1}"
    # the hardware checks as if every sub-partition held as many warps as the fullest one
    needed = _round_up(block_warps, SUB_PARTITIONS) * _registers_per_warp(registers)
    if needed > REGISTERS_PER_BLOCK:
        return f"{needed} registers per block; the most is {REGISTERS_PER_BLOCK}"
    return None


def _too_much_shared(sm: MultiprocessorLimits, static: int, dynamic: int, opted_in: int) -> str | None:
    if dynamic > opted_in:
        return f"{dynamic} bytes of dynamic shared memory; the kernel is opted in to {opted_in}"
    # rounded with the driver's share, as the hardware allocates it
    needed = _round_up(static + dynamic + sm.shared_reserved, sm.shared_unit)
    if needed > sm.shared_per_block + sm.shared_reserved:
        return f"{static + dynamic} bytes of shared memory per block; the most is {sm.shared_per_block}"
    return None


def _registers_per_warp(registers: int) -> int:
    return _round_up(registers * WARP, REGISTER_UNIT)


def _round_up(amount: int, unit: int) -> int:
    return -(-amount // unit) * unit
