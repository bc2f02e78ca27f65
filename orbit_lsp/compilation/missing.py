"""Explains a header that is nowhere: what is near it, and what would provide it."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from orbit_lsp.compilation import foreign_text
from orbit_lsp.compilation import headers as header_search
from orbit_lsp.compilation.headers import Headers
from orbit_lsp.compilation.templates import configures as made_by_cmake
from orbit_lsp.compilation.toolkit_headers import LIBRARIES, NPP, REMOVED, is_toolkits, toolkits_own
from orbit_remote.common import regular_files
from orbit_remote.common.lazy_dataclass import dataclass
from orbit_remote.common.limits import BUILD_FILE
from orbit_remote.common.packages import installing

OTHER_PLATFORM = "it belongs to "
"""How the reason begins for headers that no build for CUDA on this system has."""
CONFIGURE = "configure the project (cmake -B build)"
_BY_CONFIGURE = "configure the project ({0})"
NOWHERE = "no file of this name is in the workspace"
"""How the sentence begins about a header of which nothing is known."""
SETTING = 'or name its folder: nvcc_flags = ["-I<folder>"]'
_NEAREST = 3
_MOST_SUBMODULES = 1_000


@dataclass(frozen=True, slots=True)
class Submodule:
    """A submodule of the workspace's repository, by its folder and the end of its address."""

    folder: str
    name: str


def submodules(root: str) -> tuple[Submodule, ...]:
    """Return the submodules that are not checked out, from .gitmodules. Reads files."""
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
    maker: Callable[[str, str], str] | None = None,
) -> str:
    """Return the sentence that follows "`name` is not found". `source` is the file that includes it, `python` the
    chosen one. `packages` are those that the project looks for, with the file that says so. `maker` says what of the
    project makes it. Reads build files.
    """
    near = _near(name, source, headers)
    if "{{" in name or "{%" in name:
        return foreign_text.TEMPLATE
    if module := _submodule(name, absent):
        return f"it is in the submodule {module.folder}, which is not checked out: git submodule update --init {module.folder}"
    if (listed := headers.named(f"{name}.in")) and (step := _configure(listed[0], name, headers)):
        return f"the project's build makes it from {listed[0]}: {_BY_CONFIGURE.format(step)}, {SETTING}"
    if listed := listed or headers.named(re.sub(r"(?:\.h(?:pp)?)?$", ".in", name, count=1)):
        return f"the project's build makes it from {listed[0]}: {CONFIGURE}, {SETTING}"
    if has_cccl and re.fullmatch(_GONE, name):
        return "CUDA 13 removed it: change the code, or name an older compiler with the setting `nvcc`"
    if has_cccl and re.fullmatch(_OF_CCCL, name):
        return f"the CUDA toolkit's CCCL has no such header, an older or newer one has: if the project's build brings it, {CONFIGURE}, {SETTING}"
    if remedy := provider(name, python):
        return remedy + (f"; nearest in the workspace: {near}" if near else "")
    if near and not any(f"/{file}".endswith(f"/{name}") for file in near.split(", ")):
        return f"nearest in the workspace: {near}: correct the path, or build the project once if its build copies headers, {SETTING}"
    if near:
        return f"nearest in the workspace: {near}; {SETTING.removeprefix('or ')}"
    words = [re.sub(r"\W|_", "", part.lower()) for part in re.split(r"[/.]", name)]
    looked_for = {re.sub(r"\W|_", "", package.lower()): (package, file) for package, file in packages}
    # the longest first: CUDA's folder may hold another package's header, as cuda/api_wrappers.hpp of cuda-api-wrappers
    for word in sorted(("".join(words[:-1]), *words), key=len, reverse=True):
        if word in looked_for and word not in _TOOLKIT:
            package, file = looked_for[word]
            return f"it comes with {package}, which {file} looks for: install it, {SETTING}"
    if made_by := maker(name, source) if maker else "":
        step = f": {CONFIGURE}" if "downloads" in made_by else ""
        return f"{made_by}{step}, {SETTING}"
    if absent:
        folders = ", ".join(module.folder for module in absent[:_NEAREST])
        return (
            f"{NOWHERE}: a submodule that is not checked out has it ({folders}), the project's build makes it, "
            f"or a library: git submodule update --init --recursive, build the project once, or install the library, {SETTING}"
        )
    return (
        f"{NOWHERE}, the CUDA toolkit or the packages of {python}: a library that is not installed has it, "
        f"or the project's build makes it: install the library, or build the project once, {SETTING}"
    )


