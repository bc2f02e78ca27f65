"""Triton files compiled without a GPU and without a run: by launches in the text, by guesses, by launch specs."""

from __future__ import annotations

import base64
import textwrap
import zlib
from pathlib import Path

import pytest

from orbit_lsp.profile import listing
from orbit_lsp.views import diagnostics
from orbit_remote.common import messages as c
from tests.remote.python_children import ADD, at, compile_one
from tests.test_views import Bench

triton = pytest.importorskip("triton")


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
    assert [text for text in done.finished.remarks if "not known" in text] == ([remark] if remark else [])


def test_what_the_compiler_made_is_sent_back_where_it_is_asked_for(job):
    text = ADD + "def main(x):\n    add[(4,)](x, x, x, 9, BLOCK=256)\n"
    done = job(text, action="compile", levels=("ttgir", "sass"))
    ttgir, sass = (zlib.decompress(base64.b64decode(dump.text)).decode() for dump in done.finished.dumps)
    assert [(dump.name, dump.level) for dump in done.finished.dumps] == [("add", "ttgir"), ("add", "sass")]
    assert "tt.load" in ttgir
    loads = [instruction for instruction in listing.read(sass) if instruction.mnemonic.startswith("LDG")]
    assert {(load.file, load.line) for load in loads} == {(job.path(), 9)}
    assert done.finished.dumps[0].constants["BLOCK"] == "256"


@pytest.mark.parametrize(
    "launch",
    [
        "def main(x):\n    add[(4,)](x, x, x, 9, BLOCK=4096, num_warps=1)\n",
        "def main():\n    x = torch.empty(9, device='cuda')\n    add[(4,)](x, x, x, 9, BLOCK=4096, num_warps=1)\n",
    ],
    ids=["types assumed", "types of a launch"],
)
def test_figures_with_other_numbers_of_warps_beside_those_of_the_launch(job, launch: str):
    done = job(ADD + launch, action="compile", warps=(1, 8))
    own, other = done.finished.resources
    assert (own.threads, other.threads) == (32, 256)
    assert (own.constants["num_warps"], other.constants["num_warps"]) == ("1", "8")
    assert own.constants | {"num_warps": "8"} == other.constants
    assert own.registers > other.registers


def test_what_is_autotuned_is_compiled_with_no_other_number_of_warps(job):
    text = ADD.replace(
        "@triton.jit", "@triton.autotune([triton.Config({'BLOCK': 64})], key=['n'])\n@triton.jit"
    )
    assert compile_one(job(text, action="compile", warps=(1, 8))).threads == 128


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


@pytest.mark.parametrize(
    ("size", "block"),
    [
        ("max(128, triton.next_power_of_2(n))", 128),
        ("block_size(n)", 256),
        ("min(512, max(n, 100))", 100),
        ("triton.next_power_of_2(n)", 64),
        ("n", 64),
        ("made_elsewhere(n)", 64),
    ],
)
def test_an_assumed_block_is_as_long_as_the_launch_makes_it_at_least(check_compiled, size: str, block: int):
    check_compiled(
        f"""
        def block_size(n):
            least = 200
            return triton.next_power_of_2(max(least, n))

        def made_elsewhere(n):
            if n > 9:
                return 1024
            return n

        @triton.jit
        def k(x, BLOCK: tl.constexpr):
            tl.store(x + tl.program_id(0) * BLOCK, 1.0)

        def host(x, n):
            k[(1,)](x.half(), *x.extra(), BLOCK={size})
        """,
        f"""
        k: BLOCK {block} (assumed); num_warps 4; x *fp16 (assumed)
        (k: BLOCK = {block} and argument types assumed; write them in a launch spec above it (`orbit-lsp draft` writes one))
        """,
    )


