// Which notes in the kernel belong to attachments that GC does not keep?

import { expect, test } from 'bun:test';
import { isStaleNote, type KeptAttachments } from '../../../src/plugin/define.ts';

const kept: KeptAttachments = {
  since: 0,
  has: ({ containerId }) => containerId === 'kept',
  some: () => false,
  isNoted: () => true,
};

test.each([
  ['catena:podnet/gone/eth0', true],
  ['catena:podnet/kept/eth0', false],
  ['catena:othernet/gone/eth0', false],
  ['a comment of another program', false],
  [undefined, false],
])('isStaleNote() of %j is %p', (note, isStale) => {
  expect(isStaleNote(note, 'podnet', kept)).toBe(isStale);
});
