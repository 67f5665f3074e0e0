// Which addresses do blocks offer, also those whose pool excludes something that it did not when they were claimed?
import { describe, expect, test } from 'bun:test';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { LeaseStore } from '../../../src/ipam/lease-store.ts';
import { parseIp, renderIp } from '../../../src/net/ip.ts';
import { obtain } from '../../../src/pools/claim.ts';
import { directoryStore } from '../../../src/pools/directory-store.ts';
import { type Held, type HeldBlock, newlyHeld, type Terms, termsOf } from '../../../src/pools/held.ts';
import { chooseAddresses, useOf } from '../../../src/pools/lease.ts';
import { heldIn, isConfirmed } from '../../../src/pools/place.ts';
import { blockWith, parsePool } from '../../../src/pools/pool.ts';

const NONE_LEASED = {
  findFree: (from: { family: 4 | 6; value: bigint }) => from,
  findLastReserved: () => undefined,
  countTaken: () => 0,
};

function termsWith(exclude: string[]): Terms {
  const subnets = [{ ipv4: '10.69.0.0/28', ipv6: 'fd69::/124' }];
  return termsOf(parsePool('p', { layout: 'flat', blockSize: 1, subnets, exclude }));
}

function heldWith(exclude: string[], ...numbers: number[]): Held {
  const blocks = numbers.map((number): HeldBlock => {
    const [ipv4, ipv6] = [`10.69.0.${number}`, `fd69::${number}`];
    const ranges = [
      { from: ipv4, to: ipv4, prefix: 28 },
      { from: ipv6, to: ipv6, prefix: 124 },
    ];
    return { pool: 'p', name: `p-${ipv4}`, size: 1, state: 'held', ranges };
  });
  return { node: 'a', boot: 'b', blocks, terms: { p: termsWith(exclude) } };
}

test('a pod of a pool of both families gets none of one alone, if all that is held of the other is excluded now', () => {
  expect(chooseAddresses(heldWith(['10.69.0.3'], 3), 'p', NONE_LEASED)).toBeUndefined();
  expect(useOf(heldWith(['10.69.0.3'], 3), 'p', NONE_LEASED)).toEqual({ size: 0, used: 0, free: 0 });
});

test('an exclusion of IPv4 may be written as IPv6 writes it', () => {
  expect(chooseAddresses(heldWith(['::ffff:10.69.0.3'], 3), 'p', NONE_LEASED)).toBeUndefined();
});

test('further blocks offer the family that is excluded of the first', () => {
  const chosen = chooseAddresses(heldWith(['10.69.0.3'], 3, 5), 'p', NONE_LEASED);
  expect(chosen?.map(({ ip }) => ip.value & 0xfn)).toEqual([5n, 3n]);
  expect(useOf(heldWith(['10.69.0.3'], 3, 5), 'p', NONE_LEASED)).toEqual({ size: 1, used: 0, free: 1 });
});

describe('a flat pool of two subnets, each with a router', () => {
  const gateways = ['10.69.0.1', '10.70.0.9'];
  const subnets = [{ ipv4: '10.69.0.0/28' }, { ipv4: '10.70.0.0/28' }];
  const pool = parsePool('p', { layout: 'flat', blockSize: 16, subnets, gateways });
  const blocks = ['10.69.0.2', '10.70.0.2'].map(text => newlyHeld('p', 16, shapeWith(text)));
  const own = blocks.map((block): HeldBlock => ({ ...block, state: 'held' }));

  function shapeWith(text: string) {
    const shape = blockWith(pool, [parseIp(text)]);
    if (shape === undefined) throw new Error(`${text} is in no block`);
    return shape;
  }

  test('hands out neither, and reports the one in the subnet', () => {
    expect(
      own.map(({ ranges }) => ranges.map(({ from, to, gateway }) => `${from}-${to} ${gateway}`)),
    ).toEqual([
      ['10.69.0.2-10.69.0.14 10.69.0.1'],
      ['10.70.0.1-10.70.0.8 10.70.0.9', '10.70.0.10-10.70.0.14 10.70.0.9'],
    ]);
    expect(blockWith(pool, [parseIp('10.70.0.9')])).toBeUndefined();
  });

  test('also of blocks that were claimed before it had them', () => {
    const before = own.map(({ ranges, ...block }): HeldBlock => {
      const subnet = ranges[0]?.from.split('.').slice(0, 3).join('.');
      return { ...block, ranges: [{ from: `${subnet}.1`, to: `${subnet}.14`, prefix: 28 }] };
    });
    const held = (block?: HeldBlock): Held => ({
      ...{ node: 'a', boot: 'b', blocks: block ? [block] : before, terms: { p: termsOf(pool) } },
    });
    expect(useOf(held(), 'p', NONE_LEASED).size).toBe(26);
    const chosen = before.map(block => chooseAddresses(held(block), 'p', NONE_LEASED)?.[0]?.gateway);
    expect(chosen).toEqual(gateways);
  });
});

