"""Requests of evaluation servers' clients, sent by `curl` to the real command on a real GPU: each kind of source by itself, and against
a reference of another kind. `bench/guide_requests.py` sends those of a guide as they stand there.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Generator
from typing import Any

import pytest

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(shutil.which("nvidia-smi") is None, reason="no NVIDIA GPU on this machine"),
]
N = 1 << 20
Curl = Callable[[str, dict[str, Any]], dict[str, Any]]


@pytest.fixture(scope="module")
def curl(tmp_path_factory: pytest.TempPathFactory) -> Generator[Curl]:
    """Answers of a server, which are of status 200."""
    folder = tmp_path_factory.mktemp("server")
    command = [sys.executable, "-P", "-m", "orbit_lsp", "api", "--port", "0", "--pool", "local:0"]
    with subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr
        address = re.search(r"http://127\.0\.0\.1:\d+", server.stderr.readline())
        assert address

        def send(route: str, body: dict[str, Any]) -> dict[str, Any]:
            words = ["curl", "-s", "-w", "\n%{http_code}", "-X", "POST", f"{address[0]}{route}"]
            words += ["-H", "Content-Type: application/json", "-d", "@-"]
            done = subprocess.run(words, input=json.dumps(body), capture_output=True, text=True, check=True)
            text, _, status = done.stdout.rpartition("\n")
            assert status == "200", text
            return json.loads(text)

        yield send
        server.terminate()


def tensor(name: str, role: str = "input", dtype: str | None = "float32") -> dict[str, Any]:
    init = {"kind": "randn", "seed": 42} if role == "input" else None
    spec = {"shape": [N], "dtype": dtype, "init": init}
    return {"name": name, "type": "tensor", "role": role, "tensor_spec": spec}


def number(name: str, value: float, kind: str = "int", *, meta: bool = False) -> dict[str, Any]:
    return {"name": name, "type": kind, "value": value, "role": "input", "is_meta": meta}


BOTH = [tensor("x"), tensor("y")]
TORCH: dict[str, Any] = {
    "source_code": "class Model(torch.nn.Module):\n    def forward(self, x, y):\n        return 2 * x + y",
    "kernel_type": "torch",
    "io": {"args": BOTH},
}
FUNCTION: dict[str, Any] = {
    "source_code": "import torch\n\ndef other(x):\n    return x\n\ndef axpy(x, y):\n    return torch.add(y, x, alpha=2)",
    "kernel_type": "torch",
    "metadata": {"function_name": "axpy"},
    "io": {"args": BOTH},
}
TRITON: dict[str, Any] = {
    "source_code": """
import triton
import triton.language as tl

@triton.jit
def axpy(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(axis=0) * BLOCK + tl.arange(0, BLOCK)
    kept = at < n
    tl.store(out + at, 2 * tl.load(x + at, mask=kept) + tl.load(y + at, mask=kept), mask=kept)
""",
    "kernel_type": "triton",
    "io": {
        "args": [*BOTH, tensor("out", "output"), number("n", N), number("BLOCK", 1024, meta=True)],
        "launch": {"grid": {"x": N // 1024}, "num_warps": 4, "num_stages": 3},
    },
}
CUDA: dict[str, Any] = {
    "source_code": """
#include <cuda_runtime.h>

__global__ void twice(float* x) { x[0] *= 2.0f; }

__global__ void axpy(const float* x, const float* y, float* out, int n, double a) {
    extern __shared__ float kept[];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    kept[threadIdx.x] = i < n ? x[i] : 0.0f;
    if (i < n) out[i] = float(a) * kept[threadIdx.x] + y[i];
}
""",
    "kernel_type": "cuda",
    "metadata": {"kernel_name": "axpy", "compiler_options": ["--use_fast_math", "-O3"]},
    "io": {
        "args": [
            tensor("x", dtype=None),
            tensor("y"),
            tensor("out", "output"),
            number("n", N),
            number("a", 2.0, "float"),
        ],
        "launch": {"grid": {"x": N // 256}, "block": {"x": 256}, "shared_mem_bytes": 64 << 10},
    },
}
MIXED: dict[str, Any] = {
    "source_code": TRITON["source_code"]
    + """
import torch

def run(x, y):
    out = torch.empty_like(x)
    axpy[(triton.cdiv(x.numel(), 256),)](x, y, out, x.numel(), BLOCK=256)
    return out.abs()
""",
    "kernel_type": "multi_kernel",
    "metadata": {"entry_point": "run"},
    "io": {"args": BOTH},
}
LOAD_INLINE: dict[str, Any] = {
    "source_code": '''
import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

SOURCE = """
__global__ void kernel(const float* x, const float* y, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = 2.0f * x[i] + y[i];
}

torch::Tensor axpy(torch::Tensor x, torch::Tensor y) {
    auto out = torch::empty_like(x);
    kernel<<<(x.numel() + 255) / 256, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), out.data_ptr<float>(), x.numel());
    return out;
}
"""
made = load_inline("axpy_inline", "torch::Tensor axpy(torch::Tensor x, torch::Tensor y);", SOURCE, functions=["axpy"])


class ModelNew(nn.Module):
    def forward(self, x, y):
        return made.axpy(x, y)
''',
    "kernel_type": "torch_cuda",
}


def changed(kernel: dict[str, Any], old: str, new: str) -> dict[str, Any]:
    assert old in kernel["source_code"]
    return kernel | {"source_code": kernel["source_code"].replace(old, new)}


BY_NVRTC: dict[str, Any] = CUDA | {"metadata": CUDA["metadata"] | {"backend": "nvrtc"}}
IN_A_NAMESPACE: dict[str, Any] = CUDA | {
    "source_code": """
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <stdint.h>

