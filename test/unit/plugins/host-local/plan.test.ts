import { describe, expect, test } from 'bun:test';
import { HostLocalConf } from '../../../../plugins/host-local/config.ts';
import { findUnleased, planAllocation, planResult } from '../../../../plugins/host-local/plan.ts';
import { renderRangeSet } from '../../../../plugins/host-local/range.ts';
import type { CniError } from '../../../../src/cni/errors.ts';
import { decode } from '../../../../src/cni/json.ts';
import type { SpecVersion } from '../../../../src/cni/result.ts';
import { parseIp, renderIp } from '../../../../src/net/ip.ts';

function plan(conf: object, args: [string, string][] = [], version: SpecVersion = '1.1.0') {
  return planAllocation(decode(HostLocalConf, { type: 'host-local', ...conf }, 'test'), args, version);
}

function failure(work: () => unknown): CniError {
  try {
    work();
  } catch (thrown) {
    return thrown as CniError;
  }
  throw new Error('no failure');
}

const ranges = [[{ subnet: '10.1.0.0/29' }]];

describe('planAllocation()', () => {
  test('orders sets: ipRanges, the single range, ranges', () => {
    const { sets } = plan({
      ipam: { subnet: '10.2.0.0/29', rangeEnd: '10.2.0.4', ranges },
      RuntimeConfig: { ipRanges: [[{ Subnet: '10.3.0.0/29' }]] },
    });
    expect(sets.map(renderRangeSet)).toEqual(['10.3.0.1-10.3.0.6', '10.2.0.1-10.2.0.4', '10.1.0.1-10.1.0.6']);
  });

  test('gathers requested addresses from all sources, without prefixes and duplicates', () => {
    const { requested } = plan(
      {
        ipam: { ranges },
        args: { cni: { ips: ['10.1.0.3/29', '10.1.0.2'] } },
        runtimeConfig: { ips: ['fd00::1/64'] },
      },
      [['IP', '10.1.0.2/24']],
    );
    expect(requested.map(renderIp)).toEqual(['10.1.0.2', '10.1.0.3', 'fd00::1']);
  });

  test('refuses invalid addresses, with the code of their source', () => {
    expect(failure(() => plan({ ipam: { ranges } }, [['IP', '10.1.0.2,10.1.0.3']])).code).toBe(4);
    expect(failure(() => plan({ ipam: { ranges }, args: { cni: { ips: [''] } } })).code).toBe(7);
    expect(failure(() => plan({ ipam: { ranges } }, [['GATEWAY', '10.1.0.1']])).message).toContain(
      'unknown args',
    );
  });

  test('refuses a configuration without ranges, with bad ones, or with too many for its version', () => {
    expect(failure(() => plan({ ipam: {} }))).toMatchObject({
      code: 7,
      message: expect.stringContaining('no ranges'),
    });
    expect(failure(() => plan({ ipam: { ranges: [[{ subnet: '10.1.0.9/29' }]] } })).code).toBe(7);
    const two = { ipam: { ranges: [...ranges, [{ subnet: '10.9.0.0/29' }]] } };
    expect(failure(() => plan(two, [], '0.2.0'))).toMatchObject({
      code: 7,
      message: expect.stringContaining('0.3.0'),
    });
    expect(plan(two, [], '0.3.0').sets).toHaveLength(2);
  });

  test('passes routes on, with addresses in canonical form', () => {
    const routes = [
      { dst: '10.7.0.1/16', gw: '::ffff:10.1.0.1', priority: 5 },
      { dst: 'FD00:0::/64', gw: '' },
    ];
    expect(plan({ ipam: { ranges, routes } }).routes).toEqual([
      { dst: '10.7.0.1/16', gw: '10.1.0.1', priority: 5 },
      { dst: 'fd00::/64' },
    ]);
    expect(failure(() => plan({ ipam: { ranges, routes: [{ dst: 'default' }] } })).message).toContain(
      'routes[0].dst',
    );
  });
});

describe('planResult()', () => {
  test('reports addresses with the prefix and gateway of their range', () => {
    const planned = plan({ ipam: { ranges, routes: [{ dst: '0.0.0.0/0' }] } });
    const [set] = planned.sets;
    if (set === undefined) throw new Error('no set');
    const result = planResult([{ ip: parseIp('10.1.0.4'), range: set[0], setIndex: 0 }], planned, {
      domain: 'a',
    });
    expect(result).toEqual({
      ips: [{ address: '10.1.0.4/29', gateway: '10.1.0.1' }],
      routes: [{ dst: '0.0.0.0/0' }],
      dns: { domain: 'a' },
    });
  });
});

describe('findUnleased()', () => {
  const { sets } = plan({ ipam: { ranges } });
  const find = (addresses: string[], leased: string[]) =>
    findUnleased(
      sets,
      addresses.map(address => ({ address })),
      leased,
    );

  test('ignores addresses that other plugins added', () => {
    expect(find(['10.1.0.2/29', '192.0.2.1/24'], ['10.1.0.2'])).toEqual([]);
    expect(find([], ['10.1.0.2'])).toEqual([]);
  });
  test('names addresses of our ranges that are not leased, and all when none is', () => {
    expect(find(['10.1.0.2/29', '10.1.0.3/29'], ['10.1.0.2'])).toEqual(['10.1.0.3']);
    expect(find(['192.0.2.1/24'], ['10.1.0.2'])).toEqual(['192.0.2.1']);
  });
});
