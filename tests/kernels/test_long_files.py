"""A long file costs what its lines cost: four times the lines, some four times the work."""

import gc
import time
from collections.abc import Callable

import pytest

from orbit_lsp.kernels.cuda.cuda_kernels import CudaTracker
from orbit_lsp.kernels.python import slow_lines, triton_kernels
from orbit_lsp.kernels.python.triton_kernels import TritonTracker
from tests.hostile import hostile_texts

MOST_CONTAINERS_A_LINE = 14
TEXTS: dict[str, tuple[type[CudaTracker] | type[TritonTracker], Callable[[int], str], int]] = {
    "assignments": (TritonTracker, hostile_texts.py_lines, 4_000),
    "one name assigned again and again": (TritonTracker, lambda n: hostile_texts.ONE_JIT + "k = f(k)\n" * n, 2_000),
    "an open triple quote": (TritonTracker, hostile_texts.py_open_string, 100_000),
    "comments in a kernel": (TritonTracker, hostile_texts.py_comments, 2_000),
    "continuations in a kernel": (TritonTracker, lambda n: hostile_texts.py_comments(n, "\\"), 2_000),
    "functions": (CudaTracker, hostile_texts.functions, 8_000),
    "lone returns": (CudaTracker, hostile_texts.returns, 8_000),
    "defines below a half-typed declaration": (CudaTracker, lambda n: "int a\n" + hostile_texts.defines(n), 1_000),
    "ifs below a half-typed declaration": (CudaTracker, lambda n: "int a\n" + hostile_texts.open_ifs(n), 1_000),
    "undefs below a half-typed kernel": (CudaTracker, lambda n: "__global__ void k(\n" + "#undef A\n" * n, 500),
    "a directive": (CudaTracker, hostile_texts.backslashes, 100_000),
}  # fmt: skip


@pytest.mark.parametrize("name", TEXTS)
def test_four_times_the_lines_cost_less_than_ten_times_as_much(name: str) -> None:
    tracker_of, text_of, size = TEXTS[name]

    def cost(size: int) -> float:
        """Seconds of CPU time: of the scan, and after two edits."""
        text, tracker = text_of(size), tracker_of()
        middle = text.index("\n", len(text) // 2) + 1 if "\n" in text[len(text) // 2 :] else 0
        began = time.process_time()
        tracker.scan(text)
        tracker.scan(f"{text[:middle]} {text[middle:]}")
        tracker.scan(f" {text}")
        return time.process_time() - began

    gc.disable()
    try:
        assert cost(4 * size) < 10 * max(cost(size), 0.002)
    finally:
        gc.enable()


def test_a_line_without_meaning_takes_few_containers() -> None:
    lines = 2_000
    text = hostile_texts.py_lines(lines)
    gc.collect()
    before = len(gc.get_objects())
    tracker = TritonTracker()
    tracker.scan(text)
    assert len(gc.get_objects()) - before < MOST_CONTAINERS_A_LINE * lines


COMMENTS = "    # a word\n    #é\n\n" * 30


@pytest.mark.parametrize("spec", ["    # orbit: a = 1\n" * 300, ""])
def test_many_comments_change_nothing_of_what_is_found(spec: str) -> None:
    def text(inside: str) -> str:
        return f"import triton\n\n\n# orbit: n = 1\n@triton.jit\ndef k(x):\n    y = 1\n{inside}    @triton.jit\n    def inner(é):\n        pass\n"

    few, many = triton_kernels.scan(text(spec)), triton_kernels.scan(text(COMMENTS + spec))
    by = COMMENTS.count("\n")
    assert [(kernel.name, kernel.name_span.column) for kernel in many.kernels] == [("k", 4), ("inner", 8)]
    assert many.kernels[1].line == few.kernels[1].line + by
    assert many.digests == few.digests


def test_each_of_many_lines_of_a_launch_spec_counts() -> None:
    def digest(last: str) -> str:
        lines = "# orbit: a = 1\n" * 300 + f"# orbit: {last}\n"
        return triton_kernels.scan(
            f"import triton\nx = 1\n{lines}@triton.jit\ndef k(x):\n    pass\n"
        ).digests[0]

    assert digest("b = 1") != digest("b = 2")


@pytest.mark.parametrize(
    "text",
    ["a", "# a\n" * 40, "# orbit: é\n" * 240, "\\\n" * 40 + "a", "'''\n" + "# a\n" * 40 + "'''", "x # a\n" * 40, "é # ü\n#ü\n" + "#ü\n" * 40],
)  # fmt: skip
def test_what_the_parser_is_given_is_as_long_line_by_line(text: str) -> None:
    data, _ = slow_lines.blanked(text)
    assert [len(line) for line in data.split(b"\n")] == [len(line) for line in text.encode().split(b"\n")]
    assert (data == text.encode()) == (text[0] in "a'x")
