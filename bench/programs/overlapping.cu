// Programs whose kernels overlap: prints the milliseconds from the first launch to the end of the last, without start-up.
#include <chrono>
#include <cstdio>
#include <cstring>
#include <cuda_runtime.h>

__device__ unsigned long long now() {
  unsigned long long t;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(t));
  return t;
}

__global__ void spin(unsigned ns) {
  for (const unsigned long long begin = now(); now() - begin < ns;) {}
}

// lets the next kernel begin at once, and waits for the one ahead only at its end
__global__ void early(unsigned ns) {
  cudaTriggerProgrammaticLaunchCompletion();
  for (const unsigned long long begin = now(); now() - begin < ns;) {}
  cudaGridDependencySynchronize();
}

constexpr unsigned kNs = 100000;
constexpr int kLaunches = 4000;

int main(int, char** argv) {
  const char* how = argv[1];
  cudaStream_t a, b;
  cudaStreamCreate(&a);
  cudaStreamCreate(&b);
  cudaEvent_t fork, join;
  cudaEventCreateWithFlags(&fork, cudaEventDisableTiming);
  cudaEventCreateWithFlags(&join, cudaEventDisableTiming);
  cudaGraph_t graph;
  cudaGraphExec_t ready = nullptr;
  if (strcmp(how, "graph") == 0) {
    cudaStreamBeginCapture(a, cudaStreamCaptureModeGlobal);
    cudaEventRecord(fork, a);
    cudaStreamWaitEvent(b, fork);
    for (int i = 0; i < 10; ++i) spin<<<1, 32, 0, a>>>(kNs), spin<<<1, 32, 0, b>>>(kNs);
    cudaEventRecord(join, b);
    cudaStreamWaitEvent(a, join);
    cudaStreamEndCapture(a, &graph);
    cudaGraphInstantiate(&ready, graph, 0);
  }
  spin<<<1, 32, 0, a>>>(1000);
  early<<<1, 32, 0, a>>>(1000);
  cudaDeviceSynchronize();
  const auto began = std::chrono::steady_clock::now();
  if (ready) {
    for (int i = 0; i < kLaunches / 20; ++i) cudaGraphLaunch(ready, a);
  } else if (strcmp(how, "streams") == 0) {
    for (int i = 0; i < kLaunches; ++i) spin<<<1, 32, 0, i % 2 ? a : b>>>(kNs);
  } else {
    cudaLaunchAttribute attribute{};
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config{};
    config.gridDim = 1, config.blockDim = 32, config.stream = a, config.attrs = &attribute, config.numAttrs = 1;
    for (int i = 0; i < kLaunches; ++i) cudaLaunchKernelEx(&config, early, kNs);
  }
  const bool failed = cudaDeviceSynchronize() != cudaSuccess;
  printf("%.3f\n", std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - began).count());
  return failed;
}
