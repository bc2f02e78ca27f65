// What a run shows where it is more than a time: a crash, a hang, and a test of the project that launched the kernel.

import { readFileSync } from 'node:fs';
import { join } from 'node:path';

const recorded = (root, name) => readFileSync(join(root, 'tests/recordings/gpu_dumps', name), 'utf8');
const SOFTMAX = `import triton


@triton.jit
def softmax_kernel(x):
    pass


def softmax(x):
    softmax_kernel[(1,)](x)
`;
const TEST = `from softmax import softmax


def test_softmax():
    softmax(1)
`;
/** The text, and for a failed kernel the list of problems below it. */
const TEXT = { x: 48, y: 36, width: 1232, height: 260 };
const BOTH = { x: 48, y: 36, width: 1232, height: 600 };

export const files = (root) => ({
  'crash.cu': recorded(root, 'crash.cu'),
  'hang.cu': recorded(root, 'hang.cu'),
  'softmax.py': SOFTMAX,
  'test_softmax.py': TEST,
});

export async function results({ window, say, pictures }) {
  await window.palette('View: Toggle Primary Side Bar Visibility');
  await failed(window, 7, 'scale', 'in block (15,0,0)');
  await window.picture(join(pictures, 'crash-vscode.png'), { clip: BOTH });
  say('a crash on the line that failed');

  await window.open('hang.cu');
  await failed(window, 27, 'halfcluster', '4 of 8 warps waited here for their cluster', '4 of 8 warps stood here');
  await window.picture(join(pictures, 'hang-vscode.png'), { clip: BOTH });
  say('a hang on the lines where its warps stand');

  await window.open('softmax.py');
  await window.see(window.lens('test_softmax?'));
  await window.page.click(window.lens('test_softmax?'));
  await window.see(window.line('⏱ 288'));
  await window.picture(join(pictures, 'through-vscode.png'), { clip: TEXT });
  say('a kernel of a module runs through a test of the project');
}

/** Run a kernel by its keys; the messages are listed below the text. */
async function failed(window, line, kernel, ...messages) {
  await window.see(window.lens('Run on'));
  await window.goTo(line);
  await window.palette('Orbit: Run the Kernel');
  await window.see(window.lens('✗'));
  await window.palette('View: Focus Problems');
  for (const message of messages) await window.see(`.markers-panel .monaco-list-row:has-text("${message}")`);
  await window.goTo(line);
}
