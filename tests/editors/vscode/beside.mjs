// orbit-lsp and clangd on one .cu file: what each says, and that neither takes from the other.

import { execFileSync } from 'node:child_process';
import { existsSync, mkdirSync, readdirSync, realpathSync, cpSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { delimiter, dirname, join } from 'node:path';
import { SAXPY } from './files.mjs';

/** An extension that starts clangd, where code-server finds it at its first start. */
export function addClangd({ vscode, here, modules }) {
  const folder = join(vscode.scratch, 'extensions/test.beside-0.0.1');
  mkdirSync(folder, { recursive: true });
  cpSync(join(here, 'beside/package.json'), join(folder, 'package.json'));
  createRequire(join(modules, 'x.js'))('esbuild').buildSync({
    entryPoints: [join(here, 'beside/extension.js')],
    outfile: join(folder, 'extension.js'),
    bundle: true,
    platform: 'node',
    external: ['vscode'],
    nodePaths: [modules],
  });
}

/** clangd needs CUDA's headers: those of the toolkit, else of NVIDIA's wheels beside the server. */
export function clangdFile(python) {
  const nvcc = process.env.PATH.split(delimiter)
    .map((one) => join(one, 'nvcc'))
    .find(existsSync);
  const toolkits = ['/usr/local/cuda', ...(nvcc ? [dirname(dirname(realpathSync(nvcc)))] : []), wheels(python)];
  const toolkit = toolkits.find((one) => one && existsSync(join(one, 'include/cuda.h')));
  if (!toolkit) throw new Error('clangd needs a CUDA toolkit: none in /usr/local/cuda, on PATH, or in the wheels');
  return `CompileFlags:\n  Add: [--cuda-path=${toolkit}]\n`;
}

function wheels(python) {
  const packages = execFileSync(python, ['-c', 'import sysconfig; print(sysconfig.get_path("purelib"))'], {
    encoding: 'utf8',
  });
  const nvidia = join(packages.trim(), 'nvidia');
  return (
    existsSync(nvidia) &&
    readdirSync(nvidia)
      .map((one) => join(nvidia, one))
      .find((one) => existsSync(join(one, 'include/cuda.h')))
  );
}

export async function beside({ window, machine, saw, say, pictures }) {
  await window.see(window.lens('▶ Run on H100 80GB HBM3')); // a click on the lens before that, which has no name, may be lost
  await window.page.click(window.lens('Run'));
  await window.see(window.line('⏱'));
  await window.goTo(SAXPY.store);
  await window.keyboard.press('End');
  await window.keyboard.insertText('BUG');
  await window.save();
  await window.errors(1);
  await window.problems();
  await window.see('.markers-panel .monaco-list-row:has-text("use of undeclared identifier")');
  say('an error that both know is shown once, as clangd says it');
  await window.picture(join(pictures, 'vscode-beside.png'));
  machine({ 'orbit.doubled_errors': 'show' });
  await window.see('.markers-panel .monaco-list-row:has-text("identifier \\"BUG\\" is undefined")');
  say('twice where the setting wants it');
  machine({});
  await window.gone('.markers-panel .monaco-list-row:has-text("identifier \\"BUG\\" is undefined")');
  saw('doubled');
  await window.undo();
  await window.save();
  await window.errors(0);

  await window.hover(SAXPY.kernel, SAXPY.name, 'CUPTI');
  await window.see('.monaco-hover:has-text("function saxpy")');
  const first = await window.page.textContent('.monaco-hover .hover-contents >> nth=0');
  if (!first.includes('288 µs')) throw new Error(`the first hover is ${first}`);
  say("hovers of both, orbit's first");
  await window.picture(join(pictures, 'vscode-beside-hover.png'));
  await window.keyboard.press('Escape');

  await window.goTo(SAXPY.store);
  await window.keyboard.press('Home');
  await window.keyboard.insertText('      ');
  await window.palette('Format Document');
  await window.page.locator('.view-line', { hasText: /^\s*if\s\(i\s<\sn\)$/ }).waitFor(); // LLVM's style breaks the line there
  say('clangd alone formats, and nobody is asked who should');
}
