// Whose device does a record say it is, and which files are none?
import { afterAll, expect, test } from 'bun:test';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { tryGiveBack } from '../../../../plugins/host-device/move.ts';
import {
  type DeviceRecord,
  findRecord,
  listRecords,
  parseRecord,
  recordDirOf,
  removeOutdated,
  removeRecord,
  writeRecord,
} from '../../../../plugins/host-device/record.ts';
import { parseIp } from '../../../../src/net/ip.ts';
import { addrMessage } from '../../../../src/netlink/rtnl/addr.ts';
import { routeMessage } from '../../../../src/netlink/rtnl/route.ts';

const RUN = fs.mkdtempSync(path.join(os.tmpdir(), 'cat-records-'));
afterAll(() => fs.rmSync(RUN, { recursive: true, force: true }));
const env = { CATENA_RUN_DIR: RUN, CATENA_BOOT_ID: 'this' };

/** 192.0.2.7/24 and a default route via 192.0.2.1, as the kernel tells them. */
const ADDRESS = Buffer.from(
  addrMessage.encode(
    { family: 2, prefix: 24, flags: 128, index: 3 },
    { address: parseIp('192.0.2.7'), local: parseIp('192.0.2.7'), label: 'ens4' },
  ),
);
const ROUTE = Buffer.from(
  routeMessage.encode(
    { family: 2, table: 254, protocol: 3, type: 1 },
    { gateway: parseIp('192.0.2.1'), oif: 3 },
  ),
);

const RECORD: DeviceRecord = {
  id: 'one',
  boot: 'this',
  network: 'podnet',
  containerId: 'c1',
  ifname: 'eth0',
  netns: { path: '/run/netns/c1', cookie: '7' },
  name: 'ens4',
  ifindex: 3,
  kind: '',
  mac: '02:00:00:00:00:01',
  parent: { bus: 'pci', name: '0000:03:00.0' },
  altNames: ['enp3s0'],
  node: '4711',
  flags: 0x1003,
  mtu: 1500,
  settings: { 27: 'AAAAAA==' },
  xdp: 0,
  addresses: [{ what: '192.0.2.7/24', message: ADDRESS.toString('base64') }],
  routes: [{ what: '0.0.0.0/0 via 192.0.2.1', message: ROUTE.toString('base64') }],
  rules: [],
};

test('a record is found by its attachment, and only of this boot', () => {
  writeRecord(env, RECORD);
  expect(findRecord(env, RECORD)).toEqual(RECORD);
  expect(findRecord(env, { ...RECORD, network: 'another' })).toBeUndefined();
  expect(listRecords(env)).toEqual([RECORD]);
  const later = { ...env, CATENA_BOOT_ID: 'next' };
  expect([findRecord(later, RECORD), listRecords(later)]).toEqual([undefined, []]);
  removeOutdated(env, 'podnet');
  removeOutdated(later, 'another');
  expect(findRecord(env, RECORD)).toEqual(RECORD);
  removeOutdated(later, 'podnet');
  expect(fs.readdirSync(recordDirOf(env))).toEqual([]);
});

test('a record is removed by the ADD that wrote it, not by an earlier one of the same attachment', () => {
  writeRecord(env, { ...RECORD, id: 'two' });
  removeRecord(env, RECORD);
  expect(findRecord(env, RECORD)?.id).toBe('two');
  removeRecord(env, { ...RECORD, id: 'two' });
  expect(findRecord(env, RECORD)).toBeUndefined();
});

test.each([
  { name: '../../x' },
  { ifname: '' },
  { addresses: [{ what: '192.0.2.7/24', message: 'AA==' }] },
  { routes: [{ what: '0.0.0.0/0', message: ROUTE.subarray(0, 14).toString('base64') }] },
  { settings: { nonsense: 'AA==' } },
  { mtu: 'x' },
])('a file with %p is no record', more => {
  expect(parseRecord(JSON.stringify({ ...RECORD, ...more }))).toBeUndefined();
});

test('the end of an earlier ADD leaves the device of a later one of the same attachment', () => {
  const later = { ...RECORD, id: 'later' };
  writeRecord(env, later);
  // Without a socket: neither namespace is looked at.
  expect(tryGiveBack({ environment: env } as never, RECORD)).toBe(true);
  expect(findRecord(env, RECORD)?.id).toBe('later');
  removeRecord(env, later);
});
