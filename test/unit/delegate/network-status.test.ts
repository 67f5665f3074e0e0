import { describe, expect, test } from 'bun:test';
import type { JsonObject } from '../../../src/cni/json.ts';
import { statusOf } from '../../../src/delegate/network-status.ts';

const NETNS = '/run/netns/x';
const network = {
  label: 'ns/net',
  attachment: { containerId: 'c1', netns: NETNS, ifname: 'net1' },
};
const status = (result: JsonObject, isDefault = false) =>
  statusOf(network, { cniVersion: '1.1.0', ...result }, isDefault);
const own = { name: 'net1', mac: '02:00:00:00:00:01', mtu: 1400, sandbox: NETNS };
const SHOWN = { interface: 'net1', mac: '02:00:00:00:00:01', mtu: 1400 };
const host = { name: 'br0', mac: '02:00:00:00:00:02' };

describe('statusOf()', () => {
  test('describes the interface in the container, with its addresses without prefix length', () => {
    const ips = [
      { address: '10.0.0.2/24', interface: 1 },
      { address: 'fd00::2/64', interface: 1 },
      { address: '10.9.0.2/24', interface: 0 },
    ];
    const routes = [
      { dst: '0.0.0.0/0', gw: '10.0.0.1' },
      { dst: '::/0' },
      { dst: '10.8.0.0/16', gw: '10.0.0.9' },
      { dst: '0.0.0.0/0', gw: '10.0.0.8', table: 100 },
      { dst: '::/0', gws: ['fd00::1', 'fd00::9'], table: 254 },
    ];
    expect(
      status({ interfaces: [host, own], ips, routes, dns: { nameservers: ['10.0.0.53'] } }, true),
    ).toEqual({
      name: 'ns/net',
      interface: 'net1',
      ips: ['10.0.0.2', 'fd00::2'],
      mac: '02:00:00:00:00:01',
      mtu: 1400,
      default: true,
      dns: { nameservers: ['10.0.0.53'] },
      gateway: ['10.0.0.1', 'fd00::1', 'fd00::9'],
    });
  });

  test.each<[string, JsonObject, object]>([
    ['nothing at all', {}, {}],
    ['addresses alone', { ips: [{ address: '10.0.0.2/24' }] }, { interface: 'net1', ips: ['10.0.0.2'] }],
    [
      'an address of no interface',
      { interfaces: [own], ips: [{ address: '10.0.0.2/24' }] },
      { ...SHOWN, ips: ['10.0.0.2'] },
    ],
    [
      // As some plugins write it.
      'an address of interface -1',
      { interfaces: [own], ips: [{ address: '10.0.0.2/24', interface: -1 }] },
      { ...SHOWN, ips: ['10.0.0.2'] },
    ],
    [
      'an interface of another name',
      { interfaces: [host, { ...own, name: 'tap0' }] },
      { ...SHOWN, interface: 'tap0' },
    ],
    ['an older version', { cniVersion: '0.4.0', interfaces: [own] }, SHOWN],
    [
      'an ancient version',
      { cniVersion: '0.2.0', ip4: { ip: '10.0.0.2/24' } },
      { interface: 'net1', ips: ['10.0.0.2'] },
    ],
    [
      'a PCI device',
      { interfaces: [{ ...own, pciID: '0000:01:00.0' }] },
      { ...SHOWN, 'device-info': { type: 'pci', version: '1.1.0', pci: { 'pci-address': '0000:01:00.0' } } },
    ],
    [
      'a socket',
      { interfaces: [{ ...own, socketPath: '/run/x' }] },
      // The information would need its mode, which no result tells.
      SHOWN,
    ],
  ])('has an entry for a result with %s', (_, result, expected) => {
    expect(status(result)).toEqual({ name: 'ns/net', dns: {}, ...expected } as never);
  });
});
