"""The specs of examples/: no fault, something to check and a ragged case each; torch computes what they expect."""

from __future__ import annotations

from dataclasses import replace
from math import isinf
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from orbit_lsp.kernels.cuda import cuda_kernels
from orbit_lsp.kernels.model import Kernel
from orbit_lsp.kernels.python import triton_kernels
from orbit_remote.spec import launch_spec
from orbit_remote.spec.interpreter import SpecScope, evaluate
from orbit_remote.spec.values import Scalar, Tensor, World
from tests.later import Later
from tests.spec.spec_check import target

if TYPE_CHECKING:
    import torch
else:
    torch = Later("torch")

EXAMPLES = Path(__file__).parent.parent.parent / "examples"
README = (EXAMPLES / "README.md").read_text(encoding="utf-8")


def _with_specs() -> dict[str, tuple[str, Kernel]]:
    result: dict[str, tuple[str, Kernel]] = {}
    for file in sorted([*EXAMPLES.glob("*.cu"), *EXAMPLES.glob("*.py")]):
        text = file.read_text(encoding="utf-8")
        for kernel in (cuda_kernels if file.suffix == ".cu" else triton_kernels).scan(text).kernels:
            if launch_spec.check(text, target(kernel)).spec.launches:
                result[f"{file.name}:{kernel.name}"] = text, kernel
    return result


SPECS = _with_specs()


def test_there_are_as_many_as_the_table_says() -> None:
    rows = [line for line in README.splitlines() if line.startswith("| ") and "`" in line]
    assert len(SPECS) == len(rows) >= 12
    for name in SPECS:
        file, _, kernel = name.partition(":")
        assert f"`{file}`" in README
        assert f"`{kernel}" in README


@pytest.mark.parametrize("name", SPECS)
def test_an_example(name: str) -> None:
    text, kernel = SPECS[name]
    read = launch_spec.check(text, target(kernel))
    assert [fault.message for fault in read.faults] == []
    assert read.spec.expects
    assert "bytes" in read.spec.amounts
    cases = [point for point in launch_spec.points(read.spec)[0] if point.case]
    assert cases
    for point in cases:
        world = World(read.spec.language, torch=torch)
        values, faults = launch_spec.compute(read.spec, read.signature, point, world)
        assert not faults
        for expect in read.spec.expects:
            expected = evaluate(expect.expected, replace(world, exact=True), SpecScope(values))
            assert isinstance(expected, Tensor | Scalar)
            if isinstance(expected, Tensor):
                infinite = any(isinstance(value, Scalar) and isinf(value.value) for value in values.values())
                assert expected.data.isfinite().all() or (infinite and not expected.data.isnan().any())
