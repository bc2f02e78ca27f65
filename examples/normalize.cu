// A vector scaled to length 1 in one cooperative launch: no block goes on before all have added their squares.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>

namespace cg = cooperative_groups;

// orbit: n = 1 << 26; blocks = 132 * 4
// orbit: x = randn(n); y = empty(n); partial = empty(blocks)
// orbit: launch normalize<<<blocks, 256>>>(n, x, y, partial) cooperative
// orbit: expect y == x / sqrt(sum(x * x)) within 1e-5, 1e-9
// orbit: case ragged: n = 1000003
// orbit: bytes 3 * sizeof(float) * n; flops 3 * n
__global__ void __launch_bounds__(256) normalize(int n, const float* x, float* y, float* partial) {
  __shared__ float warps[8], scale;
  cg::grid_group grid = cg::this_grid();
  cg::thread_block block = cg::this_thread_block();
  auto warp = cg::tiled_partition<32>(block);

  auto block_sum = [&](float value) {
    value = cg::reduce(warp, value, cg::plus<float>());
    if (warp.thread_rank() == 0) warps[warp.meta_group_rank()] = value;
    block.sync();
    return cg::reduce(warp, warp.thread_rank() < 8 ? warps[warp.thread_rank()] : 0.0f, cg::plus<float>());
  };

  float squares = 0.0f;
  for (int i = grid.thread_rank(); i < n; i += grid.size()) squares += x[i] * x[i];
  squares = block_sum(squares);
  if (block.thread_rank() == 0) partial[blockIdx.x] = squares;
  grid.sync();

  float total = 0.0f;
  for (int i = block.thread_rank(); i < gridDim.x; i += block.size()) total += partial[i];
  total = block_sum(total);
  if (block.thread_rank() == 0) scale = rsqrtf(total);
  block.sync();
  for (int i = grid.thread_rank(); i < n; i += grid.size()) y[i] = x[i] * scale;
}
