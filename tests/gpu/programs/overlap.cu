// Programs whose kernels wait for each other, or are all in one stream. Exit code 0: what waited was released in time.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <cuda_runtime.h>

#define CHECK(call)                                                                              \
  do {                                                                                           \
    const cudaError_t error = (call);                                                            \
    if (error != cudaSuccess) { fprintf(stderr, "%s: %s\n", #call, cudaGetErrorString(error)); exit(9); } \
  } while (0)

__device__ unsigned long long now() {
  unsigned long long t;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(t));
  return t;
}

// for two seconds at most
__global__ void waits(volatile int* flag, int* seen) {
  const unsigned long long begin = now();
  while (*flag == 0 && now() - begin < 2000000000ull) {}
  *seen = *flag;
}
__global__ void releases(volatile int* flag) { *flag = 1; }
__global__ void work(int* seen) { seen[1] = 1; }

// begins before the kernel ahead of it has ended
__global__ void early(int* seen) { cudaGridDependencySynchronize(); seen[1] = 1; }

int main(int, char** argv) {
  const char* how = argv[1];
  int *flag, *seen;
  CHECK(cudaMalloc(&flag, 4)); CHECK(cudaMemset(flag, 0, 4)); CHECK(cudaMallocHost(&seen, 8));
  seen[0] = -1;
  cudaStream_t a = nullptr, b = nullptr;
  const auto both = [&] {
    waits<<<1, 1, 0, a>>>(flag, seen);
    releases<<<1, 1, 0, b>>>(flag);
  };
  if (strcmp(how, "two_streams") == 0) {
    CHECK(cudaStreamCreate(&a)); CHECK(cudaStreamCreate(&b));
    both();
  } else if (strcmp(how, "beside_the_default_stream") == 0) {
    CHECK(cudaStreamCreateWithFlags(&b, cudaStreamNonBlocking));
    both();
  } else if (strcmp(how, "priorities") == 0) {
    CHECK(cudaStreamCreateWithPriority(&a, cudaStreamDefault, 0)); CHECK(cudaStreamCreateWithPriority(&b, cudaStreamDefault, -1));
    both();
  } else if (strcmp(how, "graph") == 0) {
    cudaGraph_t graph;
    cudaGraphExec_t ready;
    cudaGraphNode_t first, second;
    CHECK(cudaGraphCreate(&graph, 0));
    void* waiting[] = {&flag, &seen};
    void* releasing[] = {&flag};
    cudaKernelNodeParams node{};
    node.gridDim = node.blockDim = dim3(1);
    node.func = reinterpret_cast<void*>(waits), node.kernelParams = waiting;
    CHECK(cudaGraphAddKernelNode(&first, graph, nullptr, 0, &node));
    node.func = reinterpret_cast<void*>(releases), node.kernelParams = releasing;
    CHECK(cudaGraphAddKernelNode(&second, graph, nullptr, 0, &node));
    CHECK(cudaGraphInstantiate(&ready, graph, 0));
    CHECK(cudaGraphLaunch(ready, nullptr));
  } else if (strcmp(how, "per_thread") == 0) {
    waits<<<1, 1, 0, cudaStreamPerThread>>>(flag, seen);
    std::thread([&] { releases<<<1, 1, 0, cudaStreamPerThread>>>(flag); CHECK(cudaStreamSynchronize(cudaStreamPerThread)); }).join();
    CHECK(cudaStreamSynchronize(cudaStreamPerThread));
  } else if (strcmp(how, "early") == 0) {
    seen[0] = 1;
    work<<<1, 1>>>(seen);
    cudaLaunchAttribute attribute{};
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config{};
    config.gridDim = config.blockDim = dim3(1);
    config.attrs = &attribute, config.numAttrs = 1;
    CHECK(cudaLaunchKernelEx(&config, early, seen));
  } else if (strcmp(how, "host") == 0) {  // one stream; the host releases it
    volatile int* mapped;
    CHECK(cudaMallocHost(const_cast<int**>(&mapped), 4));
    *mapped = 0;
    waits<<<1, 1>>>(mapped, seen);
    *mapped = 1;
  } else {  // one stream
    seen[0] = 1;
    if (strcmp(how, "one_stream") == 0) { CHECK(cudaStreamCreate(&a)); }
    for (int k = 0; k < 10; ++k) work<<<1, 1, 0, a>>>(seen);
  }
  CHECK(cudaDeviceSynchronize());
  return seen[0] == 1 ? 0 : 3;
}
