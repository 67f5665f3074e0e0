import { expect, test } from 'bun:test';
import { IpvlanConf } from '../../../../plugins/ipvlan/config.ts';
import { chainedMaster, givenAddresses } from '../../../../plugins/ipvlan/plugin.ts';
import { decode } from '../../../../src/cni/json.ts';

const conf = (more: object) => decode(IpvlanConf, { type: 'ipvlan', ...more }, 'conf');
const before = {
  cniVersion: '1.1.0' as const,
  interfaces: [{ name: 'up0' }],
  ips: [{ address: '192.0.2.1/24', interface: 0 }],
};

test('the master of a chain is the only interface of the result, unless one is configured', () => {
  expect(chainedMaster(conf({}), before)).toBe('up0');
  expect(chainedMaster(conf({ master: 'eth0' }), before)).toBeUndefined();
  expect(chainedMaster(conf({}), undefined)).toBeUndefined();
  expect(() => chainedMaster(conf({}), { ...before, interfaces: [] })).toThrow(
    expect.objectContaining({ code: 7 }),
  );
});

test('addresses of the plugin before are taken if there is no IPAM plugin', () => {
  expect(givenAddresses(conf({}), before)).toEqual({ ips: before.ips, routes: [] });
  const [routes, dns] = [[{ dst: '0.0.0.0/0', gw: '192.0.2.9' }], { nameservers: ['192.0.2.53'] }];
  expect(givenAddresses(conf({}), { ...before, routes, dns })).toEqual({ ips: before.ips, routes, dns });
  expect(givenAddresses(conf({ ipam: { type: 'static' } }), before)).toBeUndefined();
  expect(givenAddresses(conf({}), undefined)).toBeUndefined();
});
