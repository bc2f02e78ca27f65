// four host threads, 50 launches each, on streams of their own
#include "common.cuh"
#include <thread>
#include <vector>

int main() {
  float* data = buffer();
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([data] {
      cudaStream_t stream;
      cudaStreamCreate(&stream);
      for (int i = 0; i < 50; ++i) {
        launch(data, 1, stream);
        cudaStreamSynchronize(stream);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  printf("done\n");
}