def _configure(template: str, name: str, headers: Headers) -> str:
    """Return how to configure a project of autotools that has this template of a header, if no CMakeLists.txt makes
    the header. Return "" for any other project. Reads files.
    """
    if made_by_cmake(os.path.join(headers.root, template), name, headers.root):
        return ""
    above = [
        folder
        for folder in ("", *_folders(template))
        if any(folder == os.path.dirname(each) for each in headers.named("configure"))
    ]
    if above:
        return f"cd {above[-1]} && ./configure" if above[-1] else "./configure"
    for script in ("autogen.sh", "bootstrap", "bootstrap.sh"):
        if script in headers.builds.get("", ()) or script in headers.named(script):
            return f"./{script} && ./configure"
    above = ("", *_folders(template))
    is_autotools = any("Makefile.am" in headers.builds.get(folder, ()) for folder in above)
    return "autoreconf -i && ./configure" if is_autotools else ""


def _folders(file: str) -> list[str]:
    """Return the folders above a file, the highest first."""
    parts = file.split("/")[:-1]
    return ["/".join(parts[:end]) for end in range(1, len(parts) + 1)]


def of_other_machine(name: str) -> str:
    """Return what to do about an `#include` of an absolute path that is not on this machine."""
    last = re.split(r"[\\/]", name)[-1]
    if is_toolkits(last):
        return f"the path is of another machine: include <{last}>, which every nvcc finds"
    return "the path is of another machine: include the file by its name, " + SETTING


def provider(name: str, python: str) -> str:
    """Return what provides a header of this name, wherever it is included. Return "" if that is not known. Reads
    nothing.
    """
    name = toolkits_own(name) or name
    text = next((text for pattern, text in PROVIDERS if re.fullmatch(pattern, name)), "")
    if "{pip}" in text:
        text = text.replace("{pip}", installing.installer(python or sys.executable))
    return text.replace("{python}", python)


def _near(name: str, source: str, headers: Headers) -> str:
    here = os.path.relpath(os.path.dirname(source), headers.root) if source else ""
    files = sorted(
        headers.named(name), key=lambda file: (header_search.distance(here, os.path.dirname(file)), file)
    )
    return ", ".join(files[:_NEAREST])


def _submodule(name: str, absent: Sequence[Submodule]) -> Submodule | None:
    """Return the submodule that has the name of a header's first folder, or that is known to have the header."""
    first = re.sub(r"\W|_", "", re.split(r"[/.]", name.lower())[0])
    known = next((words for pattern, words in _OF_REPOSITORY if re.fullmatch(pattern, name)), ())
    for module in absent:
        words = {re.sub(r"\W|_", "", text.lower()) for text in (module.name, Path(module.folder).name)}
        if first in words or any(known_word in word for known_word in known for word in words):
            return module
    return None


