"""Launch specs on a real GPU: what is right passes, what is wrong is found, what cannot run says why."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from textwrap import dedent

import pytest

from orbit_remote.common import messages as c
from tests.gpu.clicks import Bench

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(shutil.which("nvidia-smi") is None, reason="no NVIDIA GPU on this machine"),
]


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    made = Bench(tmp_path_factory.mktemp("specs"))
    yield made
    made.close()


def told(finished: c.Finished) -> str:
    """The outcome, every problem at its line, and for each point what was checked and timed."""
    lines = [finished.outcome]
    lines += [
        f"{problem.place.line if problem.place else '-'}: {problem.message}" for problem in finished.problems
    ]
    if finished.failure and not finished.problems:
        lines.append(finished.failure.message)
    for point in finished.points:
        values = " ".join(f"{name}={value}" for name, value in point.values.items())
        marks = "".join("✓" if check.passed else "✗" for check in point.checks)
        timed = " ".join(launch.name for launch in point.launches)
        lines.append(" ".join(filter(None, [point.case or "timed", values, marks, timed])))
    return "\n".join(lines)


def check(bench: Bench, source: str, expected: str, name: str = "k.cu") -> None:
    assert told(bench.run(source, name)) == dedent(expected).strip("\n")


# -- what is right -----------------------------------------------------------------------------------

SAXPY = """
    // orbit: n = 1 << 20; a = 2.0f
    // orbit: x = randn(n); y = randn(n)
    // orbit: launch saxpy<<<(n + 255) / 256, 256>>>(n, a, x, y)
    // orbit: expect y == a * x + y
    // orbit: case tail: n = 1000003
    __global__ void saxpy(int n, float a, const float* x, float* y) {
      int i = blockIdx.x * blockDim.x + threadIdx.x;
      if (i < n) y[i] = a * x[i] + y[i];
    }
    """


def test_an_output_that_is_also_an_input(bench: Bench) -> None:
    """Hundreds of launches on it: were it not restored, it would be infinite."""
    check(bench, SAXPY, "ok\ntimed ✓✓ saxpy\ntail n=1000003 ✓")


def test_a_sort_in_place_sorts_every_time(bench: Bench) -> None:
    finished = bench.run("""
        // orbit: x = randint(0, 1000000, 1024, dtype=int32)
        // orbit: launch sort<<<1, 1024>>>(x)
        // orbit: expect x == sort(x)
        __global__ void sort(int* x) {
          __shared__ int s[1024];
          int t = threadIdx.x, swaps = 0;
          s[t] = x[t];
          __syncthreads();
          for (int k = 2; k <= 1024; k *= 2)
            for (int j = k / 2; j > 0; j /= 2) {
              int other = t ^ j;
              if (other > t && ((t & k) == 0) == (s[t] > s[other])) { int v = s[t]; s[t] = s[other]; s[other] = v; ++swaps; }
              __syncthreads();
            }
          // sorting what is sorted would be quick: what is unsorted waits
          if (swaps > 0) for (long long end = clock64() + 100000; clock64() < end;) {}
          x[t] = s[t];
        }
        """)
    assert told(finished) == "ok\ntimed ✓✓ sort"
    assert finished.launches[0].timing.minimum > 40_000, "100,000 clocks are 50 µs and more"


def test_the_sm_clock_while_a_kernel_ran(bench: Bench) -> None:
    """A kernel that waits for 400,000 cycles tells the clock by its time."""
    finished = bench.run("""
        // orbit: x = empty(132, dtype=int32)
        // orbit: launch wait<<<132, 32>>>(x)
        // orbit: expect x == full(132, 1, dtype=int32)
        __global__ void wait(int* x) {
          for (long long end = clock64() + 400000; clock64() < end;) {}
          x[blockIdx.x] = 1;
        }
        """)
    assert told(finished) == "ok\ntimed ✓✓ wait"
    timing = finished.launches[0].timing
    assert timing.sm_clock_mhz == pytest.approx(1000 * 400_000 / timing.median, rel=0.02)


def test_a_buffer_that_is_added_to(bench: Bench) -> None:
    check(
        bench,
        """
        // orbit: n = 100000
        // orbit: x = randint(0, 64, n, dtype=int32); counts = zeros(64, dtype=int32)
        // orbit: launch histogram<<<64, 256>>>(x, counts, n)
        // orbit: expect counts == bincount(x, 64)
        __global__ void histogram(const int* x, int* counts, int n) {
          for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) atomicAdd(&counts[x[i]], 1);
        }
        """,
        "ok\ntimed ✓✓ histogram",
    )


def test_nan_and_infinity_are_what_they_are(bench: Bench) -> None:
    check(
        bench,
        """
        // orbit: n = 4096; x = randn(n); y = empty(n)
        // orbit: launch k<<<16, 256>>>(x, y)
        // orbit: expect y == where(x < 0, log(x), x / 0)
        __global__ void k(const float* x, float* y) {
          int i = blockIdx.x * blockDim.x + threadIdx.x;
          y[i] = x[i] < 0 ? logf(x[i]) : x[i] / 0.0f;
        }
        """,
        "ok\ntimed ✓✓ k",
    )


def test_template_values_are_swept(bench: Bench) -> None:
    check(
        bench,
        """
        // orbit: T = sweep(32, 64); x = randn(4096); y = empty(4096)
        // orbit: launch scale<T><<<4096 / T, T>>>(x, y)
        // orbit: expect y == x * 2
        template <int T> __global__ void scale(const float* x, float* y) { int i = blockIdx.x * T + threadIdx.x; y[i] = x[i] * 2; }
        """,
        "ok\ntimed T=32 ✓✓ scale<32>\ntimed T=64 ✓✓ scale<64>",
    )


@pytest.mark.parametrize(
    ("parameter", "number", "expression", "made"),
    [
        ("__half", "1.5f", "__half2float(v)", "1.5"),
        ("__nv_bfloat16", "1.5f", "__bfloat162float(v)", "1.5"),
        ("double", "1.0 / 3.0", "(float)v", "1.0 / 3.0"),
        ("unsigned long long", "1ull << 40", "(float)(v >> 38)", "4"),
        ("short", "-3", "(float)v", "-3"),
        ("bool", "true", "v ? 1.0f : 0.0f", "1"),
        ("unsigned char", "200", "(float)v", "200"),
    ],
)
def test_numbers_are_passed_as_their_parameter_is(
    bench: Bench, parameter: str, number: str, expression: str, made: str
) -> None:
    check(
        bench,
        f"""
        #include <cuda_bf16.h>
        #include <cuda_fp16.h>
        // orbit: y = empty(1)
        // orbit: launch k<<<1, 1>>>(y, {number}, 7)
        // orbit: expect y == {made}
        __global__ void k(float* y, {parameter} v, int after) {{ y[0] = after == 7 ? {expression} : -1.0f; }}
        """,
        "ok\ntimed ✓✓ k",
    )


def test_vectors_symbols_and_shared_memory(bench: Bench) -> None:
    check(
        bench,
        """
        namespace filter { __constant__ float weights[4]; }
        __device__ int shift;
        // orbit: w = randn(4); n = 1 << 16; x = randn(n); y = empty(n)
        // orbit: symbol weights = w; symbol shift = 3
        // orbit: launch k<<<n / 4 / 256, 256, 100 * 1024>>>(x, y)
        // orbit: expect y == (x.view(n / 4, 4) * w + 3).view(n)
        __global__ void k(const float4* x, float4* y) {
          extern __shared__ float4 s[];
          int i = blockIdx.x * blockDim.x + threadIdx.x;
          s[threadIdx.x + 6000] = x[i];
          float4 v = s[threadIdx.x + 6000];
          y[i] = make_float4(v.x * filter::weights[0] + shift, v.y * filter::weights[1] + shift, v.z * filter::weights[2] + shift,
                             v.w * filter::weights[3] + shift);
        }
        """,
        "ok\ntimed ✓✓ k",
    )


def test_clusters_and_cooperative_launches(bench: Bench) -> None:
    check(
        bench,
        """
        #include <cooperative_groups.h>
        // orbit: y = empty(8, dtype=int32)
        // orbit: launch ranks<<<8, 32>>>(y) cluster(4)
        // orbit: expect y == arange(8) % 4
        __global__ void ranks(int* y) { if (threadIdx.x == 0) y[blockIdx.x] = cooperative_groups::this_cluster().block_rank(); }
        """,
        "ok\ntimed ✓✓ ranks",
    )
    check(
        bench,
        """
        #include <cooperative_groups.h>
        // orbit: part = empty(64, dtype=int32); y = empty(1, dtype=int32)
        // orbit: launch sum<<<64, 32>>>(part, y) cooperative
        // orbit: expect y == 2016
        __global__ void sum(int* part, int* y) {
          if (threadIdx.x == 0) part[blockIdx.x] = blockIdx.x;
          cooperative_groups::this_grid().sync();
          if (blockIdx.x == 0 && threadIdx.x == 0) { int s = 0; for (int i = 0; i < 64; ++i) s += part[i]; *y = s; }
        }
        """,
        "ok\ntimed ✓✓ sum",
    )


def test_a_tensor_map(bench: Bench) -> None:
    check(
        bench,
        """
        #include <cuda.h>
        // orbit: x = randn(64, 64); y = empty(16, 16)
        // orbit: launch tile<<<1, 256>>>(tensor_map(x, (16, 16)), y, 32, 16)
        // orbit: expect y == x[16:32, 32:48]
        __global__ void tile(const __grid_constant__ CUtensorMap map, float* y, int column, int row) {
          __shared__ alignas(128) float s[16 * 16];
          __shared__ alignas(8) unsigned long long bar;
          unsigned b = (unsigned)__cvta_generic_to_shared(&bar), d = (unsigned)__cvta_generic_to_shared(s);
          if (threadIdx.x == 0) {
            asm volatile("mbarrier.init.shared.b64 [%0], 1;" ::"r"(b));
            asm volatile("fence.proxy.async.shared::cta;");
            asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], 1024;" ::"r"(b));
            asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];"
                         ::"r"(d), "l"(&map), "r"(column), "r"(row), "r"(b) : "memory");
          }
          __syncthreads();
          asm volatile("{.reg .pred p; W: mbarrier.try_wait.parity.shared.b64 p, [%0], 0; @!p bra W;}" ::"r"(b));
          y[threadIdx.x] = s[threadIdx.x];
        }
        """,
        "ok\ntimed ✓✓ tile",
    )


def test_another_kernel_is_the_reference(bench: Bench) -> None:
    source = """
        __global__ void slow(const float* x, float* y, int n) { for (int i = threadIdx.x; i < n; i += 32) y[i] = x[i] * 3; }
        // orbit: n = 4096; x = randn(n); y = empty(n)
        // orbit: launch fast<<<n / 256, 256>>>(x, y)
        // orbit: reference slow<<<1, 32>>>(x, y, n)
        __global__ void fast(const float* x, float* y) { int i = blockIdx.x * blockDim.x + threadIdx.x; y[i] = x[i] * 3; }
        """
    check(bench, source, "ok\ntimed ✓✓ fast")
    assert (
        bench.run(source.replace("y[i] = x[i] * 3; }\n        //", "y[i] = x[i] * 4; }\n        //")).outcome
        == "wrong answer"
    )


TRITON = """
    import torch
    import triton
    import triton.language as tl


    def doubled(x):
        return x * 2


    {decorator}
    # orbit: n = 100000; x = torch.randn(n, device="cuda"); out = torch.empty_like(x)
    # orbit: launch double[lambda META: (triton.cdiv(n, META["BLOCK"]),)](x, out, n{constants})
    # orbit: {expect}
    {autotune}@triton.jit
    def double(x, out, n, BLOCK: tl.constexpr):
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(out + at, tl.load(x + at, mask=at < n) * 2, mask=at < n)
    """


@pytest.mark.parametrize(
    "expect", ["expect out == x * 2", "reference doubled(x)", "reference out == doubled"]
)
def test_triton(bench: Bench, expect: str) -> None:
    source = TRITON.format(decorator="", autotune="", constants=", BLOCK=1024, num_warps=4", expect=expect)
    check(bench, source, "ok\ntimed ✓✓ double", "k.py")


def test_an_autotuned_kernel_says_what_it_chose(bench: Bench) -> None:
    configs = "[triton.Config({'BLOCK': b}, num_warps=w) for b, w in ((512, 4), (2048, 8))]"
    source = TRITON.format(
        decorator="",
        autotune=f"@triton.autotune({configs}, key=['n'])\n    ",
        constants="",
        expect="expect out == x * 2",
    )
    finished = bench.run(source, "k.py")
    assert told(finished) == "ok\ntimed ✓✓ double"
    (launches,) = finished.launches
    (chosen,) = [tried for tried in launches.tuning if tried.chosen]
    assert len(launches.tuning) == 2
    assert f"BLOCK: {launches.constants['BLOCK']}" in chosen.configuration


# -- what is wrong -----------------------------------------------------------------------------------


def wrong(body: str, more: str = "") -> str:
    return f"""
        {more}
        // orbit: n = 5000; x = randn(n); y = empty(n)
        // orbit: launch k<<<20, 256>>>(x, y, n)
        // orbit: expect y == x * 2
        __global__ void k(const float* x, float* y, int n) {{
          int i = blockIdx.x * blockDim.x + threadIdx.x;
          {body}
        }}
        """


@pytest.mark.parametrize(
    ("body", "outcome", "message"),
    [
        ("if (i < n && i != 77) y[i] = x[i] * 2;", "wrong answer", "y[77] is nan, expected"),
        ("if (i < n) y[i] = x[i] * 2.001f;", "wrong answer", "elements differ"),
        ("if (i < n / 256 * 256) y[i] = x[i] * 2;", "wrong answer", "136 of 5000 elements differ"),
        (
            "if (i <= n) y[i] = x[i] * 2;",
            "runtime error",
            "writes outside of y: 4 bytes, one of them 0 bytes after its end",
        ),
        ("if (i < n) y[i] = x[i] * 2; if (i == 3) y[-2] = 0;", "runtime error", "8 bytes before its start"),
        (
            "if (i < n) y[i * 1000000ll] = x[i] * 2;",
            "runtime error",
            "k ended with CUDA_ERROR_",  # which one depends on what lies there
        ),
    ],
)
def test_a_wrong_kernel_is_found(bench: Bench, body: str, outcome: str, message: str) -> None:
    finished = bench.run(wrong(body))
    assert finished.outcome == outcome
    assert finished.failure
    assert any(message in problem.message for problem in finished.problems), told(finished)
    assert not finished.launches, "how long a wrong answer takes is not told"


def test_a_kernel_that_computes_only_once_is_found(bench: Bench) -> None:
    once = "if (i < n) { if (!done[i]) kept[i] = x[i] * 2; done[i] = true; y[i] = kept[i]; }"
    finished = bench.run(wrong(once, "__device__ bool done[5120]; __device__ float kept[5120];"))
    assert finished.outcome == "wrong answer"
    assert finished.failure
    assert "only when launched again with other inputs" in finished.failure.message


# -- what cannot run ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("launch", "message"),
    [
        (
            "<<<1, 256, 400000>>>",
            "A block gets at most 232448 bytes of shared memory here; this asks for 400000.",
        ),
        ("<<<1, 1024>>>", "A block of 1024 threads cannot be launched: its"),
    ],
)
def test_what_the_driver_would_refuse_is_explained(bench: Bench, launch: str, message: str) -> None:
    finished = bench.run(f"""
        #ifndef MOST  // so that the text does not tell
        #define MOST 512
        #endif
        // orbit: x = randn(1024)
        // orbit: launch k{launch}(x)
        __global__ void __launch_bounds__(MOST) k(float* x) {{ x[threadIdx.x] = 1; }}
        """)
    assert finished.outcome == "runtime error"
    assert message in told(finished)


def test_more_than_the_gpu_has_is_refused_with_both_sizes(bench: Bench) -> None:
    finished = bench.run(SAXPY.replace("1 << 20", "1 << 30").replace("int n,", "long n,").replace("a = 2.0f", "a = 2.0f; w = randn(1 << 30, 40)").replace("y)\n    // orbit: expect", "y)\n    // orbit: expect").replace("== a * x + y", "== a * x + y + w[0, 0] * 0"))  # fmt: skip
    assert finished.outcome == "runtime error"
    assert finished.failure
    assert "w alone 171.8 GB" in finished.failure.message
    assert "free" in finished.failure.message


def test_a_template_that_does_not_fit_is_a_compile_error_at_the_launch(bench: Bench) -> None:
    finished = bench.run("""
        // orbit: x = randn(256)
        // orbit: launch k<float><<<1, 256>>>(x)
        template <int T> __global__ void k(float* x) { x[threadIdx.x] = T; }
        """)
    assert finished.outcome == "compile error"
    assert finished.failure
    assert finished.failure.place
    assert finished.failure.place.line == 2
