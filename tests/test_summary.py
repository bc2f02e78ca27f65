"""A finished run in one line."""

from __future__ import annotations

import pytest

from orbit_lsp.kernels import tracker
from orbit_lsp.runs import summary
from orbit_remote.common import messages as c
from orbit_remote.common.measurements import Timing

TIMING = Timing(19, 288_000.0, "in program, n=19")


def compiled(*instances: str, architecture: str = "sm_90a") -> c.Finished:
    resources = tuple(c.Resources(name, name, architecture) for name in instances)
    return c.Finished("r1", "ok", resources=resources)


def launched(*names: str) -> c.Finished:
    made = tuple(c.Launches(name, name, (1, 1, 1), (32, 1, 1), TIMING, 20) for name in names)
    return c.Finished("r1", "ok", launches=made, resources=compiled("saxpy").resources)


@pytest.mark.parametrize(
    ("finished", "message"),
    [
        (compiled("saxpy"), "1 kernel compiled for sm_90a"),
        (compiled("tiled<16>", "tiled<32>", "saxpy"), "3 kernels compiled for sm_90a"),
        (compiled("saxpy", architecture="sm_75"), "1 kernel compiled for sm_75"),
        (compiled(), "no kernel was compiled"),
        (
            c.Finished("r1", "compile error", c.Failure("compile error", "k.cu does not compile (1 error)")),
            "compile error: k.cu does not compile (1 error)",
        ),
        (
            c.Finished(
                "r1",
                "compile error",
                c.Failure("compile error", 'k.cu does not compile (2 errors): k.cu:3: expected a ";"'),
            ),
            'compile error: k.cu:3: expected a ";"',
        ),
    ],
)
def test_a_compile(finished: c.Finished, message: str) -> None:
    assert summary.one_line(finished, compiled_only=True) == message


def test_a_file_of_helpers_says_why_nothing_was_compiled() -> None:
    text = "import triton\n\n@triton.jit\ndef gelu(x):\n    return x\n\n@triton.jit\ndef k(x):\n    gelu(x)\n"
    helper, kernel = tracker("triton").scan(text).kernels
    assert summary.only_helpers(compiled(), [helper]) == (
        "only helper functions, which are compiled with the kernels that call them: gelu"
    )
    assert not summary.only_helpers(compiled(), [helper, kernel])
    assert not summary.only_helpers(compiled("gelu"), [helper])


@pytest.mark.parametrize(
    ("finished", "message"),
    [
        (launched("saxpy"), "saxpy 288 µs"),
        (launched(*"abcdef"), "a 288 µs, b 288 µs, c 288 µs, d 288 µs and 2 more"),
        (launched(), "ran, no kernel launch was recorded"),
        (
            c.Finished(
                "r1", "ok", profiles=(c.Profile("k", "k", "counters"), c.Profile("k", "k", "counters"))
            ),
            "k profiled, the longest of 2 launches",
        ),
        (c.Finished("r1", "cancelled", c.Failure("cancelled", "cancelled")), "cancelled"),
    ],
)
def test_a_run(finished: c.Finished, message: str) -> None:
    assert summary.one_line(finished, compiled_only=False) == message


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["void saxpy(int, float*)"], "288 µs"),
        (["saxpy<float>(float*)"], "saxpy<float> 288 µs"),
        (["saxpy(int)", "fill(int)"], "saxpy 288 µs, fill 288 µs"),
        (["saxpy(int)", "saxpy(float)"], "saxpy(int) 288 µs, saxpy(float) 288 µs"),
    ],
)
def test_a_run_of_a_kernel_whose_name_is_shown_before(names: list[str], message: str) -> None:
    assert summary.one_line(launched(*names), compiled_only=False, kernel="saxpy") == message
