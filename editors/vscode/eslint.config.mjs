// What a reading of the types adds to tsc: promises that nobody waits for, conditions that cannot change, `any`.
import { defineConfig } from 'eslint/config';
import tseslint from 'typescript-eslint';

export default defineConfig(
  { ignores: ['dist/', 'node_modules/'] },
  {
    files: ['src/**/*.ts', 'test/**/*.ts'],
    extends: [tseslint.configs.strictTypeChecked, tseslint.configs.stylisticTypeChecked],
    languageOptions: { parserOptions: { projectService: true } },
    rules: {
      '@typescript-eslint/no-confusing-void-expression': ['error', { ignoreArrowShorthand: true }],
      '@typescript-eslint/restrict-template-expressions': 'off', // what was thrown goes into the log as it is
    },
  },
  { files: ['test/**/*.ts'], rules: { '@typescript-eslint/no-floating-promises': 'off' } }, // node:test waits itself
);
