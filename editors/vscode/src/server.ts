// One server process and the client that speaks to it: started, watched, ended, started again.

import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import * as os from 'node:os';
import * as vscode from 'vscode';
import {
  State as ClientState,
  CloseAction,
  ErrorAction,
  HoverRequest,
  LanguageClient,
  type LanguageClientOptions,
  type Middleware,
  type ShowDocumentResult,
  MessageType,
  type ShowMessageParams,
  type ShowMessageRequestParams,
  type StreamInfo,
} from 'vscode-languageclient/node';
import { afterEnd } from './backoff';
import { Diagnostics } from './diagnostics';
import type { Server } from './discovery';
import type { Panel } from './panel';
import { type Info, readInfo, runOf, type State } from './status';

/** By suffix: other extensions give .cu and .cuh other languages. The server does nothing about a header until it has a kernel. */
const FILES = [
  { scheme: 'file', pattern: '**/*.{cu,cuh,cu.cc,cu.cpp,cu.cxx,h,hh,hpp,hxx,inl,inc,py}' },
  { scheme: 'vscode-notebook-cell', language: 'python' },
];
const SCHEMES = new Set(FILES.map((each) => each.scheme));
const ENDING_MS = 3_000;
const SILENCE_S = 30;
/** uvx downloads the server first. */
const DOWNLOAD_S = 300;
/** The server's news come in bursts, one for every step of a run. */
const CALM_MS = 200;

export interface Channels {
  /** What runs print and how they went. */
  output: vscode.OutputChannel;
  /** What the server and this extension log. */
  log: vscode.OutputChannel;
}

/** A kernel that waits for its debugger. */
export interface Debuggee {
  name: string;
  host: string;
  port: number;
}

export interface Hooks {
  /** Where the server is; undefined where there is none, which has then been said. */
  find(): Promise<Server | undefined>;
  changed(): void;
  /** It ended again and again, or could not be started at all. */
  gaveUp(sentence: string): void;
  /** The interpreter that was selected when the server was looked for. */
  python(): string | undefined;
  command(name: string, args: unknown[], next: (args: unknown[]) => Promise<unknown>): Promise<unknown>;
  report(page: vscode.Uri): Promise<void>;
  /** A text to be shown beside the one with the cursor. */
  beside(text: vscode.Uri, selection: vscode.Range | undefined): Promise<void>;
  debug(debuggee: Debuggee): void;
  /** Which of these answers; undefined for none of them. */
  choose(question: string, answers: string[]): Promise<string | undefined>;
  /** A run has ended: how. */
  ended(title: string, how: string): void;
  /** The server says something: a problem, or an answer. */
  said(type: MessageType, text: string): void;
  /** How many lenses a file has. */
  lenses(file: vscode.Uri, count: number): void;
}

export class ServerHandle {
  state: State = 'stopped';
  info: Info | undefined;
  panel: Panel | undefined;
  readonly running = new Map<string | number, string>();
  private current: Session | undefined;
  private failures = 0;
  private again: NodeJS.Timeout | undefined;
  private calm: NodeJS.Timeout | undefined;
  private turn: Promise<void> = Promise.resolve();
  private hovers: vscode.Disposable | undefined;

  constructor(
    private readonly channels: Channels,
    private readonly hooks: Hooks,
  ) {}

  get server(): Server | undefined {
    return this.current?.server;
  }

  restart(): Promise<void> {
    this.failures = 0;
    return this.inTurn(async () => {
      await this.end();
      await this.begin();
    });
  }

  stop(): Promise<void> {
    return this.inTurn(() => this.end());
  }

  /** The answer of a command of the server's; rejects where it is not running. */
  request(command: string, ...args: unknown[]): Promise<unknown> {
    const client = this.current?.client;
    if (!client?.isRunning()) return Promise.reject(new Error('orbit-lsp is not running'));
    return client.sendRequest('workspace/executeCommand', { command, arguments: args });
  }

