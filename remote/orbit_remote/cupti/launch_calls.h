// A kernel launch as the driver is asked for it: one form for its six functions. Whoever looks into launches - to count one, to take
// one - gets it from the recorder's callbacks, because CUPTI serves one client a process.
#pragma once

#include <cupti.h>

namespace orbit {

struct LaunchCall {
  const char* symbol = nullptr;  // mangled
  CUfunction function = nullptr;
  CUstream stream = nullptr;  // CU_STREAM_PER_THREAD where the program's default stream is one per thread
  unsigned grid[3] = {}, block[3] = {}, shared = 0;
  void** parameters = nullptr;  // an address for each, or null where `extra` has one buffer for all
  void** extra = nullptr;
  const CUlaunchConfig* config = nullptr;  // with attributes; null for the plain functions
  bool cooperative = false;
};

template <typename P>
void read_plain(const P& p, LaunchCall& call) {
  call.function = p.f;
  call.stream = p.hStream;
  const unsigned grid[] = {p.gridDimX, p.gridDimY, p.gridDimZ}, block[] = {p.blockDimX, p.blockDimY, p.blockDimZ};
  for (int i = 0; i < 3; ++i) call.grid[i] = grid[i], call.block[i] = block[i];
  call.shared = p.sharedMemBytes;
  call.parameters = p.kernelParams;
}

inline void read_config(const cuLaunchKernelEx_params& p, LaunchCall& call) {
  const CUlaunchConfig& c = *p.config;
  call.config = p.config;
  call.function = p.f;
  call.stream = c.hStream;
  const unsigned grid[] = {c.gridDimX, c.gridDimY, c.gridDimZ}, block[] = {c.blockDimX, c.blockDimY, c.blockDimZ};
  for (int i = 0; i < 3; ++i) call.grid[i] = grid[i], call.block[i] = block[i];
  call.shared = c.sharedMemBytes;
  call.parameters = p.kernelParams;
  call.extra = p.extra;
  for (unsigned i = 0; i < c.numAttrs; ++i) {
    if (c.attrs[i].id == CU_LAUNCH_ATTRIBUTE_COOPERATIVE) call.cooperative = c.attrs[i].value.cooperative != 0;
  }
}

// Whether a call of the driver is a launch of one kernel; `call` is then filled in. `parameters` are those of CUPTI's callback.
inline bool read_launch(CUpti_CallbackId id, const void* parameters, const char* symbol, LaunchCall& call) {
  bool per_thread = false;
  call.symbol = symbol == nullptr ? "" : symbol;
  switch (id) {
    case CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel_ptsz:
      per_thread = true;
      [[fallthrough]];
    case CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel:
      read_plain(*static_cast<const cuLaunchKernel_params*>(parameters), call);
      call.extra = static_cast<const cuLaunchKernel_params*>(parameters)->extra;
      break;
    case CUPTI_DRIVER_TRACE_CBID_cuLaunchCooperativeKernel_ptsz:
      per_thread = true;
      [[fallthrough]];
    case CUPTI_DRIVER_TRACE_CBID_cuLaunchCooperativeKernel:
      read_plain(*static_cast<const cuLaunchCooperativeKernel_params*>(parameters), call);
      call.cooperative = true;
      break;
    case CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx_ptsz:
      per_thread = true;
      [[fallthrough]];
    case CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx: {
      const auto& p = *static_cast<const cuLaunchKernelEx_params*>(parameters);
      if (p.config == nullptr) return false;
      read_config(p, call);
      break;
    }
    default:
      return false;
  }
  if (per_thread && call.stream == nullptr) call.stream = CU_STREAM_PER_THREAD;
  return true;
}

}  // namespace orbit
