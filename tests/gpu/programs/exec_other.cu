// 2 launches, then another CUDA program (argv[1]) as a child; this process becomes it too
#include "common.cuh"
#include <sys/wait.h>
#include <unistd.h>

int main(int argc, char** argv) {
  if (argc < 2) return 64;
  launch(buffer(), 2);
  cudaDeviceSynchronize();
  if (pid_t child = fork()) {
    waitpid(child, nullptr, 0);
    printf("child done\n");
    fflush(stdout);
  }
  execl(argv[1], argv[1], nullptr);
  return 65;
}
