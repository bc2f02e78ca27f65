// @ts-check
// Finds orbit-lsp, starts it, starts it again when the workspace becomes trusted. Everything else is the server's.
'use strict';

const fs = require('fs');
const path = require('path');
const vscode = require('vscode');
const { LanguageClient } = require('vscode-languageclient/node');

const PROGRAM = process.platform === 'win32' ? 'orbit-lsp.exe' : 'orbit-lsp';
const MISSING =
  'orbit-lsp was found neither in the selected Python environment nor on PATH. Install it from its ' +
  "repository with: pip install -e '.[cuda]' - or set orbit.serverPath.";

/** @type {LanguageClient | undefined} */
let client;
/** One start or stop at a time. */
let turn = Promise.resolve();

/** @param {vscode.ExtensionContext} context */
async function activate(context) {
  const log = vscode.window.createOutputChannel('orbit-lsp');
  const restart = () => (turn = turn.then(stop).then(() => start(log)));
  context.subscriptions.push(
    log,
    vscode.commands.registerCommand('orbit.restartServer', restart),
    vscode.workspace.onDidGrantWorkspaceTrust(restart),
    vscode.workspace.onDidChangeConfiguration((change) => {
      if (change.affectsConfiguration('orbit.serverPath')) restart();
    }),
  );
  await restart();
}

/** @param {vscode.OutputChannel} log */
async function start(log) {
  const command = await findServer(log);
  if (command === undefined) {
    // not awaited: the message stands until it is dismissed, and a restart must not wait for that
    vscode.window.showErrorMessage(MISSING, 'Open Settings').then((choice) => {
      if (choice) vscode.commands.executeCommand('workbench.action.openSettings', 'orbit.serverPath');
    });
    return;
  }
  log.appendLine(`starting ${command}`);
  client = new LanguageClient(
    'orbit',
    'orbit-lsp',
    { command, args: [] },
    {
      // by suffix: other extensions give .cu and .cuh other languages
      documentSelector: [{ scheme: 'file', pattern: '**/*.{cu,cuh,py}' }],
      initializationOptions: {
        ...serverSettings(JSON.parse(JSON.stringify(vscode.workspace.getConfiguration('orbit')))),
        trusted: vscode.workspace.isTrusted,
      },
      synchronize: { configurationSection: 'orbit' },
      outputChannel: log,
      middleware: {
        workspace: {
          configuration: async (params, token, next) => {
            const answers = await next(params, token);
            return Array.isArray(answers) ? answers.map(serverSettings) : answers;
          },
        },
      },
    },
  );
  try {
    await client.start();
  } catch (error) {
    vscode.window.showErrorMessage(`orbit-lsp (${command}) could not be started: ${error}`);
  }
}

async function stop() {
  const old = client;
  client = undefined;
  if (old?.needsStop()) await old.stop();
}

/** The section `orbit` without what is for this client alone. @param {any} section */
function serverSettings(section) {
  if (section === null || typeof section !== 'object') return section;
  const { serverPath: _path, trace: _trace, ...rest } = section;
  return rest;
}

/**
 * The setting, then the selected Python environment (trusted workspaces only), then PATH.
 * @param {vscode.OutputChannel} log
 * @returns {Promise<string | undefined>}
 */
async function findServer(log) {
  const setting = vscode.workspace.getConfiguration('orbit').get('serverPath', '');
  if (setting) return setting;
  const folders = [await environmentFolder(log), ...(process.env.PATH ?? '').split(path.delimiter)];
  return folders
    .filter((folder) => folder && path.isAbsolute(folder))
    .map((folder) => path.join(/** @type {string} */ (folder), PROGRAM))
    .find((file) => fs.existsSync(file));
}

/**
 * Where the programs of the Python environment selected in VS Code are.
 * @param {vscode.OutputChannel} log
 */
async function environmentFolder(log) {
  const python = vscode.extensions.getExtension('ms-python.python');
  if (!python || !vscode.workspace.isTrusted) return undefined;
  try {
    const api = (await python.activate()).environments;
    const environment = await api.resolveEnvironment(api.getActiveEnvironmentPath());
    const executable = environment?.executable.uri?.fsPath;
    return executable && path.dirname(executable);
  } catch (error) {
    log.appendLine(`the Python extension did not say its environment: ${error}`);
    return undefined;
  }
}

function deactivate() {
  return (turn = turn.then(stop));
}

module.exports = { activate, deactivate };