  /** Tells the server which line the cursor is on, for commands that name no kernel. */
  async lookAt(editor: vscode.TextEditor): Promise<void> {
    const client = this.current?.client;
    if (!client?.isRunning() || !SCHEMES.has(editor.document.uri.scheme)) return;
    const range = client.code2ProtocolConverter.asRange(editor.selection);
    await client.sendRequest('textDocument/codeAction', {
      textDocument: { uri: client.code2ProtocolConverter.asUri(editor.document.uri) },
      range,
      context: { diagnostics: [] },
    });
  }

  /** The provider that was registered last is shown first: clangd's hover alone fills the box. */
  private hoverFirst(): void {
    this.hovers?.dispose();
    this.hovers = vscode.languages.registerHoverProvider(FILES, {
      provideHover: async (document, position, token) => {
        const client = this.current?.client;
        if (!client?.isRunning()) return undefined;
        const where = client.code2ProtocolConverter.asTextDocumentPositionParams(document, position);
        return client.protocol2CodeConverter.asHover(await client.sendRequest(HoverRequest.type, where, token));
      },
    });
  }

  private inTurn(work: () => Promise<void>): Promise<void> {
    this.turn = this.turn.then(work).catch((error: unknown) => this.channels.log.appendLine(`${error}`));
    return this.turn;
  }

  private async begin(): Promise<void> {
    this.enter('starting');
    const server = await this.hooks.find();
    if (!server) {
      this.enter('stopped');
      return;
    }
    const { command, args, from } = server;
    this.channels.log.appendLine(`starting ${[command, ...args].join(' ')} (found by: ${from})`);
    // the home folder: a workspace's own files must not decide what a program does that is only started in it
    const child = spawn(command, args, { cwd: os.homedir(), stdio: 'pipe' });
    const diagnostics = new Diagnostics();
    const session = new Session(server, child, this.client(child, diagnostics));
    child.once('close', () => diagnostics.dispose());
    this.current = session;
    child.stderr.setEncoding('utf8').on('data', (text: string) => this.channels.log.append(text));
    child.stdin.on('error', () => undefined); // it has ended: `exit` says so
    child.once('error', (error) =>
      this.failed(session, `orbit-lsp (${command}) could not be started: ${error.message}`),
    );
    child.once('exit', (code, signal) => this.ended(session, signal ?? `exit code ${code}`));
    session.client.start().then(
      () => this.ready(session),
      (error: unknown) => {
        this.channels.log.appendLine(`the server did not start: ${error}`);
        session.kill();
      },
    );
    const patienceS = from === 'uvx' ? DOWNLOAD_S : SILENCE_S;
    setTimeout(() => this.silent(session, patienceS), patienceS * 1000);
  }

  private ready(session: Session): void {
    if (session !== this.current) return;
    this.enter('running');
    this.refresh();
  }

  private silent(session: Session, seconds: number): void {
    if (session !== this.current || this.state !== 'starting') return;
    void session.end();
    this.failed(session, `${session.server.command} was started as orbit-lsp, but said nothing for ${seconds} s.`);
  }

  private async end(): Promise<void> {
    clearTimeout(this.again);
    const session = this.current;
    this.current = undefined;
    this.enter('stopped');
    await session?.end();
  }

  private failed(session: Session, sentence: string): void {
    if (session !== this.current) return;
    this.current = undefined;
    this.enter('stopped');
    this.hooks.gaveUp(sentence);
  }

  private ended(session: Session, how: string): void {
    if (session !== this.current) return;
    const { failures, pauseS } = afterEnd(this.failures, (Date.now() - session.startedMs) / 1000);
    this.failures = failures;
    const sentence = `orbit-lsp (${session.server.command}) ended by itself: ${how}`;
    this.channels.log.appendLine(sentence);
    if (pauseS === undefined) {
      this.failed(session, `${sentence}, ${failures} times in a row. Its log says why.`);
      return;
    }
    this.current = undefined;
    this.enter('starting');
    this.channels.log.appendLine(`starting it again in ${pauseS} s`);
    this.again = setTimeout(() => void this.inTurn(() => this.begin()), pauseS * 1000);
  }

