"""Which functions of a Python file are kernels, and what a scan says of them.

A case is the file's text and one line for each expected kernel: its line (from 1), its name, and what
is special about it.
"""

from textwrap import dedent

import pytest

from orbit_lsp.kernels.python import inline
from orbit_lsp.kernels.python.triton_kernels import scan
from tests.kernels.triton_check import IMPORT, check

# -- decorators ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("header", "decorator"),
    [
        ("import triton", "triton.jit"),
        ("import triton", "triton.jit()"),
        ("import triton", "triton.jit(do_not_specialize=['n'])"),
        ("import triton", "triton.runtime.jit"),
        ("import triton as tt", "tt.jit"),
        ("import triton, triton as tt", "tt.jit"),
        ("from triton import jit", "jit"),
        ("from triton import cdiv, jit as j", "j"),
        ("from triton import *", "jit"),
        ("from triton.runtime.jit import jit", "jit"),
        ("import triton.runtime.jit as t", "t.jit"),
        ("import triton.runtime", "triton.runtime.jit.jit"),
        ("from triton.runtime import JITFunction", "JITFunction"),
        ("from package.compat import tl, triton", "triton.jit"),
        ("from .compat import triton as t", "t.jit"),
        ("import package.compat as c", "c.triton.jit"),
        ("from compat import *", "triton.jit"),
        ("import importlib; triton = importlib.import_module('triton')", "triton.jit"),
        ("import pytest; triton = pytest.importorskip('triton')", "triton.jit"),
        ("import triton; my = triton.jit", "my"),
        ("import triton; a = triton.jit; b = a", "b"),
        ("import triton; my = triton.jit(noinline=True)", "my"),
        ("import triton; j = triton.jit if triton else None", "j"),
        ("import triton, functools", "functools.partial(triton.jit, noinline=True)"),
        ("import triton; from functools import partial; my = partial(triton.jit, debug=True)", "my"),
        ("import triton; my = getattr(triton, 'jit')", "my"),
        ("import triton; my = lambda f: triton.jit(f)", "my"),
        ("import triton\ndef my(f): return triton.jit(f)", "my"),
        ("import triton\ndef my(f):\n  k = triton.jit(f)\n  return k", "my"),
        ("import triton\ndef my(**o):\n  def d(f):\n    return triton.jit(f, **o)\n  return d", "my(x=1)"),
        ("import triton\ndef my(n):\n  return lambda f: triton.jit(f)", "my(4)"),
        ("import triton\ndef my(f): return Wrapped(triton.jit(f))", "my"),
        ("import triton\nclass My(triton.JITFunction): pass", "My"),
        ("try:\n  import triton\nexcept ImportError:\n  triton = None", "triton.jit"),
        ("try:\n  from triton import jit\nexcept ImportError:\n  def jit(f): return f", "jit"),
        ("if FAST:\n  from triton import jit\nelse:\n  jit = lambda f: f", "jit"),
        ("def load():\n  global triton\n  import triton", "triton.jit"),
        ("with quiet():\n  import triton", "triton.jit"),
    ],
)
def test_a_decorator_is_resolved(header: str, decorator: str) -> None:
    text = f"{header}\n@{decorator}\ndef k(x): pass\n"
    kernels = [kernel for kernel in scan(text).kernels if kernel.name == "k"]
    assert [kernel.dsl for kernel in kernels] == ["triton"]


@pytest.mark.parametrize(
    ("header", "decorator"),
    [
        ("import jax", "jax.jit"),
        ("import torch", "torch.jit.script"),
        ("from jax import jit", "jit"),
        ("from triton import jit\nfrom jax import jit", "jit"),
        ("import triton\ntriton = other()", "triton.jit"),
        ("import triton", "triton.autotune(configs=[], key=[])"),
        ("import triton", "triton.testing.perf_report(b)"),
        ("import triton", "tl.jit"),
        ("from .compat import jit", "jit"),
        ("class triton:\n  @staticmethod\n  def jit(f): return f", "triton.jit"),
        ("def f():\n  import triton", "triton.jit"),
        ("import triton\ndef my(f): return f", "my"),
        ("import triton\ndef get():\n  @triton.jit\n  def inner(): pass\n  return inner", "get"),
        ("if FAST:\n  from jax import jit\nelse:\n  from jax import jit", "jit"),
        ("import functools", "functools.cache"),
        ("import tritonclient.http as triton", "triton.jit"),
    ],
)
def test_what_only_looks_like_one_is_not(header: str, decorator: str) -> None:
    results = [kernel.name for kernel in scan(f"{header}\n@{decorator}\ndef k(x): pass\n").kernels]
    assert "k" not in results


