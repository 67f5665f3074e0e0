import { afterEach, beforeEach, describe, expect, test } from 'bun:test';
import {
  appendFileSync,
  mkdtempSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Owner } from '../../../src/ipam/lease-files.ts';
import { OwnerIndex } from '../../../src/ipam/owner-index.ts';

const ONE: Owner = { containerId: 'one', ifname: 'eth0' };
const TWO: Owner = { containerId: 'two', ifname: 'eth0' };
let dir: string;

beforeEach(() => {
  dir = mkdtempSync(join(tmpdir(), 'owners-'));
});
afterEach(() => rmSync(dir, { recursive: true }));

function made(...leases: [string, Owner][]): OwnerIndex {
  const index = OwnerIndex.make(dir, leases, true);
  index.save();
  return index;
}

function put(name: string): void {
  writeFileSync(join(dir, name), 'x');
}

describe('OwnerIndex.find()', () => {
  test('returns nothing when there is no index', () => {
    expect(OwnerIndex.find(dir)).toBeUndefined();
  });

  test('considers an index valid until another program adds, removes or renames a file', () => {
    put('10.0.0.2');
    const changes = [
      () => put('10.0.0.3'),
      () => rmSync(join(dir, '10.0.0.3')),
      () => renameSync(join(dir, '10.0.0.2'), join(dir, '10.0.0.4')),
    ];
    for (const change of changes) {
      made(['10.0.0.2', ONE]);
      expect(OwnerIndex.find(dir)?.isCurrent).toBe(true);
      change();
      expect(OwnerIndex.find(dir)?.isCurrent).toBe(false);
    }
  });

  test('notices every foreign change, however soon it follows ours', () => {
    for (let i = 0; i < 500; i++) {
      made();
      put(`10.0.0.${i}`);
      expect(OwnerIndex.find(dir)?.isCurrent).toBe(false);
    }
  });

  test('rejects an index from before a reboot, of another version, or truncated', () => {
    made(['10.0.0.2', ONE]);
    const file = join(dir, '.catena-owners');
    const good = readFileSync(file, 'utf8');
    const { atime, mtime } = statSync(dir);
    const bad = [
      good.replace(/[\da-f]{8}-/, '00000000-'),
      good.replace('owners 6', 'owners 5'),
      good.slice(0, -1),
      good.slice(0, 30),
      '',
    ];
    for (const text of bad) {
      writeFileSync(file, text);
      expect(statSync(dir)).toMatchObject({ mtime });
      expect(OwnerIndex.find(dir)).toBeUndefined();
    }
    writeFileSync(file, good);
    expect(OwnerIndex.find(dir)).toBeDefined();
    expect(atime).toBeDefined();
  });
});

describe('OwnerIndex.findCandidates()', () => {
  test('returns every address of a container, whatever interface the lease names', () => {
    made(['10.0.0.2', ONE], ['10.0.0.3', TWO], ['fd00::2', ONE], ['10.0.0.4', { containerId: 'one' }]);
    const index = OwnerIndex.find(dir);
    expect(index?.findCandidates('one')).toEqual(['10.0.0.2', 'fd00::2', '10.0.0.4']);
    expect(index?.findCandidates('two')).toEqual(['10.0.0.3']);
    for (const other of ['ne', 'on', 'eth0', '10.0.0.2']) expect(index?.findCandidates(other)).toEqual([]);
  });

  test('returns later additions, each address once', () => {
    made(['10.0.0.2', ONE]);
    const index = OwnerIndex.find(dir);
    expect(index?.findCandidates('two')).toEqual([]);
    index?.add([['10.0.0.9', TWO]]);
    // On disk before anything else is: a process killed now leaves it to be found.
    expect(OwnerIndex.find(dir)?.isCurrent).toBe(true);
    expect(OwnerIndex.find(dir)?.findCandidates('two')).toEqual(['10.0.0.9']);
    index?.add([['10.0.0.2', ONE]]);
    index?.save();
    expect(index?.findCandidates('two')).toEqual(['10.0.0.9']);
    expect(OwnerIndex.find(dir)?.findCandidates('two')).toEqual(['10.0.0.9']);
    expect(OwnerIndex.find(dir)?.findCandidates('one')).toEqual(['10.0.0.2']);
  });
});

