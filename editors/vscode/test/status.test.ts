import assert from 'node:assert/strict';
import { test } from 'node:test';
import { afterEnd } from '../src/backoff';
import { coloured, guarded } from '../src/policy';
import { readInfo, runOf, show } from '../src/status';

test('the status bar says what the server says, and whether there is one', () => {
  const said = { text: 'H100 80GB HBM3 · Run saxpy', icon: 'sync~spin', tooltip: 'orbit-lsp 0.1.0\nRun saxpy' };
  assert.deepEqual(show('running', said), { text: '$(sync~spin) H100 80GB HBM3 · Run saxpy', tooltip: said.tooltip });
  assert.equal(show('running', undefined).tooltip, 'orbit-lsp is starting');
  assert.equal(show('stopped', said).tooltip, 'orbit-lsp is not running');
});

test('an answer of another form breaks nothing', () => {
  for (const answer of [null, 7, 'x', [], { 'orbit-lsp': 1, rented: {} }])
    assert.deepEqual(readInfo(answer), { version: undefined, rented: [] });
  assert.deepEqual(readInfo({ 'orbit-lsp': '0.1.0', rented: [1, 'L4'] }), { version: '0.1.0', rented: ['L4'] });
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
