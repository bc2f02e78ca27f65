import assert from 'node:assert/strict';
import { test } from 'node:test';
import { rows } from '../src/instructions';

const LISTING = `// SASS of saxpy
// 2 -> 2 instructions since the last time; + is new, - is gone
// saxpy.cu:6    int i = threadIdx.x;
        /*0000*/  B------:R-:W0:-:S07  S2R R0, SR_TID.X
// saxpy.cu:7, in half.h:9    y[i] = a;    ◂ 74% · long scoreboard
-       /*0010*/  B------:R-:W-:Y:S05  FMUL R7, R2, UR6
+       /*0010*/  B------:R-:W-:Y:S05  FFMA R7, R2, UR6, R7
// /src/other/saxpy.cu:7
        /*0020*/  EXIT`.split('\n');

test('the instructions of a line are found by the name and the text of the source', () => {
  assert.deepEqual(rows(LISTING, '/src/saxpy.cu', 6, '  int i = threadIdx.x;'), [3]);
  assert.deepEqual(rows(LISTING, '/src/saxpy.cu', 7, 'y[i] = a;'), [6]);
  assert.deepEqual(rows(LISTING, '/src/other/saxpy.cu', 7, '  y[i] = a;'), [6, 8]);
  assert.deepEqual(rows(LISTING, '/src/your-saxpy.cu', 7, 'y[i] = a;'), []);
});

test('a line that was edited since has none', () => {
  assert.deepEqual(rows(LISTING, '/src/saxpy.cu', 7, 'y[i] = a + b;'), []);
  assert.deepEqual(rows(LISTING, '/src/saxpy.cu', 6, ''), []);
});
