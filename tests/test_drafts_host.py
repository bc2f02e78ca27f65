"""Drafts from the launch that host code has, and the code action that offers both kinds."""

from __future__ import annotations

import pytest
from lsprotocol import types as lsp

from orbit_lsp.kernels.python import triton_kernels
from orbit_lsp.specs import job_builder
from orbit_lsp.state.documents import TextChange
from orbit_lsp.views import diagnostics
from orbit_lsp.views.spec import spec_drafts
from tests.drafting import FROM_LAUNCH, FROM_SIGNATURE, HOST, WRAPPERS, check, opened, written


def test_a_launch_of_host_code_in_its_own_words() -> None:
    check(
        HOST,
        """
        // orbit: n = 1 << 24; alpha = 2.5f; x = randn(n); d_y = randn(n); kBlock = 128
        // orbit: blocks = (n + kBlock - 1) / kBlock
        // orbit: launch saxpy<<<blocks, kBlock>>>(n, alpha, x, d_y)
        """,
        FROM_LAUNCH,
    )


def test_templates_dim3_macros_and_what_is_read_from_the_command_line() -> None:
    check(
        HOST,
        """
        // orbit: TILE = 16; M = 512; N = 256
        // orbit: K = 1024  // guessed
        // orbit: A = randn(M * K); B = randn(K * N); C = empty(M * N)
        // orbit: grid = dim3((N + TILE - 1) / TILE, (M + TILE - 1) / TILE); block = dim3(TILE, TILE)
        // orbit: launch mm<TILE><<<grid, block, 2 * TILE * TILE * sizeof(float)>>>(A, B, C, M, N, K)
        """,
        FROM_LAUNCH,
        number=1,
    )
    check(
        HOST,
        """
        // orbit: n = 1 << 20; x = randn(n); out = empty(n)  // guessed
        // orbit: launch scale<<<dim3(4), 256>>>(x, out, n)
        """,
        FROM_LAUNCH,
        number=2,
    )


MEMBERS = """
#define TILE 16
__global__ void k(float* out, const float* in, int n, int m) { out[threadIdx.y * n] = in[m]; }
void another() { dim3 block(8, 8), grid(2); int n = 77; }
void host(float* x, float* y, int n, int m) {
  BLOCKS
  k<<<CONFIGURATION>>>(x, y, n, m);
}
"""


@pytest.mark.parametrize(
    ("blocks", "configuration", "assigned", "launched"),
    [
        (
            "dim3 block(16, 16);", "dim3(n / block.x, m / block.y), block",
            "block = dim3(16, 16)", "dim3(n / 16, m / 16), block",
        ),
        (
            "dim3 block = dim3(TILE, 2 + 2); const dim3 grid((n + block.x * block.y - 1) / (block.x * block.y));",
            "grid, block, block.x * block.y * sizeof(float)",
            "TILE = 16; grid = dim3((n + TILE * (2 + 2) - 1) / (TILE * (2 + 2))); block = dim3(TILE, 2 + 2)",
            "grid, block, TILE * (2 + 2) * sizeof(float)",
        ),
        ("dim3 block = 128, grid = (n + block.x - 1) / block.x;", "grid.x, block.x", "", "(n + 128 - 1) / 128, 128"),
        ("dim3 block = {32, 4};", "n / block.x, block.x * block.y * block.z", "", "n / 32, 32 * 4 * 1"),
        ("auto block = dim3{32, 4};", "dim3{n / block.x}, block", "block = dim3{32, 4}", "dim3{n / 32}, block"),
        ("cudaDeviceProp device;", "device.multiProcessorCount, 256", None, None),
        ("dim3 block(device.x);", "n / block.x, block", None, None),
        ("", "grid, block", None, None),  # another function's
    ],
)  # fmt: skip
def test_members_of_dim3(blocks: str, configuration: str, assigned: str | None, launched: str | None) -> None:
    text = MEMBERS.replace("BLOCKS", blocks).replace("CONFIGURATION", configuration)
    lines = ["n = 1024; m = 1024; x = empty(n, m); y = randn(n, m)  // guessed", assigned, f"launch k<<<{launched}>>>(x, y, n, m)"]  # fmt: skip
    made = "".join(f"// orbit: {line}\n" for line in lines if line)
    assert written(text, FROM_LAUNCH, "cuda") == (made if launched else "")


