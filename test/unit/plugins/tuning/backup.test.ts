import { afterEach, beforeEach, describe, expect, test } from 'bun:test';
import { mkdtempSync, readdirSync, readFileSync, rmSync, statSync, utimesSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import {
  asLast,
  backupPathOf,
  findBackup,
  findStaleBackups,
  mergeBackups,
  passOn,
  removeBackup,
  renderBackup,
  splitBackup,
  writeBackup,
} from '../../../../plugins/tuning/backup.ts';
import { keptWith } from '../../../helpers/kept.ts';

let dir: string;
beforeEach(() => {
  dir = mkdtempSync(join(tmpdir(), 'tuning-'));
});
afterEach(() => rmSync(dir, { recursive: true }));

describe('renderBackup()', () => {
  test('writes the bytes of the reference', () => {
    const all = { txQLen: 1000, allmulti: false, mtu: 1500, promisc: false, mac: '1a:c7:7e:3d:5f:31' };
    expect(renderBackup(all)).toBe(
      '{\n "mac": "1a:c7:7e:3d:5f:31",\n "promisc": false,\n "mtu": 1500,\n "allmulti": false,\n "txQLen": 1000\n}',
    );
    expect(renderBackup({ mtu: 1500 })).toBe('{\n "mtu": 1500\n}');
  });

  test('appends the network and sysctls', () => {
    expect(renderBackup({ network: 'podnet', mtu: 1500 })).toBe('{\n "mtu": 1500,\n "network": "podnet"\n}');

    expect(renderBackup({ sysctl: { 'net/a': '1' }, mtu: 1500 })).toBe(
      '{\n "mtu": 1500,\n "sysctl": {\n  "net/a": "1"\n }\n}',
    );
  });
});

describe('mergeBackups()', () => {
  test('keeps the older values and adds what is new', () => {
    const older = { mtu: 1500, sysctl: { 'net/a': '0' } };
    const newer = { mtu: 1400, mac: 'x', sysctl: { 'net/a': '1', 'net/b': '1' } };
    expect(mergeBackups(older, newer)).toEqual({
      mac: 'x',
      mtu: 1500,
      sysctl: { 'net/a': '0', 'net/b': '1' },
    });
  });

  test('uses the network of the newer, which may be the first to name one', () => {
    expect(mergeBackups({ mtu: 1500 }, { network: 'a' })).toEqual({ mtu: 1500, network: 'a' });
    expect(mergeBackups({ network: 'a' }, { mtu: 1500 })).toEqual({ mtu: 1500, network: 'a' });
    expect(mergeBackups({ network: 'a' }, { network: 'b' })).toEqual({ network: 'b' });
  });
});

describe('sysctls of several interfaces', () => {
  const kept = (ifname: string, value: string, place?: number) => {
    const order = place === undefined ? {} : { order: { 'net/a': place } };
    const backup = { sysctl: { 'net/a': value }, ...order };
    const path = backupPathOf(dir, 'cid', ifname);
    writeBackup(path, backup);
    return { path, backup };
  };

  test('each comes after those that have set the same', () => {
    const found = { mtu: 1500, sysctl: { 'net/a': '2', 'net/b': '0' } };
    expect(asLast(found, {}, [])).toEqual(found);
    const neighbours = [kept('net1', '0'), kept('net2', '1', 4)];
    expect(asLast(found, {}, neighbours)).toEqual({ ...found, order: { 'net/a': 5 } });
    expect(asLast(found, { sysctl: { 'net/a': '0' } }, neighbours)).toEqual(found);
  });

  test('a value passes to the next one, and what is left is to be restored', () => {
    const [first, next, last] = [kept('net1', '0'), kept('net2', '1', 1), kept('net3', '2', 2)];
    const own = { mtu: 1500, sysctl: { 'net/a': '0', 'net/b': '7' } };
    expect(passOn(own, [last, next])).toEqual({ mtu: 1500, sysctl: { 'net/b': '7' } });
    expect([next, last].map(({ path }) => findBackup(path)?.sysctl)).toEqual([
      { 'net/a': '0' },
      { 'net/a': '2' },
    ]);
    expect(passOn(last.backup, [first, next])).toEqual(last.backup);
    const alone = { sysctl: { 'net/c': '1' } };
    expect(passOn(alone, [first, next, last])).toEqual(alone);
  });
});

describe('findStaleBackups()', () => {
  test('finds those of invalid attachments of the network, also of unfinished ADDs', () => {
    const keep = (id: string, backup: object, end = '') =>
      writeFileSync(`${backupPathOf(dir, id, 'eth0')}${end}`, JSON.stringify(backup));
    keep('valid', { mtu: 1, network: 'podnet' });
    keep('valid', { mtu: 1, network: 'podnet' }, '.new');
    keep('stale', { mtu: 1, network: 'podnet' });
    keep('half', { mtu: 1, network: 'podnet' }, '.new');
    keep('foreign', { mtu: 1, network: 'othernet' });
    keep('old', { mtu: 1 });
    keep('notes', { network: 'podnet' }, '.txt');
    writeFileSync(join(dir, 'torn_eth0.json'), '{"network": "podnet"');
    writeFileSync(join(dir, 'other.json'), '{"network": "podnet"}');
    const valid = keptWith([{ containerID: 'valid', ifname: 'eth0' }]);
    const names = findStaleBackups(dir, 'podnet', valid).map(path => path.slice(dir.length + 1));
    expect(names.sort()).toEqual(['half_eth0.json.new', 'stale_eth0.json']);
  });

  test('finds truncated files once no process can be writing them', () => {
    const torn = (id: string, time: Date) => {
      const path = `${backupPathOf(dir, id, 'eth0')}.new`;
      writeFileSync(path, '{"netw');
      utimesSync(path, time, time);
      return path;
    };
    torn('young', new Date());
    const old = torn('old', new Date(Date.now() - 3_600_000));
    torn('valid', new Date(0));
    const valid = keptWith([{ containerID: 'valid', ifname: 'eth0' }]);
    expect(findStaleBackups(dir, 'podnet', valid)).toEqual([old]);
  });

  test('finds none without a directory, and reports a directory that it cannot read', () => {
    expect(findStaleBackups(join(dir, 'none'), 'podnet', keptWith([]))).toEqual([]);
    writeFileSync(join(dir, 'file'), '');
    expect(() => findStaleBackups(join(dir, 'file'), 'podnet', keptWith([]))).toThrow(
      `Cannot list backups in "${dir}/file": ENOTDIR`,
    );
  });
});

describe('writeBackup()', () => {
  test('creates a directory that can be entered and a file for root only', () => {
    const path = backupPathOf(join(dir, 'deep/er'), 'cid', 'eth0');
    writeBackup(path, { mtu: 1500 });
    expect(path).toBe(join(dir, 'deep/er/cid_eth0.json'));
    expect(statSync(join(dir, 'deep/er')).mode & 0o777).toBe(0o700);
    expect(statSync(path).mode & 0o777).toBe(0o600);
    expect(readdirSync(join(dir, 'deep/er'))).toEqual(['cid_eth0.json']);
    expect(readFileSync(path, 'utf8')).toBe('{\n "mtu": 1500\n}');
  });

  test('uses the default for an empty directory', () => {
    expect(backupPathOf('', 'cid', 'eth0')).toBe('/run/cni/tuning/cid_eth0.json');
    expect(backupPathOf(undefined, 'cid', 'eth0')).toBe('/run/cni/tuning/cid_eth0.json');
  });
});

describe('removeBackup()', () => {
  test('removes what an ADD left that was killed while writing', () => {
    const path = backupPathOf(dir, 'cid', 'eth0');
    writeBackup(path, { mtu: 1500 });
    writeFileSync(`${path}.new`, '{"mt');
    removeBackup(path);
    expect(readdirSync(dir)).toEqual([]);
  });
});

describe('findBackup()', () => {
  test('reads backups of either plugin', () => {
    const path = join(dir, 'a.json');
    writeFileSync(path, '{"promisc":true,"added":1}');
    expect(findBackup(path)).toEqual({ promisc: true, added: 1 });
  });

  test('ignores sysctls that DEL must not write', () => {
    const path = join(dir, 'a.json');
    const sysctl = {
      'net/core/somaxconn': '1',
      'kernel/core_pattern': '|x',
      'net/../kernel/core_pattern': '|x',
    };
    writeFileSync(path, JSON.stringify({ mtu: 1500, sysctl }));
    expect(findBackup(path)).toEqual({ mtu: 1500, sysctl: { 'net/core/somaxconn': '1' } });
  });

  test('finds nothing in a missing or truncated file', () => {
    writeFileSync(join(dir, 'a.json'), '{"promisc":');
    expect(findBackup(join(dir, 'a.json'))).toBeUndefined();
    expect(findBackup(join(dir, 'b.json'))).toBeUndefined();
    expect(() => removeBackup(join(dir, 'b.json'))).not.toThrow();
  });
});

test('splitBackup() keeps the places of sysctls that are still set, and of no others', () => {
  const whole = {
    network: 'podnet',
    mtu: 1500,
    sysctl: { 'net/a': '0', 'net/b': '1' },
    order: { 'net/a': 1, 'net/b': 2 },
  };
  const path = (key: string) => ({ key, paths: [key] as const, value: '9' });
  const past = { sysctls: ['net/a', 'net/b'].map(path), link: { mtu: 1400 } };
  expect(splitBackup(whole, { sysctl: { 'net/b': '1' } }, past)).toEqual({
    needed: { network: 'podnet', sysctl: { 'net/b': '1' }, order: { 'net/b': 2 } },
    obsolete: { mtu: 1500, sysctl: { 'net/a': '0' }, order: { 'net/a': 1 } },
  });
});