@pytest.mark.parametrize(
    ("header", "decorator", "dsl"),
    [
        ("from triton.experimental import gluon", "gluon.jit", "gluon"),
        ("import triton.experimental.gluon as g", "g.jit(noinline=True)", "gluon"),
        ("from numba import cuda", "cuda.jit('void(f4[:])')", "numba"),
        ("from numba import cuda", "cuda.jit(device=True)", None),
        ("import helion", "helion.kernel(config=c)", "helion"),
        ("import cutlass.cute as cute", "cute.kernel", "cute"),
        ("import cutlass.cute as cute", "cute.jit", None),
        ("import tilelang", "tilelang.jit(out_idx=[-1])", "tilelang"),
        ("import tilelang.language as T", "T.prim_func", "tilelang"),
        ("import warp as wp", "wp.kernel", "warp"),
        ("import warp as wp", "wp.func", None),
        ("import cuda.tile as ct", "ct.kernel", "cutile"),
        ("from cupyx import jit", "jit.rawkernel()", "cupy"),
    ],
)
def test_other_kernel_languages_are_told_apart(header: str, decorator: str, dsl: str | None) -> None:
    kernels = scan(f"{header}\n@{decorator}\ndef k(x): pass\n").kernels
    assert [kernel.dsl for kernel in kernels] == ([dsl] if dsl else [])


def test_kernels_in_strings() -> None:
    check(
        """\
        import cupy as cp
        saxpy = cp.RawKernel(r'''
        extern "C" __global__
        void saxpy(float a, const float* x, float* y, int n) { y[0] = a * x[0]; }
        ''', 'saxpy')
        def build():
            "builds `__global__ void not_me() {}`"
            return cp.RawModule(code="__global__ void one_line(int* x) { *x = 1; }")
        # __global__ void nor_me() {}
        """,
        """
        4 saxpy embedded
        8 one_line embedded
        """,
    )


def test_the_cuda_in_strings_stands_at_the_lines_of_the_file() -> None:
    text = dedent(
        """\
        from torch.utils.cpp_extension import load_inline
        source = r'''
        __global__ void k(float* x) {}
        '''
        helper = '''\\
        __device__ float two();
        '''
        load_inline("ext", "void f();", cuda_sources=[helper, source], extra_cuda_cflags=["-O2"])
        """
    )
    made = inline.of(text, "/w/k.py")
    assert made
    assert made.text.splitlines() == [
        '#line 8 "/w/k.py"', "#include <torch/types.h>",
        '#line 8 "/w/k.py"', "#include <cuda.h>",
        '#line 8 "/w/k.py"', "#include <cuda_runtime.h>",
        "",
        '#line 6 "/w/k.py"', "__device__ float two();",
        "",
        '#line 2 "/w/k.py"', "", "__global__ void k(float* x) {}",
    ]  # fmt: skip
    assert made.flags == ("-O2",)


@pytest.mark.parametrize(
    "call",
    [
        "load_inline('ext', '', PREFIX + K)",
        "load_inline('ext', '', f'{K}')",
        "cp.RawKernel(K % 4, 'k')",
        "cp.RawModule(code=K); cp.RawModule(code=open('k.cu').read())",
        "cp.RawKernel('#define N 4\\n__global__ void a() {}', 'a'); cp.RawKernel('#define N 8\\n' + K, 'k')",
    ],
)
def test_cuda_that_the_program_puts_together_is_left_to_it(call: str) -> None:
    assert inline.of(f"K = '''__global__ void k() {{}}\n'''\n{call}\n", "/w/k.py") is None


def test_a_function_that_makes_a_kernel_of_tilelang_is_none_itself() -> None:
    check(
        """\
        import tilelang
        import tilelang.language as T
        @tilelang.jit
        def matmul(n):
            @T.prim_func
            def main(a: T.Tensor((n,))): pass
            return main
        """,
        "6 matmul.main tilelang",
    )


