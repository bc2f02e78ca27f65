// What VS Code adds to the server: finding it, its palette, its status bar item. All else is the server's.

import * as fs from 'node:fs';
import * as os from 'node:os';
import * as vscode from 'vscode';
import { findProgram, findServer, installation, mismatch, type Place, type Server } from './discovery';
import { type Selected, selectedPython, watchPython } from './python';
import { Reports } from './report';
import { ServerHandle } from './server';
import { show } from './status';

let handle: ServerHandle | undefined;

export async function activate(context: vscode.ExtensionContext): Promise<void> {
  const output = vscode.window.createOutputChannel('Orbit');
  const log = vscode.window.createOutputChannel('Orbit Server');
  const item = vscode.window.createStatusBarItem('orbit.status', vscode.StatusBarAlignment.Left);
  const reports = new Reports();
  const { version } = context.extension.packageJSON as { version: string };
  let saidMismatch: string | undefined;
  item.name = 'Orbit';
  item.command = 'orbit.status';

  let selected: Selected | undefined;
  const place = async (): Promise<Place> => ({
    setting: vscode.workspace.getConfiguration('orbit').get('serverPath', ''),
    python: (selected = await selectedPython(log))?.path,
    path: process.env.PATH ?? '',
    platform: process.platform,
    home: os.homedir(),
    version,
    uvx: context.globalState.get('uvx') === version,
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
        const shown = show(server.state, server.info, [...server.running.values()]);
        item.text = shown.text;
        item.tooltip = shown.tooltip;
        item.show();
        void vscode.commands.executeCommand('setContext', 'orbit.running', server.state === 'running');
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
    },
  );
  handle = server;

  async function sayGaveUp(sentence: string): Promise<void> {
    const choice = await vscode.window.showErrorMessage(sentence, 'Show Log', 'Restart');
    if (choice === 'Show Log') log.show();
    if (choice === 'Restart') await server.restart();
  }

  async function offer(problem: string, here: Place): Promise<void> {
    log.appendLine(problem);
    const install = installation(here) ? ['Install'] : [];
    const fetch = !here.setting && !here.uvx && findProgram('uvx', here) ? [`Use uvx orbit-lsp@${version}`] : [];
    const choice = await vscode.window.showErrorMessage(problem, ...install, ...fetch, 'Open Settings');
    if (choice === 'Install') await installServer();
    else if (choice === 'Open Settings')
      await vscode.commands.executeCommand('workbench.action.openSettings', 'orbit.serverPath');
    else if (choice) {
      await context.globalState.update('uvx', version);
      await server.restart();
    }
  }

  async function installServer(): Promise<void> {
    const line = installation(await place());
    if (!line) {
      void vscode.window.showErrorMessage(
        'Select a Python environment first (Python: Select Interpreter), in a trusted workspace.',
      );
      return;
    }
    const [program, ...args] = line as [string, ...string[]];
    const task = new vscode.Task(
      { type: 'orbit.install' },
      vscode.TaskScope.Workspace,
      'Install orbit-lsp',
      'Orbit',
      new vscode.ProcessExecution(program, args),
    );
    const execution = await vscode.tasks.executeTask(task);
    const ended = vscode.tasks.onDidEndTaskProcess((event) => {
      if (event.execution !== execution) return;
      ended.dispose();
      if (event.exitCode === 0) void server.restart();
    });
    context.subscriptions.push(ended);
  }

  /** A command of the server's as the palette, a lens or a code action sends it. */
  async function command(name: string, args: unknown[], next: (args: unknown[]) => Promise<unknown>): Promise<unknown> {
    if (args.length > 0) return next(args);
    if (name === 'orbit.chooseGpu') return chooseGpu(next);
    if (name === 'orbit.info') return showInfo(await next([]));
    const editor = vscode.window.activeTextEditor;
    if (editor) await server.lookAt(editor);
    return next([]);
  }

  async function chooseGpu(next: (args: unknown[]) => Promise<unknown>): Promise<unknown> {
    const info = server.info;
    if (!info || Object.keys(info.gpus).length === 0) return next([]);
    const items = Object.entries(info.gpus).map(([label, gpu]) => ({
      label,
      gpu,
      description: gpu === info.chosen ? 'now' : '',
    }));
    const choice = await vscode.window.showQuickPick(items, { title: 'The GPU that runs on Modal get' });
    return choice && next([{ gpu: choice.gpu }]);
  }

  async function showInfo(info: unknown): Promise<void> {
    const text = `${JSON.stringify(info, undefined, 2)}\n`;
    await vscode.window.showTextDocument(await vscode.workspace.openTextDocument({ language: 'json', content: text }));
  }

  async function menu(): Promise<void> {
    const entries: [string, string][] = [
      ['$(circuit-board) Choose the Modal GPU', 'orbit.chooseGpu'],
      ['$(flame) Show Which Modal GPUs Are Rented', 'orbit.sessions'],
      ['$(debug-stop) Cancel What Runs', 'orbit.cancel'],
    ];
    const always: [string, string][] = [
      ['$(output) Show the Output of Runs', 'orbit.showOutput'],
      ["$(list-flat) Show the Server's Log", 'orbit.showLog'],
      ['$(refresh) Restart the Server', 'orbit.restartServer'],
    ];
    const items = [...(server.state === 'running' ? entries : []), ...always].map(([label, command]) => ({
      label,
      command,
    }));
    const choice = await vscode.window.showQuickPick(items, {
      title: show(server.state, server.info, [...server.running.values()]).tooltip,
    });
    // with no kernel named, `orbit.cancel` ends whatever runs
    if (choice) await vscode.commands.executeCommand(choice.command);
  }

  context.subscriptions.push(
    output,
    log,
    item,
    reports,
    vscode.commands.registerCommand('orbit.restartServer', () => server.restart()),
    vscode.commands.registerCommand('orbit.install', installServer),
    vscode.commands.registerCommand('orbit.showOutput', () => output.show()),
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
