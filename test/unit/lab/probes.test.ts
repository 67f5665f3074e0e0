// Which parameters does a configuration set, and which addresses are a container's?
import { describe, expect, test } from 'bun:test';
import { promisesOf, type Scene, sysctlsOf } from '../../../src/lab/probes.ts';

describe('sysctlsOf()', () => {
  test.each([
    ['net.core.somaxconn', 'net/core/somaxconn'],
    ['net/ipv4/conf/eth0.100/arp_notify', 'net/ipv4/conf/eth0.100/arp_notify'],
    ['net.ipv4.conf.eth0/100.arp_notify', 'net/ipv4/conf/eth0.100/arp_notify'],
    ['net/ipv4/conf/IFNAME/arp_notify', 'net/ipv4/conf/net1/arp_notify'],
  ])('returns the path of %s as %s', (name, path) => {
    expect([...sysctlsOf({ type: 't', sysctl: { [name]: '1' } }, 'net1')]).toEqual([[path, '1']]);
  });

  test('is empty without the key', () => {
    expect(sysctlsOf({ type: 't' }, 'eth0').size).toBe(0);
  });
});

test('only addresses of its own devices let a container reach the outside', () => {
  const promised = (index: number) => {
    const interfaces = [{ name: 'br0' }, { name: 'eth0', sandbox: '/run/netns/a' }];
    const ips = [{ address: '10.1.0.2/24', interface: index }];
    const result = { cniVersion: '1.1.0', interfaces, ips, routes: [{ dst: '0.0.0.0/0' }] };
    const lab = { families: [4], outsideAddress: {}, hostAddress: {} };
    const scene = { plugins: [], ifname: 'eth0', container: { place: {}, result }, lab };
    return promisesOf({ ...scene, neighbour: undefined } as unknown as Scene).map(({ what }) => what);
  };
  const own = 'eth0 is up and matches the result';
  expect(promised(0)).toEqual([own]);
  expect(promised(1)).toEqual([own, 'IPv4 outside is reachable']);
});
