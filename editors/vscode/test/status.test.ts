import assert from 'node:assert/strict';
import { test } from 'node:test';
import { afterEnd } from '../src/backoff';
import { coloured, guarded } from '../src/policy';
import { readInfo, runOf, show } from '../src/status';

const LOCAL = {
  'orbit-lsp': '0.1.0',
  runner: { name: 'local', gpu: 'NVIDIA H100 80GB HBM3' },
  settings: { gpu: 'L4' },
};
const MODAL = {
  ...LOCAL,
  runner: { name: 'modal', gpu: 'L4' },
  rented: ['L4: warm until 14:05:00, 1 run'],
  gpus: { 'L4, $0.80/h': 'L4' },
};

function check(info: unknown, running: string[], text: string, tooltip: string): void {
  assert.deepEqual(show('running', readInfo(info), running), { text, tooltip });
}

test('the status bar says the GPU, where it is, and what runs', () => {
  const own = "orbit-lsp 0.1.0\nNVIDIA H100 80GB HBM3, this machine's own";
  check(LOCAL, [], '$(circuit-board) H100 80GB HBM3', own);
  check(LOCAL, ['Run saxpy'], '$(sync~spin) H100 80GB HBM3 · 1 running', `${own}\nRun saxpy`);
  const rented = 'orbit-lsp 0.1.0\nL4, rented from Modal\nL4: warm until 14:05:00, 1 run';
  check(MODAL, [], '$(flame) L4 · Modal', rented);
  const none = (devices: string[] | null) => ({ 'orbit-lsp': '0.1.0', runner: { gpu: null, devices } });
  check(none([]), [], '$(circuit-board) no GPU', 'orbit-lsp 0.1.0\nno GPU found');
  check(none(null), [], '$(circuit-board) orbit-lsp', 'orbit-lsp 0.1.0');
});

test('an answer of another form breaks nothing', () => {
  for (const answer of [null, 7, 'x', [], { runner: [], rented: {}, gpus: [1] }, { rented: [1, 'L4'], gpus: { a: 1 } }])
    assert.equal(readInfo(answer).gpu, undefined);
  assert.deepEqual(readInfo({ rented: [1, 'L4'] }).rented, ['L4']);
  assert.deepEqual(readInfo({ gpus: { one: 'H100', two: 2 } }).gpus, { one: 'H100' });
});

test('runs are told from compiles by the token of their progress', () => {
  assert.equal(runOf('orbit/run saxpy r3'), 'run saxpy');
  assert.equal(runOf('orbit/profile saxpy r4'), 'profile saxpy');
  assert.equal(runOf('orbit/compile saxpy.cu c4'), undefined);
  assert.equal(runOf(17), undefined);
});

test('a server that keeps ending is started four times more, each time later; one that had lived, afresh', () => {
  const pauses: (number | undefined)[] = [];
  for (let failures = 0; failures < 5;) {
    const verdict = afterEnd(failures, 0.5);
    pauses.push(verdict.pauseS);
    failures = verdict.failures;
  }
  assert.deepEqual(pauses, [1, 2, 4, 8, undefined]);
  assert.deepEqual(afterEnd(4, 3600), { failures: 1, pauseS: 1 });
});

test('the policy of a report stands before anything in it', () => {
  const policy =
    /^<!doctype html><html lang="en"><head><meta http-equiv="Content-Security-Policy" content="default-src 'none'; [^"]*"><script>/;
  assert.match(guarded('<!doctype html><html lang="en"><head><script></script></head>'), policy);
  assert.match(
    guarded('<p>no head</p>'),
    /^<!doctype html><head><meta http-equiv="Content-Security-Policy"[^>]*><\/head><p>/,
  );
});

test("a report is dark where the editor's theme is", () => {
  const page = '<style>@media (prefers-color-scheme: dark) { :root { --ground: black } }</style>';
  assert.match(coloured(page, true), /@media all \{/);
  assert.match(coloured(page, false), /@media not all \{/);
});
