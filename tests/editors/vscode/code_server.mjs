// A real VS Code on this machine: code-server with a profile of its own, and windows of it in a headless Chromium.

import { execFileSync, spawn } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, openSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { delimiter, join } from 'node:path';

const PATIENCE_MS = 300_000; // the end of what hangs; a busy machine needs a tenth
/** Of every window: no chat beside the text, nothing that moves while it is looked at. */
const QUIET = {
  'chat.disableAIFeatures': true,
  'editor.cursorBlinking': 'solid',
  'editor.minimap.enabled': false,
  'files.autoSave': 'off',
  'remote.autoForwardPorts': false, // of other programs on a busy machine, with a message
  'security.workspace.trust.untrustedFiles': 'open',
  'workbench.reduceMotion': 'on',
  'workbench.secondarySideBar.defaultVisibility': 'hidden',
  'workbench.startupEditor': 'none',
  'workbench.tips.enabled': false,
};

export class CodeServer {
  /** `prefix` is what `install` filled. `env` is added to the environment of code-server and all that it starts. */
  constructor(prefix, env = {}) {
    this.scratch = mkdtempSync(join(tmpdir(), 'orbit-vscode-'));
    this.prefix = prefix;
    process.once('exit', () => this.end());
    for (const signal of ['SIGINT', 'SIGTERM']) process.once(signal, () => process.exit(1));
    this.env = {
      ...process.env,
      EXTENSIONS_GALLERY: '{}',
      HOME: join(this.scratch, 'home'),
      ...env,
    };
    for (const folder of ['data/Machine', 'data/User', 'home'])
      mkdirSync(join(this.scratch, folder), { recursive: true });
    writeFileSync(join(this.scratch, 'config.yaml'), 'auth: none\n');
    writeFileSync(join(this.scratch, 'data/User/settings.json'), JSON.stringify(QUIET));
    this.log = join(this.scratch, 'code-server.log');
  }

  get version() {
    const { version } = JSON.parse(
      readFileSync(join(this.prefix, 'node_modules/code-server/lib/vscode/package.json'), 'utf8'),
    );
    return version;
  }

  /** The settings of the machine that code-server is on: those that name programs count only there. */
  machine(values) {
    writeFileSync(join(this.scratch, 'data/Machine/settings.json'), JSON.stringify(values));
  }

  command(...args) {
    const options = [
      '--user-data-dir',
      join(this.scratch, 'data'),
      '--extensions-dir',
      join(this.scratch, 'extensions'),
    ];
    const entry = join(this.prefix, 'node_modules/code-server/out/node/entry.js');
    return [entry, '--config', join(this.scratch, 'config.yaml'), ...options, ...args];
  }

  /** Installs extensions: .vsix files. */
  install(...files) {
    const wanted = files.flatMap((file) => ['--install-extension', file]);
    execFileSync(join(this.prefix, 'node'), this.command(...wanted), {
      env: this.env,
      stdio: 'pipe',
    });
  }

  async start() {
    this.port = await freePort();
    const { chromium } = createRequire(join(this.prefix, 'package.json'))('playwright-core');
    const args = [
      '--auth',
      'none',
      '--bind-addr',
      `127.0.0.1:${this.port}`,
      '--disable-telemetry',
      '--disable-update-check',
    ];
    const log = openSync(this.log, 'w');
    this.host = spawn(join(this.prefix, 'node'), this.command(...args), {
      env: this.env,
      stdio: ['ignore', log, log],
      detached: true,
    });
    this.browser = await chromium.launch({
      executablePath: process.env.ORBIT_CHROMIUM ?? '/usr/bin/chromium',
      args: ['--no-sandbox', '--disable-gpu', '--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1'],
    });
    this.context = await this.browser.newContext({
      viewport: { width: 1280, height: 760 },
    });
    this.context.setDefaultTimeout(PATIENCE_MS);
    await this.listening();
  }

