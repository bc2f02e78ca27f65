"""c = a @ b.T in Triton with host-side tensor descriptors: TMA reads zeros beyond the ends and writes nothing there."""

import triton
import triton.language as tl


# orbit: M = 4096; N = 4096; K = 4096
# orbit: a = torch.randn(M, K, dtype=torch.float16); b = torch.randn(N, K, dtype=torch.float16)
# orbit: c = torch.empty(M, N, dtype=torch.float16)
# orbit: launch matmul_descriptor[(triton.cdiv(M, 128), triton.cdiv(N, 128))](
# orbit:     TensorDescriptor.from_tensor(a, [128, 64]), TensorDescriptor.from_tensor(b, [128, 64]),
# orbit:     TensorDescriptor.from_tensor(c, [128, 128]), K, num_warps=8, num_stages=3)
# orbit: expect c == a @ b.T
# orbit: case ragged: M = 333, N = 264, K = 200
# orbit: bytes 2 * (M * K + K * N + M * N); flops 2 * M * N * K
@triton.jit
def matmul_descriptor(a, b, c, K):
    BLOCK_M: tl.constexpr = a.block_shape[0]
    BLOCK_N: tl.constexpr = b.block_shape[0]
    BLOCK_K: tl.constexpr = a.block_shape[1]
    row, column = tl.program_id(0) * BLOCK_M, tl.program_id(1) * BLOCK_N
    total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in range(0, K, BLOCK_K):
        total = tl.dot(a.load([row, start]), b.load([column, start]).T, total)
    c.store([row, column], total.to(tl.float16))
