import { describe, expect, test } from 'bun:test';
import { planFromResult, planPtp } from '../../../../plugins/ptp/plan.ts';
import type { PlannedRoute } from '../../../../src/attach/addressing.ts';
import { renderCidr, renderIp } from '../../../../src/net/ip.ts';

const IPAM = {
  ips: [
    { address: '10.1.0.5/24', gateway: '10.1.0.1' },
    { address: 'fd00::5/64', gateway: 'fd00::1' },
  ],
  routes: [{ dst: '0.0.0.0/0' }, { dst: '::/0' }, { dst: '10.9.0.0/16', gw: '10.1.0.9' }],
};

function words(routes: readonly PlannedRoute[]): string[] {
  return routes.map(({ dst, gateway, source }) =>
    [
      renderCidr(dst),
      ...(gateway ? [`via ${renderIp(gateway)}`] : []),
      ...(source ? [`src ${renderIp(source)}`] : []),
    ].join(' '),
  );
}

describe('planPtp()', () => {
  test('routes everything through the gateways', () => {
    const plan = planPtp(IPAM, 'host-local');
    expect(words(plan.toGateways)).toEqual(['10.1.0.1/32 src 10.1.0.5', 'fd00::1/128 src fd00::5']);
    expect(words(plan.notOnLink)).toEqual(['10.1.0.0/24', 'fd00::/64']);
    expect(words(plan.toSubnets)).toEqual([
      '10.1.0.0/24 via 10.1.0.1 src 10.1.0.5',
      'fd00::/64 via fd00::1 src fd00::5',
    ]);
    expect(words(plan.routes)).toEqual([
      '0.0.0.0/0 via 10.1.0.1',
      '::/0 via fd00::1',
      '10.9.0.0/16 via 10.1.0.9',
    ]);
    expect(plan.hostAddresses.map(renderCidr)).toEqual(['10.1.0.1/32', 'fd00::1/128']);
    expect(words(plan.hostRoutes)).toEqual(['10.1.0.5/32', 'fd00::5/128']);
  });

  test('two addresses of one subnet share gateway and route', () => {
    const ips = ['10.1.0.5/24', '10.1.0.6/24'].map(address => ({ address, gateway: '10.1.0.1' }));
    const plan = planPtp({ ips }, 'static');
    expect(words(plan.toGateways)).toEqual(['10.1.0.1/32 src 10.1.0.5']);
    expect(words(plan.toSubnets)).toEqual(['10.1.0.0/24 via 10.1.0.1 src 10.1.0.5']);
    expect(plan.hostAddresses.map(renderCidr)).toEqual(['10.1.0.1/32']);
    expect(words(plan.hostRoutes)).toEqual(['10.1.0.5/32', '10.1.0.6/32']);
  });

  test('an address without a subnet has no route to it', () => {
    const plan = planPtp({ ips: [{ address: '10.1.0.5/32', gateway: '169.254.1.1' }] }, 'static');
    expect([plan.notOnLink, plan.toSubnets]).toEqual([[], []]);
    expect(words(plan.toGateways)).toEqual(['169.254.1.1/32 src 10.1.0.5']);
  });

  test("IPAM's route to the own subnet is not added twice", () => {
    const routes = [{ dst: '10.1.0.0/24' }, { dst: 'fd00::/64', gw: 'fd00::1' }];
    expect(planPtp({ ...IPAM, routes }, 'static').routes).toEqual([]);
    const elsewhere = [{ dst: '10.1.0.0/24', gw: '10.1.0.7' }];
    expect(words(planPtp({ ...IPAM, routes: elsewhere }, 'static').routes)).toEqual([
      '10.1.0.0/24 via 10.1.0.7',
    ]);
  });

  test.each([
    [{ ips: [] }, 'returned no address'],
    [{}, 'returned no address'],
    [{ ips: [{ address: '10.1.0.5/24' }] }, 'returned 10.1.0.5/24 without a gateway'],
  ])('refuses %j with code 7', (ipam, gist) => {
    expect(() => planPtp(ipam, 'static')).toThrow(
      expect.objectContaining({ code: 7, message: expect.stringContaining(gist) }),
    );
  });
});

describe('planFromResult()', () => {
  test('omits addresses of other interfaces', () => {
    const prevResult = {
      interfaces: [{ name: 'veth1' }, { name: 'eth0', sandbox: '/ns' }, { name: 'net1', sandbox: '/ns' }],
      ips: [
        { address: '10.1.0.5/24', gateway: '10.1.0.1', interface: 1 },
        { address: '10.2.0.5/24', gateway: '10.2.0.1', interface: 2 },
      ],
    };
    expect(words(planFromResult(prevResult, 'static').hostRoutes)).toEqual(['10.1.0.5/32']);
  });
});
