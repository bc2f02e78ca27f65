"""Occupancy: readable cases, and NVIDIA's own cuda_occupancy.h, compiled, as the judge."""

from __future__ import annotations

import ctypes
import os
import random
import shutil
import subprocess
import sysconfig
from array import array
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbit_remote.common import messages as c
from orbit_remote.common import occupancy as occ
from orbit_remote.common.measurements import Resident, Timing

ARCHITECTURES = [f"sm_{major}{minor}" for major, minor in occ.LIMITS]


# -- cases a reader can check by hand -----------------------------------------------------------------


def test_a_small_kernel_fills_the_multiprocessor() -> None:
    occupancy = occ.occupancy("sm_90a", registers=16, threads=256)
    assert occupancy is not None
    assert (occupancy.blocks, occupancy.warps, occupancy.max_warps, occupancy.fraction) == (8, 64, 64, 1.0)
    assert occupancy.limiters == ("warps",)
    assert occupancy.reason is None


def test_registers_limit_in_whole_warps_per_sub_partition() -> None:
    # 80 registers: 2560 a warp, 16384 // 2560 = 6 warps in each of 4 sub-partitions = 3 blocks of 8 warps
    occupancy = occ.occupancy("sm_90", registers=80, threads=256)
    assert occupancy is not None
    assert (occupancy.blocks, occupancy.warps, occupancy.limiters) == (3, 24, ("registers",))
    assert occupancy.fraction == 0.375


def test_each_block_also_pays_for_the_drivers_shared_memory() -> None:
    # 227 KiB + 1 KiB is the whole multiprocessor; 113 KiB + 1 KiB is half of it
    whole = occ.occupancy("sm_90", 32, 128, dynamic_shared=227 * 1024)
    half = occ.occupancy("sm_90", 32, 128, static_shared=1024, dynamic_shared=112 * 1024)
    assert whole is not None
    assert half is not None
    assert (whole.blocks, whole.limiters) == (1, ("shared memory",))
    assert (half.blocks, half.limiters) == (2, ("shared memory",))


def test_turing_keeps_all_of_its_shared_memory_for_the_kernel() -> None:
    occupancy = occ.occupancy("sm_75", 32, 128, dynamic_shared=32 * 1024)
    assert occupancy is not None
    assert (occupancy.blocks, occupancy.limiters) == (2, ("shared memory",))


def test_barriers_limit_from_hopper_on() -> None:
    hopper = occ.occupancy("sm_90", 16, 32, barriers=16)
    ampere = occ.occupancy("sm_80", 16, 32, barriers=16)
    assert hopper is not None
    assert ampere is not None
    assert (hopper.blocks, hopper.limiters) == (4, ("barriers",))
    assert "barriers" not in ampere.limits


def test_two_resources_can_limit_at_once() -> None:
    occupancy = occ.occupancy("sm_80", registers=32, threads=64)
    assert occupancy is not None
    assert set(occupancy.limiters) == {"blocks", "warps", "registers"}


@pytest.mark.parametrize(
    ("arguments", "keywords", "words"),
    [
        ((32, 1056), {}, "1056 threads per block; the most is 1024"),
        ((32, 256), {"max_threads": 128}, "launch bound is 128"),
        ((257, 32), {}, "257 registers per thread; the most is 255"),
        # 21 warps of 96 registers fit the register file, but the hardware counts 24
        ((96, 672), {}, "73728 registers per block; the most is 65536"),
        ((128, 1024), {}, "131072 registers per block; the most is 65536"),
        ((32, 32, 0, 228 * 1024), {}, "233472 bytes of shared memory per block; the most is 232448"),
        ((32, 32, 0, 64 * 1024), {"max_dynamic_shared": 48 * 1024}, "opted in to 49152"),
        ((32, 32), {"barriers": 65}, "barriers"),
    ],
)
def test_what_cannot_be_launched_says_why(arguments, keywords, words) -> None:
    occupancy = occ.occupancy("sm_90", *arguments, **keywords)
    assert occupancy is not None
    assert (occupancy.blocks, occupancy.warps, occupancy.fraction) == (0, 0, 0.0)
    assert occupancy.reason is not None
    assert words in occupancy.reason
    assert len(occupancy.limiters) == 1


