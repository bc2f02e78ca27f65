#pragma once
struct span { float* to; const float* from; };