def test_quotients_that_are_rounded_up_by_whatever_name() -> None:
    for name in ("CEIL_DIV", "ceil_div", "host::ceilDiv", "iDivUp", "div_up", "at::ceil_div"):
        check(
            f"""
            #define CEIL_DIV(a, b) (((a) + (b) - 1) / (b))
            __global__ void k(float* x, int n) {{ x[blockIdx.x * blockDim.x] = 1; }}
            void host(float* x, int n) {{ dim3 block(128); k<<<{name}(n, (int)block.x), block>>>(x, n); }}
            """,
            """
            // orbit: n = 1 << 20; x = empty(n)  // guessed
            // orbit: block = dim3(128)
            // orbit: launch k<<<cdiv(n, (int)128), block>>>(x, n)
            """,
            FROM_LAUNCH,
        )


def test_descriptors_of_host_code() -> None:
    check(
        """
        import torch, triton
        import triton.language as tl
        from triton.tools.tensor_descriptor import TensorDescriptor

        @triton.jit
        def k(a_desc, b_desc, c_desc):
            c_desc.store([0, 0], a_desc.load([0, 0]) + b_desc.load([0, 0]))

        def add(a, b):
            c = torch.empty_like(a)
            made = TensorDescriptor.from_tensor(c, [64, 32])
            k[(1,)](TensorDescriptor.from_tensor(a, [64, 32]), TensorDescriptor.from_tensor(b, block_shape=[64, 32]), made)
        """,
        """
        # orbit: a = torch.randn(1024, 1024); b = torch.randn(1024, 1024)  # guessed
        # orbit: c = torch.empty_like(a); made = TensorDescriptor.from_tensor(c, [64, 32])
        # orbit: launch k[(1,)](TensorDescriptor.from_tensor(a, [64, 32]), TensorDescriptor.from_tensor(b,
        # orbit:   block_shape=[64, 32]), made)
        """,
        FROM_LAUNCH,
        "triton",
    )


def test_no_draft_has_what_its_own_check_would_refuse() -> None:
    """More threads than the kernel's launch bounds, more shared memory than the GPU has."""
    for kernel, configuration in (
        ("__global__ void __launch_bounds__(128) k(int n) {}", "1, 256"),
        ("__global__ void k(int n) {}", "1, 256, 300 << 10"),
        ("__global__ void k(int n) {}", "1, dim3(64, 32)"),
    ):
        text = f"{kernel}\nvoid host(int n) {{ k<<<{configuration}>>>(n); }}\n"
        assert written(text, FROM_LAUNCH, "cuda") == ""
        assert written(text.replace(configuration, "1, 128"), FROM_LAUNCH, "cuda")


def test_wrappers_of_triton_kernels() -> None:
    check(
        WRAPPERS,
        """
        # orbit: x = torch.randn(1 << 20); y = torch.randn(1 << 20)  # guessed
        # orbit: output = torch.empty_like(x); n_elements = output.numel()
        # orbit: launch add_kernel[lambda meta: (triton.cdiv(n_elements, meta['BLOCK_SIZE']),)](x, y, output,
        # orbit:   n_elements, BLOCK_SIZE=1024)
        """,
        FROM_LAUNCH,
        "triton",
    )
    check(
        WRAPPERS,
        """
        # orbit: x = torch.randn(1024, 1024)  # guessed
        # orbit: n_rows = x.shape[0]; n_cols = x.shape[1]; y = torch.empty((n_rows, n_cols), dtype=torch.float16)
        # orbit: BLOCK = triton.next_power_of_2(n_cols); num_warps = 8
        # orbit: launch norm[(n_rows, 1, 1)](y, x, x.stride(0), n_cols, BLOCK, num_warps=num_warps)
        """,
        FROM_LAUNCH,
        "triton",
        1,
    )
    check(
        WRAPPERS,
        """
        # orbit: n = 98432; x = torch.rand(n)
        # orbit: launch fill[(triton.cdiv(n, 256),)](x, n, B=256)
        """,
        FROM_LAUNCH,
        "triton",
        2,
    )


