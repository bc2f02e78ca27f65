"""Triton files compiled without a GPU and without a run: by launches in the text, by guesses, by launch specs."""

from __future__ import annotations

import base64
import textwrap
import zlib
from pathlib import Path

import pytest

from orbit_lsp.kernels.python import triton_kernels
from orbit_lsp.profile import listing
from orbit_lsp.specs import job_builder
from orbit_remote.common import messages as c
from orbit_remote.common import python_errors
from tests.remote.python_children import ADD, Done, at

triton = pytest.importorskip("triton")


def compile_one(done: Done) -> c.Resources:
    assert done.finished.outcome == "ok", done
    [resources] = done.finished.resources
    return resources


@pytest.mark.slow
def test_constants_are_taken_from_a_launch_in_the_text(job):
    text = ADD + "SIZE = 256\ndef main(x):\n    add[(4,)](x, x, x, 9, BLOCK=SIZE, num_warps=8)\n"
    resources = compile_one(job(text, action="compile"))
    assert (resources.name, resources.symbol, resources.architecture) == ("add", "add", "sm_90a")
    assert resources.threads == 256
    assert resources.registers is not None
    assert 8 <= resources.registers <= 64
    assert (resources.spill_stores, resources.spill_loads, resources.stack) == (0, 0, 0)
    assert resources.dynamic_shared == 0
    assert resources.place == c.Place(job.path(), 6)
    assert resources.constants["BLOCK"] == "256"
    assert resources.constants["x_ptr"] == "*fp32 (assumed)"
    assert resources.constants["n"] == "i32 (assumed)"


def assembler(folder: Path, *filters: str) -> str:
    """Code of a file that has Triton choose another ptxas, which passes what the real one says through these."""
    script = folder / "ptxas"
    real = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "ptxas"
    heard = " | ".join([f'"{real}" "$@" 2>&1', *filters])
    script.write_text(f'#!/bin/bash\n[ "$1" = --version ] && exec "{real}" --version\n{heard} >&2\n')
    script.chmod(0o755)
    return textwrap.dedent(f"""
        from triton.backends.nvidia import compiler
        version = compiler.get_ptxas(90).version
        compiler.get_ptxas = lambda arch: type("Tool", (), dict(path={str(script)!r}, version=version))
    """)


@pytest.mark.parametrize(
    ("says", "registers", "remark"),
    [
        ("sed 's/Used [0-9]* registers/Used 99 registers/'", 99, ""),
        (
            "sed d",
            None,
            "add: registers and spills are not known: Triton's assembler reported none",
        ),
    ],
    ids=["other figures", "nothing"],
)
def test_figures_are_those_of_the_assembler_that_triton_chooses(
    job, tmp_path: Path, says: str, registers: int | None, remark: str
):
    text = ADD + assembler(tmp_path, says) + "def main(x):\n    add[(4,)](x, x, x, 9, BLOCK=128)\n"
    done = job(text, action="compile")
    assert compile_one(done).registers == registers
    assert [one for one in done.finished.remarks if "not known" in one] == ([remark] if remark else [])


def test_what_the_compiler_made_is_sent_back_where_it_is_asked_for(job):
    text = ADD + "def main(x):\n    add[(4,)](x, x, x, 9, BLOCK=256)\n"
    done = job(text, action="compile", levels=("ttgir", "sass"))
    ttgir, sass = (zlib.decompress(base64.b64decode(dump.text)).decode() for dump in done.finished.dumps)
    assert [(dump.name, dump.level) for dump in done.finished.dumps] == [("add", "ttgir"), ("add", "sass")]
    assert "tt.load" in ttgir
    loads = [instruction for instruction in listing.read(sass) if instruction.mnemonic.startswith("LDG")]
    assert {(load.file, load.line) for load in loads} == {(job.path(), 9)}
    assert done.finished.dumps[0].constants["BLOCK"] == "256"


