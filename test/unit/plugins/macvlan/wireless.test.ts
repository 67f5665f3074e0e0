import { expect, test } from 'bun:test';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { refuseWireless } from '../../../../plugins/macvlan/wireless.ts';

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
