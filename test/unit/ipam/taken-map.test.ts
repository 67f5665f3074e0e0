import { afterEach, beforeEach, describe, expect, test } from 'bun:test';
import { mkdtempSync, rmSync, statSync, truncateSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { TakenMap } from '../../../src/ipam/taken-map.ts';
import { type Ip, offsetIp, parseIp, renderIp } from '../../../src/net/ip.ts';

let dir: string;
beforeEach(() => {
  dir = mkdtempSync(join(tmpdir(), 'taken-'));
});
afterEach(() => rmSync(dir, { recursive: true }));

function row(from: string, count: number): Ip[] {
  return Array.from({ length: count }, (_, i) => offsetIp(parseIp(from), BigInt(i)));
}

function make(taken: readonly Ip[]): TakenMap {
  const map = TakenMap.make(dir);
  map.update(taken.map(renderIp));
  map.save();
  return map;
}

function free(map: TakenMap | undefined, from: string, to: string): string | undefined {
  const ip = map?.findFree(parseIp(from), parseIp(to));
  return ip && renderIp(ip);
}

describe('TakenMap.findFree()', () => {
  test('returns the first free address from either end of bytes and blocks', () => {
    const map = make(row('10.0.0.3', 600));
    expect(free(map, '10.0.0.2', '10.0.9.9')).toBe('10.0.0.2');
    expect(free(map, '10.0.0.3', '10.0.9.9')).toBe('10.0.2.91');
    expect(free(map, '10.0.0.77', '10.0.2.90')).toBeUndefined();
    expect(free(map, '10.0.0.77', '10.0.2.91')).toBe('10.0.2.91');
    expect(free(map, '10.0.7.5', '10.0.7.5')).toBe('10.0.7.5');
    expect(free(map, '10.0.7.5', '10.0.7.4')).toBeUndefined();
  });

  test('distinguishes families and neighbouring blocks', () => {
    const map = make([...row('10.0.0.0', 256), ...row('fd00::', 256), ...row('::a00:0', 3)]);
    expect(free(map, '10.0.0.0', '10.0.255.255')).toBe('10.0.1.0');
    expect(free(map, 'fd00::', 'fd00::ffff:ffff')).toBe('fd00::100');
    expect(free(map, '::a00:0', '::a00:ff')).toBe('::a00:3');
    expect(free(map, 'ffff:ffff:ffff:ffff::', 'ffff:ffff:ffff:ffff::5')).toBe('ffff:ffff:ffff:ffff::');
  });

  test('agrees with a set after random changes, also when reloaded from disk', () => {
    const taken = new Set<string>();
    let map: TakenMap | undefined = make([]);
    for (let i = 0; i < 3000; i++) {
      const ip = parseIp(`10.0.${(i * 7919) % 5}.${(i * 104729) % 256}`);
      if (i % 3) {
        map?.set(ip);
        taken.add(renderIp(ip));
      } else {
        map?.clear(ip);
        taken.delete(renderIp(ip));
      }
      if (i % 100) continue;
      map?.save();
      map = TakenMap.find(dir);
      const from = parseIp('10.0.0.200');
      const expected = row('10.0.0.200', 1100).find(one => !taken.has(renderIp(one)));
      expect(map?.findFree(from, offsetIp(from, 1099n))).toEqual(expected);
      const counted = row('10.0.0.200', 600).filter(one => taken.has(renderIp(one))).length;
      expect(map?.count(from, offsetIp(from, 599n))).toBe(counted);
    }
  });
});

describe('TakenMap.update()', () => {
  test('reports new addresses, and forgets released ones', () => {
    const map = make([...row('10.0.0.250', 10), parseIp('fd00::1')]);
    const now = [...row('10.0.0.255', 10), ...row('fd00::1', 2), parseIp('10.9.0.1')].map(renderIp);
    const news = [...row('10.0.1.4', 5), parseIp('fd00::2'), parseIp('10.9.0.1')].map(renderIp);
    expect(map.update(now)).toEqual(news);
    map.save();
    const found = TakenMap.find(dir);
    for (const address of now) expect(found?.has(address)).toBe(true);
    for (const address of row('10.0.0.250', 5)) expect(found?.has(renderIp(address))).toBe(false);
    expect(found?.count(parseIp('10.0.0.0'), parseIp('10.0.255.255'))).toBe(10);
    expect(found?.update([...now, 'lock', 'last_reserved_ip.0', '.catena-taken', '010.0.0.1'])).toEqual([]);
  });
});

describe('TakenMap.has()', () => {
  test('distinguishes neighbours, whichever way their last group is written', () => {
    const taken = [
      'fd00::',
      'fd00::4',
      'fd00::1f',
      'fd00::104',
      'fd00::1004',
      'fd00::f104',
      'fd00:0:0:1::',
      '::1',
    ];
    const map = make(taken.map(parseIp));
    for (let i = 0; i < 0x1_0000; i += 4) {
      const address = renderIp(offsetIp(parseIp('fd00::'), BigInt(i)));
      expect([address, map.has(address)]).toEqual([address, taken.includes(address)]);
    }
    for (const address of taken) expect([address, map.has(address)]).toEqual([address, true]);
    for (const address of ['fd00::2:4', 'fd00:0:0:1::4', 'fd01::4', '::', '::11', '::4'])
      expect([address, map.has(address)]).toEqual([address, false]);
  });

  test('sees blocks added after the first query, and rejects invalid addresses', () => {
    const map = make(['10.0.0.4', '1::102:304'].map(parseIp));
    expect(map.has('fd00::4')).toBe(false);
    map.set(parseIp('fd00::5'));
    expect(['fd00::5', '::ffff:a00:4', '1::1.2.3.4'].map(text => map.has(text))).toEqual([true, true, true]);
    for (const text of ['fd00::5g', '::fd00::5', 'd00::12345', '1:2:05', ':5', '5', '', 'lock'])
      expect([text, map.has(text)]).toEqual([text, false]);
  });
});

describe('TakenMap.save()', () => {
  test('writes changed blocks, few or many, near the beginning or far from it', () => {
    make(row('10.0.0.0', 256 * 200));
    const changes = [
      [0],
      [3, 7],
      [150],
      [2, 199],
      [160, 170, 180],
      Array.from({ length: 60 }, (_, i) => 3 * i),
    ];
    const free: string[] = [];
    for (const blocks of changes) {
      const map = TakenMap.find(dir);
      for (const block of blocks) {
        map?.clear(parseIp(`10.0.${block}.77`));
        free.push(`10.0.${block}.77`);
      }
      map?.set(parseIp(`10.9.${blocks.length}.1`));
      map?.save();
      const found = TakenMap.find(dir);
      for (let block = 0; block < 200; block++) {
        const address = `10.0.${block}.77`;
        expect([address, found?.has(address)]).toEqual([address, !free.includes(address)]);
      }
      expect(found?.has(`10.9.${blocks.length}.1`)).toBe(true);
    }
  });
});

describe('TakenMap.find()', () => {
  test('returns nothing without a file, else 48 bytes per block and for itself', () => {
    expect(TakenMap.find(dir)).toBeUndefined();
    make([...row('10.0.0.0', 1000), parseIp('fd00::1')]);
    expect(statSync(join(dir, '.catena-taken')).size).toBe(6 * 48);
  });

  test.each([48, 47, 10, -48])('returns nothing for a file that is %i bytes too short', bytes => {
    make(row('10.0.0.0', 1000));
    const file = join(dir, '.catena-taken');
    truncateSync(file, statSync(file).size - bytes);
    expect(TakenMap.find(dir)).toBeUndefined();
  });

  test('knows its length after it has grown', () => {
    const map = make([]);
    for (const ip of row('10.0.0.250', 300)) map.set(ip);
    map.save();
    expect(TakenMap.find(dir)?.count(parseIp('10.0.0.0'), parseIp('10.0.9.0'))).toBe(300);
  });
});
