"""What a kernel costs, as diagnostics on its name: the compiler's figures in, the editor's words out."""

from __future__ import annotations

from dataclasses import replace

import pytest
from lsprotocol import types as lsp

from orbit_lsp.state.session import Session
from orbit_lsp.views import diagnostics
from orbit_remote.common import messages as c
from tests.test_views import PTXAS, SAXPY, Bench

BLOCK_640 = SAXPY.replace("256>>>", "640>>>")


def shown(session: Session, uri: str) -> list[str]:
    return [
        f"{(diagnostic.severity or lsp.DiagnosticSeverity.Error).name.lower()} {diagnostic.code}: {diagnostic.message}"
        for diagnostic in diagnostics.diagnostics(session, uri)
    ]


@pytest.mark.parametrize(
    ("figures", "text", "expected"),
    [
        pytest.param({}, SAXPY, [], id="nothing is wrong"),
        pytest.param(
            {"spill_stores": 36, "spill_loads": 40, "stack": 40, "registers": 255},
            SAXPY.replace("256>>>", "64>>>"),
            [
                (
                    "warning register-spills: registers spill to local memory: 36 bytes stored and 40 loaded by each "
                    "thread; it has 255 registers, the most that a thread can have"
                )
            ],
            id="spills",
        ),
        pytest.param(
            {"spill_stores": 8, "spill_loads": 8, "registers": 32, "max_threads": 1024},
            SAXPY,
            [
                (
                    "warning register-spills: registers spill to local memory: 8 bytes stored and 8 loaded by each "
                    "thread; it has 32 registers: its launch bounds (1024 threads) allow no more"
                )
            ],
            id="spills under launch bounds",
        ),
        pytest.param(
            {"stack": 512},
            SAXPY,
            [
                (
                    "hint local-memory: each thread has 512 B of local memory, which is in DRAM: an array that is indexed by a "
                    "value known only at run time, or whose address is taken, is not kept in registers"
                )
            ],
            id="an array of each thread",
        ),
        pytest.param(
            {"stack": 1_200_000, "spill_stores": 8, "spill_loads": 8},
            SAXPY,
            [
                (
                    "warning local-limit: each thread needs 1.14 MiB of local memory, and CUDA gives one at most 512 KiB: each "
                    "launch would fail"
                )
            ],
            id="more local memory than a thread can have",
        ),
        pytest.param(
            {"stack": 512 * 1024, "registers": 32},
            SAXPY,
            [
                (
                    "hint local-memory: each thread has 512 KiB of local memory, which is in DRAM: an array that is indexed by a "
                    "value known only at run time, or whose address is taken, is not kept in registers"
                )
            ],
            id="as much as it can have",
        ),
        pytest.param(
            {"dynamic_shared": 262144},
            SAXPY,
            [
                (
                    "warning shared-memory: a block needs 256 KiB of shared memory, and sm_90a has 227 KiB for one: the launch "
                    "would fail"
                )
            ],
            id="shared memory",
        ),
        pytest.param(
            {"max_threads": 128},
            SAXPY,
            [
                (
                    "warning block-size: a launch with 256 threads a block would fail: 256 threads per block; the kernel's "
                    "launch bound is 128"
                )
            ],
            id="over the launch bounds",
        ),
        pytest.param(
            {"registers": 128},
            BLOCK_640,
            [
                (
                    "warning block-size: a launch with 640 threads a block would fail: 81920 registers per block; the most is "
                    "65536"
                )
            ],
            id="too many registers for the block",
        ),
        pytest.param(
            {"registers": 41},
            SAXPY,
            [
                (
                    "hint occupancy-step: one register less (40 a thread) would let a multiprocessor hold 6 blocks of 256 "
                    "threads instead of 5: occupancy 75% instead of 62.5%"
                )
            ],
            id="one register less",
        ),
        pytest.param(
            {"registers": 32, "static_shared": 57 * 1024},
            SAXPY,
            [
                (
                    "hint occupancy-step: 1 KiB less shared memory (56 KiB a block) would let a multiprocessor hold 4 blocks "
                    "of 256 threads instead of 3: occupancy 50% instead of 37.5%"
                )
            ],
            id="1 KiB less",
        ),
    ],
)
def test_costs(figures, text, expected) -> None:
    bench = Bench(text).built(replace(PTXAS, **figures))
    assert shown(bench.session, bench.uri) == expected


def test_each_can_be_raised_or_turned_off() -> None:
    heavy = replace(PTXAS, registers=41, stack=512)
    bench = Bench(costs={"local_memory": "off", "occupancy": "warning"}).built(heavy)
    assert [line.partition(":")[0] for line in shown(bench.session, bench.uri)] == ["warning occupancy-step"]


def test_figures_of_another_text_say_nothing() -> None:
    bench = Bench().built(replace(PTXAS, stack=512)).typed(1, 2, 2, "y[0] = 1; ")
    assert shown(bench.session, bench.uri) == []


def test_instances_are_named_where_there_are_several() -> None:
    template = "template <int N> __global__ void saxpy(float* y) { y[N] = 0; }\n"
    resources, two = (
        replace(PTXAS, symbol=f"_Z5saxpyILi{n}EEvPf", name=f"saxpy<{n}>", stack=n) for n in (8, 16)
    )
    bench = Bench(template).built(resources, two)
    lines = "\n".join(shown(bench.session, bench.uri))
    assert "saxpy<8>: each thread has 8 B" in lines
    assert "saxpy<16>: each thread has 16 B" in lines


@pytest.mark.parametrize(
    ("code", "tags"),
    [
        ("#177-D", [lsp.DiagnosticTag.Unnecessary]),
        ("-Wunused-variable", [lsp.DiagnosticTag.Unnecessary]),
        ("#1444-D", [lsp.DiagnosticTag.Deprecated]),
        ("#39-D", None),
    ],
)
def test_warnings_about_what_is_unused_or_deprecated_carry_their_tag(code, tags) -> None:
    problem = c.Problem("warning", "words", "nvcc", c.Place("/src/k.cu", 2, 3, 4), code)
    bench = Bench().built(problem)
    [diagnostic] = diagnostics.diagnostics(bench.session, bench.uri)
    assert diagnostic.tags == tags
