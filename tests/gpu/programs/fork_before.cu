// a child forked before CUDA begins launches 2, the parent 3
#include "common.cuh"
#include <sys/wait.h>
#include <unistd.h>

int main() {
  pid_t child = fork();
  launch(buffer(), child == 0 ? 2 : 3);
  if (cudaDeviceSynchronize() != cudaSuccess) return 1;
  if (child == 0) exit(0);
  int status = 0;
  waitpid(child, &status, 0);
  printf("child left with %d\n", WEXITSTATUS(status));
}
