// Inclusive prefix sum in one pass with decoupled look-back (Merrill and Garland, 2016): every tile publishes
// its own sum at once, and its running sum as soon as the tiles before it are known.

enum : unsigned { NOTHING = 0, TILE_SUM = 1, RUNNING_SUM = 2 };

__device__ unsigned long long packed(unsigned kind, int sum) {
  return (unsigned long long)kind << 32 | (unsigned)sum;
}

__device__ int sum_of_tiles_before(int tile, volatile unsigned long long* states) {
  int sum = 0;
  while (--tile >= 0) {
    unsigned long long state;
    do state = states[tile];
    while (state >> 32 == NOTHING);
    sum += (int)(unsigned)state;
    if (state >> 32 == RUNNING_SUM) break;
  }
  return sum;
}

// `ticket` and `states` begin as zeros: orbit-lsp restores what a kernel writes before every launch.
// orbit: n = 1 << 26; tiles = cdiv(n, 256 * 15)
// orbit: x = randint(0, 8, n); y = empty(n)
// orbit: ticket = zeros(1); states = zeros(tiles)
// orbit: launch inclusive_scan<256, 15><<<tiles, 256>>>(n, x, y, ticket, states)
// orbit: expect y == cumsum(x)
// orbit: case ragged: n = 1000003
// orbit: case one: n = 1
// orbit: bytes 2 * sizeof(int) * n
template <int THREADS, int ITEMS>
__global__ void __launch_bounds__(THREADS)
inclusive_scan(int n, const int* x, int* y, int* ticket, unsigned long long* states) {
  constexpr int TILE = THREADS * ITEMS;  // ITEMS is odd: the rows of `items` begin in different banks
  __shared__ int items[TILE], warps[THREADS / 32], tile, before;
  // blocks start in any order; a ticket makes sure that a tile's predecessors are running
  if (threadIdx.x == 0) tile = atomicAdd(ticket, 1);
  __syncthreads();
  for (int i = threadIdx.x; i < TILE; i += THREADS) items[i] = tile * TILE + i < n ? x[tile * TILE + i] : 0;
  __syncthreads();

  int* mine = items + threadIdx.x * ITEMS;
  for (int i = 1; i < ITEMS; ++i) mine[i] += mine[i - 1];
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  int own = mine[ITEMS - 1], sum = own;
  for (int offset = 1; offset < 32; offset *= 2) {
    int left = __shfl_up_sync(0xffffffff, sum, offset);
    if (lane >= offset) sum += left;
  }
  if (lane == 31) warps[warp] = sum;
  __syncthreads();

  int exclusive = sum - own;
  for (int i = 0; i < warp; ++i) exclusive += warps[i];
  if (threadIdx.x == THREADS - 1) {
    int total = exclusive + own;
    atomicExch(&states[tile], packed(tile == 0 ? RUNNING_SUM : TILE_SUM, total));
    before = sum_of_tiles_before(tile, states);
    atomicExch(&states[tile], packed(RUNNING_SUM, before + total));
  }
  __syncthreads();
  for (int i = 0; i < ITEMS; ++i) mine[i] += before + exclusive;
  __syncthreads();
  for (int i = threadIdx.x; i < TILE; i += THREADS)
    if (tile * TILE + i < n) y[tile * TILE + i] = items[i];
}