def test_an_error_with_assumed_constants_is_information(check_compiled):
    check_compiled(
        """
        @triton.jit
        def k(x, TILE: tl.constexpr):
            tl.store(x + tl.arange(0, TILE + 1), 0)
        """,
        "triton: with TILE = 64 assumed, Triton says: arange's range must be a power of 2\n"
        "(k was not compiled: the file does not say what TILE is; a launch spec above it does (`orbit-lsp draft` writes one))",
    )


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("«i_undefined»", "i_undefined is not defined"),
        ("«tl.arrange»(0, TILE)", "triton.language has no `arrange`"),
        ("«tl.arange(0, 100)»", "arange's range must be a power of 2"),
        ("(«tl.arange(0, 16) + tl.arange(0, 32)»)", "Cannot make_shape_compatible"),
        ("(«lambda v: v»)", "unsupported AST node type: Lambda"),
        ("tl.arange(0, TILE, «step=2»)", "arange() got an unexpected keyword argument 'step'"),
        ("«turns(3)»", "a value of type tensor cannot be called"),
        ("(«lane + tl.arange(0, 32)»)", "Cannot make_shape_compatible"),
        ("«tl.static_assert(1 == 2, 'never')»", "never"),
        ("maybe", None),
        ("tl.arange(0, TILE + 1)", None),
        ("(0 if TILE > 64 else (lambda v: v))", None),
        ("(0 if TILE > 64 else tl.static_assert(1 == 2, 'never'))", None),
        ("tl.static_assert(TILE > 64, 'never')", None),
        ("(lane + tl.arange(0, TILE))", None),
    ],
)
def test_of_assumed_constants_an_error_is_reported_where_they_cannot_cause_it(job, wrong, message):
    text = f"""
        import triton
        import triton.language as tl

        @triton.jit
        def k(x, TILE: tl.constexpr):
            if TILE > 1 << 20:
                maybe = 1
            lane, turns = tl.arange(0, 16), 3
            tl.store(x + {wrong}, 0)
        """
    check_marked(job, text, message)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("«nowhere»", "nowhere is not defined"),
        ("«tl.exq»(1.0)", "triton.language has no `exq`"),
        ("tl.exp(1.0, «fast=True»)", "exp() got an unexpected keyword argument 'fast'"),
        ("(«lambda v: v»)", "unsupported AST node type: Lambda"),
        ("«place()»", "a number cannot be called"),
        ("«(place * TILE)(3)»", "a number cannot be called"),
        ("«3()»", "a number cannot be called"),
        ("«SIZE()»", "a number cannot be called"),
        ("«place.size»", "a number has no `size`"),
        ("tl.exp(tl.full([4], 1.0, tl.float32))", None),
        ("(0 if TILE > 64 else nowhere)", None),
        ("(0 if TILE > 64 else place())", None),
        ("TILE()", None),
        ("x()", None),
        ("applied(place)", None),
        ("place.dtype.primitive_bitwidth", None),
        ("described.block_shape[0]", None),
    ],
)
def test_of_a_kernel_that_no_assumption_compiles_the_text_is_read(job, wrong, message):
    text = f"""
        import triton
        import triton.language as tl

        SIZE = tl.constexpr(16)

        @triton.jit
        def k(x, TILE: tl.constexpr):
            tl.store(x + tl.arange(0, TILE + 1), 0)
            place = tl.program_id(0) * SIZE
            applied = TILE
            described = tl.make_tensor_descriptor(x, [16], [1], [16])
            é = 1; tl.store(x, {wrong})
        """
    check_marked(job, text, message)


@pytest.mark.parametrize("use", ["tl.store(x, maybe)", "maybe *= 2"])
def test_a_name_that_another_branch_binds_is_not_missing(job, use):
    text = f"""
        import triton
        import triton.language as tl

        @triton.jit
        def k(x, TILE: tl.constexpr):
            if TILE > 1 << 20:
                maybe = 1
            {use}
        """
    check_marked(job, text, None)


def test_a_helper_that_nothing_calls_has_no_error_of_an_assumed_number(job):
    text = "import triton\nimport triton.language as tl\n\n@triton.jit\ndef show(text):\n    tl.device_print(text)\n"
    check_marked(job, text, None)


def test_a_name_that_a_branch_of_another_file_binds_is_not_missing(job):
    Path(job.path()).with_name("activations.py").write_text(
        "import triton\n\n@triton.jit\ndef apply(x, kind):\n    if kind == 3:\n        out = x\n    return out\n"
    )
    text = """
        import triton
        import triton.language as tl
        from activations import apply

        @triton.jit
        def k(x, TILE: tl.constexpr):
            tl.store(x + tl.arange(0, TILE), apply(1, TILE))
        """
    check_marked(job, text, None)


def check_marked(job, text: str, message: str | None) -> None:
    """An error with these words stands at «the mark»; without words there is none."""
    text = textwrap.dedent(text)
    said = job(text.replace("«", "").replace("»", ""), action="compile").finished.problems
    problems = [problem for problem in said if problem.severity == "error"]
    assert len(problems) == (message is not None)
    for problem in problems:
        line = next(number for number, row in enumerate(text.split("\n"), 1) if "«" in row)
        start = text.split("\n")[line - 1].index("«") + 1
        assert problem.message.startswith(message)
        assert (problem.place.line, problem.place.column) == (line, start)


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


