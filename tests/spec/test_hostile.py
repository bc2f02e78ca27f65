"""Whatever is written above a kernel, checking it ends soon, in little memory, with sentences and nothing else."""

from __future__ import annotations

import sys
import tracemalloc
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING, Any, Self

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbit_remote.spec import launch_spec
from orbit_remote.spec.comment_scanner import WORDS
from orbit_remote.spec.functions.function_table import FUNCTIONS
from orbit_remote.spec.values import NodeBudget, Tensor, World
from tests.later import Later
from tests.random_cases import ENCODABLE, random_cases
from tests.spec.spec_check import CUDA, TRITON, checked

if TYPE_CHECKING:
    import torch
else:
    torch = Later("torch")

_PIECES = [
    *FUNCTIONS, *WORDS, *"()[]{}<>.,;:=+-*/%@~&|^?!'\"\\", "<<<", ">>>", "**", "==", "<=", "<<", ">>", "&&", "::", "//",
    "n", "x", "y", "k", "lambda", "META", "if", "else", "and", "not", "in", "for", "within", "dim", "dtype", "keepdim",
    "__class__", "__builtins__", "__import__", "eval", "0", "1", "-1", "3", "0.5", "2.0f", "1e308", "1e-320", "nan", "inf",
    "9223372036854775807", "1" + "0" * 50, "0x", "float", "half", "int8", "torch", "T", "shape", "None", "\t", "é", "\0", "\n",
    "x = randn(8, 8)", "y = empty(8)", "n = 3", "n = sweep(", "launch k<<<", "launch k[", "expect y ==", "case a:",
]  # fmt: skip


def source(lines: list[str], language: str) -> str:
    mark = "// orbit: " if language == "cuda" else "# orbit: "
    text = "".join(f"{mark}{line}\n" for line in lines)
    return text + CUDA if language == "cuda" else TRITON.replace("{spec}", text)


def sound(known: launch_spec.EvaluatedSpec, text: str) -> None:
    lines = len(text.splitlines()) + 1
    for fault in known.faults:
        assert fault.message
        assert fault.message[-1] in ".?)…"
        assert len(fault.message) < 500
        assert 0 <= fault.span.line <= fault.span.end_line <= lines
        assert fault.span.column >= 0


_calls = st.builds(
    lambda name, arguments: f"{name}({', '.join(arguments)})",
    st.sampled_from(sorted(FUNCTIONS)),
    st.lists(st.sampled_from(["x", "y", "n", "-1", "0", "2", "1e308", "nan", "None", "half", "(2, 3)", "[x, x]", "x > 0", "dim=0", "1e-320", "9223372036854775807", "'a'", "x[0]", "x.T"]), max_size=4),
)  # fmt: skip
_values = st.recursive(
    st.sampled_from(["x", "y", "n", "1", "0", "2.5", "1e308", "9223372036854775807", "(1, 2)", "nan"]) | _calls,
    lambda inner: (
        st.builds(lambda a, o, b: f"({a} {o} {b})", inner, st.sampled_from(["+", "-", "*", "/", "%", "**", "//", "@", "<<", ">>", "<", "==", "&", "|", "and", "&&"]), inner)
        | st.builds(lambda o, a: f"{o}{a}", st.sampled_from(["-", "~", "not ", "!"]), inner)
        | st.builds(lambda a, i: f"{a}[{i}]", inner, st.sampled_from(["0", "-1", ":", "None", "0, 1", "::2", "5", "x", "n", "1:0", "::-1"]))
        | st.builds(lambda a, m: f"{a}.{m}", inner, st.sampled_from(["T", "shape", "dtype", "sum(0)", "view(-1)", "float()", "to(half)", "__dict__"]))
    ),
    max_leaves=6,
)  # fmt: skip


