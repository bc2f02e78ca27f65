"""What a Triton kernel is given for the values of its launch spec."""

from __future__ import annotations

from typing import Any

import pytest
import triton.language as tl

from orbit_remote.child.spec.triton_backend import passed
from orbit_remote.spec.dtypes import DTYPES
from orbit_remote.spec.syntax_tree import SpecError, SpecSpan
from orbit_remote.spec.values import Dim3, Scalar, Tensor, Value

HERE = SpecSpan(0, 0, 0, 1)


@pytest.mark.parametrize("name", sorted(DTYPES))
def test_every_type_of_a_spec_is_one_of_tritons(name: str) -> None:
    result = passed(DTYPES[name], lambda _: None, HERE)
    assert isinstance(result, tl.dtype)
    assert result.primitive_bitwidth == (1 if name == "bool" else DTYPES[name].size * 8)


@pytest.mark.parametrize(
    ("value", "given"),
    [
        (Scalar(3, "int"), 3),
        (Scalar(True, "bool"), True),
        (Scalar(0.5, "float"), 0.5),
        (None, None),
        ("ieee", "ieee"),
        ((Scalar(1, "int"), Scalar(2, "int")), (1, 2)),
        (Tensor((4,), DTYPES["float32"], (1,), "the value"), "the value in its memory"),
    ],
)
def test_values_are_given_as_python_has_them(value: Value, given: Any) -> None:
    assert passed(value, lambda tensor: f"{tensor.data} in its memory", HERE) == given


def test_what_cannot_be_given_is_refused_at_its_place() -> None:
    with pytest.raises(SpecError, match="cannot be passed to a kernel"):
        passed(Dim3(1), lambda _: None, HERE)
