// JupyterLab in a headless Chromium: a kernel of ours picked, run, interrupted, restarted and ended, as its user does it.
//   node drive.mjs PREFIX URL FOLDER     PREFIX has playwright-core (vscode/install), URL is of a notebook without a kernel
// Prints a line of JSON for each step, what its cell then shows; pictures go into FOLDER.

import { createRequire } from 'node:module';
import { join } from 'node:path';

const PATIENCE_MS = 120_000; // the end of what hangs
const [prefix, url, folder] = process.argv.slice(2);
const { chromium } = createRequire(join(prefix, 'node_modules', 'x.js'))('playwright-core');
const browser = await chromium.launch({
  executablePath: process.env.ORBIT_CHROMIUM ?? '/usr/bin/chromium',
  args: ['--no-sandbox'],
});
const page = await browser.newPage({ viewport: { width: 1100, height: 1300 } });
page.setDefaultTimeout(PATIENCE_MS);

const cell = (number) => page.locator('.jp-Notebook .jp-CodeCell').nth(number);
const output = (number) => cell(number).locator('.jp-Cell-outputArea');
const button = (command) => page.locator(`.jp-NotebookPanel-toolbar [data-command="${command}"]`).first();
const step = (name, shown) => console.log(JSON.stringify({ step: name, shown }));
const picture = (name) => page.screenshot({ path: join(folder, `${name}.png`) });

/** Runs a cell as Ctrl+Enter does. */
async function press(number) {
  await cell(number).locator('.cm-content').click();
  await page.keyboard.press('Control+Enter');
}

/** What the output of a cell is once it has `text`. */
async function shows(number, text) {
  await output(number).filter({ hasText: text }).waitFor();
  return (await output(number).innerText()).trim();
}

async function run(number, text) {
  await press(number);
  return shows(number, text);
}

/** Presses the button of the dialog that a command asks with. */
const confirm = () => page.locator('.jp-Dialog .jp-mod-accept').click();

try {
  await page.goto(url);
  const picker = page.locator('.jp-Dialog select');
  await picker.waitFor();
  const offered = await picker.locator('option').allInnerTexts();
  await picker.selectOption({ label: 'Orbit: this GPU' });
  await picture('1-picker');
  await confirm();
  await page.getByText('Orbit: this GPU | Idle').waitFor(); // what is run before is lost
  step('picked', offered.filter((each) => each.startsWith('Orbit')).join());

  step('run', await run(0, '21'));
  await press(1);
  await output(1).locator('img').waitFor();
  step('image', await output(1).locator('img').evaluate((image) => `${image.naturalWidth}x${image.naturalHeight}`));
  await run(2, 'prepared');
  step('measured', await run(3, 'measured on'));
  const height = (table) => Math.round(table.clientHeight / Number.parseFloat(getComputedStyle(table).lineHeight));
  step('lines of the table', await output(3).locator('pre').last().evaluate(height));
  await picture('2-measured');

  await press(4);
  await shows(4, 'begun');
  await button('notebook:interrupt-kernel').click();
  step('interrupt', (await shows(4, 'KeyboardInterrupt')).split('\n').at(-1));
  await cell(5).locator('.cm-content').click();
  // below its value may stand what is measured: the stand-in has a recording for every cell
  step('state kept', (await run(5, '20')).split('\n').slice(0, 2).join('\n'));

  await button('notebook:restart-kernel').click();
  await confirm();
  await press(5);
  step('restart', (await shows(5, 'NameError')).split('\n').at(-1));
  await picture('3-restarted');

  await page.locator('.lm-MenuBar-itemLabel', { hasText: 'Kernel' }).click();
  await page.locator('.lm-Menu-itemLabel', { hasText: /^Shut Down Kernel$/ }).click();
  await page.locator('.jp-NotebookPanel-toolbar').getByText('No Kernel').waitFor();
  step('ended', 'No Kernel');
} catch (error) {
  await picture('failed');
  throw error;
} finally {
  await browser.close();
}
