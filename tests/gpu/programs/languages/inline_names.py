# a template with two instances, and a kernel whose name begins alike
import torch
from torch.utils.cpp_extension import load_inline

CUDA = r"""
template <typename T>
__global__ void scale(T* x, int n) {  // expect: 4 launches
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] *= T(2);
}

__global__ void scale_twice(float* x, int n) {  // expect: 3 launches
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] *= 4.0f;
}

void run(torch::Tensor x, torch::Tensor y) {
    int n = x.numel(), blocks = (n + 127) / 128;
    for (int i = 0; i < 2; ++i) {
        scale<<<blocks, 128>>>(x.data_ptr<float>(), n);
        scale<<<blocks, 128>>>(y.data_ptr<double>(), n);
    }
    for (int i = 0; i < 3; ++i) scale_twice<<<blocks, 128>>>(x.data_ptr<float>(), n);
}
"""

if __name__ == "__main__":
    module = load_inline(
        "orbit_test_names",
        cpp_sources="void run(torch::Tensor x, torch::Tensor y);",
        cuda_sources=CUDA,
        functions=["run"],
    )
    x, y = torch.ones(1 << 18, device="cuda"), torch.ones(1 << 18, device="cuda", dtype=torch.float64)
    module.run(x, y)
    assert x[0].item() == 256