  async listening() {
    for (const end = Date.now() + PATIENCE_MS; Date.now() < end;) {
      if (this.host.exitCode !== null) throw new Error(`code-server ended: ${readFileSync(this.log, 'utf8').trim()}`);
      if ((await fetch(`http://127.0.0.1:${this.port}/healthz`).catch(() => undefined))?.ok) return;
      await new Promise((done) => setTimeout(done, 100));
    }
    throw new Error('code-server does not listen');
  }

  /** A window with a folder or a .code-workspace, and one of its files open. */
  async window(place, file) {
    const page = await this.context.newPage();
    const query = new URLSearchParams({
      [place.endsWith('.code-workspace') ? 'workspace' : 'folder']: place,
    });
    if (file) query.set('payload', JSON.stringify([['openFile', `vscode-remote://127.0.0.1:${this.port}${file}`]]));
    await page.goto(`http://127.0.0.1:${this.port}/?${query}`);
    return new Window(page);
  }

  async close() {
    await this.browser?.close();
    this.end();
  }

  /** Ends code-server with its children, which outlive it otherwise, and leaves nothing behind. */
  end() {
    try {
      if (this.host) process.kill(-this.host.pid, 'SIGKILL');
    } catch {
      // it had ended
    }
    rmSync(this.scratch, { recursive: true, force: true, maxRetries: 10, retryDelay: 200 });
  }
}

/** What a person does in a window, and what is seen there. */
export class Window {
  constructor(page) {
    this.page = page;
    this.keyboard = page.keyboard;
  }

  see(selector, options = {}) {
    return this.page.waitForSelector(selector, options);
  }

  /** Whether it is seen within a time. */
  has(selector, timeout) {
    return this.see(selector, { timeout }).then(
      () => true,
      () => false,
    );
  }

  gone(selector) {
    return this.see(selector, { state: 'detached' });
  }

  /** Waits for a status bar item with this text. */
  status(text) {
    return this.see(`.statusbar-item:has-text("${text}")`);
  }

  lens(text) {
    return `.editor-instance .codelens-decoration a:visible:has-text("${text}")`;
  }

  /** A line of the active editor, hints included. */
  line(text) {
    return `.editor-group-container.active .view-line:has-text("${text}")`;
  }

  async palette(title) {
    await this.ask('F1', title);
    await this.pick(title);
  }

  /** Opens what asks for a line of text, and types it. A key that comes while the focus moves is lost: then again. */
  async ask(key, text) {
    for (let left = 5; ; left--) {
      await this.page.keyboard.press(key);
      if (await this.has('.quick-input-widget input:focus', 10_000)) break;
      if (!left) throw new Error(`${key} opens nothing to type into`);
    }
    await this.page.keyboard.type(text);
  }

  /** The row of a code action at the cursor, once the list has it. A key that comes while the focus moves is lost, and an open list gets
   * no more actions: then again. */
  async action(title) {
    const row = `.action-widget .monaco-list-row:has-text("${title}")`;
    for (let left = 5; ; left--) {
      await this.page.keyboard.press('Control+.');
      if (await this.has(row, 10_000)) return row;
      if (!left) throw new Error(`no code action ${title}`);
      await this.page.keyboard.press('Escape');
    }
  }

  pick(title) {
    return this.page.click(`.quick-input-list .monaco-list-row[aria-label*="${title}"]`);
  }

  /** Opens a file of the workspace by its name, or the words to find it by. */
  async open(words, name = words) {
    await this.ask('Control+p', words);
    await this.pick(name);
    await this.see(`.tab.active[aria-label*="${name}"]`);
  }

  /** Puts the cursor into the text, by the numbers of line and column. */
  async goTo(line, column = 1) {
    await this.ask('Control+g', `${line}:${column}`);
    await this.see(`.quick-input-list .monaco-list-row:has-text("line ${line}")`);
    await this.page.keyboard.press('Enter');
    await this.see(`.statusbar-item:has-text("Ln ${line}, Col ${column}")`);
  }

