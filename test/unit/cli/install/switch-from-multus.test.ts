// Can what a pod says become a part of the manifest?
import { expect, test } from 'bun:test';
import { asComment } from '../../../../src/cli/install/switch-from-multus.ts';

test('a text of several lines stays within the comment', () => {
  const annotation = '[\n---\nkind: Rogue\r\nkind: Rogue\u2028kind: Rogue';
  expect(asComment(annotation)).toBe('# [\\n---\\nkind: Rogue\\r\\nkind: Rogue kind: Rogue');
  expect(asComment('')).toBe('#');
});
