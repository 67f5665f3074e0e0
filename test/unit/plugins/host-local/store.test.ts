import { afterEach, beforeEach, describe, expect, test } from 'bun:test';
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Allocation } from '../../../../plugins/host-local/allocate.ts';
import { parseRange } from '../../../../plugins/host-local/range.ts';
import { type LeaseStore, listLeases, withStore } from '../../../../plugins/host-local/store.ts';
import { parseIp, renderIp } from '../../../../src/net/ip.ts';

const OWNER = { containerId: 'cid', ifname: 'eth0' };
let dir: string;

beforeEach(() => {
  dir = mkdtempSync(join(tmpdir(), 'leases-'));
});
afterEach(() => rmSync(dir, { recursive: true }));

function give(text: string, setIndex = 0): Allocation {
  const range = parseRange({ subnet: text.includes(':') ? 'fd00::/64' : '10.0.0.0/24' });
  return { ip: parseIp(text), range, setIndex };
}

function put(name: string, text: string): void {
  writeFileSync(join(dir, name), text);
}

function locked<T>(work: (store: LeaseStore) => T): T {
  return withStore(dir, work);
}

function contents(): Record<string, string> {
  return Object.fromEntries(
    readdirSync(dir)
      .filter(name => !name.startsWith('.'))
      .map(name => [name, readFileSync(join(dir, name), 'utf8')]),
  );
}

describe('LeaseStore.reserve()', () => {
  test('writes leases, pointers and lock as the reference does', () => {
    locked(store => store.reserve([give('10.0.0.2'), give('fd00::2', 1)], OWNER));
    expect(contents()).toEqual({
      '10.0.0.2': 'cid\r\neth0',
      'fd00::2': 'cid\r\neth0',
      'last_reserved_ip.0': '10.0.0.2',
      'last_reserved_ip.1': 'fd00::2',
      lock: '',
    });
    expect(statSync(join(dir, '10.0.0.2')).mode & 0o777).toBe(0o600);
    expect(statSync(join(dir, 'last_reserved_ip.0')).mode & 0o777).toBe(0o600);
    expect(statSync(join(dir, 'lock')).mode & 0o777).toBe(0o750 & ~process.umask());
  });

  test('takes back its own leases, and only those, when one fails', () => {
    put('10.0.0.3', 'other\r\neth0');
    put('10.0.0.9', 'cid\r\neth0');
    expect(() => locked(store => store.reserve([give('10.0.0.2'), give('10.0.0.3', 1)], OWNER))).toThrow(
      'Cannot reserve 10.0.0.3',
    );
    expect(listLeases(dir).sort()).toEqual(['10.0.0.3', '10.0.0.9']);
    expect(contents()['10.0.0.3']).toBe('other\r\neth0');
  });

  test('leaves a lease alone to which a crash left the unfinished name linked', () => {
    locked(store => store.reserve([give('10.0.0.2')], OWNER));
    Bun.spawnSync(['ln', join(dir, '10.0.0.2'), join(dir, '.catena-lease')]);
    locked(store => store.reserve([give('10.0.0.3', 0)], { containerId: 'second', ifname: 'eth0' }));
    expect(contents()['10.0.0.2']).toBe('cid\r\neth0');
    expect(existsSync(join(dir, '.catena-lease'))).toBe(false);
  });
});

describe('LeaseStore.findLeasesOf()', () => {
  test('finds by container and interface, not by container alone', () => {
    put('10.0.0.2', 'cid\r\neth0');
    put('10.0.0.3', 'cid\r\neth1');
    put('fd00::2', 'cid\r\neth0');
    expect(locked(store => store.findLeasesOf(OWNER)).sort()).toEqual(['10.0.0.2', 'fd00::2']);
  });

  test('falls back to leases without interface', () => {
    put('10.0.0.2', 'cid');
    put('10.0.0.3', 'other');
    expect(locked(store => store.findLeasesOf(OWNER))).toEqual(['10.0.0.2']);
    put('10.0.0.4', 'cid\r\neth0');
    expect(locked(store => store.findLeasesOf(OWNER))).toEqual(['10.0.0.4']);
  });

  test('ignores empty and foreign files', () => {
    put('10.0.0.2', '');
    put('10.0.0.3', 'cid\neth0');
    put('notes', 'cid\r\neth0');
    expect(locked(store => store.findLeasesOf(OWNER))).toEqual([]);
  });

  test('sees what another program did since the last call', () => {
    locked(store => store.reserve([give('10.0.0.2')], OWNER));
    put('10.0.0.3', 'cid\r\neth0');
    expect(locked(store => store.findLeasesOf(OWNER)).sort()).toEqual(['10.0.0.2', '10.0.0.3']);
    rmSync(join(dir, '10.0.0.2'));
    expect(locked(store => store.findLeasesOf(OWNER))).toEqual(['10.0.0.3']);
    rmSync(join(dir, '10.0.0.3'));
    put('10.0.0.2', 'other\r\neth0');
    expect(locked(store => store.findLeasesOf(OWNER))).toEqual([]);
  });
});

describe('LeaseStore.findLastReserved()', () => {
  test('ignores a pointer with anything but an address in it', () => {
    put('last_reserved_ip.0', '10.0.0.7');
    put('last_reserved_ip.1', '10.0.0.7\n');
    const read = (index: number) => locked(store => store.findLastReserved(index));
    const first = read(0);
    expect(first && renderIp(first)).toBe('10.0.0.7');
    expect(read(1)).toBeUndefined();
    expect(read(2)).toBeUndefined();
  });
});

describe('LeaseStore.release()', () => {
  test('takes leases away, absent ones are fine', () => {
    locked(store => store.reserve([give('10.0.0.2')], OWNER));
    locked(store => store.release(['10.0.0.2', '10.0.0.3']));
    expect(listLeases(dir)).toEqual([]);
    expect(locked(store => store.findLeasesOf(OWNER))).toEqual([]);
  });
});

describe('withStore()', () => {
  test('answers "try again later" when the lock cannot be opened', () => {
    expect(() => withStore('/nonexistent/leases', () => 0)).toThrow();
  });
});
