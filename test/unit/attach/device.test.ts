import { expect, test } from 'bun:test';
import { addressesFromResult, planAddresses } from '../../../src/attach/device.ts';
import { renderCidr, renderIp } from '../../../src/net/ip.ts';

test('a route without a gateway uses that of its family, or the link if there is none', () => {
  const { ips, routes } = planAddresses(
    {
      cniVersion: '1.1.0',
      ips: [{ address: '192.0.2.9/24', gateway: '192.0.2.1' }, { address: '2001:db8::9/64' }],
      routes: [{ dst: '0.0.0.0/0' }, { dst: '::/0' }],
    } as never,
    'static',
  );
  expect(ips.map(({ cidr }) => renderCidr(cidr))).toEqual(['192.0.2.9/24', '2001:db8::9/64']);
  expect(routes.map(({ gateway }) => gateway && renderIp(gateway))).toEqual(['192.0.2.1', undefined]);
});

test('no address is an error that names the IPAM plugin', () => {
  expect(() => planAddresses({} as never, 'dhcp')).toThrow('IPAM plugin "dhcp" returned no address');
});

test('the addresses of an earlier ADD are those of the interface', () => {
  const result = {
    interfaces: [
      { name: 'eth0', sandbox: '/a' },
      { name: 'eth0', sandbox: '/b' },
    ],
    ips: [
      { address: '192.0.2.1/24', interface: 0 },
      { address: '192.0.2.2/24', interface: 1 },
    ],
  } as never;
  const found = addressesFromResult(result, 'eth0', '/b');
  expect(found.ips.map(({ cidr }) => renderCidr(cidr))).toEqual(['192.0.2.2/24']);
  expect(addressesFromResult({ interfaces: [] } as never, 'eth0', '/b')).toEqual({ ips: [], routes: [] });
});
