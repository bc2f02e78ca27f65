// An author's session, action by action, as tests/editors/session.py has it for terminals; after each action, what was told.
// Counted are dialogs, messages that come twice for one action, and toasts though nothing is wrong.

import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { until } from './code_server.mjs';
import { files as common } from './files.mjs';

const TIME = '⏱ 288 µs';
const CRASH = `__global__ void saxpy(int n, float a, const float* x, float* y) {
  y[n] = a * x[n];
}
int main() { saxpy<<<1, 256>>>(0, 1, 0, 0); }
`;
const TRITON = `# pyright: basic
import triton
import triton.language as tl


# orbit: n = 1 << 20; x = randn(n); y = empty(n)
# orbit: launch double[(triton.cdiv(n, 1024),)](x, y, n, BLOCK=1024)
@triton.jit
def double(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, 2 * tl.load(x + at, mask=at < n), mask=at < n)
`;
export const files = {
  ...common,
  'wrong.cu': `${common['saxpy.cu']}// WRONG\n`,
  'crash.cu': `${CRASH}// CRASH\n`,
  'moved0.cu': CRASH,
  'double.py': TRITON,
};

const { contributes } = JSON.parse(
  readFileSync(new URL('../../../editors/vscode/package.json', import.meta.url), 'utf8'),
);
/** The submenu *Orbit* of the text's context menu. */
const menu = contributes.menus['orbit.kernel'].map(
  ({ command }) => contributes.commands.find((one) => one.command === command).title,
);

/** `told` is the file that tests/editors/told.py writes. */
class Session {
  constructor(window, told) {
    this.window = window;
    this.file = told;
    this.actions = 0;
    this.faults = { dialogs: [], doubled: [], toasts: [] };
    this.problem = false; // whether something is wrong now, so that a toast is due
  }

  /** Notes every toast and dialog from now on. */
  async watch() {
    await this.window.page.evaluate(() => {
      const words = { toasts: '.notifications-toasts .notification-list-item-message', dialogs: '.monaco-dialog-box' };
      globalThis.shownToAuthor = [];
      const look = () => {
        for (const [kind, selector] of Object.entries(words))
          for (const item of document.querySelectorAll(selector)) {
            const text = item.textContent;
            if (!text || item.noted === text) continue;
            item.noted = text;
            globalThis.shownToAuthor.push({ kind, text });
          }
      };
      new MutationObserver(look).observe(document.body, { childList: true, subtree: true, characterData: true });
    });
  }

  told() {
    const text = existsSync(this.file) ? readFileSync(this.file, 'utf8') : '';
    const whole = text.slice(0, text.lastIndexOf('\n') + 1);
    return whole
      .split('\n')
      .filter(Boolean)
      .map((line) => JSON.parse(line));
  }

  async act(what, work, ...seen) {
    const before = this.told().length;
    await work();
    for (const selector of seen) await this.window.see(selector);
    this.actions += 1;
    const shown = await this.window.page.evaluate(() => globalThis.shownToAuthor.splice(0));
    for (const { kind, text } of shown)
      if (kind === 'dialogs' || !this.problem) this.faults[kind].push(`${what}: ${text}`);
    const texts = this.told()
      .slice(before)
      .map((line) => line.text)
      .filter(Boolean);
    texts.forEach((text, index) => {
      if (texts.slice(index + 1).some((other) => other.includes(text))) this.faults.doubled.push(`${what}: ${text}`);
    });
  }

  /** To the end of a run, of which a progress or a message tells. */
  run(what, work, ...seen) {
    const ends = () => this.told().filter(({ title = '' }) => !title.startsWith('Compile')).length;
    const before = ends();
    return this.act(
      what,
      async () => {
        await work();
        await until(`${what}: its end`, () => ends() > before);
      },
      ...seen,
    );
  }

  figures() {
    const counts = Object.entries(this.faults).map(([kind, found]) => `${found.length} ${kind}`);
    const listed = Object.values(this.faults).flat();
    return [`${this.actions} actions: ${counts.join(', ')}`, ...listed.map((text) => `  ${text}`)].join('\n');
  }
}