@pytest.mark.slow
def test_what_a_kernel_costs_is_shown_on_its_name(job):
    """By the figures of a real compilation: one warp for a product of 64 KiB, and stages that no GPU has room for."""
    text = """
import triton
import triton.language as tl

# orbit: a = randn(128, 512); b = randn(512, 128); c = empty(128, 128)
# orbit: launch product[(1,)](a, b, c, 512, B=128, num_warps=1, num_stages=5)
@triton.jit
def product(a, b, c, n, B: tl.constexpr):
    i, total = tl.arange(0, B), tl.zeros((B, B), tl.float32)
    for k in range(0, n, 64):
        j = k + tl.arange(0, 64)
        total += tl.dot(tl.load(a + i[:, None] * n + j[None, :]), tl.load(b + j[:, None] * B + i[None, :]))
    tl.store(c + i[:, None] * B + i[None, :], total)
"""
    resources = job(text, action="compile").finished.resources
    bench = Bench(text, Path(resources[0].place.file).as_uri()).built(*resources)
    shown = {each.code: each for each in diagnostics.diagnostics(bench.session, bench.uri)}
    assert set(shown) == {"register-spills", "shared-memory"}
    assert {each.range.start.line for each in shown.values()} == {7}
    assert "255 registers, the most that a thread can have" in shown["register-spills"].message
    assert "sm_90a has 227 KiB for one: the launch would fail" in shown["shared-memory"].message


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
    done = job(
        "import not_installed_anywhere\nLENGTH = not_installed_anywhere.LENGTH + 1\n", action="compile"
    )
    assert done.problem.message.startswith("ModuleNotFoundError")
    assert done.problem.place is not None
    assert done.problem.place.line == 1


USES_WHAT_IS_MISSING = {
    "a module": ("import absent_here\n", "No module named 'absent_here'"),
    "a part of one": ("from absent_here.part import helper\n", "No module named 'absent_here'"),
    "a name": ("from torch import no_such_name\n", "cannot import name 'no_such_name' from 'torch'"),
    "a decorator of it": ("import absent_here\n@absent_here.registered\n", "No module named 'absent_here'"),
    "its configurations": (
        "import absent_here\n@triton.autotune(absent_here.CONFIGS + [], key=[])\n",
        "add: what stands above @triton.jit was left out",
    ),
}


@pytest.mark.parametrize("case", USES_WHAT_IS_MISSING)
def test_a_kernel_that_needs_nothing_of_a_missing_package_is_compiled(job, case):
    above, remark = USES_WHAT_IS_MISSING[case]
    first, _, decorator = above.partition("\n")
    text = f"{first}\n" + ADD.replace("@triton.jit", decorator + "@triton.jit", 1)
    done = job(text, action="compile")
    assert [each.name for each in done.finished.resources] == ["add"], done
    said = [*done.finished.remarks, *(problem.message for problem in done.finished.problems)]
    assert any(remark in each for each in said), said
    assert {problem.severity for problem in done.finished.problems} == {"warning"}


def test_each_missing_module_is_said_at_its_own_import_and_nowhere_else(job):
    text = "import absent_here.part as a\nimport os\nfrom absent_too import b\n" + ADD
    done = job(text, action="compile")
    places = [
        (each.place.line, each.message.partition(": ")[2]) for each in done.finished.problems if each.place
    ]
    assert places == [
        (1, "No module named 'absent_here'; compiled without it"),
        (3, "No module named 'absent_too'; compiled without it"),
    ]
    assert not any("absent" in remark for remark in done.finished.remarks)


def test_a_kernel_that_needs_what_is_missing_is_not_compiled_wrongly(job):
    text = "from absent_here import EXTRA\n" + ADD
    done = job(text.replace("+ tl.load", "+ EXTRA + tl.load", 1), action="compile")
    assert done.finished.resources == ()
    assert done.problem.message.startswith("ModuleNotFoundError")


def test_a_package_whose_init_fails_is_entered_without_it(job, tmp_path):
    package = tmp_path / "kernels"
    package.mkdir()
    (package / "__init__.py").write_text("from ._C import fast\n")
    (package / "sizes.py").write_text("BLOCK = 128\n")
    text = "from .sizes import BLOCK\n" + ADD
    done = job(text, action="compile", name="kernels/ops.py")
    assert [each.name for each in done.finished.resources] == ["add"], done
    assert any(
        remark.startswith("kernels was imported without its __init__.py") for remark in done.finished.remarks
    )


def test_what_triton_warns_of_at_each_compilation_is_not_printed_but_the_files_own_warnings_are(job):
    """Triton 3.9 warns of a default that will change."""
    text = ADD + (
        "import warnings\n"
        "warnings.warn('TRITON_DEFAULT_FP_FUSION is unset: defaulting to FP fusion ENABLED')\n"
        "warnings.warn('a warning of the file')\n"
    )
    printed = job(text, action="compile").stderr
    assert "a warning of the file" in printed
    assert "FP_FUSION" not in printed
