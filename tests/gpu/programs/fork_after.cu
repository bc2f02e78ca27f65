// a child forked after CUDA began must end as it would have
#include "common.cuh"
#include <sys/wait.h>
#include <unistd.h>

int main() {
  launch(buffer(), 3);
  cudaDeviceSynchronize();
  if (pid_t child = fork()) {
    int status = 0;
    waitpid(child, &status, 0);
    printf("child left with %d\n", WEXITSTATUS(status));
    return 0;
  }
  exit(7);
}
