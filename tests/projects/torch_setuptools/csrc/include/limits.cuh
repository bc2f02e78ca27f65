#pragma once
__device__ constexpr float most = RELU_MAX;