ADD = """
import pytest, torch, triton
import triton.language as tl

@triton.jit
def add(x_ptr, y_ptr, out_ptr, n, scale, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + at, scale * tl.load(x_ptr + at, mask=at < n) + tl.load(y_ptr + at, mask=at < n), mask=at < n)
"""


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        (  # from `main` through a wrapper; the names of both stay apart
            """
class Add(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, y, scale=2.0):
        n = x.numel()
        x = x.view(n)
        out = torch.empty_like(x)
        add[(triton.cdiv(n, 256),)](x, y, out, n, scale, BLOCK=256)
        return out

if __name__ == "__main__":
    n = 64
    a = torch.randn(n, n, device="cuda")
    Add.apply(a, torch.ones(n * n, device="cuda"))
""",
            """
            # orbit: n = 64; a = torch.randn(n, n); n_ = a.numel(); x = a.view(n_); y = torch.ones(n * n)
            # orbit: out = torch.empty_like(x); scale = 2.0
            # orbit: launch add[(triton.cdiv(n_, 256),)](x, y, out, n_, scale, BLOCK=256)
            # orbit: expect out == (scale * x) + y; bytes 3 * 4 * n_  # read off the body: check it
            """,
        ),
        (  # from a test's parameters and a branch
            """
@pytest.mark.parametrize("n, dtype", [(1000, torch.float16), (7, torch.float32)])
@pytest.mark.parametrize("scale", (0.5, 1.0))
def test_add(n, dtype, scale):
    x = torch.rand(n, dtype=dtype, device="cuda")
    if n > 512:
        BLOCK = 1024
    else:
        BLOCK = 128
    add[(1,)](x, x, torch.empty_like(x), n, scale, BLOCK)
""",
            """
            # orbit: n = 1000; dtype = torch.float16; x = torch.rand(n, dtype=dtype); scale = 0.5
            # orbit: BLOCK = 1024 if n > 512 else 128
            # orbit: launch add[(1,)](x, x, torch.empty_like(x), n, scale, BLOCK)
            """,
        ),
        (  # the first round of a loop over a list; what a loop changes is nobody's value
            """
def main():
    rounds = 1
    while rounds < 9:
        rounds *= 2
    for n in (4096, 8192):
        x = torch.rand(n)
        add[(1,)](x, x, x, n, rounds, BLOCK=triton.next_power_of_2(n))
""",
            """
            # orbit: n = 4096; x = torch.rand(n)
            # orbit: rounds = 0.5  # guessed
            # orbit: launch add[(1,)](x, x, x, n, rounds, BLOCK=triton.next_power_of_2(n))
            # orbit: expect x == (rounds * x) + x; bytes 2 * 4 * n  # read off the body: check it
            """,
        ),
    ],
)
def test_what_a_wrapper_is_given_is_read_from_its_calls(host: str, expected: str) -> None:
    check(ADD + host, expected, FROM_LAUNCH, "triton")


KERNEL = """
import torch, triton
import triton.language as tl

@triton.jit
def k(x, y, n, m):
    tl.store(y, tl.load(x) + n + m)
"""