def test_constants_are_taken_from_autotune(job):
    configurations = "[triton.Config({'BLOCK': b}, num_warps=w) for b, w in ((128, 2), (1024, 8))]"
    text = ADD.replace("@triton.jit", f"@triton.autotune({configurations}, key=['n'])\n@triton.jit")
    done = job(text, action="compile")
    assert [(r.constants["BLOCK"], r.threads) for r in done.finished.resources] == [
        ("128", 64),
        ("1024", 256),
    ]


def test_a_kernel_that_takes_a_function_nobody_names_needs_a_launch_spec(check_compiled):
    check_compiled(
        """
        @triton.jit
        def k(x, f: tl.constexpr):
            tl.store(x, f(tl.load(x)))
        """,
        "(k was not compiled: the file does not say what f is; a launch spec above it does (`orbit-lsp draft` writes one))",
    )


def test_constants_that_the_file_does_not_tell_are_assumed_by_their_use(check_compiled):
    check_compiled(
        """
        @triton.jit
        def k(x, at, y, TILE: tl.constexpr, HAS_Y: tl.constexpr, mode: tl.constexpr, kind: tl.constexpr, turns: tl.constexpr):
            place = tl.load(at + tl.program_id(0))
            value = tl.load(x + place + tl.arange(0, TILE)).to(kind)
            if HAS_Y:
                value += tl.load(y)
            if mode == "double":
                value *= 2
            for turn in tl.static_range(turns):
                value += turn
            tl.store(x + place + tl.arange(0, TILE), value)
        """,
        """
        k: TILE 64 (assumed); HAS_Y False (assumed); mode 'double' (assumed); kind fp32 (assumed); turns 4 (assumed); num_warps 4; x *fp32 (assumed); at *i32 (assumed); y *fp32 (assumed)
        (k: TILE = 64, HAS_Y = False, mode = 'double', kind = fp32, turns = 4 and argument types assumed; write them in a launch spec above it (`orbit-lsp draft` writes one))
        """,
    )


def test_an_error_with_assumed_constants_is_not_reported(check_compiled):
    check_compiled(
        """
        @triton.jit
        def k(x, TILE: tl.constexpr):
            tl.store(x + tl.arange(0, TILE + 1), 0)
        """,
        "(k was not compiled: the file does not say what TILE is; a launch spec above it does (`orbit-lsp draft` writes one))",
    )


def test_shared_memory_and_the_architecture_asked_for(job):
    text = """
        import triton
        import triton.language as tl

        @triton.jit
        def product(a_ptr, b_ptr, c_ptr, stride, B: tl.constexpr = 64):
            rows, columns = tl.arange(0, B)[:, None], tl.arange(0, B)[None, :]
            a = tl.load(a_ptr + rows * stride + columns)
            b = tl.load(b_ptr + rows * stride + columns)
            tl.store(c_ptr + rows * stride + columns, tl.dot(a, b))
    """
    resources = compile_one(job(text, action="compile", architecture="sm_80"))
    assert resources.architecture == "sm_80"
    assert resources.dynamic_shared is not None
    assert resources.dynamic_shared >= 64 * 64 * 4


def test_pointers_that_index_are_found_by_trying(job):
    text = """
        import triton
        import triton.language as tl

        @triton.jit
        def gather(index_ptr, x_ptr, out_ptr, B: tl.constexpr = 64):
            i = tl.arange(0, B)
            tl.store(out_ptr + i, tl.load(x_ptr + tl.load(index_ptr + i)))
    """
    resources = compile_one(job(text, action="compile"))
    assert resources.constants["index_ptr"] == "*i32 (assumed)"


