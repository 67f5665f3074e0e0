import { expect, test } from 'bun:test';
import { addEntries, deletePlaces } from '../../../../src/netlink/nft/element.ts';
import type { NftSet } from '../../../../src/netlink/nft/table.ts';

const setOf = (name: string): NftSet => ({
  table: { family: 'inet', name: 'catena' },
  name,
  key: ['inet_service'],
});

test('addEntries() and deletePlaces() ask once for each set, whichever object describes it', () => {
  const places = ['a', 'b', 'a'].map((name, port) => ({ set: setOf(name), key: [port] }));
  const entries = places.map(({ set, key }) => ({ set, element: { key } }));
  const setsIn = (requests: readonly { readonly op: string }[]) =>
    requests.map(({ op }) => /"(\w)"/.exec(op)?.[1]);
  expect(setsIn(addEntries(entries))).toEqual(['a', 'b']);
  expect(setsIn(deletePlaces(places))).toEqual(['a', 'b']);
  expect(addEntries([])).toEqual([]);
});
