"""Unknown names planted at random places of macro-heavy code: every column is the planted one, or absent."""

from __future__ import annotations

import random
import re

from orbit_remote.toolchain.carets import tokenise
from tests.remote.nvcc_check import built, needs_nvcc

MACROS = """\
#define IDX (blockIdx.x * blockDim.x + threadIdx.x)
#define MAX(a, b) ((a) > (b) ? (a) : (b))
#define FMA(a, b, c) ((a) * (b) + (c))
#define LOAD(p, i) (*(const volatile float*)&(p)[(i)])
#define FOR(i, n) for (int i = 0; i < (n); ++i)
#define KERNEL __global__ void
"""
BODY = """\
  float acc = 0, x = LOAD(p, IDX), y = MAX(x, 2.0f);
  FOR(i, n) { acc = FMA(x, y, acc) + MAX(MAX(x, y), acc) * p[IDX + i]; }
\tfor (int j = 0; j < 4; ++j) acc += LOAD(p, j) * /* é */ p[j] + "日本"[0];
  p[IDX] = acc + FMA(MAX(x,
                         y), LOAD(p, n),
                     acc); p[n] = MAX(x, y) - x;
""".splitlines()


@needs_nvcc
async def test_planted_names_are_found_where_they_stand(tmp_path):
    chance = random.Random(11)
    lines = MACROS.splitlines()
    planted: dict[str, tuple[int, int, int]] = {}
    for number in range(40):
        lines.append(f"KERNEL k{number}(float* p, int n) {{")
        body = list(BODY)
        row = chance.randrange(len(body))
        token = chance.choice(
            [t for t in tokenise(body[row]) if t.text in ("x", "y", "acc", "n", "p", "i", "j", "IDX")]
        )
        name = f"planted_{number}"
        body[row] = body[row][: token.start] + name + body[row][token.end :]
        planted[name] = (len(lines) + row + 1, token.start + 1, token.start + 1 + len(name))
        lines += [*body, "}"]
    result = await built(tmp_path, "\n".join(lines) + "\n")
    text = 0
    for problem in result.built.problems:
        if name := re.match(r'identifier "(planted_\d+)" is undefined', problem.message):
            place = problem.place
            if place.column is not None:
                assert (place.line, place.column, place.end_column) == planted[name[1]]
                text += 1
    assert text >= 30