@pytest.mark.parametrize(
    ("host", "assumed", "sized"),
    [
        ("def f(a, b):\n    k[(1,)](a, b, a.stride(0), 3)", "x y", "n"),
        ("def f(a, b):\n    k[(1,)](m=a.shape[-1], y=b, n=b.numel() // 2, x=a)", "y x", "m n"),
        ("def f(a):\n    k[(1,)](a, a.view(-1), a.size(0), a.ndim)", "x y", "n m"),
        ("def f(a):\n    b = torch.empty_like(a)\n    c = torch.zeros(a.shape, dtype=torch.int8)\n    k[(1,)](c, b, 1, 2)", "y", "x"),
        ("def f(a):\n    n, m = a.shape\n    c = torch.full((n, m), 1.5)\n    k[(1,)](a, c, n, max(n, m))", "x", "y n m"),
        ("def f(a):\n    c = torch.full(a.shape, 0, dtype=a.dtype)\n    k[(1,)](c, c[:, : a.shape[1]], 1, 2)", "x y", ""),
        ("def f(a):\n    n = a.shape[0]\n    k[(1,)](a, torch.zeros(9), n if n > 9 else 0.5, n > 9)", "x n", "m"),
        ("def f(n):\n    c = torch.zeros(9)\n    k[(1,)](c, c, n, 2 * n)", "n m", ""),
        ("def f():\n    c = torch.zeros(9)\n    k[(1,)](c, c, c.shape[0], 2)", "", ""),
        ("def f(a):\n    h, w = a.shape\n    k[(1,)](a, a, *a.stride())", "x y", "n m"),
        ("def f():\n    a = torch.ones((4, 8)).half()\n    k[(1,)](a, torch.empty_like(a), *a.shape)", "", ""),
    ],
)  # fmt: skip
def test_which_arguments_of_a_launch_are_guessed_and_of_which_only_the_value(
    host: str, assumed: str, sized: str
) -> None:
    text = KERNEL + host
    [launch] = job_builder.host_launches(text, triton_kernels.scan(text))
    assert (" ".join(launch.assumed), " ".join(launch.sized)) == (assumed, sized), launch


def test_tensors_have_the_type_that_the_file_gives_those_that_it_makes() -> None:
    text = KERNEL + "def f(a):\n    c = torch.ones(64, dtype=torch.bfloat16)\n    k[(1,)](a, c, 1, 2)"
    [launch] = job_builder.host_launches(text, triton_kernels.scan(text))
    assert launch.statements[0] == "a = torch.randn(1 << 20, dtype=torch.bfloat16)"
    assert launch.assumed == ("x",)
    text = text.replace("1, 2)", "1, 2)\n    torch.rand(4)")  # two types: which of them is not told
    [launch] = job_builder.host_launches(text, triton_kernels.scan(text))
    assert launch.statements[0] == "a = torch.randn(1 << 20)"


@pytest.mark.parametrize("arguments", ["*a, 1, 2", "a, *b", "a, a, **options", "*a.shape, *b.shape"])
def test_a_launch_that_unpacks_its_arguments_is_not_read(arguments: str) -> None:
    text = KERNEL + f"def f(a, b, options):\n    k[(1,)]({arguments})"
    assert job_builder.host_launches(text, triton_kernels.scan(text)) == ()


@pytest.mark.parametrize(
    ("code", "arguments", "launch"),
    [
        ("o = dict(B=512, num_warps=8)", "a, b, **o", "k[(1,)](a, b, B=512, num_warps=8)"),
        ('o = {"B": 2 * 64}', "a, b, **o", "k[(1,)](a, b, B=2 * 64)"),
        ("", 'a, b, **{"B": 32}', "k[(1,)](a, b, B=32)"),
        ("", "a, y=b, **dict(B=16)", "k[(1,)](a, y=b, B=16)"),
        ("o = options()", "a, b, **o", ""),
        ("o = {name: 4}", "a, b, **o", ""),
    ],
)  # fmt: skip
def test_a_launch_unpacks_a_dictionary_that_the_function_has(code: str, arguments: str, launch: str) -> None:
    text = (
        "import triton\nimport triton.language as tl\n@triton.jit\ndef k(x, y, B: tl.constexpr):\n"
        f"    tl.store(y + tl.arange(0, B), tl.load(x + tl.arange(0, B)))\ndef f(a, b):\n    {code}\n    k[(1,)]({arguments})\n"
    )
    read = job_builder.host_launches(text, triton_kernels.scan(text))
    assert [each.statements[-1] for each in read] == ([f"launch {launch}"] if launch else [])