@pytest.mark.parametrize(
    ("header", "kernel"),
    [
        ("from numba import cuda", "@cuda.jit\ndef k(x): pass\n"),
        ("import cupy", "k = cupy.RawKernel('__global__ void k() {}', 'k')\n"),
    ],
)
def test_a_script_is_a_way_to_run_kernels_that_have_no_launch_specs(header: str, kernel: str) -> None:
    assert scan(f"{header}\n{kernel}k[1, 32](1)\n").entries == ("__main__",)
    assert scan(f"{header}\n{kernel}").entries == ()
    assert scan("import triton\n@triton.jit\ndef k(x): pass\nk[(1,)](1)\n").entries == ()


def test_stacks_of_any_height() -> None:
    check(
        """\
        import triton
        from triton import autotune
        @unknown
        @autotune(
            configs=[triton.Config({"B": 1})],
            key=["n"],
        )
        # between
        @triton.heuristics({"E": lambda a: a["n"] % 2 == 0})
        @triton.jit(
            do_not_specialize=["n"],
        )
        def k(
            x, n,
        ):
            pass
        """,
        "13 k",
    )


def test_the_last_binding_before_the_use_counts() -> None:
    check(
        """\
        from jax import jit
        @jit
        def no(x): pass
        from triton import jit
        @jit
        def yes(x): pass
        from jax import jit
        @jit
        def no_more(x): pass
        def f():
            @jit
            def at_the_end(x): pass
        """,
        "6 yes",
    )


def test_places() -> None:
    check(
        """\
        import triton
        def factory(n):
            if n:
                @triton.jit
                def nested(x): pass
            return nested
        class C:
            @triton.jit
            def method(x): pass
            @staticmethod
            @triton.jit
            def static(x): pass
            class D:
                @triton.jit
                def deep(x): pass
        if triton:
            @triton.jit
            def one(x): pass
        elif other:
            @triton.jit
            def two(x): pass
        else:
            try:
                @triton.jit
                def three(x): pass
            except E:
                @triton.jit
                def four(x): pass
            finally:
                for i in range(3):
                    with a as b:
                        @triton.jit
                        def five(x): pass
        match x:
            case 1:
                @triton.jit
                def six(x): pass
        def lazily():
            from triton import jit
            @jit
            def own(x): pass
        """,
        """
        5 factory.nested
        9 C.method
        12 C.static
        15 C.D.deep
        18 one
        21 two
        25 three
        28 four
        33 five
        37 six
        41 lazily.own
        """,
    )


def test_a_class_is_no_scope_for_its_methods() -> None:
    check(
        """\
        from jax import jit
        class C:
            from triton import jit
            @jit
            def yes(x): pass
            def f():
                @jit
                def no(x): pass
        """,
        "5 C.yes",
    )


def test_strings_and_comments() -> None:
    check(
        '''\
        import triton
        S = """
        @triton.jit
        def no(x): pass
        """
        F = f"""
        @triton.jit
        def {name}(x): pass
        """
        # @triton.jit
        # def neither(x): pass
        @triton.jit
        def yes(x):
            """
        @triton.jit
        def nor_this(x): pass
            """
        ''',
        "13 yes",
    )


# -- assignments ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "value",
    [
        "triton.jit(f)",
        "triton.jit(fn=f)",
        "triton.jit(do_not_specialize=['n'])(f)",
        "triton.autotune(configs=[], key=[])(triton.jit(f))",
        "triton.autotune([], [])(triton.heuristics({})(triton.jit(f)))",
        "triton.JITFunction(f)",
        "wrap(triton.jit(f))",
        "staticmethod(triton.jit(f))",
        "my(f)",
        "partial(triton.jit, debug=True)(f)",
    ],
)
def test_an_assignment_makes_a_kernel(value: str) -> None:
    check(
        f"import triton\nfrom functools import partial\nmy = triton.jit\ndef f(x): pass\nk = {value}\n", "5 k"
    )


