import numpy as np
from numba import cuda


@cuda.jit
def wrong(x):
    i = cuda.grid(1)
    x[i] = x.nothing  # expect: problem


def main():
    wrong[1, 32](cuda.device_array(32, np.float32))
