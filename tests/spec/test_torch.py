"""Shapes and types worked out without torch are those of the tensors that torch makes."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from orbit_remote.spec import launch_spec
from orbit_remote.spec.functions.function_table import FUNCTIONS
from orbit_remote.spec.values import Tensor, Value, World
from tests.later import Later
from tests.random_cases import random_cases
from tests.spec.spec_check import CUDA, checked, written

if TYPE_CHECKING:
    import torch
else:
    torch = Later("torch")

_LEAVES = [
    "f",
    "h",
    "b",
    "i",
    "u",
    "t",
    "m",
    "s",
    "2",
    "3.5",
    "8",
    "arange(3)",
    "randn(4, 3)",
    "rand(3, dtype=half)",
]
_BODY = [
    "f = randn(4, 3); h = randn(3, dtype=half); b = randn(4, 1, dtype=bfloat16); i = randint(0, 9, 4, 3)",
    "u = randint(0, 9, 3, dtype=uint8); t = randn(4, 3) > 0; m = randn(3, 4); s = randn(8, 4, 3)",
]
_methods = st.sampled_from([
    "T", "mT", "sum()", "sum(0)", "sum(-1, keepdim=True)", "mean()", "mean(1)", "amax(0)", "amin()", "max(dim=0)", "argmax(1)",
    "argmin()", "view(-1)", "reshape(3, -1)", "transpose(0, 1)", "permute(1, 0)", "unsqueeze(0)", "squeeze()", "squeeze(0)",
    "expand(4, 3)", "flatten()", "float()", "half()", "to(float64)", "int()", "bool()", "contiguous()", "clone()", "softmax(-1)",
    "cumsum(0)", "sort()", "exp()", "abs()", "sqrt()", "round()", "std(0)", "var(correction=0)", "roll(1)", "clamp(0, 1)",
    "clamp(min=2.5)", "relu()", "sigmoid()", "ones_like()", "rand_like(dtype=half)",
])  # fmt: skip
_values = st.recursive(
    st.sampled_from(_LEAVES),
    lambda inner: (
        st.builds("({} {} {})".format, inner, st.sampled_from(["+", "-", "*", "/", "%", "@", "<", "==", "&", "|"]), inner)
        | st.builds("{}.{}".format, st.sampled_from(_LEAVES[:8]), _methods)
        | st.builds("({}).{}".format, inner, _methods)
        | st.builds("({})[{}]".format, inner, st.sampled_from(["0", "-1", ":2", "::2", "0, 1", "None", ":, 1", ":, None", "1:1"]))
        | st.builds("{}({}, {})".format, st.sampled_from(["maximum", "minimum", "matmul", "pow"]), inner, inner)
        | st.builds("where({} > 1, {}, {})".format, inner, inner, inner)
        | st.builds("cat(({}, {}))".format, inner, inner)
        | st.builds("stack([{}, {}], 1)".format, inner, inner)
    ),
    max_leaves=5,
)  # fmt: skip


def both(lines: list[str], language: str) -> tuple[dict[str, Value], dict[str, Value], list[str]]:
    mark = "// orbit: " if language == "cuda" else "# orbit: "
    kernel = CUDA if language == "cuda" else "import triton\n{}@triton.jit\ndef k(x):\n    pass\n"
    text = "".join(f"{mark}{line}\n" for line in lines)
    read = checked(text + kernel if language == "cuda" else kernel.format(text), language)
    world = World(read.spec.language, torch=torch)
    made, faults = launch_spec.compute(read.spec, read.signature, launch_spec.SpecPoint(), world)
    return dict(read.values), made, [fault.message for fault in faults]


@pytest.mark.parametrize("language", ["cuda", "triton"])
@random_cases(500)
@given(value=_values)
def test_any_expression(language: str, value: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch says that the deviation of one element is nan
        described, made, faults = both([*_BODY, f"v = {value}"], language)
    assume("v" in described)
    assume(faults != ["torch refuses this: ZeroDivisionError"])  # on the CPU, where the data has a zero
    assert not faults
    for name, item in described.items():
        assert written(item) == written(made[name])
        if isinstance(item, Tensor):
            data = made[name].data
            assert tuple(data.shape) == item.shape
            assert str(data.dtype) == f"torch.{item.dtype.name}"
            assert all(
                have == step for have, step, extent in zip(data.stride(), item.strides, item.shape, strict=True) if extent > 1 and item.numel
            )  # fmt: skip


_ONE_CALL = {
    "randn": "randn(2, 3)", "randint": "randint(0, 5, 4, dtype=int32)", "full": "full((2, 2), 7)", "full_like": "full_like(f, 2)",
    "gelu": 'gelu(f, approximate="tanh")', "silu": "silu(f)", "bincount": "bincount(i.view(-1), 9)",
    "layer_norm": "layer_norm(f, (3,))", "rms_norm": "rms_norm(f, 3)", "empty_like": "empty_like(h)",
    "scaled_dot_product_attention": "scaled_dot_product_attention(s, s, s, is_causal=True)",
}  # fmt: skip


@pytest.mark.parametrize("call", _ONE_CALL.values(), ids=_ONE_CALL)
def test_functions_that_the_property_leaves_out(call: str) -> None:
    described, made, faults = both([*_BODY, f"v = {call}"], "triton")
    assert not faults
    assert written(described["v"]) == written(made["v"])


def test_random_values_are_the_same_again_and_others_in_another_turn() -> None:
    lines = ["x = randn(8)", "y = randn(8)"]
    _, first, _ = both(lines, "cuda")
    _, again, _ = both(lines, "cuda")
    assert torch.equal(first["x"].data, again["x"].data)
    assert not torch.equal(first["x"].data, first["y"].data)
    read = checked("// orbit: x = randn(8)\n" + CUDA, "cuda")
    other, _ = launch_spec.compute(
        read.spec, read.signature, launch_spec.SpecPoint(), World("cuda", torch=torch, turn=1)
    )
    assert not torch.equal(first["x"].data, other["x"].data)


def test_every_function_has_a_line_of_help() -> None:
    for name, function in FUNCTIONS.items():
        assert function.doc, name
