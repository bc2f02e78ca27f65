#pragma once
__device__ inline float4 plus(float4 v, float s) { return make_float4(v.x + s, v.y + s, v.z + s, v.w + s); }
