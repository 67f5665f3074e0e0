// Does the bridge plugin derive the addressing that the IPAM result calls for?
import { describe, expect, test } from 'bun:test';
import { BridgeConf } from '../../../../plugins/bridge/config.ts';
import { planAddressing } from '../../../../plugins/bridge/plan.ts';
import { decode } from '../../../../src/cni/json.ts';
import type { Result } from '../../../../src/cni/result.ts';
import { renderCidr } from '../../../../src/net/cidr.ts';
import { renderIp } from '../../../../src/net/ip.ts';

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
