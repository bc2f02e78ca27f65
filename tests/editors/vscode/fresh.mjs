// The .vsix of a release on a machine that has no server: it offers to install one into the selected Python environment,
// pip takes it from the release, and the first lens comes from it.
//
//   node tests/editors/vscode/fresh.mjs PREFIX DIST PYTHON
//
// PREFIX is what `install` filled, DIST holds wheel and .vsix, PYTHON makes the environment. pip gets all else from PyPI.
import { execFileSync } from 'node:child_process';
import { cpSync, mkdirSync, readdirSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { CodeServer, pathWithout } from './code_server.mjs';
import { files, folder } from './files.mjs';

const here = dirname(fileURLToPath(import.meta.url));
const [prefix, dist, python] = process.argv.slice(2).map((one) => resolve(one));
const [vsix] = readdirSync(dist).filter((name) => name.endsWith('.vsix'));
const vscode = new CodeServer(prefix, {
  PATH: pathWithout('orbit-lsp', 'uv', 'uvx'),
  PIP_FIND_LINKS: dist,
  PIP_CONSTRAINT: join(here, '../../../constraints.txt'),
  PIP_DISABLE_PIP_VERSION_CHECK: '1',
});

let window;
try {
  const environment = join(vscode.scratch, 'environment');
  execFileSync(python, ['-m', 'venv', environment]);
  vscode.machine({ 'test.python': join(environment, 'bin/python') });
  mkdirSync(join(vscode.scratch, 'extensions'));
  cpSync(join(here, 'python'), join(vscode.scratch, 'extensions/ms-python.python-0.0.1'), { recursive: true });
  vscode.install(join(dist, vsix));
  await vscode.start();
  const place = folder(vscode.scratch, 'kernels', files);
  window = await vscode.window(place, join(place, 'saxpy.cu'));
  await window.trust();
  await window.see(window.message('orbit-lsp is neither in the selected Python environment nor on PATH.'));
  await window.button('Install');
  await window.see(window.lens('Run'));
  console.log(`${vsix}: no server found, installed by pip into the selected environment, started, lens seen`);
} catch (error) {
  console.error(error.message);
  await window?.picture(join(dist, 'vscode-fresh-failed.png'));
  process.exitCode = 1;
} finally {
  await vscode.close();
}
