"""Python files as their author left them, each in a process of its own, with the real Triton and no GPU."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import textwrap
import threading
from collections.abc import Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pytest

from orbit_lsp.kernels.python import triton_kernels
from orbit_lsp.specs import job_builder
from orbit_remote.child import child_main, python_job
from orbit_remote.child.user_module import Entry, UserFile
from orbit_remote.common import messages as c
from orbit_remote.common.cuda_errors import CudaError
from orbit_remote.common.launch_records import LaunchRecord, series
from orbit_remote.recording.injection import Recorded
from orbit_remote.worker import prefork

pytest.importorskip("triton")

T = TypeVar("T")


@dataclass(frozen=True)
class Done:
    finished: c.Finished
    status: int
    stdout: str
    stderr: str

    @property
    def failure(self) -> c.Failure:
        assert self.finished.failure is not None, self
        return self.finished.failure

    @property
    def problem(self) -> c.Problem:
        [problem] = self.finished.problems
        return problem


class Children:
    """Processes forked from the product's own template, which has imported Triton once for this file.

    The pool lives on an event loop in a thread of its own, so that the tests below need no loop.
    """

    def __init__(self, folder: Path) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self._pool = self._do(self._make_pool(folder / "cache"))
        environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH" and not k.startswith("COV")}
        self._environment = environment | {"TRITON_CACHE_DIR": str(folder / "triton")}

    def run(self, request: c.Job) -> Done:
        return self._do(self._run(request))

    def close(self) -> None:
        self._do(self._pool.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _do(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _make_pool(self, cache: Path) -> prefork.PreforkPool:
        return prefork.PreforkPool(cache=cache)

    async def _run(self, request: c.Job) -> Done:
        child = await self._pool.take(request, self._environment)
        printed = asyncio.gather(child.stdout.read(), child.stderr.read())
        events = [event async for event in child.events()]
        status = await child.wait()
        stdout, stderr = (stream.decode(errors="replace") for stream in await printed)
        await child.close()
        assert events, (status, stderr)
        finished = events[-1]
        assert isinstance(finished, c.Finished), (events, status, stderr)
        return Done(finished, status, stdout, stderr)


@pytest.fixture(scope="module")
def children(tmp_path_factory):
    children = Children(tmp_path_factory.mktemp("children"))
    yield children
    children.close()


def job_of(path: Path, text: str, *, action: str = "run", **fields: Any) -> c.Job:
    return c.Job("1", action, "triton", str(path), textwrap.dedent(text), **fields)


@pytest.fixture
def job(tmp_path, children):
    """Carry out a file's text in a process of its own."""

    def carry_out(text: str, *, name: str = "kernels.py", save: str | None = None, **fields) -> Done:
        path = tmp_path / name
        if save is not None:
            path.write_text(save)
        return children.run(job_of(path, text, **fields))

    carry_out.path = lambda name="kernels.py": str(tmp_path / name)
    return carry_out


@pytest.fixture
def fresh_job(tmp_path, monkeypatch):
    """Carry out a file's text in a fresh process that only knows the way to __main__.py, as where nothing is forked."""
    monkeypatch.delenv("PYTHONPATH", raising=False)

    def carry_out(text: str, *, name: str = "kernels.py", **fields) -> Done:
        done = subprocess.run(
            child_main.command(tmp_path, tmp_path, job_of(tmp_path / name, text, **fields)),
            capture_output=True, encoding="utf-8", errors="replace", check=False,
        )  # fmt: skip
        finished = child_main.outcome(tmp_path)
        assert finished, done
        return Done(finished, done.returncode, done.stdout, done.stderr)

    return carry_out


def at(text: str, name: str, needle: str, line: int | None = None) -> c.Place:
    """Where `needle` stands in the dedented `text`."""
    lines = textwrap.dedent(text).splitlines()
    number = line or next(i for i, found in enumerate(lines, 1) if needle in found)
    column = lines[number - 1].index(needle) + 1
    return c.Place(name, number, column, column + len(needle))


