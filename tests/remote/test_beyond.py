"""Arguments beyond those that a problem draws: families, which of them count, and what a candidate is told."""

from __future__ import annotations

import importlib.util
import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from orbit_remote.common import messages as c
from orbit_remote.common.contracts import harness_files
from orbit_remote.common.contracts.harness_files import AllowedDifference, Domain
from orbit_remote.judge import arguments, beyond, families
from orbit_remote.judge.beyond import Answered, AskedSides, Beyond, Beyonds
from orbit_remote.judge.calls import Given
from orbit_remote.judge.party import SideFailedError
from tests.later import Later

torch: Any = Later("torch")
pytestmark = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="no torch here")
Model = Callable[..., Any]
ROWS, COLUMNS = 8, 32


class Sides:
    """The judge's two sides in this process: `reference` computes in the type of its arguments."""

    def __init__(self, reference: Model, candidate: Model, draw: Callable[[], Any]) -> None:
        self.reference, self.candidate, self.draw = reference, candidate, draw

    def drawn(self) -> Given:
        tensors = [arguments.dense(torch, tensor) for tensor in self.draw()]
        contents = [tensor.clone().reshape(-1).view(torch.uint8) for tensor in tensors]
        return Given(None, tuple(map(arguments.leaf_of, tensors)), tuple(contents), 0, 0)

    def ask(self, given: Given) -> Answered:
        return self.called(self.candidate, self.tensors(given), False)

    def answers(self, given: Given, noises: Sequence[float]) -> list[Answered]:
        wide = [tensor.double() for tensor in self.tensors(given)]
        sizes = [float(tensor.square().mean().sqrt()) or 1.0 for tensor in wide]
        own = self.called(self.reference, self.tensors(given), True)
        try:
            return [
                own,
                *(self.called(self.reference, changed(wide, sizes, noise), True) for noise in noises),
            ]
        except SideFailedError:
            return [own]

    def tensors(self, given: Given) -> list[Any]:
        pairs = zip(given.leaves, given.contents, strict=True)
        return [arguments.tensor_in(torch, leaf, content.clone()) for leaf, content in pairs]

    def called(self, model: Model, tensors: list[Any], of_reference: bool) -> Answered:
        try:
            made = model(*tensors)
        except ValueError as error:
            raise SideFailedError(c.Failure("runtime error", str(error)), of_reference) from None
        outputs = made if isinstance(made, tuple) else (made,)
        return Answered(tuple(f"output[{at}]" for at in range(len(outputs))), outputs)


def changed(wide: list[Any], sizes: list[float], noise: float) -> list[Any]:
    torch.manual_seed(1)
    return [
        tensor + noise * size * torch.randn_like(tensor) for tensor, size in zip(wide, sizes, strict=True)
    ]


def judged(
    reference: Model,
    candidate: Model | None = None,
    draw: Callable[[], Any] | None = None,
    *,
    domain: Domain = "any",
    within: AllowedDifference | None = None,
    seed: int = 0,
) -> Beyond:
    torch.manual_seed(seed)
    sides = Sides(reference, candidate or reference, draw or (lambda: [torch.randn(ROWS, COLUMNS)]))
    asked = AskedSides(sides.drawn, sides.ask, sides.answers)
    usual, *_ = asked.reference(asked.drawn(), ())
    return Beyonds(torch, asked, usual, within, domain, random.Random(seed)).judge(lambda _more: False)


def told(result: Beyond) -> dict[str, str]:
    return {attempt.family: attempt.answer for attempt in result.tried}


NEGATIVE = {"alternating signs", "shifted down"}
EVERY = [family.name for family in families.FAMILIES]


def test_an_honest_candidate_is_right_in_all_of_them() -> None:
    """By another order of adding."""
    result = judged(
        lambda x: torch.relu(x).sum(1),
        lambda x: torch.relu(x).flip(1).cumsum(1)[:, -1],
        lambda: [torch.randn(8, 64)],
    )
    assert told(result) == dict.fromkeys(told(result), "right")
    assert sorted(told(result)) == sorted(EVERY)
    assert beyond.words(result.tried) == (
        "beyond get_inputs, right for 13 of 13 families of arguments that were tried"
    )


def softmax_without_a_maximum(x: Any) -> Any:
    return x.exp() / x.exp().sum(1, keepdim=True)


def kept_by_a_window() -> Model:
    known: dict[float, Any] = {}

    def model(x: Any) -> Any:
        key = float(x[:2].sum())
        if key not in known:
            known[key] = x.sum(1)
        return known[key]

    return model


@pytest.mark.parametrize(
    ("reference", "candidate", "found"),
    [
        (lambda x: torch.softmax(x, 1), softmax_without_a_maximum, "scaled by 100"),
        (
            lambda x: x.relu(),
            lambda x: torch.relu(x) if x.abs().max() > 6 else torch.relu(x).clamp(max=5.5),
            "",
        ),
        (lambda x: x.clone(), lambda x: x.clamp(-6, 6), "scaled by 100"),
        (lambda x: x.sum(1), lambda x: torch.where(x > -6, x, 0).sum(1), "alternating signs"),
        (
            lambda x: x.sort(1).values[:, -4:],
            lambda x: x.topk(4, 1).values.flip(1).clamp(min=0),
            "shifted down",
        ),
        (lambda x: x.sum(1), kept_by_a_window(), "the same prefix, another rest"),
    ],
    ids=["no maximum", "honest above a size", "clamped", "a tail left out", "positive", "kept"],
)
def test_a_candidate_for_the_draw_alone_is_wrong_in_one(
    reference: Model, candidate: Model, found: str
) -> None:
    """Which of several comes first is drawn; each is named with its argument and element."""
    wrong = {seed: judged(reference, candidate, seed=seed) for seed in range(3)}
    assert [bool(result.wrong) for result in wrong.values()] == [bool(found)] * 3
    for result in wrong.values():
        if found:
            last = result.tried[-1]
            assert last.answer == "wrong"
            assert result.wrong.endswith(f"for inputs beyond get_inputs: inputs[0] {last.family}")
            assert result.check
            assert result.check.index is not None