test('blocks that a node holds follow the layout of their pool', () => {
  const subnets = [{ ipv4: '10.69.0.0/24' }];
  const routed = parsePool('p', { subnets, blockSize: 16 });
  const flat = parsePool('p', { subnets, blockSize: 16, layout: 'flat', gateways: ['10.69.0.1'] });
  const chosenOf = (claimed: typeof routed, now: typeof routed) => {
    const shape = blockWith(claimed, [parseIp('10.69.0.72')]);
    const blocks = shape ? [{ ...newlyHeld('p', 16, shape), state: 'held' as const }] : [];
    const held = { node: 'a', boot: 'b', blocks, terms: { p: termsOf(now) } };
    const [one] = chooseAddresses(held, 'p', NONE_LEASED) ?? [];
    return one && `${renderIp(one.ip)}/${one.prefix} ${one.gateway}`;
  };
  expect(chosenOf(routed, routed)).toBe('10.69.0.66/28 10.69.0.65');
  expect(chosenOf(flat, flat)).toBe('10.69.0.64/24 10.69.0.1');
  expect(chosenOf(routed, flat)).toBe('10.69.0.66/24 10.69.0.1');
  // All of its addresses are for pods, so none is left for the node's router.
  expect(chosenOf(flat, routed)).toBeUndefined();
});

test('an address of a large subnet can be asked for, wherever it is', () => {
  const pool = parsePool('p', { layout: 'flat', blockSize: 1, subnets: [{ ipv6: 'fd69::/64' }] });
  expect(blockWith(pool, [parseIp('fd69::dead:beef:0:9')])?.name).toBe('p-fd69--dead-beef-0-9');
  const pair = [{ ipv4: '10.69.0.0/28', ipv6: 'fd69::/64' }];
  const dual = parsePool('p', { layout: 'flat', blockSize: 1, subnets: pair });
  expect(blockWith(dual, [parseIp('fd69::9')])?.name).toBe('p-10.69.0.9');
  expect(blockWith(dual, [parseIp('fd69::dead:9')])).toBeUndefined();
});

test('a comparison counts for twenty minutes by either clock: a machine that was paused has lost what others collected', () => {
  const place = { clock: () => 1_000 };
  const now = Date.now();
  expect(isConfirmed(place, { checkedAt: 900 })).toBe(true);
  expect(isConfirmed(place, { checkedAt: 900, checkedOn: now - 100_000 })).toBe(true);
  expect(isConfirmed(place, { checkedAt: 900, checkedOn: now - 3_600_000 })).toBe(false);
  expect(isConfirmed(place, { checkedAt: 900, checkedOn: now + 3_600_000 })).toBe(false);
  expect(isConfirmed({ clock: () => 3_000 }, { checkedAt: 900, checkedOn: now })).toBe(false);
});

test('a block of several addresses grants no particular one', () => {
  const pool = parsePool('p', { subnets: [{ ipv4: '10.69.0.0/24' }] });
  const shape = blockWith(pool, [parseIp('10.69.0.9')]);
  const blocks = shape ? [{ ...newlyHeld('p', 64, shape), state: 'held' as const }] : [];
  const held: Held = { node: 'a', boot: 'b', blocks };
  const wish = { keptFor: undefined, keepS: undefined, isPromise: true, addresses: [parseIp('10.69.0.9')] };
  expect(chooseAddresses(held, 'p', NONE_LEASED)).toHaveLength(1);
  expect(chooseAddresses(held, 'p', NONE_LEASED, wish)).toBeUndefined();
});

test('once a pool excludes less, one block more is claimed, and not all that were excluded', async () => {
  const dir = mkdtempSync(join(tmpdir(), 'cat-terms-'));
  const place = {
    network: 'net',
    dir: `${dir}/leases`,
    node: 'a',
    machine: undefined,
    boot: 'b',
    reclaim: false,
  };
  const claimant = { ...place, clock: () => 0, store: directoryStore(`${dir}/store`), random: () => 0 };
  const add = (containerId: string, exclude: string[]): Promise<string[]> => {
    const subnets = [{ ipv4: '10.69.0.0/28' }];
    const pool = parsePool('p', { layout: 'flat', blockSize: 1, subnets, exclude });
    const reserve = (store: LeaseStore, held: Held | undefined) => {
      const chosen = chooseAddresses(held, 'p', store);
      if (chosen) store.reserve(chosen, { containerId, ifname: 'eth0' });
      return chosen?.map(({ ip }) => renderIp(ip));
    };
    return obtain(claimant, async () => pool, reserve, 30_000);
  };
  try {
    expect(await add('one', ['10.69.0.1-10.69.0.13'])).toEqual(['10.69.0.14']);
    expect(await add('two', [])).toHaveLength(1);
    expect(heldIn(claimant).blocks).toHaveLength(2);
  } finally {
    rmSync(dir, { recursive: true });
  }
});
