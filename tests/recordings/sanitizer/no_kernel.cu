// CUDA is asked nothing at all
__global__ void k() {}

int main() { return 0; }
