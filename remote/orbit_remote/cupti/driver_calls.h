// The functions of the driver that a replay calls, and a launch of a program's that can be made again.
#pragma once

#include "launch_calls.h"
#include "profiler_cupti.h"

#include <cuda.h>

#include <string>

namespace orbit {

#define ORBIT_DRIVER_FUNCTIONS(X)                                                                                    \
  X(cuCtxPushCurrent, "cuCtxPushCurrent_v2") X(cuCtxPopCurrent, "cuCtxPopCurrent_v2")                                \
  X(cuCtxSynchronize, "cuCtxSynchronize") X(cuCtxGetDevice, "cuCtxGetDevice")                                        \
  X(cuDeviceGetAttribute, "cuDeviceGetAttribute") X(cuMemAlloc, "cuMemAlloc_v2") X(cuMemFree, "cuMemFree_v2")        \
  X(cuMemGetInfo, "cuMemGetInfo_v2")                                                                                 \
  X(cuMemcpyDtoDAsync, "cuMemcpyDtoDAsync_v2") X(cuFuncGetAttribute, "cuFuncGetAttribute")                           \
  X(cuKernelGetFunction, "cuKernelGetFunction") X(cuStreamIsCapturing, "cuStreamIsCapturing")                        \
  X(cuFuncGetModule, "cuFuncGetModule") X(cuModuleGetGlobal, "cuModuleGetGlobal_v2")                                 \
  X(cuLaunchKernel, "cuLaunchKernel") X(cuLaunchKernelEx, "cuLaunchKernelEx")                                        \
  X(cuLaunchCooperativeKernel, "cuLaunchCooperativeKernel")

// The driver of this process, which has loaded it.
struct Driver {
#define DECLARE(f, symbol) decltype(&::f) f = nullptr;
  ORBIT_DRIVER_FUNCTIONS(DECLARE)
#undef DECLARE
  CUresult (*load_function)(CUfunction) = nullptr;  // since CUDA 12.4

  // Throws Failed.
  void load() {
    void* library = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
    if (library == nullptr) throw Failed{"the program has no libcuda.so.1"};
#define FIND(f, symbol)                                                                    \
  if ((f = reinterpret_cast<decltype(f)>(dlsym(library, symbol))) == nullptr) throw Failed{"the driver lacks " symbol};
    ORBIT_DRIVER_FUNCTIONS(FIND)
#undef FIND
    load_function = reinterpret_cast<decltype(load_function)>(dlsym(library, "cuFuncLoad"));
  }
};

// A launch that can be made again, and what the driver says of its kernel.
class Relaunch {
 public:
  const LaunchCall& call;

  Relaunch(const Driver& driver, const LaunchCall& call) : call(call), driver_(driver) {}

  // Once more, to its end.
  CUresult again() const {
    const CUresult begun = launch();
    return begun == CUDA_SUCCESS ? driver_.cuCtxSynchronize() : begun;
  }

  // Has the kernel's code loaded, which else waits for the first launch.
  void load() const {
    of_function([&](CUfunction f) { return driver_.load_function == nullptr ? CUDA_SUCCESS : driver_.load_function(f); });
  }

  // -1 where the driver does not say.
  int attribute(CUfunction_attribute wanted) const {
    int value = -1;
    return of_function([&](CUfunction f) { return driver_.cuFuncGetAttribute(&value, wanted, f); }) ? value : -1;
  }

  // nullptr where the driver does not say.
  CUmodule module() const {
    CUmodule found = nullptr;
    return of_function([&](CUfunction f) { return driver_.cuFuncGetModule(&found, f); }) ? found : nullptr;
  }

 private:
  CUresult launch() const {
    if (call.config != nullptr) {
      CUlaunchConfig config = *call.config;
      config.hStream = call.stream;
      return driver_.cuLaunchKernelEx(&config, call.function, call.parameters, call.extra);
    }
    const unsigned *grid = call.grid, *block = call.block;
    if (call.cooperative) {
      return driver_.cuLaunchCooperativeKernel(call.function, grid[0], grid[1], grid[2], block[0], block[1], block[2], call.shared, call.stream, call.parameters);
    }
    return driver_.cuLaunchKernel(call.function, grid[0], grid[1], grid[2], block[0], block[1], block[2], call.shared, call.stream, call.parameters, call.extra);
  }

  // The runtime may launch by a handle of a kernel.
  template <typename Ask>
  bool of_function(const Ask& ask) const {
    if (ask(call.function) == CUDA_SUCCESS) return true;
    CUfunction loaded = nullptr;
    return driver_.cuKernelGetFunction(&loaded, reinterpret_cast<CUkernel>(call.function)) == CUDA_SUCCESS && ask(loaded) == CUDA_SUCCESS;
  }

  const Driver& driver_;
};

}  // namespace orbit
