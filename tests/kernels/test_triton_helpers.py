"""Which kernels of a Python file can be launched, and which only help others: the case format of `test_triton`."""

from __future__ import annotations

from textwrap import dedent

import pytest

from tests.kernels.triton_check import IMPORT, check


def check_helpers(body: str, expected: str) -> None:
    check(IMPORT + dedent(body), expected)


def test_a_function_that_returns_a_value_is_a_helper() -> None:
    check_helpers(
        """\
        @triton.jit
        def add(a, b):
            return a + b
        @triton.jit
        def twice(a):
            return add(a, a)
        @triton.jit
        def k(x):
            if x:
                return
            tl.store(x, twice(1))
        @triton.jit
        def other(x):
            add(x, x)
        """,
        """
        4 add helper of other, k
        7 twice helper of k
        10 k
        15 other
        """,
    )


def test_a_librarys_own_decorator_makes_kernels_of_functions() -> None:
    check_helpers(
        """\
        @pointwise_dynamic(promotion_methods=[(0, 1, "DEFAULT")])
        @triton.jit
        def add_func(x, y):
            return x + y

        @library.pointwise
        @triton.jit
        def neg_func(x):
            return -x

        def add(a, b):
            return add_func(a, b)
        """,
        """
        5 add_func of pointwise_dynamic
        10 neg_func of pointwise
        """,
    )


def test_a_call_of_jit_makes_a_kernel_of_the_def() -> None:
    check_helpers(
        """\
        def f(x):
            tl.store(x, helper(1))
        f = triton.jit(f)

        def g(x): pass
        if True:
            g = triton.autotune(configs=[], key=[])(triton.jit(g))

        @triton.jit
        def helper(x):
            return x

        class C:
            def inside(x): pass
            inside = triton.jit(inside)
        """,
        """
        3 f
        7 g
        12 helper helper of f
        16 C.inside
        """,
    )


def test_wrappers_and_factories_of_jit_are_no_kernels() -> None:
    check_helpers(
        """\
        def maybe_jit(fn=None, *, enabled=True):
            if fn is None:
                return lambda f: maybe_jit(f, enabled=enabled)
            return triton.jit(fn) if enabled else fn

        def patched(kernel, n):
            return triton.jit(replaced(kernel.fn, n))

        def make(n):
            @triton.jit
            def inner(x): pass
            return inner

        class Wrapper:
            def __init__(self, fn):
                self.fn = triton.jit(fn)

        @maybe_jit
        def k(x): pass
        @maybe_jit(enabled=False)
        def l(x): pass
        k = patched(k, 3)
        made = make(3)
        """,
        """
        13 make.inner
        21 k
        23 l
        """,
    )


def test_a_variable_of_a_kernels_name_is_no_call_of_it() -> None:
    check_helpers(
        """\
        @triton.jit
        def total(x):
            tl.store(x, 1)

        @triton.jit
        def mean(x, y):
            total = tl.sum(tl.load(x), 0)
            tl.store(y, total)

        @triton.jit
        def most(x):
            tl.store(x, 2)

        @triton.jit
        def calls(x):
            most = most(x)
        """,
        """
        4 total
        8 mean
        13 most helper of calls
        17 calls
        """,
    )


def test_a_function_that_only_kernels_call_is_a_helper() -> None:
    check_helpers(
        """\
        @triton.jit
        def put(p): tl.store(p, 0)
        @triton.jit
        def k(x): put(x)
        @triton.jit
        def nobody(x): nobody(x)
        """,
        "4 put helper of k\n6 k\n8 nobody",
    )


@pytest.mark.parametrize(
    "host",
    [
        "put[(1,)](x)",
        "def host(x): put[(n,)](x)",
        "run(put)",
        "table = {1: put}",
        "__all__ = ['put']",
        "__all__ += ['k', 'put']",
    ],
)
def test_what_the_host_uses_can_be_launched(host: str) -> None:
    check_helpers(
        f"@triton.jit\ndef put(p): tl.store(p, 0)\n@triton.jit\ndef k(x): put(x)\n{host}\n", "4 put\n6 k"
    )


def test_a_helper_may_be_handed_to_a_reduction() -> None:
    check_helpers(
        """\
        @triton.jit
        def combine(a, b): return a + b
        @triton.jit
        def k(x): tl.reduce(x, 0, combine)
        """,
        "4 combine helper of k\n6 k",
    )


def test_a_launch_or_a_tuner_outweighs_a_returned_value() -> None:
    check_helpers(
        """\
        @triton.jit
        def launched(x): return x
        launched[(1,)](x)
        @triton.autotune([], [])
        @triton.jit
        def tuned(x): return x
        @triton.jit
        def k(x): launched(x)
        """,
        "4 launched\n8 tuned\n10 k",
    )


def test_a_parameter_is_not_the_kernel_of_that_name() -> None:
    check_helpers(
        """\
        @triton.jit
        def bias(x): tl.store(x, 0)
        @triton.jit
        def k(x, bias): tl.store(x, bias)
        """,
        "4 bias\n6 k",
    )


def test_methods_call_each_other_through_the_class() -> None:
    check_helpers(
        """\
        class C:
            @triton.jit
            def add(a, b): return a + b
            @triton.jit
            def k(x): C.add(x, x)
        """,
        "5 C.add helper of C.k\n7 C.k",
    )
