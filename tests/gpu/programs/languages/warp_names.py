# names that begin alike, a kernel of a function, and what a tape runs backward
import warp as wp


@wp.kernel
def square(x: wp.array(dtype=float), y: wp.array(dtype=float)):  # expect: 5 launches
    i = wp.tid()
    y[i] = x[i] * x[i]


@wp.kernel
def square_add(x: wp.array(dtype=float), y: wp.array(dtype=float)):  # expect: 3 launches
    i = wp.tid()
    y[i] = y[i] + x[i] * x[i]


def filler(value: float):
    @wp.kernel
    def fill(x: wp.array(dtype=float)):  # expect: 2 launches
        x[wp.tid()] = value

    return fill


if __name__ == "__main__":
    n = 1 << 18
    x, y = (wp.zeros(n, dtype=float, device="cuda", requires_grad=True) for _ in range(2))
    fill = filler(3.0)
    for _ in range(2):
        wp.launch(fill, dim=n, inputs=[x])
    tape = wp.Tape()
    with tape:
        for _ in range(3):
            wp.launch(square, dim=n, inputs=[x, y])
    for _ in range(3):
        wp.launch(square_add, dim=n, inputs=[x, y])
    tape = wp.Tape()
    with tape:
        wp.launch(square, dim=n, inputs=[x, y])
    tape.backward(grads={y: wp.ones(n, dtype=float, device="cuda")})
    assert x.grad.numpy()[0] == 6