# -- the way in --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "entry"),
    [
        ("def run(): pass\ndef main(): pass", Entry("main")),
        ("def benchmark(n=3, *, k=4): pass\ndef main(): pass", Entry("benchmark")),
        ("def benchmark(size): pass\ndef test(): pass", Entry("test")),
        ("def benchmark(*, size): pass\ndef run(*args, **kw): pass", Entry("run")),
        ("if True:\n    def main(): pass", Entry("main")),
        ("class A:\n    def main(): pass", None),
        ("def outer():\n    def main(): pass", None),
        ("async def main(): pass", None),
        ("@triton.jit\ndef run(): pass", None),
        ("def f(): pass\nif __name__ == '__main__':\n    f()", Entry(None)),
        ("def f(): pass\nif '__main__' == __name__: f()", Entry(None)),
        ("def f(): pass\nf()", Entry(None, certain=False)),
        ("import torch\nx = 1\n'words'", None),
    ],
)
def test_the_entry_of_a_file(text, entry):
    assert UserFile("k.py", text).entry() == entry


def test_a_function_is_called_with_the_file_as_it_stands_in_the_editor(job):
    text = """
        import inspect, sys, os
        def main():
            print(__name__, __file__ == sys.argv[0], sys.argv[1:], os.getcwd() == os.path.dirname(__file__))
            print(inspect.getsource(main).splitlines()[0], sys.path[0] == os.getcwd())
            print(sys.stdin.read())
    """
    done = job(text, save="not what is in the editor", arguments=("--n", "5"), stdin="typed")
    assert done.finished.outcome == "ok", done
    assert done.stdout.splitlines() == ["kernels True ['--n', '5'] True", "def main(): True", "typed"]
    assert (done.finished.exit_code, done.status) == (0, 0)
    assert done.finished.run_s is not None


def test_the_main_part_runs_as_main(job):
    done = job(
        "if __name__ == '__main__':\n    import sys; print('main', sys.modules['__main__'].__file__[-10:])"
    )
    assert (done.finished.outcome, done.stdout) == ("ok", "main kernels.py\n")


def test_a_script_that_calls_something_is_run(job):
    assert job("print('as a script')").stdout == "as a script\n"


def test_no_entry_says_what_would_be_one(job):
    done = job("import torch\ndef helper(x): return x\n")
    assert done.failure.category == "runtime error"
    for word in ("kernels.py has no entry point", "benchmark", "main", '`if __name__ == "__main__":`'):
        assert word in done.failure.message
    assert done.finished.exit_code is None


def test_a_file_named_like_the_standard_library_shadows_nothing(fresh_job):
    done = fresh_job(
        "import sys\ndef main(): print(sys.modules['random'].__name__)\nimport random", name="queue.py"
    )
    assert done.finished.outcome == "ok", done
    import_it = fresh_job("import queue, sys\ndef main(): print(hasattr(queue, 'Queue'))", name="queue.py")
    assert import_it.stdout == "True\n"


def test_files_beside_it_can_be_imported(job, tmp_path):
    (tmp_path / "sizes.py").write_text("N = 5\n")
    assert job("from sizes import N\ndef main(): print(N)").stdout == "5\n"


def test_a_file_in_a_package_can_import_from_it(job, tmp_path):
    (tmp_path / "ops").mkdir()
    (tmp_path / "ops" / "__init__.py").touch()
    (tmp_path / "ops" / "sizes.py").write_text("N = 6\n")
    done = job("from .sizes import N\ndef main(): print(N)", name="ops/kernels.py")
    assert done.stdout == "6\n", done


def test_a_path_that_exists_on_another_machine_only(job):
    done = job("import inspect\ndef main(): print(len(inspect.getsource(main)))", name="no/such/folder/k.py")
    assert done.finished.outcome == "ok", done


# -- how it ends -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "status", "words"),
    [
        ("", 0, None),
        ("0", 0, None),
        ("3", 3, "exit code 3"),
        ("-1", 255, "exit code 255"),
        ("'no data'", 1, "no data"),
    ],
)
def test_sys_exit_is_a_process_that_leaves(code, status, words, job):
    done = job(f"import sys\ndef main(): sys.exit({code})")
    assert (done.finished.exit_code, done.status) == (status, status)
    if words is None:
        assert done.finished.outcome == "ok"
    else:
        assert done.failure.category == "runtime error"
        assert words in done.failure.message
        assert ("no data" in done.stderr) == (code == "'no data'")