def test_assignments_in_other_places() -> None:
    check(
        """\
        import triton
        def f(x): return x
        a, b = triton.jit(f), 3
        c: object = triton.jit(f)
        class C:
            d = triton.jit(f)
        def g():
            e = triton.jit(f)
            x = triton.cdiv(4, 2)
            return e
        @triton.jit
        def raw(x): pass
        tuned = triton.autotune([], [])(raw)
        not_one = wrap(raw)
        grid = triton.cdiv(3, 4)
        """,
        """
        3 a helper
        4 c helper
        6 C.d helper
        8 g.e helper
        12 raw
        """,
    )


# -- spans, launches, entries, includes ----------------------------------------------------------


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("start", ["", "\ufeff", "\f", "# ünï 🚀 cömment\n", "x = '🚀'\n", "s = '\udc80'\n"])
def test_spans_count_code_points(start: str, end: str) -> None:
    text = (start + "import triton as 三\n@三.jit\ndef ядро🚀(x): pass\n").replace("🚀(", "(")
    text += "class Ü:\n    é = 1; ñ = 三.jit(ядро)\n"
    lines = text.splitlines() if "\f" not in text else text.split("\n")
    row = next(i for i, line in enumerate(lines) if "def" in line)
    kernel, assigned = scan(text.replace("\n", end)).kernels
    assert kernel.name == "ядро"
    assert kernel.line == row
    assert kernel.name_span.column == 4
    assert kernel.name_span.end_column == 8
    assert (kernel.whole.line, kernel.whole.column) == (row - 1, 0)
    assert (kernel.whole.end_line, kernel.whole.end_column) == (row, len("def ядро(x): pass"))
    assert assigned.line == row + 2
    assert assigned.name_span.column == 11
    assert assigned.whole.end_column == len("    é = 1; ñ = 三.jit(ядро)")


def test_launches_are_those_of_the_files_kernels() -> None:
    result = scan(
        IMPORT
        + dedent("""\
        @triton.jit
        def k(x, n, B): pass
        handlers[name](event)
        def host(x):
            k[(triton.cdiv(n, 4), 2)](
                x, x.numel(),  # size
                B=1024,
            )
            C.k[lambda META: (1,)](x)
        """)
    )
    assert [
        (launch.kernel, launch.line, launch.grid, launch.arguments, launch.block)
        for launch in result.launches
    ] == [
        ("k", 6, "(triton.cdiv(n, 4), 2)", ("x", "x.numel()", "B=1024"), None),
        ("k", 10, "lambda META: (1,)", ("x",), None),
    ]


@pytest.mark.parametrize(
    ("text", "entries"),
    [
        ("def main(): pass\ndef benchmark(n=1, *a, k=2, **o): pass\n", ("benchmark", "main")),
        ("def run(x): pass\ndef test(*, x): pass\nasync def main(): pass\n", ()),
        ("def run(x): pass\ndef run(): pass\n", ("run",)),
        ("@no_grad()\ndef benchmark_kernel(): pass\n", ("benchmark_kernel",)),
        ("class C:\n  def main(): pass\ndef f():\n  def run(): pass\n", ()),
        ("import triton\n@triton.jit\ndef run(): pass\n", ()),
        ("def test(): pass\nif __name__ == '__main__':\n  test()\n", ("test", "__main__")),
        ('if "__main__" == __name__ and ok: pass\n', ("__main__",)),
        ("if __name__ != '__main__': pass\n", ()),
        ("def f():\n  if __name__ == '__main__': pass\n", ()),
    ],
)
def test_entries(text: str, entries: tuple[str, ...]) -> None:
    assert scan(text).entries == entries


def test_includes_are_the_modules_imported_at_the_top() -> None:
    result = scan(
        dedent("""\
        import a.b, c as d
        from e.f import g
        from .h import i
        from . import j, k as l
        from .. import m
        from .n import *
        try:
            import o
        except ImportError:
            import a.b
        def f():
            import p
        """)
    )
    assert result.includes == ("a.b", "c", "e.f", ".h", ".j", ".k", "..m", ".n", "o")


# -- syntax errors -------------------------------------------------------------------------------

GOOD = "@triton.jit\ndef {}(x):\n    y = tl.load(x)\n    tl.store(x, y)\n\n\n"