  private enter(state: State): void {
    this.state = state;
    if (state !== 'running') {
      this.info = undefined;
      this.panel = undefined;
      this.running.clear();
      clearTimeout(this.calm);
      this.calm = undefined;
    }
    this.hooks.changed();
  }

  /** Soon, once for a burst: what the server knows now. */
  private refresh(): void {
    this.calm ??= setTimeout(() => void this.ask(), CALM_MS);
  }

  private async ask(): Promise<void> {
    this.calm = undefined;
    try {
      const client = this.current?.client;
      const panel = client?.isRunning() ? client.sendRequest<Panel>('orbit/panel', {}) : undefined;
      this.info = readInfo(await this.request('orbit.info'));
      this.panel = await panel?.catch(() => undefined); // a server of another version may not have it
      this.hooks.changed();
    } catch {
      // it ended meanwhile: `ended` says so
    }
  }

  private client(child: ChildProcess, diagnostics: Diagnostics): LanguageClient {
    const options: LanguageClientOptions = {
      documentSelector: FILES,
      initializationOptions: {
        ...usersSettings(this.hooks.python()),
        trusted: vscode.workspace.isTrusted,
        separates_user: true,
      },
      initializationFailedHandler: () => false,
      // eslint-disable-next-line @typescript-eslint/no-deprecated -- the server pulls, but waits to be told when
      synchronize: { configurationSection: 'orbit' },
      outputChannel: this.channels.output,
      // starting again is `ended`'s, which knows how the process ended
      errorHandler: {
        error: () => ({ action: ErrorAction.Continue, handled: true }),
        closed: () => ({ action: CloseAction.DoNotRestart, handled: true, message: 'orbit-lsp has ended' }),
      },
      middleware: this.middleware(() => client, diagnostics),
    };
    const { stdout, stdin } = child;
    if (!stdout || !stdin) throw new Error('the server has no standard input and output');
    const streams = () => Promise.resolve({ reader: stdout, writer: stdin });
    const client: LanguageClient = new Client(this.channels.log, streams, options);
    client.registerFeature({
      fillClientCapabilities: (capabilities) => {
        capabilities.experimental = { orbit: { output: true, panel: true, reports: true, debug: true } };
      },
      initialize: () => undefined,
      getState: () => ({ kind: 'static' }),
      clear: () => undefined,
    });
    client.onNotification('orbit/output', ({ text }: { text: string }) => this.channels.output.append(text));
    client.onNotification('orbit/panelChanged', () => this.refresh());
    client.onNotification('orbit/debug', (debuggee: Debuggee) => this.hooks.debug(debuggee));
    client.onNotification('window/showMessage', (message: ShowMessageParams) =>
      this.hooks.said(message.type, message.message),
    );
    client.onRequest('window/showMessageRequest', async ({ message, actions = [] }: ShowMessageRequestParams) => {
      const title = await this.hooks.choose(
        message,
        actions.map((one) => one.title),
      );
      return title === undefined ? null : { title };
    });
    return client;
  }

