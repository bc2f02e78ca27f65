"""Triton files compiled without a GPU as a launch spec, or a launch in the file, launches them."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from orbit_lsp.kernels.python import triton_kernels
from orbit_lsp.specs import job_builder
from tests.remote.python_children import HEAD

pytest.importorskip("triton")

COPY = """
@triton.jit
def copy(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at, mask=at < n), mask=at < n)
"""


def test_a_spec_says_types_constants_and_what_numbers_are_divisible_by(check_compiled):
    check_compiled(
        "# orbit: n = 1 << 20; x = randn(n, dtype=torch.bfloat16); y = empty_like(x)"
        "\n# orbit: launch copy[(triton.cdiv(n, 512),)](x, y, n, BLOCK=512, num_warps=2)" + COPY,
        """
        copy: BLOCK 512; num_warps 2; x *bf16, 16-byte aligned; y *bf16, 16-byte aligned; n i32, divisible by 16
        (copy: types and constants of its launch spec)
        """,
    )


def test_views_that_begin_elsewhere_are_less_aligned(check_compiled):
    check_compiled(
        "# orbit: n = 1001; x = randn(n + 1); y = zeros(n)"
        "\n# orbit: launch copy[(1,)](x[1:], y, n, BLOCK=1024)" + COPY,
        """
        copy: BLOCK 1024; num_warps 4; x *fp32; y *fp32, 16-byte aligned; n i32
        (copy: types and constants of its launch spec)
        """,
    )


def test_one_none_truth_values_and_large_numbers_are_what_the_jit_makes_of_them(check_compiled):
    check_compiled(
        """
        # orbit: x = zeros(64, dtype=torch.int64)
        # orbit: launch k[(1,)](x, 1, None, True, 1 << 40, 0.5, tl.float16)
        @triton.jit
        def k(x, step, nothing, flag, many, factor, kind: tl.constexpr):
            tl.store(x + tl.arange(0, 64) * step, many)
        """,
        """
        k: kind fp16; num_warps 4; x *i64, 16-byte aligned; step 1; nothing None; flag u1; many i64, divisible by 16; factor fp32
        (k: types and constants of its launch spec)
        """,
    )


def test_of_swept_values_the_first_are_compiled_for(check_compiled):
    check_compiled(
        "# orbit: n = sweep(100, 1 << 20); x = rand(n, dtype=torch.float16); y = zeros_like(x)"
        "\n# orbit: launch copy[(1,)](x, y, n, BLOCK=triton.next_power_of_2(n))\n# orbit: case odd: n = 7"
        + COPY,
        """
        copy: BLOCK 128; num_warps 4; x *fp16, 16-byte aligned; y *fp16, 16-byte aligned; n i32
        (copy: types and constants of its launch spec)
        """,
    )


TILES = """
    @triton.jit
    def k(a, c):
        tl.static_assert(a.block_shape[0] == 64)
        c.store([0, 0], tl.dot(a.load([0, 0]), a.load([0, 0]).T).to(tl.float16))
