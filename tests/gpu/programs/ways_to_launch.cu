// One kernel launched in many ways, named by the first argument. Prints what its memory has at the end: of a launch that was
// made again and not undone, another number.
#include <cooperative_groups.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

__device__ unsigned of_module;
static __device__ int hidden[3];

__global__ void k(unsigned* count, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] += 1.0f;
  if (threadIdx.x == 0) atomicAdd(count, 1u), atomicAdd(&of_module, 1u), atomicAdd(hidden + 1, 2);
}
__global__ void together(unsigned* count, float* y, int n) {
  auto grid = cooperative_groups::this_grid();
  for (int i = grid.thread_rank(); i < n; i += grid.size()) y[i] += 1.0f;
  grid.sync();
  if (grid.thread_rank() == 0) atomicAdd(count, 1u);
}
__global__ void __cluster_dims__(2, 1, 1) clustered(unsigned* count, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] += 1.0f;
  cooperative_groups::this_cluster().sync();
  if (threadIdx.x == 0) atomicAdd(count, 1u);
}
__global__ void surface(cudaSurfaceObject_t s, float* y) {
  float v;
  surf2Dread(&v, s, threadIdx.x * 4, 0);
  surf2Dwrite(v + 1.0f, s, threadIdx.x * 4, 0);
  y[threadIdx.x] = v;
}

#define CHECK(call) \
  if (cudaError_t error = (call)) printf("%s: %s\n", #call, cudaGetErrorString(error)), exit(3)

int main(int, char** words) {
  const std::string way = words[1];
  const int n = 1 << 20;
  float* y;
  unsigned *count, *at = nullptr;
  if (way == "managed") {
    CHECK(cudaMallocManaged(&y, n * 4));
    CHECK(cudaMallocManaged(&count, 4));
  } else if (way == "async") {
    CHECK(cudaMallocAsync(&y, n * 4, 0));
    CHECK(cudaMallocAsync(&count, 4, 0));
  } else {
    CHECK(cudaMalloc(&y, n * 4));
    CHECK(cudaMalloc(&count, 4));
  }
  if (way == "nothing") return 0;
  CHECK(cudaMemset(y, 0, n * 4));
  CHECK(cudaMemset(count, 0, 4));
  if (way == "pinned") {
    CHECK(cudaMallocHost(&at, 4));
    *at = 0;
  }
  unsigned* c = at ? at : count;
  if (way == "stream") {
    cudaStream_t stream;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK(cudaDeviceSynchronize());
    for (int i = 0; i < 10; ++i) k<<<1024, 256, 0, stream>>>(c, y, n);
  } else if (way == "threads") {
    std::vector<std::thread> all;
    for (int t = 0; t < 3; ++t) {
      all.emplace_back([=] {
        for (int i = 0; i < 20; ++i) k<<<256 + t, 256>>>(c, y, n);
      });
    }
    for (auto& each : all) each.join();
  } else if (way == "cooperative") {
    void* given[] = {&c, &y, (void*)&n};
    CHECK(cudaLaunchCooperativeKernel((void*)together, 132, 256, given));
  } else if (way == "cluster") {
    clustered<<<1024, 256>>>(c, y, n);
  } else if (way == "cluster of a launch") {
    cudaLaunchConfig_t config = {};
    cudaLaunchAttribute attribute[1] = {};
    config.gridDim = 1024;
    config.blockDim = 256;
    attribute[0].id = cudaLaunchAttributeClusterDimension;
    attribute[0].val.clusterDim = {4, 1, 1};
    config.attrs = attribute;
    config.numAttrs = 1;
    CHECK(cudaLaunchKernelEx(&config, k, c, y, n));
  } else if (way == "graph") {
    cudaStream_t stream;
    cudaGraph_t graph;
    cudaGraphExec_t made;
    CHECK(cudaStreamCreate(&stream));
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    k<<<1024, 256, 0, stream>>>(c, y, n);
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaGraphInstantiate(&made, graph, 0));
    CHECK(cudaGraphLaunch(made, stream));
  } else if (way == "surface") {
    cudaArray_t array;
    cudaChannelFormatDesc format = cudaCreateChannelDesc<float>();
    cudaResourceDesc resource = {};
    cudaSurfaceObject_t made;
    std::vector<float> zero(64 * 64);
    CHECK(cudaMallocArray(&array, &format, 64, 64, cudaArraySurfaceLoadStore));
    CHECK(cudaMemcpy2DToArray(array, 0, 0, zero.data(), 256, 256, 64, cudaMemcpyHostToDevice));
    resource.resType = cudaResourceTypeArray;
    resource.res.array.array = array;
    CHECK(cudaCreateSurfaceObject(&made, &resource));
    for (int i = 0; i < 2; ++i) surface<<<1, 64>>>(made, y);
  } else if (way == "refused") {
    k<<<1024, 2048>>>(c, y, n);
    printf("%s\n", cudaGetErrorString(cudaGetLastError()));
  } else if (way == "illegal address") {
    k<<<1024, 256>>>((unsigned*)8, y, n);
  } else {
    k<<<1024, 256>>>(c, y, n);
  }
  CHECK(cudaDeviceSynchronize());
  unsigned counted, variable;
  int other[3];
  std::vector<float> values(n);
  CHECK(cudaMemcpy(&counted, c, 4, cudaMemcpyDefault));
  CHECK(cudaMemcpyFromSymbol(&variable, of_module, 4));
  CHECK(cudaMemcpyFromSymbol(other, hidden, 12));
  CHECK(cudaMemcpy(values.data(), y, n * 4, cudaMemcpyDefault));
  double sum = 0;
  for (float value : values) sum += value;
  printf("%s: count %u, variables %u and %d, sum %.0f\n", way.c_str(), counted, variable, other[1], sum);
  return 0;
}
