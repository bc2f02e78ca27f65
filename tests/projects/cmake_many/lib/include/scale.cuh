#pragma once
__device__ inline float factor() { return 2.0f; }