"""


def test_descriptors_have_the_blocks_of_from_tensor(check_compiled):
    check_compiled(
        """
        # orbit: a = randn(256, 128, dtype=torch.float16); c = empty(256, 256, dtype=torch.float16)
        # orbit: launch k[(1,)](TensorDescriptor.from_tensor(a, [64, 32]), TensorDescriptor.from_tensor(c, [64, 64]))
        """
        + TILES.replace("\n    ", "\n        "),
        """
        k: num_warps 4; a tensordesc<fp16[64, 32]>; c tensordesc<fp16[64, 64]>
        (k: types and constants of its launch spec)
        """,
    )


def test_a_descriptor_that_nothing_describes_needs_a_run(check_compiled):
    check_compiled(
        TILES,
        "(k was not compiled: the file does not say which blocks a, c describe; a launch spec above it does "
        "(`orbit-lsp draft` writes one))",
    )


@pytest.mark.slow
def test_of_many_configurations_the_first_four_and_hooks_and_heuristics_have_their_say(check_compiled):
    check_compiled(
        """
        def even(arguments):
            return arguments["n"] % arguments["BLOCK"] == 0

        def hook(arguments):
            arguments["y"].zero_()

        # orbit: n = 1024; x = randn(n); y = empty(n)
        # orbit: launch k[lambda META: (triton.cdiv(n, META["BLOCK"]),)](x, y, n)
        @triton.autotune([triton.Config({"BLOCK": 96 + 32 * i}, num_warps=1, pre_hook=hook) for i in range(1, 30, 4)], key=["n"],
            prune_configs_by={"early_config_prune": lambda configs, named, **given: [c for c in configs if c.kwargs["BLOCK"] < 700]})
        @triton.heuristics({"EVEN": even})
        @triton.jit
        def k(x, y, n, BLOCK: tl.constexpr, EVEN: tl.constexpr):
            at = tl.program_id(0) * BLOCK
            tl.store(y + at, tl.load(x + at))
        """,
        """
        k: BLOCK 128; EVEN True; num_warps 1; x *fp32, 16-byte aligned; y *fp32, 16-byte aligned; n i32, divisible by 16
        k: BLOCK 256; EVEN True; num_warps 1; x *fp32, 16-byte aligned; y *fp32, 16-byte aligned; n i32, divisible by 16
        k: BLOCK 384; EVEN False; num_warps 1; x *fp32, 16-byte aligned; y *fp32, 16-byte aligned; n i32, divisible by 16
        k: BLOCK 512; EVEN True; num_warps 1; x *fp32, 16-byte aligned; y *fp32, 16-byte aligned; n i32, divisible by 16
        (k: types and constants of its launch spec)
        (k: the first 4 of 5 configurations were compiled)
        """,
    )


def test_a_kernel_without_a_spec_is_compiled_as_anothers_launches_it(check_compiled):
    first = "# orbit: x = rand(9); y = rand(9)\n# orbit: launch twin[(1,)](y, x, 9, BLOCK=16)\n# orbit: launch copy[(1,)](x, y, 9, BLOCK=32)"
    check_compiled(
        first + COPY + COPY.replace("copy", "twin"),
        """
        copy: BLOCK 32; num_warps 4; x *fp32, 16-byte aligned; y *fp32, 16-byte aligned; n i32
        twin: BLOCK 16; num_warps 4; x *fp32, 16-byte aligned; y *fp32, 16-byte aligned; n i32
        (copy: types and constants of its launch spec)
        (twin: types and constants of its launch spec)
        """,
    )


def test_an_error_with_the_types_of_the_spec_is_one(check_compiled):
    check_compiled(
        """
        # orbit: x = rand(64)
        # orbit: launch k[(1,)](x)
        @triton.jit
        def k(x):
            tl.static_assert(x.dtype.element_ty == tl.float64, "doubles only")
        """,
        "triton: doubles only",
    )


WRAPPED = (
    COPY
    + """
def run_copy(x):
    y = torch.empty_like(x)
    n = x.numel()
    BLOCK = triton.next_power_of_2(n)
    warps = 4
    if BLOCK >= 2048:
        warps = 8
    copy[(1,)](x, y, n, BLOCK=BLOCK, num_warps=warps)
    return y
"""
)


def test_a_launch_in_the_file_tells_types_and_constants(check_compiled):
    check_compiled(
        WRAPPED
        + """
def main():
    x = torch.randn(50, 60, device="cuda", dtype=torch.float16)
    assert torch.equal(run_copy(x), x)
""",
        """
        copy: BLOCK 4096; num_warps 8; x *fp16, 16-byte aligned; y *fp16, 16-byte aligned; n i32
        (copy: types and constants as launched on line 17, called from main)
        """,
    )


def test_a_constant_that_follows_from_what_nobody_passes_is_assumed_as_any_other(check_compiled):
    check_compiled(
        WRAPPED,
        """
        copy: BLOCK 64 (assumed); num_warps 4; x *fp32 (assumed); y *fp32 (assumed); n i32 (assumed)
        (copy: BLOCK = 64 and argument types assumed; write them in a launch spec above it (`orbit-lsp draft` writes one))
        """,
    )


def test_types_that_are_guessed_are_marked(check_compiled):
    check_compiled(
        COPY + "def run_copy(x, y, n):\n    copy[(1,)](x, y, n, BLOCK=64)\n",
        """
        copy: BLOCK 64; num_warps 4; x *fp32, 16-byte aligned (assumed); y *fp32, 16-byte aligned (assumed); n i32, divisible by 16 (assumed)
        (copy: types and constants as launched on line 10; n, x, y assumed)
        """,
    )


def test_a_number_whose_type_an_annotation_tells_is_not_assumed(check_compiled):
    check_compiled(
        COPY.replace("(x, y, n,", "(x, y, a, n,").replace("tl.load(", "a * tl.load(")
        + "def run_copy(x, y, a: float, n: int):\n    copy[(1,)](x, y, a, n, BLOCK=64)\n",
        """
        copy: BLOCK 64; num_warps 4; x *fp32, 16-byte aligned (assumed); y *fp32, 16-byte aligned (assumed); a fp32; n i32, divisible by 16 (assumed)
        (copy: types and constants as launched on line 10; a, n, x, y assumed)
        """,
    )


PRODUCT = """
@triton.jit
def half(v):
    return v // 2


