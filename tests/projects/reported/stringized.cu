// Kernels in the arguments of macros that make strings of them, or drop them.
#define STRINGIFY(...) #__VA_ARGS__
#define XSTR(...) STRINGIFY(__VA_ARGS__)
static const char* one = STRINGIFY(
extern "C" __global__ void in_string(float* x) {
  x[0] = 1;
}
);
const char* two() { return XSTR(__global__ void in_string2(int* y) { y[0] = 2; }); }
#define UNUSED(...)
UNUSED(__global__ void dropped(float* x) { x[0] = 1; })
#define ID(...) __VA_ARGS__
ID(__global__ void kept(float* x) { x[0] = 1; })
__global__ void real(float* x) { x[0] = 1; }
