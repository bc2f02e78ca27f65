// The files that the driver works with. Words in them choose what the recorded GPU does: see tests/e2e/recorded_worker.py.

import { execFileSync } from 'node:child_process';
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

const BODY = `__global__ void saxpy(int n, float a, const float* x, float* y) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = a * x[i] + y[i];
}
`;
const HEAD = `// orbit: n = 1 << 26; x = randn(n); y = randn(n)
// orbit: launch saxpy<<<(n + 255) / 256, 256>>>(n, 2.0f, x, y)
// orbit: expect y == 2 * x + y; bytes 3 * 4 * n; flops 2 * n
`;
/** Where things stand in `saxpy.cu`, counted from 1. */
export const SAXPY = { kernel: 4, name: 17, store: 6 };

/** A folder with these files, by their names; the folder's path. */
export function folder(parent, name, files, values = {}) {
  const path = join(parent, name);
  mkdirSync(join(path, '.vscode'), { recursive: true });
  for (const [file, text] of Object.entries(files)) writeFileSync(join(path, file), text);
  settings(path, values);
  return path;
}

/** Makes the folder a repository of git, with its files as they are now. */
export function committed(folder) {
  const identity = ['-c', 'user.name=a', '-c', 'user.email=a@b', '-c', 'commit.gpgsign=false'];
  for (const words of [
    ['init', '-q'],
    ['add', '-A'],
    ['commit', '-q', '-m', 'The first kernels'],
  ])
    execFileSync('git', [...identity, ...words], { cwd: folder });
}

export function settings(folder, values) {
  writeFileSync(join(folder, '.vscode/settings.json'), JSON.stringify(values, undefined, 2));
}

export const files = {
  'saxpy.cu': HEAD + BODY,
  'sizes.cu': HEAD.replace('n = 1 << 26', 'n = sweep(1 << 20, 1 << 24, 1 << 26)') + BODY + '// SWEEP\n',
  'slow.cu': HEAD + BODY + '// SLOW\n',
  'program.cu': '// a program of its own\n' + BODY + '\nint main() { saxpy<<<1, 256>>>(0, 1, 0, 0); }\n',
  'alone.cu': BODY.replace('saxpy', 'alone'),
  'header.hpp': BODY.replace('saxpy', 'inHeader'),
};

/** What comes to harm while it runs, and what is long. */
export const harmed = {
  'renamed.cu': files['slow.cu'],
  'away.cu': files['program.cu'],
  'long.cu': long(),
};

/** 10,000 lines: a thousand kernels. */
function long() {
  const kernel = (index) => `// kernel ${index}\n${BODY.replaceAll('saxpy', `saxpy${index}`)}${'//\n'.repeat(5)}`;
  return Array.from({ length: 1000 }, (_, index) => kernel(index)).join('');
}
