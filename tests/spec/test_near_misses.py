"""Comments that were meant for launch specs and are not read: a text in; its warnings, and the text after the fix, out."""

from __future__ import annotations

import pytest

from orbit_lsp.specs import spec_cache
from orbit_lsp.views.spec import spec_fixes
from tests.test_quick_fixes import applied
from tests.test_views import Bench

K = "__global__ void k(float* x, int n) {}\n"
LAUNCH = "launch k<<<1, 32>>>(x, 4)"


def warnings(text: str, uri: str = "file:///src/k.cu") -> list[str]:
    """`line: the text that is marked`, of all faults of the specs."""
    bench = Bench(text, uri)
    lines = text.splitlines()
    found = spec_cache.faults(bench.session, uri)
    return [
        f"{fault.span.line}: {lines[fault.span.line][fault.span.column : fault.span.end_column]}: {fault.message}"
        for fault in found
    ]


@pytest.mark.parametrize(
    "begins",
    [
        "// orbit ", "// Orbit: ", "// ORBIT:", "// orbit : ", "// // orbit: ", "//// orbit: ", "// -- orbit: ", "// @orbit: ",
        "// orbit; ", "// orbits: ", "// orbit-lsp: ", "// # orbit: ", "# orbit: ", "/// // orbit: ",
        "// orbit\uff1a", "\t// orbit ", "// * orbit: ", "// orbit = ",
    ],
)  # fmt: skip
def test_a_near_miss_is_a_warning_and_its_fix_makes_a_spec(begins: str) -> None:
    text = f"{begins}x = zeros(4)\n{begins}{LAUNCH}\n{K}"
    why = "This comment is not read as a launch spec; begin it with '// orbit:'."
    assert [line.partition(": ")[0] for line in warnings(text)] == ["0", "1"]
    assert all(line.endswith(why) for line in warnings(text))
    bench = Bench(text)
    (action,) = spec_fixes.actions(bench.session, bench.uri, 1, 1, versioned=False)
    assert action.title == "Write '// orbit:'"
    assert action.diagnostics
    assert [each.range.start.line for each in action.diagnostics] == [1]
    fixed = applied(bench, action)
    assert warnings(fixed) == []
    assert fixed.split("\n")[1].lstrip() == f"// orbit: {LAUNCH}"


@pytest.mark.parametrize("begins", ["# Orbit: ", "# orbit ", "# # orbit: ", "#orbit : ", "// orbit: "])
def test_the_same_in_python(begins: str) -> None:
    text = (
        f"import triton\n{begins}x = zeros(4)\n{begins}launch k[(1,)](x)\n@triton.jit\ndef k(x):\n    pass\n"
    )
    bench = Bench(text, "file:///src/k.py")
    fixed = applied(bench, spec_fixes.actions(bench.session, bench.uri, 2, 2, versioned=False)[0])
    assert [line[:2] for line in warnings(text, "file:///src/k.py")] == ["1:", "2:"]
    assert warnings(fixed, "file:///src/k.py") == []


def test_one_line_of_a_spec_that_was_written_otherwise() -> None:
    text = f"// orbit: x = zeros(4)\n// orbit: n = 4\n// Orbit: expect x == 0\n// orbit: {LAUNCH[:-2]}n)\n{K}"
    assert warnings(text) == [
        "2: // Orbit:: This comment is not read as a launch spec; begin it with '// orbit:'."
    ]


@pytest.mark.parametrize(
    "prose",
    [
        "// Orbit of the satellite",
        "// orbit launch windows are computed on the host",
        "// orbit: the launch spec is explained in the guide, not here",
        "// Orbit: two-body motion, see Vallado",
        "// orbital: launch k<<<1, 32>>>(x)",
        "// the orbit : launch k<<<1, 32>>>(x)",
        "// orbit period = 2 pi sqrt(a^3 / mu)",
        '#include "orbit.h"',
        "#define orbit 1",
        "int orbit = 4;  // orbit launch k<<<1, 32>>>(x)",
    ],
)
def test_prose_about_orbits_is_none(prose: str) -> None:
    assert not any("begin it with" in line for line in warnings(f"{prose}\n{K}"))