@pytest.mark.parametrize("arguments", [(32, 0), (32, -1), (-1, 32), (32, 32, -1), (32, 32, 0, -1)])
def test_a_meaningless_launch_has_no_occupancy(arguments) -> None:
    assert occ.occupancy("sm_90", *arguments) is None


@pytest.mark.parametrize(
    ("spelling", "capability"),
    [
        ("sm_90", "9.0"),
        ("sm_90a", "9.0"),
        ("sm_100f", "10.0"),
        ("compute_89", "8.9"),
        ("9.0", "9.0"),
        ("10.3", "10.3"),
        ("120", "12.0"),
    ],
)
def test_spellings_of_an_architecture(spelling, capability) -> None:
    limits = occ.limits(spelling)
    assert limits is not None
    assert limits.capability == capability


@pytest.mark.parametrize("spelling", ["sm_70", "sm_99", "", "sm_", "hopper", "sm_90x", "9", "gfx942"])
def test_an_unknown_architecture_has_no_occupancy(spelling) -> None:
    assert occ.limits(spelling) is None
    assert occ.occupancy(spelling, 32, 256) is None
    assert occ.best(spelling, 32) is None


def test_best_is_the_smallest_block_that_reaches_the_most() -> None:
    # 32 blocks of 2 warps fill the 64 warps of sm_90; smaller blocks run out of block slots
    results = occ.best("sm_90", 32)
    assert results is not None
    threads, reached = results
    assert (threads, reached.fraction) == (64, 1.0)


def test_best_keeps_the_launch_bound_and_says_when_nothing_fits() -> None:
    bounded = occ.best("sm_90", 32, max_threads=48)
    assert bounded is not None
    assert bounded[0] == 48
    nothing = occ.best("sm_90", 32, static_shared=300_000)
    assert nothing is not None
    assert nothing[1].reason is not None


# -- rules that hold for any kernel -----------------------------------------------------------------

kernels = st.tuples(
    st.sampled_from(ARCHITECTURES),
    st.integers(0, 260),
    st.integers(1, 1100),
    st.integers(0, 100_000),
    st.integers(0, 240_000),
)


@given(kernels)
def test_what_is_resident_fits(kernel) -> None:
    architecture, registers, _, static, dynamic = kernel
    sm = occ.limits(architecture)
    occupancy = occ.occupancy(*kernel)
    assert sm is not None
    assert occupancy is not None
    assert 0 <= occupancy.blocks <= sm.blocks
    assert occupancy.warps * 32 <= sm.threads
    assert occupancy.warps * 32 * registers <= occ.REGISTERS_PER_SM
    assert occupancy.blocks * (static + dynamic + sm.shared_reserved) <= sm.shared
    assert occupancy.limiters
    assert (occupancy.reason is None) == (occupancy.blocks > 0)


@given(kernels, st.integers(0, 20), st.integers(0, 5000))
def test_more_of_a_resource_never_raises_occupancy(kernel, registers, shared) -> None:
    architecture, used, threads, static, dynamic = kernel
    less = occ.occupancy(*kernel)
    more = occ.occupancy(architecture, used + registers, threads, static, dynamic + shared)
    assert less is not None
    assert more is not None
    assert more.blocks <= less.blocks


# -- NVIDIA's own header ----------------------------------------------------------------------------

FLAGS: dict[int, occ.Limiter] = {
    0x01: "warps",
    0x02: "registers",
    0x04: "shared memory",
    0x08: "blocks",
    0x10: "barriers",
}
RESOURCES: tuple[occ.Limiter, ...] = ("registers", "shared memory", "warps", "blocks", "barriers")
UNLIMITED = 2**31 - 1