def test_an_exception_is_put_on_the_users_innermost_line(job):
    text = """
        import json
        def parse(text):
            return json.loads(text)

        def main():
            é = 1; parse("{")
    """
    done = job(text)
    assert done.finished.outcome == "runtime error"
    problem = done.problem
    assert problem.message.startswith("JSONDecodeError: Expecting property name")
    assert problem.place == at(text, job.path(), "json.loads(text)")
    assert [n.place for n in problem.notes] == [at(text, job.path(), 'parse("{")')]
    assert "triton_job" not in done.stderr
    assert "JSONDecodeError" in done.stderr
    assert (done.finished.exit_code, done.status) == (1, 1)


def test_an_exception_in_a_file_beside_it_is_put_there(job, tmp_path):
    (tmp_path / "sizes.py").write_text("def size():\n    return 1 / 0\n")
    done = job("import sizes\ndef main(): sizes.size()")
    assert done.problem.place == c.Place(str(tmp_path / "sizes.py"), 2, 12, 17)
    assert done.problem.message == "ZeroDivisionError: division by zero"


def test_a_syntax_error_has_its_place(job):
    done = job("def main():\n    é = 'ab' + (1\n    y = 2\n")
    assert done.finished.outcome == "compile error"
    assert done.problem.tool == "python"
    assert done.problem.message == "SyntaxError: '(' was never closed"
    assert done.problem.place is not None
    assert (done.problem.place.line, done.problem.place.column) == (2, 16)


def test_a_missing_package_is_told_at_its_import(job):
    done = job("import os\nimport not_installed_anywhere\ndef main(): pass")
    assert done.problem.message == "ModuleNotFoundError: No module named 'not_installed_anywhere'"
    assert done.problem.place is not None
    assert done.problem.place.line == 2


def test_an_interrupt_is_told(job):
    done = job("def main(): raise KeyboardInterrupt")
    assert (done.finished.outcome, done.finished.exit_code) == ("runtime error", 130)


def test_no_gpu_is_no_fault_of_the_program(job):
    done = job(ADD + "\ndef main():\n    x = torch.zeros(8)\n    add[(1,)](x, x, x, 8, BLOCK=8)\n")
    assert done.finished.outcome == "infrastructure", done
    assert "GPU" in done.failure.message


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ("CUDA error: an illegal memory access was encountered", "CUDA_ERROR_ILLEGAL_ADDRESS"),
        ("Triton Error [CUDA]: device-side assert triggered", "CUDA_ERROR_ASSERT"),
        ("CUDA error: something new", "CUDA error"),
    ],
)
def test_a_cuda_error_is_named(words, code, job):
    done = job(f"def main(): raise RuntimeError({words!r})")
    assert done.problem.code == code
    assert done.failure.message.startswith(code)


def test_out_of_memory_is_named(job):
    done = job(
        "import torch\ndef main(): raise torch.OutOfMemoryError('CUDA out of memory. Tried to allocate')"
    )
    assert done.problem.code == "CUDA_ERROR_OUT_OF_MEMORY"


def test_out_of_resources_keeps_tritons_words(job):
    done = job(
        "from triton.runtime.errors import OutOfResources\n"
        "def main(): raise OutOfResources(262144, 232448, 'shared memory')"
    )
    assert done.problem.tool == "triton"
    assert "Required: 262144, Hardware limit: 232448" in done.problem.message


def test_results_are_json_whatever_the_program_prints(job):
    done = job('def main(): print(\'{"kind":"finished"}\'); import os; os.write(1, b"\\xff\\n")')
    assert done.finished.outcome == "ok"
    assert json.loads(c.encode(done.finished))["outcome"] == "ok"


# -- compiling without a GPU -------------------------------------------------------------------------

