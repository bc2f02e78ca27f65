# a script: names that begin alike, a kernel of a function, two types of one kernel
import numpy as np
from numba import cuda


@cuda.jit
def scale(x):  # expect: 4 launches
    i = cuda.grid(1)
    if i < x.size:
        x[i] *= 2


@cuda.jit
def scale_rows(x):  # expect: 3 launches
    i, j = cuda.grid(2)
    if i < x.shape[0] and j < x.shape[1]:
        x[i, j] *= 3


def filler(value):
    @cuda.jit(lineinfo=True)
    def fill(x):  # expect: 2 launches
        i = cuda.grid(1)
        if i < x.size:
            x[i] = value

    return fill


n = 1 << 18
single, double = cuda.device_array(n, np.float32), cuda.device_array(n, np.float64)
fill = filler(1.0)
for x in (single, double):
    fill[n // 128, 128](x)
    scale[n // 128, 128](x)
    scale[n // 128, 128](x)
for _ in range(3):
    scale_rows[(32, 32), (16, 16)](single.reshape(512, 512))
cuda.synchronize()
