import { expect, test } from 'bun:test';
import { atLeast, incompatible, isSpecVersion, SPEC_VERSIONS } from '../../../src/cni/version.ts';

test('isSpecVersion() accepts exact texts only', () => {
  for (const version of SPEC_VERSIONS) expect(isSpecVersion(version)).toBe(true);
  for (const text of ['', '1.0', 'v1.0.0', '1.0.0 ', '0.3.2', '1.2.0'])
    expect(isSpecVersion(text)).toBe(false);
});

test('atLeast() orders as released', () => {
  expect(atLeast('1.0.0', '0.4.0')).toBe(true);
  expect(atLeast('0.4.0', '0.4.0')).toBe(true);
  expect(atLeast('0.3.1', '0.4.0')).toBe(false);
});

test('incompatible() uses the wording of the reference', () => {
  expect(incompatible('0.9.0', ['0.3.1', '1.0.0']).toReply('1.0.0')).toEqual({
    cniVersion: '1.0.0',
    code: 1,
    msg: 'incompatible CNI versions',
    details: 'config is "0.9.0", plugin supports ["0.3.1" "1.0.0"]',
  });
});