_OF_REPOSITORY: tuple[tuple[str, tuple[str, ...]], ...] = (
    (r"(?:cutlass|cute)/.*|cutlass\.h", ("cutlass",)),
    (r"cub/.*", ("cub", "cccl")),
    (r"thrust/.*", ("thrust", "cccl")),
    (r"cuda/(?:std|experimental)/.*", ("cccl", "libcudacxx")),
    (r"nanovdb/.*|openvdb/.*", ("vdb",)),
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
_GONE = (
    r"thrust/(?:async/.*|event\.h|future\.h|optional\.h)|cub/(?:grid/grid_barrier|host/mutex|util_(?:compiler|deprecated)|"
    r"iterator/(?:constant_input|counting_input|discard_output|transform_input)_iterator)\.cuh"
)
"""Headers of CCCL that CUDA 12 has, and CUDA 13 no more."""
_TOOLKIT = frozenset(("cuda", "cudatoolkit", "cudart"))
"""What CMake calls the toolkit, which is searched before anybody is asked for advice."""
_RAPIDS = "it comes with RAPIDS: conda install -c rapidsai lib{0}, " + SETTING
PROVIDERS: tuple[tuple[str, str], ...] = (
    (r"cu(?:blas|fft|solver|rand)dx(?:\w*\.hpp|/.*)|nvcompdx\.hpp|cutlass_mathdx/.*", "it comes with MathDx, in its newest version: {pip} -U nvidia-mathdx, " + SETTING),
    (r"cublasmp\w*\.h", "it comes with cuBLASMp: {pip} nvidia-cublasmp-cu13"),
    (r"cusolverMp\w*\.h", "it comes with cuSOLVERMp: {pip} nvidia-cusolvermp-cu13"),
    (r"(?:custatevec|cutensornet|cudensitymat)\.h", "it comes with cuQuantum: {pip} cuquantum-cu13, " + SETTING),
    (r"ffnvcodec/.*", "it comes with nv-codec-headers: apt install libffmpeg-nvenc-dev, " + SETTING),
    (r"tensorflow/.*", "it comes with TensorFlow: {pip} tensorflow, " + SETTING),
    (r"torch_musa/.*|musa\w*\.h|.*\.muh", "it belongs to Moore Threads' MUSA: nvcc compiles CUDA only"),
    (r"Rcpp(?:\.h|/.*)", "it comes with Rcpp: apt install r-cran-rcpp, " + SETTING),
    (r"RcppArmadillo(?:\w*\.h|/.*)", "it comes with RcppArmadillo: apt install r-cran-rcpparmadillo, " + SETTING),
    (r"RcppEigen(?:\w*\.h|/.*)", "it comes with RcppEigen: apt install r-cran-rcppeigen, " + SETTING),
    (r"R_ext/.*|Rinternals\.h|R\.h", "it comes with R: apt install r-base-dev, " + SETTING),
    (r"c10/cuda/impl/cuda_cmake_macros\.h", "the torch of {python} is built without CUDA: install one with CUDA ({pip} torch, from the index of your CUDA release)"),
    (r"THC/THCAtomics\.cuh", "torch removed it in release 1.11: include <ATen/cuda/Atomic.cuh> instead"),
    (r"THC/.*|TH/.*", "it comes with Torch 7 (Lua) and with torch before release 1.11; newer code includes <ATen/cuda/CUDAContext.h> and <c10/cuda/CUDAException.h>"),
    (r"(?:torch|ATen|c10|caffe2)/.*", "it comes with torch, and {python} has none, or one without this header: {pip} torch, or set `python` to the one that has it"),
    (r"pybind11/.*", "it comes with pybind11: {pip} pybind11"),
    (r"nanobind/.*", "it comes with nanobind: {pip} nanobind"),
    (r"numpy/.*", "it comes with NumPy: {pip} numpy"),
    (r"(?:nd)?arrayobject\.h|npy_math\.h|ufuncobject\.h", "it comes with NumPy, in the folder numpy of its headers: {pip} numpy, " + SETTING),
    (r"CLI/.*|CLI11\.hpp", "it comes with CLI11: apt install libcli11-dev, " + SETTING),
    (r"Python\.h", "it comes with Python's headers: apt install python3-dev"),
    (r"tvm/ffi/.*", "it comes with TVM FFI: {pip} apache-tvm-ffi, " + SETTING),
    (r"cudnn_frontend.*", "it comes with cuDNN's front end: {pip} nvidia-cudnn-frontend, " + SETTING),
    (r"cudnn(?:_(?:version|backend|graph|(?:adv|cnn|ops)(?:_infer|_train)?))?(?:_v\d)?\.h", "it comes with cuDNN: {pip} nvidia-cudnn-cu13, or apt install cudnn9-cuda-13"),
    (r"nccl(?:_net|_device|_tuner|_profiler)?\.h|nccl_device/.*", "it comes with NCCL: {pip} nvidia-nccl-cu13, or apt install libnccl-dev"),
    (r"nvshmem\w*\.h.*|nvshmem/.*|device_host\w*/.*", "it comes with NVSHMEM: {pip} nvidia-nvshmem-cu13"),
    (r"cusparseLt\.h", "it comes with cuSPARSELt: {pip} nvidia-cusparselt-cu13"),
    (r"cutensor\w*\.h.*|cutensor/.*", "it comes with cuTENSOR: {pip} cutensor-cu13"),
    (r"cufile\.h", "it comes with the CUDA toolkit's GDS: apt install libcufile-dev, or {pip} nvidia-cufile"),
    (r"nvtx3/.*", "it comes with NVTX: {pip} nvidia-nvtx"),
    (r"nvToolsExt\w*\.h", "CUDA 13 has no NVTX 2: include <nvtx3/nvToolsExt.h> instead"),
    (_any_of(LIBRARIES), "the CUDA toolkit is installed without its libraries: install the whole toolkit, or {pip} nvidia-cublas nvidia-cufft nvidia-curand nvidia-cusparse nvidia-cusolver"),
    (_any_of(NPP), "the CUDA toolkit is installed without NPP: {pip} nvidia-npp"),
    (r"nvjpeg\w*\.h|nvJitLink\.h|nvrtc\.h|nvml\.h|cupti\w*\.h|nvPTXCompiler\.h|nvfunctional|cuda_profiler_api\.h|cudaProfiler\.h", "the CUDA toolkit is installed without this part: install the whole toolkit (cuda-toolkit)"),
    (_OF_CCCL, "the CUDA toolkit is installed without CCCL, or has an older or newer one: {pip} nvidia-cuda-cccl"),
    (rf"{_any_of(REMOVED)}|cutil(?:_\w+)?\.h|shr(?:Utils|QATest)\.h|sdkHelper\.h", "this CUDA release has removed it, with texture references and similar headers (cuda_runtime.h has the rest)"),
    (r"helper_(?:cuda|cuda_drvapi|cuda_gl|cusolver|functions|gl|image|math|multiprocess|string|timer)\.h|exception\.h|nvMath\.h|nvMatrix\.h|nvVector\.h", "it comes with NVIDIA's cuda-samples (folder Common): git clone https://github.com/NVIDIA/cuda-samples, " + SETTING),
    (r"(?:cutlass|cute)/.*|cutlass\.h", "it comes with CUTLASS: git clone https://github.com/NVIDIA/cutlass, and set CUTLASS_PATH to its folder, " + SETTING),
    (r"cusp/.*", "it comes with CUSP: git clone https://github.com/cusplibrary/cusplibrary, " + SETTING),
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
    (r"gunrock/.*", "it comes with Gunrock: git clone https://github.com/gunrock/gunrock, " + SETTING),
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
    (r"curl/.*", "it comes with libcurl: apt install libcurl4-openssl-dev"),
    (r"jansson\w*\.h", "it comes with Jansson: apt install libjansson-dev"),
    (r"openssl/.*", "it comes with OpenSSL: apt install libssl-dev"),
    (r"gmp(?:xx)?\.h", "it comes with GMP: apt install libgmp-dev"),
    (r"yaml-cpp/.*", "it comes with yaml-cpp: apt install libyaml-cpp-dev"),
    (r"zlib\.h", "it comes with zlib: apt install zlib1g-dev"),
    (r"png\.h", "it comes with libpng: apt install libpng-dev"),
    (r"jpeglib\.h", "it comes with libjpeg: apt install libjpeg-dev"),
    (r"FreeImage\.h", "it comes with FreeImage: apt install libfreeimage-dev"),
    (r"sndfile\.h", "it comes with libsndfile: apt install libsndfile1-dev"),
    (r"infiniband/.*|rdma/.*", "it comes with RDMA core: apt install libibverbs-dev librdmacm-dev"),
    (r"numa\.h", "it comes with libnuma: apt install libnuma-dev"),
    (r"fitsio\d?\.h|longnam\.h", "it comes with CFITSIO: apt install libcfitsio-dev, " + SETTING),
    (r"tclap/.*", "it comes with TCLAP: apt install libtclap-dev, " + SETTING),
    (r"SDL2?/.*|SDL\.h", "it comes with SDL: apt install libsdl2-dev, " + SETTING),
    (r"SFML/.*", "it comes with SFML: apt install libsfml-dev, " + SETTING),
    (r"assimp/.*", "it comes with Assimp: apt install libassimp-dev, " + SETTING),
    (r"cxxopts\.hpp", "it comes with cxxopts: apt install libcxxopts-dev, " + SETTING),
    (r"rapidjson/.*", "it comes with RapidJSON: apt install rapidjson-dev, " + SETTING),
    (r"tinyxml2\.h", "it comes with TinyXML-2: apt install libtinyxml2-dev, " + SETTING),
    (r"pugixml\.hpp", "it comes with pugixml: apt install libpugixml-dev, " + SETTING),
    (r"cereal/.*", "it comes with cereal: apt install libcereal-dev, " + SETTING),
    (r"armadillo", "it comes with Armadillo: apt install libarmadillo-dev, " + SETTING),
    (r"(?:suitesparse/)?(?:cholmod|umfpack|klu|amd|colamd|cs)\.h", "it comes with SuiteSparse: apt install libsuitesparse-dev, " + SETTING),
    (r"metis\.h", "it comes with METIS: apt install libmetis-dev, " + SETTING),
    (r"HYPRE\w*\.h|_hypre\w*\.h", "it comes with hypre: apt install libhypre-dev, " + SETTING),
    (r"petsc\w*\.h", "it comes with PETSc: apt install petsc-dev, " + SETTING),
    (r"zmq\.h(?:pp)?", "it comes with ZeroMQ: apt install libzmq3-dev, " + SETTING),
    (r"lz4\w*\.h", "it comes with LZ4: apt install liblz4-dev, " + SETTING),
    (r"zstd\.h", "it comes with Zstandard: apt install libzstd-dev, " + SETTING),
    (r"lmdb\.h", "it comes with LMDB: apt install liblmdb-dev, " + SETTING),
    (r"leveldb/.*", "it comes with LevelDB: apt install libleveldb-dev, " + SETTING),
    (r"tiff(?:io)?\.h", "it comes with libtiff: apt install libtiff-dev, " + SETTING),
    (r"netcdf\w*\.h", "it comes with netCDF: apt install libnetcdf-dev, " + SETTING),
    (r"gdal\w*\.h|ogr\w*\.h", "it comes with GDAL: apt install libgdal-dev, " + SETTING),
    (r"xxhash\.h", "it comes with xxHash: apt install libxxhash-dev, " + SETTING),
    (r"sodium\.h|sodium/.*", "it comes with libsodium: apt install libsodium-dev, " + SETTING),
    (r"ft2build\.h|freetype/.*", "it comes with FreeType: apt install libfreetype-dev, " + SETTING),
    (r"hwloc\.h|hwloc/.*", "it comes with hwloc: apt install libhwloc-dev, " + SETTING),
    (r"papi\.h", "it comes with PAPI: apt install libpapi-dev, " + SETTING),
    (r"bzlib\.h", "it comes with bzip2: apt install libbz2-dev, " + SETTING),
    (r"snappy\w*\.h", "it comes with Snappy: apt install libsnappy-dev, " + SETTING),
    (r"matio\.h", "it comes with MatIO: apt install libmatio-dev, " + SETTING),
    (r"pcap(?:/.*|\.h)", "it comes with libpcap: apt install libpcap-dev, " + SETTING),
    (r"vtk\w+\.h", "it comes with VTK: apt install libvtk9-dev, " + SETTING),
    (r"OpenEXR/.*", "it comes with OpenEXR: apt install libopenexr-dev, " + SETTING),
    (r"(?:google/)?(?:sparse|dense)_hash_(?:map|set)|sparsehash/.*", "it comes with sparsehash: apt install libsparsehash-dev, " + SETTING),
    (r"scotch\.h|ptscotch\.h", "it comes with Scotch: apt install libscotch-dev, " + SETTING),
    (r"CGAL/.*", "it comes with CGAL: apt install libcgal-dev, " + SETTING),
    (r"flann/.*", "it comes with FLANN: apt install libflann-dev, " + SETTING),
    (r"libusb(?:-1\.0/.*|\.h)", "it comes with libusb: apt install libusb-1.0-0-dev, " + SETTING),
    (r"lib(?:avcodec|avformat|avutil|swscale)/.*", "it comes with FFmpeg: apt install libavcodec-dev libavformat-dev libswscale-dev, " + SETTING),
    (r"gst/.*", "it comes with GStreamer: apt install libgstreamer1.0-dev libgstreamer-plugins-base1.0-dev, " + SETTING),
    (r"libxml/.*", "it comes with libxml2: apt install libxml2-dev, " + SETTING),
    (r"json/json\.h", "it comes with JsonCpp: apt install libjsoncpp-dev, " + SETTING),
    (r"sqlite3\.h", "it comes with SQLite: apt install libsqlite3-dev, " + SETTING),
    (r"htslib/.*", "it comes with HTSlib: apt install libhts-dev, " + SETTING),
    (r"readline/.*", "it comes with readline: apt install libreadline-dev, " + SETTING),
    (r"fst/.*", "it comes with OpenFst: apt install libfst-dev, " + SETTING),
    (r"mex\.h|matrix\.h|mxGPUArray\.h|gpu/mxGPUArray\.h|mat\.h", "it comes with MATLAB, in extern/include of its folder (mxGPUArray.h in toolbox/parallel/gpu/extern/include), " + SETTING),
    (r"gsl/.*", "it comes with GSL: apt install libgsl-dev"),
    (r"mkl\w*\.h", "it comes with Intel's MKL: {pip} mkl-include, " + SETTING),
    (r"cblas\.h|lapacke?\.h|openblas\w*\.h", "it comes with a BLAS library: apt install libopenblas-dev"),
    (r"fftw3\w*\.h", "it comes with FFTW: apt install libfftw3-dev"),
    (r"(?:catch2/)?catch\.hpp", "it comes with Catch2 2: git clone -b v2.x https://github.com/catchorg/Catch2, " + SETTING),
    (r"catch2/.*", "it comes with Catch2 3: apt install catch2 (Debian 13, Ubuntu 24.04 or newer), or git clone https://github.com/catchorg/Catch2, " + SETTING),
    (r"doctest/.*|doctest\.h", "it comes with doctest: apt install doctest-dev"),
    (r"ceres/.*", "it comes with Ceres: apt install libceres-dev"),
    (r"pcl/.*", "it comes with PCL: apt install libpcl-dev, " + SETTING),
    (r"windows\.h|Windows\.h|intrin\.h|winsock2?\.h|ws2\w+\.h|iphlpapi\.h|processthreadsapi\.h|d3d\w*\.h|dxgi\w*\.h|direct\.h|io\.h|conio\.h", "it belongs to Windows: this file compiles only there"),
    (r"TargetConditionals\.h|Availability\w*\.h|mach/.*|android/.*|arm_\w+\.h|altivec\.h|spe\.h|wasm_simd128\.h|vecintrin\.h", "it belongs to another platform (macOS, Android, ARM, PowerPC or another)"),
    (r"CL/(?!sycl).*", "it comes with OpenCL's headers: apt install opencl-headers"),
    (r"CL/.*|sycl/.*|level_zero/.*", "it belongs to OpenCL or SYCL: nvcc compiles CUDA only"),
    (r"optix\w*\.h", "it comes with NVIDIA's OptiX SDK: install it from developer.nvidia.com/optix, " + SETTING),
    (r"NvInfer\w*\.h|NvOnnx\w*\.h|NvUtils\.h", "it comes with TensorRT: apt install libnvinfer-dev, " + SETTING),
    (r"Kokkos_\w+\.hpp|KokkosCore_config\.h", f"the project's build makes or installs it: {CONFIGURE}, {SETTING}"),
)  # fmt: skip
"""What provides a header, by its name: the first pattern counts. A remedy names one command, or says why there is none."""
