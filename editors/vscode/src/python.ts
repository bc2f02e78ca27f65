// The Python that is selected in VS Code, as the Python extension says it.

import * as vscode from 'vscode';

const PATIENCE_MS = 10_000;

interface Environments {
  getActiveEnvironmentPath(): unknown;
  resolveEnvironment(path: unknown): Promise<{ executable: { uri?: vscode.Uri }; environment?: unknown } | undefined>;
  onDidChangeActiveEnvironmentPath: vscode.Event<unknown>;
}

export interface Selected {
  path: string;
  /** Whether it is of an environment, and not a Python of the whole machine, which nobody has chosen for this project. */
  environment: boolean;
}

/** The interpreter; undefined without the Python extension, and in workspaces that are not trusted. */
export async function selectedPython(log: vscode.OutputChannel): Promise<Selected | undefined> {
  const found = await environments(log);
  try {
    const active = await found?.resolveEnvironment(found.getActiveEnvironmentPath());
    const path = active?.executable.uri?.fsPath;
    return path === undefined ? undefined : { path, environment: active?.environment !== undefined };
  } catch (error) {
    log.appendLine(`the Python extension did not say its environment: ${error}`);
    return undefined;
  }
}

/** Calls `changed` when another interpreter is selected. */
export async function watchPython(
  log: vscode.OutputChannel,
  changed: () => void,
): Promise<vscode.Disposable | undefined> {
  return (await environments(log))?.onDidChangeActiveEnvironmentPath(changed);
}

async function environments(log: vscode.OutputChannel): Promise<Environments | undefined> {
  const python = vscode.extensions.getExtension<{ environments: Environments }>('ms-python.python');
  if (!python || !vscode.workspace.isTrusted) return undefined;
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error('no answer within 10 s')), PATIENCE_MS);
  });
  try {
    return (await Promise.race([python.activate(), late])).environments;
  } catch (error) {
    log.appendLine(`the Python extension did not start: ${error}`);
    return undefined;
  } finally {
    clearTimeout(timer);
  }
}
