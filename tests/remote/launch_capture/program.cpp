// A program that launches saxpy some times, as CUPTI tells of it: `program CASE`. What is taken goes into ORBIT_CAPTURE.
#include "fake_driver.h"
#include "launch_capture.h"

#include <cstdio>

namespace {

struct Arguments {
  int n;
  float a;
  CUdeviceptr x, y;
};

void tell(CUpti_ApiCallbackSite site, CUpti_CallbackId id, const void* parameters, const char* symbol, int result = 0) {
  CUpti_CallbackData data{};
  data.callbackSite = site;
  data.functionParams = parameters;
  data.functionReturnValue = &result;
  data.symbolName = symbol;
  orbit::capture_watcher(CUPTI_CB_DOMAIN_DRIVER_API, id, &data);
}

void saxpy(const Arguments& given) {
  for (int i = 0; i < given.n; ++i) reinterpret_cast<float*>(given.y)[i] += given.a * reinterpret_cast<float*>(given.x)[i];
}

void launch(Arguments& given, const char* symbol, unsigned blocks, bool one_buffer, int result) {
  void* each[] = {&given.n, &given.a, &given.x, &given.y};
  size_t size = sizeof given;
  void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &given, CU_LAUNCH_PARAM_BUFFER_SIZE, &size, CU_LAUNCH_PARAM_END};
  cuLaunchKernel_params call{};
  call.gridDimX = blocks;
  call.gridDimY = call.gridDimZ = call.blockDimY = call.blockDimZ = 1;
  call.blockDimX = 128;
  call.hStream = reinterpret_cast<CUstream>(0x51);
  call.kernelParams = one_buffer ? nullptr : each;
  call.extra = one_buffer ? extra : nullptr;
  tell(CUPTI_API_ENTER, CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel, &call, symbol);
  if (result == 0) saxpy(given);
  tell(CUPTI_API_EXIT, CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel, &call, symbol, result);
}

void synchronise() { tell(CUPTI_API_EXIT, CUPTI_DRIVER_TRACE_CBID_cuCtxSynchronize, nullptr, nullptr); }

}  // namespace

int main(int, char** words) {
  const std::string what = words[1];
  Arguments given{100, 2.0f, fake_allocation(4096), fake_allocation(400)};
  for (int i = 0; i < 1024; ++i) reinterpret_cast<float*>(given.x)[i] = 1;
  for (int i = 0; i < 100; ++i) reinterpret_cast<float*>(given.y)[i] = 0;
  given.x += 4096 - 400;  // an array inside of an allocation
  fake.capturing = what == "graph";
  fake.is_kernel = what == "kernel";
  fake.device_of_memory = what == "peer";
  fake.event = what == "unready" ? CUDA_ERROR_NOT_READY : what == "fault" ? CUDA_ERROR_ILLEGAL_ADDRESS : 0;
  if (!orbit::captures_a_launch()) return 3;
  if (what == "often") {
    for (int i = 0; i < 1'000'000; ++i) launch(given, i % 2 ? "_Z5saxpyifPKfPf" : "_Z6saxpy2ifPKfPf", 1, false, 0);
    std::printf("%d\n", fake.asked);
  }
  launch(given, "_Z7saxpy_tifPKfPf", 1, false, 0);
  launch(given, "_Z5saxpyifPKfPf", 2, false, 0);
  launch(given, "_Z5saxpyifPKfPf", 1, what == "extra", what == "failed" ? 1 : 0);
  synchronise();
  if (what == "unready") {
    launch(given, "_Z5saxpyifPKfPf", 1, false, 0);  // a later one does not change what was taken
    fake.event = 0;
    synchronise();
  }
  std::fprintf(stderr, "%d copies, stream %p\n", fake.copies_alive, static_cast<void*>(fake.stream));
  return 0;
}
