import { describe, expect, test } from 'bun:test';
import { StaticConf } from '../../../../plugins/static/config.ts';
import { findDifferences, planAddresses, planResult } from '../../../../plugins/static/plan.ts';
import { parseCniArgs } from '../../../../src/cni/env.ts';
import { decode } from '../../../../src/cni/json.ts';

function conf(ipam: object, more: object = {}): StaticConf {
  return decode(StaticConf, { type: 'bridge', ipam: { type: 'static', ...ipam }, ...more }, 'conf');
}

function plan(ipam: object, { args = '', version = '1.1.0', ...more }: Record<string, unknown> = {}) {
  const planned = planAddresses(conf(ipam, more), parseCniArgs(String(args)), version as '1.1.0');
  return planResult(conf(ipam, more), planned).ips;
}

const ADDRESSES = {
  addresses: [
    { address: '10.10.0.7/24', gateway: '10.10.0.254', version: '4' },
    { address: '3ffe:ffff::01ff/64', gateway: '3ffe:ffff:0::1' },
    { address: '10.20.0.7/16' },
  ],
};

describe('planAddresses()', () => {
  test('keeps order, host bits and gateways of the configuration', () => {
    expect(plan(ADDRESSES)).toEqual([
      { address: '10.10.0.7/24', gateway: '10.10.0.254' },
      { address: '3ffe:ffff::1ff/64', gateway: '3ffe:ffff::1' },
      { address: '10.20.0.7/16' },
    ]);
  });

  test('appends those of CNI_ARGS, and adds the last gateway of their subnet to all that lack one', () => {
    const args = 'IP=10.30.0.5/24,fd00::5/64;GATEWAY=10.30.0.9,10.30.0.1,10.20.0.1,10.99.0.1';
    expect(plan(ADDRESSES, { args })?.slice(2)).toEqual([
      { address: '10.20.0.7/16', gateway: '10.20.0.1' },
      { address: '10.30.0.5/24', gateway: '10.30.0.1' },
      { address: 'fd00::5/64' },
    ]);
    expect(plan(ADDRESSES, { args: 'GATEWAY=10.10.0.1' })?.[0]?.gateway).toBe('10.10.0.254');
  });

  test('args.cni.ips replaces those, runtimeConfig.ips all; configured gateways are kept', () => {
    const args = { args: 'IP=10.30.0.5/24' };
    const cni = { cni: { ips: ['10.10.0.20/24'] } };
    const planned = (more: object) =>
      planResult(
        conf(ADDRESSES, more),
        planAddresses(conf(ADDRESSES, more), parseCniArgs(args.args), '1.1.0'),
      ).ips;
    expect(planned({ args: cni })).toEqual([{ address: '10.10.0.20/24', gateway: '10.10.0.254' }]);
    expect(planned({ args: cni, runtimeConfig: { ips: ['192.0.2.9/24'] } })).toEqual([
      { address: '192.0.2.9/24' },
    ]);
    expect(planned({ args: cni, RuntimeConfig: { ips: [] } })).toHaveLength(1);
  });

  test('an address alone of runtimeConfig.ips has the prefix of the configured subnet that contains it', () => {
    const ips = ['10.20.9.9', '3ffe:ffff::5', '10.10.0.20'];
    expect(plan(ADDRESSES, { runtimeConfig: { ips } })).toEqual([
      { address: '10.20.9.9/16' },
      { address: '3ffe:ffff::5/64', gateway: '3ffe:ffff::1' },
      { address: '10.10.0.20/24', gateway: '10.10.0.254' },
    ]);
  });

  test('a duplicate address counts once, and keeps its gateway', () => {
    const addresses = [{ address: '10.1.0.5/24' }, { address: '10.1.0.5/24', gateway: '10.1.0.1' }];
    expect(plan({ addresses })).toEqual([{ address: '10.1.0.5/24', gateway: '10.1.0.1' }]);
  });

  test('no address at all is not an error', () => {
    expect(plan({})).toBeUndefined();
  });

  test.each([
    [{ addresses: [{ address: '10.1.0.5' }] }, {}, 7, '"ipam.addresses[0].address": "10.1.0.5"'],
    [{ addresses: [{ address: '10.1.0.5/24', gateway: '10.1.0' }] }, {}, 7, 'gateway": "10.1.0"'],
    [ADDRESSES, { args: 'IP=10.1.0.5' }, 4, 'CNI_ARGS "IP": "10.1.0.5"'],
    [ADDRESSES, { args: 'IP=10.1.0.5/24;GATEWAY=x' }, 4, 'CNI_ARGS "GATEWAY": "x"'],
    [ADDRESSES, { runtimeConfig: { ips: ['1.2.3.4'] } }, 7, '"runtimeConfig.ips": "1.2.3.4"'],
    [ADDRESSES, { version: '0.2.0' }, 7, 'several addresses of one family'],
  ])('refuses %j with %j', (ipam, more, code, gist) => {
    expect(() => plan(ipam, more)).toThrow(
      expect.objectContaining({ code, message: expect.stringContaining(gist) }),
    );
  });

  test('validates unused sources as well', () => {
    const more = { args: 'IP=bad', runtimeConfig: { ips: ['10.1.0.5/24'] } };
    expect(() => plan(ADDRESSES, more)).toThrow('"bad"');
  });
});

describe('planResult()', () => {
  test('copies routes and resolver settings', () => {
    const ipam = { routes: [{ dst: '10.5.0.1/8', gw: '', mtu: 1400 }], dns: { domain: 'x' } };
    expect(planResult(conf(ipam), [])).toEqual({
      routes: [{ dst: '10.5.0.1/8', mtu: 1400 }],
      dns: { domain: 'x' },
    });
  });
});

describe('findDifferences()', () => {
  const addresses = planAddresses(conf(ADDRESSES), [], '1.1.0');
  const reported = planResult(conf(ADDRESSES), addresses).ips ?? [];

  test('finds none in the result of ADD, nor if the caller added a gateway', () => {
    const more = [
      ...reported.slice(0, 2),
      { address: '10.20.0.7/16', gateway: '10.20.0.1' },
      { address: '10.9.0.1/8' },
    ];
    expect([findDifferences(addresses, reported), findDifferences(addresses, more)]).toEqual([[], []]);
  });

  test('names an address that is missing, has another prefix, or another gateway', () => {
    const changed = [{ address: '10.10.0.7/24', gateway: '10.10.0.1' }, { address: '10.20.0.7/24' }];
    expect(findDifferences(addresses, changed)).toEqual([
      'gateway 10.10.0.254 of 10.10.0.7/24: the result has 10.10.0.1',
      'address 3ffe:ffff::1ff/64: the result has 10.10.0.7/24, 10.20.0.7/24',
      'address 10.20.0.7/16: the result has 10.10.0.7/24, 10.20.0.7/24',
    ]);
  });
});