  private middleware(client: () => LanguageClient, diagnostics: Diagnostics): Middleware {
    return {
      executeCommand: (command, args: unknown[], next) =>
        this.hooks.command(command, args, (given) => Promise.resolve(next(command, given))),
      handleDiagnostics: (uri, all, next) => diagnostics.publish(uri, all, next),
      provideHover: () => undefined, // `hoverFirst` does
      provideCodeLenses: (document, token, next) => {
        this.hoverFirst(); // what else hovers has been registered by now
        return Promise.resolve(next(document, token)).then((lenses) => {
          this.hooks.lenses(document.uri, lenses?.length ?? 0);
          return lenses;
        });
      },
      handleWorkDoneProgress: (token, params, next) => {
        const run = runOf(token);
        if (run && params.kind === 'begin') this.running.set(token, params.title);
        if (run && params.kind === 'end') {
          if (params.message) this.hooks.ended(this.running.get(token) ?? run, params.message);
          this.running.delete(token);
        }
        if (run) this.hooks.changed();
        if (run && params.kind !== 'report') this.refresh();
        next(token, params);
      },
      window: {
        showDocument: async (params, next) => {
          const uri = vscode.Uri.parse(params.uri, true);
          if (params.takeFocus === false && !params.external) {
            await this.hooks.beside(uri, client().protocol2CodeConverter.asRange(params.selection));
            return { success: true };
          }
          if (!params.external || uri.scheme !== 'file' || !uri.path.endsWith('.html'))
            return (await next(params, cancellation())) as ShowDocumentResult;
          try {
            await this.hooks.report(uri);
            return { success: true };
          } catch (error) {
            this.channels.log.appendLine(`the report ${uri.fsPath} cannot be shown: ${error}`);
            return { success: false };
          }
        },
      },
      workspace: {
        configuration: async (params, token, next) => {
          const answers = await next(params, token);
          const user = usersSettings(this.hooks.python());
          return Array.isArray(answers) ? answers.map(() => ({ ...workspacesSettings(), user })) : answers;
        },
      },
    };
  }
}

class Client extends LanguageClient {
  constructor(
    private readonly log: vscode.OutputChannel,
    streams: () => Promise<StreamInfo>,
    options: LanguageClientOptions,
  ) {
    super('orbit', 'orbit-lsp', streams, options);
  }

  /** Of a start or an end this extension says one sentence of its own; the library's many go into the log. */
  override error(message: string, data?: unknown, show?: boolean | 'force'): void {
    if (this.state === ClientState.Running) super.error(message, data, show);
    else this.log.appendLine(data instanceof Error ? `${message} ${data.message}` : message);
  }
}

class Session {
  readonly startedMs = Date.now();

  constructor(
    readonly server: Server,
    private readonly child: ChildProcess,
    readonly client: LanguageClient,
  ) {}

  kill(): void {
    this.child.kill();
  }

  /** Asks it to leave, and makes it leave where it does not. */
  async end(): Promise<void> {
    if (this.child.exitCode !== null || this.child.signalCode !== null || this.child.pid === undefined) return;
    const gone = once(this.child, 'exit');
    const force = setTimeout(() => this.child.kill('SIGKILL'), ENDING_MS);
    try {
      if (this.client.state === ClientState.Running) await this.client.stop(ENDING_MS);
      else this.kill();
    } catch {
      this.kill();
    }
    await gone;
    clearTimeout(force);
  }
}

type Value = ReturnType<vscode.WorkspaceConfiguration['inspect']>;

/** The user's own settings, which win; the selected interpreter where they name none. */
function usersSettings(python: string | undefined): object {
  const set = settings((value) => value?.globalValue);
  return python === undefined || 'python' in set ? set : { ...set, python };
}

/** What the folder sets; VS Code leaves out what it may not set in Restricted Mode. */
function workspacesSettings(): object {
  return settings((value) => value?.workspaceFolderValue ?? value?.workspaceValue);
}

/** Every setting of the server's that `pick` finds, nested as the server has them. */
function settings(pick: (value: Value) => unknown): object {
  const section = vscode.workspace.getConfiguration('orbit');
  const found: Record<string, unknown> = {};
  for (const name of leaves(section)) {
    const value = pick(section.inspect(name));
    if (value === undefined || name === 'serverPath') continue;
    const [group, inner] = name.split('.', 2) as [string, string | undefined];
    if (inner === undefined) found[group] = value;
    else found[group] = { ...(found[group] as object | undefined), [inner]: value };
  }
  return found;
}

/** The names of all settings, as the manifest declares them. */
function leaves(section: vscode.WorkspaceConfiguration): string[] {
  const values = JSON.parse(JSON.stringify(section)) as Record<string, unknown>;
  return Object.entries(values).flatMap(([name, value]) =>
    value !== null && typeof value === 'object' && !Array.isArray(value)
      ? Object.keys(value).map((inner) => `${name}.${inner}`)
      : [name],
  );
}

function cancellation(): vscode.CancellationToken {
  return new vscode.CancellationTokenSource().token;
}
