// Twenty real signatures in windows of three widths: is the answer in view without scrolling? See tests/editors/test_sheet.py.

import { execFileSync } from 'node:child_process';
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { until } from './code_server.mjs';

const WIDTHS = [800, 1280, 1920];
const ENOUGH = 0.95;
/** As high as all of them are: width alone decides what is in view. */
const HIGH = 3600;
export const USUAL = { width: 1280, height: 760 };

/** The sheet as tests/editors/signatures.py has it: its text, the kernels' names, and what is to be in view. */
export function signatures(root, python) {
  const code =
    'import json; from tests.editors import signatures as s; print(json.dumps([s.SHEET, s.NAMES, s.IN_VIEW]))';
  const [text, names, wanted] = JSON.parse(execFileSync(python, ['-c', code], { cwd: root, encoding: 'utf8' }));
  return { text, names, wanted };
}

/** In the open file `sheet.cu`, whose first kernel has a run and a profile. */
export async function sheet({ window, say, pictures, seen, sheet: { names, wanted } }) {
  await window.page.click(window.lens('Run on H100'));
  await window.see(window.line('⏱ 288 µs'));
  await window.page.click(window.lens('Profile'));
  await window.see(window.lens('memory 79%'));
  const absent = {};
  const shots = [];
  for (const width of WIDTHS) {
    await window.page.setViewportSize({ width, height: HIGH });
    // VS Code brings lenses up to date once they are in view
    await until('every lens has the verdict', async () => {
      const shown = await window.page.locator('.editor-instance .codelens-decoration').allTextContents();
      return shown.filter((one) => one.includes('memory')).length >= names.length;
    });
    for (const [name, shown] of Object.entries(await window.page.evaluate(inView, names))) {
      absent[`${name} at ${width}`] = Object.keys(wanted).filter(
        (what) => !wanted[what].some((text) => shown.replaceAll('\u00a0', ' ').includes(text)),
      );
      shots.push(`== ${name} at ${width}\n${shown}`);
    }
  }
  await window.page.setViewportSize(USUAL);
  await window.picture(join(pictures, 'vscode-sheet.png'));
  const missing = Object.entries(absent).filter(([, what]) => what.length > 0);
  const share = 1 - missing.length / (names.length * WIDTHS.length);
  const lines = [
    `vscode: all in view for ${Math.round(100 * share)}% of ${names.length * WIDTHS.length} kernels and windows`,
    ...missing.map(([where, what]) => `  ${where}: not in view: ${what.join(', ')}`),
  ];
  if (seen) {
    mkdirSync(join(seen, 'sheets'), { recursive: true });
    writeFileSync(join(seen, 'sheets/vscode.txt'), [...lines, '', ...shots, ''].join('\n'));
  }
  if (Object.keys(absent).length !== names.length * WIDTHS.length || share < ENOUGH) throw new Error(lines.join('\n'));
  say(lines[0]);
}

/** In the page: of each kernel, the text of its rows that lies inside the editor. */
function inView(names) {
  const editor = document.querySelector('.editor-instance .monaco-scrollable-element.editor-scrollable');
  const { left, right } = editor.getBoundingClientRect();
  const shown = (row) => {
    const texts = document.createTreeWalker(row, NodeFilter.SHOW_TEXT);
    let text = '';
    for (let node; (node = texts.nextNode());) {
      const range = document.createRange();
      range.selectNodeContents(node);
      const box = range.getBoundingClientRect();
      const [from, to] = [left, right].map((edge) => (box.width ? (edge - box.left) / box.width : 1));
      const characters = node.textContent.length;
      text += node.textContent.slice(
        Math.max(0, Math.ceil(from * characters)),
        Math.max(0, Math.min(characters, Math.floor(to * characters))),
      );
    }
    return text;
  };
  const rows = [...editor.querySelectorAll('.view-line, .codelens-decoration')]
    .map((row) => ({ row, top: row.getBoundingClientRect().top }))
    .sort((one, other) => one.top - other.top);
  const found = {};
  let group = [];
  for (const { row } of rows) {
    group.push(row);
    if (!row.textContent.replaceAll('\u00a0', ' ').includes('use(i)')) continue;
    const whole = group.map((one) => one.textContent).join('\n');
    const name = names.find((one) => new RegExp(`\\b${one}\\(`).test(whole));
    if (name) found[name] = group.map(shown).join('\n');
    group = [];
  }
  return found;
}