namespace other {
__global__ void axpy(float* x) { x[0] = 0.0f; }
}  // namespace other

namespace own {
__global__ void axpy(const float* x, const float* y, float* out, std::int32_t n, double a) {
    int32_t i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i > std::numeric_limits<int>::max() - 1) printf("%d", i);
    if (i < n) out[i] = std::isnan(x[i]) ? NAN : fmaf(float(a), x[i], y[i]);
}
}  // namespace own
""",
    "metadata": {"kernel_name": "own::axpy", "compiler_options": ["--expt-relaxed-constexpr"]},
}


@pytest.mark.parametrize("kernel", [TORCH, FUNCTION, TRITON, CUDA, BY_NVRTC, IN_A_NAMESPACE, MIXED])
def test_a_kernel_by_itself(curl: Curl, kernel: dict[str, Any]) -> None:
    answer = curl("/evaluate", {"kernel": kernel, "num_trials": 100})
    result = answer["kernel_exec_result"]
    assert (answer["status"], result["compiled"], answer["ref_runtime"]) == ("success", True, None), (
        json.dumps(answer)
    )
    assert set(result["runtime_stats"].values()).isdisjoint((None, 0.0)), json.dumps(answer)
    assert result["runtime"] == result["runtime_stats"]["mean"]


SIDES: list[tuple[dict[str, Any], dict[str, Any]]] = [
    (TORCH, FUNCTION),
    (TORCH, TRITON),
    (TORCH, CUDA),
    (TORCH, IN_A_NAMESPACE),
    (TORCH, LOAD_INLINE),
    (TRITON, CUDA),
    (CUDA, TRITON),
    (CUDA, changed(TORCH, "Model", "ModelNew")),
    (changed(FUNCTION, "torch.add(y, x, alpha=2)", "torch.add(y, x, alpha=2).abs()"), MIXED),
]


@pytest.mark.parametrize(("reference", "candidate"), SIDES)
def test_a_candidate_of_another_kind(
    curl: Curl, reference: dict[str, Any], candidate: dict[str, Any]
) -> None:
    body = {"ref_kernel": reference, "custom_kernel": candidate, "num_trials": 100, "timeout": 300}
    answer = curl("/compare", body)
    result = answer["kernel_exec_result"]
    assert (result["compiled"], result["correctness"]) == (True, True), json.dumps(answer)
    assert min(result["runtime"], answer["ref_runtime"]["mean"]) > 0


@pytest.mark.parametrize("candidate", [FUNCTION, TRITON, CUDA])
def test_a_candidate_that_the_judge_holds(curl: Curl, candidate: dict[str, Any]) -> None:
    body = {"ref_kernel": TORCH, "custom_kernel": candidate, "grade": "referee", "timeout": 300}
    answer = curl("/", body)
    assert (answer["grade"], answer["kernel_exec_result"]["correctness"]) == ("referee", True), json.dumps(
        answer
    )
    assert answer["kernel_exec_result"]["runtime"] > 0


@pytest.mark.parametrize(
    ("candidate", "compiled", "words"),
    [
        (changed(CUDA, "float(a)", "3.0f"), True, "differ"),
        (changed(TRITON, "2 *", "3 *"), True, "differ"),
        (changed(CUDA, "out[i] =", "aus[i] ="), False, 'candidate.cu:10:.*identifier "aus" is undefined'),
        (changed(CUDA, "out[i] =", "out[i + (1ll << 40)] ="), True, "illegal"),
    ],
)
def test_a_candidate_that_fails(curl: Curl, candidate: dict[str, Any], compiled: bool, words: str) -> None:
    answer = curl("/compare", {"ref_kernel": TORCH, "custom_kernel": candidate})
    result = answer["kernel_exec_result"]
    assert (result["compiled"], result["correctness"], result["runtime"]) == (compiled, False, None), (
        json.dumps(answer)
    )
    assert re.search(words, result["compilation_error"] or result["validation_error"]), json.dumps(answer)


def test_the_older_form(curl: Curl) -> None:
    model = f"""\
import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x, y):
        return 2 * x + y


def get_inputs():
    return [torch.randn({N}), torch.randn({N})]


def get_init_inputs():
    return []
"""
    new = model.replace("Model", "ModelNew").replace("2 * x + y", "torch.add(y, x, alpha=2)")
    answer = curl("/", {"ref_code": model, "custom_code": new, "num_trials": 100})
    assert answer["kernel_exec_result"]["correctness"] is True, json.dumps(answer)
    assert answer["ref_runtime"]["median"] > 0
