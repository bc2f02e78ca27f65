import os

from setuptools import setup
from torch.utils.cpp_extension import BuildExtension, CUDAExtension

HERE = os.path.dirname(os.path.abspath(__file__))

setup(
    name="fast_relu",
    ext_modules=[
        CUDAExtension(
            "fast_relu",
            ["csrc/relu.cpp", "csrc/cuda/relu.cu"],
            include_dirs=[os.path.join(HERE, "csrc", "include")],
            extra_compile_args={"cxx": ["-O3"], "nvcc": ["-O3", "-DRELU_MAX=6"]},
        )
    ],
    cmdclass={"build_ext": BuildExtension},
)
