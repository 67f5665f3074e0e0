import { expect, test } from 'bun:test';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { MacvlanConf } from '../../../../plugins/macvlan/config.ts';
import { chainedMaster, planMacvlan, refuseWireless } from '../../../../plugins/macvlan/plugin.ts';
import { decode } from '../../../../src/cni/json.ts';

const conf = (more: object) => decode(MacvlanConf, { type: 'macvlan', ...more }, 'conf');
const owner = { network: 'podnet', containerId: 'web', ifname: 'eth0' };
const master = { mac: '52:54:00:12:34:56' };

test("a requested hardware address comes first, then one of the attachment; passthru has the master's", () => {
  expect(planMacvlan(conf({}), owner, master, 'c2:00:00:00:00:01').mac).toBe('c2:00:00:00:00:01');
  expect(planMacvlan(conf({}), owner, master, undefined).mac).toMatch(/^[0-9a-f][26ae]:/);
  expect(planMacvlan(conf({ mode: 'passthru' }), owner, master, undefined).mac).toBeUndefined();
});

test('mode, MTU and queue become attributes of the device', () => {
  const plan = planMacvlan(conf({ mode: 'private', mtu: 1400, bcqueuelen: 7 }), owner, master, undefined);
  expect(plan).toMatchObject({ kind: 'macvlan', mtu: 1400, data: { mode: 1, queueLength: 7 } });
});

test('the master of a chain is the only interface of the result, where the master is looked for', () => {
  const result = (...interfaces: object[]) => ({ cniVersion: '1.1.0', interfaces }) as never;
  expect(chainedMaster(conf({}), undefined)).toBeUndefined();
  expect(chainedMaster(conf({}), result({ name: 'up0' }))).toBe('up0');
  expect(chainedMaster(conf({}), result({ name: 'up0', sandbox: '/ns' }))).toBeUndefined();
  expect(chainedMaster(conf({ linkInContainer: true }), result({ name: 'up0', sandbox: '/ns' }))).toBe('up0');
  expect(chainedMaster(conf({}), result({ name: 'up0' }, { name: 'up1' }))).toBeUndefined();
});

test('a wireless master is refused with a sentence that names the way out', () => {
  const sysfs = fs.mkdtempSync(path.join(os.tmpdir(), 'catena-sysfs-'));
  try {
    fs.mkdirSync(`${sysfs}/class/net/wlan0/phy80211`, { recursive: true });
    fs.mkdirSync(`${sysfs}/class/net/eth0`, { recursive: true });
    const master = (name: string) => ({ link: { name } }) as never;
    expect(() => refuseWireless(master('wlan0'), sysfs)).toThrow(/use plugin ipvlan/);
    expect(() => refuseWireless(master('eth0'), sysfs)).not.toThrow();
  } finally {
    fs.rmSync(sysfs, { recursive: true });
  }
});
