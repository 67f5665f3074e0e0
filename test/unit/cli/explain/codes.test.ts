// Is every error code explained that our code can answer?
import { expect, test } from 'bun:test';
import { EXPLAINED_CODES, explainCode } from '../../../../src/cli/explain/codes.ts';
import { ADDRESS_TAKEN, ErrorCode } from '../../../../src/cni/errors.ts';

test('every code of the specification and of ours has an explanation', () => {
  const ours = [...Object.values(ErrorCode), ADDRESS_TAKEN].sort((a, b) => a - b);
  expect(EXPLAINED_CODES).toEqual(ours);
  for (const code of EXPLAINED_CODES) {
    const { causes = [], advice = [] } = explainCode(code) ?? {};
    expect([code, causes.length > 0, advice.length > 0]).toEqual([code, true, true]);
  }
});

test('codes from 100 on are the plugins’, those below that nothing defines are not explained', () => {
  expect(explainCode(117)?.meaning).toContain('Defined by the plugin');
  expect(explainCode(42)).toBeUndefined();
});
