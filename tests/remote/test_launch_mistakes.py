"""Launches that cannot work, seen in the text of a Triton file (launch_mistakes.py); the last test compiles with Triton itself."""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Callable
from typing import NamedTuple

import pytest

from orbit_remote.spec import launch_mistakes


class LaunchParameter(NamedTuple):
    name: str
    has_default: bool = False


COPY = [
    LaunchParameter("x"),
    LaunchParameter("y"),
    LaunchParameter("n"),
    LaunchParameter("BLOCK"),
    LaunchParameter("STEPS", has_default=True),
]


def check(launcher: str, expected: str, *, tuned: bool = False) -> None:
    """`expected` shows the mistakes in a launcher of `copy(x, y, n, BLOCK, STEPS=1)`: a `^~` under the place, then the sentence."""
    text = textwrap.dedent(launcher).strip("\n")
    mistakes = launch_mistakes.of("copy", COPY, ast.parse(text), text, "k.py", ("torch", "copy"), tuned=tuned)
    lines = text.split("\n")
    shown = {number: [line] for number, line in enumerate(lines, 1)}
    for _, problem in mistakes:
        at = problem.place
        assert at
        assert at.column
        assert at.end_column
        shown[at.line].append(
            f"{' ' * (at.column - 1)}^{'~' * (at.end_column - at.column - 1)} {problem.message}"
        )
    assert "\n".join(part for line in shown.values() for part in line) == textwrap.dedent(expected).strip(
        "\n"
    )


def test_a_name_that_the_kernel_does_not_have() -> None:
    check(
        "copy[(1,)](x0 := 1, 2, 3, BLOK=64)",
        """
        copy[(1,)](x0 := 1, 2, 3, BLOK=64)
                                  ^~~~~~~ copy has no parameter BLOK; did you mean 'BLOCK'?
        """,
    )


def test_an_option_of_the_launch() -> None:
    check(
        "copy[(1,)](1, 2, 3, BLOCK=64, num_warp=8)",
        """
        copy[(1,)](1, 2, 3, BLOCK=64, num_warp=8)
                                      ^~~~~~~~~~ copy has no parameter num_warp; did you mean 'num_warps'?
        """,
    )


def test_an_argument_that_is_missing() -> None:
    check(
        """
        def run(x):
            copy[grid](x, BLOCK=64)
        grid = (1,)
        """,
        """
        def run(x):
            copy[grid](x, BLOCK=64)
            ^~~~~~~~~~ this launch of copy gives no value for y, n
        grid = (1,)
        """,
    )


def test_an_argument_too_many_and_a_name_that_is_not_there() -> None:
    check(
        """
        copy[(1,)](1, 2, 3, 64, 1, 5)
        copy[(1,)]("ä", 2, count, 64)
        """,
        """
        copy[(1,)](1, 2, 3, 64, 1, 5)
                                   ^ copy takes 5 arguments, not 6
        copy[(1,)]("ä", 2, count, 64)
                           ^~~~~ count is not defined
        """,
    )


@pytest.mark.parametrize(
    "launch",
    [
        "copy[(1,)](1, 2, 3, 64)",
        "copy[(1,)](1, 2, n=3, BLOCK=64, num_warps=8, STEPS=2)",
        "copy[(1,)](*arguments, BLOCK=64)",
        "copy[(1,)](1, 2, **options)",
        "copy[(1,)](1, 2, 3, 64, waves_per_eu=2)",  # of AMD's compiler
        "copy[(1,)](*[torch.empty(n) for n in (1, 2, 3)], 64)",
        "other[(1,)](1)",
        "def run(copy):\n    copy[(1,)](1)",  # any kernel
        "from sizes import *\ncopy[(1,)](1, 2, count, 64)",
    ],
)
def test_what_may_be_right_is_not_reported(launch: str) -> None:
    text = f"arguments = options = ()\n{launch}"
    check(text, text)


def test_a_tuned_kernel_gets_arguments_elsewhere() -> None:
    check("copy[(1,)](1, 2, 3)", "copy[(1,)](1, 2, 3)", tuned=True)


def test_such_a_launch_is_an_error_and_no_figure_is_assumed(
    check_compiled: Callable[[str, str], None],
) -> None:
    check_compiled(
        """
        @triton.jit
        def copy(x, y, n, BLOCK: tl.constexpr):
            i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
            tl.store(y + i, tl.load(x + i, i < n), i < n)

        def run(x):
            y = torch.empty_like(x)
            copy[(1,)](x, y, x.numel(), BLOK=256)
        """,
        "triton: copy has no parameter BLOK; did you mean 'BLOCK'?",
    )