@pytest.mark.parametrize("language", ["cuda", "triton"])
@random_cases(400)
@given(pieces=st.lists(st.sampled_from(_PIECES) | st.text(ENCODABLE, max_size=3), max_size=40))
def test_pieces_in_any_order(language: str, pieces: list[str]) -> None:
    # the last: a backslash at a line's end would take the kernel's line into the comment, as C++ has it
    text = source(" ".join([*pieces, ";"]).split("\n"), language)
    sound(checked(text, language), text)


@pytest.mark.parametrize("language", ["cuda", "triton"])
@random_cases(800)
@given(value=_values)
def test_well_formed_expressions_of_anything(language: str, value: str) -> None:
    text = source(["n = 3; x = randn(8, 8); y = arange(8)", f"v = {value}", f"expect y == {value}", f"bytes {value}"], language)  # fmt: skip
    sound(checked(text, language), text)


_TOO_MUCH = {
    "parentheses": ["v = " + "(" * 1500 + "1" + ")" * 1500],
    "signs": ["v = " + "-" * 3000 + "1"],
    "a row of operators": ["v = " + "+".join(["1"] * 390)],
    "powers": ["v = " + " ** ".join(["9"] * 200)],
    "chained comparisons in each other": ["v = " + "(0 < " * 25 + "1" + " < 2)" * 25],
    "lists of lists of themselves": ["a0 = (1, 1)", *(f"a{i} = (a{i - 1}, a{i - 1})" for i in range(1, 60)), "b0 = (1, 1)", *(f"b{i} = (b{i - 1}, b{i - 1})" for i in range(1, 60)), "v = a59 == b59; x = randn(a59)"],
    "shapes": ["v = randn(" + ", ".join(["9223372036854775807"] * 200) + ")"],
    "shifts": ["v = 1 << 9223372036854775807"],
    "every value of many sweeps": [*(f"s{i} = sweep({', '.join(map(str, range(60)))})" for i in range(12)), "launch k<<<s0, s1>>>(s2)"],
    "many statements": [f"v{i} = " + "+".join(["1"] * 70) for i in range(256)] + [f"case c{i}: v0 = {i}" for i in range(32)],
    "a long line": ["v = " + "1" * 100_000],
    "a long number": ["v = " + "9" * 390],
    "an open bracket over many lines": ["v = f(", *["1," for _ in range(1800)]],
    "arange of nearly nothing": ["v = arange(0, 1, 1e-320)", "w = arange(0, 1e308, 1)"],
}  # fmt: skip
_EACH = [
    pytest.param(
        lines,
        language,
        id=f"{name}-{language}",
        marks=[pytest.mark.slow] if (name, language) == ("many statements", "triton") else [],
    )
    for name, lines in _TOO_MUCH.items()
    for language in ("cuda", "triton")
]


@pytest.mark.parametrize(("lines", "language"), _EACH)
def test_too_much(lines: list[str], language: str) -> None:
    text = source(lines, language)
    tracemalloc.start()
    result = checked(text, language)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    sound(result, text)
    assert any(fault.severity == "error" for fault in result.faults) or lines[0].startswith("v0")
    assert peak < 100_000_000


def calls_of(work: Callable[[], object]) -> int:
    """How many Python functions are called: a measure of the time it takes that is the same on every machine."""
    count = 0

    def called(frame: FrameType, event: str, argument: object) -> None:
        nonlocal count
        count += event == "call"

    sys.setprofile(called)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


_MOST_CALLS = 6_000_000
"""Some three seconds; an ordinary spec takes three thousand."""


@pytest.mark.parametrize(("lines", "language"), _EACH)
def test_too_much_takes_bounded_time(lines: list[str], language: str) -> None:
    text = source(lines, language)
    assert calls_of(lambda: checked(text, language)) < _MOST_CALLS


