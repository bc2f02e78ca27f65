import cupy

wrong = cupy.RawKernel(
    r"""
extern "C" __global__ void wrong(float* x) {
    x[threadIdx.x] = nothing;  // expect: problem
}
""",
    "wrong",
)


def main():
    wrong((1,), (32,), (cupy.zeros(32, cupy.float32),))
