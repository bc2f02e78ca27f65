"""scripts/mutants.py: what its rules make of a kernel, and what they leave alone."""

from __future__ import annotations

import sys
from pathlib import Path
from textwrap import dedent

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "scripts"))
import mutant_reasons
import mutant_rules
import mutants


def check(file: Path, text: str, expected: str, *rules: str) -> None:
    """Every line that differs from the original, in the order of the rules."""
    file.write_text(dedent(text).lstrip("\n"), encoding="utf-8")
    of = mutant_rules.source(file, "k")
    results: list[str] = []
    for rule in rules or mutant_rules.RULES:
        for part in mutant_rules.RULES[rule]:
            for change in part(of):
                after = of.text[: change.start] + change.text + of.text[change.end :]
                first = of.text.rfind("\n", 0, change.start) + 1
                results.append(after[first:].partition("\n")[0].strip())
    assert "\n".join(results) == dedent(expected).strip("\n")


@pytest.fixture
def cuda(tmp_path: Path) -> Path:
    return tmp_path / "k.cu"


@pytest.fixture
def triton(tmp_path: Path) -> Path:
    return tmp_path / "k.py"


def test_a_guarded_store(cuda: Path) -> None:
    check(
        cuda,
        """
        __global__ void k(int n, float a, const float* x, float* y) {
          if (threadIdx.x < n) y[threadIdx.x] = a * x[threadIdx.x] + 0.5f;
        }
        """,
        """
        if (threadIdx.x <= n) y[threadIdx.x] = a * x[threadIdx.x] + 0.5f;
        if (threadIdx.x + 1 < n) y[threadIdx.x] = a * x[threadIdx.x] + 0.5f;
        if (true) y[threadIdx.x] = a * x[threadIdx.x] + 0.5f;
        if (threadIdx.x < n) y[threadIdx.x + 1] = a * x[threadIdx.x] + 0.5f;
        if (threadIdx.x < n) y[threadIdx.x] = a * x[threadIdx.x + 1] + 0.5f;
        if (threadIdx.x < n) if (blockIdx.x + threadIdx.x > 0) y[threadIdx.x] = a * x[threadIdx.x] + 0.5f;
        if (threadIdx.x < n) y[threadIdx.x] = a * x[threadIdx.x] + 0.505f;
        if (threadIdx.x < n) y[threadIdx.x] = a + x[threadIdx.x] + 0.5f;
        if (threadIdx.x < n) y[threadIdx.x] = a * x[threadIdx.x] - 0.5f;
        if (threadIdx.y < n) y[threadIdx.x] = a * x[threadIdx.x] + 0.5f;
        if (threadIdx.x < n) y[threadIdx.y] = a * x[threadIdx.x] + 0.5f;
        if (threadIdx.x < n) y[threadIdx.x] = a * x[threadIdx.y] + 0.5f;
        if (threadIdx.x < n) y[threadIdx.x] = a + 0.5f;
        __global__ void k(int n, float a, const float* x, float* y) {
        """,
    )


def test_declarations_steps_masks_and_comments_stay(cuda: Path) -> None:
    check(
        cuda,
        """
        __global__ void k(float* y) {
          __shared__ float tile[32][32 + 1];  // 32 + 1
          float sums[4] = {};
        #pragma unroll 8
          for (int i = 0; i < 4; i += 2) sums[i] += __shfl_xor_sync(0xffffffff, tile[i][0], 16);
        }
        """,
        """
        for (int i = 0; i + 1 < 4; i += 2) sums[i] += __shfl_xor_sync(0xffffffff, tile[i][0], 16);
        for (int i = 1; i < 4; i += 2) sums[i] += __shfl_xor_sync(0xffffffff, tile[i][0], 16);
        for (int i = 0; i < 5; i += 2) sums[i] += __shfl_xor_sync(0xffffffff, tile[i][0], 16);
        for (int i = 0; i < 4; i += 2) sums[i] += __shfl_xor_sync(0xffffffff, tile[i][1], 16);
        for (int i = 0; i < 4; i += 2) sums[i] += __shfl_xor_sync(0xffffffff, tile[i][0], 17);
        for (int i = 0; i < 4; i += 2) sums[i] = __shfl_xor_sync(0xffffffff, tile[i][0], 16);
        for (int i = 0; i < 4; i += 2) sums[i] += __shfl_xor_sync(0xffffffff, tile[0][i], 16);
        """,
        "one short", "wrong constant", "wrong operator", "not accumulated", "indices swapped",
    )  # fmt: skip


def test_a_function_that_the_kernel_calls_is_part_of_it(cuda: Path) -> None:
    check(
        cuda,
        """
        __device__ float twice(float x) { return x * 2.0f; }
        __device__ float thrice(float x) { return x * 3.0f; }
        __global__ void k(float* y) { y[0] = twice(y[0]); }
        """,
        """
        __global__ void k(float* y) { y[1] = twice(y[0]); }
        __global__ void k(float* y) { y[0] = twice(y[1]); }
        __device__ float twice(float x) { return x * 2.02f; }
        """,
        "wrong constant",
    )