describe('OwnerIndex.listed()', () => {
  test('returns what was added and not released since, also from disk', () => {
    made(['10.0.0.2', ONE], ['fd00::2', { containerId: 'one' }]);
    appendFileSync(join(dir, '.catena-owners'), '10.0.0.7\thalf');
    const index = OwnerIndex.find(dir);
    index?.add([
      ['10.0.0.3', TWO],
      ['10.0.0.4', TWO],
    ]);
    index?.forget(['10.0.0.3', '10.0.0.2', '10.0.0.8']);
    index?.add([['10.0.0.3', ONE]]);
    for (const one of [index, OwnerIndex.find(dir)]) {
      expect([...(one?.listed() ?? [])].sort()).toEqual(['10.0.0.3', '10.0.0.4', 'fd00::2']);
    }
  });

  test('is asked before many candidates are returned', () => {
    const index = made();
    for (const n of [2, 3, 4, 5, 6, 7]) index.add([[`10.0.0.${n}`, ONE]]);
    index.forget(['10.0.0.2', '10.0.0.4', '10.0.0.6']);
    expect(index.findCandidates('one')).toEqual(['10.0.0.3', '10.0.0.5', '10.0.0.7']);
  });
});

describe('OwnerIndex.add()', () => {
  test('appends whole lines, also after half a line of a killed process', () => {
    made(['10.0.0.2', ONE]);
    appendFileSync(join(dir, '.catena-owners'), '10.0.0.3\tki');
    const index = OwnerIndex.find(dir);
    index?.add([
      ['10.0.0.4', TWO],
      ['fd00::4', TWO],
    ]);
    index?.add([['10.0.0.5', TWO]]);
    const found = [index, OwnerIndex.find(dir)].map(one => one?.findCandidates('two'));
    expect(found).toEqual(Array(2).fill(['10.0.0.4', 'fd00::4', '10.0.0.5']));
    expect(index?.findCandidates('one')).toEqual(['10.0.0.2']);
  });

  test('appends to an index that is too large to be read at once', () => {
    const many = Array.from({ length: 9000 }, (_, i): [string, Owner] => [
      `10.0.${i >> 8}.${i & 255}`,
      { containerId: `many${i}`, ifname: 'eth0' },
    ]);
    made(...many, ['fd00::1', ONE]);
    expect(statSync(join(dir, '.catena-owners')).size).toBeGreaterThan(200_000);
    const index = OwnerIndex.find(dir);
    expect(index?.findCandidates('one')).toEqual(['fd00::1']);
    index?.add([['fd00::2', ONE]]);
    expect(index?.findCandidates('one')).toEqual(['fd00::1', 'fd00::2']);
    expect(index?.findCandidates('many4711')).toEqual(['10.0.18.103']);
  });
});

describe('OwnerIndex.save()', () => {
  test('lets an index of mostly deleted leases be rebuilt', () => {
    made(['10.0.0.2', ONE]);
    let rounds = 0;
    for (let index = OwnerIndex.find(dir); index && !index.isWorn; index = OwnerIndex.find(dir)) {
      const gone = (i: number): [string, Owner] => [
        `10.0.1.${i}`,
        { containerId: `gone${rounds}-${i}`, ifname: 'eth0' },
      ];
      index.add(Array.from({ length: 500 }, (_, i) => gone(i)));
      put('10.0.0.2');
      rmSync(join(dir, '10.0.0.2'));
      index.save();
      rounds++;
    }
    expect(OwnerIndex.find(dir)?.isCurrent).toBe(false);
    expect(rounds).toBeLessThan(20);
    expect(statSync(join(dir, '.catena-owners')).size).toBeLessThan(128 * 1024);
  });
});
