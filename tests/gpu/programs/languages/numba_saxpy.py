import numpy as np
from numba import cuda


@cuda.jit
def saxpy(a, x, y):  # expect: 6 launches
    i = cuda.grid(1)
    if i < x.size:
        y[i] = a * x[i] + y[i]  # expect: line


def main():
    n = 1 << 20
    x, y = (cuda.to_device(np.ones(n, np.float32)) for _ in range(2))
    for _ in range(6):
        saxpy[n // 256, 256](np.float32(2), x, y)
    assert y.copy_to_host()[-1] == 13
