"""What one text takes of memory at most, over what was there before: counted in a forked process, from its own peak."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from bench import hostile
from orbit_lsp.compilation.database import Databases
from orbit_remote.common import limits
from orbit_remote.toolchain import carets
from tests.hostile.hostile_texts import JIT, MB, ONE, TEXTS, TRITON, long_line_of_emoji, long_string, name_of
from tests.hostile.test_hostile_texts import MOST_S, longest_hold, opened_and_edited
from tests.loops import in_child

MOST_MIB = 300
MOST_TOGETHER_MIB = 286
"""300 MB: of the server and its worker."""
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
        high = re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())
        assert high
        return int(high[1]) >> 10

    def measured() -> None:
        before = peak(anew=True)
        work()
        taken = peak() - before
        assert taken <= MOST_MIB, f"{taken} MiB"

    return in_child(measured) == 0


DATABASES: dict[str, Callable[[int], bytes]] = {
    "lists": lambda size: b"[" + b"[]," * (size // 3 - 1) + b"[]]",
    "objects": lambda size: b"[" + b"{}," * (size // 3 - 1) + b"{}]",
    "names": lambda size: b"[" + b",".join(b'{"file":"%d"}' % name for name in range(size // 21)) + b"]",
    "braces": lambda size: b'[{"file":"' + b"}" * (size - 13) + b'"}]',
    "one character that is no ASCII": lambda size: b'[{"file":"k.cu","command":"' + "é😀".encode() + b"a" * (size - 40) + b'"}]',
}  # fmt: skip


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.slow) if name in ("names", "objects") else name
        for name in DATABASES
    ],
)
def test_a_database_of_the_largest_size(tmp_path: Path, name: str) -> None:
    """Nor does it keep the interpreter from the event loop, as a decoder does that is given all of it."""
    path = tmp_path / "compile_commands.json"
    path.write_bytes(DATABASES[name](limits.DATABASE.most))

    def find() -> None:
        with longest_hold() as taken:
            thread = threading.Thread(target=lambda: Databases().find("/no/such.cu", "/no", str(path)))
            thread.start()
            thread.join()
        assert taken[0] < MOST_S

    assert path.stat().st_size <= limits.DATABASE.most
    assert fits(find)


@pytest.mark.slow
def test_a_text_of_the_worker() -> None:
    """Messages of compilers have columns, for which the text is split into tokens."""
    for text in (long_line_of_emoji(5 * MB), long_string(5 * MB), "1," * MB):
        assert fits(lambda text=text: carets.CaretSource(text).token_at(1, 1))


@pytest.mark.parametrize("what", QUICK)
def test_a_text_in_the_editor(what: str) -> None:
    assert fits(lambda: asyncio.run(opened_and_edited(name_of(what), SERVER[what]())))


@pytest.mark.slow
@pytest.mark.parametrize("what", [what for what in SERVER if what not in QUICK])
def test_any_other_text_in_the_editor(what: str) -> None:
    assert fits(lambda: asyncio.run(opened_and_edited(name_of(what), SERVER[what]())))


@pytest.mark.slow
@pytest.mark.parametrize(
    "what", ["a comment of 5 MB with an emoji", "a comment of 2 MB of control characters"]
)
def test_the_server_and_its_worker_together(shared_workers: Path, what: str) -> None:
    *_, server, worker = asyncio.run(hostile.measured(name_of(what), TEXTS[what](), shared_workers.parent))
    assert worker > 0
    assert server + worker <= MOST_TOGETHER_MIB, f"{server:.0f} + {worker:.0f} MiB"
