import { afterEach, beforeEach, describe, expect, test } from 'bun:test';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseRangeSets, type RangeSet } from '../../../../plugins/host-local/plan.ts';
import {
  exhausted,
  parseResolvConf,
  readResolvConf,
  refuseReadOnly,
  usageOf,
  warnIfNearlyFull,
} from '../../../../plugins/host-local/plugin.ts';
import type { CniError } from '../../../../src/cni/errors.ts';
import { noteBoot, thisBoot } from '../../../../src/ipam/lease-files.ts';
import { type LeaseStore, withStore } from '../../../../src/ipam/lease-store.ts';
import { createLog } from '../../../../src/log.ts';

describe('parseResolvConf()', () => {
  test('accumulates repeated directives and uses the last domain', () => {
    const text =
      'nameserver 192.0.2.0\nnameserver 192.0.2.1 ignored\ndomain a\ndomain b\nsearch x y\nsearch z\noptions ndots:1\noptions debug\n';
    expect(parseResolvConf(text)).toEqual({
      nameservers: ['192.0.2.0', '192.0.2.1'],
      domain: 'b',
      search: ['x', 'y', 'z'],
      options: ['ndots:1', 'debug'],
    });
  });

  test('skips comments, inline ones too, empty lines and keywords without value', () => {
    expect(parseResolvConf('# c\n; c\n\nsearch a # not b\nnameserver\n  nameserver\t10.0.0.1\r\n')).toEqual({
      nameservers: ['10.0.0.1'],
      search: ['a'],
    });
  });
});

describe('readResolvConf()', () => {
  test('names the file that is missing', () => {
    expect(() => readResolvConf('/nonexistent/resolv.conf')).toThrow('/nonexistent/resolv.conf');
  });

  test('a device that never ends is refused', () => {
    expect(() => readResolvConf('/dev/zero')).toThrow('/dev/zero: it is no regular file');
  });
});

let dir: string;
beforeEach(() => {
  dir = mkdtempSync(join(tmpdir(), 'leases-'));
});
afterEach(() => rmSync(dir, { recursive: true }));

function lease(...addresses: string[]): void {
  for (const address of addresses) writeFileSync(join(dir, address), 'cid\r\neth0');
}

function locked<T>(work: (store: LeaseStore) => T): T {
  return withStore(dir, { reclaim: false }, work);
}

function setOf(...ranges: { subnet: string; gateway?: string }[]): RangeSet {
  const [set] = parseRangeSets([ranges]);
  if (set === undefined) throw new Error('no set');
  return set;
}

function codeOf(work: () => void): number {
  try {
    work();
  } catch (thrown) {
    return (thrown as CniError).code;
  }
  return 0;
}

describe('usageOf()', () => {
  test('counts addresses of the set, without gateways', () => {
    lease('10.0.0.1', '10.0.0.2', '10.0.1.2', '10.0.2.9', 'fd00::2');
    const set = setOf({ subnet: '10.0.0.0/29' }, { subnet: '10.0.2.0/24', gateway: '10.0.9.9' });
    expect(locked(store => usageOf(set, store))).toEqual({ capacity: 5n + 254n, used: 2n });
  });

  test('does not count single addresses of IPv6', () => {
    lease('fd00::2', 'fd00::1:0:5', 'fd01::2');
    const { used, capacity } = locked(store => usageOf(setOf({ subnet: 'fd00::/64' }), store));
    expect([used, capacity]).toEqual([2n, (1n << 64n) - 2n]);
  });
});

describe('exhausted()', () => {
  test('names the set, its subnets and size, what is used and reclaimable, and what to do', () => {
    lease('10.0.0.2', '10.0.0.3', '10.0.0.4', '10.0.0.5', '10.0.0.6');
    const earlier = { ...thisBoot(), bootId: 'earlier' };
    for (const address of ['10.0.0.3', '10.0.0.5']) noteBoot(join(dir, address), earlier);
    const place = { network: 'podnet', dataDir: '/elsewhere', dir };
    const set = setOf({ subnet: '10.0.0.0/29' });
    const error = locked(store => exhausted({ set, setIndex: 3 }, store, place, 11));
    expect(error.code).toBe(11);
    expect(error.message).toBe(
      'Cannot allocate from range set 3: no IP addresses available in range set: 10.0.0.1-10.0.0.6 ' +
        '(subnet 10.0.0.0/29: 5 of 5 addresses in use, 2 reclaimable)',
    );
    expect(error.details).toContain('"catena ipam ls podnet --data-dir /elsewhere" shows who holds them');
    expect(error.details).toContain('"catena ipam free podnet <address> --data-dir /elsewhere" releases one');
    expect(error.details).toContain('"reclaimAfterReboot": false');
  });
});

describe('warnIfNearlyFull()', () => {
  test('logs nothing below nine tenths', async () => {
    const said: string[] = [];
    const log = createLog('warn', {}, text => said.push(text));
    const set = setOf({ subnet: '10.0.0.0/24' });
    warnIfNearlyFull(set, 0, { capacity: 253n, used: 227n }, log);
    await log.flush();
    expect(said).toEqual([]);
    warnIfNearlyFull(set, 0, { capacity: 253n, used: 228n }, log);
    await log.flush();
    expect(JSON.parse(said.join(''))).toMatchObject({
      level: 'warn',
      message: 'Range set 0 is nearly full: 228 of 253 addresses in use',
      range_set: '10.0.0.1-10.0.0.254',
    });
  });
});

describe('refuseReadOnly()', () => {
  test('examines the existing part of the path', () => {
    expect(() => refuseReadOnly('/tmp/not/yet/there')).not.toThrow();
    expect(codeOf(() => refuseReadOnly('/etc/hostname/leases'))).toBe(50);
  });
});
