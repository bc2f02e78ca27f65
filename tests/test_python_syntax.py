"""Syntax errors of Python files with kernels, while they are typed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from orbit_lsp.features.python_syntax import PythonSyntax
from orbit_lsp.state.documents import TextChange
from orbit_lsp.state.placement import RunSetup
from orbit_lsp.state.results import Problems
from orbit_lsp.state.session import Session
from orbit_lsp.views import diagnostics
from orbit_remote.common import messages as c
from tests.settings_check import settings_of_values

URI = "file:///k.py"
KERNEL = "import triton\n\n@triton.jit\ndef k(x, n):\n    f(x, n)\n"
BROKEN = KERNEL.replace("f(x, n)", "f(x, n))")


async def looked() -> None:
    """The machine is known."""


def feature(text: str, python: str = "3.11.7", **settings: object) -> tuple[PythonSyntax, Session]:
    machine = c.Machine("p", 1, "python", python)
    session = Session(setup=RunSetup(settings=settings_of_values(settings), machine=machine))
    session.open(URI, 1, text)
    context: Any = SimpleNamespace(
        session=session, places=SimpleNamespace(looked=looked), changed=lambda _: None
    )
    return PythonSyntax(context), session


def shown(session: Session) -> list[tuple[int, int, str]]:
    every = diagnostics.diagnostics(session, URI)
    return [(each.range.start.line, each.range.start.character, each.message) for each in every]


@pytest.mark.parametrize(
    ("text", "python", "settings", "expected"),
    [
        (BROKEN, "3.11.7", {}, [(4, 11, "SyntaxError: unmatched ')'")]),
        (KERNEL, "3.11.7", {}, []),
        (BROKEN.replace("@triton.jit", ""), "3.11.7", {}, []),
        (BROKEN, "3.99.0", {}, []),
        (BROKEN, "3.11.7", {"compile_on_idle": False}, []),
    ],
    ids=["broken", "right", "no kernel", "a newer Python", "turned off"],
)
async def test_a_syntax_error_is_shown(
    text: str, python: str, settings: dict[str, object], expected: list[Any]
) -> None:
    checking, session = feature(text, python, **settings)
    await checking._check(URI)
    assert shown(session) == expected


async def test_it_goes_with_the_mistake_and_what_a_compile_said_of_it_goes_too() -> None:
    checking, session = feature(BROKEN)
    told = c.Problem("error", "SyntaxError: unmatched ')'", "python", c.Place("/k.py", 5, 12))
    session.results.keep_problems("compile", {URI: Problems(1, (told,))})
    await checking._check(URI)
    assert len(shown(session)) == 1
    session.change(URI, 2, [TextChange((4, 11), (4, 12), "")])
    await checking._check(URI)
    assert shown(session) == []
