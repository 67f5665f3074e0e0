// Does the bridge plugin derive the addressing that the IPAM result calls for?
import { describe, expect, test } from 'bun:test';
import { BridgeConf } from '../../../../plugins/bridge/config.ts';
import { planAddressing, planVlans, renderVlans, wantsFiltering } from '../../../../plugins/bridge/plan.ts';
import { decode } from '../../../../src/cni/json.ts';
import type { Result } from '../../../../src/cni/result.ts';
import { renderCidr, renderIp } from '../../../../src/net/ip.ts';

function plan(conf: object, ipam: Result) {
  const full = { name: 'n', type: 'bridge', ipam: { type: 'host-local' }, ...conf };
  const { ips, gateways, routes, resultRoutes } = planAddressing(decode(BridgeConf, full, 'test'), ipam);
  return {
    ips: ips.map(({ cidr, gateway }) => [renderCidr(cidr), gateway && renderIp(gateway)]),
    gateways: gateways.map(renderCidr),
    routes: routes.map(({ dst, gateway }) => [renderCidr(dst), gateway && renderIp(gateway)]),
    resultRoutes,
  };
}

const dual: Result = {
  ips: [{ address: '10.1.0.7/24' }, { address: 'fd01::7/64', gateway: 'fd01::99' }],
};

describe('planAddressing() gateways', () => {
  test('a gateway that IPAM left out is the first address of the subnet', () => {
    const { ips, gateways } = plan({ isGateway: true }, dual);
    expect(ips).toEqual([
      ['10.1.0.7/24', '10.1.0.1'],
      ['fd01::7/64', 'fd01::99'],
    ]);
    expect(gateways).toEqual(['10.1.0.1/24', 'fd01::99/64']);
  });

  test('without isGateway the bridge gets no address and the gateways are IPAM’s', () => {
    const { ips, gateways } = plan({}, dual);
    expect(ips[0]).toEqual(['10.1.0.7/24', undefined]);
    expect(gateways).toEqual([]);
  });

  test('isDefaultGateway implies isGateway', () => {
    expect(plan({ isDefaultGateway: true }, dual).gateways).toHaveLength(2);
  });

  test('a result without addresses is refused', () => {
    expect(() => plan({}, { ips: [] })).toThrow('returned no address');
  });
});

describe('planAddressing() routes', () => {
  test('a default route is added once per family', () => {
    expect(plan({ isDefaultGateway: true }, dual).resultRoutes).toEqual([
      { dst: '0.0.0.0/0', gw: '10.1.0.1' },
      { dst: '::/0', gw: 'fd01::99' },
    ]);
  });

  test('a default route of IPAM without gateway is completed, not duplicated', () => {
    const routes = [{ dst: '0.0.0.0/0' }];
    expect(plan({ isDefaultGateway: true }, { ...dual, routes }).resultRoutes).toEqual([
      { dst: '0.0.0.0/0', gw: '10.1.0.1' },
      { dst: '::/0', gw: 'fd01::99' },
    ]);
  });

  test('a default route of IPAM with a gateway is kept', () => {
    const routes = [{ dst: '0.0.0.0/0', gw: '10.1.0.200' }];
    const { resultRoutes } = plan({ isDefaultGateway: true }, { ...dual, routes });
    expect(resultRoutes[0]).toEqual({ dst: '0.0.0.0/0', gw: '10.1.0.200' });
    expect(resultRoutes).toHaveLength(2);
  });

  test('a route without gateway goes through the gateway of its family', () => {
    const routes = [{ dst: '192.168.0.0/16' }, { dst: 'fd77::/16' }];
    expect(plan({ isGateway: true }, { ...dual, routes }).routes).toEqual([
      ['192.168.0.0/16', '10.1.0.1'],
      ['fd77::/16', 'fd01::99'],
    ]);
  });

  test('a route inside an own subnet stays on-link', () => {
    const routes = [{ dst: '10.1.0.128/25' }];
    expect(plan({ isGateway: true }, { ...dual, routes }).routes).toEqual([['10.1.0.128/25', undefined]]);
  });
});

function confOf(conf: object): BridgeConf {
  return decode(BridgeConf, { name: 'n', type: 'bridge', ...conf }, 'test');
}

function planned(conf: object) {
  const vlans = planVlans(confOf(conf));
  return vlans && [vlans.leavesDefault, ...renderVlans(vlans.vlans)];
}

describe('planVlans()', () => {
  test('without VLANs the port is left alone', () => {
    expect(planned({})).toBeUndefined();
    expect(planned({ vlanTrunk: [] })).toBeUndefined();
  });

  test('"vlan" is the VLAN of untagged frames, and the only one', () => {
    expect(planned({ vlan: 100 })).toEqual([true, '100 pvid untagged']);
  });

  test('"preserveDefaultVlan" leaves the port where the bridge put it', () => {
    expect(planned({ vlan: 100, preserveDefaultVlan: true })).toEqual([false, '100 pvid untagged']);
  });

  test('a trunk is tagged, next to the default VLAN', () => {
    expect(planned({ vlanTrunk: [{ id: 101 }, { minID: 200, maxID: 210 }] })).toEqual([
      true,
      '1 pvid untagged',
      '101',
      '200-210',
    ]);
  });

  test('entries may overlap, repeat, adjoin, be in any order and have both forms', () => {
    const vlanTrunk = [{ minID: 20, maxID: 30 }, { id: 10 }, { id: 31, minID: 25, maxID: 27 }, { id: 10 }];
    expect(planned({ vlan: 5, vlanTrunk })).toEqual([true, '5 pvid untagged', '10', '20-31']);
  });

  test('a trunk that names the native VLAN does not tag it', () => {
    expect(planned({ vlan: 100, vlanTrunk: [{ minID: 99, maxID: 101 }] })).toEqual([
      true,
      '99',
      '100 pvid untagged',
      '101',
    ]);
    expect(planned({ vlanTrunk: [{ id: 1 }, { id: 2 }] })).toEqual([true, '1 pvid untagged', '2']);
  });

  test('all VLANs are two entries', () => {
    expect(planned({ vlan: 1, vlanTrunk: [{ minID: 1, maxID: 4094 }] })).toEqual([
      true,
      '1 pvid untagged',
      '2-4094',
    ]);
  });
});

test('wantsFiltering() is true for any VLAN key, even an empty trunk', () => {
  expect(
    [{}, { vlan: 7 }, { vlanTrunk: [{ id: 7 }] }, { vlanTrunk: [] }].map(c => wantsFiltering(confOf(c))),
  ).toEqual([false, true, true, true]);
});
