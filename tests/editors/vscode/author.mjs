// An author at work in a trusted folder, from the first click to a report, with what is seen on the way.

import { join } from 'node:path';
import { until } from './code_server.mjs';
import { SAXPY, settings } from './files.mjs';
import { sheet } from './sheet.mjs';

/** The text without what is around it. */
const TEXT = { x: 48, y: 0, width: 1232, height: 420 };
const TIME = '⏱ 288 µs';

export async function work({ window, saw, say, pictures, place, ...more }) {
  await window.see(window.lens('▶ Run on H100 80GB HBM3'));
  saw('lens', 'above the line');
  await window.see('.statusbar-item:has-text("H100 80GB HBM3")');
  say('the status bar names the GPU');

  await window.page.click(window.lens('Run'));
  await window.see(window.line(TIME));
  saw('result');
  await window.see('.statusbar-item:has-text("Run saxpy: 288")');
  saw('end', 'status bar');
  await window.hover(SAXPY.kernel, SAXPY.name, 'H100 80GB HBM3');
  saw('hover', 'with tables');
  await window.picture(join(pictures, 'vscode-hover.png'));
  await window.keyboard.press('Escape');

  await window.goTo(SAXPY.store);
  await window.keyboard.press('End');
  await window.keyboard.insertText('edited');
  await window.see(window.line('edited since'));
  say('an edit marks the number');
  await window.picture(join(pictures, 'vscode-stale.png'));
  await window.undo();
  await window.gone(window.line('edited since'));
  saw('stale');

  await window.keyboard.insertText('BUG');
  await window.save();
  await window.see('.squiggly-error');
  await window.see('.statusbar-item [aria-label*="Errors: 1"], .statusbar-item[aria-label*="Errors: 1"]');
  say('a compile error under its word');
  await window.picture(join(pictures, 'vscode-error.png'));
  await window.undo();
  await window.save();
  await window.gone('.squiggly-error');
  await window.gone(window.line('edited since'));
  await window.see(window.line(TIME));
  saw('error', 'squiggle, *Problems*');

  await window.goTo(SAXPY.kernel);
  await window.action('Run on H100 80GB HBM3');
  const first = await window.page.textContent('.action-widget .monaco-list-row.action');
  if (!first.startsWith('▶ Run on H100')) throw new Error(`the first code action is ${first}`);
  saw('action', '`Ctrl .`');
  await window.keyboard.press('Escape');

  await window.open('slow.cu');
  await window.page.click(window.lens('Run'));
  await window.status('· Run saxpy');
  await window.status('saxpy: running');
  saw('progress', 'status bar');
  await window.picture(join(pictures, 'vscode-running.png'));
  await window.page.click(window.lens('(cancel)'));
  await window.gone('.statusbar-item:has-text("· Run saxpy")');
  saw('cancel', 'lens, palette'); // the palette: see mishaps.moved

  await window.open('program.cu');
  await window.goTo(2);
  await window.palette('Orbit: Run the Kernel at the Cursor');
  await window.see(window.line(TIME));
  saw('command', 'palette');
  await window.palette('Orbit: Show the Output of Runs');
  await window.see('.panel .view-line:has-text("no error")');
  await window.see('.panel .view-line:has-text("■ Run saxpy: 288")');
  saw('output', 'the output channel *Orbit*');
  await window.palette('View: Toggle Panel Visibility');

  await window.open('alone.cu');
  await window.page.click(window.lens('Draft a launch spec'));
  await window.see(window.line('orbit: launch alone<<<'));
  await window.see(window.lens('Run on H100 80GB HBM3'));
  saw('draft', 'lens');
  await window.undo();
  await window.save();

  await window.open('header.hpp');
  await window.see(window.lens('Draft a launch spec'));
  say('a lens in a C++ header');

  await window.open('sheet.cu');
  await sheet({ window, say, pictures, ...more });
  settings(place, { 'orbit.report.open': 'profile' });

  await window.open('sizes.cu');
  await window.page.click(window.lens('Run'));
  await window.see(window.line('⏱'));
  await window.goTo(SAXPY.kernel);
  await window.palette('Orbit: Open the Report');
  await window.see('.tab[aria-label*="sizes-saxpy"]');
  await window.webview().locator('h1:has-text("saxpy")').waitFor();
  saw('report', 'beside the text');
  await window.picture(join(pictures, 'vscode-report.png'));
  await window.page.click('.tab[aria-label*="sizes-saxpy"]');
  await window.keyboard.press('Control+w');

  await window.open('memory_bound.cu');
  await window.page.click(window.lens('Run'));
  await window.see(window.line('⏱ 73.4 µs'));
  await window.page.click(window.lens('Profile'));
  await window.see(window.line('long scoreboard'));
  saw('profile', 'lens');
  await window.see('.tab[aria-label*="memory_bound-saxpy"]');
  await window.webview().locator('h1:has-text("saxpy")').waitFor();
  say('the report of a profile opens by itself where the setting wants it');
  await firstScreen(window);
  await window.palette('View: Toggle Primary Side Bar Visibility');
  await window.picture(join(pictures, 'vscode-profile-report.png'));
  await window.theme('Dark Modern');
  await window.see('.monaco-workbench.vs-dark');
  await until('a dark report', async () => (await ground(window)) !== 'rgb(255, 255, 255)');
  await window.picture(join(pictures, 'vscode-profile-report-dark.png'));
  await window.page.click('.tab[aria-label*="memory_bound-saxpy"]');
  await window.keyboard.press('Control+w');
  await window.goTo(1);
  await window.picture(join(pictures, 'vscode-dark.png'), { clip: TEXT });
  await window.open('sheet.cu');
  await window.see(window.lens('memory 79%'));
  await window.picture(join(pictures, 'vscode-sheet-dark.png'));
  await window.keyboard.press('Control+w');
  await window.theme('Light Modern');
  await window.see('.monaco-workbench.vs');
  await window.picture(join(pictures, 'vscode.png'), { clip: TEXT });
  await window.palette('View: Toggle Primary Side Bar Visibility');
  say('its report, in a dark theme too');

  await window.page.click('.statusbar-item:has-text("H100 80GB HBM3")');
  await window.see(
    '.quick-input-list .monaco-list-row[aria-label*="H100 80GB HBM3, of this machine"][aria-label*="now"]',
  );
  say('one click on the status bar lists the GPUs');
  await window.pick('B200');
  await window.palette('Orbit: Choose the GPU');
  await window.see('.quick-input-list .monaco-list-row[aria-label^="B200"][aria-label*="now"]');
  await window.keyboard.press('Escape');
  saw('choose', 'a picker with prices');

  await view({ window, saw, say, pictures });

  await window.palette('Welcome: Open Walkthrough');
  await window.pick('Orbit: the first five minutes');
  await window.see('.gettingStartedContainer .step-title:has-text("Install the server")');
  await window.see('.gettingStartedContainer .step-title:has-text("Run it")');
  const ticks = '.gettingStartedContainer .codicon-getting-started-step-checked.complete';
  await until('every step of the walkthrough is ticked', async () => (await window.page.locator(ticks).count()) >= 5);
  await window.picture(join(pictures, 'vscode-walkthrough.png'));
  say('the walkthrough: what is done is ticked');
  await window.keyboard.press('Control+w');
}

