import warp as wp


@wp.kernel
def saxpy(a: float, x: wp.array(dtype=float), y: wp.array(dtype=float)):  # expect: 6 launches
    i = wp.tid()
    y[i] = a * x[i] + y[i]  # expect: line


def main():
    n = 1 << 20
    x, y = (wp.full(n, 1.0, dtype=float, device="cuda") for _ in range(2))
    for _ in range(6):
        wp.launch(saxpy, dim=n, inputs=[2.0, x, y])
    assert y.numpy()[-1] == 13
