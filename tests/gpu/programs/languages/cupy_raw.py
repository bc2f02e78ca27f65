import cupy

saxpy = cupy.RawKernel(
    r"""
extern "C" __global__
void saxpy(float a, const float* x, float* y, int n) {  // expect: 6 launches
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = a * x[i] + y[i];  // expect: line
}
""",
    "saxpy",
)


def main():
    n = 1 << 20
    x, y = (cupy.ones(n, cupy.float32) for _ in range(2))
    for _ in range(6):
        saxpy((n // 256,), (256,), (cupy.float32(2), x, y, n))
    assert y[-1] == 13
