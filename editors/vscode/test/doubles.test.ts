import assert from 'node:assert/strict';
import { test } from 'node:test';
import { isDouble, type Said } from '../src/doubles';

const NVCC: Said = { line: 3, source: 'nvcc', error: true, message: 'identifier "BUG" is undefined' };
const CLANGD: Said = { line: 3, source: 'clang', error: true, message: "use of undeclared identifier 'BUG'" };

function check(own: Partial<Said>, others: Partial<Said>[], expected: boolean): void {
  assert.equal(
    isDouble(
      { ...NVCC, ...own },
      others.map((one) => ({ ...CLANGD, ...one })),
    ),
    expected,
  );
}

test("nvcc's error is hidden where clangd's on the same line is about the same name", () => {
  check({}, [{}], true);
  check({}, [{ line: 4 }, {}], true);
  check({}, [{ source: 'clang-tidy' }], true);
  check({ message: 'expected a ";"' }, [{ message: "expected ';' after expression" }], true);
  check({ message: 'expected a declaration' }, [{ message: 'extraneous closing brace' }], true);
});

test('another line, another name, a mere warning, another speaker: both are shown', () => {
  check({}, [], false);
  check({}, [{ line: 4 }], false);
  check({}, [{ message: "no member named 'y' in 'float2'" }], false);
  check({}, [{ message: 'too many errors emitted' }], false);
  check({}, [{ error: false }], false);
  check({}, [{ source: 'nvcc' }], false);
  check({ error: false }, [{}], false);
  check({ source: 'orbit' }, [{}], false);
  check({ source: 'ptxas' }, [{}], false);
});
