// 2 launches on each of two streams, then a graph of 2 kernels launched 3 times
#include "common.cuh"

int main() {
  float* data = buffer();
  cudaStream_t streams[2];
  for (cudaStream_t& stream : streams) {
    cudaStreamCreate(&stream);
    launch(data, 2, stream);
  }
  cudaDeviceSynchronize();

  cudaGraph_t graph;
  cudaGraphExec_t ready;
  cudaStreamBeginCapture(streams[0], cudaStreamCaptureModeGlobal);
  launch(data, 2, streams[0]);
  cudaStreamEndCapture(streams[0], &graph);
  if (cudaGraphInstantiate(&ready, graph, 0) != cudaSuccess) return 1;
  for (int i = 0; i < 3; ++i) cudaGraphLaunch(ready, streams[0]);
  cudaStreamSynchronize(streams[0]);
  printf("done\n");
}
