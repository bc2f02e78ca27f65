"""CUDA's errors by name, those of the driver and of the runtime, and by number. Each has its meaning and its usual
cause.
"""

from __future__ import annotations

CUDA_ERRORS = {
    ("CUDA_ERROR_ILLEGAL_ADDRESS", "illegal address", "address out of range", "cudaErrorIllegalAddress", "700"): (
        "A kernel read or wrote memory that is not the program's. Usual causes: an index past the end (no test `i < n`, no "
        "mask), an index that overflows 32 bits, a pointer to host memory, memory that was freed."
    ),
    ("CUDA_ERROR_INVALID_ADDRESS_SPACE", "address of the wrong memory space", "cudaErrorInvalidAddressSpace", "717"): (
        "A global access met the window of shared or local memory. Usual causes: an index that is far out of bounds, or a "
        "pointer to shared memory that was made with `__cvta_generic_to_shared` or taken as global."
    ),
    ("CUDA_ERROR_MISALIGNED_ADDRESS", "misaligned address", "cudaErrorMisalignedAddress", "716"): (
        "A kernel used an address that is not a multiple of the size of the access. Usual causes: `float4*` or `double*` made "
        "from a pointer to smaller elements, and rows whose stride is no multiple of the vector."
    ),
    ("CUDA_ERROR_ILLEGAL_INSTRUCTION", "illegal instruction", "cudaErrorIllegalInstruction", "715"): (
        "An instruction cannot be executed as it is. Usual causes: an access to shared memory beyond what the launch has, a "
        "broken function pointer, a wrong descriptor of `wgmma` or TMA, inline PTX of another architecture."
    ),
    ("CUDA_ERROR_INVALID_PC", "jump to an address without code", "cudaErrorInvalidPc", "718"): (
        "A kernel jumped to an address without code. Usual causes: a pointer to a host function, or to a virtual function of an "
        "object that was made on the host."
    ),
    ("CUDA_ERROR_HARDWARE_STACK_ERROR", "stack overflow", "cudaErrorHardwareStackError", "714"): (
        "The call stack of a thread overflowed or was overwritten. Usual causes: deep recursion "
        "(`cudaDeviceSetLimit(cudaLimitStackSize, …)` gives more), or a write past the end of a local array."
    ),
    ("CUDA_ERROR_ASSERT", "failed assertion", "cudaErrorAssert", "710"): (
        "A device `assert`, or Triton's `tl.device_assert`, was false. The message has its text and the first thread."
    ),
    ("CUDA_ERROR_LAUNCH_FAILED", "trap", "cudaErrorLaunchFailure", "719"): (
        "A kernel ended by a trap (`__trap()`, a check of a library), or by a fault that the driver does not name. After it the "
        "context is lost: each later call fails too."
    ),
    ("CUDA_ERROR_INVALID_VALUE", "cudaErrorInvalidValue"): (
        "An argument of the call is not one that it takes: a null pointer, a size of 0, a pointer of another kind of memory, "
        "more shared memory than the kernel was allowed (`cudaFuncAttributeMaxDynamicSharedMemorySize`), a tensor map whose "
        "strides or box break a rule."
    ),
    ("CUDA_ERROR_OUT_OF_MEMORY", "out of memory", "cudaErrorMemoryAllocation"): (
        "The GPU, or the host's pinned memory, has not enough free. Use smaller inputs, free what is no longer needed, or look "
        "with `nvidia-smi` for other programs on the GPU. A kernel with a large stack or heap needs memory for each resident "
        "thread."
    ),
    ("CUDA_ERROR_NOT_INITIALIZED", "cudaErrorInitializationError"): (
        "The driver was called before it was initialised, or could not be: `orbit-lsp doctor` shows whether this machine's "
        "driver answers."
    ),
    ("CUDA_ERROR_DEINITIALIZED", "cudaErrorCudartUnloading"): (
        "CUDA was called while the program was ending, usually by a destructor of a static object."
    ),
    ("CUDA_ERROR_PROFILER_DISABLED", "cudaErrorProfilerDisabled"): (
        "The profiler is switched off for this program."
    ),
    ("CUDA_ERROR_PROFILER_NOT_INITIALIZED", "cudaErrorProfilerNotInitialized"): (
        "Deprecated; today's CUDA does not report it."
    ),
    ("CUDA_ERROR_PROFILER_ALREADY_STARTED", "cudaErrorProfilerAlreadyStarted"): (
        "Deprecated; today's CUDA does not report it."
    ),
    ("CUDA_ERROR_PROFILER_ALREADY_STOPPED", "cudaErrorProfilerAlreadyStopped"): (
        "Deprecated; today's CUDA does not report it."
    ),
    ("cudaErrorInvalidConfiguration",): (
        "The launch asks for what no launch may have: a block of more than 1024 threads, a grid or a block with an extent of 0, "
        "too much shared memory."
    ),
    ("cudaErrorInvalidPitchValue",): (
        "A pitch given to a copy of two or three dimensions is smaller than a row, or larger than the GPU takes."
    ),
    ("cudaErrorInvalidSymbol",): (
        "A name given to `cudaMemcpyToSymbol` or the like is no `__device__` or `__constant__` variable of this program."
    ),
    ("cudaErrorInvalidHostPointer",): (
        "A host pointer given to the call is not valid. Today's CUDA does not report it."
    ),
    ("cudaErrorInvalidDevicePointer",): (
        "A device pointer given to the call is not valid. Today's CUDA does not report it."
    ),
    ("cudaErrorInvalidTexture",): (
        "The texture given to the call is not valid."
    ),
    ("cudaErrorInvalidTextureBinding",): (
        "The texture is not bound to memory."
    ),
    ("cudaErrorInvalidChannelDescriptor",): (
        "The channel descriptor of a texture or an array is not valid: its format is not one of `cudaChannelFormatKind`."
    ),
    ("cudaErrorInvalidMemcpyDirection",): (
        "The direction of a copy is not one of `cudaMemcpyKind`; `cudaMemcpyDefault` lets CUDA find it out."
    ),
    ("cudaErrorAddressOfConstant",): (
        "Deprecated; today's CUDA does not report it."
    ),
    ("cudaErrorTextureFetchFailed",): (
        "Deprecated; today's CUDA does not report it."
    ),
    ("cudaErrorTextureNotBound",): (
        "Deprecated; today's CUDA does not report it."
    ),
    ("cudaErrorSynchronizationError",): (
        "Deprecated; today's CUDA does not report it."
    ),
    ("cudaErrorInvalidFilterSetting",): (
        "A texture of a type other than float was to be filtered linearly."
    ),
    ("cudaErrorInvalidNormSetting",): (
        "A texture was to be read as normalised float where its type does not permit that."
    ),
    ("cudaErrorMixedDeviceExecution",): (
        "Deprecated; today's CUDA does not report it."
    ),
    ("cudaErrorNotYetImplemented",): (
        "Deprecated; today's CUDA does not report it."
    ),
    ("cudaErrorMemoryValueTooLarge",): (
        "Deprecated; today's CUDA does not report it."
    ),
    ("CUDA_ERROR_STUB_LIBRARY", "cudaErrorStubLibrary"): (
        "The program is linked with the stub of the CUDA driver (`libcuda.so` of a `stubs` folder), which can do nothing. Take "
        "that folder out of `LD_LIBRARY_PATH` and of the run path."
    ),
    ("cudaErrorInsufficientDriver",): (
        "The driver is older than the CUDA that the program was built with. Update the driver, or build with an older toolkit."
    ),
    ("CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER", "cudaErrorCallRequiresNewerDriver"): (
        "The call needs a newer driver than this machine has."
    ),
    ("cudaErrorInvalidSurface",): (
        "The surface given to the call is not valid."
    ),
    ("cudaErrorDuplicateVariableName",): (
        "Two variables of the program have the same name."
    ),
    ("cudaErrorDuplicateTextureName",): (
        "Two textures of the program have the same name."
    ),
    ("cudaErrorDuplicateSurfaceName",): (
        "Two surfaces of the program have the same name."
    ),
    ("CUDA_ERROR_DEVICE_UNAVAILABLE", "cudaErrorDevicesUnavailable"): (
        "Every GPU is busy or cannot be used: another process holds it exclusively (compute mode), or it was lost. `nvidia-smi` "
        "names the processes."
    ),
    ("cudaErrorIncompatibleDriverContext",): (
        "The current context was made by the driver's interface in a way that the runtime cannot use."
    ),
    ("cudaErrorMissingConfiguration",): (
        "The launch of the kernel was not configured: it was called without `<<<…>>>`."
    ),
    ("cudaErrorPriorLaunchFailure",): (
        "Deprecated; today's CUDA does not report it."
    ),
    ("cudaErrorLaunchMaxDepthExceeded",): (
        "Kernels that launch kernels are nested deeper than the device runtime permits."
    ),
    ("cudaErrorLaunchFileScopedTex",): (
        "A kernel that launches kernels uses a texture of file scope, which those cannot."
    ),
    ("cudaErrorLaunchFileScopedSurf",): (
        "A kernel that launches kernels uses a surface of file scope, which those cannot."
    ),
    ("cudaErrorSyncDepthExceeded",): (
        "Deprecated; today's CUDA does not report it."
    ),
    ("cudaErrorLaunchPendingCountExceeded",): (
        "More launches of kernels by kernels are pending than `cudaLimitDevRuntimePendingLaunchCount` permits."
    ),
    ("cudaErrorInvalidDeviceFunction", "98"): (
        "The function is no kernel of this program, or was not compiled for this GPU. Compile for its architecture (`-arch`)."
    ),
    ("CUDA_ERROR_NO_DEVICE", "cudaErrorNoDevice", "100"): (
        "No GPU of CUDA's was found: there is none, the driver is not loaded, or `CUDA_VISIBLE_DEVICES` hides them all. `orbit- "
        "lsp doctor` shows which."
    ),
    ("CUDA_ERROR_INVALID_DEVICE", "cudaErrorInvalidDevice", "101"): (
        "The number given is not that of a GPU: `CUDA_VISIBLE_DEVICES` renumbers those that the program sees, from 0."
    ),
    ("CUDA_ERROR_DEVICE_NOT_LICENSED", "cudaErrorDeviceNotLicensed", "102"): (
        "The GPU has no licence for this use (virtual GPUs)."
    ),
    ("cudaErrorSoftwareValidityNotEstablished", "103"): (
        "CUDA could not check itself when it started."
    ),
    ("cudaErrorStartupFailure", "127"): (
        "CUDA could not start."
    ),
    ("CUDA_ERROR_INVALID_IMAGE", "cudaErrorInvalidKernelImage", "200"): (
        "What was to be loaded as a kernel's code is no code of CUDA's, or is damaged."
    ),
    ("CUDA_ERROR_INVALID_CONTEXT", "cudaErrorDeviceUninitialized", "201"): (
        "No context of CUDA's is current, or it was destroyed, usually after an earlier error or in another thread."
    ),
    ("CUDA_ERROR_CONTEXT_ALREADY_CURRENT", "202"): (
        "Deprecated; today's CUDA does not report it."
    ),
    ("CUDA_ERROR_MAP_FAILED", "cudaErrorMapBufferObjectFailed", "205"): (
        "A graphics resource could not be mapped."
    ),
    ("CUDA_ERROR_UNMAP_FAILED", "cudaErrorUnmapBufferObjectFailed", "206"): (
        "A graphics resource could not be unmapped."
    ),
    ("CUDA_ERROR_ARRAY_IS_MAPPED", "cudaErrorArrayIsMapped", "207"): (
        "The array is mapped, so it cannot be destroyed."
    ),
    ("CUDA_ERROR_ALREADY_MAPPED", "cudaErrorAlreadyMapped", "208"): (
        "The resource is mapped already."
    ),
    ("CUDA_ERROR_NO_BINARY_FOR_GPU", "cudaErrorNoKernelImageForDevice", "209"): (
        "The program has no code for this GPU. Compile for its architecture (`-arch=native`, or a `-gencode` for it), or with a "
        "torch that supports it."
    ),
    ("CUDA_ERROR_ALREADY_ACQUIRED", "cudaErrorAlreadyAcquired", "210"): (
        "The resource was acquired already."
    ),
    ("CUDA_ERROR_NOT_MAPPED", "cudaErrorNotMapped", "211"): (
        "The resource is not mapped."
    ),
    ("CUDA_ERROR_NOT_MAPPED_AS_ARRAY", "cudaErrorNotMappedAsArray", "212"): (
        "The resource is not mapped as an array."
    ),
    ("CUDA_ERROR_NOT_MAPPED_AS_POINTER", "cudaErrorNotMappedAsPointer", "213"): (
        "The resource is not mapped as a pointer."
    ),
    ("CUDA_ERROR_ECC_UNCORRECTABLE", "cudaErrorECCUncorrectable", "214"): (
        "The GPU's memory had an error that it could not correct. The code is not at fault: reset the GPU, or use another."
    ),
    ("CUDA_ERROR_UNSUPPORTED_LIMIT", "cudaErrorUnsupportedLimit", "215"): (
        "This GPU does not have the limit that `cudaDeviceSetLimit` was given."
    ),
    ("CUDA_ERROR_CONTEXT_ALREADY_IN_USE", "cudaErrorDeviceAlreadyInUse", "216"): (
        "The context is in use by another thread."
    ),
    ("CUDA_ERROR_PEER_ACCESS_UNSUPPORTED", "cudaErrorPeerAccessUnsupported", "217"): (
        "The two GPUs cannot read each other's memory."
    ),
    ("CUDA_ERROR_INVALID_PTX", "cudaErrorInvalidPtx", "218"): (
        "PTX that was to be compiled when the program started has an error. The log of the compilation names it."
    ),
    ("CUDA_ERROR_INVALID_GRAPHICS_CONTEXT", "cudaErrorInvalidGraphicsContext", "219"): (
        "The context of OpenGL or DirectX is not valid."
    ),
    ("CUDA_ERROR_NVLINK_UNCORRECTABLE", "cudaErrorNvlinkUncorrectable", "220"): (
        "A connection between GPUs (NVLink) had an error that could not be corrected. The code is not at fault."
    ),
    ("CUDA_ERROR_JIT_COMPILER_NOT_FOUND", "cudaErrorJitCompilerNotFound", "221"): (
        "The library that compiles PTX (`libnvidia-ptxjitcompiler.so`) was not found: it is part of the driver, and containers "
        "may lack it."
    ),
    ("CUDA_ERROR_UNSUPPORTED_PTX_VERSION", "cudaErrorUnsupportedPtxVersion", "222"): (
        "The PTX was made by a newer toolkit than the driver knows. Update the driver, or build machine code for this GPU "
        "(`-arch=native`)."
    ),
    ("CUDA_ERROR_JIT_COMPILATION_DISABLED", "cudaErrorJitCompilationDisabled", "223"): (
        "PTX was to be compiled, and `CUDA_DISABLE_PTX_JIT` or the driver forbids it."
    ),
    ("CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY", "cudaErrorUnsupportedExecAffinity", "224"): (
        "This GPU cannot reserve a part of its multiprocessors for a context."
    ),
    ("CUDA_ERROR_UNSUPPORTED_DEVSIDE_SYNC", "cudaErrorUnsupportedDevSideSync", "225"): (
        "A kernel calls `cudaDeviceSynchronize`, which CUDA no longer has in device code."
    ),
    ("CUDA_ERROR_CONTAINED", "cudaErrorContained", "226"): (
        "Another process of the same MPS server failed, and this one was spared."
    ),
    ("CUDA_ERROR_INVALID_SOURCE", "cudaErrorInvalidSource", "300"): (
        "The source or the options of a compilation while the program ran are not valid."
    ),
    ("CUDA_ERROR_FILE_NOT_FOUND", "cudaErrorFileNotFound", "301"): (
        "A file that was to be loaded does not exist."
    ),
    ("CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND", "cudaErrorSharedObjectSymbolNotFound", "302"): (
        "A shared library lacks a name that CUDA needs: the versions of the driver and of the library differ."
    ),
    ("CUDA_ERROR_SHARED_OBJECT_INIT_FAILED", "cudaErrorSharedObjectInitFailed", "303"): (
        "A shared library that CUDA needs could not be loaded."
    ),
    ("CUDA_ERROR_OPERATING_SYSTEM", "cudaErrorOperatingSystem", "304"): (
        "A call of the operating system failed: often a limit on memory or open files, or a container without the devices."
    ),
    ("CUDA_ERROR_INVALID_HANDLE", "cudaErrorInvalidResourceHandle", "400"): (
        "A stream, event, function or graph is not valid: it was destroyed, belongs to another GPU, or was never made."
    ),
    ("CUDA_ERROR_ILLEGAL_STATE", "cudaErrorIllegalState", "401"): (
        "Something is not in a state in which the call is permitted."
    ),
    ("CUDA_ERROR_LOSSY_QUERY", "cudaErrorLossyQuery", "402"): (
        "A query would lose information, because an answer does not fit into the older form."
    ),
    ("CUDA_ERROR_NOT_FOUND", "cudaErrorSymbolNotFound", "500"): (
        'A name was not found: a kernel or variable of a module (is it mangled? `extern "C"` keeps it), or a function of the '
        "driver."
    ),
    ("CUDA_ERROR_NOT_READY", "cudaErrorNotReady", "600"): (
        "What was asked about is not done yet; this is an answer, no failure."
    ),
    ("CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", "cudaErrorLaunchOutOfResources", "701"): (
        "The launch needs more than there is: registers times threads exceed a multiprocessor's, or there is no memory for the "
        "threads' local memory. Launch smaller blocks, or limit registers by `__launch_bounds__`. A thread has at most 512 KiB "
        "of local memory."
    ),
    ("CUDA_ERROR_LAUNCH_TIMEOUT", "cudaErrorLaunchTimeout", "702"): (
        "The kernel ran longer than the system permits on a GPU that draws a screen (Windows: 2 s). Use smaller launches, or a "
        "GPU without a screen."
    ),
    ("CUDA_ERROR_LAUNCH_INCOMPATIBLE_TEXTURING", "cudaErrorLaunchIncompatibleTexturing", "703"): (
        "The launch uses textures in a way that the kernel was not compiled for."
    ),
    ("CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED", "cudaErrorPeerAccessAlreadyEnabled", "704"): (
        "The two GPUs can read each other's memory already."
    ),
    ("CUDA_ERROR_PEER_ACCESS_NOT_ENABLED", "cudaErrorPeerAccessNotEnabled", "705"): (
        "One GPU was to read the memory of another, and `cudaDeviceEnablePeerAccess` was not called."
    ),
    ("CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE", "cudaErrorSetOnActiveProcess", "708"): (
        "A setting of the GPU was changed after the program had begun to use it."
    ),
    ("CUDA_ERROR_CONTEXT_IS_DESTROYED", "cudaErrorContextIsDestroyed", "709"): (
        "The current context was destroyed."
    ),
    ("CUDA_ERROR_TOO_MANY_PEERS", "cudaErrorTooManyPeers", "711"): (
        "More GPUs were to read each other's memory than the system permits."
    ),
    ("CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED", "cudaErrorHostMemoryAlreadyRegistered", "712"): (
        "The host's memory is registered already."
    ),
    ("CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED", "cudaErrorHostMemoryNotRegistered", "713"): (
        "The host's memory is not registered."
    ),
    ("CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE", "cudaErrorCooperativeLaunchTooLarge", "720"): (
        "A cooperative launch has more blocks than fit on the GPU at the same time. Ask "
        "`cudaOccupancyMaxActiveBlocksPerMultiprocessor` how many do."
    ),
    ("CUDA_ERROR_TENSOR_MEMORY_LEAK", "cudaErrorTensorMemoryLeak", "721"): (
        "A kernel ended without freeing its tensor memory (`tcgen05.dealloc`)."
    ),
    ("CUDA_ERROR_NOT_PERMITTED", "cudaErrorNotPermitted", "800"): (
        "The call is not permitted: often the GPU's performance counters (see `ERR_NVGPUCTRPERM`), or a call in a callback."
    ),
    ("CUDA_ERROR_NOT_SUPPORTED", "cudaErrorNotSupported", "801"): (
        "This GPU, driver or system cannot do what was asked."
    ),
    ("CUDA_ERROR_SYSTEM_NOT_READY", "cudaErrorSystemNotReady", "802"): (
        "The machine is not ready: on systems with NVSwitch the service `nvidia-fabricmanager` has to run."
    ),
    ("CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", "cudaErrorSystemDriverMismatch", "803"): (
        "The versions of the driver in the kernel and of its libraries differ: restart the machine after an update."
    ),
    ("CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE", "cudaErrorCompatNotSupportedOnDevice", "804"): (
        "The forward compatibility package does not support this GPU: it is for data centre GPUs."
    ),
    ("CUDA_ERROR_MPS_CONNECTION_FAILED", "cudaErrorMpsConnectionFailed", "805"): (
        "The MPS server could not be reached."
    ),
    ("CUDA_ERROR_MPS_RPC_FAILURE", "cudaErrorMpsRpcFailure", "806"): (
        "The MPS server failed in a call."
    ),
    ("CUDA_ERROR_MPS_SERVER_NOT_READY", "cudaErrorMpsServerNotReady", "807"): (
        "The MPS server is not ready for new programs."
    ),
    ("CUDA_ERROR_MPS_MAX_CLIENTS_REACHED", "cudaErrorMpsMaxClientsReached", "808"): (
        "The MPS server has as many programs as it takes."
    ),
    ("CUDA_ERROR_MPS_MAX_CONNECTIONS_REACHED", "cudaErrorMpsMaxConnectionsReached", "809"): (
        "The MPS server has as many connections as it takes."
    ),
    ("CUDA_ERROR_MPS_CLIENT_TERMINATED", "cudaErrorMpsClientTerminated", "810"): (
        "The MPS server ended this program."
    ),
    ("CUDA_ERROR_CDP_NOT_SUPPORTED", "cudaErrorCdpNotSupported", "811"): (
        "This GPU cannot launch kernels from kernels."
    ),
    ("CUDA_ERROR_CDP_VERSION_MISMATCH", "cudaErrorCdpVersionMismatch", "812"): (
        "The device runtime and the driver differ in how kernels launch kernels: build and link with one toolkit."
    ),
    ("CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", "cudaErrorStreamCaptureUnsupported", "900"): (
        "The call is not permitted while a stream is being captured into a graph: an allocation, a synchronisation, a copy from "
        "pageable memory."
    ),
    ("CUDA_ERROR_STREAM_CAPTURE_INVALIDATED", "cudaErrorStreamCaptureInvalidated", "901"): (
        "The capture of a stream failed earlier, so the graph is not valid."
    ),
    ("CUDA_ERROR_STREAM_CAPTURE_MERGE", "cudaErrorStreamCaptureMerge", "902"): (
        "Two captures of streams would have been merged."
    ),
    ("CUDA_ERROR_STREAM_CAPTURE_UNMATCHED", "cudaErrorStreamCaptureUnmatched", "903"): (
        "The capture was not begun in this stream."
    ),
    ("CUDA_ERROR_STREAM_CAPTURE_UNJOINED", "cudaErrorStreamCaptureUnjoined", "904"): (
        "The capture has forked streams that were not joined again."
    ),
    ("CUDA_ERROR_STREAM_CAPTURE_ISOLATION", "cudaErrorStreamCaptureIsolation", "905"): (
        "The call would make a capture depend on work that is not captured."
    ),
    ("CUDA_ERROR_STREAM_CAPTURE_IMPLICIT", "cudaErrorStreamCaptureImplicit", "906"): (
        "The default stream was to wait for a stream that is being captured; use streams of your own (`cudaStreamNonBlocking`)."
    ),
    ("CUDA_ERROR_CAPTURED_EVENT", "cudaErrorCapturedEvent", "907"): (
        "The event was recorded in a stream that is being captured, so it cannot be asked."
    ),
    ("CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD", "cudaErrorStreamCaptureWrongThread", "908"): (
        "The capture was begun by another thread."
    ),
    ("CUDA_ERROR_TIMEOUT", "cudaErrorTimeout", "909"): (
        "The wait took too long."
    ),
    ("CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE", "cudaErrorGraphExecUpdateFailure", "910"): (
        "The new graph differs too much from the one that was to be updated; instantiate it anew."
    ),
    ("CUDA_ERROR_EXTERNAL_DEVICE", "cudaErrorExternalDevice", "911"): (
        "Another device that the GPU waits for (on the network, or a GPU of another machine) was lost."
    ),
    ("CUDA_ERROR_INVALID_CLUSTER_SIZE", "cudaErrorInvalidClusterSize", "912"): (
        "A cluster of this size does not fit: more than 8 blocks need `cudaFuncAttributeNonPortableClusterSizeAllowed`, and "
        "shared memory and registers limit it too."
    ),
    ("CUDA_ERROR_FUNCTION_NOT_LOADED", "cudaErrorFunctionNotLoaded", "913"): (
        "The function was not loaded (lazy loading)."
    ),
    ("CUDA_ERROR_INVALID_RESOURCE_TYPE", "cudaErrorInvalidResourceType", "914"): (
        "The kind of resource is not valid."
    ),
    ("CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION", "cudaErrorInvalidResourceConfiguration", "915"): (
        "The description of a resource is not valid."
    ),
    ("CUDA_ERROR_KEY_ROTATION", "916"): (
        "The keys of confidential computing are being renewed."
    ),
    ("CUDA_ERROR_UNKNOWN", "cudaErrorUnknown", "999"): (
        "The driver failed without saying how. The log of the system (`dmesg`, lines with `Xid`) may."
    ),
}  # fmt: skip
"""By their names: the driver's, the words that messages use, the runtime's, the number."""
