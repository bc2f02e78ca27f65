"""A tracker gives what a fresh scan of the same text gives; while the text is broken, kernels stay."""

import ast
from dataclasses import replace
from pathlib import Path
from textwrap import dedent

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from orbit_lsp.kernels.model import Scan
from orbit_lsp.kernels.python.regions import split
from orbit_lsp.kernels.python.triton_kernels import TritonTracker, scan
from tests.random_cases import random_cases

FILE = dedent('''\
    """A module."""
    import triton
    import triton.language as tl
    from functools import partial

    SIZE = 4
    my = partial(triton.jit, debug=True)

    # orbit: n = 4
    @triton.autotune(
        configs=[triton.Config({"B": 1})],
        key=["n"],
    )
    # orbit: m = 5
    @triton.jit
    def first(x, n, B: tl.constexpr):
        """Doc
    at the margin."""
        if n > 1:
            tl.store(x, helper(n))
        else:
            tl.store(x, 0)  # é

    @my
    def helper(a):
        return (a
    @ 1)

    def raw(x):
        first(x)

    class C:
        """Ü"""
        # orbit: k = 1
        @staticmethod
        @triton.jit
        def third(x): pass
        y = 1

    if SIZE:
        fourth = triton.jit(raw)
    else:
        def wrap(f):
            return triton.jit(f)

    @wrap
    def fifth(x): return

    def main(n=1):
        first[(n,)](x, n, B=2); third[1](2)
        return lambda: None

    if __name__ == "__main__":
        main()
''')

EXAMPLES = Path(__file__).parents[2] / "examples"
TEXTS = [FILE, FILE * 4, *(path.read_text(encoding="utf-8") for path in sorted(EXAMPLES.glob("*.py")))]
FRAGMENTS = [
    "\n", "\n    ", "    ", " ", "x", "a1", "é", "🚀", "\r", "\r\n", "\f", "\t", "\0", "\udc80", "\ufeff",
    "(", ")", "[", "]", "{", "}", '"', "'", '"""', "'''", "#", "# orbit: q = 1\n", "\\\n", "\\", ";", ":", ",", ".",
    "@", "@triton.jit\n", "@my\n", "def f(x):\n    pass\n", "def g(y): return y\n", "class D:\n    z = 2\n",
    "k = triton.jit(raw)\n", "import triton\n", "from jax import jit as my\n", "else:\n    pass\n", "return ",
    "elif", "if x:\n    y\n", "main", "first", "helper", "global my\n", "__all__ = ['helper']\n", "first[(1,)](2)\n",
    "= ", "lambda f: ", 'f"{x}"', "try:\n    pass\nexcept E:\n    pass\n", "async ", "triton", "@", "and",
    'K = r"""\n__global__ void inside(int* x) {\n}\n"""\n', "__global__ void bare() {}", "f('__global__ void line() {}')\n",
    "import numba.cuda\n", "@numba.cuda.jit\n", "import tilelang\n@tilelang.jit\ndef make():\n    @tilelang.jit\n    def inner(): pass\n",
]  # fmt: skip


def valid(text: str) -> bool:
    try:
        ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True


def followed(text: str) -> TritonTracker:
    tracker = TritonTracker()
    tracker.scan(text)
    return tracker


def same(scanned: Scan, text: str) -> None:
    fresh = scan(text)
    for field in ("kernels", "digests", "launches", "entries", "includes"):
        assert getattr(scanned, field) == getattr(fresh, field), field
    assert len(scanned.digests) == len(scanned.kernels)


@st.composite
def edits(draw: st.DrawFn) -> list[tuple[float, int, str]]:
    """(where, how much goes, what comes) of each edit."""
    item = st.tuples(
        st.floats(0, 1),
        st.sampled_from([0, 0, 0, 1, 1, 2, 5, 30, 200]),
        st.lists(st.sampled_from(FRAGMENTS), max_size=3).map("".join),
    )
    return draw(st.lists(item, min_size=1, max_size=8))


@random_cases(400)
@given(st.sampled_from(TEXTS), edits(), st.booleans())
def test_random_edits(text: str, changes: list[tuple[float, int, str]], undo: bool) -> None:
    before = text
    tracker = followed(before)
    for where, removed, added in changes:
        start = int(where * len(text))
        text = text[:start] + added + text[start + removed :]
        result = tracker.scan(text)
        assert len(result.digests) == len(result.kernels)
        if valid(text):
            same(result, text)
    if undo:
        same(tracker.scan(before), before)


@random_cases(250)
@given(st.lists(st.sampled_from([*FRAGMENTS, *FILE.splitlines(keepends=True)]), max_size=40).map("".join))
@example("(\n@)\n@triton.jit(\ndef f(x):\n    pass\n")  # the first @ decorates nothing
def test_any_text_has_a_scan(text: str) -> None:
    regions = split(text).regions
    assert "".join(regions) == text
    assert all(regions) or regions == [""]
    result = scan(text)
    lines = text.count("\n") + text.count("\r") + 1
    for kernel in result.kernels:
        assert 0 <= kernel.whole.line <= kernel.line <= kernel.whole.end_line <= lines


