"""What expressions mean: C++ in `.cu` files, Python in `.py` files; shapes and types as torch has them."""

from __future__ import annotations

import pytest

from tests.spec.spec_check import TRITON, checked, values, written


@pytest.mark.parametrize(
    ("expression", "cuda", "triton"),
    [
        ("7 / 2", "3 int32", "3.5 float"),
        ("-7 / 2", "-3 int32", "-3.5 float"),
        ("-7 % 3", "-1 int32", "2 int"),
        ("1 << 26", "67108864 int32", "67108864 int"),
        ("1 << 31", "This is 2147483648, which overflows int; make an operand 64 bits wide, as in 1ll.", "2147483648 int"),
        ("3 > 2", "True bool", "True bool"),
        ("~5", "-6 int32", "-6 int"),
        ("1 + 2 * 3 - 4", "3 int32", "3 int"),
        ("0x1F & 0b11", "3 int32", "3 int"),
        ("cdiv(1000, 256)", "4 int32", "4 int"),
        ("min(3, 2, 5)", "2 int32", "2 int"),
        ("1 / 0", "This divides by zero.", "This divides by zero."),
        ("1e3", "1000.0 float64", "1000.0 float"),
    ],
)  # fmt: skip
def test_both_languages(expression: str, cuda: str, triton: str) -> None:
    assert values(f"v = {expression}", "cuda").removeprefix("v = ") == cuda
    assert values(f"v = {expression}", "triton").removeprefix("v = ") == triton


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("2.0f", "2.0 float32"),
        ("0.1f", "0.10000000149011612 float32"),
        ("1u - 2", "4294967295 uint32"),
        ("-1 < 1u", "False bool"),
        ("1ull", "1 uint64"),
        ("1'000", "1000 int32"),
        ("010", "8 int32"),
        ("sizeof(float4)", "16 uint64"),
        ("(float)3 / 2", "1.5 float32"),
        ("static_cast<int>(2.9)", "2 int32"),
        ("3 > 2 ? 10 : 20", "10 int32"),
        ("dim3(4, 2)", "dim3(4, 2, 1)"),
        ("dim3{4}", "dim3(4, 1, 1)"),
        ("!0 && 1", "True bool"),
        ("(unsigned char)300", "44 uint8"),
        ("std::max(1, 2)", "2 int32"),
        ("1 < 2 < 3", "C++ compares the result of '<' with what follows; write 'a < b && b < c'."),
        ("2.5 % 2", "'%' takes integers in C++."),
        (
            "2147483647 + 1",
            "This is 2147483648, which overflows int; make an operand 64 bits wide, as in 1ll.",
        ),
    ],
)
def test_cpp(expression: str, value: str) -> None:
    assert values(f"v = {expression}").removeprefix("v = ") == value


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("7 // 2", "3 int"),
        ("-7 // 2", "-4 int"),
        ("2 ** 10", "1024 int"),
        ("-2 ** 2", "-4 int"),
        ("2 ** -1", "0.5 float"),
        ("1 < 2 < 3", "True bool"),
        ("3 < 2 < 1", "False bool"),
        ("(1 < 2) == True", "True bool"),
        ("1 if 0 else 2", "2 int"),
        ("not 1", "False bool"),
        ("1_000", "1000 int"),
        ("triton.cdiv(10, 3)", "4 int"),
        ("triton.next_power_of_2(1000)", "1024 int"),
        ("torch.float16", "float16"),
        ("2 ** 64", "This is beyond 2^63."),
        ("9 ** 9 ** 9 ** 9", "This is beyond 2^63."),
        ("[i for i in x]", "Comprehensions are not part of launch specs."),
        ("1 in (1, 2)", "'in' is not part of launch specs; compare with '=='."),
    ],
)
def test_python(expression: str, value: str) -> None:
    assert values(f"v = {expression}", "triton").removeprefix("v = ") == value


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("randn(4, 8)", "float32[4, 8]"),
        ("torch.randn((4, 8), device='cuda', dtype=torch.float16)", "float16[4, 8]"),
        ("randn(4, 8).T", "float32[8, 4]"),
        ("randn(4, 8) @ randn(8, 2)", "float32[4, 2]"),
        ("randn(4, 8) @ randn(4, 2)", "The shapes (4, 8) and (4, 2) do not multiply: 8 and 4 differ."),
        ("randn(4, 8).sum(1)", "float32[4]"),
        ("randn(4, 8).sum(dim=-1, keepdim=True)", "float32[4, 1]"),
        ("randint(0, 9, 4)", "int64[4]"),
        ("torch.randint(9, (4,), dtype=torch.int8)", "int8[4]"),
        ("arange(10)", "int64[10]"),
        ("arange(0, 1, 0.25)", "float32[4]"),
        ("randn(4) + arange(4)", "float32[4]"),
        ("arange(4) / 2", "float32[4]"),
        ("arange(4) > 2", "bool[4]"),
        ("randn(4, 1) * randn(3)", "float32[4, 3]"),
        ("randn(4) * randn(3)", "The shapes (4,) and (3,) do not go together."),
        ("randn(8)[2:6:2]", "float32[2]"),
        ("randn(8, 4)[3]", "float32[4]"),
        ("randn(8, 4)[None, :, 1]", "float32[1, 8]"),
        ("randn(4, 8).shape", "(4 int, 8 int)"),
        ("randn(4, 8).shape[1]", "8 int"),
        ("randn(4, 8).stride()", "(8 int, 1 int)"),
        ("randn(4, 8).stride(0)", "8 int"),
        ("randn(4, 8).numel()", "32 int"),
        ("randn(4, 8).half().element_size()", "2 int"),
        ("randn(4, 8).view(-1)", "float32[32]"),
        ("randn(4, 8).view(5, -1)", "32 elements do not have the shape (5, -1)."),
        ("cat((randn(2), randn(3)))", "float32[5]"),
        ("stack([randn(2), randn(2)])", "float32[2, 2]"),
        ("softmax(randn(4, 8), dim=1)", "float32[4, 8]"),
        ("randn(1 << 40)", "This takes 4.398 TB; there is room for 1.1 TB."),
        ("randn(-1)", "A tensor cannot have the shape (-1,)."),
        ("randn(4).cuda()", "'cuda' is not a method of launch specs."),
        ("randn(4).__class__", "A tensor has no '.__class__' in launch specs."),
        ("eval('1')", "'eval' is not a function of launch specs."),
        ("random(4)", "'random' is not a function of launch specs; did you mean 'rand'?"),
    ],
)
def test_tensors(expression: str, value: str) -> None:
    assert values(f"v = {expression}", "triton").removeprefix("v = ") == value


