import { afterEach, beforeEach, describe, expect, test } from 'bun:test';
import { mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import {
  backupPathOf,
  findBackup,
  mergeBackups,
  removeBackup,
  renderBackup,
  writeBackup,
} from '../../../../plugins/tuning/backup.ts';

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

  test('adds sysctls behind', () => {
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
});

describe('writeBackup()', () => {
  test('makes a directory that can be entered and a file for root alone', () => {
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

describe('findBackup()', () => {
  test('reads what was written, by whomever', () => {
    const path = join(dir, 'a.json');
    writeFileSync(path, '{"promisc":true,"added":1}');
    expect(findBackup(path)).toEqual({ promisc: true, added: 1 });
  });

  test('finds nothing in a missing or torn file', () => {
    writeFileSync(join(dir, 'a.json'), '{"promisc":');
    expect(findBackup(join(dir, 'a.json'))).toBeUndefined();
    expect(findBackup(join(dir, 'b.json'))).toBeUndefined();
    expect(() => removeBackup(join(dir, 'b.json'))).not.toThrow();
  });
});