def test_what_a_launch_unpacks_has_as_many_dimensions_as_parameters_are_left() -> None:
    text = KERNEL + "def f(a, b, options):\n    k[(1,)](a, a, *a.stride())"
    (read,) = job_builder.host_launches(text, triton_kernels.scan(text))
    assert read.statements[-1] == "launch k[(1,)](a, a, a.stride(0), a.stride(1))"


def test_a_launch_by_an_attribute_is_read() -> None:
    text = KERNEL + "class Ops:\n    k = k\n    def f(self, a):\n        self.k[(1,)](a, a, 64, 3)"
    (read,) = job_builder.host_launches(text, triton_kernels.scan(text))
    assert read.statements[-1] == "launch k[(1,)](a, a, 64, 3)"


def test_what_a_launch_passes_is_not_looked_up_by_the_name_of_the_parameter() -> None:
    """The host's `x` and `n` are others than the kernel's."""
    check(
        """
        __global__ void k(const float* x, float* y, int n, int first) { y[threadIdx.x] = x[0]; }
        void host(float* out, State s, int count) {
          int n = 7;
          float *x;
          cudaMalloc(&x, n * sizeof(float));
          k<<<1, 256>>>(s.x(), out, count, s.first);
          k<<<1, 256>>>(x, x, n, 0);
        }
        """,
        """
        // orbit: count = 1 << 20  // guessed
        // orbit: first =  // fill in: int first
        // orbit: x = randn(count); out = empty(count)  // guessed
        // orbit: launch k<<<1, 256>>>(x, out, count, first)
        """,
        FROM_LAUNCH,
    )


def test_sizes_are_those_that_the_launch_passes() -> None:
    check(
        """
        __global__ void k(float* x, int m, int n) { x[threadIdx.y * n] = m; }
        void host(float* data, int rows) { dim3 blocks(4), block(16, 16); k<<<blocks, block>>>(data, 2 * rows, 64); }
        """,
        """
        // orbit: m = 1024; data = empty(m, 64)  // guessed
        // orbit: blocks = dim3(4); block = dim3(16, 16)
        // orbit: launch k<<<blocks, block>>>(data, m, 64)
        """,
        FROM_LAUNCH,
    )


def test_integers_that_are_allocated_have_guessed_contents() -> None:
    check(
        """
        __global__ void k(const int* places, float* y) { y[threadIdx.x] = places[0]; }
        void host() {
          int* places;
          float* y;
          cudaMalloc(&places, 64 * sizeof(int));
          cudaMalloc(&y, 64 * sizeof(float));
          k<<<1, 64>>>(places, y);
        }
        """,
        """
        // orbit: places = randint(0, 64, 64)  // guessed
        // orbit: y = empty(64)
        // orbit: launch k<<<1, 64>>>(places, y)
        """,
        FROM_LAUNCH,
    )


# -- the code action --------------------------------------------------------------------------------


def test_applied_the_file_has_no_fault_and_the_draft_is_not_offered_again() -> None:
    session, uri = opened(HOST.lstrip(), "cuda")
    kernel = session.files[uri].scan.kernels[0]
    (draft, _) = spec_drafts.drafts(session, uri, kernel, versioned=True)
    assert draft.edit.changes is None
    (change,) = draft.edit.document_changes or ()
    assert isinstance(change, lsp.TextDocumentEdit)
    assert change.text_document == lsp.OptionalVersionedTextDocumentIdentifier(uri, version=3)
    (edit,) = change.edits
    assert isinstance(edit, lsp.TextEdit)
    line = edit.range.start.line
    session.change(uri, 4, [TextChange((line, 0), (line, 0), edit.new_text)])
    assert [diagnostic.message for diagnostic in diagnostics.diagnostics(session, uri)] == []
    kernel = session.files[uri].scan.kernels[0]
    assert spec_drafts.drafts(session, uri, kernel) == []


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("language", ["cuda", "triton"])
def test_the_files_own_line_ends(end: str, language: str) -> None:
    text = (HOST if language == "cuda" else WRAPPERS).lstrip().replace("\n", end)
    title = FROM_LAUNCH if language == "cuda" else FROM_SIGNATURE
    assert written(text, title, language) == written(text.replace(end, "\n"), title, language).replace(
        "\n", end
    )
    session, uri = opened(text, language)
    kernel = session.files[uri].scan.kernels[0]
    changes = spec_drafts.drafts(session, uri, kernel)[0].edit.changes
    assert changes
    (edit,) = changes[uri]
    wrong = edit.new_text.replace("launch ", "launch no_")
    line = edit.range.start.line
    session.change(uri, 4, [TextChange((line, 0), (line, 0), wrong)])
    assert session.files[uri].document.text.count("\n") in (0, session.files[uri].document.text.count(end))
    (diagnostic,) = [
        item for item in diagnostics.diagnostics(session, uri) if "This launches" in item.message
    ]
    at = next(at for at, name in enumerate(wrong.split(end)) if "launch no_" in name)
    column = wrong.split(end)[at].index("no_")
    assert diagnostic.range.start == lsp.Position(line + at, column)
    assert diagnostic.range.end == lsp.Position(line + at, column + len(f"no_{kernel.name}"))


