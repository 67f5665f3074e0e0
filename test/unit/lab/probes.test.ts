// Which parameters does a configuration set?
import { describe, expect, test } from 'bun:test';
import { sysctlsOf } from '../../../src/lab/probes.ts';

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
