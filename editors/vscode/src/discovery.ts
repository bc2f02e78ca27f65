// Which orbit-lsp to start, and what to offer where there is none: functions of what the machine has.

import * as path from 'node:path';

export interface Place {
  /** The setting `orbit.serverPath`, "" where it is not set. */
  setting: string;
  /** The interpreter selected in VS Code; undefined where there is none, or the workspace is not trusted. */
  python: string | undefined;
  /** The value of PATH. */
  path: string;
  platform: NodeJS.Platform;
  home: string;
  /** The extension's own version, which the server's is pinned to. */
  version: string;
  /** Whether the author has agreed to `uvx` fetching this version. */
  uvx: boolean;
  /** The folder of an environment that the extension itself makes, where the author wants one. */
  own: string;
  /** The names of the environment variables that are set. */
  variables: string[];
  isProgram: (file: string) => boolean;
}

export interface Server {
  command: string;
  args: string[];
  from: 'setting' | 'environment' | 'PATH' | 'own' | 'uvx';
}

export interface Missing {
  problem: string;
}

/** The setting, then the selected Python environment, PATH, the extension's own environment, then `uvx` where that was agreed to. */
export function findServer(place: Place): Server | Missing {
  if (place.setting) return fromSetting(place);
  const inEnvironment = environmentFolders(place)
    .flatMap((folder) => names('orbit-lsp', place).map((name) => pathsOf(place).join(folder, name)))
    .find(place.isProgram);
  if (inEnvironment) return { command: inEnvironment, args: [], from: 'environment' };
  const onPath = findProgram('orbit-lsp', place);
  if (onPath) return { command: onPath, args: [], from: 'PATH' };
  const own = inFolder('orbit-lsp', ownFolder(place), place);
  if (own) return { command: own, args: [], from: 'own' };
  const uvx = place.uvx && findProgram('uvx', place);
  if (uvx) return { command: uvx, args: [`orbit-lsp@${place.version}`], from: 'uvx' };
  const where = place.python ? 'neither in the selected Python environment nor on PATH' : 'not on PATH';
  return { problem: `orbit-lsp is ${where}. Install it, or set orbit.serverPath.` };
}

function fromSetting(place: Place): Server | Missing {
  const paths = pathsOf(place);
  const setting = place.setting.startsWith('~/') ? paths.join(place.home, place.setting.slice(2)) : place.setting;
  const bare = !/[\\/]/.test(setting);
  if (!bare && !paths.isAbsolute(setting))
    return { problem: `orbit.serverPath is '${place.setting}', but must be an absolute path or a name on PATH.` };
  const command = bare ? findProgram(setting, place) : place.isProgram(setting) ? setting : undefined;
  if (command) return { command, args: [], from: 'setting' };
  return { problem: `orbit.serverPath is '${place.setting}', but there is no such program.` };
}

/** The first program of this name in the absolute folders of PATH; a relative one may be the workspace's. */
export function findProgram(name: string, place: Place): string | undefined {
  const paths = pathsOf(place);
  return place.path
    .split(paths.delimiter)
    .filter((folder) => paths.isAbsolute(folder))
    .flatMap((folder) => names(name, place).map((file) => paths.join(folder, file)))
    .find(place.isProgram);
}

/** Whether orbit-lsp is on PyPI. Until it is, nothing is offered that would look for it there. */
const PUBLISHED = false as boolean;

/** Whether pip or uv can find orbit-lsp: on PyPI, or on the index or in the folder that its environment variables name. */
export function canFetch(by: 'PIP' | 'UV', place: Place): boolean {
  const elsewhere = ['FIND_LINKS', 'INDEX', 'INDEX_URL', 'EXTRA_INDEX_URL', 'DEFAULT_INDEX'].map(
    (name) => `${by}_${name}`,
  );
  return PUBLISHED || place.variables.some((name) => elsewhere.includes(name));
}

/**
 * The command lines that install the server, into the selected Python environment, else into one of the extension's own;
 * undefined where they would not find it, or there is no Python.
 */
export function installation(place: Place): [string, ...string[]][] | undefined {
  const extra = findProgram('nvcc', place) ? '' : '[cuda]';
  const requirement = `orbit-lsp${extra}==${place.version}`;
  const uv = canFetch('UV', place) ? findProgram('uv', place) : undefined;
  if (!uv && !canFetch('PIP', place)) return undefined;
  const into = (python: string): [string, ...string[]] =>
    uv ? [uv, 'pip', 'install', '--python', python, requirement] : [python, '-m', 'pip', 'install', requirement];
  if (place.python) return [into(place.python)];
  const python = place.platform === 'win32' ? 'python.exe' : 'python3';
  const base = findProgram('python3', place) ?? findProgram('python', place);
  if (!uv && !base) return undefined;
  const made: [string, ...string[]] = uv ? [uv, 'venv', place.own] : [base ?? '', '-m', 'venv', place.own];
  return [made, into(pathsOf(place).join(ownFolder(place), python))];
}

function ownFolder(place: Place): string {
  return pathsOf(place).join(place.own, place.platform === 'win32' ? 'Scripts' : 'bin');
}

function inFolder(name: string, folder: string, place: Place): string | undefined {
  return names(name, place)
    .map((file) => pathsOf(place).join(folder, file))
    .find(place.isProgram);
}

/** What to say where the versions of server and extension do not go together. */
export function mismatch(server: string | undefined, extension: string): string | undefined {
  const series = (version: string) => version.split('.').slice(0, 2).join('.');
  if (server === undefined || series(server) === series(extension)) return undefined;
  return `orbit-lsp ${server} was started, but this extension is for ${series(extension)}: update one of the two.`;
}

function environmentFolders(place: Place): string[] {
  if (!place.python) return [];
  const paths = pathsOf(place);
  const folder = paths.dirname(place.python);
  // conda's python.exe lies beside Scripts, a virtual environment's in it
  return place.platform === 'win32' ? [folder, paths.join(folder, 'Scripts')] : [folder];
}

function names(name: string, place: Place): string[] {
  return place.platform === 'win32' ? [`${name}.exe`] : [name];
}

function pathsOf(place: Place): path.PlatformPath {
  return place.platform === 'win32' ? path.win32 : path.posix;
}
