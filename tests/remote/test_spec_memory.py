"""What is done to the memory of a launch spec's kernels, and how outputs are compared: on the CPU, where torch is the same."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from orbit_remote.child.spec.device_memory import POISONS, Memory, needed
from orbit_remote.child.spec.output_compare import compare, unravelled, zeros_pass
from orbit_remote.spec.dtypes import DTYPES, Tolerance, tolerance
from orbit_remote.spec.values import Tensor, contiguous
from tests.later import Later

if TYPE_CHECKING:
    import torch
else:
    torch = Later("torch")


def named(name: str, data: torch.Tensor, *, unset: bool = False) -> Tensor:
    dtype = DTYPES[str(data.dtype).removeprefix("torch.")]
    return Tensor(tuple(data.shape), dtype, tuple(data.stride()), data, unset=unset, storage=name)


def overrun(memory: Memory, tensor: Tensor, offset: int) -> None:
    """One element at `offset` from the start of a tensor, which may be outside of it."""
    view = memory.of(tensor)
    shifted = torch.empty(0, dtype=view.dtype).set_(
        view.untyped_storage(), view.storage_offset() + offset, (1,), (1,)
    )
    shifted.fill_(1)


def test_kernels_never_touch_the_values_of_the_spec() -> None:
    y = named("y", torch.arange(4.0))
    memory = Memory(torch, [(y, True)], POISONS[0])
    memory.of(y).fill_(9)
    assert y.data.tolist() == [0, 1, 2, 3]


def test_what_was_changed_is_restored_and_nothing_else() -> None:
    x, y, z = (named(name, torch.arange(4.0)) for name in "xyz")
    memory = Memory(torch, [(x, False), (y, True), (z, True)], POISONS[0])
    memory.of(y).add_(1)
    memory.look()
    assert memory.changed() == {"y"}
    memory.of(z).fill_(7)  # not seen by `look`, so it is the kernel's own business
    memory.restore()
    assert memory.of(y).tolist() == [0, 1, 2, 3]
    assert memory.of(z).tolist() == [7, 7, 7, 7]


@pytest.mark.parametrize("poison", POISONS)
@pytest.mark.parametrize("name", ["float64", "float32", "float16", "bfloat16", "float8_e4m3fn"])
def test_an_unwritten_output_is_no_number_one_could_expect(poison: int, name: str) -> None:
    dtype = getattr(torch, name)
    out = named("out", torch.zeros(4, dtype=dtype), unset=True)
    result = Memory(torch, [(out, True)], poison).of(out).to(torch.float64)
    assert bool((result.isnan() | (result.abs() > 400)).all())


def test_views_share_the_memory_of_what_they_are_views_of() -> None:
    data = torch.arange(12.0).reshape(3, 4)
    whole, part = named("x", data), named("x", data[1:, 2:])
    memory = Memory(torch, [(whole, False), (part, True)], POISONS[0])
    memory.of(part).fill_(-1)
    assert memory.of(whole).tolist() == [[0, 1, 2, 3], [4, 5, -1, -1], [8, 9, -1, -1]]
    assert memory.footprint == 48


@pytest.mark.parametrize(
    ("offset", "told"),
    [(5, "x 0 4"), (7, "x 8 4"), (-1, "x -4 4"), (-3, "x -12 4"), (4, ""), (0, "")],
)
def test_a_write_outside_is_told_with_its_distance(offset: int, told: str) -> None:
    x = named("x", torch.zeros(5))
    memory = Memory(torch, [(x, True)], POISONS[0])
    overrun(memory, x, offset)
    assert (
        " ".join(f"{trespass.name} {trespass.offset} {trespass.bytes}" for trespass in memory.trespasses())
        == told
    )


def test_room_is_reckoned_before_anything_is_allocated() -> None:
    x = Tensor((1 << 20,), DTYPES["float32"], contiguous((1 << 20,)), storage="x")
    band = 1 << 20
    assert needed([(x, False)]) == 4 << 20
    assert needed([(x, True)]) == (4 << 20) * 2 + 2 * band
    assert needed([(x, False), (x, True)]) == (4 << 20) * 2 + 2 * band, "the same memory once"


# -- comparing ---------------------------------------------------------------------------------------


def told(actual: Any, expected: Any, allowed: Tolerance) -> str:
    comparison = compare(torch, torch.as_tensor(actual), torch.as_tensor(expected), allowed)
    if not comparison.differing:
        return f"equal, error {comparison.error:g}" if comparison.error is not None else "equal"
    error = "none" if comparison.error is None else f"{comparison.error:g}"
    return f"{comparison.differing} of {comparison.elements}, [{', '.join(map(str, comparison.index))}] {comparison.actual} not {comparison.expected}, error {error}"


EXACT = Tolerance(0.0, 0.0)
NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("actual", "expected", "message"),
    [
        ([1.0, 2.0], [1.0, 2.0], "equal, error 0"),
        ([1.0, 2.5], [1.0, 2.0], "1 of 2, [1] 2.5 not 2, error 0.5"),
        ([[1, 2], [3, 4]], [[1, 2], [3, 5]], "1 of 4, [1, 1] 4 not 5, error 1"),
        ([NAN, INF], [NAN, INF], "equal"),
        ([NAN, 1.0], [0.0, 1.0], "1 of 2, [0] nan not 0, error 0"),
        ([1.0], [NAN], "1 of 1, [0] 1 not nan, error none"),
        ([INF], [-INF], "1 of 1, [0] inf not -inf, error none"),
        ([INF], [1.0], "1 of 1, [0] inf not 1, error none"),
        ([2.0, 2.0, 3.0], 2.0, "1 of 3, [2] 3 not 2, error 1"),
        ([True, False], [True, True], "1 of 2, [1] False not True, error 1"),
        ([], [], "equal"),
    ],
)
def test_exactly(actual: Any, expected: Any, message: str) -> None:
    assert told(actual, expected, EXACT) == message


@pytest.mark.parametrize(
    ("actual", "allowed", "passes"),
    [
        (100.09, Tolerance(1e-3, 0.0), True),
        (100.11, Tolerance(1e-3, 0.0), False),
        (100.09, Tolerance(0.0, 0.1), True),
        (100.11, Tolerance(0.0, 0.1), False),
        (100.09, Tolerance(0.0, 0.0, 1e-3), True),
        (100.11, Tolerance(0.0, 0.0, 1e-3), False),
        (INF, Tolerance(0.5, 0.5), False),
    ],
)
def test_within(actual: float, allowed: Tolerance, passes: bool) -> None:
    """The third is relative to the root mean square of all that is expected, here of the one value."""
    expected = torch.tensor([100.0], dtype=torch.float64)
    comparison = compare(torch, torch.tensor([actual], dtype=torch.float64), expected, allowed)
    assert (comparison.differing == 0) == passes


@pytest.mark.parametrize(("actual", "differing"), [(INF, 0), (-INF, 1), (5.0, 1), (NAN, 1)])
def test_no_tolerance_reaches_infinity(actual: float, differing: int) -> None:
    expected = torch.tensor([INF, 1.0], dtype=torch.float64)
    comparison = compare(torch, torch.tensor([actual, 1.0]), expected, Tolerance(1e-3, 1e-3, 1e-3))
    assert comparison.differing == differing


def test_the_largest_numbers_of_unsigned_types_are_told_apart() -> None:
    big = torch.tensor([(1 << 63) - 1], dtype=torch.int64).view(torch.uint64)
    assert compare(torch, big, big.view(torch.int64), EXACT).differing == 0
    small = torch.tensor([4_000_000_000], dtype=torch.int64)
    assert compare(torch, small.to(torch.uint32), small, EXACT).differing == 0


def test_fp8_is_compared_by_its_values() -> None:
    x = torch.tensor([1.0, 448.0, 0.5])
    assert (
        compare(torch, x.to(torch.float8_e4m3fn), x.double(), tolerance(DTYPES["float8_e4m3fn"], 1)).differing
        == 0
    )


def test_pieces_give_what_the_whole_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    from orbit_remote.child.spec import output_compare

    expected = torch.randn(7, 11, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    actual = expected.clone()
    actual[5, 3] += 1
    actual[6, 10] -= 2
    whole = compare(torch, actual, expected, Tolerance(1e-7, 0.0, 1e-7))
    monkeypatch.setattr(output_compare, "_PIECE", 10)
    assert compare(torch, actual, expected, Tolerance(1e-7, 0.0, 1e-7)) == whole
    assert (whole.differing, whole.index, whole.error) == (2, (5, 3), 2.0)


@pytest.mark.parametrize(
    ("flat", "shape", "index"),
    [(0, (), ()), (7, (10,), (7,)), (7, (2, 4), (1, 3)), (23, (2, 3, 4), (1, 2, 3))],
)
def test_flat_indices_are_unravelled(flat: int, shape: tuple[int, ...], index: tuple[int, ...]) -> None:
    assert unravelled(flat, shape) == index


@pytest.mark.parametrize(
    ("expected", "allowed", "pass_"),
    [
        ([1e-6, -2e-6], Tolerance(1e-5, 1e-5), True),
        ([1e-6, 1.0], Tolerance(1e-5, 1e-5), False),
        ([0.5, 0.5], Tolerance(1.0, 0.0), True),
        ([0.0, 0.0], Tolerance(1e-5, 1e-5), False),  # zeros are what is wanted
        ([1e-6, float("nan")], Tolerance(1e-5, 1e-5), False),
        ([1e-6, float("inf")], Tolerance(1e-5, 1e-5), False),
    ],
)
def test_whether_zeros_would_pass(expected: list[float], allowed: Tolerance, pass_: bool) -> None:
    said = zeros_pass(torch, "y", torch.tensor(expected), allowed)
    assert said.startswith("zeros would pass for y: ") if pass_ else said == ""
    assert zeros_pass(torch, "y", torch.tensor([0, 1]), allowed) == ""
