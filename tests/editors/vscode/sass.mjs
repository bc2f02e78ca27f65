// Source and SASS side by side. Nothing is recorded: the compiler and the disassembler need no GPU.

import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { until } from './code_server.mjs';

export const files = (root) => ({ 'saxpy.cu': readFileSync(join(root, 'examples/saxpy.cu'), 'utf8') });
/** So that both are whole in half of a window, and no path of this machine is in the picture. */
export const values = { 'breadcrumbs.enabled': false, 'editor.fontSize': 12, 'editor.wordWrap': 'on' };
/** Both texts as far as the listing goes. */
const TEXTS = { x: 52, y: 36, width: 1228, height: 476 };
const INDEX = 6;
const SUM = 7;
const SOURCE = '.editor-group-container:has(.tab[aria-label^="saxpy.cu"])';
const LISTING = '.editor-group-container:has(.tab[aria-label^="saxpy-saxpy-"])';

export async function sass({ window, saw, picture }) {
  await window.see(window.lens('Run'));
  await window.see(window.line('occ '));
  await window.palette('View: Toggle Primary Side Bar Visibility');
  await window.goTo(SUM);
  await window.page.click(await window.action('Show SASS (saxpy)'));
  await window.see(`${LISTING} .view-line:has-text("// saxpy.cu:${SUM}    if (i < n) y[i] = a * x[i] + y[i];")`);
  await window.see(`${SOURCE}.active .view-line:has-text("y[i] = a * x[i] + y[i];")`);
  await window.status(`Ln ${SUM}, Col 1`);
  await marked(window, 'FFMA', 'SR_TID.X');
  await window.picture(picture, { clip: TEXTS });
  await window.goTo(INDEX);
  await marked(window, 'SR_TID.X', 'FFMA');

  await window.goTo(SUM);
  await window.keyboard.press('End');
  await window.keyboard.insertText(' y[i] *= 3;');
  await until('no instructions of a line that was edited', async () => (await lines(window)).length === 0);
  await window.save();
  await window.see(`${LISTING} .view-line:has-text("instructions since the last time")`);
  await marked(window, 'FMUL', 'SR_TID.X');
  saw('listing');
}

/** Waits until the marked lines of the listing have one word and not the other. */
function marked(window, has, hasNot) {
  return until(`${has} is marked, and ${hasNot} is not`, async () => {
    const text = (await lines(window)).join('\n');
    return text.includes(has) && !text.includes(hasNot);
  });
}

/** The lines of the listing whose ground the extension has coloured: the editor draws it apart from the text, at the same height. */
function lines(window) {
  return window.page.locator(LISTING).evaluate((group) => {
    const grounds = group.querySelectorAll('.view-overlays [class*="TextEditorDecorationType"]');
    const heights = new Set([...grounds].map((one) => one.parentElement.style.top));
    const texts = [...group.querySelectorAll('.view-line')].filter((one) => heights.has(one.style.top));
    return texts.map((one) => one.textContent.replaceAll('\u00a0', ' '));
  });
}
