// Every row sorted in place by a bitonic network in shared memory; 64 KB of it a block at 16384 columns.
#include <climits>

// orbit: rows = 512; columns = 16384; size = next_power_of_2(columns)
// orbit: keys = randint(-1000000, 1000000, rows, columns)
// orbit: launch bitonic_sort<<<rows, 1024, size * sizeof(int)>>>(columns, size, keys)
// orbit: expect keys == sort(keys)
// orbit: case ragged: rows = 7, columns = 5003
// orbit: case tiny: rows = 3, columns = 2
// orbit: bytes 2 * sizeof(int) * rows * columns
__global__ void bitonic_sort(int columns, int size, int* keys) {
  extern __shared__ int row[];
  int* own = keys + (size_t)blockIdx.x * columns;
  for (int i = threadIdx.x; i < size; i += blockDim.x) row[i] = i < columns ? own[i] : INT_MAX;
  __syncthreads();
  for (int run = 2; run <= size; run *= 2)
    for (int distance = run / 2; distance > 0; distance /= 2) {
      for (int i = threadIdx.x; i < size; i += blockDim.x) {
        int other = i ^ distance;
        bool ascending = (i & run) == 0;
        if (other > i && (row[i] > row[other]) == ascending) {
          int kept = row[i];
          row[i] = row[other];
          row[other] = kept;
        }
      }
      __syncthreads();
    }
  for (int i = threadIdx.x; i < columns; i += blockDim.x) own[i] = row[i];
}
