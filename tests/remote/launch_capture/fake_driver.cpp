// A CUDA driver whose GPU is the host's memory: as much of it as a capture asks.
#include "fake_driver.h"

#include <cuda.h>

#include <cstdlib>
#include <cstring>
#include <map>

FakeDriver fake;

namespace {

std::map<CUdeviceptr, size_t> allocations;

std::map<CUdeviceptr, size_t>::iterator around(CUdeviceptr address) {
  auto next = allocations.upper_bound(address);
  if (next == allocations.begin()) return allocations.end();
  --next;
  return address < next->first + next->second ? next : allocations.end();
}

CUresult parameter(size_t at, size_t* offset, size_t* size) {
  constexpr size_t kLayout[][2] = {{0, 4}, {4, 4}, {8, 8}, {16, 8}};
  if (at >= 4) return CUDA_ERROR_INVALID_VALUE;
  *offset = kLayout[at][0];
  *size = kLayout[at][1];
  return CUDA_SUCCESS;
}

}  // namespace

CUdeviceptr fake_allocation(size_t size) {
  const auto address = reinterpret_cast<CUdeviceptr>(malloc(size));
  allocations[address] = size;
  return address;
}

extern "C" {
CUresult cuStreamIsCapturing(CUstream, CUstreamCaptureStatus* status) {
  ++fake.asked;
  *status = fake.capturing ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
  return CUDA_SUCCESS;
}
CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode*) { return CUDA_SUCCESS; }
CUresult cuPointerGetAttribute(void* data, CUpointer_attribute attribute, CUdeviceptr address) {
  ++fake.asked;
  if (around(address) == allocations.end()) return CUDA_ERROR_INVALID_VALUE;
  unsigned& value = *static_cast<unsigned*>(data) = 0;  // not managed
  if (attribute == CU_POINTER_ATTRIBUTE_MEMORY_TYPE) value = CU_MEMORYTYPE_DEVICE;
  if (attribute == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL) value = fake.device_of_memory;
  return CUDA_SUCCESS;
}
CUresult cuMemGetAddressRange_v2(CUdeviceptr* base, size_t* size, CUdeviceptr address) {
  const auto found = around(address);
  if (found == allocations.end()) return CUDA_ERROR_NOT_FOUND;
  *base = found->first;
  *size = found->second;
  return CUDA_SUCCESS;
}
CUresult cuMemAllocAsync(CUdeviceptr* address, size_t size, CUstream stream) {
  fake.stream = stream;
  *address = reinterpret_cast<CUdeviceptr>(malloc(size));
  ++fake.copies_alive;
  return CUDA_SUCCESS;
}
CUresult cuMemFreeAsync(CUdeviceptr address, CUstream) {
  free(reinterpret_cast<void*>(address));
  --fake.copies_alive;
  return CUDA_SUCCESS;
}
CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t size, CUstream stream) {
  fake.stream = stream;
  memcpy(reinterpret_cast<void*>(to), reinterpret_cast<void*>(from), size);
  return CUDA_SUCCESS;
}
CUresult cuMemcpyDtoHAsync_v2(void* to, CUdeviceptr from, size_t size, CUstream) {
  memcpy(to, reinterpret_cast<void*>(from), size);
  return CUDA_SUCCESS;
}
CUresult cuStreamCreate(CUstream*, unsigned) { return CUDA_SUCCESS; }
CUresult cuStreamSynchronize(CUstream) { return CUDA_SUCCESS; }
CUresult cuStreamDestroy_v2(CUstream) { return CUDA_SUCCESS; }
CUresult cuEventCreate(CUevent*, unsigned) { return CUDA_SUCCESS; }
CUresult cuEventRecord(CUevent, CUstream) { return CUDA_SUCCESS; }
CUresult cuEventQuery(CUevent) { return static_cast<CUresult>(fake.event); }
CUresult cuCtxGetCurrent(CUcontext*) { return CUDA_SUCCESS; }
CUresult cuCtxPushCurrent_v2(CUcontext) { return CUDA_SUCCESS; }
CUresult cuCtxPopCurrent_v2(CUcontext*) { return CUDA_SUCCESS; }
CUresult cuCtxGetDevice(CUdevice* device) { return *device = 0, CUDA_SUCCESS; }
CUresult cuModuleGetGlobal_v2(CUdeviceptr* address, size_t* size, CUmodule, const char* name) {
  if (strcmp(name, "_ZL4coef") != 0) return CUDA_ERROR_NOT_FOUND;
  static const float coef[] = {0.5f, 3.0f};
  *address = reinterpret_cast<CUdeviceptr>(coef);
  *size = sizeof coef;
  return CUDA_SUCCESS;
}
CUresult cuFuncGetModule(CUmodule*, CUfunction) { return CUDA_SUCCESS; }
CUresult cuFuncGetParamInfo(CUfunction, size_t at, size_t* offset, size_t* size) {
  ++fake.asked;
  return fake.is_kernel ? CUDA_ERROR_INVALID_HANDLE : parameter(at, offset, size);
}
CUresult cuKernelGetParamInfo(CUkernel, size_t at, size_t* offset, size_t* size) { return parameter(at, offset, size); }
}
