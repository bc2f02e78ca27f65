"""The names of the CUDA toolkit's headers. A workspace's own `cuda_utils.h` is not one of them.

They are listed from CUDA 13.0 (`include`), from NVIDIA's wheels of its libraries (cuFFT 12.5, cuRAND 10.4, cuSPARSE
12.9, NPP 13.2, nvJPEG 13.3, nvJitLink 13.5, November 2026), and from NVIDIA's documentation: cuBLAS, cuSOLVER,
cuFile, Windows, and what releases 11 and 12 still had.
"""

from __future__ import annotations

import re

_FAMILIES = re.compile(
    r"cooperative_groups(?:/.*)?|(?:cub|thrust|crt|nvtx3|cuda/std|cuda/experimental|cuda/__\w+)/.*|nv/(?:target|detail/.*)|cuda/\w+"
)
"""Folders of the toolkit. `cuda/atomic` is CCCL's; `cuda/kernels.h` may be anybody's."""
LIBRARIES = frozenset(
    """
    cublas.h cublas_api.h cublas_v2.h cublasLt.h cublasXt.h nvblas.h
    cufft.h cufftXt.h cufftw.h cufft_device.h cudalibxt.h
    curand.h curand_discrete.h curand_discrete2.h curand_globals.h curand_kernel.h curand_lognormal.h curand_mrg32k3a.h
    curand_mtgp32.h curand_mtgp32_host.h curand_mtgp32_kernel.h curand_mtgp32dc_p_11213.h curand_normal.h
    curand_normal_static.h curand_philox4x32_x.h curand_poisson.h curand_precalc.h curand_uniform.h
    cusolverDn.h cusolverMg.h cusolverRf.h cusolverSp.h cusolverSp_LOWLEVEL_PREVIEW.h cusolver_common.h
    cusparse.h cusparse_v2.h
    """.split()
)
"""Headers of cuBLAS, cuFFT, cuRAND, cuSOLVER and cuSPARSE: a toolkit may be installed without them."""
NPP = frozenset(
    """
    npp.h nppcore.h nppdefs.h nppversion.h nppi.h nppi_arithmetic_and_logical_operations.h nppi_color_conversion.h
    nppi_compression_functions.h nppi_computer_vision.h nppi_data_exchange_and_initialization.h nppi_filtering_functions.h
    nppi_geometry_transforms.h nppi_linear_transforms.h nppi_morphological_operations.h nppi_statistics_functions.h
    nppi_support_functions.h nppi_threshold_and_compare_operations.h npps.h npps_arithmetic_and_logical_operations.h
    npps_conversion_functions.h npps_filtering_functions.h npps_initialization.h npps_statistics_functions.h
    npps_support_functions.h
    """.split()
)
REMOVED = frozenset(
    """
    texture_fetch_functions.h texture_fetch_functions.hpp cuda_texture_types.h cuda_surface_types.h surface_functions.h
    surface_functions.hpp texture_types.h surface_types.h math_functions.h math_functions.hpp math_functions_dbl_ptx1.h
    math_functions_dbl_ptx3.h device_functions.h device_functions.hpp device_functions_decls.h device_double_functions.h
    device_double_functions.hpp func_macro.h common_types.h sm_11_atomic_functions.h sm_12_atomic_functions.h
    sm_13_double_functions.h sm_20_atomic_functions.h sm_20_atomic_functions.hpp sm_20_intrinsics.h sm_20_intrinsics.hpp
    sm_30_intrinsics.h sm_30_intrinsics.hpp sm_32_atomic_functions.h sm_32_atomic_functions.hpp sm_32_intrinsics.h
    sm_32_intrinsics.hpp sm_35_atomic_functions.h sm_35_intrinsics.h sm_60_atomic_functions.h sm_60_atomic_functions.hpp
    sm_61_intrinsics.h sm_61_intrinsics.hpp cudaGL.h
    """.split()
)
"""Headers that newer releases no longer have, or are about to remove."""
_OTHERS = frozenset(
    """
    builtin_types.h channel_descriptor.h common_functions.h cooperative_groups.h cuComplex.h cuda.h cudaD3D10.h cudaD3D11.h
    cudaD3D10Typedefs.h cudaD3D11Typedefs.h cudaD3D9.h cudaD3D9Typedefs.h cudaEGL.h cudaEGLTypedefs.h cudaGLTypedefs.h
    cudaProfiler.h cudaProfilerTypedefs.h cudaTypedefs.h cudaVDPAU.h cudaVDPAUTypedefs.h cuda_awbarrier.h
    cuda_awbarrier_helpers.h cuda_awbarrier_primitives.h cuda_bf16.h cuda_bf16.hpp cuda_d3d10_interop.h
    cuda_d3d11_interop.h cuda_d3d9_interop.h cuda_device_runtime_api.h cuda_egl_interop.h cuda_fp16.h cuda_fp16.hpp
    cuda_fp4.h cuda_fp4.hpp cuda_fp6.h cuda_fp6.hpp cuda_fp8.h cuda_fp8.hpp cuda_gl_interop.h cuda_occupancy.h
    cuda_pipeline.h cuda_pipeline_helpers.h cuda_pipeline_primitives.h cuda_profiler_api.h cuda_runtime.h
    cuda_runtime_api.h cuda_stdint.h cuda_vdpau_interop.h cudart_platform.h cufile.h cupti.h cupti_activity.h
    cupti_activity_deprecated.h cupti_callbacks.h cupti_checkpoint.h cupti_common.h cupti_driver_cbid.h cupti_events.h
    cupti_metrics.h cupti_nvtx_cbid.h cupti_pcsampling.h cupti_pcsampling_util.h cupti_pmsampling.h
    cupti_profiler_host.h cupti_profiler_target.h cupti_range_profiler.h cupti_result.h cupti_runtime_cbid.h
    cupti_sass_metrics.h cupti_target.h cupti_version.h device_atomic_functions.h device_atomic_functions.hpp
    device_launch_parameters.h device_types.h driver_functions.h driver_types.h fatbinary_section.h host_config.h
    host_defines.h library_types.h math_constants.h mma.h nvFatbin.h nvfunctional nvJitLink.h nvPTXCompiler.h nvToolsExt.h
    nvToolsExtCuda.h nvToolsExtCudaRt.h nvToolsExtMeta.h nvToolsExtOpenCL.h nvToolsExtSync.h nv_decode.h nvjpeg.h nvml.h
    nvperf_common.h nvperf_cuda_host.h nvperf_host.h nvperf_target.h nvrtc.h nvvm.h sobol_direction_vectors.h
    surface_indirect_functions.h texture_indirect_functions.h vector_functions.h vector_functions.hpp vector_types.h
    """.split()
)
_EVERY = LIBRARIES | NPP | REMOVED | _OTHERS


def is_toolkits(name: str) -> bool:
    """Say whether a header of this name comes with CUDA. Then one in the workspace is not meant."""
    return name in _EVERY or bool(_FAMILIES.fullmatch(name))


_LINKED = re.compile(
    r"(?:[\w.-]+/){0,8}(?:(?:local_)?cuda|cuda[-_.\d]+|cuda_toolkit)/(?:(?:targets/[\w-]+/|extras/CUPTI/)?include)/([\w/.]+)|"
    r"third_party/(?:gpus/)?(?:cudnn|nccl|tensorrt)/([\w.]+)"
)


def toolkits_own(name: str) -> str:
    """Return the header of CUDA to which a name leads through a link in the build's tree: `cuda.h` for
    `third_party/gpus/cuda/include/cuda.h`. Return "" for any other name.
    """
    match = _LINKED.fullmatch(name)
    own = (match[1] or match[2]) if match else ""
    return own if is_toolkits(own) or own.startswith(("cub/", "thrust/", "cudnn", "nccl", "NvInfer")) else ""
