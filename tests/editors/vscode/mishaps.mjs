// What goes wrong, and what is said of it.

import { existsSync, renameSync, rmSync } from 'node:fs';
import { basename, join } from 'node:path';
import { until } from './code_server.mjs';

const RUNNING = '.statusbar-item:has-text("· Run saxpy")';

/** A workspace that names a program of its own: not started in Restricted Mode, started once the folder is trusted. */
export async function untrusted({ window, say, touched }) {
  await window.see('.statusbar-item:has-text("Restricted Mode")');
  await window.status('H100 80GB HBM3');
  if (existsSync(touched)) throw new Error('a program that an untrusted workspace names was started');
  say('in Restricted Mode the program that the workspace names is not started');
  await window.trust();
  await until('the program of the trusted workspace is started', () => existsSync(touched));
  say('trusted, it is');
}

/** ... and ends by itself at once, again and again. */
export async function ended({ window, saw, pictures }) {
  await window.see(window.message('5 times in a row'));
  await window.button('Show Log');
  await window.see('.panel .view-line:has-text("no module named pygls")');
  saw('ended', 'a message, with its log');
  await window.picture(join(pictures, 'vscode-crashed.png'));
}

export async function silent({ window, say }) {
  await window.see(window.message('said nothing for 30 s'));
  say('a program that is no language server is ended, and said');
}

/** Files that come to harm while they run. */
export async function moved({ window, say, place }) {
  await window.open('renamed.cu');
  await window.page.click(window.lens('Run'));
  await window.see(RUNNING);
  await window.explorerRename('renamed.cu', 'moved.cu');
  await window.see('.tab.active[aria-label*="moved.cu"]');
  await window.see(window.lens('Run'));
  await window.palette('Orbit: Cancel What Runs');
  await window.gone(RUNNING);
  say('a file renamed in mid-run: its run is cancelled all the same');
  await window.page.click(window.lens('▶ Run')); // not the lens of the run that was cancelled
  await window.see(RUNNING);
  rmSync(join(place, 'moved.cu'));
  await window.see('.tab.active:has-text("moved.cu") .strikethrough');
  await window.palette('Orbit: Cancel What Runs');
  await window.gone(RUNNING);
  say('a file deleted in mid-run: likewise');
  await window.keyboard.press('Control+w');

  await window.open('away.cu');
  await window.see(window.lens('Run'));
  renameSync(join(place, 'away.cu'), join(place, 'there.cu'));
  await window.see('.tab.active:has-text("away.cu") .strikethrough');
  await window.page.click(window.lens('Run'));
  await window.see(window.line('⏱'));
  say('a file that is no more on the disk is run as its editor has it');
  await window.keyboard.press('Control+w');
}

export async function tenThousandLines({ window, say }) {
  const started = Date.now();
  await window.open('long.cu');
  await window.see(window.lens('✎'));
  const opened = Date.now();
  await window.goTo(9_990);
  await window.see(window.line('saxpy999'));
  await window.see(window.lens('✎'));
  const typed = Date.now();
  await window.keyboard.insertText('__global__ void last(int n) {}\n');
  await window.see(window.line('void last'));
  say(`10,000 lines: lenses after ${opened - started} ms; at their end ${typed - opened} ms later; typing goes on`);
  await window.palette('File: Revert File');
  await window.keyboard.press('Control+w');
}

/** Two folders in one window, each with settings of its own: the window's count, and VS Code says so where they stand. */
export async function folders({ window, say, places }) {
  // on a busy machine code-server can show a workspace of several folders without any of them: loaded again, they are there
  const root = `.explorer-folders-view .monaco-list-row[aria-label^="${basename(places[0])}"]`;
  for (let left = 5; left && !(await window.has(root, 60_000)); left--) await window.page.reload();
  for (const place of places) {
    await window.open(`saxpy.cu ${basename(place)}`, 'saxpy.cu');
    await window.page.click(window.lens('Run'));
    await window.see(window.line('⏱'));
    await window.keyboard.press('Control+w');
  }
  await window.open(`settings.json ${basename(places[0])}`, 'settings.json');
  await window.see('.view-line span.squiggly-warning, .squiggly-hint, .squiggly-inline-unnecessary');
  say('two folders with settings of their own: one server, with those of the window');
}

/** The server is taken away, replaced by another version, and given back. */
export async function servers({ window, machine, other, saw, say, pictures }) {
  machine({ 'orbit.serverPath': other });
  await window.see(window.message('orbit-lsp 9.0.0 was started, but this extension is for 0.'));
  say('a server of another version');
  machine({ 'orbit.serverPath': '/nowhere/orbit-lsp' });
  await window.see(window.message("orbit.serverPath is '/nowhere/orbit-lsp', but there is no such program."));
  say('a setting that names no program');
  machine({ 'orbit.serverPath': '' });
  await window.see(window.message('orbit-lsp is not on PATH. Install it, or set orbit.serverPath.'));
  saw('missing', 'a message that offers to install it');
  await window.picture(join(pictures, 'vscode-missing.png'));
  await window.button('Open Settings');
  await window.see('.settings-editor .setting-item-label:has-text("Server Path")');
  say('*Open Settings* of the message opens the setting, in a window that is remote');
  await window.keyboard.press('Control+w');
  machine({});
  await window.status('H100 80GB HBM3');
  say('one that works, as soon as the setting names it');
}