def test_a_helper_is_not_compiled_by_itself(job):
    text = ADD.replace("@triton.jit\n", "@triton.jit\ndef twice(x):\n    return x + x\n\n@triton.jit\n", 1)
    text = (
        text.replace("BLOCK: tl.constexpr", "BLOCK: tl.constexpr = 64")
        .replace("tl.store(out_ptr + offsets, ", "tl.store(out_ptr + offsets, twice(")
        .replace(", mask=mask)\n", "), mask=mask)\n")
    )
    assert compile_one(job(text, action="compile")).name == "add"


def test_an_undefined_name_is_an_error_at_its_columns(job):
    text = """
        import triton
        import triton.language as tl

        def factory():
            @triton.jit
            def wrong(x_ptr, B: tl.constexpr = 64):
                é = tl.arange(0, B); tl.store(x_ptr + é, nowhere)
            return wrong

        kernel = factory()
    """
    done = job(text, action="compile")
    assert done.problem.tool == "triton"
    assert done.problem.message == "nowhere is not defined"
    assert done.problem.place == at(text, job.path(), "nowhere")


def test_an_error_in_a_helper_is_told_in_the_helper_and_names_its_caller(job):
    text = """
        import triton
        import triton.language as tl

        @triton.jit
        def helper(x):
            return x + missing

        @triton.jit
        def kernel(x_ptr, B: tl.constexpr = 64):
            i = tl.arange(0, B)
            tl.store(x_ptr + i, helper(i))
    """
    problem = job(text, action="compile").problem
    assert problem.place == at(text, job.path(), "missing")
    assert problem.notes[0].place == at(text, job.path(), "helper(i)")


def test_an_error_inside_tritons_library_is_put_on_the_users_call(job):
    text = """
        import triton
        import triton.language as tl

        @triton.jit
        def kernel(x_ptr, B: tl.constexpr = 64):
            i = tl.arange(0, B)
            tl.store(x_ptr + i, tl.sum(i, axis=3))
    """
    problem = job(text, action="compile").problem
    assert problem.place is not None
    assert (problem.place.file, problem.place.line) == (job.path(), 8)


def test_a_static_assert_may_be_owed_to_what_was_assumed(job):
    text = """
        import triton
        import triton.language as tl

        @triton.jit
        def kernel(x_ptr, B: tl.constexpr = 64):
            tl.static_assert(x_ptr.dtype.element_ty == tl.float64, "doubles only")
            tl.store(x_ptr, B)
    """
    done = job(text, action="compile")
    assert (done.finished.outcome, done.finished.problems) == ("ok", ())
    [remark] = done.finished.remarks
    assert remark.startswith("kernel was not compiled")
    assert remark.endswith("doubles only")


def test_an_error_that_depends_on_the_assumed_types_is_not_reported(job):
    text = """
        import triton
        import triton.language as tl

        @triton.jit
        def kernel(x_ptr, y_ptr, B: tl.constexpr = 64):
            i = tl.load(x_ptr + tl.arange(0, B))
            tl.store(y_ptr + (i << 1), i.to(tl.float32) * 1.5)
            tl.store(y_ptr + i, tl.math.sqrt(i))
    """
    done = job(text, action="compile")
    assert (done.finished.outcome, done.finished.problems) == ("ok", ())
    [remark] = done.finished.remarks
    assert remark == "kernel was not compiled: it does not compile with the argument types assumed here"


def test_compiling_runs_no_entry(job):
    text = ADD + "def main():\n    print('ran')\nif __name__ == '__main__':\n    main()\n"
    done = job(text, action="compile")
    assert done.stdout == ""


def test_a_file_that_uses_the_gpu_at_import_is_compiled_up_to_there(job):
    text = ADD.replace("tl.constexpr", "tl.constexpr = 64") + "x = torch.zeros(8, device='cuda')\n"
    done = job(text, action="compile")
    assert compile_one(done).name == "add"
    assert any("uses the GPU while it is imported" in remark for remark in done.finished.remarks)


def test_a_file_that_cannot_be_imported_is_explained(job):
    done = job("import not_installed_anywhere\n" + ADD, action="compile")
    assert done.problem.message.startswith("ModuleNotFoundError")
    assert done.problem.place is not None
    assert done.problem.place.line == 1


