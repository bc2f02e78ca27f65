"""A header that is nowhere: what is near it, and what would provide it"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Sequence
from pathlib import Path

from orbit_lsp.compilation import headers as header_search
from orbit_lsp.compilation.headers import Headers
from orbit_lsp.compilation.toolkit_headers import LIBRARIES, NPP, REMOVED
from orbit_remote.common import regular_files
from orbit_remote.common.lazy_dataclass import dataclass
from orbit_remote.common.limits import BUILD_FILE

OTHER_PLATFORM = "it belongs to "
"""How the reason begins for headers that no build for CUDA on this system has."""
CONFIGURE = "configure the project (cmake -B build)"
SETTING = 'or name its folder: nvcc_flags = ["-I<folder>"]'
_NEAREST = 3
_MOST_SUBMODULES = 1_000


@dataclass(frozen=True, slots=True)
class Submodule:
    """A submodule of the workspace's repository, by its folder and what its address ends with."""

    folder: str
    name: str


def submodules(root: str) -> tuple[Submodule, ...]:
    """Those that are not checked out, from .gitmodules. Reads files."""
    try:
        text = regular_files.text(os.path.join(root, ".gitmodules"), BUILD_FILE)
    except (OSError, ValueError):
        return ()
    listed: list[Submodule] = []
    for section in re.split(r"^[ \t]*\[submodule", text, maxsplit=_MOST_SUBMODULES, flags=re.MULTILINE)[1:]:
        lines = re.findall(r"^[ \t]*(path|url)[ \t]*=(.+)$", section, re.MULTILINE)
        values = {name: value.strip() for name, value in lines}
        folder = values.get("path", "")
        try:
            empty = not any(os.scandir(os.path.join(root, folder)))
        except (OSError, ValueError):
            empty = True
        if folder and empty and ".." not in Path(folder).parts:
            name = re.sub(r"\.git$", "", values.get("url", "").rstrip("/")).rpartition("/")[2]
            listed.append(Submodule(folder, name))
    return tuple(listed)


def explain(
    name: str,
    source: str,
    headers: Headers,
    absent: Sequence[Submodule],
    python: str,
    packages: Sequence[tuple[str, str]] = (),
    *,
    has_cccl: bool = False,
) -> str:
    """The sentence that follows "`name` is not found". `source` is the file that includes it, `python` the chosen one. `packages` are
    those that the project looks for, with the file that says so. Reads nothing.
    """
    near = _near(name, source, headers)
    if "{{" in name or "{%" in name:
        return "the file is a template, as of Jinja: compile what the program that fills it in writes"
    if module := _submodule(name, absent):
        return f"it is in the submodule {module.folder}, which is not checked out: git submodule update --init {module.folder}"
    if headers.named(f"{name}.in") or headers.named(re.sub(r"\.h(?:pp)?$", ".in", name)):
        return f"the project's build makes it from {headers.named(f'{name}.in')[0] if headers.named(f'{name}.in') else 'a template'}: {CONFIGURE}, {SETTING}"
    if has_cccl and re.fullmatch(_OF_CCCL, name):
        return f"the CUDA toolkit's CCCL has no such header, an older or newer one has: if the project's build brings it, {CONFIGURE}, {SETTING}"
    if remedy := provider(name, python):
        return remedy + (f"; nearest in the workspace: {near}" if near else "")
    if near and not any(f"/{file}".endswith(f"/{name}") for file in near.split(", ")):
        return f"nearest in the workspace: {near}: correct the path, or build the project once if its build copies headers, {SETTING}"
    if near:
        return f"nearest in the workspace: {near}; {SETTING.removeprefix('or ')}"
    words = [re.sub(r"\W|_", "", part.lower()) for part in re.split(r"[/.]", name)]
    for package, file in packages:
        if re.sub(r"\W|_", "", package.lower()) in words:
            return f"it comes with {package}, which {file} looks for: install it, {SETTING}"
    if absent:
        folders = ", ".join(module.folder for module in absent[:_NEAREST])
        return (
            f"no file of this name is in the workspace: the project's build may make it, or a submodule that is not checked out "
            f"has it ({folders}): build the project once, or git submodule update --init --recursive, {SETTING}"
        )
    return (
        f"no file of this name is in the workspace, the CUDA toolkit or the packages of {python}: the project's build may make it: "
        f"build the project once, {SETTING}"
    )