@pytest.mark.parametrize(
    "broken",
    [
        "def f(x:\n    pass\n",
        "x = foo(1, [2\n",
        "x = {\n",
        "@triton.jit\ndef b(x):\n    y = tl.load(x,\n    tl.store(x, y)\n",
        "class C:\n    def f(self\n",
        "def f(x):\n    return (\n\n@triton.autotune(\n",
        "if x\n    y\n",
        "s = 'no end\n",
        's = """no end\n',
        "def f():\n    '''no end\n    pass\n",
        "for in in in\n",
        ")))\n",
        "x = 1 +\n",
        "\udc80 = \0\n",
    ],
)
def test_an_error_costs_no_neighbour(broken: str) -> None:
    result = scan(IMPORT + GOOD.format("before") + broken + GOOD.format("after") + GOOD.format("last"))
    assert {"before", "after", "last"} <= {kernel.name for kernel in result.kernels}


# -- digests -------------------------------------------------------------------------------------

FILE = IMPORT + dedent('''\
    SIZE = 4
    @triton.jit
    def helper(a):
        return a + 1
    # orbit: n = 4
    @triton.jit
    def first(x, n: tl.constexpr):
        """Doc."""
        if n > 1:
            tl.store(x, helper(n) * SIZE)
            tl.store(x, 0)
    @triton.jit
    def second(x):
        tl.store(x, 1)
    def host(x):
        first[(1,)](x, n=2)
    class C:
        # orbit: m = 1
        @triton.jit
        def third(x):
            pass
        y = 1
    def raw(x): pass
    fourth = triton.jit(raw)
''')


@pytest.mark.parametrize(
    ("old", "new", "changed"),
    [
        ("SIZE = 4", "SIZE  =  4  # comment", ""),
        ("SIZE = 4", "\n\n# comment\nSIZE = 4\n\n", ""),
        ("helper(n) * SIZE", "helper(\n   n\n ) * SIZE", ""),
        ("helper(n) * SIZE", "helper( n )*SIZE", ""),
        ("    if n > 1:\n        tl", "    if n > 1:\n\n        # why\n        tl", ""),
        ("# orbit: n = 4", "# orbit: n = 4\n# a comment\n", ""),
        ("# orbit: n = 4", "# orbit: n = 5", "first"),
        ("# orbit: m = 1", "# orbit: m = 2", "C.third"),
        ("SIZE = 4", "SIZE = 5", "all"),
        ("a + 1", "a + 2", "helper first"),
        ("tl.store(x, 0)", "tl.store(x, 2)", "first"),
        ("        tl.store(x, 0)", "    tl.store(x, 0)", "first"),
        ("tl.store(x, 1)", "tl.store(x, 3)", "second"),
        ('"""Doc."""', '"""Dog."""', "first"),
        ("n=2", "n=3", "all"),
        ("y = 1", "y = 2", "all"),
        ("def third(x):\n        pass", "def third(x):\n        x", "C.third"),
        ("def raw(x): pass", "def raw(x): x", "fourth"),
        ("triton.jit(raw)", "triton.jit(raw, debug=True)", "fourth"),
        ("not x", "notx", ""),
    ],
)
def test_what_a_digest_depends_on(old: str, new: str, changed: str) -> None:
    text = FILE.replace("SIZE = 4", "SIZE = not x\nSIZE = 4") if old == "not x" else FILE
    assert old in text
    before, after = scan(text), scan(text.replace(old, new, 1))
    names = [kernel.qualified for kernel in before.kernels]
    assert names == [kernel.qualified for kernel in after.kernels]
    different = [name for name, a, b in zip(names, before.digests, after.digests, strict=True) if a != b]
    everything = " ".join(names)
    expected = everything if changed == "all" or old == "not x" else changed
    assert " ".join(different) == expected


def test_the_width_of_indentation_does_not_count() -> None:
    wide = FILE.replace("    ", "        ")
    assert scan(wide).digests == scan(FILE).digests
    tabs = FILE.replace("    ", "\t")
    assert scan(tabs).digests == scan(FILE).digests


def test_the_same_kernel_has_the_same_digest_anywhere_in_the_file() -> None:
    added = FILE.replace("def host", "@triton.jit\ndef fifth(x): pass\ndef host")
    assert scan(added).digests[:3] == scan(FILE).digests[:3]