JUDGE = r"""
#include <cstddef>
#include <cuda_occupancy.h>

// A row of `in`: major minor threads/SM shared/SM shared/block reserved |
//                registers threads static dynamic max_dynamic barriers max_threads
// A row of `out`: blocks, flags, then the limit by registers, shared memory, warps, blocks, barriers,
//                 then the best threads/SM over all block sizes.
extern "C" int judge(const int* in, int* out, int rows) {
  for (int i = 0; i < rows; ++i, in += 13, out += 8) {
    cudaOccDeviceProp p;
    p.computeMajor = in[0]; p.computeMinor = in[1];
    p.maxThreadsPerBlock = 1024; p.maxThreadsPerMultiprocessor = in[2];
    p.regsPerBlock = 65536; p.regsPerMultiprocessor = 65536; p.warpSize = 32;
    p.sharedMemPerBlock = 48 * 1024; p.sharedMemPerMultiprocessor = in[3]; p.numSms = 1;
    p.sharedMemPerBlockOptin = in[4]; p.reservedSharedMemPerBlock = in[5];
    cudaOccFuncAttributes a;
    a.numRegs = in[6]; a.sharedSizeBytes = in[8]; a.shmemLimitConfig = FUNC_SHMEM_LIMIT_OPTIN;
    a.maxDynamicSharedSizeBytes = in[10]; a.numBlockBarriers = in[11]; a.maxThreadsPerBlock = in[12];
    cudaOccDeviceState s;
    cudaOccResult r;
    if (int error = cudaOccMaxActiveBlocksPerMultiprocessor(&r, &p, &a, &s, in[7], in[9])) return error;
    out[0] = r.activeBlocksPerMultiprocessor; out[1] = (int)r.limitingFactors;
    out[2] = r.blockLimitRegs; out[3] = r.blockLimitSharedMem; out[4] = r.blockLimitWarps;
    out[5] = r.blockLimitBlocks; out[6] = r.blockLimitBarriers;
    int grid = 0, block = 0;
    if (int error = cudaOccMaxPotentialOccupancyBlockSize(&grid, &block, &p, &a, &s, in[9])) return error;
    out[7] = 0;
    if (block > 0) {
      if (int error = cudaOccMaxActiveBlocksPerMultiprocessor(&r, &p, &a, &s, block, in[9])) return error;
      out[7] = r.activeBlocksPerMultiprocessor * ((block + 31) / 32);
    }
  }
  return 0;
}
"""


def _include_folder() -> Path | None:
    """Where cuda_occupancy.h is: an installed toolkit, or NVIDIA's runtime wheel."""
    homes = [Path(os.environ.get("CUDA_HOME", "/usr/local/cuda"))]
    if nvcc := shutil.which("nvcc"):
        homes.append(Path(nvcc).resolve().parent.parent)
    folders = [home / "include" for home in homes]
    folders += Path(sysconfig.get_path("purelib"), "nvidia").glob("*/include")
    return next((f for f in folders if (f / "cuda_occupancy.h").is_file()), None)


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory):
    include, compiler = _include_folder(), shutil.which("g++")
    if include is None or compiler is None:
        pytest.skip("needs g++ and NVIDIA's cuda_occupancy.h")
    folder = tmp_path_factory.mktemp("judge")
    (folder / "judge.cpp").write_text(JUDGE)
    library = folder / "judge.so"
    subprocess.run(
        [compiler, "-O1", "-shared", "-fPIC", f"-I{include}", folder / "judge.cpp", "-o", library],
        check=True,
    )
    function = ctypes.CDLL(str(library)).judge

    def ask(rows: list[tuple[int, ...]]) -> list[tuple[int, ...]]:
        inputs = array("i", [value for row in rows for value in row])
        outputs = array("i", bytes(4 * 8 * len(rows)))
        pointers = [(ctypes.c_int * len(a)).from_buffer(a) for a in (inputs, outputs)]
        assert function(*pointers, len(rows)) == 0
        return [tuple(outputs[i : i + 8]) for i in range(0, len(outputs), 8)]

    return ask


