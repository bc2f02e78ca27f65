"""c = a @ b in Triton, its tile sizes found by autotuning; blocks in groups of rows share b in the L2."""

import triton
import triton.language as tl

CONFIGURATIONS = [
    triton.Config({"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": 64}, num_warps=warps, num_stages=stages)
    for m, n, warps, stages in [(64, 128, 4, 4), (128, 128, 4, 3), (128, 128, 8, 4), (128, 256, 8, 3)]
]


# orbit: M = 4096; N = 4096; K = 4096
# orbit: a = torch.randn(M, K, dtype=torch.float16); b = torch.randn(K, N, dtype=torch.float16)
# orbit: c = torch.empty(M, N, dtype=torch.float16)
# orbit: launch matmul[lambda META: (triton.cdiv(M, META["BLOCK_M"]) * triton.cdiv(N, META["BLOCK_N"]),)](
# orbit:     a, b, c, M, N, K, a.stride(0), a.stride(1), b.stride(0), b.stride(1), c.stride(0), c.stride(1), GROUP=8)
# orbit: expect c == a @ b
# orbit: case ragged: M = 333, N = 257, K = 200
# orbit: bytes 2 * (M * K + K * N + M * N); flops 2 * M * N * K
@triton.autotune(CONFIGURATIONS, key=["M", "N", "K"])
@triton.jit
def matmul(
    a_ptr, b_ptr, c_ptr, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    pid = tl.program_id(0)
    tiles_m, tiles_n = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    first_m = pid // (GROUP * tiles_n) * GROUP
    group_rows = min(tiles_m - first_m, GROUP)
    pid_m = first_m + pid % (GROUP * tiles_n) % group_rows
    pid_n = pid % (GROUP * tiles_n) // group_rows

    rows = pid_m * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = pid_n * BLOCK_N + tl.arange(0, BLOCK_N)
    inner = tl.arange(0, BLOCK_K)
    # rows and columns beyond the end read some that are inside, and are not stored
    a_tile = a_ptr + (rows % M)[:, None] * stride_am + inner[None, :] * stride_ak
    b_tile = b_ptr + inner[:, None] * stride_bk + (columns % N)[None, :] * stride_bn
    total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in range(0, K, BLOCK_K):
        a = tl.load(a_tile, mask=inner[None, :] < K - start, other=0.0)
        b = tl.load(b_tile, mask=inner[:, None] < K - start, other=0.0)
        total = tl.dot(a, b, total)
        a_tile += BLOCK_K * stride_ak
        b_tile += BLOCK_K * stride_bk
    c_tile = c_ptr + rows[:, None] * stride_cm + columns[None, :] * stride_cn
    tl.store(c_tile, total.to(tl.float16), mask=(rows[:, None] < M) & (columns[None, :] < N))