def provider(name: str, python: str) -> str:
    """What provides a header of this name, wherever it is included; empty where that is not known. Reads nothing."""
    return next(
        (text.replace("{python}", python) for pattern, text in PROVIDERS if re.fullmatch(pattern, name)), ""
    )


def _near(name: str, source: str, headers: Headers) -> str:
    here = os.path.relpath(os.path.dirname(source), headers.root) if source else ""
    files = sorted(
        headers.named(name), key=lambda file: (header_search.distance(here, os.path.dirname(file)), file)
    )
    return ", ".join(files[:_NEAREST])


def _submodule(name: str, absent: Sequence[Submodule]) -> Submodule | None:
    """The submodule that a header's first folder is called after, or that is known to have it."""
    first = re.split(r"[/.]", name.lower())[0]
    known = next((words for pattern, words in _OF_REPOSITORY if re.fullmatch(pattern, name)), ())
    for module in absent:
        words = {re.sub(r"\W", "", text.lower()) for text in (module.name, Path(module.folder).name)}
        if re.sub(r"\W", "", first) in words or any(
            known_word in word for known_word in known for word in words
        ):
            return module
    return None


_OF_REPOSITORY: tuple[tuple[str, tuple[str, ...]], ...] = (
    (r"(?:cutlass|cute)/.*|cutlass\.h", ("cutlass",)),
    (r"(?:cub|thrust|cuda/std|cuda/experimental)/.*", ("cub", "thrust", "cccl", "libcudacxx")),
    (r"(?:gtest|gmock)/.*", ("googletest", "gtest")),
    (r"fmt/.*", ("fmt",)),
    (r"Eigen/.*", ("eigen",)),
    (r"glm/.*", ("glm",)),
    (r"pybind11/.*", ("pybind",)),
    (r"nlohmann/.*|json\.hpp", ("json",)),
    (r"tiny-cuda-nn/.*", ("tinycudann",)),
    (r"ck_tile/.*|ck/.*", ("composable",)),
    (r"dlpack/.*", ("dlpack",)),
    (r"dmlc/.*", ("dmlc",)),
    (r"spdlog/.*", ("spdlog",)),
    (r"cudnn_frontend.*", ("cudnnfrontend",)),
    (r"nanobind/.*", ("nanobind",)),
    (r"imgui.*|GLFW/.*", ("imgui", "glfw")),
    (r"nvbench/.*", ("nvbench",)),
    (r"moderngpu/.*", ("moderngpu",)),
)  # fmt: skip


def _any_of(names: Collection[str]) -> str:
    return "|".join(map(re.escape, sorted(names)))