def _row(rng: random.Random, sm: occ.MultiprocessorLimits) -> tuple[int, ...]:
    """A launch: mostly plausible, often at an edge, sometimes impossible."""
    registers = rng.choice((rng.randint(1, 255), rng.randint(0, 300), 8 * rng.randint(1, 32)))
    threads = rng.choice((rng.randint(1, 1024), 32 * rng.randint(1, 36), 2 ** rng.randint(0, 10)))
    edge = sm.shared_per_block + rng.randint(-300, 300)
    static = rng.choice((0, 0, rng.randint(0, 48 * 1024), rng.randint(0, 64 * 1024)))
    dynamic = rng.choice((0, 0, rng.randint(0, sm.shared_per_block), edge, max(edge - static, 0)))
    opted_in = rng.choice((dynamic, dynamic, sm.shared_per_block, rng.randint(0, sm.shared_per_block)))
    barriers = rng.choice((0, 1, 1, rng.randint(0, 16), rng.randint(0, 80)))
    bound = rng.choice((1024, 1024, 32 * rng.randint(1, 32), rng.randint(1, 1024)))
    major, minor = map(int, sm.capability.split("."))
    properties = (major, minor, sm.threads, sm.shared, sm.shared_per_block, sm.shared_reserved)
    return (*properties, registers, threads, static, dynamic, opted_in, barriers, bound)


def _ours(row: tuple[int, ...]) -> occ.Occupancy:
    major, minor, *_, registers, threads, static, dynamic, opted_in, barriers, _bound = row
    occupancy = occ.occupancy(
        f"{major}.{minor}",
        registers,
        threads,
        static,
        dynamic,
        barriers=barriers,
        max_dynamic_shared=opted_in,
    )
    assert occupancy is not None
    return occupancy


def test_equal_to_nvidias_header(judge) -> None:
    rng = random.Random(20_261_121)
    rows = [_row(rng, sm) for sm in occ.LIMITS.values() for _ in range(4000)]
    impossible = barrier_bound = 0
    for row, (blocks, flags, *by_resource, _best) in zip(rows, judge(rows), strict=True):
        occupancy = _ours(row)
        theirs = {name: n for name, n in zip(RESOURCES, by_resource, strict=True) if n != UNLIMITED}
        assert occupancy.blocks == blocks, (row, occupancy)
        if blocks == 0:
            # we name the first refusal, the header's flags name all of them
            impossible += 1
            assert all(theirs[name] == 0 for name in occupancy.limiters), (row, occupancy)
            assert occupancy.reason is not None
            continue
        assert occupancy.limits == theirs, (row, occupancy)
        named = {name for flag, name in FLAGS.items() if flags & flag}
        if occupancy.limiters == ("barriers",):
            # The header sets its other flags before it looks at barriers and never clears them, so
            # it also names what would have limited without them.
            barrier_bound += 1
            named = {name for name in named if theirs[name] == blocks}
        assert set(occupancy.limiters) == named, (row, occupancy)
    # the sample must have reached the rare branches, or it proves nothing about them
    assert impossible > 2000
    assert barrier_bound > 1000


def test_best_equals_nvidias_potential_occupancy(judge) -> None:
    rng = random.Random(7)
    rows = [_row(rng, sm) for sm in occ.LIMITS.values() for _ in range(60)]
    # `best` takes for granted that the kernel is opted in to what it needs
    rows = [(*row[:10], row[9], *row[11:]) for row in rows]
    for row, answer in zip(rows, judge(rows), strict=True):
        major, minor = row[:2]
        registers, _threads, static, dynamic, _opted_in, barriers, bound = row[6:]
        results = occ.best(
            f"{major}.{minor}", registers, static, dynamic, barriers=barriers, max_threads=bound
        )
        assert results is not None
        assert results[1].warps == answer[-1], (row, results)


def test_a_runs_launches_have_the_occupancy_that_they_were_made_with() -> None:
    timing = Timing(1, 1000.0, "")
    full = c.Launches(
        "k", "k", (1, 1, 1), (256, 1, 1), timing, 1, registers=32, static_shared=0, dynamic_shared=0
    )
    held = replace(full, registers=128)
    unknown = replace(full, registers=None)
    device = c.Device("H100", 0, "9.0")
    finished = c.Finished("r", "ok", launches=(full, held, unknown), device=device)
    assert [launches.occupancy for launches in occ.with_occupancy(finished).launches] == [
        Resident(1.0, 8, 64),
        Resident(0.25, 2, 16, ("registers",)),
        None,
    ]
    assert occ.with_occupancy(replace(finished, device=None)) == replace(finished, device=None)
