import warp as wp


@wp.kernel
def wrong(x: wp.array(dtype=float)):
    i = wp.tid()
    x[i] = wp.nothing(x[i])  # expect: problem


def main():
    wp.launch(wrong, dim=32, inputs=[wp.zeros(32, dtype=float, device="cuda")])
