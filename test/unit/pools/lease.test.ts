// Which addresses do blocks offer whose pool excludes something that it did not when they were claimed?
import { expect, test } from 'bun:test';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { LeaseStore } from '../../../src/ipam/lease-store.ts';
import { renderIp } from '../../../src/net/ip.ts';
import { obtain } from '../../../src/pools/claim.ts';
import { directoryStore } from '../../../src/pools/directory-store.ts';
import { type Held, type HeldBlock, type Terms, termsOf } from '../../../src/pools/held.ts';
import { chooseAddresses, useOf } from '../../../src/pools/lease.ts';
import { heldIn, isConfirmed } from '../../../src/pools/place.ts';
import { parsePool } from '../../../src/pools/pool.ts';

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

test('further blocks offer the family that is excluded of the first', () => {
  const chosen = chooseAddresses(heldWith(['10.69.0.3'], 3, 5), 'p', NONE_LEASED);
  expect(chosen?.map(({ ip }) => ip.value & 0xfn)).toEqual([5n, 3n]);
  expect(useOf(heldWith(['10.69.0.3'], 3, 5), 'p', NONE_LEASED)).toEqual({ size: 1, used: 0, free: 1 });
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