/** The view of the activity bar, and the buttons of the editor. */
async function view({ window, saw, say, pictures }) {
  await window.page.click('.activitybar .action-label[aria-label^="Orbit"]');
  const row = (text) => `.sidebar .monaco-list-row:has-text("${text}")`;
  await window.see(row('Profile saxpy'));
  await window.see(row('this machine'));
  await window.page.click(`${row('memory_bound.cu')} .monaco-tl-twistie`);
  await window.see(row('version 1'));
  await window.picture(join(pictures, 'vscode-view.png'));
  saw('panel', 'a view in the activity bar');
  await window.page.hover(row('memory_bound.cu'));
  await window.page.click(`${row('memory_bound.cu')} .action-label[aria-label^="Export"]`);
  await window.pick('CSV');
  await window.see('.tab.active[aria-label*=".csv"]');
  await window.see(window.line('dram__bytes'));
  saw('export', 'palette, view');
  await window.keyboard.press('Control+w');
  await window.page.click(row('memory_bound.cu'));
  await window.see('.tab[aria-label*="memory_bound-saxpy-history"]');
  say('a click on a kernel of the history opens its plot');
  await window.page.click('.tab[aria-label*="memory_bound-saxpy-history"]');
  await window.keyboard.press('Control+w');
  await window.page.click('.activitybar .action-label[aria-label^="Explorer"]');
  await window.open('program.cu');
  await window.goTo(2);
  await window.see('.editor-actions .action-label[aria-label^="Run the Kernel"]');
  await window.keyboard.press('Control+Alt+g');
  await window.keyboard.press('r');
  await window.see('.statusbar-item:has-text("Run saxpy: 288")');
  say('a button in the editor title, and keys');
  await window.palette('Orbit: Compare the Kernel');
  for (const listed of ['The first kernels', 'saxpy.cu'])
    await window.see(`.quick-input-list .monaco-list-row[aria-label*="${listed}"]`);
  await window.picture(join(pictures, 'vscode-compare.png'));
  await window.keyboard.press('Escape');
  say('a comparison: a list of versions, commits and files');
}

/** Beside the text a report shows verdict, source and roofline at once, and nothing goes off to the right. */
async function firstScreen(window) {
  const page = window.webview();
  const place = (one) => {
    const { bottom } = one.getBoundingClientRect();
    const { document } = one.ownerDocument.defaultView;
    return { bottom, wide: document.documentElement.scrollWidth - document.documentElement.clientWidth };
  };
  for (const part of ['.answer', 'table.lines', 'figure svg[aria-label^="Roofline"]']) {
    const { bottom, wide } = await page.locator(part).first().evaluate(place);
    if (bottom > 900 || wide > 0) throw new Error(`${part} of a report ends at ${bottom} px, ${wide} px too wide`);
  }
}

/** The colour behind a report. */
function ground(window) {
  const body = window.webview().locator('body');
  return body.evaluate((one) => one.ownerDocument.defaultView.getComputedStyle(one).backgroundColor);
}
