from torch.utils.cpp_extension import load_inline

CUDA = r"""
__global__ void wrong(float* x) {
    x[threadIdx.x] = nothing;  // expect: problem
}

void run(torch::Tensor x) { wrong<<<1, 32>>>(x.data_ptr<float>()); }
"""


def main():
    load_inline(
        "orbit_test_mistake", cpp_sources="void run(torch::Tensor x);", cuda_sources=CUDA, functions=["run"]
    )