  /** The hover at a place of the text, once it has the words. A key that comes while the focus moves, or a message closes, is lost: then
   * again. */
  async hover(line, column, words) {
    for (let left = 5; ; left--) {
      await this.goTo(line, column);
      await this.keyboard.press('Control+k');
      await this.keyboard.press('Control+i');
      if (await this.has(`.monaco-hover .hover-contents:has-text("${words}")`, 10_000)) return;
      if (!left) throw new Error(`no hover with ${words}`);
      await this.keyboard.press('Escape');
    }
  }

  /** One of the `items` of the submenu *Orbit* of the text's context menu, at the cursor. Rejects where an item is missing. */
  async context(title, items) {
    await this.keyboard.press('Shift+F10');
    await this.see('.monaco-menu .action-label[aria-label="Orbit"]');
    await this.page.hover('.monaco-menu .action-label[aria-label="Orbit"]');
    for (const item of items) await this.see(`.monaco-menu .action-label[aria-label^="${item}"]`);
    await this.page.click(`.monaco-menu .action-label[aria-label^="${title}"]`);
  }

  async trust() {
    await this.see('.statusbar-item:has-text("Restricted Mode")');
    await this.see('.view-line'); // the workbench takes keys before it acts on them
    await this.palette('Workspaces: Manage Workspace Trust');
    await this.page.click('.workspace-trust-editor .monaco-button:text-is("Trust")');
    await this.gone('.statusbar-item:has-text("Restricted Mode")');
    await this.page.click('.monaco-modal-editor-block [aria-label^="Close"]');
    await this.gone('.workspace-trust-editor');
  }

  /** The text as it was before the last edit. */
  undo() {
    return this.keyboard.press('Control+z');
  }

  save() {
    return this.keyboard.press('Control+s');
  }

  async theme(name) {
    await this.palette('Preferences: Color Theme');
    await this.pick(name);
  }

  /** What is in a panel of HTML: its frame's frame. While another text comes, there is a second one, which is not yet shown. */
  webview() {
    return this.page.frameLocator('iframe.webview').frameLocator('iframe#active-frame');
  }

  async explorerRename(from, to) {
    await this.page.click(`.explorer-folders-view .monaco-list-row[aria-label^="${from}"]`);
    await this.keyboard.press('F2');
    await this.see('.explorer-item-edited input:focus');
    await this.keyboard.press('Control+a');
    await this.keyboard.type(to);
    await this.keyboard.press('Enter');
  }

  /** Waits until the status bar counts this many errors. */
  errors(count) {
    return this.see(
      `#status\\.problems:has-text("${count}") .codicon-error, #status\\.problems[aria-label*="${count ? `Errors: ${count}` : 'No Problems'}"]`,
    );
  }

  /** Shows or hides the list of problems. */
  problems() {
    return this.keyboard.press('Control+Shift+m');
  }

  message(text) {
    return `.notification-list-item-message:has-text("${text}")`;
  }

  async button(text) {
    await this.page.click(`.notification-list-item .monaco-button:has-text("${text}")`);
  }

  picture(file, options = {}) {
    return this.page.screenshot({ path: file, ...options });
  }
}

/** PATH without the folders that have one of these programs. */
export function pathWithout(...programs) {
  const folders = process.env.PATH.split(delimiter);
  return folders.filter((one) => !programs.some((name) => existsSync(join(one, name)))).join(delimiter);
}

/** Waits for what no selector sees. */
export async function until(what, condition) {
  for (const end = Date.now() + PATIENCE_MS; !(await condition()); await new Promise((done) => setTimeout(done, 50)))
    if (Date.now() > end) throw new Error(`not within ${PATIENCE_MS / 1000} s: ${what}`);
}

function freePort() {
  return new Promise((done) => {
    const probe = createServer().listen(0, '127.0.0.1', () => {
      const { port } = probe.address();
      probe.close(() => done(port));
    });
  });
}
