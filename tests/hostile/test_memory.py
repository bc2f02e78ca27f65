"""What one text takes of memory at most, over what was there before: counted in a forked process, from its own peak."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from orbit_remote.toolchain import carets
from tests.hostile.hostile_texts import JIT, MB, ONE, TEXTS, TRITON, long_line_of_emoji, long_string, name_of
from tests.hostile.test_hostile_texts import opened_and_edited
from tests.loops import in_child

MOST_MIB = 300
LINES = 1_000_000
SERVER: dict[str, Callable[[], str]] = {
    "python: a string without an end": TEXTS["python: a string without an end"],
    "python: 200,000 lines": TEXTS["python: 200,000 lines"],
    "a line of 5 MB of emoji": TEXTS["a line of 5 MB of emoji"],
    "python: kernels": lambda: TRITON + "".join(f"@triton.jit\ndef f{i}():0\n" for i in range(180_000)),
    "python: no Python": lambda: TRITON + "$ ) x 9a\n" * 500_000 + JIT.format(0),
    "declarations": lambda: ONE + "int a;\n" * 700_000,
    "ends of lines": lambda: ONE + "\n" * LINES,
}
QUICK = ("python: a string without an end",)


def fits(work: Callable[[], object]) -> bool:
    """Whether it takes no more than `MOST_MIB`; the failure that the child prints has the number."""

    def peak(*, anew: bool = False) -> int:
        if anew:
            Path("/proc/self/clear_refs").write_text("5")
        found = re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())
        assert found
        return int(found[1]) >> 10

    def measured() -> None:
        before = peak(anew=True)
        work()
        taken = peak() - before
        assert taken <= MOST_MIB, f"{taken} MiB"

    return in_child(measured) == 0


def test_a_text_of_the_worker() -> None:
    """Messages of compilers have columns, for which the text is split into tokens."""
    for text in (long_line_of_emoji(5 * MB), long_string(5 * MB), "1," * MB):
        assert fits(lambda text=text: carets.Source(text).token_at(1, 1))


@pytest.mark.parametrize("what", QUICK)
def test_a_text_in_the_editor(what: str) -> None:
    assert fits(lambda: asyncio.run(opened_and_edited(name_of(what), SERVER[what]())))


@pytest.mark.slow
@pytest.mark.parametrize("what", [what for what in SERVER if what not in QUICK])
def test_any_other_text_in_the_editor(what: str) -> None:
    assert fits(lambda: asyncio.run(opened_and_edited(name_of(what), SERVER[what]())))
