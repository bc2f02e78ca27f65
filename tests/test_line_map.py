"""Lines of the text that ran, found again in the text that stands there now."""

from __future__ import annotations

import pytest

from orbit_lsp.state.line_map import places

RAN = """\
__global__ void k(float* x) {
  __shared__ float t[32];
  t[0] = x[0];
  __syncthreads();
  x[1] = t[0];
  __syncthreads();
  x[2] = t[0];
}
"""


@pytest.mark.parametrize(
    ("now", "place"),
    [
        pytest.param(RAN, "0 1 2 3 4 5 6 7", id="the same"),
        pytest.param("// new\n" + RAN, "1 2 3 4 5 6 7 8", id="a line above"),
        pytest.param(RAN.replace("  ", "    "), "0 1 2 3 4 5 6 7", id="indented otherwise"),
        pytest.param(RAN.replace("x[1] = t[0];", "x[1] = 2 * t[0];"), "0 1 2 3 - 5 6 7", id="one edited"),
        pytest.param(RAN.replace("  t[0] = x[0];\n", ""), "0 1 - 2 3 4 5 6", id="one gone"),
        pytest.param(RAN.replace("x[1]", "a;\n  x[1]").replace("void k", "void j"), "- 1 2 3 5 6 7 8", id="two places"),
        pytest.param(
            "#include <a>\n" + RAN.replace("__shared__", "extern __shared__").replace("x[2]", "x[3]"),
            "1 - 3 4 5 6 - 8", id="twins are told apart by their neighbours",
        ),
        pytest.param("", "- - - - - - - -", id="all gone"),
    ],
)  # fmt: skip
def test_a_line_is_found_where_it_stands_now_or_not_at_all(now: str, place: str) -> None:
    ran = RAN.splitlines()
    where = places(ran, now.splitlines(), range(len(ran)))
    assert " ".join(str(where.get(line, "-")) for line in range(len(ran))) == place


def test_a_line_that_the_text_never_had_is_nowhere() -> None:
    assert places(["a"], ["a"], [-1, 0, 7]) == {0: 0}


@pytest.mark.parametrize(
    ("before", "now"),
    [
        ("a a a b", "a a b"),
        ("x } y } z }", "x } z }"),
        ("} } }", "} }"),
        ("a b a b a b", "b a b a"),
        ("", "a"),
        ("a", ""),
        ("p q r", "r q p"),
        ("} a a a a b", "a - - } a b a -"),
    ],
)
def test_no_two_lines_are_found_in_one_place_and_all_say_the_same(before: str, now: str) -> None:
    old, new = before.split(" "), now.split(" ")
    where = places(old, new, range(-1, len(old) + 1))
    assert len(set(where.values())) == len(where)
    assert all(old[line] == new[place] for line, place in where.items())