def test_a_tensor_takes_the_type_of_the_parameter_it_is_passed_to() -> None:
    body = "n = 8; a = 2.0f; x = randn(n); y = empty(n); z = randn(n, dtype=half)\nlaunch k<<<1, 1>>>(n, a, x, y)"
    assert "x = float32[8]" in values(body)
    assert "z = float16[8]" in values(body)


CONSTANTS = """
#define TILE 32
#ifndef WIDTH
#define WIDTH 64
#endif
constexpr int ROWS = TILE / 4;
// orbit: n = 1 << 20; y = empty(ROWS * n)
// orbit: launch k<<<n / TILE, dim3(TILE, ROWS)>>>(n, y)
__global__ void k(int n, float* y) {}
"""


def of_file(source: str, language: str) -> str:
    """The values of a file's spec, then what is wrong."""
    result = checked(source, language)
    lines = [f"{name} = {written(value)}" for name, value in result.values.items()]
    return "\n".join([*lines, *(fault.message for fault in result.faults)])


def test_integer_constants_of_a_cuda_file_are_known() -> None:
    expected = "ROWS = 8 int32\nTILE = 32 int32\nn = 1048576 int32\ny = float32[8388608]"
    assert of_file(CONSTANTS, "cuda") == expected
    own = CONSTANTS.replace("orbit: n =", "orbit: ROWS = 2; n =")  # the spec's own names come first
    assert of_file(own, "cuda").startswith("TILE = 32 int32\nROWS = 2 int32\n")


def test_a_constant_that_a_flag_may_replace_is_not_known() -> None:
    text = CONSTANTS.replace("n / TILE", "n / WIDTH")
    assert of_file(text, "cuda").endswith("'WIDTH' is not known here.")


def test_integers_at_the_top_of_a_python_file_are_known() -> None:
    spec = "# orbit: n = 4 * SIZE; x = zeros(n)\n# orbit: launch k[(1,)](x, x, n, BLOCK=SIZE)\n"
    text = TRITON.replace(
        "{spec}", f"SIZE: tl.constexpr = tl.constexpr(64)\nOTHER = 1\nOTHER = 2\n\n\n{spec}"
    )
    assert of_file(text, "triton") == "SIZE = 64 int\nn = 256 int\nx = float32[256]"
    assert of_file(text.replace("BLOCK=SIZE", "BLOCK=OTHER"), "triton").endswith("'OTHER' is not known here.")
