from torch.utils.cpp_extension import load

ext = load(
    name="add_ext",
    sources=["add.cu"],
    extra_cuda_cflags=[
        "-O3",
        "-U__CUDA_NO_HALF_OPERATORS__",
        "-U__CUDA_NO_HALF_CONVERSIONS__",
        "-U__CUDA_NO_HALF2_OPERATORS__",
        "--use_fast_math",
    ],
)