@random_cases(25)
@given(data=st.data())
@pytest.mark.slow
def test_any_spec_as_large_as_may_be_takes_bounded_time(data: st.DataObject) -> None:
    """Many statements that each sweep, nest and use what stands before them."""
    names = [f"v{at}" for at in range(data.draw(st.integers(1, 80)))]
    lines: list[str] = []
    for at, name in enumerate(names):
        known = names[:at] or ["1"]
        word, other = data.draw(st.sampled_from(known)), data.draw(st.sampled_from(known))
        form = data.draw(st.sampled_from([
            "sweep({0}, 1, 2, 3, 4, 5, 6, 7)", "({0}, {1})", "({0} + {1}) * ({0} - {1})", "randn({0}, 8) @ randn(8, {1})",
            "cat(({0}, {1}))", "{0}[{1}]", "where({0} > {1}, {0}, {1})", "min({0}, {1})", "{0}.T", "{0}.expand({1}, {1})",
        ]))  # fmt: skip
        lines.append(f"{name} = {form.format(word, other)}")
    lines += [f"case c{at}: v0 = {at}" for at in range(data.draw(st.integers(0, 32)))]
    text = source([*lines, f"launch k<<<{names[-1]}, {names[0]}>>>({', '.join(names[-4:])})"], "cuda")
    assert calls_of(lambda: sound(checked(text, "cuda"), text)) < _MOST_CALLS


class Watched:
    """What torch is really asked to do: how many operations, and the largest result of any, in bytes."""

    def __init__(self) -> None:
        self.operations = 0
        self.largest = 0

    def __enter__(self) -> Self:
        from torch.utils._python_dispatch import TorchDispatchMode

        watched = self

        class Mode(TorchDispatchMode):
            def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
                result = func(*args, **(kwargs or {}))
                watched.note(result)
                return result

        self._mode = Mode()
        self._mode.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._mode.__exit__(*error)

    def note(self, result: Any) -> None:
        self.operations += 1
        for item in result if isinstance(result, tuple | list) else (result,):
            if isinstance(item, torch.Tensor):
                self.largest = max(self.largest, item.numel() * item.element_size())


_ROOM = 1 << 16
_growing = st.recursive(
    st.sampled_from(["x", "y", "randn(n)", "zeros(n, 2)", "ones(n, n)", "arange(n)", "randn(n, n)", "full((n, 3, n), 1)", "x.expand(n, 8, 8)"]),
    lambda inner: (
        st.builds("({0}[:, None] {2} {1})".format, inner, inner, st.sampled_from(["+", "*", "<", "@"]))
        | st.builds("({0} @ {1})".format, inner, inner)
        | st.builds("cat(({0}, {1}))".format, inner, inner)
        | st.builds("stack(({0}, {0}, {1}))".format, inner, inner)
        | st.builds("({0}).{1}".format, inner, st.sampled_from(["T", "sum(0)", "softmax(0)", "expand(n, n)", "to(float64)", "sort()", "contiguous()", "unsqueeze(0).expand(n, n, n).clone()"]))
    ),
    max_leaves=5,
)  # fmt: skip


@pytest.mark.parametrize("language", ["cuda", "triton"])
@random_cases(300)
@given(value=_values | _growing)
@pytest.mark.slow
def test_tensors_are_made_within_their_room(language: str, value: str) -> None:
    text = source(["n = 100; x = randn(8, 8); y = arange(8)", f"v = {value}"], language)
    read = checked(text, language)
    work = NodeBudget(2000)
    with Watched() as watched:
        made, faults = launch_spec.compute(
            read.spec,
            read.signature,
            launch_spec.SpecPoint(),
            World(language, torch=torch, memory=_ROOM, work=work),
        )
    for item in made.values():
        if isinstance(item, Tensor):
            assert item.bytes <= _ROOM
            assert (tuple(item.data.shape), str(item.data.dtype)) == (item.shape, f"torch.{item.dtype.name}")
    # a step of ours is a few of torch's; what comes between is in a wider type at most: 1 byte -> 8
    assert watched.operations <= 40 * (2000 - work.left) + 40
    assert watched.largest <= 8 * _ROOM
    for fault in faults:
        assert fault.message
