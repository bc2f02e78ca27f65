// The extension in a real VS Code (code-server and a headless Chromium), with the recorded H100 of tests/e2e as its GPU.
//
//   tests/editors/vscode/install PREFIX && tests/editors/vscode/check
//   [ORBIT_SEEN=FOLDER] [ORBIT_SERVER=PROGRAM] node tests/editors/vscode/drive.mjs PREFIX PICTURES [session ROUNDS | debug | cells | sass | results]
//
// Says each step with its time and keeps pictures. What was seen is written into ORBIT_SEEN: vscode.json for the table of
// docs/guide/editors.md, vscode.seconds from code-server's start to the first lens. Ends with 1 at the first step that fails.
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { basename, dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { work } from './author.mjs';
import { addClangd, beside, clangdFile } from './beside.mjs';
import * as notebooks from './cells.mjs';
import { CodeServer, pathWithout } from './code_server.mjs';
import * as debugging from './debug.mjs';
import { committed, files, folder, harmed, settings } from './files.mjs';
import * as mishaps from './mishaps.mjs';
import * as outcomes from './results.mjs';
import * as machineCode from './sass.mjs';
import * as authors from './session.mjs';
import { signatures } from './sheet.mjs';

const ROOT = resolve(dirname(fileURLToPath(import.meta.url)), '../../..');
const [prefix, pictures] = process.argv.slice(2, 4).map((one) => resolve(one));
const [only, rounds = 1] = process.argv.slice(4);
const server = process.env.ORBIT_SERVER ?? join(ROOT, '.venv/bin/orbit-lsp');
const serverPython = join(dirname(server), 'python');
const [vsix] = readdirSync(join(ROOT, 'editors/vscode')).filter((name) => name.endsWith('.vsix'));
if (!vsix) throw new Error('no .vsix in editors/vscode: run tests/editors/vscode/check');
mkdirSync(pictures, { recursive: true });

const begun = Date.now();
const say = (text) => console.log(`${((Date.now() - begun) / 1000).toFixed(1).padStart(6)} s  ${text}`);
const known = JSON.parse(readFileSync(join(ROOT, 'docs/editors/features.json'), 'utf8'));
const seen = {};
function saw(feature, how = '') {
  if (!(feature in known)) throw new Error(`docs/editors/features.json does not know '${feature}'`);
  seen[feature] = how;
  say(known[feature]);
}

// no orbit-lsp but the one that the settings name
// the recorded worker that stands for a GPU serves pipes alone
const vscode = new CodeServer(prefix, { PATH: pathWithout('orbit-lsp'), ORBIT_SHARED_WORKER: 'no' });

function script(name, body) {
  const file = join(vscode.scratch, name);
  writeFileSync(file, `#!/bin/sh\n${body}\n`, { mode: 0o755 });
  return file;
}

const python = script('python', `exec "${serverPython}" "${ROOT}/tests/e2e/recorded_worker.py" "$@"`);
const clangd = join(prefix, 'clangd/bin/clangd');
const machine = (values) =>
  vscode.machine({
    'orbit.python': python,
    'beside.clangd': clangd,
    'orbit.serverPath': server,
    ...values,
  });
machine({});
const touched = join(vscode.scratch, 'the-workspace-started-a-program');
const stranger = script('stranger', `touch "${touched}"; echo "no module named pygls" >&2; exit 3`);
const silent = script('silent', 'exec sleep 600');
const other = script(
  'other',
  `exec "${serverPython}" -c 'import orbit_lsp; orbit_lsp.__version__ = "9.0.0"; from orbit_lsp.cli.main import main; main()'`,
);
const here = dirname(fileURLToPath(import.meta.url));
addClangd({ vscode, here, modules: join(ROOT, 'editors/vscode/node_modules') });
// the one whose profile was recorded
const profiled = readFileSync(join(ROOT, 'tests/recordings/profiles/memory_bound.cu'), 'utf8');
const sheet = signatures(ROOT, serverPython);
const kernels = { ...files, ...harmed, 'memory_bound.cu': profiled, 'sheet.cu': sheet.text };
const place = folder(vscode.scratch, 'kernels', kernels);
committed(place);
const shared = folder(vscode.scratch, 'shared', {
  ...files,
  '.clangd': clangdFile(serverPython),
});
const two = join(vscode.scratch, 'two.code-workspace');
const places = [
  folder(vscode.scratch, 'left', files, { 'orbit.hints.measured': false }),
  folder(vscode.scratch, 'right', files, { 'orbit.hints.measured': false }),
];
writeFileSync(two, JSON.stringify({ folders: places.map((path) => ({ path: basename(path) })) }));
const strange = folder(vscode.scratch, 'strange', files, {
  'orbit.serverPath': stranger,
  'orbit.python': stranger,
});

const told = join(vscode.scratch, 'told');
const telling = script('telling', `exec "${serverPython}" "${ROOT}/tests/editors/told.py" "${told}" "${server}" "$@"`);
const desk = folder(vscode.scratch, 'desk', { ...authors.files, 'memory_bound.cu': profiled });

let window;

/** A window of its own, whose server's words are written down: a minute a round, so only when it is asked for. */
async function session() {
  machine({ 'orbit.serverPath': telling });
  window = await vscode.window(desk, join(desk, 'saxpy.cu'));
  await window.trust();
  await authors.session({ window, told, say, seen: process.env.ORBIT_SEEN, rounds: Number(rounds) });
}

async function debug() {
  machine({ 'orbit.python': serverPython });
  const bench = folder(vscode.scratch, 'bench', debugging.files);
  window = await vscode.window(bench, join(bench, 'double.py'));
  await window.trust();
  await debugging.debug({ window, say, picture: () => window.picture(join(pictures, 'debug.png')) });
}

async function cells() {
  const bench = folder(vscode.scratch, 'notebooks', notebooks.files);
  const notebook = join(bench, 'saxpy.ipynb');
  window = await vscode.window(bench, join(bench, 'beside.py'));
  await window.trust();
  const picture = () => window.picture(join(pictures, 'cells.png'));
  await notebooks.cells({ window, say, python: serverPython, env: vscode.env, notebook, picture });
}

async function sass() {
  machine({ 'orbit.python': serverPython });
  const bench = folder(vscode.scratch, 'machine-code', machineCode.files(ROOT), machineCode.values);
  window = await vscode.window(bench, join(bench, 'saxpy.cu'));
  await window.trust();
  await machineCode.sass({ window, saw, picture: join(pictures, 'sass-vscode.png') });
  await window.page.close();
  machine({});
}

async function results() {
  machine({});
  const bench = folder(vscode.scratch, 'results', outcomes.files(ROOT));
  window = await vscode.window(bench, join(bench, 'crash.cu'));
  await window.trust();
  await outcomes.results({ window, say, pictures });
  await window.page.close();
}

async function whole() {
  const started = Date.now();
  await vscode.start();
  const first = (window = await vscode.window(strange, join(strange, 'saxpy.cu')));
  await first.see(first.lens('Run on H100 80GB HBM3'));
  const firstLens = (Date.now() - started) / 1000;
  say(`first lens ${firstLens.toFixed(1)} s after the start`);
  await mishaps.untrusted({ window: first, say, touched });

  const main = (window = await vscode.window(place, join(place, 'saxpy.cu')));
  await main.trust();
  await work({ window, saw, say, pictures, place, sheet, seen: process.env.ORBIT_SEEN });
  await mishaps.ended({ window: (window = first), saw, pictures });
  settings(strange, { 'orbit.serverPath': silent });
  await mishaps.moved({ window: (window = main), say, place });
  await mishaps.tenThousandLines({ window, say });
  await mishaps.servers({ window, machine, other, saw, say, pictures });
  await main.page.close();

  window = await vscode.window(shared, join(shared, 'saxpy.cu'));
  await window.trust();
  await beside({ window, machine, saw, say, pictures });
  await window.page.close();

  await sass();
  await results();

  await mishaps.silent({ window: (window = first), say });
  await window.page.close();

  window = await vscode.window(two);
  await mishaps.folders({ window, say, places });
  await window.page.close();

  if (process.env.ORBIT_SEEN) {
    const about = {
      editor: 'VS Code',
      version: `${vscode.version} (code-server)`,
      features: seen,
    };
    writeFileSync(join(process.env.ORBIT_SEEN, 'vscode.json'), `${JSON.stringify(about, undefined, 2)}\n`);
    writeFileSync(join(process.env.ORBIT_SEEN, 'vscode.seconds'), firstLens.toFixed(1));
  }
}

try {
  vscode.install(join(ROOT, 'editors/vscode', vsix));
  say('the .vsix is installed into a fresh profile');
  if (only === 'session') {
    await vscode.start();
    await session();
  } else if (only === 'debug') {
    await vscode.start();
    await debug();
  } else if (only === 'cells') {
    await vscode.start();
    await cells();
  } else if (only === 'sass') {
    await vscode.start();
    await sass();
  } else if (only === 'results') {
    await vscode.start();
    await results();
  } else await whole();
} catch (error) {
  say(`FAILED: ${error.message.split('\n').slice(0, 4).join('\n')}`);
  await window?.picture(join(pictures, 'vscode-failed.png'));
  process.exitCode = 1;
} finally {
  await vscode.close();
}
