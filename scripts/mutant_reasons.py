"""Which mutants comparing outputs cannot be asked to find, by category, each with its reason.

What writes nothing wrong is set aside: other tools' business, or nobody's. What is found all the same is listed as
such by the report, and belongs out of here.
"""

from __future__ import annotations

import re
from typing import Final

SAME: Final = "with the original's results"
MEMCHECK: Final = "that only reach out of bounds"
RACE: Final = "that are right or a race"

_XOR_17 = re.compile(r"for \(int (\w+) = 17; \1 > 0; \1 /= 2\)\s+[^;]*__shfl_xor_sync\(0xffffffff, \w+, \1\)")

_NOT_USED = "what it reads beyond the array is not used"
# blocks get shared memory in steps of 128 bytes; beyond it an access is an illegal address (seen on H100)
_IN_THE_GAP = "it writes shared memory beyond the array, but within the 128 bytes in which that is allocated"
_ALIKE = "all lanes of the warp hold the same value"
_REUSED = "both sums in one array: right, unless the second's writers overtake the first's readers"
_PADDED = "what stands for missing elements of one factor meets zeros of the other, or is not stored"

ARGUED: dict[tuple[str, str, str], tuple[str, str]] = {
    ("transpose", "bound off by one", "if (row + i <= rows && column < columns)"): (MEMCHECK, _NOT_USED),
    ("transpose", "bound off by one", "if (row + i < rows && column <= columns)"): (MEMCHECK, _NOT_USED),
    ("transpose", "no bound", "if (true)"): (MEMCHECK, _NOT_USED),
    ("transpose", "wrong operator", "if (row - i < rows && column < columns)"): (MEMCHECK, _NOT_USED),
    ("transpose", "wrong operator", "if (row + i < rows || column < columns)"): (MEMCHECK, _NOT_USED),
    ("reduce_sum", "wrong constant", "if (warp == 1) {"): (SAME, "any one warp may add up"),
    ("softmax", "wrong constant", "if (lane == 1) warps[0][warp] = largest;"): (SAME, _ALIKE),
    ("softmax", "wrong constant", "if (lane == 1) warps[1][warp] = sum;"): (SAME, _ALIKE),
    ("softmax", "wrong constant", "int lane = threadIdx.x % 33, warp = threadIdx.x / 32;"): (SAME, "with up to 8 warps each still has a lane 0, and lanes 0 to 7"),
    ("layer_norm", "wrong constant", "if (threadIdx.x % 33 == 0) warps[threadIdx.x / 32] = value;"): (SAME, "with up to 31 warps one thread of each is a multiple of 33, and all lanes hold the same sum"),
    ("layer_norm", "wrong constant", "if (threadIdx.x % 32 == 1) warps[threadIdx.x / 32] = value;"): (SAME, _ALIKE),
    ("layer_norm", "indices swapped", "if (threadIdx.y % 32 == 0) warps[threadIdx.x / 32] = value;"): (SAME, _ALIKE),
    ("layer_norm", "index off by one", "float middle = block_sum(sum, warps[0 + 1]) / columns;"): (RACE, _REUSED),
    ("layer_norm", "wrong constant", "float middle = block_sum(sum, warps[1]) / columns;"): (RACE, _REUSED),
    ("layer_norm", "wrong constant", "if (threadIdx.x == 1) {"): (SAME, "every thread holds the row's mean"),
    ("layer_norm", "indices swapped", "if (threadIdx.y == 0) {"): (SAME, "every thread stores the same"),
    ("matmul", "bound off by one", "for (int start = 0; start <= k; start += DEPTH) {"): (SAME, "one more tile, all of it beyond k and so all zeros"),
    ("matmul", "bound off by one", "for (int i = threadIdx.x; i <= TILE * DEPTH; i += THREADS) {"): (SAME, "element 64 of a row is padding"),
    ("matmul", "bound off by one", "for (int i = threadIdx.x; i <= TILE * DEPTH; i += THREADS) { #2"): (MEMCHECK, _IN_THE_GAP),
    ("matmul", "bound off by one", "as[i % DEPTH][i / DEPTH] = row <= m && inner < k ? a[row * k + inner] : 0.0f;"): (MEMCHECK, _NOT_USED),
    ("matmul", "bound off by one", "bs[i / TILE][i % TILE] = inner < k && column <= n ? b[inner * n + column] : 0.0f;"): (MEMCHECK, _NOT_USED),
    ("matmul", "wrong constant", "as[i % DEPTH][i / DEPTH] = row < m && inner < k ? a[row * k + inner] : 1.0f;"): (SAME, _PADDED),
    ("matmul", "wrong constant", "bs[i / TILE][i % TILE] = inner < k && column < n ? b[inner * n + column] : 1.0f;"): (SAME, _PADDED),
    ("matmul", "wrong operator", "constexpr int SIDE = TILE / EACH, THREADS = SIDE + SIDE;"): (SAME, "every element is loaded eight times, the same each time"),
    ("matmul", "factor missing", "constexpr int SIDE = TILE / EACH, THREADS = SIDE;"): (SAME, "every element is loaded 16 times, the same each time"),
    ("heat", "bound off by one", "for (int i = threadIdx.y * TX + threadIdx.x; i <= (TY + 2) * (TX + 2); i += TX * TY) {"): (MEMCHECK, _IN_THE_GAP),
    ("heat", "one short", "for (int i = threadIdx.y * TX + threadIdx.x; i + 1 < (TY + 2) * (TX + 2); i += TX * TY) {"): (SAME, "the halo's last corner is not one of the five points"),
    ("heat", "wrong constant", "for (int i = threadIdx.y * TX + threadIdx.x; i < (TY + 2) * (TX + 3); i += TX * TY) {"): (MEMCHECK, _IN_THE_GAP),
    ("online_softmax", "no bound", "x = tl.load(x_ptr + start + offsets, mask=(inside) == (inside))"): (MEMCHECK, _NOT_USED),
    ("online_softmax", "wrong constant", "total = 1.0"): (SAME, "it is multiplied with exp(-inf) at once"),
}  # fmt: skip
"""(kernel, rule, mutated line, `#2` where a second line becomes the same) -> category and reason, true for every input
that the examples' specs make."""


def reason(kernel: str, rule: str, line: str, original: str, text: str) -> tuple[str, str]:
    """Category and reason of a mutant; two empty texts for one that has to be found.

    `line` is the mutated line as in `ARGUED`, `original` and `text` are the whole files.
    """
    if argued := ARGUED.get((kernel, rule, line)):
        return argued
    if len(_XOR_17.findall(text)) > len(_XOR_17.findall(original)):
        return SAME, "17, 8, 4, 2 and 1 reach every lane as 16, 8, 4, 2 and 1 do"
    return "", ""
