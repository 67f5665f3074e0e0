// Which networks come and go when an annotation has changed?
import { expect, test } from 'bun:test';
import { planFollowing } from '../../../src/delegate/follow.ts';
import type { RecordedNetwork } from '../../../src/delegate/record.ts';
import { selectByName } from '../../../src/delegate/selection.ts';
import type { WantedNetwork } from '../../../src/delegate/wanted.ts';

const has = (ifname: string, asked?: string): RecordedNetwork => ({
  label: ifname,
  network: ifname,
  ifname,
  source: '{}',
  args: [],
  capabilityArgs: {},
  ...(asked === undefined ? {} : { asked }),
});
const wants = (asked: string): WantedNetwork => ({
  selection: selectByName(asked),
  namespace: 'ns',
  byPod: true,
  asked,
});

test.each<[string, (string | undefined)[], string[], number[], string[]]>([
  ['nothing changes', [undefined, 'a', 'b'], ['b', 'a'], [], []],
  ['one comes', [undefined, 'a'], ['a', 'b'], [], ['b']],
  ['one goes', [undefined, 'a', 'b'], ['b'], [1], []],
  ['the default network and those of the configuration stay', [undefined, undefined], [], [], []],
  ['the same one twice', [undefined, 'a'], ['a', 'a'], [], ['a']],
  ['one of two equal ones goes', [undefined, 'a', 'a'], ['a'], [2], []],
])('%s', (_, present, wanted, going, coming) => {
  const networks = present.map((asked, i) => has(`net${i}`, asked));
  const found = planFollowing(networks, wanted.map(wants));
  expect(found.going.map(one => networks.indexOf(one))).toEqual(going);
  expect(found.coming.map(({ asked }) => asked ?? '')).toEqual(coming);
});
