// Which attachments does a change of the configuration directory concern?
import { expect, test } from 'bun:test';
import type { WatchedAttachment } from '../../../src/watch/attachments.ts';
import { changedLists, isOfList } from '../../../src/watch/settings.ts';

test('a list that came, went or has another text concerns the attachments of its network, and those of its runner', () => {
  const before = new Map([
    ['same', '{}'],
    ['gone', '{}'],
    ['other', '{}'],
  ]);
  const now = new Map([
    ['same', '{}'],
    ['other', '{ }'],
    ['new', '{}'],
  ]);
  const changed = changedLists(before, now);
  expect([...changed].sort()).toEqual(['gone', 'new', 'other']);
  const isConcerned = (network: string, runner?: string) => {
    const id = (name: string) => ({ network: name, containerId: 'c', ifname: 'eth0' });
    const pod = runner === undefined ? {} : { pod: { id: id(runner) } };
    return isOfList({ ...id(network), ...pod } as WatchedAttachment, changed);
  };
  expect([isConcerned('same'), isConcerned('gone'), isConcerned('unlisted')]).toEqual([false, true, false]);
  expect([isConcerned('unlisted', 'other'), isConcerned('unlisted', 'same')]).toEqual([true, false]);
});