def test_every_deletion_of_a_line_and_its_return() -> None:
    lines = FILE.splitlines(keepends=True)
    tracker = followed(FILE)
    for i in range(len(lines)):
        text = "".join(lines[:i] + lines[i + 1 :])
        result = tracker.scan(text)
        if valid(text):
            same(result, text)
        same(tracker.scan(FILE), FILE)


def test_every_character_typed() -> None:
    """Typing the file from its end: every state in between has a scan, the valid ones the right one."""
    text, tracker = "", followed("")
    for character in FILE:
        text += character
        result = tracker.scan(text)
        if character == "\n" and valid(text):
            same(result, text)
    same(tracker.scan(FILE), FILE)


def test_a_file_between_quotes_has_no_kernels() -> None:
    """The first `'''` has no end and counts as broken; the second makes a string of everything before it."""
    tracker = followed(FILE)
    opened, closed = "'''" + FILE, "'''" + FILE + "'''"
    assert tracker.scan(opened).kernels == scan(FILE).kernels
    assert tracker.scan(closed).kernels == ()
    same(tracker.scan(FILE), FILE)


def test_a_line_that_is_only_continued_belongs_to_the_next() -> None:
    text = FILE.replace("@my\n", "\\\n\\\n@my\n\\\n")
    assert valid(text)
    assert [kernel.name for kernel in scan(text).kernels] == [kernel.name for kernel in scan(FILE).kernels]


# -- while the text is broken --------------------------------------------------------------------

TYPED = dedent("""\
    import triton
    @triton.jit
    def before(x):
        pass

    @triton.jit
    def typed(x, y):
        z = x
        pass

    @triton.jit
    def after(x):
        pass
""")


@pytest.mark.parametrize(
    ("old", "new", "kept"),
    [
        ("z = x", "z = foo(x", "before:3 typed:7 after:12"),
        ("z = x", 'z = """', "before:3 typed:7 after:12"),
        ("z = x", "z = (\n[\n{\n", "before:3 typed:7 after:15"),
        ("(x, y):", "(x, y", "before:3 typed:7 after:12"),
        ("(x, y):", "(x, y, z=(:", "before:3 typed:7 after:12"),
        ("import triton", "import triton, ", "before:3 typed:7 after:12"),
        ("import triton\n", "import triton\n\nx = (\n", "before:5 typed:9 after:14"),
        ("@triton.jit\ndef typed", "@triton.ji(\ndef typed", "before:3 after:12"),
        ("@triton.jit\ndef typed(x, y):\n    z = x\n", "def (\n", "before:3 after:10"),
    ],
)
def test_kernels_do_not_blink_while_someone_types(old: str, new: str, kept: str) -> None:
    tracker = followed(TYPED)
    assert old in TYPED
    text = TYPED.replace(old, new, 1)
    assert not valid(text)
    result = tracker.scan(text)
    assert " ".join(f"{kernel.name}:{kernel.line + 1}" for kernel in result.kernels) == kept
    assert len(result.digests) == len(result.kernels)
    same(tracker.scan(TYPED), TYPED)


def test_a_helper_stays_one_while_its_caller_is_broken() -> None:
    text = TYPED.replace("z = x", "after(x)")
    tracker = TritonTracker()
    helper = tracker.scan(text).kernels[2]
    assert (helper.launchable, helper.callers) == (False, ("typed",))
    result = tracker.scan(text.replace("(x, y):", "(x, y"))
    assert replace(result.kernels[2], whole=helper.whole) == helper


def test_entries_stay_while_the_text_is_broken() -> None:
    text = "def main():\n    pass\n\nif __name__ == '__main__':\n    main()\n"
    tracker = followed(text)
    assert tracker.scan(text.replace("pass", "x = (")).entries == ("main", "__main__")
    assert tracker.scan(text.replace("main()", "main((")).entries == ("main", "__main__")
    assert tracker.scan("x = (").entries == ()


@pytest.mark.parametrize(
    "data", ["x = [@]", "x = (@", "@", "    @", "# @", "x: list = [@]", "x = '''@"], ids=lambda line: line[:8]
)
def test_a_long_line_of_data_hides_no_kernel(data: str) -> None:
    text = FILE.replace("SIZE = 4", data.replace("@", "[1, {2: 3}], " * 8_000))
    tracker = TritonTracker()
    names = [kernel.name for kernel in tracker.scan(text).kernels]
    assert names == [kernel.name for kernel in scan(FILE).kernels]
    at = text.index("{2: 3}") + 1
    changed = text[:at] + "7" + text[at:]
    same(tracker.scan(changed), changed)


def test_data_of_a_long_line_counts() -> None:
    def digests(data: str) -> tuple[str, ...]:
        return scan(f"import triton\nx = [{data * 20_000}]\n@triton.jit\ndef k(a):\n    a[0] = x\n").digests

    assert digests("1, 2, ") != digests("1, 3, ")
    assert digests("1, 2, ") == digests("1, 2, ")
