"""Flags that name architectures in, the flags for one GPU or one compiler out."""

from __future__ import annotations

import pytest

from orbit_remote.common import architectures


@pytest.mark.parametrize(
    ("flags", "gpu", "expected"),
    [
        ("-O3", "sm_90a", "-O3"),
        ("-gencode arch=compute_80,code=sm_80 -DA -gencode arch=compute_86,code=sm_86", "sm_89", "-DA -gencode arch=compute_86,code=sm_86"),
        ("-gencode arch=compute_90a,code=sm_90a -gencode arch=compute_90,code=sm_90", "sm_90a", "-gencode arch=compute_90a,code=sm_90a"),
        ("-arch=sm_86", "sm_80", ""),  # older GPUs do not load newer code
        ("-arch=native", "sm_80", ""),
    ],
)  # fmt: skip
def test_flags_for_one_gpu(flags: str, gpu: str, expected: str) -> None:
    assert " ".join(architectures.for_one(flags.split(), gpu)) == expected


@pytest.mark.parametrize(
    ("flags", "gpu", "expected"),
    [
        ("-DA -gencode arch=compute_80,code=sm_80 -arch=sm_90", "sm_90a", "-DA -gencode arch=compute_80,code=sm_80 -arch=sm_90"),
        ("-DA -gencode arch=compute_80,code=sm_80 -gencode arch=compute_86,code=sm_86", "sm_90a", "-DA"),
        ("-arch=sm_80", "sm_89", "-arch=sm_80"),
        ("-arch=all-major", "sm_90a", "-arch=all-major"),
        ("-DA", "sm_90a", "-DA"),
    ],
)  # fmt: skip
def test_flags_for_a_program_that_runs_on_a_gpu(flags: str, gpu: str, expected: str) -> None:
    assert " ".join(architectures.for_gpu(flags.split(), gpu)) == expected


@pytest.mark.parametrize(
    ("flags", "expected", "absent"),
    [
        (
            "-gencode arch=compute_80,code=[sm_80,sm_70] -DA",
            "-gencode arch=compute_80,code=[sm_80] -DA",
            "sm_70",
        ),
        ("-gencode arch=compute_70,code=[compute_70,sm_70]", "", "sm_70"),
        ("--gpu-architecture=sm_80 -arch=native", "--gpu-architecture=sm_80 -arch=native", ""),
        ("-gencode=arch=compute_90a,code=sm_90a", "-gencode=arch=compute_90a,code=sm_90a", ""),
        ("-code sm_60,sm_80", "-code sm_80", "sm_60"),
    ],
)
def test_flags_for_one_compiler(flags: str, expected: str, absent: str) -> None:
    kept, missing = architectures.known_targets(flags.split(), {"80", "90"})
    assert (" ".join(kept), " ".join(missing)) == (expected, absent)
