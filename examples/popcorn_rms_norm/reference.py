import torch
from task import input_t, output_t


def generate_input(rows: int, columns: int, seed: int) -> input_t:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    made = torch.Generator(device=device)
    made.manual_seed(seed)
    x = torch.randn(rows, columns, device=device, dtype=torch.float16, generator=made)
    weight = torch.randn(columns, device=device, dtype=torch.float16, generator=made)
    return x, weight


def ref_kernel(data: input_t) -> output_t:
    x, weight = data
    wide = x.float()
    scale = torch.rsqrt(wide.square().mean(dim=1, keepdim=True) + 1e-6)
    return (wide * scale * weight.float()).half()


def check_implementation(data: input_t, output: output_t) -> tuple[bool, str]:
    expected = ref_kernel(data)
    if output.shape != expected.shape or output.dtype != expected.dtype:
        return (
            False,
            f"{output.dtype} of {tuple(output.shape)}, expected {expected.dtype} of {tuple(expected.shape)}",
        )
    wrong = ~torch.isclose(output.float(), expected.float(), rtol=2e-3, atol=2e-3)
    if bool(wrong.any()):
        row, column = (int(one) for one in wrong.nonzero()[0])
        return False, (
            f"{int(wrong.sum())} of {wrong.numel()} differ, first at ({row}, {column}): {output[row, column]:.5g}, "
            f"expected {expected[row, column]:.5g}"
        )
    return True, ""