@triton.jit
def k(x_ptr, y_ptr, n, stride, kind: tl.constexpr, SIDE: tl.constexpr):
    row = half(tl.program_id(0) + n)
    at = row * stride + tl.arange(0, SIDE)
    value = tl.load(x_ptr + at)
    {}
    tl.store(y_ptr + at, value)


def product(x):
    n, m = x.shape
    y = torch.empty((n, m), dtype=torch.float16)
    {}
"""
BY_PLACE = "k[(n,)](x, y, n, x.stride(0), 1, 64)"
BY_NAME = "k[(n,)](stride=x.stride(0), kind=1, y_ptr=y, x_ptr=x, SIDE=64, n=n)"
SILENT = (
    "k was not compiled: the file does not say what kind, SIDE are; a launch spec above it does "
    "(`orbit-lsp draft` writes one)"
)
POWER = "a value of type tensor has no `__pow__`"


@pytest.mark.parametrize(
    ("statement", "launch", "message"),
    [
        ("row = row ** 2", BY_PLACE, POWER),
        ("row = row ** 2", BY_NAME, POWER),
        ("row = row ** 2", "k[(n,)](x.view(-1), y, x.numel(), x.size(0), 1, 64)", POWER),
        ("value += half(row + stride) ** 2", BY_PLACE, POWER),
        ("if kind: row = row ** 2", BY_PLACE, POWER),
        ("at = at + tl.arange(0, SIDE // 2)", BY_PLACE, "Cannot make_shape_compatible: incompatible dimensions at index 0: 64 and 32"),
        ("tl.static_assert(y_ptr.dtype.element_ty == tl.float32, 'no floats')", BY_PLACE, "no floats"),
    ],
    ids=["by place", "by name", "of a view", "through a call", "a branch on a constant", "shapes", "a type that is known"],
)  # fmt: skip
def test_an_error_that_no_guess_can_cause_is_one(check_compiled, statement, launch, message):
    check_compiled(PRODUCT.format(statement, launch), f"triton: {message}")


@pytest.mark.parametrize(
    ("statement", "launch", "says"),
    [
        ("value = value << 1", BY_PLACE, "15: invalid operands of type triton.language.float32 and triton.language.float32"),
        ("if x_ptr.dtype.element_ty == tl.float32: row = row ** 2", BY_PLACE, f"15: {POWER}"),
        ("half(value)", BY_NAME, "7: unexpected type fp32"),
        ("half(tl.load(y_ptr + at))", "k[(n,)](y, x.view(-1), n, x.stride(0), 1, 64)", "7: unexpected type fp32"),
        ("half(tl.load(y_ptr + at))", "k[(n,)](x, x, n, x.stride(0), 1, 64)", "7: unexpected type fp32"),
        ("stride = stride.to(tl.int64)", "k[(n,)](x, y, n, x.stride(1), 1, 64)", "15: a value of type int has no `to`"),
    ],
    ids=["a type", "a branch on a type", "through a call", "a view", "one tensor for two", "the constant 1"],
)  # fmt: skip
def test_an_error_that_a_guess_may_cause_is_a_remark(job, statement, launch, says):
    text = HEAD + PRODUCT.format(statement, launch)
    launches = job_builder.host_launches(text, triton_kernels.scan(text))
    finished = job(text, action="compile", host_launches=launches).finished
    assert finished.problems == ()
    assert finished.remarks[0] == f"k: with x assumed for the launch on line 22, Triton says, line {says}"


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("value = tl.dot(value, value)", "input and other must have equal ranks >= 2"),
        ("value = x_ptr * x_ptr", "invalid operands of type pointer<fp32> and pointer<fp32>"),
    ],
)
def test_with_the_constants_of_the_launch_an_error_of_every_type_is_one(check_compiled, statement, message):
    check_compiled(
        PRODUCT.format(statement, "k[(n,)](x, x.view(-1), n, x.stride(0), 1, 64)"),
        f"""
        triton: {message}
        (k: with x assumed for the launch on line 22, Triton says, line 15: {message})
        """,
    )


def test_what_only_several_types_make_right_is_no_error(job):
    """The tensor is known by its launch alone: nothing loads from its address itself."""
    text = HEAD + textwrap.dedent("""
        @triton.jit
        def k(x_ptr, w_ptr, SIDE: tl.constexpr):
            block = tl.make_block_ptr(base=x_ptr, shape=(SIDE,), strides=(1,), offsets=(0,), block_shape=(SIDE,), order=(0,))
            bits = tl.load(w_ptr + tl.arange(0, SIDE)) >> 4
            tl.store(block, tl.exp(tl.load(block)) * bits)

        def product(x, w):
            k[(1,)](x, w, 64)
    """)
    launches = job_builder.host_launches(text, triton_kernels.scan(text))
    assert job(text, action="compile", host_launches=launches).finished.problems == ()


def test_what_is_known_of_a_launch_counts_where_a_constant_is_not(check_compiled):
    launch = "k[(n,)](x, y, n, x.stride(0), triton.next_power_of_2(m), 8)"
    check_compiled(
        PRODUCT.format("tl.static_assert(SIDE > 8, 'too short')", launch),
        "triton: too short",
    )
    check_compiled(
        PRODUCT.format("tl.static_assert(kind < 8, 'too large')", launch),
        f"({SILENT.replace('kind, SIDE are', 'kind is')})",
    )


def test_no_code_is_made_of_a_block_whose_size_is_a_guess(job):
    """It has a million elements, of which ptxas makes code for minutes."""
    text = (
        HEAD
        + COPY
        + "\ndef f(x, y):\n    copy[(1,)](x, y, x.numel(), BLOCK=triton.next_power_of_2(x.numel()))\n"
    )
    launches = job_builder.host_launches(text, triton_kernels.scan(text))
    assert launches[0].unknown == ("x",)
    finished = job(text, action="compile", host_launches=launches).finished
    assert [each.constants["BLOCK"] for each in finished.resources] == ["64 (assumed)"]


def test_of_a_launch_that_unpacks_its_arguments_no_type_is_known(check_compiled):
    """Constants that stand behind the star are known all the same."""
    check_compiled(
        PRODUCT.format("row = row ** 2", "k[(n,)](x, y, *x.some(), 1, 64)"),
        "triton: a value of type tensor has no `__pow__`",
    )
    check_compiled(
        PRODUCT.format("row = row ** 2", "k[(n,)](x, y, *x.some(), *x.more())"),
        f"triton: with kind = 64, SIDE = 64 assumed, Triton says: {POWER}\n({SILENT})",
    )


def test_constants_that_heuristics_make_of_guessed_sizes_may_cause_an_error(job):
    text = HEAD + textwrap.dedent("""
        @triton.heuristics({"SIDE": lambda given: given["n"] // 16 * 3})
        @triton.jit
        def k(x_ptr, n, SIDE: tl.constexpr):
            tl.store(x_ptr + tl.arange(0, SIDE), 1)

        def fill(x):
            k[(1,)](x, x.shape[0])
    """)
    launches = job_builder.host_launches(text, triton_kernels.scan(text))
    finished = job(text, action="compile", host_launches=launches).finished
    assert [problem.severity for problem in finished.problems] == ["information"]
    assert finished.remarks[0].endswith("Triton says, line 8: arange's range must be a power of 2")


def test_the_autotuner_passes_over_what_fails_an_assertion(check_compiled):
    check_compiled(
        """
        @triton.autotune([triton.Config({"SIDE": side}, num_warps=1) for side in (32, 64)], key=[])
        @triton.jit
        def k(x, SIDE: tl.constexpr):
            tl.static_assert(SIDE > 32)
            tl.store(x + tl.arange(0, SIDE), 1)

        def main():
            x = torch.empty(64, device="cuda")
            k[(1,)](x)
        """,
        """
        k: SIDE 64; num_warps 1; x *fp32, 16-byte aligned
        (k: types and constants as launched on line 13)
        """,
    )


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("tl.loud(x)", "triton.language has no `loud`"),
        ("tl.store(x, nowhere)", "nowhere is not defined"),
        ("raise ValueError(1)", "unsupported AST node type: Raise"),
    ],
)
def test_errors_of_the_front_end_are_in_words(check_compiled, statement, words):
    check_compiled(f"@triton.jit\ndef k(x):\n    {statement}\n    tl.store(x, 1)", f"triton: {words}")


def test_a_spec_with_an_error_is_not_used(check_compiled):
    check_compiled(
        "# orbit: x = rand(9)\n# orbit: launch copy[(1,)](x, y, 9, BLOCK=16)" + COPY,
        """
        copy: BLOCK 64 (assumed); num_warps 4; x *fp32 (assumed); y *fp32 (assumed); n i32 (assumed)
        (copy: its launch spec has an error in line 5 and was not used)
        (copy: BLOCK = 64 and argument types assumed; write them in a launch spec above it (`orbit-lsp draft` writes one))
        """,
    )


def test_what_only_the_jit_refuses_falls_back_too(check_compiled):
    check_compiled(
        """
        # orbit: x = rand(9)
        # orbit: launch k[(1,)](TensorDescriptor.from_tensor(x[1:], [8]))
        @triton.jit
        def k(x, B: tl.constexpr = 8):
            tl.store(x + tl.arange(0, B), 1)
        """,
        """
        k: B 8; num_warps 4; x *fp32 (assumed)
        (k: Triton does not take the arguments of its launch spec)
        (k: constants by default; argument types assumed)
        """,
    )


EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.slow
@pytest.mark.parametrize(
    "path", [p for p in EXAMPLES.glob("*.py") if "# orbit: launch" in p.read_text()], ids=lambda p: p.name
)
def test_every_example_with_a_spec_has_its_figures_without_a_gpu(path, job):
    done = job(path.read_text(), name=path.name, action="compile", architecture="sm_90a")
    assert (done.finished.outcome, done.finished.problems) == ("ok", ())
    assert done.finished.resources
    for resource in done.finished.resources:
        assert resource.registers
        assert resource.dynamic_shared
        assert None not in (resource.spill_stores, resource.spill_loads)
        assert not any("assumed" in value for value in resource.constants.values())


LAUNCHES = {
    "an unknown grid": (
        """
        def run(x, y):
            (M, K), (_, N) = x.shape, y.shape
            k[(triton.cdiv(M, 128), triton.cdiv(N, 128))](x, M, 128, True)
        """,
        "SIDE 128; FLAG True",
    ),
    "sizes of a call": ("def run(x):\n    M, K = sizes(x)\n    k[(M, K)](x, M, SIDE=128, FLAG=True)\n", "SIDE 128; FLAG True"),
    "a class's": ("class Ops:\n    kernel = k\n\ndef run(x):\n    Ops.kernel[grid(x)](x, x.some(), SIDE=256, FLAG=False)\n", "SIDE 256; FLAG False"),
    "an instance's": (
        """
        class Op:
            def __init__(self):
                self.launch = k

            def __call__(self, x):
                self.launch[(self.blocks,)](x, self.n, 32, FLAG=False)
        """,
        "SIDE 32; FLAG False",
    ),
    "a module's": ("def run(x, mod):\n    mod.k[mod.grid](x, mod.n, 512, True)\n", "SIDE 512; FLAG True"),
    "a star": ("def run(x):\n    k[(1,)](*x.all(), 16, False)\n", "SIDE 16; FLAG False"),
    "names of the function": ("def run(x):\n    WIDE = 64\n    k[grid(x)](x, x.some(), WIDE, FLAG=True)\n", "SIDE 64; FLAG True"),
}  # fmt: skip


@pytest.mark.parametrize("launch", LAUNCHES.values(), ids=LAUNCHES)
def test_what_is_not_known_of_a_launch_does_not_hide_its_constants(job, launch: tuple[str, str]):
    code, constants = launch
    text = (
        HEAD
        + textwrap.dedent("""
            @triton.jit
            def k(x, n, SIDE: tl.constexpr, FLAG: tl.constexpr):
                tl.store(x + tl.arange(0, SIDE), 1.0, mask=tl.arange(0, SIDE) < n if FLAG else None)
        """)
        + textwrap.dedent(code)
    )
    launches = job_builder.host_launches(text, triton_kernels.scan(text))
    (resources,) = job(text, action="compile", host_launches=launches).finished.resources
    assert f"SIDE {resources.constants['SIDE']}; FLAG {resources.constants['FLAG']}" == constants


def test_heuristics_make_their_own_constants(check_compiled):
    check_compiled(
        """
        @triton.autotune(configs=[triton.Config({"SIDE": 16})], key=["n"])
        @triton.heuristics({"EVEN": lambda given: given["n"] % given["SIDE"] == 0, "LONG": lambda given: given["x"].numel()})
        @triton.jit
        def k(x, n, SIDE: tl.constexpr, EVEN: tl.constexpr):
            tl.store(x + tl.arange(0, SIDE), 1.0 if EVEN else 2.0)
        """,
        """
        k: SIDE 16; EVEN True (assumed); num_warps 4; x *fp32 (assumed); n i32 (assumed)
        (k: constants of autotune's configurations; EVEN by heuristics for sizes of 1048576; argument types assumed)
        """,
    )


def test_heuristics_that_take_a_row_whole_get_a_row_that_compiles(check_compiled):
    check_compiled(
        """
        @triton.heuristics({"B": lambda given: triton.next_power_of_2(given["n"]), "W": lambda given: 8 if given["B"] > 512 else 4})
        @triton.jit
        def k(x, n, B: tl.constexpr, W: tl.constexpr):
            tl.store(x + tl.arange(0, B), 1.0, mask=tl.arange(0, B) < n)
        """,
        """
        k: B 1024 (assumed); W 8 (assumed); num_warps 4; x *fp32 (assumed); n i32 (assumed)
        (k: no constants to assume; B, W by heuristics for sizes of 1024; argument types assumed)
        """,
    )


def test_a_kernel_that_a_call_makes_has_its_own_spec_and_name(check_compiled):
    check_compiled(
        """
        def raw(x, B: tl.constexpr):
            tl.store(x + tl.arange(0, B), 1.0)
        # orbit: x = zeros(128)
        # orbit: launch wrapped[(1,)](x, B=128)
        wrapped = triton.jit(raw)
        """,
        """
        wrapped: B 128; num_warps 4; x *fp32, 16-byte aligned
        (wrapped: types and constants of its launch spec)
        """,
    )
    check_compiled(
        """
        def raw(x, B: tl.constexpr):
            tl.store(x + tl.arange(0, B), 1.0)
        # orbit: launch wrapped[(1,)](x, B=128)
        wrapped = triton.jit(raw)
        """,
        """
        wrapped: B 64 (assumed); num_warps 4; x *fp32 (assumed)
        (wrapped: its launch spec has an error in line 7 and was not used)
        (wrapped: B = 64 and argument types assumed; write them in a launch spec above it (`orbit-lsp draft` writes one))
        """,
    )


def test_a_value_for_what_no_mask_hides_is_an_error_whatever_the_sizes_are(check_compiled):
    check_compiled(
        """
        @triton.jit
        def kernel(x, y, B: tl.constexpr):
            i = tl.arange(0, B)
            tl.store(y + i, tl.load(x + i, other=0.0))
        """,
        """
        triton: `other` cannot be provided without `mask`
        """,
    )


def test_what_a_configuration_sets_that_is_no_parameter_is_a_remark(check_compiled):
    check_compiled(
        """
        @triton.autotune(configs=[triton.Config({"B": 16, "C": 2, "waves_per_eu": 2})], key=["n"])
        @triton.jit
        def kernel(a, n, B: tl.constexpr):
            tl.store(a + tl.arange(0, B), 1.0, mask=tl.arange(0, B) < n)
        """,
        """
        kernel: B 16; C 2; waves_per_eu 2; num_warps 4; a *fp32 (assumed); n i32 (assumed)
        (kernel: autotune's configurations set C, which is no parameter of it)
        (kernel: constants of autotune's configurations; argument types assumed)
        """,
    )
