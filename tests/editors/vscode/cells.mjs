// A notebook whose kernels have a history: the last result above each in its cell, as another program files it, and no *Run*.

import { execFileSync } from 'node:child_process';

const CELL = `%%cuda
// orbit: n = 1 << 26
// orbit: x = randn(n); y = randn(n)
// orbit: launch saxpy<<<(n + 255) / 256, 256>>>(n, 2.0f, x, y)
__global__ void saxpy(int n, float a, const float* x, float* y) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = a * x[i] + y[i];
}`;

/** The notebook, and a text, which a window can open at its start. */
export const files = {
  'beside.py': 'x = 1\n',
  'saxpy.ipynb': JSON.stringify({
    cells: [CELL, 'x = 1'].map((source) => ({
      cell_type: 'code',
      source,
      metadata: {},
      outputs: [],
      execution_count: null,
    })),
    metadata: {
      kernelspec: { name: 'python3', display_name: 'Python 3', language: 'python' },
      language_info: { name: 'python' },
    },
    nbformat: 4,
    nbformat_minor: 5,
  }),
};
/** What a kernel of ours files when the cell has run (orbit_lsp/notebook/cell_history.py). */
const FILED = `
import asyncio, sys
from pathlib import Path
from orbit_lsp.notebook.cell_history import CellHistory
from orbit_remote.common import messages as c
from orbit_remote.common.measurements import Timing
timing = Timing(50, 288e3, "cold L2", low=287e3, high=289e3, spread=0.002)
launches = c.Launches("saxpy", "saxpy", (1 << 18, 1, 1), (256, 1, 1), timing, 50)
finished = c.Finished("1", "ok", launches=(launches,), device=c.Device("NVIDIA H100 80GB HBM3", capability="9.0"))
asyncio.run(CellHistory(Path(sys.argv[1]).parent).keep("run", finished, {"cell.cu": sys.argv[2]}, sys.argv[1]))
`;

export async function cells({ window, say, python, env, notebook, picture }) {
  const lens = (text) => `.notebookOverlay .codelens-decoration a:visible:has-text("${text}")`;
  await window.open('saxpy.ipynb');
  await window.see('.notebookOverlay .view-line:has-text("__global__")');
  const began = Date.now();
  execFileSync(python, ['-P', '-c', FILED, notebook, CELL], { env });
  await window.see(lens('288 µs'));
  say(`the result of a cell above its kernel ${Date.now() - began} ms after the run began to be filed`);
  await picture();
  if (await window.has(lens('Run'), 1000)) throw new Error('a kernel in a cell has Run, which is its notebook’s');
}
