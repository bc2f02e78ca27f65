// Out-of-place transpose through a tile in shared memory: both sides of the copy are coalesced.

// orbit: rows = 8192; columns = 8192
// orbit: x = randn(rows, columns); y = empty(columns, rows)
// orbit: launch transpose<32, 8><<<dim3(cdiv(columns, 32), cdiv(rows, 32)), dim3(32, 8)>>>(rows, columns, x, y)
// orbit: expect y == x.T
// orbit: case ragged: rows = 1001, columns = 517
// orbit: bytes 2 * sizeof(float) * rows * columns
template <int TILE, int ROWS>
__global__ void transpose(int rows, int columns, const float* __restrict__ x, float* __restrict__ y) {
  __shared__ float tile[TILE][TILE + 1];  // + 1, or a column of the tile would lie in one bank
  int column = blockIdx.x * TILE + threadIdx.x;
  int row = blockIdx.y * TILE + threadIdx.y;
  for (int i = 0; i < TILE; i += ROWS)
    if (row + i < rows && column < columns)
      tile[threadIdx.y + i][threadIdx.x] = x[(row + i) * columns + column];
  __syncthreads();
  column = blockIdx.y * TILE + threadIdx.x;
  row = blockIdx.x * TILE + threadIdx.y;
  for (int i = 0; i < TILE; i += ROWS)
    if (row + i < columns && column < rows)
      y[(row + i) * rows + column] = tile[threadIdx.x][threadIdx.y + i];
}
