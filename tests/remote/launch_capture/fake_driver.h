#pragma once

#include <cuda.h>

#include <cstddef>

// What the driver says next, and what was asked of it.
struct FakeDriver {
  bool capturing = false, is_kernel = false;
  int event = 0;
  unsigned device_of_memory = 0;
  int copies_alive = 0, asked = 0;
  CUstream stream = nullptr;
};

extern FakeDriver fake;

CUdeviceptr fake_allocation(size_t size);
