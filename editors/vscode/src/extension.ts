// What VS Code adds to the server: finding it, its palette, its status bar item. All else is the server's.

import { spawn } from 'node:child_process';
import * as fs from 'node:fs';
import * as os from 'node:os';
import * as vscode from 'vscode';
import { MessageType } from 'vscode-languageclient/node';
import { buttons, Tree, TREES } from './panel';
import { canFetch, findProgram, findServer, installation, mismatch, type Place, type Server } from './discovery';
import { type Selected, selectedPython, watchPython } from './python';
import { Listings } from './listings';
import { Reports } from './report';
import { ServerHandle } from './server';
import { show } from './status';

const ENDING_SHOWN_MS = 10_000;
/** Characters that a status bar has room for. */
const PASSING = 120;
/** Until a tab shows what is in it. */
const OPENED_MS = 1_000;

let handle: ServerHandle | undefined;

export async function activate(context: vscode.ExtensionContext): Promise<void> {
  const output = vscode.window.createOutputChannel('Orbit');
  const log = vscode.window.createOutputChannel('Orbit Server');
  const item = vscode.window.createStatusBarItem('orbit.status', vscode.StatusBarAlignment.Left);
  const reports = new Reports();
  const listings = new Listings();
  const { version } = context.extension.packageJSON as { version: string };
  let saidMismatch: string | undefined;
  item.name = 'Orbit';
  item.command = 'orbit.status';
  const trees = Object.fromEntries(TREES.map((name) => [name, new Tree()])) as Record<(typeof TREES)[number], Tree>;
  const kernels = new Map<string, boolean>();

  let selected: Selected | undefined;
  const place = async (): Promise<Place> => ({
    setting: vscode.workspace.getConfiguration('orbit').get('serverPath', ''),
    python: (selected = await selectedPython(log))?.path,
    path: process.env.PATH ?? '',
    platform: process.platform,
    home: os.homedir(),
    version,
    uvx: context.globalState.get('uvx') === version,
    own: vscode.Uri.joinPath(context.globalStorageUri, 'server').fsPath,
    variables: Object.keys(process.env),
    isProgram,
  });

  const server = new ServerHandle(
    { output, log },
    {
      find: async () => {
        const here = await place();
        const found = findServer(here);
        if ('command' in found) return found;
        void offer(found.problem, here); // it stands until it is answered, and a restart must not wait for that
        return undefined;
      },
      changed: () => {
        const shown = show(server.state, server.panel?.status);
        item.text = shown.text;
        item.tooltip = shown.tooltip;
        item.show();
        for (const name of TREES) trees[name].show(server.panel?.[name] ?? []);
        setContext('orbit.running', server.state === 'running');
        tick();
        const wrong = server.info && mismatch(server.info.version, version);
        if (wrong && wrong !== saidMismatch) {
          saidMismatch = wrong;
          void vscode.window.showWarningMessage(wrong);
        }
      },
      gaveUp: (sentence) => void sayGaveUp(sentence),
      python: () => (selected?.environment ? selected.path : undefined),
      command,
      report: (page) => reports.show(page),
      beside: (text, selection) => listings.show(text, selection),
      debug: ({ name, host, port }) => {
        const attach = { type: 'orbit', request: 'attach', name, host, port, justMyCode: true };
        void vscode.debug.startDebugging(undefined, attach);
      },
      choose,
      ended: (title, how) => vscode.window.setStatusBarMessage(`$(check) ${title}: ${how}`, ENDING_SHOWN_MS),
      said: (type, text) => say(type, text, output),
      lenses: (file, count) => {
        kernels.set(file.toString(), count > 0);
        here();
      },
    },
  );
  handle = server;

  /** Ticks the steps of the walkthrough: VS Code sees only what becomes true while it has the walkthrough open. */
  function tick(): void {
    const done = [...(server.state === 'running' ? ['server'] : []), ...(server.panel?.done ?? [])];
    for (const value of ['now', '']) for (const step of done) setContext(`orbit.done.${step}`, value);
  }

  /** Whether buttons and keys have a kernel to be about; those of a notebook's cell are run by the cell's own. */
  function here(): void {
    const uri = vscode.window.activeTextEditor?.document.uri;
    setContext('orbit.kernels', uri?.scheme === 'file' && kernels.get(uri.toString()) === true);
  }

  async function sayGaveUp(sentence: string): Promise<void> {
    const choice = await vscode.window.showErrorMessage(sentence, 'Show Log', 'Restart');
    if (choice === 'Show Log') log.show();
    if (choice === 'Restart') await server.restart();
  }

  async function offer(problem: string, here: Place): Promise<void> {
    log.appendLine(problem);
    const install = installation(here) ? 'Install' : 'How to Install';
    const fetches = !here.setting && !here.uvx && canFetch('UV', here) && findProgram('uvx', here);
    const fetch = fetches ? [`Use uvx orbit-lsp@${version}`] : [];
    const choice = await vscode.window.showErrorMessage(problem, install, ...fetch, 'Open Settings');
    if (choice === install) await installServer();
    else if (choice === 'Open Settings') await openSettings('orbit.serverPath');
    else if (choice) {
      await context.globalState.update('uvx', version);
      await server.restart();
    }
  }

  async function installServer(): Promise<void> {
    const here = await place();
    const lines = installation(here);
    if (!lines) {
      await vscode.commands.executeCommand('workbench.action.openWalkthrough', `${context.extension.id}#first`);
      return;
    }
    try {
      await vscode.window.withProgress(
        { location: vscode.ProgressLocation.Notification, title: 'Installing orbit-lsp' },
        async () => {
          for (const [program, ...args] of lines) await carryOut(program, args, log);
        },
      );
      await server.restart();
    } catch (error) {
      const choice = await vscode.window.showErrorMessage(`orbit-lsp was not installed: ${error}`, 'Show Log');
      if (choice) log.show();
    }
  }

  /** A command of the server's as the palette, a lens or a code action sends it. */
  async function command(name: string, args: unknown[], next: (args: unknown[]) => Promise<unknown>): Promise<unknown> {
    if (name === 'orbit.showOutput') {
      output.show(true);
      return undefined;
    }
    // a button of the editor's title sends the file
    if (args.length > 0 && !(args[0] instanceof vscode.Uri)) return next(args);
    if (name === 'orbit.chooseGpu') return chooseGpu(next);
    if (name === 'orbit.info') return showInfo(await next([]));
    const editor = vscode.window.activeTextEditor;
    if (editor) await server.lookAt(editor);
    return next([]);
  }

  async function chooseGpu(next: (args: unknown[]) => Promise<unknown>): Promise<unknown> {
    const choices = server.panel?.choices ?? [];
    if (choices.length === 0) return next([]);
    const items = choices.map(({ label, gpu, now }) => ({ label, gpu, description: now ? 'now' : '' }));
    const choice = await vscode.window.showQuickPick(items, { title: 'The GPU that runs get' });
    return choice && next([{ gpu: choice.gpu }]);
  }

  /** A short question is a message with buttons, one with a list below it a dialog, which alone keeps lines; many answers are picked from. */
  async function choose(question: string, answers: string[]): Promise<string | undefined> {
    const [first = '', ...rest] = question.split('\n');
    if (rest.length > 0)
      return vscode.window.showInformationMessage(first, { modal: true, detail: rest.join('\n') }, ...answers);
    if (answers.length < 3) return vscode.window.showInformationMessage(question, ...answers);
    return vscode.window.showQuickPick(answers, { title: question, ignoreFocusOut: true });
  }

  async function showInfo(info: unknown): Promise<void> {
    const text = `${JSON.stringify(info, undefined, 2)}\n`;
    await vscode.window.showTextDocument(await vscode.workspace.openTextDocument({ language: 'json', content: text }));
  }

  /** One click: the GPUs to choose from, and below them what else there is. */
  async function menu(): Promise<void> {
    const always = [
      { label: '$(output) Show the Output of Runs', command: 'orbit.showOutput' },
      { label: "$(list-flat) Show the Server's Log", command: 'orbit.showLog' },
      { label: '$(refresh) Restart the Server', command: 'orbit.restartServer' },
      { label: '$(gear) Open Settings', command: 'orbit.openSettings' },
    ];
    const running =
      server.running.size > 0 ? [{ label: '$(debug-stop) Cancel What Runs', command: 'orbit.cancel' }] : [];
    const rented =
      (server.info?.rented.length ?? 0) > 0
        ? [{ label: '$(flame) Show Which Modal GPUs Are Rented', command: 'orbit.sessions' }]
        : [];
    const gpus = (server.panel?.choices ?? []).map(({ label, gpu, now }) => ({
      label: `$(circuit-board) ${label}`,
      description: now ? 'now' : '',
      command: 'orbit.chooseGpu',
      argument: { gpu },
    }));
    const line = { label: '', kind: vscode.QuickPickItemKind.Separator, command: '' };
    const items: (vscode.QuickPickItem & { command: string; argument?: object })[] = [
      ...gpus,
      line,
      ...running,
      ...rented,
      ...always,
    ];
    const choice = await vscode.window.showQuickPick(items, {
      title: show(server.state, server.panel?.status).tooltip,
    });
    if (choice) await vscode.commands.executeCommand(choice.command, ...(choice.argument ? [choice.argument] : []));
  }

  context.subscriptions.push(
    output,
    log,
    item,
    reports,
    listings,
    vscode.commands.registerCommand('orbit.restartServer', () => server.restart()),
    vscode.commands.registerCommand('orbit.install', installServer),
    vscode.debug.registerDebugAdapterDescriptorFactory('orbit', {
      createDebugAdapterDescriptor: ({ configuration }) =>
        new vscode.DebugAdapterServer(configuration.port as number, configuration.host as string),
    }),
    ...TREES.map((name) => vscode.window.registerTreeDataProvider(`orbit.${name}`, trees[name])),
    ...buttons(['cancel', 'report', 'release', 'keep', 'compare', 'export']),
    vscode.window.onDidChangeActiveTextEditor(here),
    // before the server has looked at the file under its new name
    vscode.workspace.onDidRenameFiles(({ files }) => {
      for (const { oldUri, newUri } of files) {
        kernels.set(newUri.toString(), kernels.get(oldUri.toString()) === true);
        kernels.delete(oldUri.toString());
      }
      here();
    }),
    vscode.window.tabGroups.onDidChangeTabs(() => setTimeout(tick, OPENED_MS)),
    vscode.commands.registerCommand('orbit.openSettings', () => openSettings('@ext:orbit-lsp.orbit-lsp')),
    vscode.commands.registerCommand('orbit.showLog', () => log.show()),
    vscode.commands.registerCommand('orbit.status', menu),
    vscode.workspace.onDidGrantWorkspaceTrust(() => {
      void server.restart();
      void watch();
    }),
    // the Python extension may come later than this one
    vscode.extensions.onDidChange(() => {
      void anotherPython();
      void watch();
    }),
    { dispose: () => void watching?.dispose() },
    vscode.workspace.onDidChangeConfiguration((change) => {
      if (change.affectsConfiguration('orbit.serverPath')) void server.restart();
    }),
  );

  let watching: vscode.Disposable | undefined;
  async function watch(): Promise<void> {
    watching ??= await watchPython(log, () => void anotherPython());
  }

  async function anotherPython(): Promise<void> {
    const before = selected?.path;
    const found = findServer(await place());
    if ('command' in found && (!same(found, server.server) || before !== selected?.path)) await server.restart();
  }

  await server.restart();
  void watch();
}

