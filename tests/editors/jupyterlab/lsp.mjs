// JupyterLab with jupyterlab-lsp in a headless Chromium: a mistake in a cell, its end, a run, its figures, an edit of the kernel.
//   node lsp.mjs PREFIX URL FOLDER     PREFIX has playwright-core (vscode/install), URL is of a notebook without a kernel
// Prints a line of JSON for each step, what is marked or said then; pictures go into FOLDER.

import { createRequire } from 'node:module';
import { join } from 'node:path';

const PATIENCE_MS = 120_000; // the end of what hangs
const [prefix, url, folder] = process.argv.slice(2);
const { chromium } = createRequire(join(prefix, 'node_modules', 'x.js'))('playwright-core');
const browser = await chromium.launch({
  executablePath: process.env.ORBIT_CHROMIUM ?? '/usr/bin/chromium',
  args: ['--no-sandbox'],
});
const page = await browser.newPage({ viewport: { width: 1100, height: 900 } });
page.setDefaultTimeout(PATIENCE_MS);

const step = (name, shown) => console.log(JSON.stringify({ step: name, shown }));
const picture = (name) => page.screenshot({ path: join(folder, `jupyterlab-lsp-${name}.png`) });
const cell = (number) => page.locator('.jp-Notebook .jp-CodeCell').nth(number);
const line = (text) => cell(1).locator('.cm-line', { hasText: text }).first();
const marked = (kind, text) => cell(1).locator(`.cm-lintRange-${kind}`, { hasText: text });

/** What the mark of a text says to a mouse that rests on it. */
async function said(kind, text) {
  await page.mouse.move(0, 0);
  await marked(kind, text).first().hover();
  const words = await page.locator('.cm-tooltip .cm-diagnostic').first().innerText();
  await page.mouse.move(0, 0);
  return words;
}

async function run(number, text) {
  await cell(number).locator('.cm-content').click();
  await page.keyboard.press('Control+Enter');
  if (text) await cell(number).locator('.jp-Cell-outputArea').filter({ hasText: text }).waitFor();
}

/** Selects a word by a double click and types another. */
async function replace(text, old, word) {
  const box = await line(text).evaluate((element, wanted) => {
    const walker = document.createTreeWalker(element, NodeFilter.SHOW_TEXT);
    for (let node = walker.nextNode(); node; node = walker.nextNode()) {
      const at = node.data.indexOf(wanted);
      if (at < 0) continue;
      const range = document.createRange();
      range.setStart(node, at);
      range.setEnd(node, at + wanted.length);
      const { x, y, width, height } = range.getBoundingClientRect();
      return { x: x + width / 2, y: y + height / 2 };
    }
  }, old);
  await page.mouse.dblclick(box.x, box.y);
  await page.keyboard.type(word);
  await line(text).waitFor();
}

let edited;
try {
  await page.goto(url);
  await page.locator('.jp-Dialog select').selectOption({ label: 'Orbit: this GPU' });
  await page.locator('.jp-Dialog .jp-mod-accept').click();
  await page.getByText('Orbit: this GPU | Idle').waitFor();

  await marked('error', 'rund').waitFor();
  step('mistake', await said('error', 'rund'));
  await picture('1-mistake');
  await replace('y = empty(n)', 'rund', 'randn');
  await marked('error', '').first().waitFor({ state: 'detached' });
  step('mended', await line('y = empty(n)').innerText());

  await run(0);
  await run(1, 'measured on');
  step('measured', await said('hint', 'add'));
  await picture('2-measured');
  await replace('tl.load(x + at', '1', '2');
  while (!(edited = await said('hint', 'add')).includes('edited'));
  step('edited', edited);
  await picture('3-edited');
} catch (error) {
  await picture('failed');
  throw error;
} finally {
  await browser.close();
}