def test_triton(triton: Path) -> None:
    check(
        triton,
        """
        import triton
        import triton.language as tl

        @triton.jit
        def k(x, n, BLOCK: tl.constexpr):
            at = tl.arange(0, BLOCK)
            tl.store(x + at, tl.load(x + at, mask=at < n, other=0.0) * 2, mask=at < n)
        """,
        """
        tl.store(x + at + 1, tl.load(x + at, mask=at < n, other=0.0) * 2, mask=at < n)
        tl.store(x + at, tl.load(x + at + 1, mask=at < n, other=0.0) * 2, mask=at < n)
        tl.store(x + at, tl.load(x + at, mask=(at < n) == (at < n), other=0.0) * 2, mask=at < n)
        tl.store(x + at, tl.load(x + at, mask=at < n, other=0.0) * 2, mask=(at < n) == (at < n))
        if tl.program_id(0) > 0: tl.store(x + at, tl.load(x + at, mask=at < n, other=0.0) * 2, mask=at < n)
        """,
        "index off by one", "no bound", "unwritten",
    )  # fmt: skip


def test_a_guard_that_leaves_is_dropped_by_never_leaving(cuda: Path) -> None:
    check(
        cuda,
        """
        __global__ void k(int n, float* y) {
          if (threadIdx.x >= n) return;
          y[threadIdx.x] = 0.0f;
        }
        """,
        "if (false) return;",
        "no bound",
    )


# -- which are made, and which set aside ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("names", "every", "expected"),
    [
        ([], False, "bound off by one, one short, no bound, index off by one, unwritten, wrong constant, computes once"),
        (["wrong tail"], False, "one short, no bound"),
        (["computes once", "wrong operator"], False, "wrong operator, computes once"),
        ([], True, ", ".join(mutant_rules.RULES)),
    ],
)  # fmt: skip
def test_five_kinds_are_made_unless_others_are_named(names: list[str], every: bool, expected: str) -> None:
    assert ", ".join(mutant_rules.chosen(names, every=every)) == expected


def test_how_many_each_kind_makes() -> None:
    rules = ["one short", "no bound", "one short", "wrong constant", "wrong operator"]
    made = [mutants.Mutant("f", "e", "k", rule, 1, "", "") for rule in rules]
    assert "\n".join(mutants.made(made)) == dedent("""\
        wrong tail 3 (one short 2, no bound 1)
        wrong constant 1
        others 1 (wrong operator 1)""")


def check_aside(rule: str, original: str, mutated: str, expected: str) -> None:
    """The category of a mutant, of which only this line is another."""
    around = "__global__ void k(float* y) {{ __shared__ float kept[32];\n  {}\n}}"
    category, why = mutants.reason("k", rule, mutated, around.format(original), around.format(mutated))
    assert (category, bool(why)) == (expected, bool(expected))


@pytest.mark.parametrize(
    ("rule", "original", "mutated", "expected"),
    [
        ("wrong constant", "for (int o = 16; o > 0; o /= 2) x += __shfl_xor_sync(0xffffffff, x, o);", "for (int o = 17; o > 0; o /= 2) x += __shfl_xor_sync(0xffffffff, x, o);", "with the original's results"),
        ("wrong constant", "for (int o = 16; o > 0; o /= 2) x += __shfl_down_sync(0xffffffff, x, o);", "for (int o = 17; o > 0; o /= 2) x += __shfl_down_sync(0xffffffff, x, o);", ""),
        ("wrong constant", "for (int o = 8; o > 0; o /= 2) x += __shfl_xor_sync(0xffffffff, x, o);", "for (int o = 9; o > 0; o /= 2) x += __shfl_xor_sync(0xffffffff, x, o);", ""),
        ("no bound", "x = sum(lane < 8 ? y[lane] : 0.0f);", "x = sum(true ? y[lane] : 0.0f);", ""),
        ("one short", "x = sum(lane < 8 ? kept[lane] : 0.0f);", "x = sum(lane + 1 < 8 ? kept[lane] : 0.0f);", ""),
    ],
)  # fmt: skip
def test_what_a_rule_sets_aside(rule: str, original: str, mutated: str, expected: str) -> None:
    check_aside(rule, original, mutated, expected)


def test_what_is_argued_is_made_from_the_examples_as_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mutants, "_assembled", lambda *_: "not compiled here")
    made = mutants.make(tmp_path, mutant_rules.chosen([], every=True))
    lines = {(item.kernel, item.rule, item.mutated) for item in made}
    argued = {(kernel, rule, line.removesuffix(" #2")) for kernel, rule, line in mutant_reasons.ARGUED}
    assert argued <= lines


def test_the_report_counts_every_mutant() -> None:
    item = mutants.Mutant("a.cu", "matmul.cu", "matmul", "one short", 1, "i < n", "i + 1 < n")
    aside = mutants.replace(item, file="b.cu", category=mutant_reasons.MEMCHECK, aside="because")
    broken = mutants.replace(item, file="c.cu", broken="error")
    late = mutants.replace(item, file="d.py")
    outcomes = {"a.cu": "ok", "b.cu": "wrong answer", "d.py": "compile error"} | {
        example: "ok" for example, _ in mutants.KERNELS
    }
    ended = {file: mutants.c.Finished("1", outcome) for file, outcome in outcomes.items()}
    table, passed = mutants.report([item, aside, broken, late], ended)
    assert not passed
    for words in (
        "0 of 1 mutants found, 1 missed; 0 false alarms on the 10 originals.",
        "1 that only reach out of bounds (1 found all the same), 2 that do not compile.",
        "| wrong tail: one short |",
    ):
        assert words in table