export function deactivate(): Promise<void> | undefined {
  return handle?.stop();
}

/** A problem pops up as a message. Everything else stands in the status bar and in the output of runs. */
function say(type: MessageType, text: string, output: vscode.OutputChannel): void {
  if (type === MessageType.Error) void vscode.window.showErrorMessage(text);
  else if (type === MessageType.Warning) void vscode.window.showWarningMessage(text);
  else if (text.length > PASSING) void vscode.window.showInformationMessage(text);
  else {
    vscode.window.setStatusBarMessage(`$(info) ${text}`, ENDING_SHOWN_MS);
    output.appendLine(text);
  }
}

function setContext(name: string, value: boolean | string): void {
  void vscode.commands.executeCommand('setContext', name, value);
}

/** In a remote window settings of the machine are shown only among those of the remote one. */
async function openSettings(query: string): Promise<void> {
  const remote = vscode.env.remoteName === undefined ? '' : 'Remote';
  await vscode.commands.executeCommand(`workbench.action.open${remote}Settings`, { query });
}

/** Runs a program to its end, its words in the log. Rejects where it fails. */
function carryOut(program: string, args: string[], log: vscode.OutputChannel): Promise<void> {
  log.appendLine([program, ...args].join(' '));
  return new Promise((done, failed) => {
    const child = spawn(program, args, { cwd: os.homedir(), stdio: ['ignore', 'pipe', 'pipe'] });
    for (const stream of [child.stdout, child.stderr])
      stream.setEncoding('utf8').on('data', (text: string) => log.append(text));
    child.once('error', failed);
    child.once('close', (code) => (code === 0 ? done() : failed(new Error(`${program} ended with exit code ${code}`))));
  });
}

function same(one: Server, other: Server | undefined): boolean {
  return one.command === other?.command && one.args.join() === other.args.join();
}

function isProgram(file: string): boolean {
  try {
    fs.accessSync(file, fs.constants.X_OK);
    return fs.statSync(file).isFile();
  } catch {
    return false;
  }
}
