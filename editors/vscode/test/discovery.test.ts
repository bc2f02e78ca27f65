import assert from 'node:assert/strict';
import { test } from 'node:test';
import { canFetch, findServer, installation, mismatch, type Place } from '../src/discovery';

/** A machine with these programs and no others. */
function machine(programs: string[], rest: Partial<Place> = {}): Place {
  return {
    setting: '',
    python: undefined,
    path: '/usr/local/bin:/usr/bin',
    platform: 'linux',
    home: '/home/ada',
    version: '0.1.0',
    uvx: false,
    own: '/home/ada/.vscode/orbit/server',
    variables: [],
    isProgram: (file) => programs.includes(file),
    ...rest,
  };
}

const VENV = '/home/ada/kernels/.venv/bin';
const EVERYWHERE = ['/opt/orbit/orbit-lsp', `${VENV}/orbit-lsp`, '/usr/bin/orbit-lsp', '/usr/bin/uvx'];

function found(place: Place): string {
  const server = findServer(place);
  return 'problem' in server ? server.problem : `${server.from}: ${[server.command, ...server.args].join(' ')}`;
}

function check(place: Place, expected: string): void {
  assert.equal(found(place), expected);
}

test('the setting is before the environment, that before PATH, that before uvx', () => {
  const python = `${VENV}/python`;
  check(machine(EVERYWHERE, { setting: '/opt/orbit/orbit-lsp', python }), 'setting: /opt/orbit/orbit-lsp');
  check(machine(EVERYWHERE, { python, uvx: true }), `environment: ${VENV}/orbit-lsp`);
  check(machine(EVERYWHERE, { uvx: true }), 'PATH: /usr/bin/orbit-lsp');
  check(machine(['/usr/bin/uvx'], { uvx: true }), 'uvx: /usr/bin/uvx orbit-lsp@0.1.0');
});

test('uvx fetches a program: never without having been agreed to', () => {
  check(machine(['/usr/bin/uvx']), 'orbit-lsp is not on PATH. Install it, or set orbit.serverPath.');
});

test('a relative folder on PATH may be the workspace, and is passed over', () => {
  const place = machine(['bin/orbit-lsp', './orbit-lsp', '/usr/bin/orbit-lsp'], { path: 'bin:.::/usr/bin' });
  check(place, 'PATH: /usr/bin/orbit-lsp');
});

test('a setting that names no program is said, not passed over', () => {
  const there = ['/usr/bin/orbit-lsp', '/home/ada/bin/orbit-lsp', '/usr/bin/orbit-dev'];
  check(machine(there, { setting: '~/bin/orbit-lsp' }), 'setting: /home/ada/bin/orbit-lsp');
  check(machine(there, { setting: 'orbit-dev' }), 'setting: /usr/bin/orbit-dev');
  check(machine(there, { setting: '/gone' }), "orbit.serverPath is '/gone', but there is no such program.");
  check(
    machine(there, { setting: './orbit-lsp' }),
    "orbit.serverPath is './orbit-lsp', but must be an absolute path or a name on PATH.",
  );
});

test('on Windows, beside a conda Python or in its Scripts', () => {
  const conda: Partial<Place> = { platform: 'win32', path: 'C:\\Windows;D:\\bin', python: 'C:\\conda\\python.exe' };
  check(machine(['C:\\conda\\Scripts\\orbit-lsp.exe'], conda), 'environment: C:\\conda\\Scripts\\orbit-lsp.exe');
  check(machine(['D:\\bin\\orbit-lsp.exe'], conda), 'PATH: D:\\bin\\orbit-lsp.exe');
});

test('nothing is offered that would look for it on PyPI, where it is not yet', () => {
  const programs = ['/usr/bin/python3', '/usr/bin/nvcc', '/usr/bin/uv'];
  const python = `${VENV}/python`;
  const line = (...variables: string[]) => lines(machine(programs, { python, variables }));
  assert.equal(line(), undefined);
  assert.equal(line('PIP_FIND_LINKS'), `${python} -m pip install orbit-lsp==0.1.0`);
  assert.equal(line('UV_INDEX_URL'), `/usr/bin/uv pip install --python ${python} orbit-lsp==0.1.0`);
  assert.equal(canFetch('UV', machine([], { variables: ['PIP_FIND_LINKS'] })), false);
});

const variables = ['PIP_INDEX_URL', 'UV_INDEX_URL'];

test('it is installed into the selected environment, with the compiler where there is none', () => {
  const python = `${VENV}/python`;
  const line = (programs: string[]) => lines(machine(programs, { python, variables }));
  assert.equal(line([]), `${python} -m pip install orbit-lsp[cuda]==0.1.0`);
  assert.equal(line(['/usr/bin/nvcc']), `${python} -m pip install orbit-lsp==0.1.0`);
  assert.equal(line(['/usr/bin/uv']), `/usr/bin/uv pip install --python ${python} orbit-lsp[cuda]==0.1.0`);
});

test("without a selected environment it is installed into one of the extension's own, and found there", () => {
  const own = '/home/ada/.vscode/orbit/server';
  assert.equal(lines(machine([], { variables })), undefined);
  assert.equal(
    lines(machine(['/usr/bin/python3', '/usr/bin/nvcc'], { variables })),
    `/usr/bin/python3 -m venv ${own}; ${own}/bin/python3 -m pip install orbit-lsp==0.1.0`,
  );
  check(machine([`${own}/bin/orbit-lsp`]), `own: ${own}/bin/orbit-lsp`);
});

function lines(place: Place): string | undefined {
  return installation(place)
    ?.map((line) => line.join(' '))
    .join('; ');
}

test('versions of one series go together', () => {
  assert.equal(mismatch('0.1.4', '0.1.0'), undefined);
  assert.equal(mismatch(undefined, '0.1.0'), undefined);
  assert.match(mismatch('0.2.0', '0.1.0') ?? '', /^orbit-lsp 0\.2\.0 was started, but this extension is for 0\.1:/);
});