# -- as a launch spec launches it ----------------------------------------------------------------------

HEAD = "import torch, triton\nimport triton.language as tl\n\n"
COPY = """
@triton.jit
def copy(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at, mask=at < n), mask=at < n)
"""


@pytest.fixture
def check_compiled(job):
    """What each compiled instance holds for, a line each, and what is remarked; `NUMBERS` are there or it fails."""

    def check(text: str, expected: str) -> None:
        text = HEAD + textwrap.dedent(text)
        launches = job_builder.host_launches(text, triton_kernels.scan(text))
        done = job(text, action="compile", host_launches=launches)
        lines = [f"{problem.tool}: {problem.message.splitlines()[0]}" for problem in done.finished.problems]
        for resource in done.finished.resources:
            assert None not in (
                resource.registers,
                resource.dynamic_shared,
                resource.spill_stores,
                resource.spill_loads,
            ), resource
            shown = {
                name: value
                for name, value in resource.constants.items()
                if name not in ("num_stages", "num_ctas")
            }
            lines.append(f"{resource.name}: {'; '.join(f'{name} {value}' for name, value in shown.items())}")
        lines += [f"({remark})" for remark in done.finished.remarks]
        assert "\n".join(lines) == textwrap.dedent(expected).strip("\n")

    return check


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
        (copy: types and constants as launched on line 17)
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


def test_what_asks_the_gpu_while_the_file_is_imported_is_left_out(check_compiled):
    check_compiled(
        """
        PROPERTIES = triton.runtime.driver.active.utils.get_device_properties(0)
        SMS = PROPERTIES["multiprocessor_count"]
        x = torch.zeros(8, device="cuda")
        NEW = torch.cuda.get_device_capability()[0] >= 9

        @triton.jit
        def uses(x):
            tl.store(x, SMS)
        """
        + textwrap.indent(COPY, " " * 8)
        + """
        if NEW:
            copy[(SMS,)](x, x, 8, BLOCK=64)
        """,
        """
        copy: BLOCK 64; num_warps 4; x *fp32 (assumed); y *fp32 (assumed); n i32 (assumed)
        (the file uses the GPU while it is imported (lines 5, 6, 7, 19), and there is none here; without it nothing is known of PROPERTIES, SMS, x)
        (uses was not compiled: SMS needs a GPU)
        (copy: constants as launched on line 20; argument types assumed)
        """,
    )


def test_what_an_import_that_asks_the_gpu_would_have_given_is_unknown(job, tmp_path):
    (tmp_path / "machine.py").write_text("import torch\nHOPPER = 'H100' in torch.cuda.get_device_name(0)\n")
    text = "from machine import HOPPER\nWARPS = 4 if HOPPER else 8\n" + ADD.replace(
        "tl.constexpr", "tl.constexpr = 64"
    )
    done = job(text, action="compile")
    assert compile_one(done).name == "add"
    assert any("nothing is known of HOPPER, WARPS" in remark for remark in done.finished.remarks)


@pytest.mark.parametrize(
    ("file", "error", "remedy"),
    [
        ("src/fastops/__init__.py", ModuleNotFoundError("no", name="fastops"), "fastops is a package of this project: "),
        ("fastops.py", ImportError("no _C", name="fastops"), "fastops is a package of this project: "),
        ("other.py", ModuleNotFoundError("no", name="json.fast"), "the json of "),
    ],
)  # fmt: skip
def test_what_provides_an_import_that_is_missing(
    tmp_path: Path, file: str, error: ImportError, remedy: str
) -> None:
    (tmp_path / "pyproject.toml").write_text("")
    (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / file).write_text("")
    found = python_errors.explain(error, str(tmp_path / "tests" / "k.py"))
    assert found.failure.remedy.startswith(remedy)


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
