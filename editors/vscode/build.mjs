// Bundles src/ into dist/extension.js; with --tests, test/ into dist/test/ instead.
import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { build } from 'esbuild';

const common = { bundle: true, platform: 'node', target: 'node18', format: 'cjs', logLevel: 'warning' };

if (process.argv.includes('--tests')) {
  await build({ ...common, entryPoints: readdirSync('test').map((name) => `test/${name}`), outdir: 'dist/test' });
} else {
  const { metafile } = await build({
    ...common,
    entryPoints: ['src/extension.ts'],
    outfile: 'dist/extension.js',
    external: ['vscode'],
    minify: true,
    metafile: true,
  });
  writeFileSync('dist/NOTICES.txt', notices(Object.keys(metafile.inputs)));
}

/** The licences of the packages that are in the bundle: they ask to go with every copy. */
function notices(inputs) {
  const folders = inputs.map((input) => /^node_modules\/(@[^/]+\/)?[^/]+/.exec(input)?.[0]).filter(Boolean);
  return [...new Set(folders)]
    .sort()
    .map((folder) => {
      const { name, version, license } = JSON.parse(readFileSync(`${folder}/package.json`, 'utf8'));
      const file = readdirSync(folder).find((one) => /^licen[cs]e/i.test(one));
      if (!file) throw new Error(`${name} has no licence file to pass on`);
      return `${name} ${version} (${license})\n\n${readFileSync(`${folder}/${file}`, 'utf8').trim()}\n`;
    })
    .join(`\n${'-'.repeat(80)}\n\n`);
}
