// Is a lease that no interface has told from one whose ADD may be in progress?

import { afterAll, describe, expect, test } from 'bun:test';
import { mkdtempSync, rmSync, utimesSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { findGarbage, inspectLease } from '../../../src/ipam/garbage.ts';
import { parseOwner } from '../../../src/ipam/lease-files.ts';
import { keptWith } from '../../helpers/kept.ts';

const dir = mkdtempSync(join(tmpdir(), 'catena-inspect-'));
afterAll(() => rmSync(dir, { recursive: true }));

test.each([
  [0, 'new'],
  [-50, 'new'],
  [-70, 'unused'],
  // The clock was set back since.
  [50, 'new'],
  [3600, 'unused'],
])('a lease that is dated %d s from now is %s', (seconds, state) => {
  const path = join(dir, '10.1.0.2');
  writeFileSync(path, 'c1\r\neth0');
  const time = Date.now() / 1000 + seconds;
  utimesSync(path, time, time);
  const witnesses = { findRecord: () => undefined, holders: new Map() };
  expect(inspectLease(dir, '10.1.0.2', witnesses)).toMatchObject({
    state,
    owner: { containerId: 'c1' },
  } as never);
});

describe('findGarbage()', () => {
  const files: Record<string, string> = {
    '10.0.0.2': 'one\r\neth0',
    '10.0.0.3': 'one\r\neth1',
    '10.0.0.4': 'one',
    '10.0.0.5': 'two',
    '10.0.0.6': '',
    '10.0.0.7': '{}',
  };
  const store = {
    findOwner: (address: string) => parseOwner(files[address] ?? ''),
    isTorn: (address: string) => files[address] === '',
    findTime: () => 1_000,
  };
  const find = (valid: { containerID: string; ifname: string }[], since = 20_000) =>
    findGarbage(store, Object.keys(files), keptWith(valid, since));

  test('keeps listed leases and unknown files', () => {
    expect(find([{ containerID: 'one', ifname: 'eth0' }])).toEqual(['10.0.0.3', '10.0.0.5', '10.0.0.6']);
  });
  test('keeps leases written after GC began, by either plugin', () => {
    expect(find([], 1_000)).toEqual(['10.0.0.6']);
  });
  test('keeps leases without a note that are a few seconds old: their ADD may be in progress', () => {
    expect(find([], 11_000)).toEqual(['10.0.0.6']);
    expect(find([], 11_001)).toContain('10.0.0.2');
  });
  test('deletes leases as young as that if a note tells that their ADD began before GC', () => {
    const kept = { ...keptWith([], 2_000), isNoted: ({ ifname }: { ifname: string }) => ifname === 'eth1' };
    expect(findGarbage(store, Object.keys(files), kept)).toEqual(['10.0.0.3', '10.0.0.6']);
    // One of the same tick of the clock may be of an ADD that began after GC.
    expect(findGarbage(store, Object.keys(files), { ...kept, since: 1_000 })).toEqual(['10.0.0.6']);
  });
  test('an empty list keeps foreign files only', () => {
    expect(find([])).toEqual(['10.0.0.2', '10.0.0.3', '10.0.0.4', '10.0.0.5', '10.0.0.6']);
  });
});
