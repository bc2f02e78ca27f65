"""A launch in, a launch spec out: its text, its values and what it refuses; kernels run in Triton's interpreter, without a GPU."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from orbit_remote.child.capture import values
from orbit_remote.child.capture.launch_watch import Form, NotCapturedError
from orbit_remote.child.capture.layouts import layout
from orbit_remote.child.spec import as_captured
from orbit_remote.common import codec, limits
from orbit_remote.spec import stored_tensors
from orbit_remote.spec.dtypes import DTYPES, tolerance
from tests.later import Later

if TYPE_CHECKING:
    import torch
else:
    torch = Later("torch")

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """All cases in one process: starting it is what takes time."""
    script = ROOT / "tests" / "remote" / "interpreted_capture.py"
    run = [sys.executable, "-P", str(script), str(tmp_path_factory.mktemp("captures"))]
    path = {"PYTHONPATH": f"{ROOT}:{ROOT / 'remote'}", "PATH": "/usr/bin:/bin"}
    return json.loads(subprocess.run(run, capture_output=True, text=True, check=True, env=path).stdout)


def spec(captured: dict[str, Any]) -> str:
    return "; ".join(each for each in captured["statements"] if not each.startswith("expect "))


def test_sizes_have_the_names_of_parameters_and_the_grid_follows_them(made: dict[str, Any]) -> None:
    assert spec(made["sizes"]) == (
        "n_elements = 1000; x = randn(n_elements); y = randn(n_elements); out = empty(n_elements); "
        "launch add[lambda META: (triton.cdiv(n_elements, META['BLOCK']),)](x, y, out, n_elements, BLOCK=256)"
    )
    expected = 'expect out == load("kernels.orbit.safetensors", "add.out") as captured'
    assert made["sizes"]["statements"][-1] == expected


def test_a_tensor_that_is_not_dense_is_a_view_and_strides_are_its_own(made: dict[str, Any]) -> None:
    assert spec(made["strides"]) == (
        "n_cols = 100; n = 32; out = empty(n, n_cols); x = randn(n, 120)[:, :n_cols]; "
        "launch softmax[(n,)](out, x, x.stride(0), out.stride(0), n_cols, BLOCK=128, num_warps=4)"
    )


@pytest.mark.parametrize(
    ("case", "text", "kept"),
    [
        ("indices", 'ids = load("kernels.orbit.safetensors", "gather.ids", n, dtype=int64)', ["ids"]),
        ("a few indices", "ids = tensor([3, 1, 4, 1])", []),
        ("control flow", 'x = load("kernels.orbit.safetensors", "positive.x", n)', ["x"]),
        ("control flow", "out = zeros(n)", ["x"]),
        ("in place", "x = randn(n, dtype=float16)", []),
        ("one tensor twice", "launch add[(1,)](x, x, out, n_elements, BLOCK=512)", []),
        ("apart in one", "y = randn(n_elements)", []),
    ],
)
def test_values_are_kept_where_they_matter(
    made: dict[str, Any], case: str, text: str, kept: list[str]
) -> None:
    assert (text in made[case]["statements"], made[case]["kept"]) == (True, kept)


@pytest.mark.parametrize(
    ("case", "why"),
    [
        ("parts of one", "x and y share memory, each a part of it, which a launch spec cannot describe"),
        ("complex", "y is a tensor of complex64, which launch specs do not have"),
        ("nothing written", "it writes to none of its arguments, so there is nothing to compare"),
        ("not so often", "scale was launched once: there is no launch 3"),
    ],
)
def test_what_no_spec_describes_is_refused_in_a_sentence(made: dict[str, Any], case: str, why: str) -> None:
    assert (made[case]["why"], made[case]["statements"], made[case]["data"]) == (why, [], "")


def test_a_grid_that_does_not_come_again_has_the_first_launch_taken_and_says_so(made: dict[str, Any]) -> None:
    assert made["another grid"]["remarks"] == ["no launch had the grid of the run before"]
    assert made["another grid"]["launch"] == 1


def test_of_a_long_output_a_sample_is_stored_with_sums(made: dict[str, Any]) -> None:
    content = codec.unpacked(made["a sample"]["data"], limits.STORED)
    assert list(stored_tensors.of_bytes(content).entries) == ["add.out", "add.out.sums"]
    assert len(content) < 300_000


@pytest.mark.parametrize(
    ("shape", "value", "dtype", "text"),
    [
        ((), 3.5, "float32", "full((), 3.5)"),
        ((1,), 0.1, "float16", "full((1,), 0.0999755859, dtype=float16)"),
        ((2, 3), 7, "int32", "full((2, 3), 7, dtype=int32)"),
        ((4,), 1, "bool", "ones(4, dtype=bool)"),
        ((2, 0), 1, "float32", "zeros(2, 0)"),
    ],
)
def test_one_value_everywhere(shape: tuple[int, ...], value: float, dtype: str, text: str) -> None:
    tensor = torch.full(shape, value, dtype=getattr(torch, dtype))
    own = layout("x", Form(dtype, shape, tuple(tensor.stride()), 0))
    made = values.pattern(torch, tensor, dtype, own)
    assert made
    assert made.text(str) == text


@pytest.mark.parametrize(
    ("values_", "text"),
    [
        (lambda: torch.randn(1000), "randn(1000)"),
        (lambda: torch.rand(1000), "rand(1000)"),
        (lambda: torch.full((1000,), 5.0).scatter(0, torch.tensor([1]), 6.0), "1 * rand(1000) + 5"),
        (lambda: (torch.arange(1000.0) - 499.5).to(torch.float16), "290 * randn(1000, dtype=float16)"),
        (lambda: torch.randn(1000) * float("nan"), "randn(1000)"),
        (lambda: (torch.arange(1000.0) - 499.5).to(torch.float8_e5m2), "(290 * randn(1000)).to(float8_e5m2)"),
    ],
)
def test_random_numbers_have_the_scale_and_the_sign(values_: Callable[[], torch.Tensor], text: str) -> None:
    torch.manual_seed(1)
    tensor = values_()
    dtype = str(tensor.dtype).removeprefix("torch.")
    own = layout("x", Form(dtype, (1000,), (1,), 0))
    assert values.random(torch, tensor, dtype, own).text(str) == text


# -- outputs ----------------------------------------------------------------------------------------


def compared(before: torch.Tensor, after: torch.Tensor) -> str:
    content = stored_tensors.written(as_captured.parts(torch, "k.y", before), {})
    allowed = tolerance(DTYPES[str(before.dtype).removeprefix("torch.")], 1)
    found = as_captured.compare(torch, after, stored_tensors.of_bytes(content), "k.y", allowed)
    return f"{found.differing} at {found.index}: {found.actual}" if found.differing else "same"


@pytest.mark.parametrize("count", [1000, 1 << 20])
@pytest.mark.parametrize("dtype", ["float32", "float16", "int32", "int64", "bool"])
def test_one_element_that_changes_is_found_wherever_it_is(count: int, dtype: str) -> None:
    torch.manual_seed(0)
    kind = getattr(torch, dtype)
    before = (torch.randn(count // 10, 10) * 50).to(kind)
    assert compared(before, before.clone()) == "same"
    after = before.clone()
    after[count // 20 + 3, 7] = (
        ~after[count // 20 + 3, 7] if dtype == "bool" else after[count // 20 + 3, 7] + 900
    )
    assert compared(before, after) != "same"


def test_a_sample_finds_nan_that_it_does_not_hold() -> None:
    before = torch.zeros(1 << 20)
    after = before.clone()
    after[777_777] = float("nan")
    assert "the number of not finite ones among which is 1" in compared(before, after)


# -- layouts ----------------------------------------------------------------------------------------


def text_of(tensor: torch.Tensor) -> str:
    form = Form("float32", tuple(tensor.shape), tuple(tensor.stride()), tensor.storage_offset() * 4 % 16)
    try:
        own = layout("x", form)
    except NotCapturedError as why:
        return str(why)
    view = own.of(torch.empty(own.extents))
    assert tuple(view.shape) == form.shape
    steps = zip(view.stride(), form.strides, form.shape, strict=True)
    assert all(extent == 1 or step == wanted for step, wanted, extent in steps)
    return own.text(f"randn({', '.join(map(str, own.extents))})", str)


def test_views_as_an_author_writes_them() -> None:
    made = torch.empty
    shown = [
        text_of(tensor)
        for tensor in (
            made(4, 8), made(4, 8).T, made(4, 10)[:, :8], made(4, 8)[:, ::2], made(8)[1:], made(2, 3, 4, 5).permute(0, 2, 1, 3),
            made(3, 1).expand(3, 5), made(6, 3, 16)[:, 1], made(4, 8).as_strided((3, 4), (2, 1)),
        )
    ]  # fmt: skip
    assert shown == [
        "randn(4, 8)", "randn(4, 8).T", "randn(4, 10)[:, :8]", "randn(4, 4, 2)[:, :, 0]", "randn(8)[1:]",
        "randn(2, 3, 4, 5).permute(0, 2, 1, 3)", "randn(3, 1).expand(3, 5)", "randn(6, 48)[:, :16]",
        "x has the shape (3, 4) and the strides (2, 1), which no views of a dense tensor have",
    ]  # fmt: skip