async function round(session, number) {
  const { window } = session;
  const { page, keyboard } = window;
  const act = session.act.bind(session);
  const run = session.run.bind(session);
  const click = (selector) => () => page.click(selector);
  const press = (keys) => () => keyboard.press(keys);
  const palette = (title) => () => window.palette(title);
  const open = (name, ...seen) => act(`open ${name}`, () => window.open(name), ...seen);
  const close = (what) => act(`close ${what}`, press('Control+w'));
  const chord = (letter) => async () => {
    await keyboard.press('Control+Alt+g');
    await keyboard.press(letter);
  };

  await open('saxpy.cu', window.lens('Run'));
  await run('Run', click(window.lens('Run')), window.line(TIME));
  await act('hover', () => window.hover(4, 17, '288 µs'), '.monaco-hover .hover-contents:has-text("288 µs")');
  await act('close the hover', press('Escape'));
  await act('go to a line', () => window.goTo(6));
  await act('to its end', press('End'));
  await act('edit', () => keyboard.insertText(`v${number};`), window.line('edited since'));
  await act('undo', () => window.undo());
  await window.gone(window.line('edited since'));
  session.problem = true;
  await act('break', () => keyboard.insertText('BUG'));
  await act('save', () => window.save(), '.squiggly-error');
  await act('problems', () => window.problems(), '.markers-panel .monaco-list-row:has-text("undefined")');
  await act('close the problems', palette('View: Toggle Panel Visibility'));
  session.problem = false;
  await act('fix', () => window.undo());
  await act('save', () => window.save());
  await window.gone('.squiggly-error');
  await act('go to the kernel', () => window.goTo(4));
  await act('code actions', press('Control+.'), '.action-widget .monaco-list-row:has-text("Run on H100")');
  await act('close them', press('Escape'));

  await act('go to a line', () => window.goTo(6));
  await act('to its end', press('End'));
  await act('edit', () => keyboard.insertText(`w${number};`), window.line('edited since'));
  await act('save', () => window.save());
  await run('Run by keys', chord('r'));
  await run('compare with the version before', async () => {
    await window.palette('Orbit: Compare the Kernel');
    await window.pick('the version before');
  });
  await act('history', chord('h'), '.tab[aria-label*="saxpy-saxpy-history"]');
  await act('look at it', click('.tab[aria-label*="saxpy-saxpy-history"]'));
  await close('the history');
  await act('live', palette('Orbit: Live'), window.lens('◉ Live'));
  await act('edit', () => keyboard.insertText('u;'));
  await run('save, which runs it', () => window.save());
  await act('live, off', palette('Orbit: Live'));
  await window.gone(window.lens('◉ Live'));
  await act('undo', () => window.undo());
  await act('save', () => window.save());
  await act(
    'a GPU to rent',
    async () => {
      await window.palette('Orbit: Choose the GPU');
      await window.pick('L4,');
    },
    '.statusbar-item:has-text("on Modal they would get L4")',
  );

  await open('slow.cu', window.lens('Run'));
  await act('Run', click(window.lens('Run')), '.statusbar-item:has-text("· Run saxpy")', window.lens('(cancel)'));
  await run('cancel', click(window.lens('(cancel)')));

  await open('alone.cu', window.lens('Draft'));
  await act('draft', click(window.lens('Draft')), window.line('orbit: launch alone<<<'), window.lens('Run'));
  await run('Run', click(window.lens('Run')));
  await act('undo', () => window.undo(), window.lens('Draft'));

  await open('memory_bound.cu', window.lens('Profile'));
  await act('go to the kernel', () => window.goTo(4));
  await run('Profile', click(window.lens('Profile')), window.lens('memory 79%'));
  await act('report', click(window.lens('memory 79%')), '.tab[aria-label*="memory_bound-saxpy"]');
  await act('look at it', click('.tab[aria-label*="memory_bound-saxpy"]'));
  await close('the report');
  await act('output', palette('Orbit: Show the Output'), '.panel .view-line:has-text("■ Profile saxpy")');
  await act('close the output', palette('View: Toggle Panel Visibility'));
  await act(
    'export',
    async () => {
      await window.palette('Orbit: Export');
      await window.pick('CSV');
    },
    '.tab.active[aria-label*=".csv"]',
  );
  await close('the export');

  session.problem = true;
  await open('wrong.cu', window.lens('Run'));
  await run('Run, a wrong answer', click(window.lens('Run')), window.lens('✗'));
  await act('why', click(window.lens('✗')), '.tab[aria-label*="wrong-saxpy"]');
  await act('look at it', click('.tab[aria-label*="wrong-saxpy"]'));
  await close('the report');
  await open('crash.cu', window.lens('Run'));
  await run('Run, a crash', click(window.lens('Run')), window.message('the worker process ended'));
  await act('away with it', palette('Notifications: Clear All'));
  session.problem = false;

  await open(`moved${number}.cu`, window.lens('Run'));
  await run('Run', click(window.lens('Run')), window.line(TIME));
  const next = `moved${number + 1}.cu`;
  await act(
    'rename',
    () => window.explorerRename(`moved${number}.cu`, next),
    `.tab.active[aria-label*="${next}"]`,
    window.line(TIME),
  );
  await act('go to the kernel', () => window.goTo(1, 20));
  await run('Run from the context menu', () => window.context('Run the Kernel', menu));

  await act('the view', click('.activitybar .action-label[aria-label^="Orbit"]'));
  const row = (text) => `.sidebar .monaco-list-row:has-text("${text}")`;
  await act('a run of the list', click(`${row('Run saxpy')} >> nth=0`), `.tab.active[aria-label*="${next}"]`);
  await act('back to the files', click('.activitybar .action-label[aria-label^="Explorer"]'));
  await open('double.py', window.lens('Run'));
  await run('Run', click(window.lens('Run')));
  await act('close all files', palette('View: Close All Editors'));
}

export async function session({ window, told, say, seen, rounds = 1 }) {
  await window.see('.statusbar-item:has-text("H100 80GB HBM3")');
  const whole = new Session(window, told);
  await whole.watch();
  for (let number = 0; number < rounds; number++) await round(whole, number);
  const text = `vscode: ${rounds} rounds, ${whole.figures()}`;
  if (seen) {
    mkdirSync(join(seen, 'sheets'), { recursive: true });
    writeFileSync(join(seen, 'sheets/session-vscode.txt'), `${text}\n`);
  }
  if (Object.values(whole.faults).flat().length > 0) throw new Error(text);
  say(text);
}