_OF_CCCL = r"(?:cub|thrust|cuda/std|cuda/experimental)/.*|nv/(?:target|detail/.*)|cuda/\w+"
_RAPIDS = "it comes with RAPIDS: conda install -c rapidsai lib{0}, " + SETTING
PROVIDERS: tuple[tuple[str, str], ...] = (
    (r"cu(?:blas|fft|solver|rand)dx(?:\w*\.hpp|/.*)|nvcompdx\.hpp|cutlass_mathdx/.*", "it comes with MathDx, in its newest version: {python} -m pip install -U nvidia-mathdx, " + SETTING),
    (r"cublasmp\w*\.h", "it comes with cuBLASMp: {python} -m pip install nvidia-cublasmp-cu13"),
    (r"cusolverMp\w*\.h", "it comes with cuSOLVERMp: {python} -m pip install nvidia-cusolvermp-cu13"),
    (r"tensorflow/.*", "it comes with TensorFlow: {python} -m pip install tensorflow, " + SETTING),
    (r"torch_musa/.*|musa\w*\.h|.*\.muh", "it belongs to Moore Threads' MUSA: nvcc compiles CUDA only"),
    (r"R_ext/.*|Rinternals\.h|R\.h", "it comes with R: apt install r-base-dev, " + SETTING),
    (r"c10/cuda/impl/cuda_cmake_macros\.h", "the torch of {python} is built without CUDA: install one with CUDA (pip install torch, from the index of your CUDA release)"),
    (r"THC/THCAtomics\.cuh", "torch removed it in release 1.11: include <ATen/cuda/Atomic.cuh> instead"),
    (r"THC/.*|TH/.*", "torch removed it in release 1.11: include <ATen/cuda/CUDAContext.h> and <c10/cuda/CUDAException.h> instead"),
    (r"(?:torch|ATen|c10|caffe2)/.*", "it comes with torch, and {python} has none, or one without this header: pip install torch, or set `python` to the one that has it"),
    (r"pybind11/.*", "it comes with pybind11: {python} -m pip install pybind11"),
    (r"nanobind/.*", "it comes with nanobind: {python} -m pip install nanobind"),
    (r"numpy/.*", "it comes with NumPy: {python} -m pip install numpy"),
    (r"Python\.h", "it comes with Python's headers: apt install python3-dev"),
    (r"tvm/ffi/.*", "it comes with TVM FFI: {python} -m pip install apache-tvm-ffi, " + SETTING),
    (r"cudnn_frontend.*", "it comes with cuDNN's front end: {python} -m pip install nvidia-cudnn-frontend, " + SETTING),
    (r"cudnn(?:_(?:version|backend|graph|(?:adv|cnn|ops)(?:_infer|_train)?))?(?:_v\d)?\.h", "it comes with cuDNN: {python} -m pip install nvidia-cudnn-cu13, or apt install cudnn9-cuda-13"),
    (r"nccl(?:_net|_device|_tuner|_profiler)?\.h|nccl_device/.*", "it comes with NCCL: {python} -m pip install nvidia-nccl-cu13, or apt install libnccl-dev"),
    (r"nvshmem\w*\.h.*|nvshmem/.*|device_host\w*/.*", "it comes with NVSHMEM: {python} -m pip install nvidia-nvshmem-cu13"),
    (r"cusparseLt\.h", "it comes with cuSPARSELt: {python} -m pip install nvidia-cusparselt-cu13"),
    (r"cutensor\w*\.h.*|cutensor/.*", "it comes with cuTENSOR: {python} -m pip install cutensor-cu13"),
    (r"cufile\.h", "it comes with the CUDA toolkit's GDS: apt install libcufile-dev, or {python} -m pip install nvidia-cufile"),
    (r"nvtx3/.*", "it comes with NVTX: {python} -m pip install nvidia-nvtx"),
    (r"nvToolsExt\w*\.h", "CUDA 13 has no NVTX 2: include <nvtx3/nvToolsExt.h> instead"),
    (_any_of(LIBRARIES), "the CUDA toolkit is installed without its libraries: install the whole toolkit, or {python} -m pip install nvidia-cublas nvidia-cufft nvidia-curand nvidia-cusparse nvidia-cusolver"),
    (_any_of(NPP), "the CUDA toolkit is installed without NPP: {python} -m pip install nvidia-npp"),
    (r"nvjpeg\w*\.h|nvJitLink\.h|nvrtc\.h|nvml\.h|cupti\w*\.h|nvPTXCompiler\.h|nvfunctional|cuda_profiler_api\.h|cudaProfiler\.h", "the CUDA toolkit is installed without this part: install the whole toolkit (cuda-toolkit)"),
    (_OF_CCCL, "the CUDA toolkit is installed without CCCL, or has an older or newer one: {python} -m pip install nvidia-cuda-cccl"),
    (rf"{_any_of(REMOVED)}|cutil(?:_\w+)?\.h", "this CUDA release has removed it, with texture references and similar headers (cuda_runtime.h has the rest)"),
    (r"helper_(?:cuda|cuda_drvapi|cuda_gl|cusolver|functions|gl|image|math|multiprocess|string|timer)\.h|exception\.h|nvMath\.h|nvMatrix\.h|nvVector\.h", "it comes with NVIDIA's cuda-samples (folder Common): git clone https://github.com/NVIDIA/cuda-samples, " + SETTING),
    (r"(?:cutlass|cute)/.*|cutlass\.h", "it comes with CUTLASS: git clone https://github.com/NVIDIA/cutlass, and set CUTLASS_PATH to its folder, " + SETTING),
    (r"cuco/.*", "it comes with cuCollections: git clone https://github.com/NVIDIA/cuCollections, " + SETTING),
    (r"rmm/.*|rapids_logger/.*", _RAPIDS.format("rmm")),
    (r"raft/.*|raft_runtime/.*", _RAPIDS.format("raft")),
    (r"cudf/.*|cudf_test/.*", _RAPIDS.format("cudf")),
    (r"cuvs/.*", _RAPIDS.format("cuvs")),
    (r"cugraph/.*", _RAPIDS.format("cugraph")),
    (r"cuml/.*|treelite/.*", _RAPIDS.format("cuml")),
    (r"kvikio/.*", _RAPIDS.format("kvikio")),
    (r"nvbench/.*", "it comes with NVBench: git clone https://github.com/NVIDIA/nvbench, " + SETTING),
    (r"moderngpu/.*|moderngpu\.cuh", "it comes with moderngpu: git clone https://github.com/moderngpu/moderngpu, " + SETTING),
    (r"cuBQL/.*", "it comes with cuBQL: git clone https://github.com/NVIDIA/cuBQL, " + SETTING),
    (r"faiss/.*", "it comes with FAISS: conda install -c pytorch faiss-gpu, " + SETTING),
    (r"matx(?:\.h|/.*)", "it comes with MatX: git clone https://github.com/NVIDIA/MatX, " + SETTING),
    (r"(?:ck|ck_tile)/.*|hip\w*/.*|rocm\w*[-/].*|rocprim/.*|hipcub/.*|rocthrust/.*|rccl.*|hipblas.*|rocblas.*|miopen/.*", "it belongs to AMD's ROCm: nvcc compiles CUDA only"),
    (r"mpi\.h|mpi-ext\.h", "it comes with MPI: apt install libopenmpi-dev, " + SETTING),
    (r"(?:Eigen|unsupported/Eigen)/.*", "it comes with Eigen: apt install libeigen3-dev"),
    (r"glog/.*", "it comes with glog: apt install libgoogle-glog-dev"),
    (r"gflags/.*", "it comes with gflags: apt install libgflags-dev"),
    (r"gtest/.*", "it comes with GoogleTest: apt install libgtest-dev"),
    (r"gmock/.*", "it comes with GoogleTest: apt install libgmock-dev"),
    (r"benchmark/.*", "it comes with Google Benchmark: apt install libbenchmark-dev"),
    (r"absl/.*", "it comes with Abseil: apt install libabsl-dev"),
    (r"google/protobuf/.*", "it comes with protobuf: apt install libprotobuf-dev"),
    (r".*\.pb\.h", "protoc makes it when the project is built: build the project once, " + SETTING),
    (r"boost/.*", "it comes with Boost: apt install libboost-all-dev"),
    (r"opencv2/.*", "it comes with OpenCV: apt install libopencv-dev"),
    (r"hdf5\.h|H5\w+\.h", "it comes with HDF5: apt install libhdf5-dev"),
    (r"fmt/.*", "it comes with fmt: apt install libfmt-dev"),
    (r"spdlog/.*", "it comes with spdlog: apt install libspdlog-dev"),
    (r"nlohmann/.*|json\.hpp", "it comes with nlohmann-json: apt install nlohmann-json3-dev"),
    (r"dlpack/.*", "it comes with DLPack: apt install libdlpack-dev, " + SETTING),
    (r"dmlc/.*", "it comes with dmlc-core: git clone https://github.com/dmlc/dmlc-core, " + SETTING),
    (r"GLFW/.*", "it comes with GLFW: apt install libglfw3-dev"),
    (r"GL/glew\.h", "it comes with GLEW: apt install libglew-dev"),
    (r"GL/(?:free)?glut\w*\.h", "it comes with FreeGLUT: apt install freeglut3-dev"),
    (r"GL/.*|EGL/.*|GLES\d/.*|KHR/.*", "it comes with OpenGL: apt install libgl-dev libegl-dev"),
    (r"glm/.*", "it comes with GLM: apt install libglm-dev"),
    (r"vulkan/.*", "it comes with Vulkan: apt install libvulkan-dev"),
    (r"X11/.*", "it comes with X11: apt install libx11-dev"),
    (r"tbb/.*|oneapi/.*", "it comes with oneTBB or oneDNN: apt install libtbb-dev libdnnl-dev"),
    (r"omp\.h", "it comes with the compiler's OpenMP: apt install libgomp1 gcc"),
    (r"zlib\.h", "it comes with zlib: apt install zlib1g-dev"),
    (r"png\.h", "it comes with libpng: apt install libpng-dev"),
    (r"jpeglib\.h", "it comes with libjpeg: apt install libjpeg-dev"),
    (r"FreeImage\.h", "it comes with FreeImage: apt install libfreeimage-dev"),
    (r"sndfile\.h", "it comes with libsndfile: apt install libsndfile1-dev"),
    (r"infiniband/.*|rdma/.*", "it comes with RDMA core: apt install libibverbs-dev librdmacm-dev"),
    (r"numa\.h", "it comes with libnuma: apt install libnuma-dev"),
    (r"gsl/.*", "it comes with GSL: apt install libgsl-dev"),
    (r"mkl\w*\.h", "it comes with Intel's MKL: {python} -m pip install mkl-include, " + SETTING),
    (r"cblas\.h|lapacke?\.h|openblas\w*\.h", "it comes with a BLAS library: apt install libopenblas-dev"),
    (r"fftw3\w*\.h", "it comes with FFTW: apt install libfftw3-dev"),
    (r"(?:catch2/)?catch\.hpp", "it comes with Catch2 2: git clone -b v2.x https://github.com/catchorg/Catch2, " + SETTING),
    (r"catch2/.*", "it comes with Catch2 3: apt install catch2 (Debian 13, Ubuntu 24.04 or newer), or git clone https://github.com/catchorg/Catch2, " + SETTING),
    (r"doctest/.*|doctest\.h", "it comes with doctest: apt install doctest-dev"),
    (r"ceres/.*", "it comes with Ceres: apt install libceres-dev"),
    (r"pcl/.*", "it comes with PCL: apt install libpcl-dev, " + SETTING),
    (r"windows\.h|Windows\.h|intrin\.h|winsock2?\.h|ws2\w+\.h|iphlpapi\.h|processthreadsapi\.h|d3d\w*\.h|dxgi\w*\.h|direct\.h|io\.h|conio\.h", "it belongs to Windows: this file compiles only there"),
    (r"TargetConditionals\.h|Availability\w*\.h|mach/.*|android/.*|arm_\w+\.h|altivec\.h|spe\.h|wasm_simd128\.h|vecintrin\.h", "it belongs to another platform (macOS, Android, ARM, PowerPC or another)"),
    (r"CL/.*|sycl/.*|level_zero/.*", "it belongs to OpenCL or SYCL: nvcc compiles CUDA only"),
    (r"optix\w*\.h", "it comes with NVIDIA's OptiX SDK: install it from developer.nvidia.com/optix, " + SETTING),
    (r"NvInfer\w*\.h|NvOnnx\w*\.h|NvUtils\.h", "it comes with TensorRT: apt install libnvinfer-dev, " + SETTING),
    (r"Kokkos_\w+\.hpp|KokkosCore_config\.h", f"the project's build makes or installs it: {CONFIGURE}, {SETTING}"),
)  # fmt: skip
"""What provides a header, by its name: the first pattern counts. A remedy names one command, or says why there is none."""