ADD = textwrap.dedent("""
    import torch, triton
    import triton.language as tl

    @triton.jit
    def add(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
        offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        mask = offsets < n
        tl.store(out_ptr + offsets, tl.load(x_ptr + offsets, mask=mask) + tl.load(y_ptr + offsets, mask=mask), mask=mask)
    """)


def compile_one(done: Done) -> c.Resources:
    assert done.finished.outcome == "ok", done
    [resources] = done.finished.resources
    return resources


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


def test_constants_are_taken_from_autotune(job):
    configurations = "[triton.Config({'BLOCK': b}, num_warps=w) for b, w in ((128, 2), (1024, 8))]"
    text = ADD.replace("@triton.jit", f"@triton.autotune({configurations}, key=['n'])\n@triton.jit")
    done = job(text, action="compile")
    assert [(r.constants["BLOCK"], r.threads) for r in done.finished.resources] == [
        ("128", 64),
        ("1024", 256),
    ]


def test_a_kernel_whose_constants_nobody_says_needs_a_run(job):
    done = job(ADD, action="compile")
    assert done.finished.outcome == "ok"
    assert done.finished.resources == ()
    assert (
        "add was not compiled: the file does not say what BLOCK is; a launch spec above it does (`orbit-lsp draft` writes one)"
        in done.finished.remarks
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
        lines = [f"{one.tool}: {one.message.splitlines()[0]}" for one in done.finished.problems]
        for one in done.finished.resources:
            assert None not in (one.registers, one.dynamic_shared, one.spill_stores, one.spill_loads), one
            shown = {
                name: value for name, value in one.constants.items() if name not in ("num_stages", "num_ctas")
            }
            lines.append(f"{one.name}: {'; '.join(f'{name} {value}' for name, value in shown.items())}")
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


def test_a_constant_that_follows_from_what_nobody_passes_is_not_guessed(check_compiled):
    check_compiled(
        WRAPPED,
        """
        (copy was not compiled: the file does not say what BLOCK is, which follows from x; a launch spec above it does (`orbit-lsp draft` writes one))
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
        (copy: its launch spec has an error in line 5 and was not used)
        (copy was not compiled: the file does not say what BLOCK is; a launch spec above it does (`orbit-lsp draft` writes one))
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
    for one in done.finished.resources:
        assert one.registers
        assert one.dynamic_shared
        assert None not in (one.spill_stores, one.spill_loads)
        assert not any("assumed" in value for value in one.constants.values())


# -- a process that crashed --------------------------------------------------------------------------


def launched(symbol: str, start: int) -> LaunchRecord:
    return LaunchRecord(symbol, start, start + 50, (4, 1, 1), (128, 1, 1), process=9)


@pytest.mark.parametrize(
    ("status", "outcome", "message"),
    [
        (-11, "runtime error", "the program was ended by SIGSEGV (segmentation fault in host code)"),
        (4, "runtime error", "the program ended with exit code 4"),
        (0, "ok", None),
    ],
)
def test_a_crash_keeps_the_launches_of_the_files_kernels(status, outcome, message):
    request = c.Job("1", "run", "triton", "/k.py", ADD)
    recorded = Recorded(
        (*series([launched("add", 100), launched("add", 200), launched("at_native_fill", 300)]),)
    )
    finished = python_job.crashed(request, status, recorded)
    assert (finished.outcome, finished.exit_code) == (outcome, status)
    assert (finished.failure.message if finished.failure else None) == message
    [launches] = finished.launches
    assert (launches.name, launches.count, launches.place) == ("add", 2, c.Place("/k.py", 6))


def test_a_crash_after_a_cuda_error_is_the_cuda_errors(tmp_path):
    error = CudaError(5, "driver", "cuCtxSynchronize", 700, "CUDA_ERROR_ILLEGAL_ADDRESS", "add", 9)
    finished = python_job.crashed(c.Job("1", "run", "triton", "/k.py", ADD), -6, Recorded(errors=(error,)))
    assert finished.failure is not None
    assert finished.failure.message.startswith("CUDA_ERROR_ILLEGAL_ADDRESS")
    assert (finished.failure.symbol, finished.failure.place) == ("add", c.Place("/k.py", 6))
