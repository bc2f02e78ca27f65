// c = a @ b on tensor cores through WMMA: half in, float accumulated and out, row-major, k and n multiples of 8.
#include <cuda_fp16.h>
#include <mma.h>

using namespace nvcuda;

constexpr int TILE = 128, DEPTH = 32, WARPS = 8;
constexpr int PAD = 8;  // halves a row, so that the rows of a fragment begin in different banks

// orbit: m = 4096; n = 4096; k = 2048
// orbit: a = randn(m, k); b = randn(k, n); c = empty(m, n)
// orbit: launch wmma_matmul<<<dim3(cdiv(n, 128), cdiv(m, 128)), 256>>>(m, n, k, a, b, c)
// Tensor cores cut off what does not fit when they add, so errors grow with k, not with its root:
// orbit: expect c == a @ b within 1e-4, 2e-3
// orbit: case ragged: m = 205, n = 136, k = 72
// orbit: bytes sizeof(half) * (m * k + k * n) + sizeof(float) * m * n; flops 2 * m * n * k
__global__ void __launch_bounds__(WARPS * 32)
wmma_matmul(int m, int n, int k, const half* __restrict__ a, const half* __restrict__ b, float* __restrict__ c) {
  __shared__ __align__(32) half as[TILE][DEPTH + PAD];
  __shared__ __align__(32) half bs[DEPTH][TILE + PAD];
  __shared__ __align__(32) float staged[WARPS][16][16];
  int top = blockIdx.y * TILE, left = blockIdx.x * TILE;
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  int warp_row = warp / 2 * 32, warp_column = warp % 2 * 64;  // every warp computes 32 x 64

  wmma::fragment<wmma::accumulator, 16, 16, 16, float> sums[2][4];
  for (auto& row : sums)
    for (auto& sum : row) wmma::fill_fragment(sum, 0.0f);

  const uint4 zeros = make_uint4(0, 0, 0, 0);
  for (int start = 0; start < k; start += DEPTH) {
    for (int i = threadIdx.x * 8; i < TILE * DEPTH; i += WARPS * 32 * 8) {  // 8 halves, 16 bytes, at once
      int row = i / DEPTH, inner = i % DEPTH;
      bool inside = top + row < m && start + inner < k;
      *reinterpret_cast<uint4*>(&as[row][inner]) =
          inside ? *reinterpret_cast<const uint4*>(&a[(size_t)(top + row) * k + start + inner]) : zeros;
    }
    for (int i = threadIdx.x * 8; i < DEPTH * TILE; i += WARPS * 32 * 8) {
      int inner = i / TILE, column = i % TILE;
      bool inside = start + inner < k && left + column < n;
      *reinterpret_cast<uint4*>(&bs[inner][column]) =
          inside ? *reinterpret_cast<const uint4*>(&b[(size_t)(start + inner) * n + left + column]) : zeros;
    }
    __syncthreads();
    for (int inner = 0; inner < DEPTH; inner += 16) {
      wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> rows[2];
      wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::row_major> columns[4];
      for (int i = 0; i < 2; ++i)
        wmma::load_matrix_sync(rows[i], &as[warp_row + 16 * i][inner], DEPTH + PAD);
      for (int j = 0; j < 4; ++j)
        wmma::load_matrix_sync(columns[j], &bs[inner][warp_column + 16 * j], TILE + PAD);
      for (int i = 0; i < 2; ++i)
        for (int j = 0; j < 4; ++j) wmma::mma_sync(sums[i][j], rows[i], columns[j], sums[i][j]);
    }
    __syncthreads();
  }

  for (int i = 0; i < 2; ++i)
    for (int j = 0; j < 4; ++j) {
      wmma::store_matrix_sync(&staged[warp][0][0], sums[i][j], 16, wmma::mem_row_major);
      __syncwarp();
      for (int at = lane; at < 256; at += 32) {
        int row = top + warp_row + 16 * i + at / 16, column = left + warp_column + 16 * j + at % 16;
        if (row < m && column < n) c[(size_t)row * n + column] = staged[warp][at / 16][at % 16];
      }
      __syncwarp();
    }
}
