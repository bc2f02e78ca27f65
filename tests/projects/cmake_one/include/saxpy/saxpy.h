#pragma once
__global__ void saxpy(int n, float a, const float* x, float* y);
