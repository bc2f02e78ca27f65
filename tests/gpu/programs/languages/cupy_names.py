# a template in a module of several kernels, and a kernel written in Python
import cupy
from cupyx import jit

CODE = r"""
namespace mine {
template <typename T> __global__ void scale(T* x, int n) {  // expect: 4 launches
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] *= T(2);
}
}
extern "C" __global__ void scale_twice(float* x, int n) {  // expect: 3 launches
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] *= 4.0f;
}
"""


@jit.rawkernel()
def copy(x, y, n):  # expect: 2 launches
    i = jit.blockIdx.x * jit.blockDim.x + jit.threadIdx.x
    if i < n:
        y[i] = x[i]


n = 1 << 18
names = ("mine::scale<float>", "mine::scale<double>")
module = cupy.RawModule(code=CODE, options=("--std=c++17",), name_expressions=names)
single, double = cupy.ones(n, cupy.float32), cupy.ones(n, cupy.float64)
for name, x in zip(names, (single, double), strict=True):
    for _ in range(2):
        module.get_function(name)((n // 128,), (128,), (x, n))
for _ in range(3):
    module.get_function("scale_twice")((n // 128,), (128,), (single, n))
for _ in range(2):
    copy((n // 128,), (128,), (single, cupy.empty_like(single), cupy.int32(n)))
cupy.cuda.Device().synchronize()
