import { expect, test } from 'bun:test';
import { parseNetwork } from '../../../src/chain/config/conflist.ts';
import { findUnread } from '../../../src/cli/unread-capabilities.ts';

const capabilities = { portMappings: true, bandwidth: false };
const list = parseNetwork(
  JSON.stringify({ cniVersion: '1.0.0', name: 'n', plugins: [{ type: 'a' }, { type: 'b', capabilities }] }),
);

test('findUnread() returns capabilities that no plugin declares, and what may have been meant', () => {
  expect(findUnread(list, { portMapping: [], bandwidth: {} }).map(({ message }) => message)).toEqual([
    'Cannot pass capability "portMapping": no plugin of network "n" declares it; did you mean "portMappings"?',
    'Cannot pass capability "bandwidth": no plugin of network "n" declares it',
  ]);
});

test('findUnread() ignores capabilities that a plugin declares', () => {
  expect(findUnread(list, { portMappings: [] })).toEqual([]);
  expect(findUnread(list, {})).toEqual([]);
});