def test_they_are_offered_on_the_kernels_lines_only() -> None:
    session, uri = opened(HOST.lstrip(), "cuda")
    titles = [action.title for action in spec_drafts.actions(session, uri, 2, 2)]
    assert titles == [f"{FROM_LAUNCH} (saxpy)", f"{FROM_SIGNATURE} (saxpy)"]
    assert spec_drafts.actions(session, uri, 7, 7) == []
    assert spec_drafts.actions(session, "file:///nowhere.cu", 0, 9) == []


def test_helpers_and_other_languages_get_none() -> None:
    session, uri = opened("import triton\n@triton.jit\ndef helper(x):\n    return x\n", "triton")
    assert spec_drafts.actions(session, uri, 0, 9) == []
    session, uri = opened("from numba import cuda\n@cuda.jit\ndef k(x):\n    pass\n", "triton")
    assert spec_drafts.actions(session, uri, 0, 9) == []


AXPY = """\
import torch
import triton
import triton.language as tl

@triton.jit
def axpy(x, y, a, n, stride, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i * stride, a * tl.load(x + i * stride, mask=i < n), mask=i < n)

def launch(x: torch.Tensor, y, a: float, n: int):
    axpy[(triton.cdiv(n, 256),)](x, y, a, n, 1, BLOCK=256)
"""


def test_annotations_of_the_host_code_tell_the_types_of_numbers() -> None:
    [launch] = job_builder.host_launches(AXPY, triton_kernels.scan(AXPY))
    assert launch.statements == (
        "x = torch.randn(1 << 20)", "y = torch.randn(1 << 20)", "a = 0.5", "n = 1 << 20",
        "launch axpy[(triton.cdiv(n, 256),)](x, y, a, n, 1, BLOCK=256)",
    )  # fmt: skip
    assert (launch.assumed, launch.sized) == (("x", "y"), ("a", "n"))
    plain = AXPY.replace(": float", "").replace(": int", "")
    [launch] = job_builder.host_launches(plain, triton_kernels.scan(plain))
    assert ("a = 3" in launch.statements, launch.assumed) == (True, ("x", "y", "a", "n"))


@pytest.mark.parametrize("call", ["launch(x, y, 2.5, n)", "ops.launch(x, y, 2.5, n)"])
def test_a_driver_in_another_file_tells_types_and_sizes(call: str) -> None:
    driver = f"""\
import torch, ops
from ops import launch

def test_axpy():
    n = 4096
    x, y = torch.randn(n, device="cuda", dtype=torch.float16), torch.empty(n, device="cuda", dtype=torch.float16)
    {call}
"""
    [launch] = job_builder.host_launches(AXPY, triton_kernels.scan(AXPY), lambda _: driver)
    assert launch.statements == (
        "n = 4096", "x = torch.randn(n, dtype=torch.float16)", "y = torch.empty(n, dtype=torch.float16)",
        "a = 2.5", "launch axpy[(triton.cdiv(n, 256),)](x, y, a, n, 1, BLOCK=256)",
    )  # fmt: skip
    assert launch.guessed == ()
