import { expect, test } from 'bun:test';
import { findMismatch } from '../../../../src/chain/config/file-kind.ts';

const LIST = { name: 'podnet', plugins: [] };
const SINGLE = { name: 'podnet', type: 'bridge' };

test.each([
  ['10.conflist', SINGLE, 'type'],
  ['.conflist', SINGLE, 'type'],
  ['10.conf', LIST, 'plugins'],
  ['10.json', { ...LIST, type: 'bridge' }, 'plugins'],
])('%s does not contain what its extension promises', (file, content, key) => {
  expect(findMismatch(`/etc/cni/net.d/${file}`, content)).toEqual({
    problem: expect.any(String),
    key: key as 'type',
  });
});

test.each([
  ['10.conflist', LIST],
  ['10.conf', SINGLE],
  ['10.json', SINGLE],
  ['fd/63', SINGLE],
  ['list.txt', LIST],
])('%s matches its extension, or has one without a meaning', (file, content) => {
  expect(findMismatch(file, content)).toBeUndefined();
});

test('a .conf file of neither kind has no "type"', () => {
  expect(findMismatch('10.conf', { name: 'podnet' })).toEqual({ problem: 'it has no "type"' });
});
