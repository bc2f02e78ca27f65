// main.cu includes it, and defines byte_t before:
// it has no meaning alone.
__global__ void fill(byte_t *p, byte_t v) { p[threadIdx.x] = v; }
