"""Whatever is written above a kernel, checking it ends soon, in little memory, with sentences and nothing else."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orbit_remote import spec
from orbit_remote.spec_functions import FUNCTIONS
from orbit_remote.spec_text import WORDS
from tests.spec.spec_check import CUDA, TRITON, checked

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


def sound(found: spec.Checked, text: str) -> None:
    lines = len(text.splitlines()) + 1
    for fault in found.faults:
        assert fault.message
        assert fault.message[-1] in ".)…"
        assert len(fault.message) < 500
        assert "mistake of ours" not in fault.message
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
@settings(max_examples=400, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(pieces=st.lists(st.sampled_from(_PIECES) | st.text(max_size=3), max_size=40))
def test_pieces_in_any_order(language: str, pieces: list[str]) -> None:
    text = source(" ".join(pieces).split("\n"), language)
    sound(checked(text, language), text)


@pytest.mark.parametrize("language", ["cuda", "triton"])
@settings(max_examples=800, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
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


@pytest.mark.parametrize("language", ["cuda", "triton"])
@pytest.mark.parametrize("lines", _TOO_MUCH.values(), ids=_TOO_MUCH)
@pytest.mark.timeout(30)
def test_too_much(lines: list[str], language: str) -> None:
    text = source(lines, language)
    tracemalloc.start()
    found = checked(text, language)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    sound(found, text)
    assert any(fault.severity == "error" for fault in found.faults) or lines[0].startswith("v0")
    assert peak < 100_000_000