@pytest.mark.parametrize(
    ("reference", "draw", "left_out"),
    [
        (lambda x: x.log(), lambda: [torch.rand(4, 4) + 1], {"zeros", "alternating signs"}),
        (lambda x: x.floor(), lambda: [torch.randn(8, 32) + 0.5], {"zeros"}),
        (
            lambda x: (x.mean(1), x.argmax(1)),
            lambda: [torch.randn(8, 32)],
            {"zeros", "constant", "scaled by 100"},
        ),
        (
            lambda x: x.double().sum().to(x.dtype) * 1e38,
            lambda: [torch.randn(4)],
            {"scaled by 100", "heavy tails"},
        ),
    ],
    ids=["not finite", "jumps", "positions", "overflow"],
)
def test_families_that_prove_nothing_are_left_out(
    reference: Model, draw: Callable[[], Any], left_out: set[str]
) -> None:
    result = judged(reference, draw=draw)
    assert not result.wrong
    right = {family for family, answer in told(result).items() if answer == "right"}
    assert not right & (left_out - {"heavy tails"})
    assert right


def test_without_double_precision_each_family_is_named_as_left_out() -> None:
    def model(x: Any) -> Any:
        if x.dtype == torch.float64:
            raise ValueError("no double here")
        return x * 2

    answers = set(told(judged(model)).values())
    assert answers == {"left out: the reference does not run in double precision"}
    tried = judged(model).tried
    assert beyond.words(tried).endswith("; and 10 more")


def test_a_candidate_that_fails_where_the_reference_does_not() -> None:
    def model(x: Any) -> Any:
        if x.abs().max() > 50:
            raise ValueError("too large for me")
        return x * 2

    result = judged(lambda x: x * 2, model)
    assert result.failed
    assert result.failed.message.startswith("too large for me (for inputs beyond get_inputs: inputs[0] ")


@pytest.mark.parametrize(
    ("domain", "families_of_it"),
    [
        ("any", set(EVERY)),
        ("nonnegative", set(EVERY) - NEGATIVE),
        ("positive", set(EVERY) - NEGATIVE - {"zeros"}),
        (
            "unit",
            set(EVERY) - {*NEGATIVE, "scaled by 100", "shifted up", "heavy tails", "one large outlier"},
        ),
        ("drawn", {"sorted", "permuted rows", "the same prefix, another rest", "the same but for a block"}),
    ],
)
def test_a_problem_states_what_its_arguments_are(domain: Domain, families_of_it: set[str]) -> None:
    text = f"import torch\n{harness_files.domain_line(domain)}\n"
    assert harness_files.domain(text) == domain
    tried = judged(lambda x: x * 2, draw=lambda: [torch.rand(4, 8)], domain=harness_files.domain(text)).tried
    assert {attempt.family for attempt in tried} == families_of_it
    least = {"positive": 0.0, "nonnegative": 0.0, "unit": 0.0, "drawn": 0.0}.get(domain)
    for family in families.FAMILIES:
        if least is not None and domain in family.domains:
            made = families.varied(torch, family, torch.rand(64, 3), torch.rand(64, 3))
            assert float(made.min()) >= least
            assert domain != "unit" or float(made.max()) <= 1


def test_another_word_for_arguments_is_refused() -> None:
    with pytest.raises(ValueError, match="`# inputs: tall` is not understood; write one of any, nonnegative"):
        harness_files.domain("# inputs: tall\n")


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64", "float8_e4m3fn"])
@pytest.mark.parametrize("family", families.FAMILIES, ids=lambda family: family.name)
def test_varied_arguments_keep_their_shape_and_range(family: families.Family, dtype: str) -> None:
    one, other = (torch.randn(4, 6).to(getattr(torch, dtype)) for _ in range(2))
    made = families.varied(torch, family, one, other)
    assert (made.shape, made.dtype) == (one.shape, one.dtype)
    assert bool(made.float().isfinite().all())


def test_whole_numbers_have_no_families() -> None:
    result = judged(lambda x: x * 2, draw=lambda: [torch.arange(8)])
    assert told(result) == {"every family": "left out: no argument has finite numbers that are not whole"}


@pytest.mark.parametrize("family", families.FAMILIES, ids=lambda family: family.name)
def test_what_a_draw_repeats_stays_repeated(family: families.Family) -> None:
    """As dense tensors, which do not say that they were expanded."""
    one, other = (torch.randn(1, 4).expand(8, 4).contiguous() for _ in range(2))
    made = families.varied(torch, family, one, other)
    assert made.shape == (8, 4)
    assert torch.equal(made, made[:1].expand(8, 4))
    alone = families.varied(
        torch, family, torch.ones(8, 4), torch.ones(8, 4)
    )  # a constant is varied as a whole
    assert alone.shape == (8, 4)
